"""Netlink messages: a built message is read back the same, and the kernel's messages are decoded."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.kernel import address, kinds, link, netlink, route, uapi, vf
from netdra.kernel.errors import (
    KernelBusyError,
    KernelExistsError,
    KernelMissingError,
    KernelRefusedError,
    kernel_error,
)
from netdra.kernel.netlink import attribute, attributes, nested, text, u8, u16, u32
from netdra.model.errors import InvalidInputError, PermanentError, TemporaryError

payloads = st.binary(max_size=40)


@given(st.dictionaries(st.integers(1, 0x3FFF), payloads))
def test_attributes_are_read_as_they_were_written(wanted: dict[int, bytes]) -> None:
    data = b"".join(attribute(kind, payload) for kind, payload in wanted.items())
    assert len(data) % 4 == 0
    assert attributes(data) == wanted


@given(st.binary(max_size=200), st.integers(0, 60))
def test_no_bytes_make_reading_fail(data: bytes, start: int) -> None:
    assert all(len(value) <= len(data) for value in attributes(data, start).values())
    assert len(netlink.attribute_list(data, start)) >= len(attributes(data, start))
    assert sum(len(body) for *_, body in netlink.messages(data)) <= len(data)


def test_nested_attributes_are_flagged_and_read_without_the_flag() -> None:
    data = nested(18, attribute(1, text("veth")))
    assert struct.unpack_from("=HH", data)[1] == 18 | netlink.NLA_F_NESTED
    assert attributes(attributes(data)[18]) == {1: b"veth\0"}


def test_strange_bytes_in_a_name_become_printable() -> None:
    assert netlink.to_text(b"odd\xff\0rest") == "odd\\xff"
    assert netlink.to_text(b"eth0") == "eth0"


@pytest.mark.parametrize(
    ("number", "expected", "base"),
    [
        (19, KernelMissingError, PermanentError),
        (17, KernelExistsError, PermanentError),
        (16, KernelBusyError, TemporaryError),
        (22, KernelRefusedError, PermanentError),
    ],
)
def test_an_errno_maps_to_a_temporary_or_permanent_error_type(
    number: int, expected: type[Exception], base: type[Exception]
) -> None:
    problem = kernel_error(number, 'cannot set mtu 5 of link "a"', "mtu less than device minimum")
    assert type(problem) is expected
    assert isinstance(problem, base)
    assert problem.errno == number
    assert 'link "a"' in str(problem)
    assert "mtu less than device minimum" in str(problem)


def link_message(*parts: bytes, index: int = 7, hardware: int = 1, flags: int = 0x1043) -> bytes:
    return struct.pack("=BxHiII", 0, hardware, index, flags, 0) + b"".join(parts)


def test_a_link_of_a_pci_device_on_a_bridge() -> None:
    found = link.parse(
        link_message(
            attribute(uapi.IFLA_IFNAME, text("ens1f0np0")),
            attribute(uapi.IFLA_ADDRESS, bytes.fromhex("0c42a1112233")),
            attribute(uapi.IFLA_PERM_ADDRESS, bytes.fromhex("0c42a1112234")),
            attribute(uapi.IFLA_MTU, u32(9000)),
            attribute(uapi.IFLA_OPERSTATE, u8(6)),
            attribute(uapi.IFLA_MASTER, u32(3)),
            attribute(uapi.IFLA_NUM_VF, u32(8)),
            attribute(uapi.IFLA_IFALIAS, text("to the spine")),
            attribute(uapi.IFLA_PARENT_DEV_NAME, text("0000:41:00.0")),
            attribute(uapi.IFLA_PARENT_DEV_BUS_NAME, text("pci")),
            nested(uapi.IFLA_PROP_LIST, *(attribute(uapi.IFLA_ALT_IFNAME, text(name)) for name in ("enp65s0", "x"))),
            nested(uapi.IFLA_LINKINFO, attribute(uapi.IFLA_INFO_SLAVE_KIND, text("bridge"))),
        )
    )
    assert (found.index, found.name, found.address, found.permanent_address) == (
        7,
        "ens1f0np0",
        "0c:42:a1:11:22:33",
        "0c:42:a1:11:22:34",
    )
    assert (found.mtu, found.state, found.master, found.vfs, found.alias) == (9000, "up", 3, 8, "to the spine")
    assert (found.parent, found.parent_bus, found.alt_names) == ("0000:41:00.0", "pci", ("enp65s0", "x"))
    assert (found.kind, found.port_kind, found.is_up) == ("", "bridge", True)


def test_a_message_without_attributes_is_a_link_without_facts() -> None:
    found = link.parse(link_message())
    assert (found.index, found.name, found.mtu, found.lower_netns, found.alt_names) == (7, "", 0, -1, ())


def test_kinds_are_read_as_they_were_written() -> None:
    assert kinds.vlan_filtering_of(kinds.bridge(vlan_filtering=1, stp_state=0)) is True
    assert kinds.vlan_filtering_of(kinds.bridge(stp_state=1)) is False
    assert kinds.vlan_id_of(kinds.vlan(100, "802.1ad")) == 100
    assert kinds.vlan_protocol_of(kinds.vlan(100, "802.1ad")) == "802.1ad"
    assert kinds.bond_mode_of(kinds.bond(mode="802.3ad", lacp_rate="fast")) == "802.3ad"


def test_bond_options_have_the_widths_of_the_kernel() -> None:
    found = attributes(
        kinds.bond(mode=4, miimon=100, xmit_hash_policy="layer3+4", ad_actor_sys_prio=7, arp_targets=["192.0.2.1"])
    )
    assert found[1] == u8(4)
    assert found[3] == u32(100)
    assert found[14] == u8(1)
    assert found[24] == u16(7)
    assert attributes(found[8]) == {0: bytes([192, 0, 2, 1])}


@pytest.mark.parametrize("options", [{"mode": "fast"}, {"mode": 9}, {"colour": 1}, {"lacp_rate": "sometimes"}])
def test_unknown_bond_options_are_rejected_before_the_kernel_is_called(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="unknown"):
        kinds.bond(**options)


def vf_info(*, index: int, mac: str, vlan: int, spoof_check: int, trust: int) -> bytes:
    return nested(
        1,
        attribute(1, struct.pack("=I32s", index, bytes.fromhex(mac))),
        attribute(2, struct.pack("=III", index, vlan, 3)),
        attribute(4, struct.pack("=II", index, spoof_check)),
        attribute(5, struct.pack("=II", index, 2)),
        attribute(6, struct.pack("=III", index, 10, 200)),
        attribute(9, struct.pack("=II", index, trust)),
        attribute(10, struct.pack("@IQ", index, 0x0011223344556677)),
        attribute(11, struct.pack("@IQ", index, 0x0011223344556678)),
        nested(12, attribute(1, struct.pack("=III", index, vlan, 3) + bytes.fromhex("88a8") + b"\0\0")),
    )


class OneReply(netlink.Socket):
    """Stands for a PF's driver, which no test machine has: it answers with one message and keeps what it is sent."""

    def __init__(self, body: bytes = b"") -> None:
        super().__init__()
        self.body = body
        self.sent: list[bytes] = []

    def request(self, kind: int, body: bytes, *, flags: int = 0, doing: str) -> list[bytes]:
        self.sent.append(body)
        return [self.body]


def test_the_settings_of_vfs_are_read_from_their_pf() -> None:
    listed = nested(
        uapi.IFLA_VFINFO_LIST,
        vf_info(index=0, mac="020000000001", vlan=100, spoof_check=1, trust=0),
        vf_info(index=1, mac="000000000000", vlan=0, spoof_check=0xFFFFFFFF, trust=1),
    )
    with OneReply(link_message(attribute(uapi.IFLA_IFNAME, text("ens1")), listed)) as sock:
        first, second = vf.read(sock, 7)
    assert first == vf.VF(
        index=0,
        mac="02:00:00:00:00:01",
        vlan=100,
        qos=3,
        protocol="802.1ad",
        spoof_check=True,
        trust=False,
        link_state="disable",
        min_rate=10,
        max_rate=200,
        node_guid="00:11:22:33:44:55:66:77",
        port_guid="00:11:22:33:44:55:66:78",
    )
    assert (second.spoof_check, second.trust, second.vlan) == (None, True, 0)


def test_only_the_settings_that_are_wanted_are_sent_to_the_pf() -> None:
    with OneReply() as sock:
        vf.change(sock, 7, vf.VF(index=2, mac="02:00:00:00:00:09", trust=True, node_guid="00:11:22:33:44:55:66:77"))
        sent = [attributes(attributes(attributes(body, 16)[uapi.IFLA_VFINFO_LIST])[1]) for body in sock.sent]
    assert sent == [
        {1: struct.pack("=I32s", 2, bytes.fromhex("020000000009"))},
        {9: struct.pack("=II", 2, 1)},
        {10: struct.pack("@IQ", 2, 0x0011223344556677)},
    ]


def test_the_default_route_of_several_routers_names_all_their_links() -> None:
    hops = b"".join(struct.pack("=HBBi", 16, 0, 0, index) + attribute(5, bytes([10, 0, 0, index])) for index in (4, 5))
    body = struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + attribute(uapi.RTA_MULTIPATH, hops)
    found = route.parse(body)
    assert (found.destination, found.is_default, found.links) == ("0.0.0.0/0", True, (4, 5))


def test_a_point_to_point_address_is_the_near_end() -> None:
    near, far = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
    body = struct.pack("=BBBBI", 2, 32, 0, 0, 9) + attribute(uapi.IFA_ADDRESS, far) + attribute(uapi.IFA_LOCAL, near)
    found = address.parse(body)
    assert (found.text, found.peer, found.index) == ("10.0.0.1/32", "10.0.0.2", 9)
