"""A node's slices as its interfaces come and go, with claims that hold some of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from netdra.model import names
from netdra.model.device import DEFAULT_FEATURES, Features
from netdra.model.inventory import Interface
from netdra.model.meta import ObjectMeta
from netdra.model.policy import DeviceExposurePolicyStatus
from netdra.node.publishing import offering
from tests.builders import OURS, exclusive, pf, policy, shared, sriov, vf
from tests.unit.node.publishing.scene import ALL, ETH, ETH_KEY, NODE, POOL, Scene, moved_to_a_pod, without_netdev

PHYSNET = names.PHYSNET


def test_a_second_pass_changes_nothing_and_one_change_is_one_pool() -> None:
    scene = Scene()
    assert scene.see(*sriov("p0", 2), ETH) == {POOL, ETH_KEY[0]}
    assert scene.see(*sriov("p0", 2), ETH) == set()
    assert scene.see(*sriov("p0", 2), msgspec.structs.replace(ETH, mtu=9000)) == {ETH_KEY[0]}
    assert scene.see(*sriov("p0", 2)) == {ETH_KEY[0]}
    assert scene.slices[ETH_KEY[0]] == ()


def test_a_change_of_an_unpublished_fact_changes_no_slice() -> None:
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


def test_vfs_keep_the_physical_network_of_a_pf_that_is_away_also_after_a_restart() -> None:
    interfaces = sriov("p0", 2)
    before = Scene()
    before.physnets = {"physnet2": ("p0",)}
    before.see(*interfaces)
    after = Scene(published=before.slices)
    after.physnets = before.physnets
    for scene in (before, after):
        scene.hold((POOL, "p0"), (POOL, "p0v0"))
        scene.see(*moved_to_a_pod(interfaces))
        attributes = {name: device.attributes[PHYSNET].value for name, device in scene.devices().items()}
        assert attributes == {"p0": "physnet2", "p0v0": "physnet2", "p0v1": "physnet2"}
        assert scene.last is not None
        assert scene.last.problems == ()


def test_a_nic_that_the_node_lacks_is_a_problem_that_it_reports() -> None:
    scene = Scene()
    scene.physnets = {"physnet2": ("p1",)}
    scene.see(*sriov("p0", 1))
    (problem,) = scene.offering.report().problems
    assert problem.message.startswith('--physnet physnet2=p1: the node does not have an interface "p1"')


def test_vfs_keep_their_device_names_after_their_pf_moves_to_a_pod() -> None:
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
    assert {"q0", "q0v0", "q0v1"} == set(scene.devices(f"{NODE}/sriov-q0"))


def test_a_pool_of_a_former_name_is_written_on_as_long_as_claims_have_devices_of_it() -> None:
    former = f"{NODE}-sriov-p0"
    before = Scene()
    before.see(*sriov("p0", 2))
    published = tuple(
        msgspec.structs.replace(
            one, spec=msgspec.structs.replace(one.spec, pool=msgspec.structs.replace(one.spec.pool, name=former))
        )
        for one in before.slices[POOL]
    )
    scene = Scene(published={former: published})
    scene.hold((former, "p0v1"))
    scene.see(*sriov("p0", 2))
    assert POOL not in scene.slices
    assert scene.taints(former) == {"p0": [], "p0v0": [], "p0v1": []}
    scene.hold()
    scene.see(*sriov("p0", 2))
    assert scene.slices[former] == ()
    assert scene.devices(POOL).keys() == {"p0", "p0v0", "p0v1"}


def test_an_unused_pool_with_a_former_name_is_removed_on_the_first_pass() -> None:
    former = f"{NODE}-veth-eth7"
    scene = Scene(published={former: ()})
    scene.see(ETH)
    assert scene.slices[former] == ()
    assert scene.devices(ETH_KEY[0]).keys() == {"eth7"}


def test_a_link_without_carrier_taints_the_devices_that_hang_on_it() -> None:
    parent = msgspec.structs.replace(pf("p0", vfs=1), no_carrier=True, link_speed=0)
    scene = Scene()
    scene.see(parent, vf(parent, 0), ETH)
    assert scene.taints() == {"p0": [names.LINK_DOWN], "p0v0": [names.LINK_DOWN]}
    assert scene.taints(ETH_KEY[0]) == {"eth7": []}
    bridge = Interface(if_name="br0", type="bridge", no_carrier=True)
    other = Scene(exclusive("all", "true"))
    other.see(bridge)
    assert other.taints(f"{NODE}/bridge-br0") == {"br0": []}


def test_without_partitionable_devices_a_nic_has_one_persona() -> None:
    policies = (
        shared("macvlan", f'{OURS}.type == "veth"', deviceNameSuffix="-macvlan"),
        exclusive("whole", f'{OURS}.type == "veth"'),
    )
    scene = Scene(*policies, features=Features(partitionable_devices=False))
    scene.see(ETH)
    assert [*scene.devices(ETH_KEY[0])] == ["eth7-macvlan"]


def test_a_policy_status_update_does_not_rebuild_the_exposer(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(*ALL)
    scene.see(ETH)
    made: list[object] = []
    monkeypatch.setattr(offering, "Exposer", lambda policies, **_: made.append(policies))
    said = DeviceExposurePolicyStatus(observed_generation=3)
    metadata = ObjectMeta(name=ALL[0].name, resource_version="7")
    scene.offering.follow((replace(ALL[0], status=said, metadata=metadata), *ALL[1:]), DEFAULT_FEATURES)
    assert not made
    assert scene.see(ETH) == set()
    scene.offering.follow(ALL[1:], DEFAULT_FEATURES)
    assert made == [ALL[1:]]


def test_a_bridge_in_use_that_gets_a_nic_stays_in_its_pool_until_it_is_given_back() -> None:
    bridge = Interface(if_name="br0", type="bridge")
    own = (f"{NODE}/bridge-br0", "br0")
    scene = Scene(shared("bridges", f'{OURS}.type == "bridge"'), exclusive("pfs", f'{OURS}.type == "pf"'))
    scene.see(pf("p0"), bridge)
    assert [*scene.devices()] == ["p0"]
    scene.hold(own)
    scene.see(pf("p0"), bridge)
    joined = (
        pf("p0", master="br0", upper_devices=("br0",), host_use=("bridge-port br0",)),
        replace(bridge, lower_devices=("p0",)),
    )
    assert scene.see(*joined) == {POOL}
    assert scene.slices[POOL] == (), "the PF is the host's by now"
    assert [*scene.devices(own[0])] == ["br0"]
    scene.hold()
    assert scene.see(*joined) == {POOL, own[0]}
    assert [*scene.devices()] == ["br0"]


def test_a_vlan_in_a_pod_prevents_exclusive_use_of_its_nic_also_after_a_restart() -> None:
    policies = (
        exclusive("vlans", f'{OURS}.type == "vlan"'),
        exclusive("pfs", f'{OURS}.type == "pf"', allowHostUse=True),
    )
    vlan = Interface(if_name="p0.7", type="vlan", lower_devices=("p0",))
    before = Scene(*policies)
    before.see(pf("p0", upper_devices=("p0.7",), host_use=("vlan-parent",)), vlan)
    (name,) = before.devices().keys() - {"p0"}
    for scene in (before, Scene(*policies, published=before.slices)):
        scene.hold((POOL, name))
        scene.left_names = {"p0.7"}
        scene.see(pf("p0"))
        taken = [
            int(counters.counters[names.EXCLUSION_SLOTS].value)
            for device in scene.devices().values()
            for counters in device.consumes_counters
        ]
        assert sorted(taken) == [1, 2], "the VLAN's device takes one of two, and the NIC whole takes both"


@pytest.mark.parametrize(("exposure", "expected"), [({}, "IfChanged"), ({"reset": "Always"}, "Always")])
def test_when_a_vf_is_reset_goes_with_it_to_the_step(exposure: dict[str, Any], expected: str) -> None:
    nic = Interface(if_name="eth1", pci_address="0000:03:00.0", driver="igbvf")
    scene = Scene(exclusive("p", "true", **exposure))
    scene.see(nic)
    assert scene.last is not None
    (device,) = scene.last.devices[f"{NODE}/nic-eth1"].values()
    assert (device.reset, device.driver) == (expected, "igbvf")


def test_whether_a_device_may_be_taken_from_the_host_goes_with_it_to_the_step() -> None:
    key = (f"{NODE}/nic-eth1", "eth1")
    nic = Interface(if_name="eth1", pci_address="0000:03:00.0", host_use=("address",))
    scene = Scene(exclusive("p", "true", allowHostUse=True))
    scene.see(nic)
    assert scene.last is not None
    assert scene.last.devices[key[0]][key].allow_host_use
    scene.hold(key)
    scene.offering.follow((exclusive("p", "true"),), DEFAULT_FEATURES)
    scene.see(replace(nic, host_use=()))
    assert not scene.last.devices[key[0]][key].allow_host_use
