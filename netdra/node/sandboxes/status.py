"""The outcome of a claim in each sandbox, and the status that follows: `status.devices[]` of a ResourceClaim. Pure.

Outcomes are made by `hooks` after each attempt, and from checkpoints when the daemon comes back;
`writer` writes the status, and the claim's CDI specification is made of outcomes too. An allocated device has one
entry, which is about all pods that share the claim. Limits are the API server's (k8s.io/api/resource/v1,
AllocatedDeviceStatus).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from netdra.chain.outcome import DeviceOutcome
from netdra.chain.report import DuplicateAddress, StepReport
from netdra.model import names
from netdra.model.claim import AllocatedDeviceStatus, AllocationResult, NetworkDeviceData
from netdra.model.plan import ClaimReference, PlannedDevice, PlannedPort
from netdra.node.claims.store import PreparedClaim
from netdra.node.nri.hooks import Sandbox
from netdra.node.view import VFTrouble
from netdra.topology.devices import DeviceKey

_RESERVED = (
    "its DeviceClass does not refer to a NetworkTopology: the device is reserved for the pod, and nothing was attached"
)

MAX_DATA = 10 * 1024
MAX_IPS = 16
MAX_MESSAGE = 32 * 1024
READY = "Ready"
NEXT_STEP = "nextStep"
"""The key of the next step in an entry's `data`: Kubernetes' conditions have no field for it."""
NOT_PREPARED = "NotPrepared"
HEALTHY = "Healthy"
NO_CARRIER = "NoCarrier"
"""The condition of a pooled VF in trouble, which has no taint of its own; absent while all is well."""

PolicyOf = Callable[[DeviceKey], str]
"""The name of the policy that offers a device, "" where it is not known."""


def _unknown_policy(_: DeviceKey) -> str:
    return ""


DeviceId = tuple[str, str, str]
"""Pool, device and share of a device: the key of a claim's entries."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a claim in one sandbox.

    Attributes:
        claim: the claim.
        sandbox: the sandbox.
        devices: the outcomes of its devices of netdra, those without a step too.
        reason: one word for programs: `Attached`, or why it is not; `NotPrepared` comes before there is a sandbox.
        message: the same for people; of a failure, the step that failed.
        hint: the next step after a failure, which `message` has as well; "" if none.
        duplicates: the claim's addresses with which no pod may start: another machine on the wire has them.
        silent: why interfaces of the pod have no carrier, by name.
    """

    claim: ClaimReference
    sandbox: Sandbox
    devices: tuple[DeviceOutcome, ...]
    reason: str = "Attached"
    message: str = ""
    hint: str = ""
    duplicates: tuple[DuplicateAddress, ...] = ()
    silent: Mapping[str, str] = {}

    @property
    def is_attached(self) -> bool:
        """Whether the pod has the claim's network."""
        return self.reason == "Attached"

    @property
    def is_unprepared(self) -> bool:
        """Whether the claim could not be prepared for a pod, which has no sandbox then."""
        return self.reason == NOT_PREPARED

    def reports_as(self, other: Outcome) -> bool:
        """Whether a claim's status is the same with the other outcome of the same sandbox in place of this one."""
        former, latter = self.sandbox, other.sandbox
        # A sandbox from a checkpoint has no process.
        is_same_sandbox = former == msgspec.structs.replace(latter, pid=former.pid, netns=former.netns)
        return is_same_sandbox and self == msgspec.structs.replace(other, sandbox=former)


Use = tuple[Outcome, DeviceOutcome]
"""A device in one of the sandboxes that have it."""


class ClaimDevices(msgspec.Struct, frozen=True):
    """A claim, and its devices of netdra as the scheduler names them."""

    claim: ClaimReference
    devices: tuple[PlannedDevice, ...] = ()

    @classmethod
    def of_allocation(
        cls, claim: ClaimReference, allocation: AllocationResult | None, policy_of: PolicyOf = _unknown_policy
    ) -> ClaimDevices:
        """Those of a claim's allocation.

        Args:
            claim: the claim.
            allocation: its allocation.
            policy_of: the policy that offers a device of this node.
        """
        return cls(
            claim,
            tuple(
                PlannedDevice(
                    request=result.request,
                    pool=result.pool,
                    device=result.device,
                    share_id=result.share_id or "",
                    policy=policy_of((result.pool, result.device)),
                )
                for result in (allocation.devices.results if allocation is not None else ())
                if result.is_attachable
            ),
        )

    @classmethod
    def of_record(cls, prepared: PreparedClaim) -> ClaimDevices:
        """Those of a prepared claim."""
        return cls(
            prepared.claim,
            tuple(
                PlannedDevice(
                    request=device.told.requests[0],
                    pool=device.told.pool,
                    device=device.told.device,
                    share_id=device.told.share_id,
                    policy=device.facts.policy,
                )
                for device in prepared.devices
            ),
        )

    @property
    def outcomes(self) -> tuple[DeviceOutcome, ...]:
        """The devices without a step."""
        return tuple(DeviceOutcome(claim=self.claim, device=device) for device in self.devices)


def attached(sandbox: Sandbox, claims: Sequence[ClaimDevices], done: Sequence[DeviceOutcome]) -> tuple[Outcome, ...]:
    """The outcome of each claim of a sandbox whose network is complete, in the order of the claims.

    Args:
        sandbox: the pod's.
        claims: its claims, as far as they are known; claims whose network was run need not be among them.
        done: the outcomes of devices; empty if no step ran.
    """
    allocated = {entry.claim: entry.outcomes for entry in claims}
    outcomes: list[Outcome] = []
    for claim in dict.fromkeys([*allocated, *(device.claim for device in done)]):
        run = tuple(device for device in done if device.claim == claim)
        ids = {_id(device.device) for device in run}
        rest = tuple(device for device in allocated.get(claim, ()) if _id(device.device) not in ids)
        message = _RESERVED if rest and not run else ""
        outcomes.append(Outcome(claim=claim, sandbox=sandbox, devices=run + rest, message=message))
    return tuple(outcomes)


def failed(
    sandbox: Sandbox,
    claims: Sequence[ClaimDevices],
    reason: str,
    message: str,
    hint: str = "",
    duplicates: Sequence[DuplicateAddress] = (),
) -> tuple[Outcome, ...]:
    """The outcomes of the claims of a sandbox that was refused."""
    return tuple(
        Outcome(
            claim=entry.claim,
            sandbox=sandbox,
            devices=entry.outcomes,
            reason=reason,
            message=message,
            hint=hint,
            duplicates=tuple(duplicate for duplicate in duplicates if duplicate.claim == entry.claim.uid),
        )
        for entry in claims
    )


def unprepared(entry: ClaimDevices, message: str, hint: str = "") -> Outcome:
    """The outcome of a claim that could not be prepared: the kubelet does not state for which of its pods."""
    nowhere = Sandbox(id="", name="", namespace=entry.claim.namespace, uid="")
    devices = entry.outcomes
    return Outcome(claim=entry.claim, sandbox=nowhere, devices=devices, reason=NOT_PREPARED, message=message, hint=hint)


def _id(device: PlannedDevice) -> DeviceId:
    return device.pool, device.device, device.share_id


def device_statuses(
    outcomes: Sequence[Outcome],
    former: Iterable[AllocatedDeviceStatus],
    now: str,
    troubles: Mapping[str, VFTrouble] = MappingProxyType({}),
    pod_network_kind: str = "",
) -> tuple[AllocatedDeviceStatus, ...]:
    """The entries of a claim's devices; none once no sandbox has the claim any more.

    Args:
        outcomes: the outcomes of the claim in its sandboxes.
        former: the present entries of our devices; a condition that does not change keeps its time.
        now: the time, in RFC 3339.
        troubles: of pooled VFs, by the VF's PCI address.
        pod_network_kind: the PodNetworkKind by which PodNetworks are reported (docs/multi-network.md), "" if they are
            not.
    """
    since = {(entry.pool, entry.device, entry.share_id or ""): entry.conditions for entry in former}
    uses: dict[DeviceId, list[Use]] = {}
    for outcome in outcomes:
        for device in outcome.devices:
            uses.setdefault(_id(device.device), []).append((outcome, device))
    return tuple(
        _entry(key, used, since.get(key) or (), now, troubles.get(used[0][1].device.pci_address), pod_network_kind)
        for key, used in uses.items()
    )


def same(one: Iterable[AllocatedDeviceStatus], other: Iterable[AllocatedDeviceStatus]) -> bool:
    """Whether two statuses have the same content, in any order."""
    return _by_id(one) == _by_id(other)


def _by_id(entries: Iterable[AllocatedDeviceStatus]) -> dict[DeviceId, bytes]:
    return {
        (entry.pool, entry.device, entry.share_id or ""): msgspec.json.encode(entry, order="deterministic")
        for entry in entries
    }


def _entry(
    key: DeviceId,
    uses: Sequence[Use],
    former: tuple[Any, ...],
    now: str,
    trouble: VFTrouble | None,
    pod_network_kind: str,
) -> AllocatedDeviceStatus:
    pool, device, share = key
    conditions = [_ready([outcome for outcome, _ in uses])]
    if trouble is not None:
        # The attachment of the pods does not change, so `Ready` stays.
        conditions.append(_condition(HEALTHY, "False", trouble.reason, trouble.message))
    elif silent := "; ".join(_silent(uses)):
        conditions.append(_condition(HEALTHY, "False", NO_CARRIER, silent))
    return AllocatedDeviceStatus(
        driver=names.DRIVER,
        pool=pool,
        device=device,
        share_id=share or None,
        conditions=tuple(_dated(condition, former, now) for condition in conditions),
        data=_data(uses, pod_network_kind),
        network_data=_network_data(uses),
    )


def _silent(uses: Sequence[Use]) -> Iterator[str]:
    """The interfaces of a device, and on top of it, that have no carrier, in words."""
    for outcome, device in uses:
        for name in dict.fromkeys(step.interface for step in device.steps):
            if name in outcome.silent:
                yield f'pod "{outcome.sandbox.name}": {outcome.silent[name]}' if len(uses) > 1 else outcome.silent[name]


def _ready(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """`Ready`: whether every pod that is to have the device has it."""
    failed = [outcome for outcome in outcomes if not outcome.is_attached]
    status = "False" if failed else "True"
    shown = failed or outcomes
    message = "; ".join(
        _text(outcome, named=len(outcomes) > 1) for outcome in shown if outcome.message or len(outcomes) > 1
    )
    return _condition(READY, status, shown[0].reason, message)


def _condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": _short(message)}


def _short(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"


def _dated(condition: dict[str, Any], former: Iterable[Mapping[str, Any]], now: str) -> dict[str, Any]:
    """A condition with the time since when it has had its status."""
    wanted = condition["type"], condition["status"]
    times = (entry["lastTransitionTime"] for entry in former if (entry.get("type"), entry.get("status")) == wanted)
    return {**condition, "lastTransitionTime": next(times, now)}


def _text(outcome: Outcome, *, named: bool) -> str:
    if not named:
        return outcome.message
    if outcome.is_unprepared:
        return f"not prepared: {outcome.message}"
    pod = f'pod "{outcome.sandbox.name}"'
    return f"{pod}: {outcome.message}" if outcome.message else f"{pod}: attached"


def _network_data(uses: Sequence[Use]) -> NetworkDeviceData | None:
    """The interface of the first pod, and the addresses of all."""
    networks = [device.network for _, device in uses if device.network is not None]
    if not networks:
        return None
    addresses = dict.fromkeys(address for network in networks for address in network.ips)
    return NetworkDeviceData(
        interface_name=networks[0].interface_name,
        ips=tuple(addresses)[:MAX_IPS],
        hardware_address=networks[0].hardware_address if len(networks) == 1 else "",
    )


def _data(uses: Sequence[Use], pod_network_kind: str) -> dict[str, Any] | None:
    """The results by step, as many details as fit: all steps, else the device's own step alone, else names."""
    offered = _offered(next((device.device.policy for _, device in uses if device.device.policy), ""))
    offered |= _refused(outcome for outcome, _ in uses)
    offered |= _next_step(outcome for outcome, _ in uses)
    uses = [use for use in uses if not use[0].is_unprepared]
    offered |= _pod_network(uses, pod_network_kind)
    if not uses:
        return offered or None
    for detail in (_all_steps, _own_step, _names):
        for pods in (uses, uses[:1]):
            listed = [_pod(outcome, device, detail(device)) for outcome, device in pods]
            data = offered | {"pods": listed} | ({"more": len(uses) - len(pods)} if len(pods) < len(uses) else {})
            if len(msgspec.json.encode(data)) <= MAX_DATA:
                return data
    return None


def _offered(policy: str) -> dict[str, Any]:
    """The policy that offers a device, by which the controller counts the failing claims of a policy."""
    return {"policy": policy} if policy else {}


def _pod_network(uses: Sequence[Use], kind: str) -> dict[str, Any]:
    """The PodNetwork of a device, as the draft of SIG Network's multi-network API has it."""
    name = next((device.pod_network for _, device in uses if device.pod_network), "") if kind else ""
    return {"podNetwork": {"kind": kind, "name": name}} if name else {}


def _refused(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """The addresses with which no pod may start: the controller assigns others."""
    refused = {entry.address: entry.mac for outcome in outcomes for entry in outcome.duplicates}
    listed = [{"address": address, "hardwareAddress": mac} for address, mac in refused.items()]
    return {"duplicates": listed[:MAX_IPS]} if listed else {}


def _next_step(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """The next step of the first failure that has one, of those that the condition `Ready` reports."""
    hint = next((outcome.hint for outcome in outcomes if outcome.hint and not outcome.is_attached), "")
    return {NEXT_STEP: _short(hint)} if hint else {}


def _pod(outcome: Outcome, device: DeviceOutcome, steps: list[dict[str, Any]]) -> dict[str, Any]:
    sandbox = outcome.sandbox
    pod: dict[str, Any] = {"name": sandbox.name, "uid": sandbox.uid, "sandbox": sandbox.id}
    if device.port is not None:
        pod["neutron"] = _port(device.port)
    return pod | ({"steps": steps} if steps else {})


def _port(port: PlannedPort) -> dict[str, Any]:
    """The port in Neutron that the device had when the pod got its network."""
    settings = port.settings
    return {
        "portID": port.port_id,
        "networkID": port.network_id,
        "networkName": port.network_name,
        "mac": settings.mac,
        "vlan": settings.vlan,
        "addresses": list(settings.addresses),
    }


def _all_steps(device: DeviceOutcome) -> list[dict[str, Any]]:
    return [_step(step) for step in device.steps]


def _own_step(device: DeviceOutcome) -> list[dict[str, Any]]:
    return [_step(step) for step in device.steps[:1]]


def _names(device: DeviceOutcome) -> list[dict[str, Any]]:
    return [{"topology": step.topology, "step": step.step} for step in device.steps[:1]]


def _step(step: StepReport) -> dict[str, Any]:
    return {
        "topology": step.topology,
        "step": step.step,
        "type": step.plugin,
        "interface": step.interface,
        "result": msgspec.to_builtins(step.result),
    } | ({"notes": list(step.notes)} if step.notes else {})
