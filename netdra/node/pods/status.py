"""What a claim's status says of its devices: `status.devices[]` of a ResourceClaim. Pure; written by `writer`.

One entry an allocated device, also where pods share the claim: the entry then speaks of all of them. Limits are the API
server's (k8s.io/api/resource/v1, AllocatedDeviceStatus).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from netdra.chain.standing import PlanResults
from netdra.model import names
from netdra.model.claim import AllocatedDeviceStatus, NetworkDeviceData
from netdra.model.plan import PlannedDevice, PlannedStep
from netdra.model.result import StepResult
from netdra.node.cdi.outcome import network_of
from netdra.node.pods.outcome import Outcome

MAX_DATA = 10 * 1024
MAX_IPS = 16
MAX_MESSAGE = 32 * 1024
READY = "Ready"

DeviceId = tuple[str, str, str]
"""Pool, device and share of a device: what tells a claim's entries apart."""

_NOTHING = StepResult()


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
