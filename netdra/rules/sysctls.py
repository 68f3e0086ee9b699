"""The sysctls that steps state: keys that are not the network's, wrong values, and settings without permission.

`errors` is called for topologies, `forbidden` for plans with the devices' policies (`Exposure.allowedSysctls`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from netdra.model import sysctls
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding
from netdra.model.plan import Plan, PlannedStep
from netdra.model.topology import WITHOUT_NETDEV
from netdra.rules.routing import addresses_of
from netdra.topology.graph import Graph

_DISABLED = ("1", "true")


def errors(compiled: Graph) -> Iterator[Finding]:
    """The errors in the sysctls of a topology's steps, for any devices."""
    for step in compiled.steps:
        if step.sysctls and (step.type in WITHOUT_NETDEV or (step.type == "rdma" and not step.is_root)):
            what = f"sysctls are set, but a step of type {step.type} does not make an interface"
            yield compiled.about(
                step.name, what, hint="set them in the step of the interface", path=("sysctls",), code="ND1165"
            )
        for key, value in step.sysctls.items():
            try:
                written = sysctls.path(key)
            except InvalidInputError as problem:
                yield compiled.about(
                    step.name, problem.what, hint=problem.hint, path=("sysctls", key), code=problem.code
                )
                continue
            if not value.strip():
                hint = 'set its value as text, e.g. "1", or remove it'
                yield compiled.about(
                    step.name, f'sysctl "{key}" has an empty value', hint=hint, path=("sysctls", key), code="ND1166"
                )
            disables = written.endswith("/disable_ipv6") and value.strip() in _DISABLED
            if disables and any(":" in text for text in addresses_of(step.type, step.config)):
                what = f"{key} disables IPv6, but the step assigns an IPv6 address"
                yield compiled.about(step.name, what, hint="remove one of them", path=("sysctls", key), code="ND1167")


def forbidden(plans: Iterable[Plan]) -> Iterator[Finding]:
    """The sysctls of plans with allocated devices that no policy of these devices allows."""
    for plan in plans:
        steps = {step.name: step for step in plan.steps}
        for at, step in enumerate(plan.steps):
            patterns = [pattern for root in _roots(step, steps) for pattern in _allowed(root)]
            for key in step.sysctls:
                if not sysctls.is_allowed(sysctls.path(key), patterns):
                    yield Finding(
                        f'NetworkTopology "{plan.topology}", step "{step.name}" ({step.type}): sysctl "{key}" is not '
                        "allowed by the policy of its device",
                        "remove it, or add it to allowedSysctls of the DeviceExposurePolicy",
                        ("steps", at, "sysctls", key),
                        code="ND1168",
                    )


def _allowed(step: PlannedStep) -> tuple[str, ...]:
    return step.device.allowed_sysctls if step.device is not None else ()


def _roots(step: PlannedStep, steps: Mapping[str, PlannedStep]) -> Iterator[PlannedStep]:
    """The root steps that a step stands on, or the step itself."""
    seen, todo = set[str](), [step.name]
    while todo:
        name = todo.pop()
        found: Any = steps.get(name)
        if found is not None and name not in seen:
            seen.add(name)
            todo += found.depend_on
            if not found.depend_on:
                yield found
