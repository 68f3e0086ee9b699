"""The outcome of devices in use whose interface is away, gone or not wanted any more."""

from __future__ import annotations

import msgspec

from netdra.model import names
from netdra.model.device import DEFAULT_FEATURES, Features
from netdra.model.policy import DeviceExposurePolicy
from netdra.node import metrics
from netdra.node.publishing.offering import Slices
from netdra.ops.metrics import exposition
from tests.builders import OURS, exclusive, shared, sriov
from tests.unit.node.publishing.scene import ETH, ETH_KEY, HARD, POOL, SOFT, Scene, without_netdev


def test_a_device_in_use_whose_hardware_goes_is_tainted_until_it_is_given_back() -> None:
    interfaces = sriov("p0", 2)
    scene = Scene()
    scene.see(*interfaces)
    scene.hold((POOL, "p0v1"))
    scene.see(*interfaces)
    before = scene.devices()["p0v1"]
    assert scene.see() == {POOL}
    assert scene.taints() == {"p0v1": [names.GONE]}
    assert scene.devices()["p0v1"] == msgspec.structs.replace(before, taints=scene.devices()["p0v1"].taints)
    assert scene.see() == set()
    scene.hold()
    assert scene.see() == {POOL}
    assert scene.slices[POOL] == ()


def test_devices_are_counted_by_their_taints() -> None:
    interfaces = sriov("p0", 2)
    scene = Scene()
    scene.see(*interfaces)
    scene.hold((POOL, "p0v1"))
    pf, *vfs = interfaces
    scene.see(msgspec.structs.replace(pf, no_carrier=True), *vfs[:1])
    metrics.set_published(scene.slices[POOL], {})
    text = exposition([metrics.NODE]).decode()
    counted = dict(line.split() for line in text.splitlines() if line.startswith("netdra_published_taint"))
    assert counted == {
        "netdra_published_tainted_devices": "3.0",
        'netdra_published_taints{taint="link-down"}': "2.0",
        'netdra_published_taints{taint="gone"}': "1.0",
        'netdra_published_taints{taint="withdrawn"}': "0.0",
        'netdra_published_taints{taint="trouble"}': "0.0",
    }


def test_a_virtual_device_that_went_to_its_pod_is_well_and_one_that_was_deleted_is_gone() -> None:
    scene = Scene()
    scene.see(ETH)
    scene.hold(ETH_KEY)
    scene.left_names = {"eth7"}
    assert scene.see() == set()
    scene.left_names = set()
    assert scene.see() == {ETH_KEY[0]}
    assert scene.taints(ETH_KEY[0]) == {"eth7": [names.GONE]}
    assert scene.see(ETH) == {ETH_KEY[0]}
    assert scene.taints(ETH_KEY[0]) == {"eth7": []}


def test_after_a_restart_a_device_in_use_that_is_away_is_believed_as_it_was_published() -> None:
    before = Scene()
    before.see(ETH)
    scene = Scene(published=before.slices)
    scene.hold(ETH_KEY)
    assert scene.see() == set()

    before.hold(ETH_KEY)
    before.see()
    assert before.taints(ETH_KEY[0]) == {"eth7": [names.GONE]}
    again = Scene(published=before.slices)
    again.hold(ETH_KEY)
    assert again.see() == set()
    assert again.taints(ETH_KEY[0]) == {"eth7": [names.GONE]}


def effects(scene: Scene, pool: str = POOL) -> dict[str, str]:
    """The effect of each gone device's taint."""
    found = {name: device.taints for name, device in scene.devices(pool).items()}
    return {name: taint.effect for name, taints in found.items() for taint in taints if taint.key == names.GONE}


SOFT_KEY, HARD_KEY = ((ETH_KEY[0], f"eth7-{policy}") for policy in ("soft", "hard"))


def held_and_gone(*policies: DeviceExposurePolicy, published: dict[str, Slices] | None = None) -> Scene:
    """Both personas of eth7 are held, and it is deleted; without published slices it was there before."""
    scene = Scene(*policies, published=published)
    if published is None:
        scene.see(ETH)
    scene.hold(SOFT_KEY, HARD_KEY)
    scene.see()
    return scene


def test_the_policy_of_each_gone_device_decides_whether_its_pods_are_evicted() -> None:
    scene = held_and_gone(SOFT, HARD)
    assert effects(scene, ETH_KEY[0]) == {"eth7-soft": "NoSchedule", "eth7-hard": "NoExecute"}
    assert scene.see() == set()


def test_the_current_policy_of_a_gone_device_applies_and_a_deleted_policy_evicts_no_pods() -> None:
    scene = held_and_gone(SOFT, HARD)
    evicting = shared("soft", f"{OURS}.mtu == 1", deviceNameSuffix="-soft", taints={"gone": "NoExecute"})
    scene.offering.follow((evicting,), DEFAULT_FEATURES)
    assert scene.see() == {ETH_KEY[0]}
    assert effects(scene, ETH_KEY[0]) == {"eth7-soft": "NoExecute", "eth7-hard": "NoSchedule"}


def test_of_two_policies_that_would_make_a_device_the_one_that_offered_it_last_decides() -> None:
    scene = Scene(SOFT, HARD)
    scene.see(ETH)
    scene.hold(HARD_KEY)
    scene.see(ETH)
    above = shared("above", "true", deviceNameSuffix="-hard", spec={"priority": 200})
    scene.offering.follow((SOFT, HARD, above), DEFAULT_FEATURES)
    scene.see(ETH)
    scene.see()
    assert effects(scene, ETH_KEY[0]) == {"eth7-hard": "NoSchedule"}


def test_after_a_restart_a_gone_device_follows_its_policy_or_else_keeps_its_published_taint() -> None:
    before = held_and_gone(SOFT, HARD)
    for policies in (SOFT, HARD), (SOFT, exclusive("other", "true")):
        again = held_and_gone(*policies, published=before.slices)
        assert effects(again, ETH_KEY[0]) == {"eth7-soft": "NoSchedule", "eth7-hard": "NoExecute"}
    milder = shared("hard", f'{OURS}.type == "veth"', deviceNameSuffix="-hard")
    changed = held_and_gone(SOFT, milder, published=before.slices)
    assert effects(changed, ETH_KEY[0]) == {"eth7-soft": "NoSchedule", "eth7-hard": "NoSchedule"}


def test_a_device_that_cannot_be_released_is_tainted_with_the_reason() -> None:
    scene = Scene()
    scene.see(ETH)
    scene.hold(ETH_KEY, trouble="driver ixgbevf refuses to bind: EBUSY!")
    scene.see(ETH)
    (taint,) = scene.devices(ETH_KEY[0])["eth7"].taints
    assert (taint.key, taint.value, taint.effect) == (
        names.TROUBLE,
        "driver-ixgbevf-refuses-to-bind-EBUSY",
        "NoSchedule",
    )


def test_a_device_that_cannot_be_released_is_a_problem_of_the_node_with_all_differences_until_it_is_released() -> None:
    scene = Scene()
    scene.see(ETH)
    differences = 'device "eth7" cannot be made what it was: netdev "eth7" has MTU 1300, not 1450'
    scene.hold(ETH_KEY, trouble=differences)
    scene.see(ETH)
    assert scene.last is not None
    (problem,) = scene.last.problems
    assert (problem.policy, problem.device) == ("", "eth7")
    assert problem.message == f'pool "{ETH_KEY[0]}": device "eth7" is not available to other claims: {differences}'
    scene.hold(ETH_KEY)
    scene.see(ETH)
    assert scene.last.problems == ()


def test_a_withdrawn_device_in_use_is_tainted_until_it_is_offered_again_or_released() -> None:
    offered = shared("macvlan", f'{OURS}.type == "veth"', deviceNameSuffix="-macvlan")
    key = (ETH_KEY[0], "eth7-macvlan")
    scene = Scene(offered)
    scene.see(ETH)
    scene.hold(key)
    scene.see(ETH)
    scene.offering.follow((), DEFAULT_FEATURES)
    assert scene.see(ETH) == {ETH_KEY[0]}
    assert scene.taints(ETH_KEY[0]) == {"eth7-macvlan": [names.WITHDRAWN]}
    scene.offering.follow((offered,), DEFAULT_FEATURES)
    assert scene.see(ETH) == {ETH_KEY[0]}
    assert scene.taints(ETH_KEY[0]) == {"eth7-macvlan": []}
    scene.offering.follow((), DEFAULT_FEATURES)
    scene.hold()
    scene.see(ETH)
    assert scene.slices[ETH_KEY[0]] == ()


def test_a_vf_in_a_pod_that_policies_know_by_its_netdev_is_not_withdrawn() -> None:
    parent, first = sriov("p0", 1)
    scene = Scene(exclusive("vfs", f'{OURS}.ifName == "p0v0"'))
    scene.see(parent, first)
    scene.hold((POOL, "p0v0"))
    assert scene.see(parent, without_netdev(first)) == set()


def test_a_server_that_takes_no_taints_gets_none() -> None:
    scene = Scene(features=Features(device_taints=False))
    down = msgspec.structs.replace(ETH, no_carrier=True)
    scene.see(down)
    scene.hold(ETH_KEY, trouble="x")
    scene.see()
    assert scene.taints(ETH_KEY[0]) == {"eth7": []}
