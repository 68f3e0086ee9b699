"""A recorded sysfs tree to facts: facts that netlink would have come from files, or are noted as not recorded.

Called by `scan` for `netdra discover --sysfs ROOT`. Trees are of any age and as damaged as they come: links dangle,
files are missing, indexes repeat. An interface whose folder is not there is left out and counted.
"""

from __future__ import annotations

import msgspec

from netdra.discovery import devices
from netdra.discovery.facts import EVERY_LINK, MachineFacts, SysfsDevice
from netdra.discovery.live import put_rdma
from netdra.kernel import kinds, uapi
from netdra.kernel.link import OPER_STATES, Link
from netdra.kernel.sysfs import Sysfs, printable

NOT_RECORDED = "not recorded"
_NET = "class/net"
_NOT_IN_SYSFS = ("ipv4", "ipv6", "alt_names", "host_uplink", "eswitch_mode")
_OF_NETDEVS = (
    *_NOT_IN_SYSFS,
    "if_name",
    "mac",
    "permanent_mac",
    "mtu",
    "link_speed",
    "oper_state",
    "encapsulation",
    "alias",
    "master",
    "master_bridge",
)
_MTU = _INDEX = range(1 << 31)
_HARDWARE = range(1 << 16)
_SPEED = range(-1, 1 << 32)
_BOOLEAN = range(2)
_WITHOUT_SPEED = frozenset({"down", "lowerlayerdown", "notpresent"})
_NO_SPEED = frozenset({"EINVAL", "EOPNOTSUPP"})
_PERMANENT = 0  # NET_ADDR_PERM of addr_assign_type
# uevent's DEVTYPE is the kind of the link for these
_KINDS = frozenset({"bridge", "vlan", "bond", "macvlan", "macvtap", "ipvlan", "vxlan", "geneve", "gre", "ppp", "wwan"})
_STACKED = frozenset({"vlan", "macvlan", "macvtap", "ipvlan"})
_BLANK = Link(0, "", 0, 0, "", "", b"", "", "", 0, "unknown", 0, -1, 0, "", (), "", "", 0, 0, 0, "", "")


def read(sysfs: Sysfs) -> MachineFacts:
    """All facts of a tree; never an exception, with any content."""
    facts = MachineFacts()
    facts.note(EVERY_LINK, _NOT_IN_SYSFS, NOT_RECORDED)
    put_rdma(sysfs, facts)
    names = _interfaces(sysfs, facts)
    indexes = _indexes(sysfs, names)
    tells_sriov = _tells_sriov(sysfs)
    for name in names:
        _read_link(sysfs, facts, name, indexes, tells_sriov=tells_sriov)
    for pf in devices.other_pfs(sysfs, facts.by_address):
        facts.put_pf(devices.function(sysfs, pf))
    missing = {vf for pf in facts.pfs.values() for vf in pf.functions.values() if not facts.by_address.get(vf)}
    facts.functions = {vf: devices.function(sysfs, vf) for vf in sorted(missing)}
    if not sysfs.is_folder(_NET):
        facts.functions |= _bare_functions(sysfs)
    return facts


def _bare_functions(sysfs: Sysfs) -> dict[str, SysfsDevice]:
    """The network functions of a tree of PCI devices alone: they may have interfaces, which are not recorded."""
    not_recorded = dict.fromkeys(_OF_NETDEVS, NOT_RECORDED)
    functions = {address: devices.function(sysfs, address) for address in devices.network_functions(sysfs)}
    return {
        address: msgspec.structs.replace(device, unreadable={**device.unreadable, **not_recorded})
        for address, device in functions.items()
    }


def _interfaces(sysfs: Sysfs, facts: MachineFacts) -> list[str]:
    """The interfaces of the tree; `bonding_masters` beside them is a file, and where links dangle nothing is left."""
    interfaces = []
    for name in sysfs.listing(_NET):
        if sysfs.is_folder(f"{_NET}/{name}"):
            interfaces.append(name)
        elif sysfs.link(f"{_NET}/{name}") is not None:
            facts.gone.append(printable(name))
    return interfaces


def _indexes(sysfs: Sysfs, names: list[str]) -> dict[str, int]:
    """A number for each interface: its ifindex where that can be read and is its own, else one below zero."""
    indexes: dict[str, int] = {}
    used: set[int] = set()
    for place, name in enumerate(names, 1):
        index = sysfs.number(f"{_NET}/{name}/ifindex")
        if not isinstance(index, int) or index not in _INDEX or index <= 0 or index in used:
            index = -place
        used.add(index)
        indexes[name] = index
    return indexes


def _read_link(sysfs: Sysfs, facts: MachineFacts, name: str, indexes: dict[str, int], *, tells_sriov: bool) -> None:
    folder, index = f"{_NET}/{name}", indexes[name]
    device = devices.behind_link(sysfs, name)
    kind = "" if device else _kind(sysfs, folder, name)
    lower = _lower(sysfs, folder, name, kind, indexes)
    hardware = _number(sysfs, facts, index, f"{folder}/type", "encapsulation", _HARDWARE)
    address = _text(sysfs, facts, index, f"{folder}/address", "mac")
    state = _text(sysfs, facts, index, f"{folder}/operstate", "oper_state")
    is_permanent = device and _read_number(sysfs, f"{folder}/addr_assign_type", -1) == _PERMANENT
    link = msgspec.structs.replace(
        _BLANK,
        index=index,
        name=printable(name),
        kind=kind,
        hardware=hardware,
        flags=uapi.IFF_LOOPBACK if _is_loopback(name, hardware) else 0,
        address=address,
        permanent_address=address if is_permanent else "",
        mtu=_number(sysfs, facts, index, f"{folder}/mtu", "mtu", _MTU),
        state=state if state in OPER_STATES else OPER_STATES[0],
        alias=sysfs.text(f"{folder}/ifalias"),
        port_name=sysfs.text(f"{folder}/phys_port_name"),
        switch_id=sysfs.text(f"{folder}/phys_switch_id"),
        master=indexes.get(_target(sysfs, folder, "master") or _target(sysfs, folder, "brport/bridge"), 0),
        lower=lower,
        # Netlink reports a VXLAN's lower link among the attributes of its kind, where `Link` reads it.
        data=kinds.vxlan(0, lower=lower) if kind == "vxlan" else b"",
    )
    facts.put(link)
    if device:
        facts.put_device(index, device)
        if not tells_sriov and _may_have_vfs(sysfs, device):
            facts.note(index, devices.SRIOV_FIELDS, NOT_RECORDED)
    _read_speed(sysfs, facts, index, folder, has_cable=device is not None and state not in _WITHOUT_SPEED)
    if kind == "bridge" and _number(sysfs, facts, index, f"{folder}/bridge/vlan_filtering", "vlan_filtering"):
        facts.vlan_filtering.add(index)
    if kind == "vlan":
        facts.note(index, ("vlan_id",), NOT_RECORDED)


def _kind(sysfs: Sysfs, folder: str, name: str) -> str:
    """The kind of a virtual link by its files: "virtual" where they do not show it."""
    if _is_loopback(name, _read_number(sysfs, f"{folder}/type")):
        return ""
    lines = sysfs.text(f"{folder}/uevent").splitlines()
    kind = next((line.removeprefix("DEVTYPE=") for line in lines if line.startswith("DEVTYPE=")), "")
    if kind in _KINDS:
        return kind
    for entry, made_by in (("bridge", "bridge"), ("bonding", "bond"), ("tun_flags", "tun"), ("macvtap", "macvtap")):
        if sysfs.exists(f"{folder}/{entry}"):
            return made_by
    # No file shows which of macvlan, ipvlan and others it is, but there is a link to the interface below.
    if any(entry.startswith("lower_") for entry in sysfs.listing(folder)):
        return "virtual"
    # A plain virtual link names one other link, the other end of its cable.
    own, other = _read_number(sysfs, f"{folder}/ifindex"), _read_number(sysfs, f"{folder}/iflink")
    return "veth" if own and other and own != other else "virtual"


def _lower(sysfs: Sysfs, folder: str, name: str, kind: str, indexes: dict[str, int]) -> int:
    """The link below a stacked one: `lower_X`, or on kernels before 3.14 the link that `iflink` names."""
    for entry in sysfs.listing(folder):
        lower = entry.removeprefix("lower_")
        if lower != entry and lower in indexes and _target(sysfs, f"{_NET}/{lower}", "master") != name:
            return indexes[lower]
    if kind in _STACKED:
        other = _read_number(sysfs, f"{folder}/iflink")
        return other if other in indexes.values() and other != indexes[name] else 0
    return 0


def _is_loopback(name: str, hardware: int) -> bool:
    """Whether an interface is the loopback, also where a tree lacks its type."""
    return name == "lo" or hardware == uapi.ARPHRD_LOOPBACK


def _tells_sriov(sysfs: Sysfs) -> bool:
    """Whether a tree has files of SR-IOV at all: without them it is open whether a function has VFs."""
    with sysfs.folder("bus/pci/devices") as folder:
        return any(folder.exists(f"{address}/sriov_totalvfs") for address in sysfs.listing("bus/pci/devices"))


def _may_have_vfs(sysfs: Sysfs, device: SysfsDevice) -> bool:
    """Whether a function may have VFs that a tree does not show: kernels that show VFs also have `driver_override`."""
    if not device.address or device.pf or device.total_vfs:
        return False
    return not sysfs.exists(f"bus/pci/devices/{device.address}/driver_override")


def _read_speed(sysfs: Sysfs, facts: MachineFacts, index: int, folder: str, *, has_cable: bool) -> None:
    """The speed; -1 is the kernel's for a link without one.

    The file of a link that is down, or has no cable, is there and cannot be read: such a link has no speed.
    """
    speed = devices.within(_SPEED, sysfs.number(f"{folder}/speed"))
    if isinstance(speed, int):
        if speed > 0:
            facts.speeds[index] = speed
    elif has_cable or (speed is not None and speed.reason not in _NO_SPEED):
        facts.note(index, ("link_speed",), speed.reason if speed is not None else NOT_RECORDED)


def _target(sysfs: Sysfs, folder: str, entry: str) -> str:
    target = sysfs.link(f"{folder}/{entry}")
    return target.rpartition("/")[2] if isinstance(target, str) else ""


def _text(sysfs: Sysfs, facts: MachineFacts, index: int, path: str, field: str) -> str:
    """A file that every interface has: without it the fact is unreadable."""
    text = sysfs.read(path)
    if isinstance(text, str):
        return text
    facts.note(index, (field,), text.reason if text is not None else "ENOENT")
    return ""


def _number(sysfs: Sysfs, facts: MachineFacts, index: int, path: str, field: str, possible: range = _BOOLEAN) -> int:
    number = devices.within(possible, sysfs.number(path))
    if isinstance(number, int):
        return number
    facts.note(index, (field,), number.reason if number is not None else "ENOENT")
    return 0


def _read_number(sysfs: Sysfs, path: str, neutral: int = 0) -> int:
    number = sysfs.number(path)
    return number if isinstance(number, int) else neutral
