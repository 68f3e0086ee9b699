"""What each device of a claim became in the pod: its interface, addresses, RDMA device and device files.

Worked out from the plans that were run and the steps' results; rendered by `spec` and `files`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from netdra.chain import flow
from netdra.model.claim import NetworkDeviceData
from netdra.model.plan import ClaimReference, Plan, PlannedStep
from netdra.model.result import StepDevice, StepResult
from netdra.node.claims.prepared import PreparedClaim, base_request
from netdra.topology.devices import DeviceKey

_ShareKey = tuple[DeviceKey, str]


class DonePlan(Protocol):
    """A plan that was run to its end."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    @property
    def results(self) -> Mapping[str, StepResult]:
        """What each step yielded, by its name."""


class DeviceOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an allocated device became.

    Attributes:
        key: pool and name.
        share_id: which share of it, "" for a device that is had whole.
        request: the claim's request, without the alternative.
        network: its interface in the pod with address and MAC; None for one that made none.
        pci_address: "" for a device on no PCI bus.
        rdma_devices: the RDMA devices that it brings to the pod.
        device_nodes: the files through which it is used, for a device without an interface.
    """

    key: DeviceKey
    share_id: str
    request: str
    network: NetworkDeviceData | None = None
    pci_address: str = ""
    rdma_devices: tuple[str, ...] = ()
    device_nodes: tuple[str, ...] = ()


def outcomes(prepared: PreparedClaim, done: Sequence[DonePlan]) -> tuple[DeviceOutcome, ...]:
    """What a claim's devices became, in the order of its allocation.

    A device that no plan ran with, such as one with admin access, is there with its PCI address alone.

    Args:
        prepared: the claim.
        done: the plans that were run; those of other claims are passed over.
    """
    found = {_share(each): each for each in _done(prepared.claim, done)}
    return tuple(
        found.get(
            (kept.key, kept.told.share_id),
            DeviceOutcome(
                key=kept.key,
                share_id=kept.told.share_id,
                request=kept.request,
                pci_address=kept.facts.pci_address,
            ),
        )
        for kept in prepared.devices
    )


def _share(outcome: DeviceOutcome) -> _ShareKey:
    return outcome.key, outcome.share_id


def _done(claim: ClaimReference, done: Sequence[DonePlan]) -> Iterator[DeviceOutcome]:
    for each in done:
        if each.plan.claim.uid == claim.uid:
            yield from (_outcome(each, step) for step in each.plan.steps if step.device is not None)


def _outcome(done: DonePlan, step: PlannedStep) -> DeviceOutcome:
    device = step.device
    assert device is not None
    given = tuple(_devices(done, step))
    return DeviceOutcome(
        key=(device.pool, device.device),
        share_id=device.share_id,
        request=base_request(device.request),
        network=network_of(done, step),
        pci_address=device.pci_address,
        rdma_devices=tuple(dict.fromkeys(each.rdma_device for each in given if each.rdma_device)),
        device_nodes=tuple(dict.fromkeys(node for each in given for node in each.device_nodes)),
    )


def _devices(done: DonePlan, root: PlannedStep) -> Iterator[StepDevice]:
    """The devices that a root step, or steps on top of it, hand to the pod as files.

    A step on top of several roots, such as RDMA on a bond, is told of to whoever has one of them, unless its device is
    plainly one of them.
    """
    addresses = {step.device.pci_address for step in done.plan.steps if step.device is not None} - {""}
    own = "" if root.device is None else root.device.pci_address
    above = {root.name}
    for step in done.plan.steps:
        if step.name == root.name or above.intersection(step.depend_on):
            above.add(step.name)
            for each in done.results[step.name].devices:
                if each.pci_address == own or each.pci_address not in addresses:
                    yield each


def network_of(done: DonePlan, root: PlannedStep) -> NetworkDeviceData | None:
    """The interface of a root step as the steps left it, with all addresses that they gave it; None if it made none."""
    found = flow.tasks([done.plan])
    results = {key: done.results[task.step.name] for key, task in found.items()}
    whole = flow.expected(next(key for key, task in found.items() if task.step is root), found, results)
    own = _place(done.results[root.name], root.if_name)
    if own is None:
        return None
    at = _place(whole, root.if_name)
    assert at is not None
    return NetworkDeviceData(
        interface_name=root.if_name,
        ips=tuple(dict.fromkeys(each.address for each in whole.ips if each.interface == at)),
        hardware_address=whole.interfaces[at].mac,
    )


def _place(result: StepResult, name: str) -> int | None:
    """The place of an interface in the pod among those that a result tells of."""
    return next((at for at, each in enumerate(result.interfaces) if each.name == name and each.sandbox), None)
