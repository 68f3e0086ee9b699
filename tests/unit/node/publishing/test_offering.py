"""What a node publishes as its interfaces come and go, with claims that hold some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from netdra.model import names, report
from netdra.model.device import DEFAULT_FEATURES, Features
from netdra.model.inventory import Interface
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import Device
from netdra.node.publishing.offering import Offered, Offering, Slices
from netdra.node.view import HeldDevice
from netdra.topology.devices import DeviceKey
from tests.builders import OURS, exclusive, inventory, pf, policy, shared, sriov, vf

NODE = "worker-1"
POOL = f"{NODE}-sriov-p0"
ETH = Interface(if_name="eth7", type="veth", mac="02:00:00:00:00:07", mtu=1500, oper_state="up")
ETH_KEY = (f"{NODE}-veth-eth7", "eth7")
POLICIES = (exclusive("pfs", f'{OURS}.type == "pf"'), exclusive("vfs", f'{OURS}.type == "vf"', "sriov"))
ALL = (*POLICIES, exclusive("veths", f'{OURS}.type == "veth"'))


class Scene:
    """A node, whose kernel and holders are set by the test."""

    def __init__(
        self,
        *policies: DeviceExposurePolicy,
        published: dict[str, Slices] | None = None,
        features: Features = DEFAULT_FEATURES,
    ) -> None:
        self.offering = Offering(NODE, published or {})
        self.offering.follow(policies or ALL, features)
        self.left_names: set[str] = set()
        self.on_bus = {"0000:03:00.0"}
        self.holding: list[HeldDevice] = []
        self.slices: dict[str, Slices] = dict(published or {})
        self.labels: dict[str, str] = {}
        self.last: Offered | None = None
        self.now = 0.0

    def left(self, interface: Interface) -> bool:
        return interface.if_name in self.left_names

    def on_the_bus(self, address: str) -> bool:
        return address in self.on_bus

    def hold(self, *keys: DeviceKey, trouble: str = "") -> None:
        self.holding = [HeldDevice(key=key, claim="c", trouble=trouble) for key in keys]

    def see(self, *interfaces: Interface) -> set[str]:
        """A pass; the pools that have to be written."""
        found = self.offering.update(inventory(*interfaces), self.labels, self.holding, self, self.now)
        changed = {pool for pool, slices in found.slices.items() if self.slices.get(pool, ()) != slices}
        self.slices |= found.slices
        self.last = found
        return changed

    def devices(self, pool: str = POOL) -> dict[str, Device]:
        return {device.name: device for one in self.slices[pool] for device in one.spec.devices}

    def taints(self, pool: str = POOL) -> dict[str, list[str]]:
        return {name: [taint.key for taint in device.taints] for name, device in self.devices(pool).items()}


def moved_to_a_pod(interfaces: Sequence[Interface]) -> tuple[Interface, ...]:
    """What is seen of a PF's VFs when the PF's netdev is elsewhere."""
    return tuple(msgspec.structs.replace(each, pf_name="") for each in interfaces if each.type == "vf")


def without_netdev(interface: Interface) -> Interface:
    """A VF in a pod, as sysfs shows it."""
    return msgspec.structs.replace(interface, if_name="", mac="", mtu=0, oper_state="")


def test_a_second_pass_changes_nothing_and_one_change_is_one_pool() -> None:
    scene = Scene()
    assert scene.see(*sriov("p0", 2), ETH) == {POOL, ETH_KEY[0]}
    assert scene.see(*sriov("p0", 2), ETH) == set()
    assert scene.see(*sriov("p0", 2), msgspec.structs.replace(ETH, mtu=9000)) == {ETH_KEY[0]}
    assert scene.see(*sriov("p0", 2)) == {ETH_KEY[0]}
    assert scene.slices[ETH_KEY[0]] == ()


def test_a_fact_that_is_not_published_is_no_change() -> None:
    scene = Scene()
    scene.see(ETH)
    assert scene.see(msgspec.structs.replace(ETH, ifindex=99)) == set()


def test_labels_and_policies_decide_anew() -> None:
    scene = Scene(exclusive("a", "true"))
    scene.see(ETH)
    scene.offering.follow((policy("a", "true", spec={"nodeSelector": {"matchLabels": {"rack": "a7"}}}),), Features())
    assert scene.see(ETH) == {ETH_KEY[0]}
    assert scene.slices[ETH_KEY[0]] == ()
    scene.labels = {"rack": "a7"}
    assert scene.see(ETH) == {ETH_KEY[0]}
    assert [*scene.devices(ETH_KEY[0])] == ["eth7"]


def test_a_pf_in_a_pod_changes_nothing_at_all() -> None:
    interfaces = sriov("p0", 4)
    scene = Scene()
    scene.see(*interfaces)
    scene.hold((POOL, "p0"))
    scene.see(*interfaces)
    assert scene.see(*moved_to_a_pod(interfaces)) == set()
    assert scene.see(*interfaces) == set()
    scene.hold()
    assert scene.see(*interfaces) == set()


def test_a_pf_that_somebody_else_took_leaves_the_names_of_its_vfs() -> None:
    interfaces = sriov("p0", 2)
    scene = Scene()
    scene.see(*interfaces)
    scene.see(*moved_to_a_pod(interfaces))
    assert [*scene.devices()] == ["p0v0", "p0v1"]


def test_a_restart_finds_the_names_of_a_pf_that_is_away() -> None:
    interfaces = sriov("p0", 2)
    before = Scene()
    before.see(*interfaces)
    for held in ((POOL, "p0"),), ():
        scene = Scene(published=before.slices)
        scene.hold(*held)
        changed = scene.see(*moved_to_a_pod(interfaces))
        assert changed == (set() if held else {POOL})
        assert {"p0v0", "p0v1"} <= set(scene.devices())


def test_a_vf_in_a_pod_stays_as_it_was_and_its_facts_are_remembered() -> None:
    parent, first, second = sriov("p0", 2)
    scene = Scene()
    scene.see(parent, first, second)
    scene.hold((POOL, "p0v0"))
    assert scene.see(parent, without_netdev(first), second) == set()
    assert scene.last is not None
    scene.see(parent, without_netdev(first), msgspec.structs.replace(second, mtu=9000))
    facts = scene.last.devices[POOL][POOL, "p0v0"]
    assert (facts.if_name, facts.mac, facts.pci_address, facts.vf_index) == (
        "p0v0",
        first.mac,
        first.pci_address,
        0,
    )


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
    """What the taint of each gone device does."""
    found = {name: device.taints for name, device in scene.devices(pool).items()}
    return {name: taint.effect for name, taints in found.items() for taint in taints if taint.key == names.GONE}


SOFT = shared("soft", f'{OURS}.type == "veth"', deviceNameSuffix="-soft")
HARD = shared("hard", f'{OURS}.type == "veth"', deviceNameSuffix="-hard", taints={"gone": "NoExecute"})
SOFT_KEY, HARD_KEY = ((ETH_KEY[0], f"eth7-{policy}") for policy in ("soft", "hard"))


def held_and_gone(*policies: DeviceExposurePolicy, published: dict[str, Slices] | None = None) -> Scene:
    """Both personas of eth7 are held, and it is deleted; without published slices it was there before."""
    scene = Scene(*policies, published=published)
    if published is None:
        scene.see(ETH)
    scene.hold(SOFT_KEY, HARD_KEY)
    scene.see()
    return scene


def test_each_gone_devices_own_policy_says_whether_its_pods_are_evicted() -> None:
    scene = held_and_gone(SOFT, HARD)
    assert effects(scene, ETH_KEY[0]) == {"eth7-soft": "NoSchedule", "eth7-hard": "NoExecute"}
    assert scene.see() == set()


def test_the_policy_of_a_gone_device_is_heard_as_it_reads_now_and_a_deleted_one_evicts_nobody() -> None:
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


def test_after_a_restart_the_policy_of_a_gone_device_is_found_again_and_without_one_what_was_published_stays() -> None:
    before = held_and_gone(SOFT, HARD)
    for policies in (SOFT, HARD), (SOFT, exclusive("other", "true")):
        again = held_and_gone(*policies, published=before.slices)
        assert effects(again, ETH_KEY[0]) == {"eth7-soft": "NoSchedule", "eth7-hard": "NoExecute"}
    milder = shared("hard", f'{OURS}.type == "veth"', deviceNameSuffix="-hard")
    changed = held_and_gone(SOFT, milder, published=before.slices)
    assert effects(changed, ETH_KEY[0]) == {"eth7-soft": "NoSchedule", "eth7-hard": "NoSchedule"}


def test_a_pf_that_is_renamed_while_its_vf_is_in_use_keeps_its_name_until_then() -> None:
    interfaces = sriov("p0", 2)
    renamed = sriov("q0", 2)
    scene = Scene()
    scene.see(*interfaces)
    scene.hold((POOL, "p0v1"))
    scene.see(*renamed)
    assert {"p0", "p0v0", "p0v1"} == set(scene.devices())
    scene.hold()
    scene.see(*renamed)
    assert scene.slices[POOL] == ()
    assert {"q0", "q0v0", "q0v1"} == set(scene.devices(f"{NODE}-sriov-q0"))


def test_what_could_not_be_given_back_is_tainted_with_the_reason() -> None:
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


def test_what_no_policy_offers_any_more_is_for_no_further_claim_while_it_is_in_use() -> None:
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


def test_a_link_without_carrier_taints_the_devices_that_hang_on_it() -> None:
    parent = msgspec.structs.replace(pf("p0", vfs=1), no_carrier=True, link_speed=0)
    scene = Scene()
    scene.see(parent, vf(parent, 0), ETH)
    assert scene.taints() == {"p0": [names.LINK_DOWN], "p0v0": [names.LINK_DOWN]}
    assert scene.taints(ETH_KEY[0]) == {"eth7": []}
    bridge = Interface(if_name="br0", type="bridge", no_carrier=True)
    other = Scene(exclusive("all", "true"))
    other.see(bridge)
    assert other.taints(f"{NODE}-bridge-br0") == {"br0": []}


def test_a_server_that_takes_no_taints_gets_none() -> None:
    scene = Scene(features=Features(device_taints=False))
    down = msgspec.structs.replace(ETH, no_carrier=True)
    scene.see(down)
    scene.hold(ETH_KEY, trouble="x")
    scene.see()
    assert scene.taints(ETH_KEY[0]) == {"eth7": []}


def test_without_partitionable_devices_a_nic_has_one_persona() -> None:
    policies = (
        shared("macvlan", f'{OURS}.type == "veth"', deviceNameSuffix="-macvlan"),
        exclusive("whole", f'{OURS}.type == "veth"'),
    )
    scene = Scene(*policies, features=Features(partitionable_devices=False))
    scene.see(ETH)
    assert [*scene.devices(ETH_KEY[0])] == ["eth7-macvlan"]


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
