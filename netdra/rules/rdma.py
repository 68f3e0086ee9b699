"""RDMA devices that pods share, and the RDMA namespace mode of the nodes that have them. Pure.

In the kernel's mode "exclusive" an RDMA device is in one network namespace, so pods cannot share it. Called by the
webhook and `netdra validate` for the devices that are known, and at Prepare for the allocated ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from netdra.model import names
from netdra.model.findings import Finding
from netdra.model.plan import Plan, PlannedStep
from netdra.model.topology import MOVING_TYPES, NetworkTopology, Step
from netdra.rules.devices import PossibleDevice, attributes, is_matched
from netdra.topology.devices import supported_cnis
from netdra.topology.graph import Graph, examine

MODE = names.qualified(names.RDMA_MODE)
_EXCLUSIVE = "exclusive"
_TYPE = "rdma"
_WHY = 'the RDMA namespace mode of the node is "exclusive", in which pods cannot share an RDMA device'
_HINT = (
    "set the nodes' mode to shared before any pod runs (rdma system set netns shared), or use a step of type "
    "host-device or sriov, which moves the device into the pod"
)


def asked(topology: NetworkTopology) -> frozenset[str]:
    """The attributes of devices that `modes` reads for a topology, by qualified name."""
    shares = any(step.type == _TYPE and not step.is_root for step in topology.spec.steps)
    return frozenset({MODE}) if shares else frozenset()


def modes(
    topology: NetworkTopology, offered: Sequence[PossibleDevice], *, are_all: bool = True
) -> Iterator[tuple[Finding, bool]]:
    """The steps of a sound topology that share the RDMA device of nodes in the mode "exclusive".

    Args:
        topology: as administrators wrote it.
        offered: the devices that could be allocated; those without the attribute `rdmaMode` are skipped.
        are_all: whether no other devices exist.

    Yields:
        a finding, and whether it is an error: no device is known with which the step would succeed.
    """
    compiled, _ = examine(topology)
    for step, root in _sharing(compiled) if compiled is not None else ():
        known = [
            (device, mode)
            for device in offered
            for mode in (attributes(device).get(MODE),)
            if mode and root.selector is not None and is_matched(device, root.selector.cel)
            if root.type in supported_cnis(device.published)
        ]
        wrong = [device for device, mode in known if mode == _EXCLUSIVE]
        if not wrong:
            continue
        certain = are_all and len(wrong) == len(known)
        which = "all devices" if certain else f"{len(wrong)} of {len(known)} devices, e.g. {wrong[0].called}"
        what = f'it shares the RDMA device of step "{root.name}", but for {which} that match the selector {_WHY}'
        assert compiled is not None
        yield compiled.about(step.name, what, hint=_HINT, path=("dependOn",), code="ND1142"), certain


def check(plans: Iterable[Plan]) -> Iterator[Finding]:
    """The steps of plans that share an allocated RDMA device of a node in the mode "exclusive"."""
    for plan in plans:
        steps = {step.name: step for step in plan.steps}
        for step in plan.steps:
            root = _unmoved(step, steps) if step.type == _TYPE and step.depend_on else None
            if root is not None and root.device is not None and root.device.rdma_mode == _EXCLUSIVE:
                what = f'NetworkTopology "{plan.topology}", step "{step.name}" (rdma): it shares the RDMA device of '
                yield Finding(f'{what}device "{root.device.device}", but {_WHY}', _HINT, code="ND1143")


def _sharing(compiled: Graph) -> Iterator[tuple[Step, Step]]:
    """The derived RDMA steps whose devices stay on the host, each with the root step that it stands on."""
    by_name = {step.name: step for step in compiled.steps}
    for step in compiled.steps:
        if step.type != _TYPE or step.is_root or not step.is_builtin or step.config.get("rdmaDevice"):
            continue
        roots = [by_name[name] for name in compiled.ancestors[step.name] if by_name[name].is_root]
        if roots and not any(root.type in MOVING_TYPES for root in roots):
            yield step, roots[-1]


def _unmoved(step: PlannedStep, steps: dict[str, PlannedStep]) -> PlannedStep | None:
    """The last root step that a step stands on, if none of them moves its device; in the order of the plan."""
    below: set[str] = set()
    todo = list(step.depend_on)
    while todo:
        name = todo.pop()
        if name in steps and name not in below:
            below.add(name)
            todo += steps[name].depend_on
    roots = [other for name, other in steps.items() if name in below and not other.depend_on]
    if step.execution != "Builtin" or step.config.get("rdmaDevice") or any(r.type in MOVING_TYPES for r in roots):
        return None
    return roots[-1] if roots else None
