"""The sysctls that steps state: keys that are not the network's, wrong values, and settings without permission.

`errors` is called for topologies, `forbidden` for plans with the devices' policies (`Exposure.allowedSysctls`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netdra.model import sysctls
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding
from netdra.model.plan import Plan
from netdra.model.topology import WITHOUT_NETDEV
from netdra.rules.confine import roots
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
            devices = (root.device for root in roots(step.name, steps) if root.device is not None)
            patterns = [pattern for device in devices for pattern in device.allowed_sysctls]
            for key in step.sysctls:
                if not sysctls.is_allowed(sysctls.path(key), patterns):
                    yield Finding(
                        f'NetworkTopology "{plan.topology}", step "{step.name}" ({step.type}): sysctl "{key}" is not '
                        "allowed by the policy of its device",
                        "remove it, or add it to allowedSysctls of the DeviceExposurePolicy",
                        ("steps", at, "sysctls", key),
                        code="ND1168",
                    )
