"""Keeps a claim's CDI specification there only while every sandbox of it that has begun is attached (decision D12).

A container that asks for a CDI device whose specification is missing is not created, so a pod that began while the
driver was away does not run without its network. A claim that pods share has one specification for all of them: while
one of them is being attached it is taken away, or a crash in that moment would let that pod's containers through. That
it is away is then all that is left of that moment, so the next process does not write it before it has seen who has it.
Called by `netdra.node.pods.attachments` and `reconcile` from worker threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from netdra.model.errors import NetdraError, TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore
from netdra.node.pods.status import Outcome


class Guard:
    """Which sandboxes of which claims are attached, and the specifications that follow from it."""

    def __init__(self, files: ClaimFiles, prepared: ClaimStore) -> None:
        self.files, self.prepared = files, prepared
        self._attached: dict[str, dict[str, Outcome]] = {}
        self._begun: dict[str, set[str]] = {}
        self._withheld: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def withhold(self, uids: Iterable[str]) -> None:
        """Until `release`, write no specification of these claims that is not there now.

        A former process died before it wrote it, or took it away for another sandbox, which may still wait for its
        network.
        """
        with self._lock:
            self._withheld = frozenset(uids) - frozenset(self.files.specified())

    def withholds(self, uids: Iterable[str]) -> bool:
        """Whether the specification of one of these claims is withheld."""
        with self._lock:
            return not self._withheld.isdisjoint(uids)

    def release(self) -> bool:
        """Withhold nothing any more; whether anything was: its sandboxes are to be confirmed again."""
        with self._lock:
            withheld, self._withheld = self._withheld, frozenset()
            return bool(withheld)

    def begin(self, sandbox: str, claims: Iterable[ClaimReference]) -> None:
        """A sandbox with these claims is about to be attached.

        Raises:
            NetdraError: a specification cannot be removed; the sandbox must not be attached.
        """
        with self._lock:
            for claim in claims:
                self._begun.setdefault(claim.uid, set()).add(sandbox)
                self._attached.get(claim.uid, {}).pop(sandbox, None)
                self.files.detached(claim.uid)

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
            failed: list[NetdraError] = []
            for uid in had:
                self._attached.get(uid, {}).pop(sandbox, None)
                self._begun.get(uid, set()).discard(sandbox)
                try:
                    self._settle(uid)
                except NetdraError as problem:
                    failed.append(problem)
                    self._begun.setdefault(uid, set()).add(sandbox)  # so that whoever calls again tries again
            if failed:
                raise failed[0]
            return had

    def has(self, sandbox: str) -> bool:
        """Whether a sandbox is attached or being attached."""
        with self._lock:
            return any(sandbox in known for each in (self._attached, self._begun) for known in each.values())

    def users(self, uid: str) -> tuple[str, ...]:
        """The sandboxes that have a claim, or are just being attached."""
        with self._lock:
            return self._users(uid)

    def sandboxes(self) -> tuple[str, ...]:
        """The sandboxes that are attached or being attached."""
        with self._lock:
            return tuple({each for kept in (self._attached, self._begun) for known in kept.values() for each in known})

    def keep_only_attached(self) -> tuple[str, ...]:
        """Remove the specifications of claims that no sandbox has, as far as is known here; return the claims' uids.

        Raises:
            NetdraError: one cannot be removed.
        """
        with self._lock:
            return self.files.retain(uid for uid, users in self._attached.items() if users)

    def keep_only_prepared(self) -> tuple[str, ...]:
        """Remove the specifications of claims that are not prepared here, and return the claims' uids.

        Raises:
            NetdraError: one cannot be removed.
        """
        with self._lock:
            return self.files.retain(self.prepared.uids())

    def _users(self, uid: str) -> tuple[str, ...]:
        return (*self._attached.get(uid, ()), *self._begun.get(uid, ()))

    def _settle(self, uid: str) -> None:
        users = self._attached.get(uid, {})
        if users and not self._begun.get(uid):
            if uid not in self._withheld:
                self._write(next(iter(users.values())))
            return
        self.files.detached(uid)
        if not users:
            self._attached.pop(uid, None)
        if not self._begun.get(uid):
            self._begun.pop(uid, None)

    def _write(self, outcome: Outcome) -> None:
        claim = outcome.claim
        prepared = self.prepared.get(claim.uid)
        if prepared is None:
            raise TemporaryError(
                f'ResourceClaim "{claim.namespace}/{claim.name}" is not prepared on this node',
                hint="see the kubelet's log for what became of NodePrepareResources",
            )
        # Pods that share a claim have the same device files and, but for what they name themselves, interfaces.
        self.files.attached(prepared, outcome.devices)
