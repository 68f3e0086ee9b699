"""Replies of ethtool's family are kept whole, except for values of the partner, the module and the carrier."""

from __future__ import annotations

import errno
import struct

from netdra.kernel import ethtool_further
from netdra.kernel.errors import kernel_error
from netdra.kernel.netlink import attribute

LINK_MODES, EEE, NEWER = 4, 23, 90
HEADER = {1: b"\0" * 8}


def bit_set(value: int, mask: int) -> bytes:
    return attribute(4, struct.pack("=I", value)) + attribute(5, struct.pack("=I", mask))


def test_a_request_of_a_newer_kernel_is_compared_under_its_number() -> None:
    values, _ = ethtool_further.settings([NEWER], [{**HEADER, 2: b"\7"}])
    assert values == {f"ethtool request {NEWER}": {"attribute 2": "07"}}
    assert not ethtool_further.is_known(f"ethtool request {NEWER}", "attribute 2")
    assert ethtool_further.is_known("EEE", "enabled")
    assert not ethtool_further.is_known("EEE", "attribute 77")


def test_speed_and_duplex_are_settings_only_without_autonegotiation() -> None:
    reply = {**HEADER, 3: b"\1", 4: b"\2", 5: b"\x0a\0\0\0", 6: b"\0"}
    (fixed, _), (negotiated, _) = (ethtool_further.settings([LINK_MODES], [{**reply, 2: on}]) for on in (b"\0", b"\1"))
    assert fixed["link modes"] == {"autonegotiation": "00", "advertised": "01", "speed": "0a000000", "duplex": "00"}
    assert negotiated["link modes"] == {"autonegotiation": "01", "advertised": "01"}


def test_the_partner_of_a_link_decides_nothing() -> None:
    values, _ = ethtool_further.settings([EEE], [{**HEADER, 2: b"\1", 3: b"\2", 4: b"\1", 5: b"\1"}])
    assert values == {"EEE": {"advertised": "01", "enabled": "01"}}


def test_another_module_and_a_link_that_is_down_are_no_changes_of_a_pod() -> None:
    with_copper, with_fibre = bit_set(3, 3).hex(), bit_set(4, 4).hex()
    fewer = bit_set(1, 3).hex()
    assert ethtool_further.is_followed("link modes", "advertised", with_copper, with_fibre)
    assert not ethtool_further.is_followed("link modes", "advertised", with_copper, fewer)
    assert ethtool_further.is_followed("link modes", "speed", "e8030000", "ffffffff")
    assert not ethtool_further.is_followed("link modes", "speed", "e8030000", "0a000000")
    assert not ethtool_further.is_followed("EEE", "enabled", "01", "00")


def test_a_driver_lacks_a_group_only_if_it_reports_so() -> None:
    unsupported = kernel_error(errno.EOPNOTSUPP, "cannot read settings")
    busy = kernel_error(errno.EIO, "cannot read settings")
    assert ethtool_further.settings([LINK_MODES, EEE], [unsupported, {**HEADER, 5: b"\1"}])[1]
    assert not ethtool_further.settings([LINK_MODES, EEE], [busy, {**HEADER, 5: b"\1"}])[1]


def test_each_request_that_is_not_made_has_a_reason() -> None:
    assert all(len(reason) > 5 for reason in ethtool_further.IGNORED.values())
