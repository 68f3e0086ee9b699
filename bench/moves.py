"""The kernel's own share of a pod's network: a veth moved into another namespace and back, by nothing but netlink.

Measured by `bench.podruns` beside each pod while it runs, so that both stand under the same load: what the kernel takes
is its wait for all CPUs (rcu_barrier), which a busy machine lengthens, and so does a namespace that has just gone.
Two namespaces of its own: no driver sees it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from netdra.kernel import address, kinds, link
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace

CHAIN_ADDRESS, CHAIN_MTU = "192.0.2.7/24", 1400
_DEVICE, _INSIDE = "bare", "net1"


class Move(msgspec.Struct, frozen=True):
    """Milliseconds of one move in, of what a chain adds to it in the pod, and of the way back."""

    into: float
    chain: float
    back: float


class Mover:
    """Moves its veth."""

    def __init__(self, home: Namespace, pod: Namespace, at_home: Socket, inside: Socket) -> None:
        self._home, self._pod, self._at_home, self._inside = home, pod, at_home, inside

    def move(self, *, chain: bool = False) -> Move:
        """Move it in and up, and back and up, as netdra does; with `chain` it gets an address and an MTU between.

        Whether it is set down first or brought up by a message of its own changes less than two rounds differ: nearly
        all is the kernel's wait for its RCU callbacks (rcu_barrier in __dev_change_net_namespace). A device that keeps
        its name may be in 2 ms sooner; netdra's root steps get `net1`, `net2` ... (decision D8).
        """
        started = time.perf_counter()
        index = link.get(self._at_home, _DEVICE).index
        link.change(self._at_home, index, netns_fd=self._pod.fd, name=_INSIDE, up=True)
        moved = time.perf_counter()
        if chain:
            address.add(self._inside, link.get(self._inside, _INSIDE).index, CHAIN_ADDRESS)
            link.change(self._inside, _INSIDE, mtu=CHAIN_MTU)
        built = time.perf_counter()
        if chain:
            link.change(self._inside, _INSIDE, mtu=1500)
        undone = time.perf_counter()
        link.change(self._inside, _INSIDE, netns_fd=self._home.fd, name=_DEVICE)
        link.change(self._at_home, _DEVICE, up=True)
        ended = time.perf_counter()
        return Move((moved - started) * 1000, (built - moved) * 1000, (ended - undone) * 1000)


@contextmanager
def mover() -> Iterator[Mover]:
    """Two namespaces with a veth to move between them, gone at the end."""
    with ExitStack() as closing:
        home, pod, far = (closing.enter_context(Namespace.anonymous()) for _ in range(3))
        at_home, inside = (closing.enter_context(each.socket()) for each in (home, pod))
        link.create(at_home, _DEVICE, "veth", kinds.veth(kinds.Peer("far", netns_fd=far.fd)))
        link.change(at_home, _DEVICE, up=True)
        with far.socket() as other:
            link.change(other, "far", up=True)
        yield Mover(home, pod, at_home, inside)
