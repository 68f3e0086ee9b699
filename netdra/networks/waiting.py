"""The claims that wait for a free address, in the order of their arrival. Pure.

Kept by `netdra.controller.addresses.pod_addresses`. Addresses of a claim are assigned all or none, so a claim that
waits holds none. A pod may have several claims, and begins when each has its addresses: the pod that waits longer is
first, and a pod that waits less long gives back what it holds of the other's network. So no two pods wait for each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count


def limit_queue(network: str, namespace: str) -> str:
    """The queue of a namespace's claims that wait for the limit of a network; no network's name has a slash."""
    return f"{network}/{namespace}"


class WaitingClaims:
    """The claims that wait for a free address of a network, for all networks.

    Claims of a namespace that has all addresses that it can have are in a queue of their own (`limit_queue`), which
    stands for a network here: claims of other namespaces do not wait for them.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._networks: dict[str, dict[str, Mapping[str, str]]] = {}
        self._tickets: dict[str, int] = {}
        self._numbers = count(1)
        self._pods: dict[str, str] = {}
        self._claims: dict[str, dict[str, None]] = {}

    def note_pod(self, claim: str, pod: str) -> None:
        """Note the pod of a claim, by its uid."""
        if self._pods.get(claim) != pod:
            self._forget_pod(claim)
            self._pods[claim] = pod
            self._claims.setdefault(pod, {})[claim] = None

    def wait(self, claim: str, networks: Iterable[str], labels: Mapping[str, str]) -> None:
        """A claim begins to wait, or still waits; it keeps its place.

        It waits for each network that lacked an address for it since it began to wait: otherwise later claims could
        take the address of one network whenever the other network has one.

        Args:
            networks: those that have no address for it now.
            labels: those of its node.
        """
        self._tickets.setdefault(claim, next(self._numbers))
        for network in networks:
            self._networks.setdefault(network, {}).setdefault(claim, labels)

    def leave(self, claim: str) -> None:
        """A claim waits no longer."""
        self._tickets.pop(claim, None)
        for network in [name for name, waiting in self._networks.items() if claim in waiting]:
            self.withdraw(claim, network)

    def withdraw(self, claim: str, network: str) -> bool:
        """A claim does not wait for a network any more; returns whether it did. It keeps its place."""
        waiting = self._networks.get(network, {})
        if claim not in waiting:
            return False
        del waiting[claim]
        if not waiting:
            del self._networks[network]
        return True

    def forget(self, claim: str) -> None:
        """A claim is gone, or not allocated."""
        self.leave(claim)
        self._forget_pod(claim)

    def of(self, network: str) -> list[str]:
        """The claims that wait for a network, the first one first."""
        return sorted(self._networks.get(network, ()), key=self._place)

    def of_limits(self, network: str) -> list[str]:
        """The claims that wait for the limits of a network."""
        queues = (waiting for name, waiting in self._networks.items() if name.startswith(limit_queue(network, "")))
        return [claim for waiting in queues for claim in waiting]

    def before(self, claim: str, network: str, compete: Callable[[Mapping[str, str]], bool]) -> int:
        """How many claims of other pods wait for a network, and longer than a claim or its pod.

        Args:
            claim: the claim; it need not wait.
            compete: whether a claim on a node of these labels could get an address that this claim could get.
        """
        own = self._place(claim)
        return sum(
            self._place(other) < own and not self._is_same_pod(claim, other) and compete(labels)
            for other, labels in self._networks.get(network, {}).items()
        )

    def must_give_back(self, claim: str, network: str) -> bool:
        """Whether a claim's pod waits, and another one waits longer for a network of which the claim has an address."""
        return self._pod_waits(claim) and self.before(claim, network, lambda _: True) > 0

    def later(self, claim: str) -> Iterator[str]:
        """The claims of pods that wait less long than a claim, those too that have their own addresses."""
        own = self._place(claim)
        pods = dict.fromkeys(self._pods[other] for other in self._tickets if other in self._pods)
        for pod in pods:
            claims = self._claims[pod]
            if claim not in claims and any(self._place(other) > own for other in claims):
                yield from claims

    def _place(self, claim: str) -> float:
        """The place of a claim: that of the first claim of its pod; behind all others if none waits."""
        claims = self._claims.get(self._pods.get(claim, ""), (claim,))
        return min((self._tickets[other] for other in claims if other in self._tickets), default=float("inf"))

    def _pod_waits(self, claim: str) -> bool:
        return any(other in self._tickets for other in self._claims.get(self._pods.get(claim, ""), ()))

    def _is_same_pod(self, claim: str, other: str) -> bool:
        return claim == other or (claim in self._pods and self._pods[claim] == self._pods.get(other))

    def _forget_pod(self, claim: str) -> None:
        pod = self._pods.pop(claim, None)
        if pod is not None:
            del self._claims[pod][claim]
            if not self._claims[pod]:
                del self._claims[pod]
