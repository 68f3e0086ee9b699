"""A node's report on devices that it does not publish, by reason."""

from __future__ import annotations

from netdra.model.device import DEFAULT_FEATURES, Features
from netdra.model.policy import DeviceExposurePolicy
from tests.builders import OURS, exclusive, policy, shared
from tests.unit.node.publishing.scene import ETH, ETH_KEY, HARD, SOFT, Scene


def left_out(scene: Scene) -> dict[str, int]:
    """How many devices are not published, by the reason."""
    assert scene.last is not None
    return {reason: number for reason, number in scene.last.left_out.items() if number}


def many(letter: str) -> list[DeviceExposurePolicy]:
    """As many personas of an interface as one counter set has room for."""
    names_ = [f"{letter}{number:02}" for number in range(30)]
    return [shared(name, f'{OURS}.type == "veth"', capacity=name, deviceNameSuffix=f"-{name}") for name in names_]


def test_devices_left_out_of_publishing_are_counted_by_reason() -> None:
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
