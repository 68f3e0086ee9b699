"""Which attributes of a link's message are compared: all but the listed ones, also those of a newer kernel."""

from __future__ import annotations

import struct

from netdra.kernel import link_attributes, uapi
from netdra.kernel.netlink import Message, attribute, nested

NEWER = 199


def test_an_attribute_of_a_newer_kernel_appears_under_its_number() -> None:
    values = link_attributes.read(Message({NEWER: b"\1\2", uapi.IFLA_MTU: b"\0\1\0\0"}), 0, "")
    assert values == {f"attribute {NEWER}": "0102"}
    assert not link_attributes.is_known(f"attribute {NEWER}")
    assert link_attributes.is_known("link mode")


def test_a_value_of_zero_is_like_no_value() -> None:
    assert link_attributes.read(Message({NEWER: b"\0\0\0\0", 17: b"\0"}), 0, "veth") == {}


def test_flags_that_can_be_set_are_compared_and_those_of_the_carrier_are_not() -> None:
    flags = uapi.IFF_UP | uapi.IFF_LOWER_UP | uapi.IFF_PROMISC | uapi.IFF_NOARP | 0x40
    assert link_attributes.read(Message(), flags, "") == {"flag noarp": "01"}


def test_the_attributes_of_a_kind_are_compared_but_for_those_that_change_by_themselves() -> None:
    data = attribute(1, struct.pack("=I", 4)) + attribute(8, struct.pack("=I", 1000))
    info = attribute(uapi.IFLA_INFO_KIND, b"macvlan\0") + nested(uapi.IFLA_INFO_DATA, data)
    message = Message({uapi.IFLA_LINKINFO: info})
    assert link_attributes.read(message, 0, "macvlan") == {"kind's attribute 1": "04000000"}
    assert link_attributes.read(message, 0, "bridge") == {}


def test_a_queue_discipline_is_compared_if_the_kernel_does_not_give_it_by_itself() -> None:
    assert link_attributes.read(Message({6: b"fq_codel\0"}), 0, "") == {}
    values = link_attributes.read(Message({6: b"htb\0"}), 0, "")
    assert values == {link_attributes.QUEUEING: b"htb".hex()}
    assert link_attributes.is_of_host(link_attributes.QUEUEING)


def test_each_ignored_attribute_has_a_reason() -> None:
    assert all(len(reason) > 5 for reason in link_attributes.IGNORED.values())


def test_fewer_users_of_a_mode_are_no_change_and_more_are_one() -> None:
    assert link_attributes.is_followed("promiscuity", "02000000", "01000000")
    assert link_attributes.is_followed("promiscuity", "01000000", "")
    assert not link_attributes.is_followed("promiscuity", "", "01000000")
    assert not link_attributes.is_followed("link mode", "01", "")
