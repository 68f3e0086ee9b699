"""The outcome of each allocated device: the one result that claim status, CDI, metadata and events read.

Made from the plans and the reports of their steps, which `attach` returns and a checkpoint has too. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from netdra.chain.checkpoint import Saved
from netdra.chain.flow import ChainStep, expected, tasks
from netdra.chain.report import StepReport, name_of
from netdra.model.claim import NetworkDeviceData
from netdra.model.plan import ClaimReference, Plan, PlannedDevice, PlannedPort, PlannedStep
from netdra.model.result import StepDevice, StepResult


class DeviceOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """An allocated device, and the result in its pod.

    Attributes:
        claim: the claim that it was allocated for.
        device: the device.
        steps: the device's step and the steps on top of it, in the order in which they ran; empty if nothing was run.
        network: its interface in the pod as the last step left it, with all addresses; None without one.
        rdma_devices: the RDMA devices that it brings to the pod.
        device_nodes: the files through which it is used, for a device without an interface.
        numbers: major and minor of those files that are given by them, by path.
        port: its port in Neutron, if it has one.
        pod_network: the PodNetwork that it is on: its own step's, else that of the steps on top of it; "" without one,
            or with several.
    """

    claim: ClaimReference
    device: PlannedDevice
    steps: tuple[StepReport, ...] = ()
    network: NetworkDeviceData | None = None
    rdma_devices: tuple[str, ...] = ()
    device_nodes: tuple[str, ...] = ()
    numbers: Mapping[str, tuple[int, int]] = {}
    port: PlannedPort | None = None
    pod_network: str = ""


def device_outcomes(plans: Sequence[Plan], steps: Sequence[StepReport]) -> tuple[DeviceOutcome, ...]:
    """The outcomes of the devices of plans, in the order of their steps.

    Args:
        plans: the plans that were run to their end.
        steps: the report of each step of the plans, in the plans' order.
    """
    reports = iter(steps)
    return tuple(
        outcome for plan in plans for outcome in _of_plan(plan, {step.name: next(reports) for step in plan.steps})
    )


def reports_of(saved: Saved, steps: Mapping[str, ChainStep], seconds: Mapping[str, float]) -> tuple[StepReport, ...]:
    """The report of each step of a complete checkpoint, in the plans' order.

    Args:
        saved: the checkpoint.
        steps: its steps by key.
        seconds: how long each step took that was done just now.
    """
    return tuple(
        StepReport(
            **name_of(task.topology, task.step),
            interface=task.step.if_name,
            result=saved.steps[key].result or StepResult(),
            notes=saved.steps[key].notes,
            seconds=seconds.get(key, 0.0),
        )
        for key, task in steps.items()
    )


def recorded_outcomes(saved: Saved) -> tuple[DeviceOutcome, ...]:
    """The outcomes of the devices of a complete checkpoint.

    Raises:
        InvalidInputError: the plans make no sense.
    """
    plans = saved.header.plans
    return device_outcomes(plans, reports_of(saved, tasks(plans), {}))


def _of_plan(plan: Plan, reports: Mapping[str, StepReport]) -> Iterator[DeviceOutcome]:
    roots = [step for step in plan.steps if step.device is not None]
    if not roots:
        return
    network = _whole(plan, reports)
    for root in roots:
        stack = _standing_on(plan, root)
        given = tuple(_handed_out(root, [reports[step.name].result for step in stack], roots))
        assert root.device is not None
        yield DeviceOutcome(
            claim=plan.claim,
            device=root.device,
            steps=tuple(reports[step.name] for step in stack),
            network=_network(root, reports[root.name].result, network),
            rdma_devices=tuple(dict.fromkeys(device.rdma_device for device in given if device.rdma_device)),
            device_nodes=tuple(dict.fromkeys(node for device in given for node in device.device_nodes)),
            numbers={node: device.number for device in given if device.number for node in device.device_nodes},
            port=root.port,
            pod_network=_pod_network(root, stack),
        )


def _whole(plan: Plan, reports: Mapping[str, StepReport]) -> StepResult:
    """The results of all steps of a plan, each interface as the last step to change it left it."""
    if len(plan.steps) == 1:
        return reports[plan.steps[0].name].result
    graph = tasks([plan])
    return expected(next(iter(graph)), graph, {key: reports[task.step.name].result for key, task in graph.items()})


def _standing_on(plan: Plan, root: PlannedStep) -> list[PlannedStep]:
    """A step and all steps that stand on it, in the order in which they run."""
    names = {root.name}
    stack = [root]
    for step in plan.steps:
        if names.intersection(step.depend_on):
            names.add(step.name)
            stack.append(step)
    return stack


def _pod_network(root: PlannedStep, stack: Sequence[PlannedStep]) -> str:
    if root.pod_network:
        return root.pod_network
    names = {step.pod_network for step in stack} - {""}
    return names.pop() if len(names) == 1 else ""


def _handed_out(root: PlannedStep, results: Sequence[StepResult], roots: Sequence[PlannedStep]) -> Iterator[StepDevice]:
    """The devices that a root step, or steps on top of it, hand to the pod as files.

    A step on top of several roots, such as RDMA on a bond, is reported to the claims of all of them, unless its device
    is plainly one of them.
    """
    own = root.device.pci_address if root.device is not None else ""
    others = {step.device.pci_address for step in roots if step.device is not None} - {"", own}
    return (device for result in results for device in result.devices if device.pci_address not in others)


def _network(root: PlannedStep, result: StepResult, whole: StepResult) -> NetworkDeviceData | None:
    """The interface of a root step as the steps left it.

    Args:
        root: the step.
        result: the step's own result.
        whole: the results of all steps of the plan, each interface as the last step to change it left it.
    """
    if _place(result, root.if_name) is None:
        return None
    at = _place(whole, root.if_name)
    assert at is not None
    return NetworkDeviceData(
        interface_name=root.if_name,
        ips=tuple(dict.fromkeys(address.address for address in whole.ips if address.interface == at)),
        hardware_address=whole.interfaces[at].mac,
    )


def _place(result: StepResult, name: str) -> int | None:
    """The place of an interface in the pod among those of a result."""
    return next(
        (at for at, interface in enumerate(result.interfaces) if interface.name == name and interface.sandbox), None
    )
