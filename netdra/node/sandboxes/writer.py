"""Writes the claims' statuses of `status`, outside of the hooks: a work queue of claims (`netdra.kube.queue`).

Called by `netdra.node.sandboxes.hooks`. The whole status subresource is written under the resourceVersion that was
read or written last, not a patch: the API server of Kubernetes 1.37 refuses every patch of the status of a claim whose
own opaque parameters were written with blanks ("status.allocation: field cannot be modified once set"). A status that
has the same entries already is not written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import msgspec

from netdra.kube.client import Client
from netdra.kube.errors import ConflictError, NotFoundError, RefusedError
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.resources import Resource
from netdra.model import names
from netdra.model.claim import AllocatedDeviceStatus, AllocationResult
from netdra.model.errors import NetdraError
from netdra.model.meta import ObjectMeta, time_text
from netdra.model.plan import ClaimReference
from netdra.model.resource import API_VERSION, Wire
from netdra.node.metrics import STATUS_WRITES
from netdra.node.priority import PriorityGate
from netdra.node.sandboxes.status import ClaimDevices, Outcome, PolicyOf, device_statuses, same, unprepared
from netdra.node.view import VFTrouble
from netdra.ops.metrics import counted

log = logging.getLogger(__name__)

AT_ONCE = 4
MOST_WAIT = 60.0
MOST_PATIENCE = 2.0  # seconds that a status waits for pods that just come or go
MOST_UNPREPARED = 1000
MOST_READ = 250
_ALLOCATION, _DEVICES = "allocation", "devices"


class StoredClaim(Wire, frozen=True, omit_defaults=False):
    """A claim whose status is put back as it was read, byte for byte, but for changed entries."""

    metadata: ObjectMeta
    status: Mapping[str, msgspec.Raw] = {}
    api_version: Literal["resource.k8s.io/v1"] = API_VERSION
    kind: Literal["ResourceClaim"] = "ResourceClaim"


STORED_CLAIMS = Resource(API_VERSION, "resourceclaims", StoredClaim, namespaced=True)


class _Driver(msgspec.Struct, frozen=True):
    driver: str


_heads = msgspec.json.Decoder(tuple[_Driver, ...])
_parts = msgspec.json.Decoder(tuple[msgspec.Raw, ...])
_entry = msgspec.json.Decoder(AllocatedDeviceStatus)
_allocation = msgspec.json.Decoder(AllocationResult)


def _now() -> str:
    return time_text(datetime.now(UTC))


@dataclass
class StatusWriter:
    """The claims whose statuses are to be written.

    Attributes:
        policy_of: the policy that offers a device of this node.
        pod_network_kind: as of `device_statuses`.
        clock: the time, in RFC 3339.
        gate: the priority gate; writes wait for it.
        failures: writes that failed so far, for metrics.
    """

    client: Client
    policy_of: PolicyOf
    pod_network_kind: str = ""
    clock: Callable[[], str] = _now
    gate: PriorityGate = field(default_factory=PriorityGate)
    failures: int = 0
    _outcomes: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    _claims: dict[str, set[str]] = field(default_factory=dict)  # of each sandbox, those with an outcome
    _unprepared: dict[str, tuple[str, str]] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _written: dict[str, StoredClaim] = field(default_factory=dict)  # of claims with outcomes, the last answers
    _read: dict[str, StoredClaim] = field(default_factory=dict)  # of claims without, as they were read for their pods
    _troubles: dict[tuple[ClaimReference, str], VFTrouble] = field(default_factory=dict)
    _queue: WorkQueue[ClaimReference] = field(init=False)

    def __post_init__(self) -> None:
        self._queue = WorkQueue(
            "claim-status",
            self._bring_up_to_date,
            workers=AT_ONCE,
            most=MOST_WAIT,
            gate=lambda: self.gate.wait(MOST_PATIENCE),
            fields=lambda claim: {"claim": f"{claim.namespace}/{claim.name}"},
        )

    def update(self, outcomes: Sequence[Outcome]) -> None:
        """Note the outcomes of claims in a sandbox, in place of those in the pod's former one; written soon.

        An outcome that is noted already is not written again, unless the API server refused it: at its start the daemon
        notes each pod's twice, from the checkpoint and when the runtime lists the sandbox.
        """
        for outcome in outcomes:
            uid, of_claim = outcome.claim.uid, self._outcomes.setdefault(outcome.claim.uid, {})
            former = of_claim.get(outcome.sandbox.uid)
            if former is not None:
                self._unlink(former)
            of_claim[outcome.sandbox.uid] = outcome
            self._claims.setdefault(outcome.sandbox.id, set()).add(uid)
            if former is None or uid in self._refused or not former.reports_as(outcome):
                self._queue.add(outcome.claim)

    def note_read(self, claim: StoredClaim) -> None:
        """Note a claim as it was just read for its pod: its first status is written without another reading."""
        uid = claim.metadata.uid
        if uid in self._outcomes:
            return
        self._read.pop(uid, None)
        while len(self._read) >= MOST_READ:
            del self._read[next(iter(self._read))]
        self._read[uid] = claim

    def note_prepare(self, claim: ClaimReference, problem: str = "", hint: str = "") -> None:
        """Note whether a claim could be prepared; written soon.

        It is noted until the claim is prepared or released, both at the kubelet's request.

        Args:
            claim: the claim.
            problem: why it could not be prepared, "" once it is prepared or released.
            hint: the next step, which `problem` has as well; "" if none.
        """
        if self._unprepared.get(claim.uid, ("", "")) == (problem, hint):
            return
        self._unprepared.pop(claim.uid, None)
        if problem:
            while len(self._unprepared) >= MOST_UNPREPARED:
                del self._unprepared[next(iter(self._unprepared))]
            self._unprepared[claim.uid] = problem, hint
        self._queue.add(claim)

    def note_troubles(self, troubles: Iterable[VFTrouble]) -> None:
        """Note the troubles of pooled VFs that claims have, in place of the former ones; written soon."""
        former, self._troubles = self._troubles, {(trouble.claim, trouble.vf): trouble for trouble in troubles}
        for claim, vf in former.keys() | self._troubles.keys():
            if former.get((claim, vf)) != self._troubles.get((claim, vf)):
                self._queue.add(claim)

    def forget(self, sandbox: str, claims: Sequence[ClaimReference] = ()) -> None:
        """A sandbox is gone: its attached outcomes are dropped. A refusal stays until its pod has another, or is gone.

        Args:
            sandbox: its id.
            claims: claims that it may have had, beside those that are known here.
        """
        known = self._claims.get(sandbox, ())
        self._drop(known, lambda outcome: outcome.sandbox.id == sandbox and outcome.is_attached)
        for claim in claims:
            self._queue.add(claim)

    def forget_pod(self, uid: str) -> None:
        """A pod is gone: its outcomes are dropped, but for attached ones.

        A pod that was deleted by force may run on: its sandbox has the network until that is gone (`forget`), and the
        controller moves addresses by this status.
        """
        self._drop(self._outcomes, lambda outcome: outcome.sandbox.uid == uid and not outcome.is_attached)

    def of_pod(self, uid: str) -> tuple[Outcome, ...]:
        """A pod's present outcomes."""
        return tuple(by_pod[uid] for by_pod in self._outcomes.values() if uid in by_pod)

    def of_sandbox(self, sandbox: str) -> tuple[Outcome, ...]:
        """The present outcomes of a sandbox that has its network."""
        outcomes = (outcome for uid in self._claims.get(sandbox, ()) for outcome in self._outcomes[uid].values())
        return tuple(outcome for outcome in outcomes if outcome.sandbox.id == sandbox and outcome.is_attached)

    def _drop(self, claims: Iterable[str], is_over: Callable[[Outcome], bool]) -> None:
        for claim_uid in tuple(claims):
            outcomes = self._outcomes[claim_uid]
            for pod, outcome in tuple(outcomes.items()):
                if is_over(outcome):
                    self._unlink(outcomes.pop(pod))
                    self._queue.add(outcome.claim)
            if not outcomes:
                del self._outcomes[claim_uid]
                self._refused.discard(claim_uid)

    def _unlink(self, outcome: Outcome) -> None:
        claims = self._claims[outcome.sandbox.id]
        claims.discard(outcome.claim.uid)
        if not claims:
            del self._claims[outcome.sandbox.id]

    async def wait_written(self) -> None:
        """Wait until all outcomes are written, or cannot be."""
        await self._queue.drain()

    async def run(self) -> None:
        """Write until cancelled."""
        await self._queue.run()

    async def _bring_up_to_date(self, claim: ClaimReference) -> float | None:
        """Bring a claim's status up to date, unless the claim is gone or the API server refuses the status.

        Raises:
            NetdraError: it cannot be written just now.
        """
        self._refused.discard(claim.uid)
        try:
            await self._write(claim, tuple(self._outcomes.get(claim.uid, {}).values()))
        except ConflictError:
            return AGAIN  # another client wrote first, which is not a failure
        except NotFoundError:
            self._forget_claim(claim)
        except RefusedError as problem:
            self.failures += 1
            self._note_refused(claim)
            log.warning("status not written: %s", problem)
        except NetdraError:
            self.failures += 1
            raise
        return None

    def _note_refused(self, claim: ClaimReference) -> None:
        if claim.uid in self._outcomes:
            self._refused.add(claim.uid)

    def _forget_claim(self, claim: ClaimReference) -> None:
        for outcome in self._outcomes.pop(claim.uid, {}).values():
            self._unlink(outcome)
        self._unprepared.pop(claim.uid, None)
        self._written.pop(claim.uid, None)
        self._read.pop(claim.uid, None)
        self._refused.discard(claim.uid)

    async def _write(self, claim: ClaimReference, outcomes: Sequence[Outcome]) -> None:
        """Write a claim's status if it differs from the stored one.

        The answer to the last write is used again, and before the first one the claim as it was read for its pod:
        between a pod's start and end its claim seldom changes, and the API server rejects a write whose version is not
        the newest. Only a fresh read shows that no write is needed.
        """
        read = self._read.pop(claim.uid, None)
        known = self._written.pop(claim.uid, read)
        changed = self._changed(claim, known, outcomes) if known is not None else None
        if changed is None:
            stored = await self.client.get(STORED_CLAIMS, claim.name, claim.namespace)
            if stored.metadata.uid != claim.uid or _ALLOCATION not in stored.status:
                self._forget_claim(claim)  # another claim, or deallocated: its devices have no status
                return
            changed = self._changed(claim, stored, outcomes)
        if changed is None:
            return
        with counted(STATUS_WRITES):
            # Not a patch: if a claim's parameters were written with blanks, the API server (1.37) writes them without
            # on a patch, takes that for a change of the allocation, and rejects it.
            written = await self.client.replace(STORED_CLAIMS, changed, subresource="status")
        if outcomes:
            self._written[claim.uid] = written

    def _changed(self, claim: ClaimReference, stored: StoredClaim, outcomes: Sequence[Outcome]) -> StoredClaim | None:
        """The claim with the entries that it should have; None if it has them."""
        if problem := self._unprepared.get(claim.uid):
            allocation = _allocation.decode(stored.status[_ALLOCATION])
            entry = ClaimDevices.of_allocation(claim, allocation, self.policy_of)
            outcomes = [*outcomes, unprepared(entry, *problem)]
        entries = _parts.decode(stored.status[_DEVICES]) if _DEVICES in stored.status else ()
        drivers = _heads.decode(stored.status[_DEVICES]) if _DEVICES in stored.status else ()
        pairs = list(zip(entries, drivers, strict=True))
        others = [raw for raw, head in pairs if head.driver != names.DRIVER]
        former = [_entry.decode(raw) for raw, head in pairs if head.driver == names.DRIVER]
        troubles = {vf: trouble for (uid, vf), trouble in self._troubles.items() if uid == claim}
        wanted = device_statuses(outcomes, former, self.clock(), troubles, self.pod_network_kind)
        if same(former, wanted):
            return None
        devices = msgspec.Raw(msgspec.json.encode([*others, *wanted]))
        return msgspec.structs.replace(stored, status={**stored.status, _DEVICES: devices})
