"""What became of a claim in one sandbox: what the claim's status and its CDI specification are made of.

Made by `netdra.node.pods.attachments` after each attempt, and from checkpoints when the daemon comes back.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from netdra.chain.standing import PlanResults
from netdra.model import names
from netdra.model.claim import ResourceClaim
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.node.nri.hooks import Sandbox

_RESERVED = "no NetworkTopology is meant by its DeviceClass: it is reserved for the pod, and nothing was attached"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a claim in one sandbox.

    Attributes:
        claim: the claim.
        sandbox: where.
        devices: its devices of ours, those that no topology speaks of too.
        plans: what was run for it, with the results; none if it failed.
        reason: one word for programs: `Attached`, or why it is not.
        message: the same for people; of a failure, the step that failed.
    """

    claim: ClaimReference
    sandbox: Sandbox
    devices: tuple[PlannedDevice, ...]
    plans: tuple[PlanResults, ...] = ()
    reason: str = "Attached"
    message: str = ""

    @property
    def is_attached(self) -> bool:
        """Whether the pod has the claim's network."""
        return self.reason == "Attached"


def reference(claim: ResourceClaim) -> ClaimReference:
    """What a claim is called."""
    return ClaimReference(namespace=claim.metadata.namespace, name=claim.metadata.name, uid=claim.metadata.uid)


def attached(sandbox: Sandbox, claims: Sequence[ResourceClaim], done: Sequence[PlanResults]) -> tuple[Outcome, ...]:
    """What became of each claim of a sandbox whose network is complete, in the order of the claims.

    Args:
        sandbox: the pod's.
        claims: its claims, as far as they are known; those whose network was run need not be among them.
        done: what was run in it; nothing if there was nothing to run.
    """
    known = {reference(claim): _allocated(claim) for claim in claims}
    found: list[Outcome] = []
    for claim in dict.fromkeys([*known, *(each.plan.claim for each in done)]):
        plans = tuple(each for each in done if each.plan.claim == claim)
        run = tuple(step.device for each in plans for step in each.plan.steps if step.device is not None)
        ids = {(device.pool, device.device, device.share_id) for device in run}
        rest = tuple(each for each in known.get(claim, ()) if (each.pool, each.device, each.share_id) not in ids)
        message = _RESERVED if rest and not run else ""
        found.append(Outcome(claim=claim, sandbox=sandbox, devices=run + rest, plans=plans, message=message))
    return tuple(found)


def failed(sandbox: Sandbox, claims: Sequence[ResourceClaim], reason: str, message: str) -> tuple[Outcome, ...]:
    """What became of the claims of a sandbox that was refused."""
    return tuple(
        Outcome(claim=reference(claim), sandbox=sandbox, devices=_allocated(claim), reason=reason, message=message)
        for claim in claims
    )


def _allocated(claim: ResourceClaim) -> tuple[PlannedDevice, ...]:
    """The devices of a claim of this driver's, as the scheduler names them."""
    allocation = claim.status.allocation
    return tuple(
        PlannedDevice(request=each.request, pool=each.pool, device=each.device, share_id=each.share_id or "")
        for each in (allocation.devices.results if allocation is not None else ())
        if each.driver == names.DRIVER
    )
