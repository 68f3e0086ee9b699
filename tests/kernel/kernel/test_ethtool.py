"""Speeds, features, channels and drivers as ethtool(8) shows them."""

from __future__ import annotations

import re

import pytest

from netdra.kernel import devlink, ethtool, link
from netdra.kernel.errors import KernelError, KernelMissingError
from netdra.kernel.netlink import NETLINK_GENERIC
from netdra.model.errors import InvalidInputError
from tests.kernel.conftest import Machine


def test_features_match_ethtool_output_and_can_be_changed(machine: Machine) -> None:
    machine.veth("a", "b")
    index = machine.index("a")
    with machine.namespace.socket(NETLINK_GENERIC) as sock:
        ours = ethtool.features(sock, index)
        seen = dict(re.findall(r"^\s*([\w-]+): (on|off)", machine.run("ethtool", "-k", "a"), re.MULTILINE))
        common = set(seen) & set(ours)
        assert len(common) > 20
        assert {name: seen[name] == "on" for name in common} == {name: ours[name].active for name in common}
        ethtool.change_features(sock, index, {"tx-checksum-ip-generic": False})
        assert "tx-checksum-ip-generic: off" in machine.run("ethtool", "-k", "a")
        fixed = next(name for name, each in ours.items() if each.fixed and not each.active)
        with pytest.raises((InvalidInputError, KernelError)):
            ethtool.change_features(sock, index, {fixed: True})


def test_speed_of_a_veth(machine: Machine) -> None:
    machine.veth("a", "b")
    seen = machine.run("ethtool", "a")
    with machine.namespace.socket(NETLINK_GENERIC) as sock:
        assert f"Speed: {ethtool.speed(sock, machine.index('a'))}Mb/s" in seen
        assert ethtool.speeds(sock)[machine.index("b")] == 10000
        with pytest.raises(KernelError):
            ethtool.speed(sock, 999)


def test_channels_are_read_and_set(machine: Machine) -> None:
    machine.veth("a", "b")
    with machine.namespace.socket(NETLINK_GENERIC) as sock:
        index = machine.index("a")
        ethtool.change_settings(sock, index, "channels", {"rx": 2, "tx": 1})
        assert {name: ethtool.settings(sock, index, "channels")[name] for name in ("rx", "tx")} == {"rx": 2, "tx": 1}
        with pytest.raises(InvalidInputError, match='channels setting "colour" is unknown'):
            ethtool.change_settings(sock, index, "channels", {"colour": 1})


def test_coalescing_that_a_driver_has_not_is_refused_by_name(machine: Machine) -> None:
    link.create(machine.sock, "br0", "bridge")
    with machine.namespace.socket(NETLINK_GENERIC) as sock, pytest.raises(KernelError) as caught:
        ethtool.settings(sock, machine.index("br0"), "coalesce")
    assert caught.value.is_unsupported
    assert "cannot read coalesce" in str(caught.value)


def test_a_kernel_without_devlink_has_no_eswitches(machine: Machine) -> None:
    missing = pytest.raises((KernelMissingError, KernelError), match=r"devlink|0000:00:00\.0")
    with machine.namespace.socket(NETLINK_GENERIC) as sock, missing:
        devlink.eswitch_mode(sock, "0000:00:00.0")
