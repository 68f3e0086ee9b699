"""The pooled VFs that claims have: held devices and interfaces → the VFs' troubles.

Called by `netdra.node.publishing.offering` in each pass. An exclusive VF that is gone, has no carrier or could not be
returned has a taint. A taint of a device of pooled VFs would keep claims off the other VFs, or evict their pods, and
the kubelet's health of devices does not distinguish shares (k8s.io/kubelet, dra-health v1alpha1). So the trouble of one
VF is a problem of the node, an event of its claim and the claim's condition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from netdra.exposure.pooling import usable
from netdra.model.device import Problem
from netdra.model.inventory import Interface
from netdra.node.view import HeldDevice, VFTrouble

SECONDS = 5.0
"""How long a VF must have no driver, or no carrier, before that is reported: a pod's start binds drivers and sets links
up."""
_PASSING = frozenset({"VFWithoutDriver", "VFWithoutCarrier"})
MAX_NAMED = 8
"""How many VFs are problems of their own."""


class TroubleWatch:
    """The VFs in trouble, and since when. For one thread.

    Attributes:
        due: when a trouble is to be reported that is too new; None if none exists.
    """

    def __init__(self) -> None:
        self.due: float | None = None
        self._since: dict[tuple[str, str, str], float] = {}

    def troubles(
        self,
        held_devices: Iterable[HeldDevice],
        interfaces: Sequence[Interface],
        on_the_bus: Callable[[str], bool],
        now: float,
    ) -> tuple[VFTrouble, ...]:
        """The troubles of pooled VFs that claims have, in the order of the VFs' addresses.

        Args:
            held_devices: the devices that claims have.
            interfaces: those of the node.
            on_the_bus: whether there is a PCI device of that address.
            now: seconds of a clock that never goes back.
        """
        held = [device for device in held_devices if device.facts is not None and device.facts.pooled]
        found = {
            (trouble.claim.uid, trouble.vf, trouble.reason): trouble
            for trouble in _troubles(held, interfaces, on_the_bus)
        }
        self._since = {key: self._since.get(key, now) for key in found}
        until = {key: since + (SECONDS if key[2] in _PASSING else 0.0) for key, since in self._since.items()}
        self.due = min((time for time in until.values() if time > now), default=None)
        return tuple(sorted((found[key] for key, time in until.items() if time <= now), key=lambda entry: entry.vf))


def problems(troubles: Sequence[VFTrouble]) -> tuple[Problem, ...]:
    """The troubles as problems of the node; of many VFs some are named, and the others are counted."""
    named = [
        Problem(policy="", message=trouble.message, cause=trouble.message, device=trouble.name)
        for trouble in troubles[:MAX_NAMED]
    ]
    rest = troubles[MAX_NAMED:]
    if rest:
        text = f"{len(rest)} further VFs that claims have are in trouble: see the events of their ResourceClaims"
        named.append(Problem(policy="", message=text, cause=text, device=rest[0].name))
    return tuple(named)


def _troubles(
    held: Sequence[HeldDevice], interfaces: Sequence[Interface], on_the_bus: Callable[[str], bool]
) -> Iterator[VFTrouble]:
    if not held:
        return
    present = {interface.pci_address: interface for interface in interfaces if interface.pci_address}
    beside: dict[str, list[Interface]] = defaultdict(list)
    for interface in interfaces:
        if interface.type == "vf":
            beside[interface.pf_pci_address].append(interface)
    for device in held:
        vf = present.get(device.vf)
        if device.trouble:
            yield _trouble(device, "VFNotGivenBack", f"could not be released: {device.trouble}")
        elif not device.is_prepared:
            continue
        elif vf is not None:
            yield from _unusable(device, vf, present.get(vf.pf_pci_address), beside[vf.pf_pci_address])
        elif not on_the_bus(device.vf):
            yield _trouble(device, "VFGone", "is gone; delete its pod to get another VF")


def _unusable(
    device: HeldDevice, vf: Interface, pf: Interface | None, beside: Sequence[Interface]
) -> Iterator[VFTrouble]:
    """Why no further claim would get the VF, as its device's size states."""
    if not usable([vf], beside, carrier=False):
        what = "has no driver, and other VFs of its PF have one; bind a driver, or delete its pod"
        yield _trouble(device, "VFWithoutDriver", what)
    elif vf.no_carrier and pf is not None and not pf.no_carrier:
        what = "has no carrier, and its PF has one; set its link state, or delete its pod"
        yield _trouble(device, "VFWithoutCarrier", what)


def _trouble(device: HeldDevice, reason: str, what: str) -> VFTrouble:
    assert device.facts is not None
    assert device.reference is not None
    facts, claim = device.facts, device.reference
    name = f"{facts.pf_name}v{facts.vf_index}"
    whose = f'ResourceClaim "{claim.namespace}/{claim.name}"'
    message = f'{whose}: VF {name} ({device.vf}) of device "{facts.device}" {what}'
    return VFTrouble(claim=claim, vf=device.vf, name=name, reason=reason, message=message)
