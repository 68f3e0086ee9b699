"""Check asks the kernel, not only the plugins: many have a CHECK that does nothing, or do not support CHECK."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.chain.check import check
from netdra.chain.report import StepCheck
from netdra.model.plan import PlannedStep
from testbed.recorder import Recorder
from tests.kernel.chain.conftest import Bed, device, recorder
from tests.plans import attach, plan, step

POD = '"$(basename "$CNI_NETNS")"'
MADE = """echo '{"interfaces": [{"name": "'"$CNI_IFNAME"'", "mac": "'"$mac"'", "sandbox": "'"$CNI_NETNS"'"}],\
 "ips": [{"address": "10.1.0.5/24", "interface": 0}]}'"""
# What whereabouts, a plugin of another version, and one that does not know the verb say.
NO_CHECK: list[dict[str, Any]] = [
    {"code": 999, "message": "CNI CHECK method is not implemented"},
    {"code": 1, "message": "plugin version does not allow CHECK"},
    {"code": 4, "message": "unknown CNI_COMMAND: CHECK"},
    {"code": 100, "message": "not implemented"},
]


def maker(bed: Bed, name: str, create: str) -> Recorder:
    """A plugin that makes an interface with an address, reports both, and always succeeds at CHECK."""
    plugin = recorder(bed, name)
    inside = f"ip -n {POD}"
    mac = f'mac=$({inside} -j link show "$CNI_IFNAME" | sed "s/.*\\"address\\":\\"\\([^\\"]*\\).*/\\1/")'
    address = f'{inside} addr add 10.1.0.5/24 dev "$CNI_IFNAME"'
    plugin.does("ADD", f"{inside} {create} && {address} || exit 1; {mac}; {MADE}")
    plugin.does("DEL", f'{inside} link del "$CNI_IFNAME"; true')
    return plugin


def looked(bed: Bed) -> tuple[StepCheck, ...]:
    report = check(bed.container.sandbox, bed.settings)
    assert report.problems == ()
    return report.steps


def attached(bed: Bed, *steps: PlannedStep) -> None:
    attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("link", "del", "net1"), 'interface "net1" does not exist'),
        (("link", "set", "net1", "name", "other"), 'interface "net1" does not exist'),
        (("link", "set", "net1", "address", "02:00:00:00:00:77"), 'interface "net1" has MAC 02:00:00:00:00:77, not '),
        (("addr", "del", "10.1.0.5/24", "dev", "net1"), 'interface "net1" has lost address 10.1.0.5/24'),
    ],
)
def test_drift_is_detected_even_if_the_check_of_the_plugin_is_empty(
    bed: Bed, change: tuple[str, ...], told: str
) -> None:
    maker(bed, "maker", 'link add "$CNI_IFNAME" type bridge')
    attached(bed, step("a", "maker", "net1"))
    assert [(each.drift, each.skipped) for each in looked(bed)] == [((), "")]
    bed.run("ip", *change, inside=True)
    (drift,) = looked(bed)[0].drift
    assert drift.startswith(told)


@pytest.mark.parametrize("answer", NO_CHECK)
def test_an_unimplemented_check_is_not_reported_as_drift(bed: Bed, answer: dict[str, Any]) -> None:
    maker(bed, "maker", 'link add "$CNI_IFNAME" type bridge').fails("CHECK", **answer)
    recorder(bed, "quiet").fails("CHECK", **answer)
    attached(bed, step("a", "maker", "net1"), step("b", "quiet", "net2"))
    made, quiet = looked(bed)
    assert (made.drift, made.skipped) == ((), "")
    assert (quiet.drift, answer["message"] in quiet.skipped) == ((), True)
    bed.run("ip", "link", "del", "net1", inside=True)
    assert looked(bed)[0].drift == ('interface "net1" does not exist',)


@pytest.mark.parametrize("answer", [{"code": 100, "message": "rule is gone"}, {"code": 7, "message": "no such mode"}])
def test_a_failed_check_of_a_plugin_is_reported_as_drift(bed: Bed, answer: dict[str, Any]) -> None:
    maker(bed, "maker", 'link add "$CNI_IFNAME" type bridge').fails("CHECK", **answer)
    attached(bed, step("a", "maker", "net1"))
    assert answer["message"] in looked(bed)[0].drift[0]


def test_a_check_that_asks_for_a_retry_is_skipped_and_not_reported_as_drift(bed: Bed) -> None:
    recorder(bed, "busy").fails("CHECK", code=11, message="busy")
    attached(bed, step("a", "busy", "net1"))
    assert (looked(bed)[0].drift, "busy" in looked(bed)[0].skipped) == ((), True)


def test_an_interface_on_top_of_the_wrong_link_is_reported_as_drift(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    maker(bed, "upper", 'link add "$CNI_IFNAME" link net1 type macvlan')
    attached(
        bed,
        step("nic", "host-device", "net1", device=device("eth7")),
        step("top", "upper", "mac0", {"master": "{{ nic.interfaceName }}"}, after=["nic"]),
    )
    assert [each.drift for each in looked(bed)] == [(), ()]
    mac = bed.link("mac0", inside=True)["address"]
    bed.run("ip", "link", "del", "mac0", inside=True)
    bed.run("ip", "link", "add", "low9", "type", "bridge", inside=True)
    bed.run("ip", "link", "add", "mac0", "link", "low9", "address", mac, "type", "macvlan", inside=True)
    bed.run("ip", "addr", "add", "10.1.0.5/24", "dev", "mac0", inside=True)
    assert looked(bed)[1].drift == ('interface "mac0" is not on top of "net1"',)


def static(address: str) -> dict[str, Any]:
    return {"ipam": {"type": "static", "addresses": [{"address": address}]}}


def test_a_step_that_merges_two_branches_of_stock_plugins_makes_no_drift_of_either(bed: Bed) -> None:
    for name in ("eth7", "eth8"):
        bed.veth(name, f"{name}p", up=True)
    attached(
        bed,
        step("left", "macvlan", "net1", {"master": "eth7", **static("10.1.0.5/24")}),
        step("right", "macvlan", "net2", {"master": "eth8", **static("10.2.0.5/24")}),
        step("tune", "tuning", "net1", {"sysctl": {"net.core.somaxconn": "500"}}, after=["left", "right"], binary=True),
    )
    assert [(each.drift, each.skipped) for each in looked(bed)] == [((), "")] * 3
    bed.run("ip", "addr", "del", "10.2.0.5/24", "dev", "net2", inside=True)
    assert [bool(each.drift) for each in looked(bed)][1] is True


def test_a_macvlan_on_top_of_a_macvlan_is_not_reported_as_drift(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    maker(bed, "upper", 'link add "$CNI_IFNAME" link net1 type macvlan')
    maker(bed, "top", 'link add "$CNI_IFNAME" link mac0 type macvlan')
    attached(
        bed,
        step("nic", "host-device", "net1", device=device("eth7")),
        step("low", "upper", "mac0", {"master": "net1"}, after=["nic"]),
        step("high", "top", "mac1", {"master": "mac0"}, after=["low"]),
    )
    assert [each.drift for each in looked(bed)] == [(), (), ()]


def test_a_stock_plugin_is_not_checked_for_addresses_of_links_above_its_interface(bed: Bed) -> None:
    bed.veth("eth7", "peer7", up=True)
    maker(bed, "other", 'link add "$CNI_IFNAME" type bridge')
    attached(
        bed,
        step("low", "macvlan", "net1", {"master": "eth7", **static("10.3.0.5/24")}),
        step("top", "other", "br0", after=["low"]),
    )
    assert [each.drift for each in looked(bed)] == [(), ()]


def test_an_ipam_plugin_without_check_makes_no_drift_of_a_built_in_step(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    leases = recorder(bed, "leases")
    leases.prints("ADD", {"ips": [{"address": "10.1.0.5/24"}]})
    leases.fails("CHECK", code=999, message="CNI CHECK method is not implemented")
    attached(bed, step("nic", "host-device", "net1", {"ipam": {"type": "leases"}}, device=device("eth7")))
    assert looked(bed)[0].drift == ()


# As ovs-cni: all other interfaces of prevResult are the host's veth, and routes are in the main table.
OVS_CHECK = """
others=$(grep -o '"prevResult":.*' "$call/stdin" | grep -o '"name":"[^"]*"' | cut -d'"' -f4 | grep -vx "$CNI_IFNAME")
for name in $others; do
  ip -d link show "$name" | grep -qw veth || { echo '{"code": 7, "msg": "'"$name"' is no veth of the host"}'; exit 1; }
done
for dst in $(grep -o '"prevResult":.*' "$call/stdin" | grep -o '"dst":"[^"]*"' | cut -d'"' -f4); do
  [ -n "$(ip -n POD route show "$dst")" ] || { echo '{"code": 7, "msg": "no route to '"$dst"'"}'; exit 1; }
done
""".replace("POD", POD)
OVS_ADD = """
ip link add far0 type veth peer name "$CNI_IFNAME" netns POD && ip link set far0 up &&
ip -n POD link set "$CNI_IFNAME" up && ip -n POD addr add 10.1.0.5/24 dev "$CNI_IFNAME" &&
ip -n POD route add 10.9.0.0/16 via 10.1.0.1 || exit 1
echo '{"interfaces": [{"name": "far0"}, {"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}],
 "ips": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1", "interface": 1}],
 "routes": [{"dst": "10.9.0.0/16", "gw": "10.1.0.1"}]}'
""".replace("POD", POD)
CHAINED: dict[str, dict[str, Any]] = {
    "bandwidth": {
        "ingressRate": 10_000_000,
        "ingressBurst": 1_000_000,
        "egressRate": 10_000_000,
        "egressBurst": 1_000_000,
    },
    "sbr": {},
}


@pytest.mark.parametrize("kind", CHAINED)
def test_a_chained_step_does_not_cause_drift_of_an_open_vswitch_port(bed: Bed, kind: str) -> None:
    ovs = recorder(bed, "ovs")
    for verb, script in (("ADD", OVS_ADD), ("DEL", "ip link del far0"), ("CHECK", OVS_CHECK)):
        ovs.does(verb, script)
    attached(bed, step("port", "ovs", "net1"), step("more", kind, "net1", CHAINED[kind], after=["port"]))
    assert [each.drift for each in looked(bed)] == [(), ()]
    assert len(ovs.calls("CHECK")) == 1
    bed.run("ip", "link", "del", "far0")
    assert looked(bed)[0].drift


@pytest.mark.parametrize("binary", [False, True], ids=["built in", "tuning"])
def test_an_mtu_set_by_a_later_step_is_not_drift_of_the_earlier_step(bed: Bed, binary: bool) -> None:
    # As `vlan`, which compares the interface with the MTU of its own config.
    data = maker(bed, "vlan", 'link add "$CNI_IFNAME" mtu 1450 up type bridge')
    wanted = """$(sed 's/"prevResult".*//' "$call/stdin" | grep -o '"mtu":[0-9]*' | cut -d: -f2)"""
    refuse = """{ echo '{"code": 7, "msg": "not the MTU"}'; exit 1; }"""
    data.does("CHECK", f'ip -n {POD} link show "$CNI_IFNAME" | grep -q "mtu {wanted} " || {refuse}')
    bed.veth("eth7", "peer7", up=True)
    config = {"master": "eth7", "vlanId": 7, "mtu": 1450, **static("10.1.0.5/24")}
    tuned = {"mtu": 1300, "sysctl": {"net.core.somaxconn": "400"}}
    report = attach(
        (
            plan(
                step("data", "vlan", "net1", config, binary=True),
                step("first", "tuning", "net1", tuned, after=["data"], binary=True),
                step("last", "tuning", "net1", {"mtu": 1400}, after=["first"], binary=binary),
            ),
        ),
        bed.container,
        bed.pod.path,
        bed.settings,
    )
    assert [each.result.interfaces[0].mtu for each in report.steps][1:] == [1300, 1400]
    assert [each.drift for each in looked(bed)] == [()] * 3
    bed.run("ip", "link", "set", "net1", "mtu", "1350", inside=True)
    assert [bool(each.drift) for each in looked(bed)] == [True] * 3


def test_a_route_moved_to_another_table_is_not_drift_of_the_step_that_added_it(bed: Bed) -> None:
    bed.veth("eth7", "peer7", up=True)
    routed = {"addresses": ["10.1.0.5/24"], "routes": [{"destination": "10.9.0.0/16", "gateway": "10.1.0.1"}]}
    attached(
        bed,
        step("nic", "host-device", "net1", static("10.1.0.6/24"), device=device("eth7")),
        step("tune", "tuning", "net1", routed, after=["nic"]),
        step("apart", "sbr", "net1", after=["tune"]),
    )
    assert bed.ip("route", "show", "10.9.0.0/16", inside=True) == []
    assert [each.drift for each in looked(bed)] == [()] * 3
