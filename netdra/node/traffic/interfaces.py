"""The interfaces of a pod that netdra made or moved, each with the names by which people know it. Pure.

Called by `netdra.node.traffic.reader`, with each checkpoint once. An interface has one entry, that of the step
that brought it, also if further steps changed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

import msgspec

from netdra.chain.checkpoint import Saved, StepState
from netdra.chain.flow import ChainStep, tasks
from netdra.model import names
from netdra.model.errors import NetdraError
from netdra.model.plan import PlannedDevice
from netdra.model.result import StepResult

BYTES_PER_MBIT = 125_000


class SandboxInterface(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One interface of a pod, or a VF that the pod uses without one.

    Attributes:
        sandbox: the pod's sandbox.
        namespace, pod, claim: their names in Kubernetes.
        request: the request of the one device that it is or stands on; "" for several, such as those of a bond.
        step: the step that brought it.
        if_name: its name in the pod; "" of a VF in user space.
        device: the name of that one device in its ResourceSlice, and `pool` its pool.
        network: its PodNetwork, else its NetworkTopology, else "".
        bandwidth: the bandwidth that the claim was allocated of the device, in bytes per second, 0 for no bound.
        vf: the PCI address of a VF without an interface, with its PF's name and its index there.
        rdma_devices: the RDMA devices that are the pod's alone.
        is_own: whether the device is the pod's alone: its link's state is then that of the device.
        is_pooled: whether the device stands for several VFs, of which the pod has one.
    """

    sandbox: str
    namespace: str
    pod: str
    claim: str
    request: str = ""
    step: str = ""
    if_name: str = ""
    pool: str = ""
    device: str = ""
    network: str = ""
    bandwidth: int = 0
    vf: tuple[str, str, int] | None = None
    rdma_devices: tuple[str, ...] = ()
    is_own: bool = False
    is_pooled: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The values of `netdra.node.metrics.POD_INTERFACE`."""
        pod = (self.namespace, self.pod, self.claim)
        return (*pod, self.request, self.step, self.if_name, self.device, self.network)


def of_checkpoint(saved: Saved) -> tuple[SandboxInterface, ...]:
    """The interfaces of a sandbox whose network is complete, in the order of the steps; none of another one."""
    if not saved.complete:
        return ()
    try:
        graph = tasks(saved.header.plans)
    except NetdraError:
        return ()
    return tuple(_found(saved, graph))


def _found(saved: Saved, graph: Mapping[str, ChainStep]) -> Iterator[SandboxInterface]:
    claims = [plan.claim for plan in saved.header.plans for _ in plan.steps]
    networks = _networks(graph)
    listed: set[str] = set()
    for (key, task), claim in zip(graph.items(), claims, strict=True):
        state = saved.steps.get(key)
        if state is None or state.undone or state.result is None:
            continue
        name = task.step.if_name if state.result.place_of(task.step.if_name) is not None else ""
        roots = _roots(key, graph)
        root = roots[0] if len(roots) == 1 else None
        vf = _vf_in_user_space(task, state)
        if (name and name not in listed) or vf is not None or _rdma(state.result, root):
            is_first = bool(name) and name not in listed
            listed.add(name)
            yield SandboxInterface(
                sandbox=saved.header.pod.sandbox,
                namespace=saved.header.pod.namespace,
                pod=saved.header.pod.name,
                claim=claim.name,
                request=root.request if root is not None else "",
                step=task.step.name,
                if_name=name if is_first else "",
                pool=root.pool if root is not None else "",
                device=root.device if root is not None else "",
                network=networks.get(task.step.if_name, "") or task.topology,
                bandwidth=_bandwidth(root) if task.step.is_root else 0,
                vf=vf,
                rdma_devices=_rdma(state.result, root),
                is_own=task.step.is_root and root is not None and not root.is_shared,
                is_pooled=root is not None and root.pooled,
            )


def _networks(graph: Mapping[str, ChainStep]) -> dict[str, str]:
    """The PodNetworks of interfaces, by the interface's name."""
    return {task.step.if_name: task.step.pod_network for task in graph.values() if task.step.pod_network}


def _roots(key: str, graph: Mapping[str, ChainStep]) -> list[PlannedDevice]:
    """The devices that a step is, or stands on."""
    keys = [key, *graph[key].ancestors.values()]
    return [device for found in dict.fromkeys(keys) if (device := graph[found].step.device) is not None]


def _vf_in_user_space(task: ChainStep, state: StepState) -> tuple[str, str, int] | None:
    device = task.step.device
    if device is None or device.type != "vf" or device.vf_index < 0 or state.result is None or state.result.interfaces:
        return None
    return device.pci_address, device.pf_name, device.vf_index


def _rdma(result: StepResult, root: PlannedDevice | None) -> tuple[str, ...]:
    """The RDMA devices of a result. One that several pods share counts for all of them, which would mislead."""
    if root is None or root.is_shared:
        return ()
    return tuple(dict.fromkeys(device.rdma_device for device in result.devices if device.rdma_device))


def _bandwidth(device: PlannedDevice | None) -> int:
    amount = device.consumed.get(names.qualified(names.BANDWIDTH), Decimal(0)) if device is not None else Decimal(0)
    return int(amount * BYTES_PER_MBIT)
