"""A recorded sysfs tree to facts: what netlink would tell comes from files, or is not recorded and said to be so.

Called by `scan` for `netdra discover --sysfs ROOT`. Trees are of any age and as damaged as they come: links dangle,
files are missing, indexes repeat. An interface whose folder is not there is left out and counted.
"""

from __future__ import annotations

import msgspec

from netdra.discovery import devices
from netdra.discovery.facts import EVERY_LINK, Facts
from netdra.discovery.live import by_owner
from netdra.kernel import rdma, uapi
from netdra.kernel.link import OPER_STATES, Link
from netdra.kernel.sysfs import Sysfs, Unreadable, printable

NOT_RECORDED = "not recorded"
_NET = "class/net"
_NOT_IN_SYSFS = ("ipv4", "ipv6", "alt_names", "host_uplink", "eswitch_mode")
_PERMANENT = 0  # NET_ADDR_PERM of addr_assign_type
# uevent's DEVTYPE is the kind of the link for these
_KINDS = frozenset({"bridge", "vlan", "bond", "macvlan", "macvtap", "ipvlan", "vxlan", "geneve", "gre", "ppp", "wwan"})
_STACKED = frozenset({"vlan", "macvlan", "macvtap", "ipvlan"})
_BLANK = Link(0, "", 0, 0, "", "", b"", "", "", 0, "unknown", 0, -1, 0, "", (), "", "", 0, 0, 0, "", "")


def read(sysfs: Sysfs) -> Facts:
    """All facts of a tree; never an exception, whatever is in it."""
    facts = Facts()
    facts.note(EVERY_LINK, _NOT_IN_SYSFS, NOT_RECORDED)
    facts.rdma = by_owner(rdma.devices(sysfs))
    names = _interfaces(sysfs, facts)
    indexes = _indexes(sysfs, names)
    for name in names:
        _read_link(sysfs, facts, name, indexes)
    for pf in devices.other_pfs(sysfs, facts.by_address):
        facts.put_pf(devices.function(sysfs, pf))
    missing = {vf for pf in facts.pfs.values() for vf in pf.functions.values() if not facts.by_address.get(vf)}
    facts.functions = {vf: devices.function(sysfs, vf) for vf in sorted(missing)}
    return facts


def _interfaces(sysfs: Sysfs, facts: Facts) -> list[str]:
    """The interfaces of the tree; `bonding_masters` beside them is a file, and where links dangle nothing is left."""
    found = []
    for name in sysfs.listing(_NET):
        if sysfs.is_folder(f"{_NET}/{name}"):
            found.append(name)
        elif sysfs.link(f"{_NET}/{name}") is not None:
            facts.gone += 1
    return found


def _indexes(sysfs: Sysfs, names: list[str]) -> dict[str, int]:
    """A number for each interface: its ifindex where that can be read and is its own, else one below zero."""
    indexes: dict[str, int] = {}
    taken: set[int] = set()
    for place, name in enumerate(names, 1):
        found = sysfs.number(f"{_NET}/{name}/ifindex")
        if not isinstance(found, int) or found <= 0 or found in taken:
            found = -place
        taken.add(found)
        indexes[name] = found
    return indexes


def _read_link(sysfs: Sysfs, facts: Facts, name: str, indexes: dict[str, int]) -> None:
    folder, index = f"{_NET}/{name}", indexes[name]
    device = devices.behind_link(sysfs, name)
    kind = "" if device else _kind(sysfs, folder, name)
    address = _text(sysfs, facts, index, f"{folder}/address", "mac")
    state = _text(sysfs, facts, index, f"{folder}/operstate", "oper_state")
    is_permanent = device and _read_number(sysfs, f"{folder}/addr_assign_type", -1) == _PERMANENT
    link = msgspec.structs.replace(
        _BLANK,
        index=index,
        name=printable(name),
        kind=kind,
        hardware=_number(sysfs, facts, index, f"{folder}/type", "encapsulation"),
        flags=uapi.IFF_LOOPBACK if _read_number(sysfs, f"{folder}/type") == uapi.ARPHRD_LOOPBACK else 0,
        address=address,
        permanent_address=address if is_permanent else "",
        mtu=_number(sysfs, facts, index, f"{folder}/mtu", "mtu"),
        state=state if state in OPER_STATES else OPER_STATES[0],
        alias=sysfs.text(f"{folder}/ifalias"),
        port_name=sysfs.text(f"{folder}/phys_port_name"),
        switch_id=sysfs.text(f"{folder}/phys_switch_id"),
        master=indexes.get(_target(sysfs, folder, "master") or _target(sysfs, folder, "brport/bridge"), 0),
        lower=_lower(sysfs, folder, name, kind, indexes),
    )
    facts.put(link)
    if device:
        facts.put_device(index, device)
    _read_speed(sysfs, facts, index, folder)
    if kind == "bridge" and _number(sysfs, facts, index, f"{folder}/bridge/vlan_filtering", "vlan_filtering"):
        facts.vlan_filtering.add(index)
    if kind == "vlan":
        facts.note(index, ("vlan_id",), NOT_RECORDED)


def _kind(sysfs: Sysfs, folder: str, name: str) -> str:
    """What made a virtual link, as far as its files tell: "virtual" where they do not."""
    if name == "lo" or _read_number(sysfs, f"{folder}/type") == uapi.ARPHRD_LOOPBACK:
        return ""
    lines = sysfs.text(f"{folder}/uevent").splitlines()
    kind = next((line.removeprefix("DEVTYPE=") for line in lines if line.startswith("DEVTYPE=")), "")
    if kind in _KINDS:
        return kind
    for entry, made_by in (("bridge", "bridge"), ("bonding", "bond"), ("tun_flags", "tun")):
        if sysfs.exists(f"{folder}/{entry}"):
            return made_by
    # The other end of a cable is the one link that a plain virtual one names besides itself.
    own, other = _read_number(sysfs, f"{folder}/ifindex"), _read_number(sysfs, f"{folder}/iflink")
    return "veth" if own and other and own != other else "virtual"


def _lower(sysfs: Sysfs, folder: str, name: str, kind: str, indexes: dict[str, int]) -> int:
    """The link that a stacked one stands on: `lower_X`, or on kernels before 3.14 the one that `iflink` names."""
    for entry in sysfs.listing(folder):
        lower = entry.removeprefix("lower_")
        if lower != entry and lower in indexes and _target(sysfs, f"{_NET}/{lower}", "master") != name:
            return indexes[lower]
    if kind in _STACKED:
        other = _read_number(sysfs, f"{folder}/iflink")
        return other if other in indexes.values() and other != indexes[name] else 0
    return 0


def _read_speed(sysfs: Sysfs, facts: Facts, index: int, folder: str) -> None:
    """The speed; -1 or EINVAL is what the kernel says of a link that is down or has none."""
    found = sysfs.number(f"{folder}/speed")
    if isinstance(found, int) and found > 0:
        facts.speeds[index] = found
    elif isinstance(found, Unreadable) and found.reason != "EINVAL":
        facts.note(index, ("link_speed",), found.reason)


def _target(sysfs: Sysfs, folder: str, entry: str) -> str:
    found = sysfs.link(f"{folder}/{entry}")
    return found.rpartition("/")[2] if isinstance(found, str) else ""


def _text(sysfs: Sysfs, facts: Facts, index: int, path: str, field: str) -> str:
    """A file that every interface has: without it the fact is unreadable."""
    found = sysfs.read(path)
    if isinstance(found, str):
        return found
    facts.note(index, (field,), found.reason if found is not None else "ENOENT")
    return ""


def _number(sysfs: Sysfs, facts: Facts, index: int, path: str, field: str) -> int:
    found = sysfs.number(path)
    if isinstance(found, int):
        return found
    facts.note(index, (field,), found.reason if found is not None else "ENOENT")
    return 0


def _read_number(sysfs: Sysfs, path: str, neutral: int = 0) -> int:
    found = sysfs.number(path)
    return found if isinstance(found, int) else neutral
