"""Plans for tests of chains, on this machine's kernel and on the SR-IOV machine's, without a topology behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netdra.model.plan import ClaimReference, Plan, PlannedDevice, PlannedStep
from netdra.steps import builtin


def step(
    name: str,
    kind: str,
    if_name: str,
    config: Mapping[str, Any] | None = None,
    *,
    after: Sequence[str] = (),
    device: PlannedDevice | None = None,
    binary: bool | None = None,
) -> PlannedStep:
    """A step of a plan; a type that is built in is run so unless `binary` says otherwise."""
    is_binary = kind not in builtin.TYPES if binary is None else binary
    return PlannedStep(
        name=name,
        type=kind,
        if_name=if_name,
        network=f"t-{name}",
        execution="Binary" if is_binary else "Builtin",
        depend_on=tuple(after),
        config=config or {},
        device=device,
    )


def plan(*steps: PlannedStep, topology: str = "t") -> Plan:
    """A plan of these steps."""
    return Plan(topology=topology, claim=ClaimReference(namespace="default", name="c", uid="u"), steps=steps)
