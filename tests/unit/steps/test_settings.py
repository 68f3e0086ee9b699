"""Which settings of a device count as changed, and which of these concern its next user."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.kernel import ethtool, link_settings, uapi
from netdra.kernel.link import Link
from netdra.kernel.netlink import Message
from netdra.model.errors import PermanentError
from netdra.steps import settings
from netdra.steps.settings import ChangedSetting, DeviceSettings, StrandedError


@pytest.mark.parametrize(
    ("group", "name", "before", "now", "automatic"),
    [
        ("coalesce", "rx-usecs", {"adaptive-rx": 1}, {"adaptive-rx": 1}, True),
        ("coalesce", "rx-usecs", {"adaptive-rx": 1}, {"adaptive-rx": 0}, False),
        ("coalesce", "rx-usecs", {"adaptive-rx": 0}, {"adaptive-rx": 1}, False),
        ("coalesce", "rx-usecs", {}, {}, False),
        ("coalesce", "tx-usecs", {"adaptive-rx": 1}, {"adaptive-rx": 1}, False),
        ("coalesce", "adaptive-rx", {"adaptive-rx": 1}, {"adaptive-rx": 1}, False),
        ("pause", "rx", {"autoneg": 1}, {"autoneg": 1}, True),
        ("pause", "autoneg", {"autoneg": 1}, {"autoneg": 1}, False),
        ("rings", "rx", {"autoneg": 1}, {"autoneg": 1}, False),
    ],
)
def test_values_that_a_driver_chooses_by_itself_do_not_count(
    group: str, name: str, before: dict[str, int], now: dict[str, int], automatic: bool
) -> None:
    assert settings._is_automatic(group, name, before, now) is automatic


def test_settings_that_stay_with_the_device_strand_it_and_all_others_are_notes() -> None:
    matters = ChangedSetting(("rings", "rx"), "ring size rx 512, not 256", settings.TABLE["rings"].matters)
    host = ChangedSetting(("link", "group"), "group 5, not 0", settings.TABLE["link"].matters)
    with pytest.raises(StrandedError) as caught:
        settings.conclude('netdev "eth7"', [host, matters], ["the driver is busy"])
    assert caught.value.what == 'netdev "eth7" has ring size rx 512, not 256; the driver is busy'
    assert isinstance(caught.value, PermanentError)
    assert caught.value.reasons == ("the driver is busy",)
    assert settings.conclude('netdev "eth7"', [host], ["no"]) == ('netdev "eth7" has group 5, not 0', "no")
    assert {group for group, row in settings.TABLE.items() if row.matters} == {
        "sizes", "features", "channels", "rings", "coalesce", "pause", ethtool.FLAGS,
    }  # fmt: skip


def netdev(**values: Any) -> Link:
    fields: dict[str, Any] = dict.fromkeys(Link.__struct_fields__) | {
        "flags": uapi.IFF_UP,
        "kind": "",
        "message": Message(),
    }
    return Link(**fields | values)


@pytest.mark.parametrize("name", ["disable_ipv6", "addr_gen_mode"])
def test_a_link_is_not_set_up_on_its_way_with_its_own_setting_of_ipv6(name: str) -> None:
    place = link_settings.IPV6.index(name)
    values = [0] * len(link_settings.IPV6)
    assert settings.may_be_up(DeviceSettings(txqlen=1000), netdev())
    assert settings.may_be_up(DeviceSettings(txqlen=1000, ipv6=tuple(values)), netdev())
    values[place] = 1
    assert not settings.may_be_up(DeviceSettings(txqlen=1000, ipv6=tuple(values)), netdev())


def test_a_link_is_not_set_up_on_its_way_with_another_flag_or_mode() -> None:
    before = DeviceSettings(txqlen=1000, further={"link": {"flag multicast": "01"}})
    whole = Message({99: b"\0"})
    assert settings.may_be_up(before, netdev(flags=0x1000, message=whole))
    assert not settings.may_be_up(before, netdev(flags=0, message=whole))
    assert not settings.may_be_up(before, netdev(flags=0x1080, message=whole))
    assert not settings.may_be_up(before, netdev(flags=0x1000, message=Message({17: b"\1"})))
