"""One NIC's part of the result: the devices of a PF and its VFs, or of one interface, with counters and decisions.

Called by `netdra.exposure.expose` for each NIC that is new or has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from netdra.exposure import facts
from netdra.exposure.counters import Persona, charge
from netdra.exposure.offers import NicOffers, Offer
from netdra.exposure.pooling import with_lanes
from netdra.exposure.select import CandidateInterface, select
from netdra.exposure.templates import Template
from netdra.model import names
from netdra.model.device import (
    POOLED,
    Decision,
    ExposedCounterSet,
    ExposedDevice,
    ExposureResult,
    Features,
    Lane,
    Problem,
)
from netdra.model.inventory import Interface
from netdra.model.resource import MAX_ATTRIBUTES_AND_CAPACITIES, CapacityRequestPolicy, DeviceCapacity, DeviceTaint

BANDWIDTH, GIDS = names.qualified(names.BANDWIDTH), names.qualified(names.GIDS)
FAMILIES = 2
"""An interface has addresses of IPv4 and of IPv6."""
_UNCOUNTED = f"capacity {names.GIDS} is not published for lack of space; the scheduler does not count GIDs"
WITHOUT_CABLE = frozenset({"bridge", "openvswitch", "loopback"})
"""Types whose carrier is that of their ports: an empty bridge is waiting for its first pod."""


def assemble(
    nic: NicOffers,
    *,
    pool: str,
    features: Features,
    programs: Collection[str] | None = None,
    lacked: Sequence[str] = (),
) -> ExposureResult:
    """A NIC's devices, counter sets, decisions and problems.

    Args:
        nic: the interfaces, resolved.
        pool: the name of their pool.
        features: the features that the API server supports.
        programs: as `netdra.exposure.facts.of_device` has it.
        lacked: as `netdra.exposure.facts.with_lacked` has it.
    """
    nic, lanes, problems = with_lanes(nic)
    candidates = _candidates(nic)
    chosen, left_out = select(candidates, _covered(nic), features)
    problems += left_out
    root = nic.root.interface if nic.root else Interface(if_name=nic.pf_name)
    link_speed = root.link_speed if root.pci_address else 0
    chosen = [
        _within_link(offer, personas, _link_speed(offer, link_speed), problems)
        for offer, personas in zip(nic.members, chosen, strict=True)
    ]
    own = chosen[0] if nic.root else ()
    members = [
        candidate.member(personas)
        for candidate, personas in zip(candidates, chosen, strict=True)
        if not candidate.is_root
    ]
    num_vfs = max(root.num_vfs, sum(member.is_vf for member in members))
    charges = charge(root.device_name, own, members, num_vfs=num_vfs, link_speed=link_speed)
    devices = []
    decisions = []
    pooled = _lanes_of_vfs(nic, chosen, lanes) if lanes else {}
    for offer, personas in zip(nic.members, chosen, strict=True):
        identity = offer.interface.identity
        sharers = _gid_sharers(personas)
        for persona in personas:
            published, cut = facts.of_device(
                offer.facts,
                offer.interface,
                persona.template,
                lists=features.list_attributes,
                programs=programs,
            )
            capacity = _capacity(persona, charges.bandwidth.get(persona.name))
            room = MAX_ATTRIBUTES_AND_CAPACITIES - len(published) - len(capacity)
            gids = gids_of(offer.interface, persona.template, sharers) if GIDS not in capacity else None
            if gids is not None and room:
                capacity, room = {**capacity, GIDS: gids}, room - 1
            elif gids is not None:
                problems.append(_cut(offer.interface, persona, _UNCOUNTED))
            published, untold = facts.with_lacked(published, lacked, lists=features.list_attributes, room=room)
            problems += [_cut(offer.interface, persona, text) for text in (*cut, *untold)]
            consumed = charges.consumes.get(persona.name, {})
            devices.append(
                ExposedDevice(
                    name=persona.name,
                    pool=pool,
                    interface=identity,
                    policy=persona.template.policy,
                    plugins=facts.plugins_of(offer.interface, persona.template),
                    attributes=published,
                    capacity=capacity,
                    shared=persona.template.shared,
                    allow_host_use=persona.template.allow_host_use,
                    allow_host_addresses=persona.template.allow_host_addresses,
                    keep=persona.template.keep,
                    allowed_sysctls=persona.template.allowed_sysctls,
                    reset=persona.template.reset,
                    consumes=consumed if features.partitionable_devices else {},
                    taints=_taints(root, offer.interface) if features.device_taints else (),
                    lane=lanes.get(identity),
                )
            )
        decisions.append(_decision(offer, personas, pooled.get(identity, (0, ()))))
        problems += offer.resolution.problems
    # kube-scheduler asks devices in this order and takes the first that fits. So the search for a VF ends before the
    # whole PF, and a claim that either would do for leaves the PF's other VFs to others (decision D53).
    devices.sort(key=lambda device: device.lane is None)
    sets = charges.sets if features.partitionable_devices else {}
    return ExposureResult(
        devices=tuple(devices),
        counter_sets=tuple(ExposedCounterSet(name=name, pool=pool, counters=sets[name]) for name in sets),
        decisions=tuple(decisions),
        problems=tuple(problems),
    )


def _candidates(nic: NicOffers) -> list[CandidateInterface]:
    """The interfaces of a NIC that devices can be made of, the NIC itself first."""
    candidates = [CandidateInterface(nic.root.interface, nic.root.resolution.templates)] if nic.root else []
    candidates += [
        CandidateInterface(
            offer.interface,
            offer.resolution.templates,
            is_root=False,
            on=stands.on,
            on_root=stands.on_root,
            shares_function=stands.shares_function,
            protected=_is_protected(offer),
        )
        for offer, stands in nic.others
    ]
    return candidates


def _lanes_of_vfs(
    nic: NicOffers, chosen: Sequence[tuple[Persona, ...]], lanes: Mapping[str, Lane]
) -> dict[str, tuple[int, tuple[str, ...]]]:
    """By the identity of each pooled VF, how many VFs are pooled with it, and as which devices."""
    named: dict[str, tuple[int, tuple[str, ...]]] = {}
    for offer, personas in zip(nic.members, chosen, strict=True):
        lane = lanes.get(offer.interface.identity)
        for identity in lane.vfs if lane is not None else ():
            _, devices = named.get(identity, (0, ()))
            named[identity] = len(lane.vfs) if lane else 0, (*devices, *(persona.name for persona in personas))
    return named


def _is_protected(offer: Offer) -> bool:
    """Whether an interface's lower devices must not be allocated: it is excluded, or the host uses the VF."""
    return offer.resolution.excluded or (offer.interface.type == "vf" and offer.interface.in_host_use)


def _covered(nic: NicOffers) -> dict[str, str]:
    """By the name of a member, an interface of another pool that stands on it and is offered there or excluded."""
    return {
        name: offer.interface.if_name
        for name, offer in reversed(nic.above)
        if offer.resolution.templates or offer.resolution.excluded
    }


def _link_speed(offer: Offer, of_root: int) -> int:
    """The speed of a member's link, in Mbit/s: VFs have the NIC's, another port has a cable of its own.

    0 for a member that may have more than one link below it.
    """
    interface = offer.interface
    if len(interface.lower_devices) > 1 or interface.type in WITHOUT_CABLE:
        return 0
    return of_root if interface.type == "vf" or not interface.dev_port else interface.link_speed


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
            f"{persona.name} is not offered: its bandwidth of {template.lends} Mbit/s exceeds the link "
            f"speed, {link_speed}; lower it, or set allowBandwidthOvercommit"
        )
        identity = offer.interface.identity
        problems.append(Problem(policy=template.policy, message=message, interface=identity, left_out="limit"))
    return tuple(fitting)


def _capacity(persona: Persona, bandwidth: int | None) -> Mapping[str, DeviceCapacity]:
    """The policy's capacities, and for a VF its bandwidth where the policy does not set it.

    A claim takes none of a shared VF's bandwidth unless it requests some: the number of claims has no limit.
    """
    capacity = persona.template.capacity
    if bandwidth is None or BANDWIDTH in capacity:
        return capacity
    policy = CapacityRequestPolicy(default="0") if persona.template.shared else None
    return {**capacity, BANDWIDTH: DeviceCapacity(value=str(bandwidth), request_policy=policy)}


def gids_of(interface: Interface, template: Template, sharers: int = 1) -> DeviceCapacity | None:
    """The GIDs that the claims of a shared device can have together; None for a device without RoCE.

    An interface that stands on the device has an IPv4 address and a link-local one of IPv6 at least, and each takes an
    entry for each version of RoCE. So do the addresses of the device itself, which the host keeps. In the mode
    "exclusive" no pod shares an RDMA device.

    Args:
        interface: the device's.
        template: the persona's.
        sharers: how many devices of the interface divide its table, this one included.
    """
    each = FAMILIES * interface.gid_versions
    left = (interface.gid_entries - each) // max(1, sharers)
    if not template.shared or template.lanes or interface.rdma_mode == "exclusive" or not each or left < each:
        return None
    return DeviceCapacity(value=str(left), request_policy=CapacityRequestPolicy(default=str(each)))


def _gid_sharers(personas: Iterable[Persona]) -> int:
    """How many shared personas of an interface can be allocated at one time: one of each exclusion group.

    Capacities are not common to several devices, so each of these personas has a part of the GID table. A policy that
    states its own amount is not counted.
    """
    counted = [persona for persona in personas if persona.template.shared and GIDS not in persona.template.capacity]
    return len({persona.template.group or persona.name for persona in counted})


def _taints(root: Interface, interface: Interface) -> tuple[DeviceTaint, ...]:
    """The taint of a device whose link is down, which a claim must tolerate; a VF has its PF's cable."""
    down = any(link.no_carrier and link.type not in WITHOUT_CABLE for link in (root, interface))
    return (DeviceTaint(key=names.LINK_DOWN, effect="NoSchedule"),) if down else ()


def _decision(offer: Offer, personas: tuple[Persona, ...], pool: tuple[int, tuple[str, ...]]) -> Decision:
    interface, resolution = offer.interface, offer.resolution
    count, pooled = pool
    exposed = tuple(persona.name for persona in personas)
    if pooled:
        devices = ", ".join(pooled) if len(pooled) <= 2 else f"{pooled[0]} … {pooled[-1]} ({len(pooled)} devices)"
        reason = f"{POOLED}one of the {count} VFs of {devices}; the node selects any of them for a claim"
    elif exposed:
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
        hidden=None if exposed or pooled else resolution.hiding or "not-publishable",
        verdicts=resolution.verdicts,
        pooled=pooled,
    )


def _cut(interface: Interface, persona: Persona, text: str) -> Problem:
    return Problem(policy=persona.template.policy, message=f"{persona.name}: {text}", interface=interface.identity)
