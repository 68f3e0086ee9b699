"""Results of the real plugins that need hardware or kernel modules are accepted; a second VF that is taken returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from netdra.chain.report import AttachError
from netdra.cni.plugins import PluginPath
from testbed.recorder import Recorder
from tests.hardware import node
from tests.hardware.node import PF, VF, ip
from tests.hardware.pods import Pod, allocated
from tests.plans import plan, step

POD = '"$(basename "$CNI_NETNS")"'
IPAM = {
    "type": "static",
    "addresses": [{"address": "10.5.0.7/24", "gateway": "10.5.0.1"}, {"address": "2001:db8:5::7/64"}],
}
ON_A_VF: dict[str, dict[str, Any]] = {
    "vlan": {"vlanId": 7, "mtu": 1400, "ipam": IPAM},
    "ipvlan": {"mtu": 1400, "ipam": IPAM},
    "macvlan": {"mode": "passthru", "ipam": IPAM},
}
METAS: dict[str, dict[str, Any]] = {
    "vrf": {"vrfname": "blue"},
    "sbr": {},
    "tuning": {"mtu": 1300, "mac": "02:00:00:00:00:AB"},
}


def attach(pod: Pod, kind: str, config: dict[str, Any], meta: str, **facts: Any) -> None:
    steps = [step("a", kind, "net1", config, binary=True, **facts)]
    if meta:
        steps.append(step("b", meta, "net1", METAS[meta], after=["a"], binary=True))
    pod.attach(plan(*steps))
    report = pod.detach()
    assert report.is_clean, str(report)
    assert not any("left" in note for note in report.notes), str(report)


@pytest.fixture
def up() -> Iterator[Callable[[VF], str]]:
    """Set a VF up until the test ends, with a carrier: a driver that still resets its VF takes no VLAN; its name."""
    names: list[str] = []

    def set_up(vf: VF) -> str:
        names.append(vf.name)
        node.up(vf.name)
        return vf.name

    yield set_up
    for name in names:
        ip("link", "set", name, "down")


@pytest.mark.parametrize("version", ["0.3.1", "1.1.0"])
@pytest.mark.parametrize("kind", ON_A_VF)
def test_results_of_plugins_on_a_vf_are_accepted(
    pfs: tuple[PF, ...], up: Callable[[VF], str], new_pod: Callable[[], Pod], kind: str, version: str
) -> None:
    master, pod = up(pfs[0].vf(1)), new_pod()
    for meta in ("", "vrf", "sbr", *(("tuning",) if kind != "ipvlan" else ())):
        attach(pod, kind, {**ON_A_VF[kind], "master": master, "cniVersion": version}, meta)


def test_results_of_plugins_without_a_device_are_accepted(new_pod: Callable[[], Pod]) -> None:
    attach(new_pod(), "dummy", {"ipam": IPAM}, "vrf")


@pytest.mark.parametrize("kind", ["sriov", "host-device"])
def test_a_vf_in_the_pod_is_accepted(pfs: tuple[PF, ...], new_pod: Callable[[], Pod], kind: str) -> None:
    pod = new_pod()
    for meta in ("", "vrf", "tuning"):
        attach(pod, kind, {"ipam": IPAM}, meta, device=allocated(pfs[0].vf(1)))


@pytest.mark.parametrize("name", ["net1", "data9"])
def test_a_plugin_that_moves_another_vf_fails_the_pod_and_the_vf_is_returned(
    pfs: tuple[PF, ...], up: Callable[[VF], str], new_pod: Callable[[], Pod], plugins: PluginPath, name: str
) -> None:
    own, other = pfs[0].vf(1), up(pfs[1].vf(2))
    plugin = Recorder(Path(plugins.directories[0]), f"taker-{name}")
    plugin.does("ADD", f"ip link set {other} netns {POD} && ip -n {POD} link set {other} name {name}; echo '{{}}'")
    plugin.succeeds("DEL")
    with pytest.raises(AttachError) as caught:
        new_pod().attach(plan(step("vf", plugin.name, "net1", device=allocated(own))))
    report = caught.value.report
    assert report.failures[0].message == (
        f'plugin "{plugin.name}" moved "{other}" (as "{name}") from the host into the pod'
    )
    assert report.is_clean, str(report)
    assert any(f'"{other}"' in text for text in report.undone[0].restored)
