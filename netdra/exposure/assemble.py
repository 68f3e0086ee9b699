"""One NIC's part of the result: the devices of a PF and its VFs, or of one interface, with counters and decisions.

Called by `netdra.exposure.expose` for each NIC that is new or has changed.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from netdra.exposure import facts
from netdra.exposure.counters import Persona, Uses, charge
from netdra.exposure.resolve import Resolution
from netdra.exposure.select import Candidate, select
from netdra.model import names
from netdra.model.device import Decision, ExposedCounterSet, ExposedDevice, ExposureResult, Features, Problem
from netdra.model.inventory import AttributeValue, Interface
from netdra.model.resource import CapacityRequestPolicy, DeviceCapacity, DeviceTaint

BANDWIDTH = names.qualified(names.BANDWIDTH)
WITHOUT_CABLE = frozenset({"bridge", "openvswitch", "loopback"})
"""Types whose carrier is that of their ports: an empty bridge is waiting for its first pod."""


class Offer(msgspec.Struct, frozen=True):
    """An interface with what the policies say about it and the facts that can be published."""

    interface: Interface
    resolution: Resolution
    facts: Mapping[str, AttributeValue]


class Nic(msgspec.Struct, frozen=True):
    """What shares a pool and counters: a PF (if it is known) and its VFs, or an interface by itself and no VFs."""

    pf_name: str
    root: Offer | None
    vfs: tuple[Offer, ...]

    @property
    def members(self) -> tuple[Offer, ...]:
        """All interfaces, the PF first."""
        return (self.root, *self.vfs) if self.root else self.vfs


def pool_name(node: str, pf_name: str, root: Interface | None) -> str:
    """The pool of a NIC: `<node>/sriov-<pf>`, or `<node>/<type>-<name>` of what is no PF."""
    return names.pool(node, _of_node(pf_name, root))


def former_pool_name(node: str, pf_name: str, root: Interface | None) -> str:
    """What a NIC's pool was called before it said exactly whose it is; one in use keeps that name."""
    return names.subdomain(f"{node}-{_of_node(pf_name, root)}")


def _of_node(pf_name: str, root: Interface | None) -> str:
    kind = "sriov" if root is None or root.type == "pf" else root.type
    return f"{kind}-{root.device_name if root else pf_name}"


def assemble(nic: Nic, *, pool: str, features: Features) -> ExposureResult:
    """A NIC's devices, counter sets, decisions and problems.

    Args:
        nic: the interfaces, resolved.
        pool: the name of their pool.
        features: what the API server takes.
    """
    candidates = [Candidate(offer.interface, offer.resolution.templates) for offer in nic.members]
    chosen, problems = select(candidates, vfs=len(nic.vfs), features=features)
    root = nic.root.interface if nic.root else Interface(if_name=nic.pf_name)
    link_speed = root.link_speed if root.pci_address else 0
    chosen = [_within_link(*each, link_speed, problems) for each in zip(nic.members, chosen, strict=True)]
    own = chosen[0] if nic.root else ()
    vfs = tuple(
        Uses(name=offer.interface.device_name, personas=personas, in_host_use=offer.interface.in_host_use)
        for offer, personas in zip(nic.vfs, chosen[len(chosen) - len(nic.vfs) :], strict=True)
    )
    num_vfs = max(root.num_vfs, len(vfs))
    charges = charge(root.device_name, own, vfs, num_vfs=num_vfs, link_speed=link_speed)
    devices = []
    decisions = []
    for offer, personas in zip(nic.members, chosen, strict=True):
        for persona in personas:
            attributes, cut = facts.of_device(offer.facts, persona.template, lists=features.list_attributes)
            problems += [_cut(offer.interface, persona, text) for text in cut]
            taken = charges.consumes.get(persona.name, {})
            devices.append(
                ExposedDevice(
                    name=persona.name,
                    pool=pool,
                    interface=offer.interface.identity,
                    policy=persona.template.policy,
                    attributes=attributes,
                    capacity=_capacity(persona, charges.bandwidth.get(persona.name)),
                    shared=persona.template.shared,
                    consumes=taken if features.partitionable_devices else {},
                    taints=_taints(root, offer.interface) if features.device_taints else (),
                )
            )
        decisions.append(_decision(offer, personas))
        problems += offer.resolution.problems
    sets = charges.sets if features.partitionable_devices else {}
    return ExposureResult(
        devices=tuple(devices),
        counter_sets=tuple(ExposedCounterSet(name=name, pool=pool, counters=sets[name]) for name in sets),
        decisions=tuple(decisions),
        problems=tuple(problems),
    )


def _within_link(
    offer: Offer, personas: tuple[Persona, ...], link_speed: int, problems: list[Problem]
) -> tuple[Persona, ...]:
    """The devices without those that would lend more bandwidth than there is."""
    fitting = []
    for persona in personas:
        template = persona.template
        if link_speed == 0 or template.lends <= link_speed or template.overcommits:
            fitting.append(persona)
            continue
        message = (
            f"{persona.name} is left out: its bandwidth of {template.lends} Mbit/s is more than its link has, "
            f"{link_speed}; lower it, or set allowBandwidthOvercommit"
        )
        identity = offer.interface.identity
        problems.append(Problem(policy=template.policy, message=message, interface=identity, left_out="limit"))
    return tuple(fitting)


def _capacity(persona: Persona, bandwidth: int | None) -> Mapping[str, DeviceCapacity]:
    """The policy's capacities, and for a VF its bandwidth where the policy says nothing of it.

    Of a shared VF a claim takes none of it unless it asks: its policy does not say how many claims there may be.
    """
    capacity = persona.template.capacity
    if bandwidth is None or BANDWIDTH in capacity:
        return capacity
    policy = CapacityRequestPolicy(default="0") if persona.template.shared else None
    return {**capacity, BANDWIDTH: DeviceCapacity(value=str(bandwidth), request_policy=policy)}


def _taints(root: Interface, interface: Interface) -> tuple[DeviceTaint, ...]:
    """A device whose link is down is for nobody who does not say that it may be; a VF has its PF's cable."""
    down = any(each.no_carrier and each.type not in WITHOUT_CABLE for each in (root, interface))
    return (DeviceTaint(key=names.LINK_DOWN, effect="NoSchedule"),) if down else ()


def _decision(offer: Offer, personas: tuple[Persona, ...]) -> Decision:
    interface, resolution = offer.interface, offer.resolution
    exposed = tuple(persona.name for persona in personas)
    if exposed:
        winners = ", ".join(f'"{policy}"' for policy in sorted({persona.template.policy for persona in personas}))
        reason = f"exposed as {', '.join(exposed)} by {winners}"
    else:
        reason = f"hidden: {resolution.hidden or 'none of its devices can be published'}"
    return Decision(
        interface=interface.identity,
        if_name=interface.if_name,
        device_name=interface.device_name,
        reason=reason,
        exposed=exposed,
        verdicts=resolution.verdicts,
    )


def _cut(interface: Interface, persona: Persona, text: str) -> Problem:
    return Problem(policy=persona.template.policy, message=f"{persona.name}: {text}", interface=interface.identity)
