"""The tuning step: what it changes, what it refuses, and that all of it is returned."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.chain.report import AttachError, AttachReport
from netdra.chain.site import open_pod
from netdra.kernel.errors import KernelError
from netdra.kernel.route import Route
from netdra.model.errors import NetdraError
from netdra.model.result import CNIAddress, CNIRoute
from netdra.steps import addressing
from netdra.steps.addressing import AddedAddressing
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step

_LIKE = ((0, 1400), (1024, 1500))
"""Two metrics and MTUs of IPv6 routes: no metric is 1024, and the MTU does not count."""


def tuned(bed: Bed, config: dict[str, Any]) -> AttachReport:
    """Tune an interface that is in the pod already."""
    return attach((plan(step("tune", "tuning", "eth0", config)),), bed.container, bed.pod.path, bed.settings)


@pytest.fixture
def pod(bed: Bed) -> Bed:
    """A pod with an interface, as its first network gives it one."""
    bed.veth("host0", "temporary", up=True)
    name = bed.pod.path.rsplit("/", 1)[1]
    bed.run("ip", "link", "set", "temporary", "netns", name, "name", "eth0")
    bed.run("ip", "link", "set", "eth0", "up", inside=True)
    bed.run("ip", "addr", "add", "10.0.0.2/24", "dev", "eth0", inside=True)
    bed.run("ip", "route", "add", "default", "via", "10.0.0.1", inside=True)
    return bed


def test_everything_at_once_and_back(pod: Bed) -> None:
    config = {
        "dev": "eth0",
        "mtu": 1400,
        "mac": "02:00:00:00:00:77",
        "promisc": True,
        "allmulti": True,
        "txqlen": 77,
        "sysctl": {"net.core.somaxconn": 512, "net/ipv4/conf/IFNAME/arp_filter": True},
        "addresses": ["10.1.0.5/24", "2001:db8::5/64"],
        "routes": [{"destination": "10.9.0.0/16", "gateway": "10.1.0.1", "metric": 50}],
        "ethtool": {"features": {"tx-checksum-ip-generic": False, "tx-tcp-segmentation": False}},
    }
    before = pod.state()
    offloads = pod.run("ethtool", "-k", "eth0", inside=True)
    report = tuned(pod, config)
    inside = pod.link("eth0", inside=True)
    assert (inside["mtu"], inside["address"], inside["txqlen"]) == (1400, "02:00:00:00:00:77", 77)
    assert (inside["promiscuity"], inside["allmulti"]) == (1, 1)
    assert pod.run("sysctl", "-n", "net.ipv4.conf.eth0.arp_filter", inside=True).strip() == "1"
    assert "tx-checksum-ip-generic: off" in pod.run("ethtool", "-k", "eth0", inside=True)
    assert pod.ip("route", "show", "10.9.0.0/16", inside=True)[0]["metric"] == 50
    result = report.steps[0].result
    assert result.ips == (
        CNIAddress(address="10.1.0.5/24", gateway="10.1.0.1", interface=0),
        CNIAddress(address="2001:db8::5/64", interface=0),
    )
    assert result.routes == (CNIRoute(dst="10.9.0.0/16", gw="10.1.0.1", priority=50),)
    assert check(pod.container.sandbox, pod.settings).is_clean
    assert detach(pod.container.sandbox, pod.settings).is_clean
    assert differences(before, pod.state()) == []
    assert pod.run("ethtool", "-k", "eth0", inside=True) == offloads
    assert pod.run("sysctl", "-n", "net.ipv4.conf.eth0.arp_filter", inside=True).strip() == "0"


def test_the_words_of_the_plugin_of_that_name_are_understood(pod: Bed) -> None:
    config = {"txQLen": 55, "runtimeConfig": {"mac": "02:00:00:00:00:55"}, "args": {"cni": {"mtu": 1300}}}
    tuned(pod, {**config, "mac": "02:00:00:00:00:11", "mtu": 1200, "dataDir": "/run/cni/tuning"})
    inside = pod.link("eth0", inside=True)
    assert (inside["txqlen"], inside["address"], inside["mtu"]) == (55, "02:00:00:00:00:55", 1300)


def test_an_added_default_route_precedes_the_first_networks_and_is_removed_on_detach(pod: Bed) -> None:
    before = pod.state()
    tuned(pod, {"addresses": ["10.1.0.5/24"], "routes": [{"destination": "0.0.0.0/0", "gateway": "10.1.0.1"}]})
    assert [each["gateway"] for each in pod.ip("route", "show", "default", inside=True)] == ["10.1.0.1", "10.0.0.1"]
    assert check(pod.container.sandbox, pod.settings).is_clean
    detach(pod.container.sandbox, pod.settings)
    assert differences(before, pod.state()) == []


@pytest.mark.parametrize(
    ("route", "shown"),
    [
        ({"dst": "10.9.0.0/16", "gw": "10.0.0.9", "priority": 7}, {"gateway": "10.0.0.9", "metric": 7}),
        ({"destination": "10.9.0.0/16", "scope": "link"}, {"scope": "link", "dev": "eth0"}),
        ({"destination": "10.9.0.0/16", "scope": 253}, {"scope": "link"}),
        ({"destination": "10.9.0.0/16", "gateway": "10.99.0.1", "onlink": True}, {"flags": ["onlink"]}),
        ({"destination": "10.9.0.0/16", "gateway": "10.0.0.9", "mtu": 1280}, {"metrics": [{"mtu": 1280}]}),
        ({"destination": "10.9.0.0/16", "gateway": "10.0.0.9", "source": "10.0.0.2"}, {"prefsrc": "10.0.0.2"}),
    ],
)
def test_routes_of_every_form(pod: Bed, route: dict[str, Any], shown: dict[str, Any]) -> None:
    before = pod.state()
    tuned(pod, {"routes": [route]})
    (found,) = pod.ip("route", "show", "10.9.0.0/16", inside=True)
    assert {key: found.get(key) for key in shown} == shown
    assert check(pod.container.sandbox, pod.settings).is_clean
    detach(pod.container.sandbox, pod.settings)
    assert differences(before, pod.state()) == []


def test_a_route_in_a_table_of_its_own(pod: Bed) -> None:
    tuned(pod, {"routes": [{"destination": "default", "gateway": "10.0.0.9", "table": 1000}]})
    assert pod.ip("route", "show", "table", "1000", inside=True)[0]["gateway"] == "10.0.0.9"
    detach(pod.container.sandbox, pod.settings)
    tables = [each.get("table", "main") for each in pod.ip("route", "show", "table", "all", "default", inside=True)]
    assert "1000" not in tables


def test_ipv6_addresses_are_usable_at_once_also_where_ipv6_was_off(pod: Bed) -> None:
    pod.run("sysctl", "-q", "-w", "net.ipv6.conf.eth0.disable_ipv6=1", inside=True)
    routes = [{"destination": "::/0", "gateway": "2001:db8::1", "metric": 5}]
    tuned(pod, {"addresses": ["2001:db8::5/64"], "routes": routes})
    (found,) = pod.ip("addr", "show", "dev", "eth0", "to", "2001:db8::/64", inside=True)
    (address,) = [each for each in found["addr_info"] if each]
    assert address["nodad"] is True
    assert "tentative" not in address
    assert check(pod.container.sandbox, pod.settings).is_clean


@pytest.mark.parametrize(
    "config",
    [
        {"addresses": ["::ffff:10.0.0.1/96", "::ffff:224.0.0.1/96", "2001:DB8:0::7/64"]},
        {"addresses": ["127.0.0.5/8", "240.0.0.1/24", "10.7.0.0/24", "10.8.0.255/24", "0.0.0.5/24", "10.9.9.9/0"]},
        {"addresses": ["169.254.1.1/16", "169.254.1.1/24", "fe80::7/64"]},
        {"addresses": ["::1/128"], "dev": "lo"},
        {"addresses": ["fd00::5/64"], "routes": [{"dst": "::ffff:0:0/100", "gw": "FD00:0::9"}]},
        {"addresses": ["fd00::5/64"], "routes": [{"dst": "fd01::/64", "gw": "fd00::9", "scope": "host"}]},
        {"routes": [{"dst": "10.9.0.0/16", "gw": "10.0.0.9", "mtu": mtu} for mtu in (1280, 1400)]},
        {"routes": [{"dst": "10.9.0.0/16", "scope": scope} for scope in ("link", "host")]},
    ],
    ids=str,
)
def test_unusual_addresses_and_routes_that_the_kernel_takes_are_there_without_drift(
    pod: Bed, config: dict[str, Any]
) -> None:
    before = pod.state()
    plans = (plan(step("tune", "tuning", config.get("dev", "eth0"), config)),)
    attach(plans, pod.container, pod.pod.path, pod.settings)
    assert check(pod.container.sandbox, pod.settings).is_clean
    assert detach(pod.container.sandbox, pod.settings).is_clean
    assert differences(before, pod.state()) == []


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"addresses": ["::1/128"]}, "EADDRNOTAVAIL"),
        ({"addresses": ["ff02::1/64"]}, "Cannot assign multicast"),
        ({"addresses": ["::/64"]}, "EADDRNOTAVAIL"),
        ({"addresses": ["0.0.0.0/0"]}, ""),
        ({"addresses": ["224.0.0.1/24"]}, ""),
        ({"addresses": ["255.255.255.255/32"]}, ""),
        ({"routes": [Route(destination="10.9.0.0/16", gateway="0.0.0.0")]}, ""),
        ({"routes": [Route(destination="fd01::/64", gateway="::")]}, "EINVAL"),
        ({"routes": [Route(destination="10.9.0.0/16", gateway="224.0.0.1")]}, "Nexthop has invalid gateway"),
        ({"routes": [Route(destination="10.9.0.0/16", gateway="255.255.255.255")]}, "Nexthop has invalid gateway"),
        ({"routes": [Route(destination="10.9.0.0/16", gateway="10.0.0.9", scope=254)]}, "EINVAL"),
        ({"routes": [Route(destination="10.9.0.0/16", gateway="10.0.0.9", source="fd00::1")]}, "EINVAL"),
        ({"routes": [Route(destination="10.9.0.0/16", gateway="10.0.0.9")] * 2}, "EEXIST"),
        ({"routes": [Route(destination="fe80:1::/64", metric=metric, mtu=mtu) for metric, mtu in _LIKE]}, "EEXIST"),
    ],
    ids=str,
)
def test_addresses_and_routes_rejected_by_validate_are_rejected_by_the_kernel_or_useless(
    pod: Bed, config: dict[str, Any], said: str
) -> None:
    index = pod.link("eth0", inside=True)["ifindex"]
    with open_pod(pod.pod.path) as space:
        wanted = AddedAddressing(if_name="eth0", addresses=config.get("addresses", ()), routes=config.get("routes", ()))
        with pytest.raises(KernelError, match=said) if said else nullcontext():
            addressing.add(wanted, index, space)


def test_an_interface_without_ipv6_because_of_its_mtu_is_reported_with_that_cause(pod: Bed) -> None:
    pod.run("ip", "link", "set", "eth0", "mtu", "1279", inside=True)
    before = pod.state()
    with pytest.raises(AttachError, match="has MTU 1279 and can have no IPv6 address") as caught:
        tuned(pod, {"addresses": ["fd00::5/64"]})
    assert "raise its MTU to 1280" in str(caught.value)
    assert differences(before, pod.state()) == []


@pytest.mark.parametrize("after", [(), ("first",)], ids=["beside it", "after it"])
def test_drift_is_reported_only_for_the_last_step_that_changed_the_setting(pod: Bed, after: tuple[str, ...]) -> None:
    def config(number: int, *, on: bool) -> dict[str, Any]:
        return {
            "dev": "eth0",
            "mtu": 1300 + number,
            "mac": f"02:00:00:00:00:{number:02}",
            "promisc": on,
            "allmulti": on,
            "txqlen": number,
            "sysctl": {"net.core.somaxconn": number},
            "ethtool": {"features": {"tx-checksum-ip-generic": on}},
        }

    first = step("first", "tuning", "eth0", config(71, on=False))
    second = step("second", "tuning", "eth0", config(72, on=True), after=after)
    before = pod.state()
    attach((plan(first, second),), pod.container, pod.pod.path, pod.settings)
    assert check(pod.container.sandbox, pod.settings).is_clean
    for words in (("mtu", "1400"), ("promisc", "off"), ("txqlen", "9")):
        pod.run("ip", "link", "set", "eth0", *words, inside=True)
    pod.run("sysctl", "-w", "net.core.somaxconn=9", inside=True)
    pod.run("ethtool", "-K", "eth0", "tx-checksum-ip-generic", "off", inside=True)
    of_first, of_second = check(pod.container.sandbox, pod.settings).steps
    assert of_first.drift == ()
    assert len(of_second.drift) == 5
    detach(pod.container.sandbox, pod.settings)
    assert differences(before, pod.state()) == []


def test_undoing_a_step_keeps_addresses_and_routes_that_existed_before(pod: Bed) -> None:
    before = pod.state()
    route = {"destination": "0.0.0.0/0", "gateway": "10.0.0.1"}
    tuned(pod, {"addresses": ["10.0.0.2/24", "10.1.0.5/24"], "routes": [route]})
    detach(pod.container.sandbox, pod.settings)
    assert differences(before, pod.state()) == []


def test_an_interface_that_was_down_is_brought_up_for_addresses_and_down_again(pod: Bed) -> None:
    pod.run("ip", "link", "set", "eth0", "down", inside=True)
    before = pod.state()
    tuned(pod, {"addresses": ["10.1.0.5/24"], "routes": [{"destination": "10.9.0.0/16", "gateway": "10.1.0.1"}]})
    assert "UP" in pod.link("eth0", inside=True)["flags"]
    detach(pod.container.sandbox, pod.settings)
    assert differences(before, pod.state()) == []


def test_a_step_without_dev_changes_the_interface_that_it_was_planned_for(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    steps = (
        step("dev", "host-device", "net1", device=device("eth7")),
        step("tune", "tuning", "net1", {"mtu": 1300}, after=["dev"]),
    )
    attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)
    assert bed.link("net1", inside=True)["mtu"] == 1300


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"sysctl": {"kernel.hostname": "x"}}, "cannot be set for a pod"),
        ({"sysctl": {"net.core": "x"}}, "cannot be set for a pod"),
        ({"sysctl": {"net/../kernel/hostname": "x"}}, "cannot be set for a pod"),
        ({"sysctl": {"net.ipv4.../../kernel/hostname": "x"}}, "cannot be set for a pod"),
        ({"sysctl": {"net.core.netdev_max_backlog": "1"}}, "is not one of this network namespace"),
        ({"sysctl": {"net.core.no_such_thing": "1"}}, "is not one of this network namespace"),
        ({"sysctl": {"net.core.somaxconn": "many"}}, "Invalid argument"),
        ({"mac": "01:00:5e:00:00:01"}, "not one of a single interface"),
        ({"mac": "00:00:00:00:00:00"}, "not one of a single interface"),
        ({"mac": "02:00"}, "mac"),
        ({"mtu": 67}, "mtu"),
        ({"mtu": 65536}, "mtu"),
        ({"mtu": True}, "mtu"),
        ({"addresses": ["10.0.0.5"]}, "not an address with a prefix length"),
        ({"addresses": ["10.0.0.5/33"]}, "not an address with a prefix length"),
        ({"addresses": ["fe80::1%eth0/64"]}, "not an address with a prefix length"),
        ({"addresses": ["224.0.0.1/24"]}, "multicast and cannot be assigned to an interface"),
        ({"addresses": ["fe80::1/64", "fe80:0::1/64"]}, "already assigned to .* by the same step"),
        ({"addresses": ["fd00::5/64"], "mtu": 68}, "cannot be combined with mtu 68"),
        ({"routes": [{"destination": "10.9.0.0/16", "gateway": "0.0.0.0"}]}, 'gateway "0.0.0.0" is unspecified'),
        (
            {"routes": [{"destination": "10.9.0.0/16", "gw": "10.0.0.1", "gateway": "10.0.0.9"}]},
            "two names of the same field",
        ),
        ({"routes": [{"destination": "nowhere"}]}, "route to .* is not valid"),
        ({"routes": [{"destination": "2001:db8::/64", "gateway": "10.0.0.1"}]}, "route to .* is not valid"),
        ({"routes": [{"destination": "10.0.0.0/8", "via": "10.0.0.1"}]}, "via"),
        ({"routes": [{"destination": "10.9.0.0/16", "gateway": "10.200.0.1"}]}, "Network is unreachable"),
        ({"ethtool": {"features": {"warp-drive": True}}}, 'feature "warp-drive" not found'),
        ({"ethtool": {"features": {"tso": "on"}}}, "features"),
        ({"ethtool": {"rings": {"rx": 64}}}, "rings"),
        ({"ethtool": {"channels": {"combined": 2}}}, "channels"),
        ({"ethtool": {"coalesce": {"rx-usecs": 5}}}, "coalesce"),
        ({"ethtool": {"coalesce": {"rx_usecs": 5}}}, "coalesce"),
        ({"ethtool": {"speed": {}}}, "speed"),
        ({"unheard-of": 1}, "unheard-of"),
        ({"dev": "eth404"}, "eth404"),
        ({"ipam": {"subnet": "10.0.0.0/24"}}, "ipam names no plugin"),
    ],
)
def test_an_impossible_tuning_config_is_rejected_and_changes_nothing(
    pod: Bed, config: dict[str, Any], complaint: str
) -> None:
    before = pod.state()
    if_name = config.get("dev", "eth0")
    full = {"promisc": True, **config}
    with pytest.raises(NetdraError, match=complaint):
        attach((plan(step("tune", "tuning", if_name, full)),), pod.container, pod.pod.path, pod.settings)
    assert differences(before, pod.state()) == []


def test_channels_of_a_device_that_has_them(pod: Bed) -> None:
    """A veth has as many queues as processors, and uses the configured number."""
    before = pod.run("ethtool", "-l", "eth0", inside=True)
    tuned(pod, {"ethtool": {"channels": {"rx": 1, "tx": 1}}})
    assert pod.run("ethtool", "-l", "eth0", inside=True) != before or "RX:\t\t1" in before
    assert check(pod.container.sandbox, pod.settings).is_clean
    detach(pod.container.sandbox, pod.settings)
    assert pod.run("ethtool", "-l", "eth0", inside=True) == before


def test_features_by_the_names_that_ethtool_sums_them_up_under(pod: Bed) -> None:
    before = pod.run("ethtool", "-k", "eth0", inside=True)
    report = tuned(pod, {"ethtool": {"features": {"tcp-segmentation-offload": False, "tx": False, "gro": True}}})
    shown = pod.run("ethtool", "-k", "eth0", inside=True)
    for line in ("tcp-segmentation-offload: off", "tx-checksumming: off", "generic-receive-offload: on"):
        assert line in shown
    assert report.steps[0].notes == ()
    assert check(pod.container.sandbox, pod.settings).is_clean
    detach(pod.container.sandbox, pod.settings)
    assert pod.run("ethtool", "-k", "eth0", inside=True) == before


def test_an_unsupported_ethtool_feature_is_noted_and_does_not_fail_the_step(pod: Bed) -> None:
    config = {"ethtool": {"features": {"rx-vlan-filter": True, "lro": True, "rx-lro": False}}}
    report = tuned(pod, config)
    assert report.steps[0].notes == (
        'device "eth0" cannot have feature rx-vlan-filter on',
        'device "eth0" cannot have feature lro on',
    )
    assert check(pod.container.sandbox, pod.settings).is_clean
    again = tuned(pod, config)
    assert again.repeated
    assert again.steps[0].notes == report.steps[0].notes


def test_ipam_gives_addresses_and_routes_and_takes_them_back(pod: Bed) -> None:
    folder = pod.settings.state.parent / "ipam"
    ipam = {
        "type": "host-local",
        "dataDir": str(folder),
        "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "2001:db8::/64"}]],
        "routes": [{"dst": "10.9.0.0/16"}, {"dst": "2001:db8:9::/48"}],
    }
    before = pod.state()
    report = tuned(pod, {"ipam": ipam, "dns": {"nameservers": ["10.1.0.1"]}})
    assert pod.addresses("eth0", inside=True) == {"10.0.0.2/24", "10.1.0.2/24", "2001:db8::2/64"}
    assert pod.ip("route", "show", "10.9.0.0/16", inside=True)[0]["gateway"] == "10.1.0.1"
    assert pod.ip("-6", "route", "show", "2001:db8:9::/48", inside=True)[0]["gateway"] == "2001:db8::1"
    result = report.steps[0].result
    assert [(each.address, each.gateway, each.interface) for each in result.ips] == [
        ("10.1.0.2/24", "10.1.0.1", 0),
        ("2001:db8::2/64", "2001:db8::1", 0),
    ]
    assert result.dns is not None
    assert result.dns.nameservers == ("10.1.0.1",)
    assert (folder / "t-tune" / "10.1.0.2").exists()
    assert check(pod.container.sandbox, pod.settings).is_clean
    for lease in ("10.1.0.2", "2001:db8::2"):
        (folder / "t-tune" / lease).unlink()
    assert "host-local" in str(check(pod.container.sandbox, pod.settings).steps[0].drift)
    assert detach(pod.container.sandbox, pod.settings).is_clean
    assert differences(before, pod.state()) == []


def test_an_ipam_plugin_is_given_the_whole_configuration_and_the_result_so_far(pod: Bed) -> None:
    fake = recorder(pod, "pool")
    fake.prints("ADD", {"ips": [{"address": "10.1.0.9/24"}]})
    tuned(pod, {"mtu": 1400, "ipam": {"type": "pool", "range": "a"}})
    detach(pod.container.sandbox, pod.settings)
    add, delete = fake.calls("ADD", "DEL")
    assert (add.config["type"], add.config["name"], add.config["mtu"]) == ("tuning", "t-tune", 1400)
    assert add.config["ipam"] == {"type": "pool", "range": "a"}
    assert add.config["prevResult"]["interfaces"][0]["mtu"] == 1400
    assert (add.environment["CNI_IFNAME"], add.environment["CNI_NETNS"]) == ("eth0", pod.pod.path)
    assert delete.config["ipam"] == {"type": "pool", "range": "a"}


@pytest.mark.parametrize("answer", [{}, {"ips": []}, {"ips": [{"address": "10.0.0.2/24"}]}])
def test_an_ipam_plugin_that_returns_no_address_or_an_address_in_use_fails_the_step(
    pod: Bed, answer: dict[str, Any]
) -> None:
    fake = recorder(pod, "pool")
    fake.prints("ADD", answer)
    before = pod.state()
    with pytest.raises(AttachError) as caught:
        tuned(pod, {"mtu": 1400, "ipam": {"type": "pool"}})
    assert caught.value.report.is_clean
    assert len(fake.calls("DEL")) == 1
    after = pod.state()
    assert differences(before["pod"]["links"]["eth0"]["mtu"], after["pod"]["links"]["eth0"]["mtu"]) == []


def test_sysctls_of_which_one_limits_the_other_are_given_back_in_the_opposite_order(pod: Bed) -> None:
    names = ("net.ipv4.ipfrag_low_thresh", "net.ipv4.ipfrag_high_thresh")
    before = [pod.run("sysctl", "-n", name, inside=True) for name in names]
    # The low one may not be above the high one, at any time.
    tuned(pod, {"sysctl": {names[0]: "1000", names[1]: "2000"}})
    assert [pod.run("sysctl", "-n", name, inside=True).strip() for name in names] == ["1000", "2000"]
    assert detach(pod.container.sandbox, pod.settings).is_clean
    assert [pod.run("sysctl", "-n", name, inside=True) for name in names] == before


def test_a_list_that_was_empty_is_empty_again(pod: Bed) -> None:
    name = "net.ipv4.ip_local_reserved_ports"
    assert pod.run("sysctl", "-n", name, inside=True).strip() == ""
    tuned(pod, {"sysctl": {name: "8080,9148"}})
    assert pod.run("sysctl", "-n", name, inside=True).strip() == "8080,9148"
    assert detach(pod.container.sandbox, pod.settings).is_clean
    assert pod.run("sysctl", "-n", name, inside=True).strip() == ""


def test_a_sysctl_that_cannot_be_given_back_is_refused_before_anything_is_set(pod: Bed) -> None:
    name = "net.ipv4.tcp_available_congestion_control"
    tuning = {"sysctl": {"net.core.somaxconn": "77", name: "reno"}}
    before = pod.run("sysctl", "-n", "net.core.somaxconn", inside=True)
    with pytest.raises(AttachError, match=f"sysctl {name.replace('.', '/')} could not be restored to"):
        tuned(pod, tuning)
    assert pod.run("sysctl", "-n", "net.core.somaxconn", inside=True) == before
