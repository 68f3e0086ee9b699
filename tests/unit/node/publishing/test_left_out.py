"""What a node says of devices that it does not publish: to policies on its slices, and in its metrics by reason."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from netdra.model import report
from netdra.model.device import DEFAULT_FEATURES, Features
from netdra.model.inventory import Interface
from netdra.model.policy import DeviceExposurePolicy
from netdra.node.publishing.offering import Slices
from tests.builders import OURS, exclusive, policy, shared, sriov
from tests.unit.node.publishing.scene import ALL, ETH, ETH_KEY, HARD, SOFT, Scene


def reported(slices: Iterable[Slices]) -> dict[str, report.PolicyReport]:
    found: dict[str, report.PolicyReport] = {}
    for each in slices:
        for one in each:
            text = one.metadata.annotations.get(report.ANNOTATION, "{}")
            for name, said in msgspec.json.decode(text, type=dict[str, report.PolicyReport]).items():
                before = found.get(name, report.PolicyReport())
                found[name] = report.PolicyReport(
                    devices=before.devices + said.devices, problems=(*before.problems, *said.problems)
                )
    return found


def test_slices_report_the_devices_and_the_problems_of_each_policy() -> None:
    broken = policy("broken", f"{OURS}.mtu")
    failing = policy("failing", f'{OURS}.type == "veth" && {OURS}.nothing == 1')
    scene = Scene(*ALL, broken, failing)
    scene.see(*sriov("p0", 3), ETH)
    found = reported(scene.slices.values())
    assert {name: said.devices for name, said in found.items() if said.devices} == {"pfs": 1, "vfs": 3, "veths": 1}
    assert len(found["broken"].problems) == 5  # it is wrong on each interface
    assert len(found["failing"].problems) == 1
    assert scene.last is not None
    assert {problem.policy for problem in scene.last.problems} == {"broken", "failing"}


def test_what_fails_on_a_hidden_interface_is_reported_on_another_slice() -> None:
    failing = policy("failing", f'{OURS}.type == "nic" && {OURS}.nothing == 1')
    scene = Scene(exclusive("veths", f'{OURS}.type == "veth"'), failing)
    scene.see(ETH)
    assert scene.see(ETH, Interface(if_name="eth0", type="nic")) == {ETH_KEY[0]}
    assert len(reported(scene.slices.values())["failing"].problems) == 1
    assert scene.see(ETH) == {ETH_KEY[0]}
    assert "failing" not in reported(scene.slices.values())


def left_out(scene: Scene) -> dict[str, int]:
    """How many devices are not published, by the reason."""
    assert scene.last is not None
    return {reason: number for reason, number in scene.last.left_out.items() if number}


def many(letter: str) -> list[DeviceExposurePolicy]:
    """As many personas of an interface as one counter set has room for."""
    names_ = [f"{letter}{number:02}" for number in range(30)]
    return [shared(name, f'{OURS}.type == "veth"', capacity=name, deviceNameSuffix=f"-{name}") for name in names_]


def test_whatever_keeps_a_device_from_being_published_is_counted_by_its_reason() -> None:
    veths = f'{OURS}.type == "veth"'
    scene = Scene(
        shared("both", veths, supportedCNIPlugins=[{"name": "macvlan"}, {"name": "host-device", "exclusive": True}]),
        exclusive("namesake", veths, deviceNameSuffix="-exclusive"),
        policy("failing", f"{veths} && {OURS}.nothing == 1"),
        policy("broken", "true &&"),
        policy("half", "false", spec={"action": "exclude"}, deviceNameSuffix="-y"),
    )
    scene.see(ETH)
    assert left_out(scene) == {"name-taken": 1, "policy-failed": 1, "policy-invalid": 1}
    assert scene.last is not None
    assert [each.policy for each in scene.last.problems if each.left_out is None] == ["half"]

    scene.offering.follow([*many("a"), *many("b"), *many("c")], DEFAULT_FEATURES)
    scene.see(ETH)
    assert left_out(scene) == {"limit": 90 - len(scene.devices(ETH_KEY[0]))}
    assert len(scene.devices(ETH_KEY[0])) > 60

    scene.offering.follow((exclusive("whole", veths), SOFT, HARD), Features(consumable_capacity=False))
    scene.see(ETH)
    assert left_out(scene) == {"feature-gate": 2}

    scene.see()
    assert left_out(scene) == {}


def test_devices_that_find_no_counters_beside_those_in_use_are_counted() -> None:
    scene = Scene(*many("a"))
    scene.see(ETH)
    scene.hold(*((ETH_KEY[0], name) for name in scene.devices(ETH_KEY[0])))
    scene.see(ETH)
    scene.offering.follow(many("b"), DEFAULT_FEATURES)
    scene.see(ETH)
    published = [name for name in scene.devices(ETH_KEY[0]) if name.startswith("eth7-b")]
    assert left_out(scene) == {"in-use": 30 - len(published)}
    assert len(published) == 2
    scene.hold()
    scene.see(ETH)
    assert left_out(scene) == {}
