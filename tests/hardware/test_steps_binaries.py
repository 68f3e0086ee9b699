"""Stock CNI plugins on VFs, in chains with built-in steps: ipvlan, vlan, macvlan, dummy, vrf, host-device, tuning."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.hardware.node import PF, ip
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state
from tests.plans import plan, step


def static(address: str) -> dict[str, object]:
    return {"ipam": {"type": "static", "addresses": [{"address": address}]}}


def test_binary_plugins_work_on_a_vf_attached_by_a_built_in_step(pfs: tuple[PF, ...], pod: Pod) -> None:
    vf = pfs[0].vf(0)
    before = node_state()
    on_vf = {"master": "{{ vf.interfaceName }}", "linkInContainer": True}
    pod.attach(
        plan(
            step("vf", "sriov", "net1", {"trust": "on"}, device=allocated(vf)),
            step("data", "vlan", "data0", {**on_vf, "vlanId": 100, **static("10.1.0.5/24")}, after=["vf"], binary=True),
            step("ipv", "ipvlan", "ipv0", {**on_vf, "mode": "l3", **static("10.2.0.5/24")}, after=["vf"]),
            step("dummy", "dummy", "lo1", static("10.4.0.5/32"), after=["vf"]),
            step("red", "vrf", "data0", {"vrfname": "red", "table": 100}, after=["data"], binary=True),
            step("tune", "tuning", "data0", {"dev": "data0", "mtu": 1400}, after=["red"]),
        )
    )
    info = {name: pod.link(name)["linkinfo"] for name in ("data0", "ipv0", "lo1", "red")}
    assert {name: found["info_kind"] for name, found in info.items()} == {
        "data0": "vlan",
        "ipv0": "ipvlan",
        "lo1": "dummy",
        "red": "vrf",
    }
    assert (info["data0"]["info_data"]["id"], info["ipv0"]["info_data"]["mode"]) == (100, "l3")
    assert (pod.link("data0")["master"], pod.link("data0")["mtu"]) == ("red", 1400)
    assert [pod.addresses(name) for name in ("data0", "ipv0", "lo1")] == [
        {"10.1.0.5/24"},
        {"10.2.0.5/24"},
        {"10.4.0.5/32"},
    ]
    assert json.loads(ip("-j", "route", "show", "table", "100", "10.1.0.0/24", netns=pod.netns))[0]["dev"] == "data0"

    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


@pytest.mark.parametrize("kind", ["macvlan", "ipvlan", "vlan"])
def test_binary_plugins_work_on_a_vf_of_the_host(pfs: tuple[PF, ...], pod: Pod, kind: str) -> None:
    vf = pfs[1].vf(2)
    ip("link", "set", vf.name, "up")
    before = node_state()
    config = {"master": vf.name, **({"vlanId": 7} if kind == "vlan" else {}), **static("10.5.0.5/24")}
    pod.attach(
        plan(
            step("top", kind, "net1", config, device=allocated(vf), binary=True),
            step("tune", "tuning", "net1", {"dev": "net1", "addresses": ["10.6.0.5/24"]}, after=["top"]),
        )
    )
    assert pod.link("net1")["linkinfo"]["info_kind"] == kind
    assert pod.addresses("net1") == {"10.5.0.5/24", "10.6.0.5/24"}
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)
    ip("link", "set", vf.name, "down")


def test_built_in_steps_are_faster_than_the_binaries_of_the_same_names(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod], record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Each step of one chain, in the guest; the host-device binary is asked for by PCI address, as the step is."""
    vf = pfs[0].vf(0)
    seconds: dict[bool, dict[str, float]] = {}
    for binary in (False, True):
        pod = new_pod()
        report = pod.attach(
            plan(
                step("host-device", "host-device", "net1", {"pciBusID": vf.pci}, device=allocated(vf), binary=binary),
                step(
                    "vlan",
                    "vlan",
                    "data0",
                    {"master": "net1", "vlanId": 100, "linkInContainer": True, **static("10.1.0.5/24")},
                    after=["host-device"],
                    binary=binary,
                ),
                step("tuning", "tuning", "data0", {"mtu": 1400}, after=["vlan"], binary=binary),
            )
        )
        assert pod.link("data0")["mtu"] == 1400
        seconds[binary] = {each.step: each.seconds for each in report.steps}
        assert pod.detach().is_clean
    ratios = {name: seconds[True][name] / seconds[False][name] for name in seconds[False]}
    for name, ratio in ratios.items():
        record_testsuite_property(f"{name}: built in, ms", round(seconds[False][name] * 1000, 1))
        record_testsuite_property(f"{name}: binary / built in", round(ratio, 1))
    assert min(ratios.values()) > 1
