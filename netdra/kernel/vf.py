"""The settings of VFs at their PF: MAC, VLAN, spoof check, trust, link state, rates, GUIDs of InfiniBand.

Follows include/uapi/linux/if_link.h (IFLA_VFINFO_LIST). Steps read them before they change them, to give them back;
a driver refuses a setting that it does not have with EOPNOTSUPP.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import msgspec

from netdra.kernel import link, uapi
from netdra.kernel.kinds import VLAN_PROTOCOLS
from netdra.kernel.netlink import Socket, attribute, attribute_list, attributes, nested, to_u32, u32

LINK_STATES = ("auto", "enable", "disable")

_VF_INFO = 1
_MAC, _VLAN, _SPOOFCHK, _LINK_STATE, _RATE, _TRUST, _VLAN_LIST = 1, 2, 4, 5, 6, 9, 12
_NODE_GUID, _PORT_GUID = 10, 11
_VLAN_INFO = 1
_IFINFO_SIZE = 16

_MAC_FIELDS = struct.Struct("=I32s")
_VLAN_FIELDS = struct.Struct("=III")
_VLAN_INFO_FIELDS = struct.Struct("=III2s2x")
_SETTING_FIELDS = struct.Struct("=II")
_RATE_FIELDS = struct.Struct("=III")
_GUID_FIELDS = struct.Struct("=I4xQ")  # struct ifla_vf_guid, with a 64 bit kernel's padding
_UNSUPPORTED = 0xFFFFFFFF


class VF(msgspec.Struct, frozen=True, kw_only=True):
    """One VF as its PF sees it; None for settings that the driver does not report.

    Attributes:
        index: its number on the PF.
        mac: the administrative MAC ("00:00:00:00:00:00" for none).
        vlan: the VLAN that the PF puts it in, 0 for none, with `qos` (0 to 7) and `protocol`.
        spoof_check: whether frames with another source MAC are dropped.
        trust: whether it may set itself promiscuous and the like.
        link_state: one of LINK_STATES.
        min_rate: guaranteed Mbit/s, 0 for none.
        max_rate: the limit in Mbit/s, 0 for none.
        node_guid: the GUID of its InfiniBand node, as text with colons, and `port_guid` that of its port.
    """

    index: int
    mac: str | None = None
    vlan: int | None = None
    qos: int = 0
    protocol: str = "802.1q"
    spoof_check: bool | None = None
    trust: bool | None = None
    link_state: str | None = None
    min_rate: int | None = None
    max_rate: int | None = None
    node_guid: str | None = None
    port_guid: str | None = None


def read(sock: Socket, pf: str | int) -> tuple[VF, ...]:
    """The VFs of a PF, in the order of their numbers; empty if it is not a PF.

    Raises:
        KernelError: no such link exists, or the kernel refused.
    """
    return tuple(_parse(attributes(data)) for data in _infos(sock, pf))


def find(sock: Socket, pf: str | int, index: int) -> VF | None:
    """One VF of a PF, by its number; None if the PF does not report it. Other VFs are not parsed, unlike in `read`.

    Raises:
        KernelError: no such link exists, or the kernel refused.
    """
    for data in _infos(sock, pf):
        fields = attributes(data)
        if to_u32(fields[_MAC]) == index:
            return _parse(fields)
    return None


def _infos(sock: Socket, pf: str | int) -> Iterator[bytes]:
    mask = uapi.RTEXT_FILTER_VF | uapi.RTEXT_FILTER_SKIP_STATS
    body = link.get_raw(sock, pf, attribute(uapi.IFLA_EXT_MASK, u32(mask)))
    listed = attributes(body, _IFINFO_SIZE).get(uapi.IFLA_VFINFO_LIST, b"")
    return (data for kind, data in attribute_list(listed) if kind == _VF_INFO)


def change(sock: Socket, pf: str | int, wanted: VF) -> None:
    """Make the settings of `wanted` (None leaves one as it is), one message a setting.

    Drivers answer for each setting alone, so an error names the refused setting; the settings before it are done.

    Raises:
        KernelError: no such PF or VF exists, or its driver refused the setting.
    """
    index = pf if isinstance(pf, int) else link.get(sock, pf).index
    for name, encoded in _encode(wanted):
        body = link.encode(index=index) + nested(uapi.IFLA_VFINFO_LIST, nested(_VF_INFO, encoded))
        sock.request(uapi.RTM_NEWLINK, body, doing=f"cannot set {name} of VF {wanted.index} of link {pf}")


def apart(wanted: VF) -> tuple[VF, ...]:
    """The settings of `wanted` that are given, each alone; those that the kernel takes together stay together."""
    index = wanted.index
    each = (
        VF(index=index, mac=wanted.mac),
        VF(index=index, vlan=wanted.vlan, qos=wanted.qos, protocol=wanted.protocol),
        VF(index=index, link_state=wanted.link_state),
        VF(index=index, min_rate=wanted.min_rate, max_rate=wanted.max_rate),
        VF(index=index, spoof_check=wanted.spoof_check),
        VF(index=index, trust=wanted.trust),
        VF(index=index, node_guid=wanted.node_guid),
        VF(index=index, port_guid=wanted.port_guid),
    )
    return tuple(setting for setting in each if _encode(setting))


def _encode(wanted: VF) -> list[tuple[str, bytes]]:
    """The settings that are given, by name, as attributes."""
    encoded: list[tuple[str, bytes]] = []
    number = wanted.index
    if wanted.mac is not None:
        fields = _MAC_FIELDS.pack(number, bytes.fromhex(wanted.mac.replace(":", "")))
        encoded.append(("the MAC", attribute(_MAC, fields)))
    if wanted.vlan is not None:
        protocol = VLAN_PROTOCOLS[wanted.protocol].to_bytes(2, "big")
        info = attribute(_VLAN_INFO, _VLAN_INFO_FIELDS.pack(number, wanted.vlan, wanted.qos, protocol))
        encoded.append(("the VLAN", nested(_VLAN_LIST, info)))
    if wanted.link_state is not None:
        fields = _SETTING_FIELDS.pack(number, LINK_STATES.index(wanted.link_state))
        encoded.append(("the link state", attribute(_LINK_STATE, fields)))
    if wanted.min_rate is not None or wanted.max_rate is not None:
        fields = _RATE_FIELDS.pack(number, wanted.min_rate or 0, wanted.max_rate or 0)
        encoded.append(("the rates", attribute(_RATE, fields)))
    for name, kind, value in (("spoof check", _SPOOFCHK, wanted.spoof_check), ("trust", _TRUST, wanted.trust)):
        if value is not None:
            encoded.append((name, attribute(kind, _SETTING_FIELDS.pack(number, value))))
    for name, kind, guid in (("node GUID", _NODE_GUID, wanted.node_guid), ("port GUID", _PORT_GUID, wanted.port_guid)):
        if guid is not None:
            encoded.append((name, attribute(kind, _GUID_FIELDS.pack(number, int(guid.replace(":", ""), 16)))))
    return encoded


def _parse(fields: Mapping[int, bytes]) -> VF:
    index, mac = _MAC_FIELDS.unpack_from(fields[_MAC].ljust(_MAC_FIELDS.size, b"\0"))
    _, vlan, qos = _VLAN_FIELDS.unpack_from(fields[_VLAN]) if _VLAN in fields else (0, None, 0)
    _, min_rate, max_rate = _RATE_FIELDS.unpack_from(fields[_RATE]) if _RATE in fields else (0, None, None)
    state = _setting(fields.get(_LINK_STATE))
    spoof_check, trust = _setting(fields.get(_SPOOFCHK)), _setting(fields.get(_TRUST))
    return VF(
        index=index,
        mac=mac[:6].hex(":"),
        vlan=vlan,
        qos=qos,
        protocol=_protocol(fields.get(_VLAN_LIST, b"")),
        spoof_check=None if spoof_check is None else bool(spoof_check),
        trust=None if trust is None else bool(trust),
        link_state=LINK_STATES[state] if state is not None and state < len(LINK_STATES) else None,
        min_rate=min_rate,
        max_rate=max_rate,
        node_guid=_guid(fields.get(_NODE_GUID)),
        port_guid=_guid(fields.get(_PORT_GUID)),
    )


def _setting(data: bytes | None) -> int | None:
    """A setting's number; drivers without it report all ones."""
    if data is None:
        return None
    value = int(_SETTING_FIELDS.unpack_from(data)[1])
    return None if value == _UNSUPPORTED else value


def _guid(data: bytes | None) -> str | None:
    return None if data is None else int(_GUID_FIELDS.unpack_from(data)[1]).to_bytes(8, "big").hex(":")


def _protocol(data: bytes) -> str:
    for kind, info in attribute_list(data):
        if kind == _VLAN_INFO:
            number = int.from_bytes(_VLAN_INFO_FIELDS.unpack_from(info)[3], "big")
            return next((name for name, value in VLAN_PROTOCOLS.items() if value == number), "802.1q")
    return "802.1q"
