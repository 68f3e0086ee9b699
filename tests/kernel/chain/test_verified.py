"""A plugin's report is compared with the kernel (D55), and so are the links that it takes or leaves besides."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.chain.detach import detach
from netdra.chain.report import AttachError, FailedAttachReport
from netdra.model.plan import Plan
from testbed import build
from testbed.recorder import Recorder
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step

POD = '"$(basename "$CNI_NETNS")"'
MAC = "02:00:00:00:00:11"
MAKE = (
    f'ip link add "$CNI_IFNAME" netns {POD} address {MAC} mtu 1450 type veth peer name far0 || exit 1; '
    f'ip -n {POD} addr add 10.1.0.5/24 dev "$CNI_IFNAME"; ip -n {POD} addr add 2001:db8::5/64 dev "$CNI_IFNAME"; '
    f'ip -n {POD} link set "$CNI_IFNAME" up'
)
UNMAKE = f'ip -n {POD} link del "$CNI_IFNAME" 2>/dev/null; true'


def interface(**fields: Any) -> dict[str, Any]:
    return {"name": "net1", "sandbox": "POD", **fields}


def result(*ips: Any, **fields: Any) -> dict[str, Any]:
    return {"interfaces": [interface(**fields)], "ips": list(ips)}


def reports(plugin: Recorder, work: str, answer: dict[str, Any]) -> None:
    """ADD does that work, and prints that result with the pod's namespace for `POD`."""
    plugin.prints("ADD", answer)
    plugin.does("ADD", f'{work}; sed "s#POD#$CNI_NETNS#g" "$state/ADD.json"')


@pytest.fixture
def maker(bed: Bed) -> Recorder:
    plugin = recorder(bed, "maker")
    plugin.does("DEL", UNMAKE)
    return plugin


def made(**config: Any) -> tuple[Plan, ...]:
    return (plan(step("a", "maker", "net1", config)),)


def failed(bed: Bed, plans: tuple[Plan, ...]) -> FailedAttachReport:
    with pytest.raises(AttachError) as caught:
        attach(plans, bed.container, bed.pod.path, bed.settings)
    return caught.value.report


def address(text: str, interface: int | None = 0) -> dict[str, Any]:
    return {"address": text} if interface is None else {"address": text, "interface": interface}


TRUE = [
    result(),
    result(mac=MAC),
    result(mac=MAC.upper(), mtu=1450),
    result(address("10.1.0.5/24"), address("2001:DB8:0::5/64")),
    result(address("10.1.0.5/24", None)),
    {},
    {"ips": [address("10.1.0.5/24", None)]},
    {"interfaces": [{"name": "far0"}, interface(mac=MAC)], "ips": [address("10.1.0.5/24", 1)]},
    {"interfaces": [{"name": "gone0", "mac": "02:00:00:00:00:99", "mtu": 9}], "ips": [address("10.9.9.9/24", 0)]},
    result(socketPath="/run/far.sock") | {"interfaces": [interface(name="user0", socketPath="/run/u"), interface()]},
]
FALSE: list[tuple[dict[str, Any], str]] = [
    (result(mac="02:00:00:00:00:99"), f'MAC 02:00:00:00:00:99 for interface "net1", but it has {MAC}'),
    (result(mtu=1400), 'MTU 1400 for interface "net1", but it has 1450'),
    (result(address("10.1.0.6/24")), 'address 10.1.0.6/24 for interface "net1", but it has '),
    (result(address("10.1.0.5/16")), 'address 10.1.0.5/16 for interface "net1", but it has '),
    (result(address("2001:db8::6/64")), "address 2001:db8::6/64"),
    (result(address("10.1.0.6/24", None)), "address 10.1.0.6/24, but no interface of the pod has it"),
    (result(name="net9"), 'interface "net9" in the pod, but it does not exist there'),
    (result(name="a-name-that-no-interface-can-have"), "does not exist there"),
    ({"interfaces": [interface(), interface(name="net2", mac=MAC)]}, 'interface "net2" in the pod'),
    (result(sandbox="/run/netns/elsewhere", mac="02:00:00:00:00:99"), "MAC 02:00:00:00:00:99"),
]


@pytest.mark.parametrize("answer", TRUE)
def test_a_true_or_partial_result_is_accepted(bed: Bed, maker: Recorder, answer: dict[str, Any]) -> None:
    before = bed.state()
    reports(maker, MAKE, answer)
    attach(made(), bed.container, bed.pod.path, bed.settings)
    report = detach(bed.container.sandbox, bed.settings)
    assert (report.is_clean, report.notes, report.restored) == (True, (), ())
    assert differences(before, bed.state()) == []


@pytest.mark.parametrize(("answer", "text"), FALSE)
def test_a_false_result_fails_the_pod_and_names_plugin_field_and_values(
    bed: Bed, maker: Recorder, answer: dict[str, Any], text: str
) -> None:
    before = bed.state()
    reports(maker, MAKE, answer)
    report = failed(bed, made())
    (failure,) = report.failures
    assert failure.message.startswith('plugin "maker" reported ')
    assert text in failure.message
    assert not failure.temporary
    assert report.is_clean
    assert len(maker.calls("DEL")) == 1
    assert differences(before, bed.state()) == []


def test_a_plugin_that_reports_an_interface_and_does_nothing_fails_the_pod(bed: Bed, maker: Recorder) -> None:
    reports(maker, "true", result(address("10.1.0.5/24"), mac=MAC))
    (failure,) = failed(bed, made()).failures
    assert failure.message == 'plugin "maker" reported interface "net1" in the pod, but it does not exist there'


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        ('link set "$CNI_IFNAME" mtu 1300', 'MTU 1450 for interface "net1", but it has 1300'),
        ('link set "$CNI_IFNAME" address 02:00:00:00:00:99', f"MAC {MAC} for interface"),
        ('addr del 10.1.0.5/24 dev "$CNI_IFNAME"', "address 10.1.0.5/24 for interface"),
        ('link del "$CNI_IFNAME"', 'interface "net1" in the pod, but'),
    ],
)
def test_a_later_step_fails_when_it_changes_an_interface_it_reports_as_unchanged(
    bed: Bed, maker: Recorder, spoil: str, text: str
) -> None:
    reports(maker, MAKE, result(address("10.1.0.5/24"), mac=MAC, mtu=1450))
    later = recorder(bed, "later")
    reports(later, f"ip -n {POD} {spoil}", result(address("10.1.0.5/24"), mac=MAC, mtu=1450))
    report = failed(bed, (plan(step("a", "maker", "net1"), step("b", "later", "net1", after=["a"])),))
    assert report.failures[0].message.startswith('plugin "later" reported ')
    assert text in report.failures[0].message
    assert report.is_clean


def test_a_change_by_a_parallel_step_is_not_attributed_to_the_plugin(bed: Bed, maker: Recorder) -> None:
    """A step gets the results of its dependencies; a step beside it has changed the interface's MTU."""
    reports(maker, MAKE, result(mac=MAC, mtu=1450))
    reports(recorder(bed, "later"), "true", result(mac=MAC, mtu=1450))
    steps = (
        step("a", "maker", "net1"),
        step("b", "tuning", "net1", {"mtu": 1300, "mac": "02:00:00:00:00:22"}, after=["a"]),
        step("c", "later", "net1", after=["a"]),
    )
    attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)
    assert detach(bed.container.sandbox, bed.settings).is_clean


def test_an_exclusive_device_that_a_plugin_of_a_moving_type_leaves_on_the_host_fails_the_pod(bed: Bed) -> None:
    bed.veth("eth7", "peer7", up=True)
    before = bed.state()
    recorder(bed, "sriov").succeeds("DEL")
    report = failed(bed, (plan(step("vf", "sriov", "net1", device=device("eth7"), binary=True)),))
    assert report.failures[0].message == 'plugin "sriov" did not move device "eth7" into the pod'
    assert report.is_clean
    assert differences(before, bed.state()) == []


def test_a_device_of_a_userspace_driver_needs_no_interface(bed: Bed) -> None:
    """As sriov-cni reports it for vfio-pci: the machine has no such function here, so its driver cannot be asked."""
    plugin = recorder(bed, "userspace")
    plugin.succeeds("DEL")
    reports(plugin, "true", result(address("10.1.0.9/24", None), mac=MAC))
    attach((plan(step("a", "userspace", "net1")),), bed.container, bed.pod.path, bed.settings)
    assert detach(bed.container.sandbox, bed.settings).is_clean


# The real plugins, with every field that they report in each version of the protocol.
_ADDRESSES = [{"address": "10.5.0.7/24", "gateway": "10.5.0.1"}, {"address": "2001:db8:5::7/64"}]
_RANGES = [[{"subnet": "10.6.0.0/24"}], [{"subnet": "2001:db8:6::/64"}]]
ROOTS: dict[str, dict[str, Any]] = {
    "bridge": {"bridge": "br7", "isGateway": True, "mtu": 1400, "ipam": "host-local"},
    "bridge without IPAM": {"bridge": "br7"},
    "macvlan": {"master": "eth7", "mtu": 1400, "ipam": "static"},
    "macvlan passthru": {"master": "eth7", "mode": "passthru", "ipam": "static"},
    "ptp": {"mtu": 1400, "ipam": "host-local"},
    "host-device": {"device": "eth7", "ipam": "static"},
    "tap": {"mtu": 1400, "ipam": "static"},
}
METAS: dict[str, dict[str, Any]] = {
    "tuning": {
        "mtu": 1300,
        "mac": "02:00:00:00:00:AB",
        "promisc": True,
        "sysctl": {"net.ipv6.conf.IFNAME.disable_ipv6": "1"},
    },
    "tuning without IPv6": {"mtu": 1000},
    "bandwidth": {"ingressRate": 10**6, "ingressBurst": 10**5, "egressRate": 10**6, "egressBurst": 10**5},
    "firewall": {},
    "portmap": {"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}},
    "sbr": {},
}
HAS_ADDRESSES = frozenset({"sbr", "firewall", "portmap"})
SINCE = {"firewall": "0.4.0"}
HAS_A_HOST_END = frozenset({"bandwidth"})


def real(bed: Bed, name: str, config: dict[str, Any], version: str) -> dict[str, Any]:
    ipam: dict[str, Any] = {
        "static": {"type": "static", "addresses": _ADDRESSES},
        "host-local": {"type": "host-local", "dataDir": str(bed.settings.state.parent / "ipam"), "ranges": _RANGES},
    }
    return {**config, "cniVersion": version} | ({"ipam": ipam[config["ipam"]]} if "ipam" in config else {})


def fits(root: str, meta: str) -> bool:
    if meta in HAS_A_HOST_END:
        return root.startswith(("bridge", "ptp"))
    return meta not in HAS_ADDRESSES or "ipam" in ROOTS[root]


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0", "1.1.0"])
@pytest.mark.parametrize("root", ROOTS)
def test_the_results_of_the_stock_plugins_are_accepted(bed: Bed, root: str, version: str) -> None:
    (bed.plugins / "tap").symlink_to(build.program("tap"))
    bed.veth("eth7", "peer7", up=True)
    metas = [meta for meta in METAS if fits(root, meta) and version in ("0.3.1", "1.1.0")]
    for meta in metas or [""]:
        before = bed.state()
        kind = root.split()[0]
        steps = [step("a", kind, "net1", real(bed, root, ROOTS[root], version), binary=True)]
        if meta:
            config = real(bed, meta, METAS[meta], max(version, SINCE.get(meta, version)))
            steps.append(step("b", meta.split()[0], "net1", config, after=["a"], binary=True))
        attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)
        report = detach(bed.container.sandbox, bed.settings)
        assert (report.is_clean, report.restored) == (True, ()), str(report)
        assert not any("left" in note for note in report.notes), report.notes
        bed.run("sh", "-c", "ip link del br7 2>/dev/null; true")
        assert differences(before["host"]["links"].keys(), bed.state()["host"]["links"].keys()) == []
        assert differences(before["pod"]["links"], bed.state()["pod"]["links"]) == []


def test_loopback_is_accepted(bed: Bed) -> None:
    (bed.plugins / "loopback").symlink_to(build.program("loopback"))
    attach((plan(step("a", "loopback", "lo")),), bed.container, bed.pod.path, bed.settings)
    assert detach(bed.container.sandbox, bed.settings).is_clean
