"""What became of a claim in each sandbox, and what its status says of it: `status.devices[]` of a ResourceClaim. Pure.

Outcomes are made by `netdra.node.pods.attachments` after each attempt, and from checkpoints when the daemon comes back;
`writer` writes the status, and the claim's CDI specification is made of them too. One entry an allocated device, also
where pods share the claim: the entry then speaks of all of them. Limits are the API server's (k8s.io/api/resource/v1,
AllocatedDeviceStatus).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from netdra.chain.standing import PlanResults
from netdra.model import names
from netdra.model.claim import AllocatedDeviceStatus, NetworkDeviceData, ResourceClaim
from netdra.model.plan import ClaimReference, PlannedDevice, PlannedStep
from netdra.model.result import StepResult
from netdra.node.cdi.outcome import network_of
from netdra.node.nri.hooks import Sandbox

_RESERVED = "no NetworkTopology is meant by its DeviceClass: it is reserved for the pod, and nothing was attached"

MAX_DATA = 10 * 1024
MAX_IPS = 16
MAX_MESSAGE = 32 * 1024
READY = "Ready"

DeviceId = tuple[str, str, str]
"""Pool, device and share of a device: what tells a claim's entries apart."""

_NOTHING = StepResult()


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


def attached(sandbox: Sandbox, claims: Sequence[ResourceClaim], done: Sequence[PlanResults]) -> tuple[Outcome, ...]:
    """What became of each claim of a sandbox whose network is complete, in the order of the claims.

    Args:
        sandbox: the pod's.
        claims: its claims, as far as they are known; those whose network was run need not be among them.
        done: what was run in it; nothing if there was nothing to run.
    """
    known = {claim.reference: _allocated(claim) for claim in claims}
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
        Outcome(claim=claim.reference, sandbox=sandbox, devices=_allocated(claim), reason=reason, message=message)
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


def device_statuses(
    outcomes: Sequence[Outcome], former: Iterable[AllocatedDeviceStatus], now: str
) -> tuple[AllocatedDeviceStatus, ...]:
    """The entries of a claim's devices; none once no sandbox has the claim any more.

    Args:
        outcomes: what became of the claim in each sandbox that it is in.
        former: what the status says of our devices now; a condition that does not change keeps its time.
        now: the time, in RFC 3339.
    """
    since = {(each.pool, each.device, each.share_id or ""): each.conditions for each in former}
    found: dict[DeviceId, list[tuple[Outcome, PlannedDevice]]] = {}
    for outcome in outcomes:
        for device in outcome.devices:
            found.setdefault((device.pool, device.device, device.share_id), []).append((outcome, device))
    return tuple(_entry(key, uses, _ready_of(since.get(key)), now) for key, uses in found.items())


def same(one: Iterable[AllocatedDeviceStatus], other: Iterable[AllocatedDeviceStatus]) -> bool:
    """Whether two statuses say the same, in whatever order."""
    return _by_id(one) == _by_id(other)


def _by_id(entries: Iterable[AllocatedDeviceStatus]) -> dict[DeviceId, bytes]:
    return {
        (each.pool, each.device, each.share_id or ""): msgspec.json.encode(each, order="deterministic")
        for each in entries
    }


def _entry(
    key: DeviceId, uses: Sequence[tuple[Outcome, PlannedDevice]], former: Mapping[str, Any], now: str
) -> AllocatedDeviceStatus:
    pool, device, share = key
    return AllocatedDeviceStatus(
        driver=names.DRIVER,
        pool=pool,
        device=device,
        share_id=share or None,
        conditions=(_condition([outcome for outcome, _ in uses], former, now),),
        data=_data(uses),
        network_data=_network_data(uses),
    )


def _condition(outcomes: Sequence[Outcome], former: Mapping[str, Any], now: str) -> dict[str, Any]:
    """`Ready`: whether every pod that is to have the device has it."""
    failed = [each for each in outcomes if not each.is_attached]
    status = "False" if failed else "True"
    told = failed or outcomes
    message = "; ".join(_told(each, named=len(outcomes) > 1) for each in told if each.message or len(outcomes) > 1)
    return {
        "type": READY,
        "status": status,
        "reason": told[0].reason,
        "message": message[:MAX_MESSAGE],
        "lastTransitionTime": former["lastTransitionTime"] if former.get("status") == status else now,
    }


def _told(outcome: Outcome, *, named: bool) -> str:
    pod = f'pod "{outcome.sandbox.name}"'
    if not named:
        return outcome.message
    return f"{pod}: {outcome.message}" if outcome.message else f"{pod}: attached"


def _ready_of(conditions: tuple[Any, ...] | None) -> Mapping[str, Any]:
    return next((each for each in conditions or () if each.get("type") == READY), {})


def _network_data(uses: Sequence[tuple[Outcome, PlannedDevice]]) -> NetworkDeviceData | None:
    """The interface of the first pod, and the addresses of all."""
    found = [network for outcome, device in uses for network in _seen(outcome, device)]
    if not found:
        return None
    addresses = dict.fromkeys(address for each in found for address in each.ips)
    return NetworkDeviceData(
        interface_name=found[0].interface_name,
        ips=tuple(addresses)[:MAX_IPS],
        hardware_address=found[0].hardware_address if len(found) == 1 else "",
    )


def _seen(outcome: Outcome, device: PlannedDevice) -> Iterator[NetworkDeviceData]:
    return (network for done, root in _roots(outcome, device) if (network := network_of(done, root)) is not None)


def _descendants(done: PlanResults, root: str) -> list[str]:
    """A step and all that stand on it, in the order in which they run."""
    found = [root]
    for step in done.plan.steps:
        if any(each in found for each in step.depend_on):
            found.append(step.name)
    return found


def _data(uses: Sequence[tuple[Outcome, PlannedDevice]]) -> dict[str, Any] | None:
    """The results step by step, as much as there is room for: all, then the device's own step alone, then names."""
    for detail in (_all_steps, _own_step, _names):
        for pods in (uses, uses[:1]):
            listed = [_pod(outcome, detail(outcome, device)) for outcome, device in pods]
            data = {"pods": listed} | ({"more": len(uses) - len(pods)} if len(pods) < len(uses) else {})
            if len(msgspec.json.encode(data)) <= MAX_DATA:
                return data
    return None


def _pod(outcome: Outcome, steps: list[dict[str, Any]]) -> dict[str, Any]:
    sandbox = outcome.sandbox
    return {"name": sandbox.name, "uid": sandbox.uid, "sandbox": sandbox.id} | ({"steps": steps} if steps else {})


def _all_steps(outcome: Outcome, device: PlannedDevice) -> list[dict[str, Any]]:
    return [step for done, root in _roots(outcome, device) for step in _steps(done, _descendants(done, root.name))]


def _own_step(outcome: Outcome, device: PlannedDevice) -> list[dict[str, Any]]:
    return [step for done, root in _roots(outcome, device) for step in _steps(done, [root.name])]


def _names(outcome: Outcome, device: PlannedDevice) -> list[dict[str, Any]]:
    return [{"topology": done.plan.topology, "step": root.name} for done, root in _roots(outcome, device)]


def _roots(outcome: Outcome, device: PlannedDevice) -> Iterator[tuple[PlanResults, PlannedStep]]:
    return ((done, step) for done in outcome.plans for step in done.plan.steps if step.device == device)


def _steps(done: PlanResults, wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    for step in done.plan.steps:
        if step.name in wanted:
            notes = done.notes.get(step.name, ())
            yield {
                "topology": done.plan.topology,
                "step": step.name,
                "type": step.type,
                "interface": step.if_name,
                "result": msgspec.to_builtins(done.results.get(step.name, _NOTHING)),
            } | ({"notes": list(notes)} if notes else {})
