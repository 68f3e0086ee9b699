"""Steps whose VF has a port in Neutron: those of a pod's plans, and the plans with these ports in them. Pure.

The ports are in the claims' records since they were prepared (`netdra.node.claims`). `netdra.steps.sriov` carries them
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from netdra.model.errors import InvalidInputError, PermanentError
from netdra.model.plan import ClaimReference, Plan, PlannedDevice, PlannedPort, PlannedStep, called


def asked_for(plans: Sequence[Plan]) -> Iterator[tuple[Plan, PlannedStep]]:
    """The steps that have a port, each with its plan."""
    return ((plan, step) for plan in plans for step in plan.steps if step.neutron is not None)


def device_of(plan: Plan, step: PlannedStep) -> PlannedDevice:
    """The VF of a step that has a port.

    Raises:
        InvalidInputError: its device is not a VF, or is shared.
    """
    device = step.device
    if device is None or not device.pci_address or device.is_shared:
        what = "is shared" if device is not None and device.is_shared else "has no PCI address"
        which = f'device "{device.device}"' if device is not None else "its device"
        raise InvalidInputError(
            f"{called(plan.topology, step.name)}: {which} {what}: only a VF that a claim has for itself has a port in "
            "Neutron",
            hint="let the step's selector choose VFs",
            code="ND1336",
        )
    return device


def with_ports(
    plans: Sequence[Plan], port_of: Callable[[ClaimReference, PlannedDevice], PlannedPort | None]
) -> tuple[Plan, ...]:
    """The plans with the ports of their VFs.

    Args:
        plans: of a pod.
        port_of: the port of a claim's device, as it was when the claim was prepared.

    Raises:
        InvalidInputError: a step cannot have a port.
        PermanentError: a claim was prepared without a port that its step is to have.
    """

    def ported(plan: Plan, step: PlannedStep) -> PlannedStep:
        if step.neutron is None:
            return step
        device = device_of(plan, step)
        port = port_of(plan.claim, device)
        if port is None:
            raise PermanentError(
                f'{called(plan.topology, step.name)}: ResourceClaim "{plan.claim.namespace}/{plan.claim.name}" was '
                f'prepared without a port in Neutron for device "{device.device}"',
                hint="delete the pod: its claim is prepared again for the next pod",
                code="ND1337",
            )
        port = msgspec.structs.replace(port, assign_addresses=step.neutron.assign_addresses)
        return msgspec.structs.replace(step, port=port)

    return tuple(
        msgspec.structs.replace(plan, steps=tuple(ported(plan, step) for step in plan.steps)) for plan in plans
    )
