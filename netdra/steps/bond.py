"""The bond step: a bond in the pod, of interfaces that are in the pod by then.

Takes the parameters of the CNI plugin of that name too (`linksInContainer`, `miimon` as text, `failOverMac` as a
number). Values are words or numbers as in the kernel's Documentation/networking/bonding; times are milliseconds.
Without `mtu` the bond has the smallest MTU of its members, since the kernel would give them its own default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any

import msgspec

from netdra.kernel import kinds, link, pci
from netdra.kernel.link import Link
from netdra.model.errors import InvalidInputError, PermanentError
from netdra.model.identity import DeviceIdentity
from netdra.model.plan import MIIMON
from netdra.model.result import StepResult
from netdra.steps import identity, mtu
from netdra.steps.contract import Builtin, Count, MacText, Mtu, Order, Params, Record, Site, appended, check_mac
from netdra.steps.drift import check_interface
from netdra.steps.made import Made, unmake
from netdra.steps.moving import check_free, interface

Number = Count | Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}$")]
Word = str | int
Flag = bool | Annotated[int, msgspec.Meta(ge=0, le=1)]


class BondLink(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One member, by its name in the pod; the rest is what a result states of an interface beside its name."""

    name: str
    mac: str = ""
    mtu: int = 0
    sandbox: str = ""
    socket_path: str = ""
    pci_id: str = msgspec.field(default="", name="pciID")


class BondParams(Params, frozen=True, kw_only=True):
    """The members and the kernel's options. An absent option has the kernel's default, except for the link monitor."""

    mode: Word
    links: tuple[BondLink | str, ...]
    links_in_container: bool = True
    mtu: Mtu | None = None
    mac: MacText | None = None
    miimon: Number | None = None
    updelay: Number | None = None
    downdelay: Number | None = None
    peer_notif_delay: Number | None = None
    arp_interval: Number | None = None
    arp_ip_target: str | tuple[str, ...] = ()
    arp_validate: Word | None = None
    xmit_hash_policy: Word | None = None
    lacp_rate: Word | None = None
    ad_select: Word | None = None
    fail_over_mac: Word | None = None
    primary: str = ""
    primary_reselect: Word | None = None
    min_links: Number | None = None
    all_slaves_active: Word | bool | None = None
    num_peer_notif: Number | None = None
    resend_igmp: Number | None = None
    packets_per_slave: Number | None = None
    lp_interval: Number | None = None
    tlb_dynamic_lb: Flag | None = None
    use_carrier: Flag | None = None

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the members in the order of `links`, where each is a name or an object."""
        return tuple(member if isinstance(member, str) else member.name for member in self.links)

    @property
    def arp_targets(self) -> tuple[str, ...]:
        """The addresses that ARP asks for."""
        targets = self.arp_ip_target
        return tuple(part.strip() for part in targets.split(",")) if isinstance(targets, str) else targets


class BondMember(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a link before it became a bond's member."""

    name: str
    device: DeviceIdentity
    mac: str
    mtu: int
    up: bool


class Bonded(Record, frozen=True, kw_only=True):
    """The bond to be made, and its members as they are."""

    made: Made
    members: tuple[BondMember, ...]


# Parameters that `netdra.kernel.kinds.bond` has under another name.
_RENAMED = {"all_slaves_active": "all_ports_active", "packets_per_slave": "packets_per_port"}
_OPTIONS = (
    "mode", "miimon", "updelay", "downdelay", "peer_notif_delay", "arp_interval", "arp_validate", "xmit_hash_policy",
    "lacp_rate", "ad_select", "fail_over_mac", "primary_reselect", "min_links", "all_slaves_active", "num_peer_notif",
    "resend_igmp", "packets_per_slave", "lp_interval", "tlb_dynamic_lb", "use_carrier",
)  # fmt: skip


def _prepare(order: Order, params: BondParams) -> None:
    if params.mac:
        check_mac(params.mac, f"{order.called}, mac")
    if not params.links_in_container:
        raise InvalidInputError(
            f"{order.called}: its links would be on the host",
            hint="bring them into the pod by steps of their own, and leave linksInContainer out",
            code="ND2011",
        )
    members = params.members
    if len(members) < 2:
        raise InvalidInputError(
            f"{order.called}: a bond of {len(members)} members is not possible", hint="name two links", code="ND2012"
        )
    if len(set(members)) < len(members) or order.if_name in members:
        raise InvalidInputError(f"{order.called}: links names an interface twice, or the bond itself", code="ND2013")
    if params.primary and params.primary not in members:
        raise InvalidInputError(f'{order.called}: primary "{params.primary}" is not one of its links', code="ND2014")
    try:
        _options(params)
    except OSError:
        raise InvalidInputError(f"{order.called}: arpIpTarget is not a list of IPv4 addresses", code="ND2015") from None


def _observe(order: Order, params: BondParams, site: Site) -> Bonded:
    check_free(order, site)
    members = [_member(order, name, site) for name in params.members]
    return Bonded(
        made=Made(if_name=order.if_name, kind="bond"),
        members=tuple(
            BondMember(
                name=member.name,
                device=identity.identity_of(member, site.sysfs),
                mac=member.address,
                mtu=member.mtu,
                up=member.is_up,
            )
            for member in members
        ),
    )


def _apply(order: Order, params: BondParams, bonded: Bonded, site: Site) -> StepResult:
    sock = site.inside.sock
    wanted = params.mtu or min(member.mtu for member in bonded.members)
    link.create(sock, order.if_name, "bond", _options(params), mtu=wanted, mac=params.mac)
    bond = link.get(sock, order.if_name)
    for member in bonded.members:
        # bonding takes no member that is up (drivers/net/bonding/bond_main.c, bond_enslave).
        link.change(sock, member.name, up=False)
        with mtu.member_explained(order.called, sock, bond.name, member.name, wanted):
            link.change(sock, member.name, master=bond.index)
    site.notes.extend(_of_one_pf(bonded.members, site))
    if params.primary:
        primary = link.get(sock, params.primary).index
        link.change(sock, bond.index, kind="bond", data=kinds.bond(primary=primary))
    link.change(sock, bond.index, up=True)
    return appended(order, interface(link.get(sock, bond.index), site))


def _undo(bonded: Bonded, site: Site) -> tuple[str, ...]:
    if site.pod is None:
        return ()
    sock = site.pod.sock
    unmake(bonded.made, site)
    for member in bonded.members:
        netdev = identity.find(sock, site.sysfs, member.device, member.name, same_mac=False)
        # The kernel gives members back their MAC and MTU when they leave; a driver may have refused that.
        if netdev is None or netdev.master:
            continue
        wanted: dict[str, Any] = {"mtu": member.mtu} if netdev.mtu != member.mtu else {}
        if netdev.address != member.mac:
            wanted["mac"] = member.mac
        if wanted:
            link.change(sock, netdev.index, **wanted)
        if member.up and not netdev.is_up:
            link.change(sock, netdev.index, up=True)
    return ()


def _check(order: Order, params: BondParams, final: StepResult, site: Site) -> tuple[str, ...]:
    sock = site.inside.sock
    drift = list(check_interface(order.if_name, final, site))
    bond = link.find(sock, order.if_name)
    if bond is None:
        return tuple(drift)
    mode = kinds.bond_mode_of(bond.data)
    if params.mode not in (mode, kinds.BOND_MODES.get(mode), str(kinds.BOND_MODES.get(mode))):
        drift.append(f'bond "{order.if_name}" has mode {mode}, not {params.mode}')
    for name in params.members:
        member = link.find(sock, name)
        if member is None or member.master != bond.index:
            drift.append(f'"{name}" is not a member of bond "{order.if_name}"')
    return tuple(drift)


def _of_one_pf(members: Sequence[BondMember], site: Site) -> Iterator[str]:
    """Members that are lost together, in words."""
    pfs = {member.name: pci.pf_of(site.sysfs, member.device.pci_address) for member in members}
    for pf, _ in groupby(sorted(filter(None, pfs.values()))):
        names = [name for name in pfs if pfs[name] == pf]
        if len(names) > 1:
            yield f"members {', '.join(names)} are VFs of one PF, {pf}: the bond loses their links at the same time"


def _options(params: BondParams) -> bytes:
    """The options that a bond is made with; `primary` needs its member first."""
    values = {_RENAMED.get(name, name): getattr(params, name) for name in _OPTIONS}
    options = {name: value for name, value in values.items() if value is not None}
    if not int(params.arp_interval or 0):  # a plan that was not bound by this version has no default yet
        options.setdefault("miimon", MIIMON)
    return kinds.bond(**options, arp_targets=params.arp_targets)


def _member(order: Order, name: str, site: Site) -> Link:
    netdev = link.find(site.inside.sock, name)
    if netdev is None:
        raise PermanentError(
            f'{order.called}: the pod has no interface "{name}"',
            hint="let the bond depend on the step that brings it",
            code="ND2016",
        )
    if netdev.master:
        raise PermanentError(f'{order.called}: "{name}" is a member of another interface already', code="ND2017")
    return netdev


BOND = Builtin(
    params=BondParams, record=Bonded, prepare=_prepare, observe=_observe, apply=_apply, undo=_undo, check=_check
)
