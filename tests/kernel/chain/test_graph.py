"""The data flow in the graph: references, merged results, order, and steps that run at the same time."""

from __future__ import annotations

from pathlib import Path

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.chain.report import StepCheck
from tests.kernel.chain.conftest import Bed, device, recorder
from tests.plans import attach, plan, step

# Waits until the other of two has begun as well, and gives up after ten seconds.
MEET = """
touch "$state/../begun-{own}"
n=0
while [ ! -e "$state/../begun-{other}" ]; do sleep 0.01; n=$((n + 1)); [ $n -lt 1000 ] || exit 1; done
"""


def test_results_flow_along_the_graph(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    bed.veth("eth8", "peer8")
    top = recorder(bed, "top")
    top.prints("ADD", {"interfaces": [{"name": "x", "sandbox": bed.pod.path}], "ips": [{"address": "10.0.0.1/8"}]})
    inside = f"ip -n {Path(bed.pod.path).name}"
    make = f"{inside} link add x type bridge 2>/dev/null && {inside} addr add 10.0.0.1/8 dev x"
    top.does("ADD", f'{make}; cat "$state/ADD.json"')
    steps = (
        step("a", "host-device", "net1", device=device("eth7")),
        step("b", "host-device", "net2", device=device("eth8")),
        step("c", "top", "x", {"list": "{{ b.interfaces }}", "text": "on {{ a.mac }}"}, after=["b", "a"]),
        step("d", "top", "x", {"address": "{{ c.ips[0].address }}", "dev": "{{ c.interfaceName }}"}, after=["c"]),
    )
    report = attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)
    result = {each.step: each.result for each in report.steps}
    first, second = top.calls("ADD")
    (own,) = result["b"].interfaces
    assert first.config["list"] == [
        {"name": "net2", "mac": own.mac, "mtu": 1500, "sandbox": bed.pod.path},
    ]
    assert first.config["text"] == f"on {result['a'].interfaces[0].mac}"
    assert [each["name"] for each in first.config["prevResult"]["interfaces"]] == ["net2", "net1"]
    assert (second.config["address"], second.config["dev"]) == ("10.0.0.1/8", "x")
    assert second.config["prevResult"]["interfaces"] == [{"name": "x", "sandbox": bed.pod.path}]
    assert second.environment["CNI_IFNAME"] == "x"
    assert second.config["name"] == "t-d"


def test_a_built_in_step_can_refer_to_the_interface_and_to_an_address_of_a_plugin(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    top, inside = recorder(bed, "top"), f"ip -n {Path(bed.pod.path).name}"
    top.prints("ADD", {"interfaces": [{"name": "x", "sandbox": bed.pod.path}], "ips": [{"address": "10.0.0.1/32"}]})
    make = f"{inside} link add x type bridge && {inside} addr add 10.0.0.1/32 dev x && {inside} link set x up"
    top.does("ADD", f'{make}; cat "$state/ADD.json"')
    routes = [{"destination": "{{ c.ips[0].address }}", "metric": 7}]
    steps = (
        step("a", "host-device", "net1", device=device("eth7")),
        step("c", "top", "x", after=["a"]),
        step("t", "tuning", "x", {"dev": "{{ c.interfaceName }}", "routes": routes}, after=["c"]),
    )
    attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)
    shown = bed.run(*inside.split(), "route", "show", "dev", "x", "metric", "7")
    assert shown.split()[0] == "10.0.0.1"


def test_check_and_del_get_the_final_result(bed: Bed) -> None:
    first, second = recorder(bed, "one"), recorder(bed, "two")
    first.prints("ADD", {"interfaces": [{"name": "first"}]})
    second.prints("ADD", {"interfaces": [{"name": "first"}, {"name": "second"}]})
    plans = (plan(step("a", "one", "net1"), step("b", "two", "net1", after=["a"])),)
    attach(plans, bed.container, bed.pod.path, bed.settings)
    assert "prevResult" not in first.calls("ADD")[0].config
    assert check(bed.container.sandbox, bed.settings).is_clean
    detach(bed.container.sandbox, bed.settings)
    for plugin in (first, second):
        for call in plugin.calls("CHECK", "DEL"):
            assert [each["name"] for each in call.config["prevResult"]["interfaces"]] == ["first", "second"]
            assert call.environment["CNI_ARGS"] == (
                "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p;"
                f"K8S_POD_INFRA_CONTAINER_ID={bed.container.sandbox};K8S_POD_UID=u"
            )


def test_the_allocated_device_reaches_its_plugin_by_pci_address(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    given = device("eth7", pci_address="0000:03:00.2")
    attach((plan(step("a", "fake", "net1", device=given)),), bed.container, bed.pod.path, bed.settings)
    detach(bed.container.sandbox, bed.settings)
    for call in fake.calls():
        assert call.config["deviceID"] == "0000:03:00.2"
        assert call.config["runtimeConfig"] == {"deviceID": "0000:03:00.2"}


def test_independent_binaries_run_at_the_same_time_and_are_undone_so(bed: Bed) -> None:
    for own, other in (("one", "two"), ("two", "one")):
        plugin = recorder(bed, own)
        plugin.does("ADD", MEET.format(own=f"add-{own}", other=f"add-{other}") + 'echo "{}"')
        plugin.does("DEL", MEET.format(own=f"del-{own}", other=f"del-{other}"))
    plans = (plan(step("a", "one", "net1")), plan(step("b", "two", "net2"), topology="u"))
    attach(plans, bed.container, bed.pod.path, bed.settings)
    assert detach(bed.container.sandbox, bed.settings).is_clean


def test_drift_is_shown_step_by_step(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    old = recorder(bed, "fake")
    tuning = {"mtu": 1400, "addresses": ["10.1.0.5/24"], "sysctl": {"net.core.somaxconn": "512"}}
    steps = (
        step("dev", "host-device", "net1", device=device("eth7")),
        step("tune", "tuning", "net1", tuning, after=["dev"]),
        step("fake", "fake", "net1", after=["tune"]),
    )
    attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)
    old.fails("CHECK", message="rule is gone")
    bed.run("ip", "link", "set", "net1", "mtu", "1200", inside=True)
    bed.run("ip", "addr", "del", "10.1.0.5/24", "dev", "net1", inside=True)
    bed.run("sysctl", "-q", "-w", "net.core.somaxconn=100", inside=True)
    report = check(bed.container.sandbox, bed.settings)
    assert not report.is_clean
    assert [each.drift for each in report.steps] == [
        ('interface "net1" has MTU 1200, not 1400', 'interface "net1" has lost address 10.1.0.5/24'),
        (
            'interface "net1" has MTU 1200, not 1400',
            'interface "net1" has lost address 10.1.0.5/24',
            'sysctl net/core/somaxconn is "100", not "512"',
        ),
        ('CNI plugin "fake" CHECK: rule is gone (code 7: its configuration is invalid)',),
    ]
    bed.run("ip", "link", "del", "net1", inside=True)
    assert check(bed.container.sandbox, bed.settings).steps[0].drift == ('interface "net1" does not exist',)


def test_a_plugin_without_check_support_is_reported_as_skipped(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    fake.prints("VERSION", {"supportedVersions": ["0.3.1"]})
    attach((plan(step("a", "fake", "net1")),), bed.container, bed.pod.path, bed.settings)
    report = check(bed.container.sandbox, bed.settings)
    assert report.is_clean
    assert report.steps == (
        StepCheck(
            topology="t",
            step="a",
            plugin="fake",
            execution="Binary",
            skipped="it supports CNI 0.3.1, which does not define CHECK",
        ),
    )


def test_a_sandbox_that_was_never_attached_cannot_be_checked(bed: Bed) -> None:
    assert check("nobody", bed.settings).problems == ("it was never attached on this node, or it is already detached",)


def test_a_pod_without_plans_is_attached_to_nothing(bed: Bed) -> None:
    report = attach((), bed.container, bed.pod.path, bed.settings)
    assert report.steps == ()
    assert check(bed.container.sandbox, bed.settings).is_clean
    assert detach(bed.container.sandbox, bed.settings).is_clean
