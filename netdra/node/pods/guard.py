"""Keeps a claim's CDI specification there only while every sandbox of it that has begun is attached (decision D12).

A container that asks for a CDI device whose specification is missing is not created, so a pod that began while the
driver was away does not run without its network. A claim that pods share has one specification for all of them: while
one of them is being attached it is taken away, or a crash in that moment would let that pod's containers through.
Called by `netdra.node.pods.attachments` and `reconcile` from worker threads.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from netdra.model.plan import ClaimReference
from netdra.node.pods.outcome import Outcome


class Specifications(Protocol):
    """Where CDI specifications are; `netdra.node.cdi` is one. All calls are short and may be repeated."""

    def write(self, claim: ClaimReference, device_nodes: Sequence[str]) -> None:
        """Let containers that were given the claim's devices be created.

        Raises:
            NetdraError: it cannot be written.
        """

    def remove(self, claim_uid: str) -> None:
        """Let no further container with the claim's devices be created; one that has none is no error.

        Raises:
            NetdraError: it cannot be removed.
        """

    def claims(self) -> Collection[str]:
        """The uids of the claims that have one."""


class Guard:
    """Which sandboxes of which claims are attached, and the specifications that follow from it."""

    def __init__(self, specifications: Specifications) -> None:
        self._specifications = specifications
        self._attached: dict[str, dict[str, Outcome]] = {}
        self._begun: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def begin(self, sandbox: str, claims: Iterable[ClaimReference]) -> None:
        """A sandbox with these claims is about to be attached.

        Raises:
            NetdraError: a specification cannot be removed; the sandbox must not be attached.
        """
        with self._lock:
            for claim in claims:
                self._begun.setdefault(claim.uid, set()).add(sandbox)
                self._attached.get(claim.uid, {}).pop(sandbox, None)
                self._specifications.remove(claim.uid)

    def attached(self, outcomes: Iterable[Outcome]) -> None:
        """A sandbox has its whole network.

        Raises:
            NetdraError: a specification cannot be written; the pod's containers could not be created.
        """
        with self._lock:
            for outcome in outcomes:
                uid, sandbox = outcome.claim.uid, outcome.sandbox.id
                self._attached.setdefault(uid, {})[sandbox] = outcome
                self._begun.get(uid, set()).discard(sandbox)
                self._settle(uid)

    def gone(self, sandbox: str) -> tuple[str, ...]:
        """A sandbox is refused, stops or is gone; return the uids of the claims that it had.

        Raises:
            NetdraError: a specification cannot be removed, or written anew for the claim's other sandboxes.
        """
        with self._lock:
            had = tuple(uid for uid in self._attached.keys() | self._begun.keys() if sandbox in self._users(uid))
            for uid in had:
                self._attached.get(uid, {}).pop(sandbox, None)
                self._begun.get(uid, set()).discard(sandbox)
            for uid in had:
                self._settle(uid)
            return had

    def has(self, sandbox: str) -> bool:
        """Whether a sandbox is attached or being attached."""
        with self._lock:
            return any(sandbox in known for each in (self._attached, self._begun) for known in each.values())

    def users(self, uid: str) -> tuple[str, ...]:
        """The sandboxes that have a claim, or are just being attached."""
        with self._lock:
            return self._users(uid)

    def sweep(self) -> tuple[str, ...]:
        """Remove specifications of claims that no sandbox has, and return the claims' uids.

        Raises:
            NetdraError: one cannot be removed.
        """
        with self._lock:
            stray = tuple(uid for uid in self._specifications.claims() if not self._attached.get(uid))
            for uid in stray:
                self._specifications.remove(uid)
            return stray

    def _users(self, uid: str) -> tuple[str, ...]:
        return (*self._attached.get(uid, ()), *self._begun.get(uid, ()))

    def _settle(self, uid: str) -> None:
        users = self._attached.get(uid, {})
        if users and not self._begun.get(uid):
            nodes = dict.fromkeys(node for outcome in users.values() for node in outcome.device_nodes)
            self._specifications.write(next(iter(users.values())).claim, tuple(nodes))
            return
        self._specifications.remove(uid)
        if not users:
            self._attached.pop(uid, None)
        if not self._begun.get(uid):
            self._begun.pop(uid, None)
