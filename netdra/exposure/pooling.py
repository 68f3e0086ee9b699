"""The VFs of a NIC that policies offer together: a NIC's interfaces → the same with a device for each lane (D53).

Called by `netdra.exposure.assemble`. kube-scheduler tries every combination of equal devices before it knows that a
claim does not fit, so one device with consumable capacity stands for a PF's VFs, and the node chooses the VF at
Prepare. A request never gets one shared device twice (k8s.io/dynamic-resource-allocation, structured allocator), so a
policy may divide the VFs into several such devices, the lanes. Lanes only count: any VF of the policy can be chosen for
a claim of any of them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal

import msgspec

from netdra.exposure import facts
from netdra.exposure.counters import Persona, left_of_link, lends
from netdra.exposure.grouping import MemberPlace
from netdra.exposure.offers import NicOffers, Offer
from netdra.exposure.resolve import Resolution
from netdra.exposure.templates import Template
from netdra.model import names, quantity
from netdra.model.device import Lane, Problem
from netdra.model.inventory import Interface, attributes
from netdra.model.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity

BANDWIDTH = names.qualified(names.BANDWIDTH)
VFS = names.qualified(names.VFS)
_OF_A_STEP = "vfio-pci"
UNDOING = "the network of an earlier pod could not be undone on it; it is not available to other claims"
_ONE = CapacityRequestPolicy(default="1", valid_range=CapacityRequestPolicyRange(min="1", max="1"))
_WHAT_IS_ASKED_FOR = CapacityRequestPolicy(default="0", valid_range=CapacityRequestPolicyRange(min="0"))
"""A claim that asks for no bandwidth has none for itself, and no bound."""
_OF_ONE_VF = frozenset(
    {
        *("alias", "alt_names", "called", "if_name", "ifindex", "iommu_group", "mac", "pci_address"),
        *("permanent_mac", "rdma_device", "unreadable", "vf_index"),
    }
)
"""What is never told of pooled VFs, not even where there is one."""


class _Lane(msgspec.Struct, frozen=True):
    """A lane to be offered, with the one device that is made of it."""

    lane: Lane
    template: Template


_Group = tuple[Template, list[Interface]]
"""A template that pools VFs, and its VFs."""


def with_lanes(nic: NicOffers) -> tuple[NicOffers, dict[str, Lane], list[Problem]]:
    """The NIC with an interface for each lane, the VFs of each lane by identity, and the problems of other lanes.

    A VF of a claim stays as it was allocated: one of a policy's VFs as long as that policy pools VFs of the NIC,
    even if the policy no longer selects this VF while it is in the pod; otherwise no other claim can get it.
    """
    pooling = {
        template.policy: template
        for offer, _ in nic.others
        for template in offer.resolution.templates
        if template.lanes
    }
    pools = {
        names.label(name + template.suffix): template
        for template in pooling.values()
        for name in lane_names(nic.pf_name, template.lanes)
    }
    if not pools and not nic.held:
        return nic, {}, []
    held = {entry.identity: entry.device for entry in nic.held}
    others, groups = _grouped(nic, pools, held)
    lanes, problems = _made_lanes(nic, others, pools, groups)
    offers = [(_offer(made), MemberPlace(frozenset(), on_root=True)) for made in lanes]
    pooled = {identity for made in lanes for identity in made.lane.vfs}
    reasons = {vf.identity: _left_out(vf) for _, vfs in groups for vf in vfs if vf.identity not in pooled} | {
        identity: f'a claim uses it as device "{device}"' if device else UNDOING
        for identity, device in held.items()
        if identity not in pooled
    }
    others = [(_hidden(offer, reasons), place) for offer, place in others]
    whole = msgspec.structs.replace(nic, others=(*others, *offers))
    return whole, {made.lane.interface.identity: made.lane for made in lanes}, problems


def _grouped(
    nic: NicOffers, pools: Mapping[str, Template], held: Mapping[str, str]
) -> tuple[list[tuple[Offer, MemberPlace]], list[_Group]]:
    """The NIC's other interfaces without the templates that pool VFs, and for each such template its VFs.

    Args:
        pools: the templates that pool VFs, by device.
        held: the devices of claims by the VFs' identities.
    """
    groups: dict[str, _Group] = {}
    others = []
    for offer, place in nic.others:
        interface, templates = offer.interface, offer.resolution.templates
        template = next((template for template in templates if template.lanes), None)
        if interface.type == "vf" and interface.identity in held:
            device = held[interface.identity]
            template = pools.get(device)
            own = [names.label(interface.device_name + single.suffix) for single in templates]
            templates = templates if template is None and device in own else ()
        if template is not None:
            groups.setdefault(template.policy, (template, []))[1].append(interface)
        others.append((_with(offer, tuple(single for single in templates if not single.lanes)), place))
    return others, [*groups.values()]


def _made_lanes(
    nic: NicOffers,
    others: Sequence[tuple[Offer, MemberPlace]],
    pools: Mapping[str, Template],
    groups: Iterable[_Group],
) -> tuple[list[_Lane], list[Problem]]:
    """The lanes of the VFs of each template, and the problems of those that have too little; as of `_grouped`."""
    lanes: list[_Lane] = []
    problems: list[Problem] = []
    # Claims of former devices with other names keep their VFs until they end.
    elsewhere = sum(entry.bandwidth for entry in nic.held if entry.device not in pools)
    for template, vfs in groups:
        link = (template.lends or _part_of_nic(nic, others, vfs)) - elsewhere
        for made in _lanes(nic, template, vfs, max(link, 0)):
            why = _too_little(made)
            if why is None:
                lanes.append(made)
            else:
                problems.append(why)
    return lanes, problems


def lane_names(pf_name: str, lanes: int) -> list[str]:
    """The names of the lanes of a PF's VFs, before the policy's suffix."""
    return [f"{pf_name}-vfs"] if lanes == 1 else [f"{pf_name}-vfs{number}" for number in range(lanes)]


def usable(vfs: Sequence[Interface], beside: Iterable[Interface] = (), *, carrier: bool) -> list[Interface]:
    """The VFs that a claim can be given: with a driver if others have one, with a carrier if the PF has it.

    Where no VF has a driver, drivers are not bound to VFs on purpose (sriov_drivers_autoprobe), and steps bind one.

    Args:
        vfs: of one PF.
        beside: the PF's other VFs. A claim's step has bound vfio-pci itself, so that driver is not the host's choice.
        carrier: whether the PF has a carrier.
    """
    driven = any(vf.driver for vf in vfs) or any(vf.driver not in ("", _OF_A_STEP) for vf in beside)
    return [vf for vf in vfs if (vf.driver or not driven) and not (carrier and vf.no_carrier)]


def _lanes(nic: NicOffers, template: Template, vfs: Sequence[Interface], bandwidth: int) -> list[_Lane]:
    """A policy's lanes, without those that have no VF.

    Args:
        template: of the policy.
        vfs: the VFs that are to be offered, among them those that claims have.
        bandwidth: what all lanes together have of the link, in Mbit/s; 0 if that is not known.
    """
    called = lane_names(nic.pf_name, template.lanes)
    devices = [names.label(name + template.suffix) for name in called]
    held = [entry for entry in nic.held if entry.device in devices]
    taken = {entry.identity for entry in held}
    carrier = nic.root is None or not nic.root.interface.no_carrier
    beside = (offer.interface for offer, _ in nic.others if offer.interface.type == "vf")
    free = usable([vf for vf in vfs if vf.identity not in taken], beside, carrier=carrier)
    chosen = [vf for vf in vfs if vf.identity in taken or vf in free]
    if not chosen:
        return []
    parts = divided(len(chosen), [sum(entry.device == device for entry in held) for device in devices])
    common = shared_facts(chosen)
    lent = bandwidth // min(len(called), len(chosen))
    return [
        _Lane(
            Lane(interface=msgspec.structs.replace(common, called=name), vfs=tuple(vf.identity for vf in chosen)),
            _with_part(template, part, lent),
        )
        for name, part in zip(called, parts, strict=True)
        if part
    ]


def _part_of_nic(nic: NicOffers, others: Sequence[tuple[Offer, MemberPlace]], vfs: Sequence[Interface]) -> int:
    """The bandwidth of the NIC's link that all pooled VFs have together, in Mbit/s; 0 if that is not known.

    They have the bandwidth that shared devices of the NIC leave, or a part of it if other VFs are offered as well.
    """
    if nic.root is None or nic.root.interface.link_speed <= 0:
        return 0
    root = nic.root.interface
    beside = [offer for offer, place in others if place.on_root and offer.interface.type != "vf"]
    lenders = [
        Persona(f"{offer.interface.device_name}{template.suffix}", template)
        for offer in (nic.root, *beside)
        for template in offer.resolution.templates
    ]
    left = left_of_link([persona for persona in lenders if persona.template.shared and lends(persona)], root.link_speed)
    offered = sum(offer.interface.type == "vf" and bool(offer.resolution.templates) for offer, _ in nic.others)
    return left if offered <= len(vfs) else left * len(vfs) // max(root.num_vfs, offered)


def _too_little(made: _Lane) -> Problem | None:
    """The problem of a lane whose claims would get more bandwidth by default than it has."""
    capacity = made.template.capacity.get(BANDWIDTH)
    policy = capacity.request_policy if capacity is not None else None
    default = int(quantity.parse(policy.default or 0)) if policy is not None else 0
    if capacity is None or default <= made.template.lends:
        return None
    name = f"{made.lane.interface.called}{made.template.suffix}"
    return Problem(
        policy=made.template.policy,
        message=f"{name} is not offered: a claim without a bandwidth request gets {default} Mbit/s, but the "
        f"device has {made.template.lends}; lower requestPolicy.default, or lanes",
        interface=made.lane.interface.identity,
        left_out="limit",
        device=name,
    )


def _left_out(vf: Interface) -> str:
    """Why a VF of a policy is in none of its devices."""
    if not vf.driver and not vf.no_carrier:
        return "it does not have a driver, although other VFs of its PF have one; it is not available to claims"
    if vf.no_carrier:
        return "it does not have a carrier, although its PF has one; it is not available to claims"
    return ""


def _hidden(offer: Offer, reasons: Mapping[str, str]) -> Offer:
    """The interface with the reason why it is not offered, as `netdra explain` prints it."""
    reason = reasons.get(offer.interface.identity)
    if not reason or offer.resolution.hidden:
        return offer
    return msgspec.structs.replace(offer, resolution=msgspec.structs.replace(offer.resolution, hidden=reason))


def _offer(made: _Lane) -> Offer:
    interface = made.lane.interface
    resolution = Resolution(verdicts=(), templates=(made.template,))
    return Offer(interface, resolution, facts.publishable(attributes(interface)))


def _with(offer: Offer, templates: tuple[Template, ...]) -> Offer:
    if templates == offer.resolution.templates:
        return offer
    return msgspec.structs.replace(offer, resolution=msgspec.structs.replace(offer.resolution, templates=templates))


def divided(total: int, allocated: Sequence[int]) -> list[int]:
    """A total in even parts, none of them smaller than its allocated part as long as the total is enough.

    Args:
        total: how many VFs there are.
        allocated: by lane, how many of its VFs claims have.
    """
    count = len(allocated)
    parts = [max(total // count + (number < total % count), had) for number, had in enumerate(allocated)]
    for _ in range(sum(parts) - total):
        slack = [part - had for part, had in zip(parts, allocated, strict=True)]
        largest = max(range(count), key=lambda number: (slack[number], number))
        if slack[largest] == 0:
            break
        parts[largest] -= 1
    return parts


def shared_facts(vfs: Sequence[Interface]) -> Interface:
    """The facts that VFs have in common, others as if they did not apply; if one VF's is unreadable, all are."""
    fields = [field.name for field in msgspec.structs.fields(Interface) if field.name not in _OF_ONE_VF]
    first = vfs[0]
    common = {
        name: getattr(first, name)
        for name in fields
        if all(getattr(vf, name) == getattr(first, name) for vf in vfs[1:])
    }
    unreadable = tuple(sorted({name for vf in vfs for name in vf.unreadable}))
    return Interface(**{**common, "type": "vf"}, unreadable=unreadable)


def _with_part(template: Template, vfs: int, bandwidth: int) -> Template:
    capacity = {VFS: DeviceCapacity(value=str(vfs), request_policy=_ONE)}
    if bandwidth:
        capacity[BANDWIDTH] = _part_of_link(template.capacity.get(BANDWIDTH), bandwidth)
    return msgspec.structs.replace(template, capacity=capacity, lends=bandwidth)


def _part_of_link(given: DeviceCapacity | None, bandwidth: int) -> DeviceCapacity:
    """A lane's bandwidth with the policy's rules for amounts; no claim gets more than the lane has."""
    policy = given.request_policy if given is not None else None
    if policy is None:
        return DeviceCapacity(value=str(bandwidth), request_policy=_WHAT_IS_ASKED_FOR)
    if policy.valid_range is not None:
        span = policy.valid_range
        policy = msgspec.structs.replace(policy, valid_range=msgspec.structs.replace(span, max=_most(span, bandwidth)))
    fitting = tuple(value for value in policy.valid_values if quantity.parse(value) <= bandwidth)
    return DeviceCapacity(value=str(bandwidth), request_policy=msgspec.structs.replace(policy, valid_values=fitting))


def _most(span: CapacityRequestPolicyRange, bandwidth: int) -> str | None:
    """The most bandwidth of a claim: as the policy sets it, or the last whole step that the lane has."""
    least, step = quantity.parse(span.min), quantity.parse(span.step or 0)
    most = min(quantity.parse(span.max), Decimal(bandwidth)) if span.max is not None else Decimal(bandwidth)
    if step:
        most = least + ((most - least) / step).to_integral(ROUND_FLOOR) * step
    return quantity.render(most)
