"""The forecast of a policy's effects is made from nodes' reports, and equals the nodes' later state."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from netdra.admission.copy import Copy
from netdra.admission.messages import ALLOWED, AdmissionRequest
from netdra.admission.nodes import Nodes
from netdra.admission.requests import narrowed, verdict_on
from netdra.exposure.foresight import InterfaceReports, folded, referenced_attributes
from netdra.kube.client import Client
from netdra.model.device import DEFAULT_FEATURES
from netdra.model.inventory import Interface
from netdra.model.node_network import NodeNetworkStatus
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import DeviceFile, Registration
from netdra.node.publishing.reports import MOST_NAMED
from netdra.review.policies import effect
from netdra.review.world import World
from tests import draws
from tests.builders import OURS, exclude, exclusive, named, policy, shared, sriov
from tests.unit.admission import kept
from tests.unit.node.publishing.scene import POOL, Scene

Request = Callable[..., AdmissionRequest]
NIC = Interface(if_name="eno1", type="nic", pci_address="0000:05:00.0", mac="02:00:00:00:00:aa", oper_state="up")
BRIDGE = Interface(if_name="br-data", type="bridge", bridge_name="br-data", bridge_type="linux", mtu=9000)
VFS = exclusive("vfs", f'{OURS}.type == "vf"', "sriov")
PFS = exclusive("pfs", f'{OURS}.type == "pf"')


def report(policies: Sequence[DeviceExposurePolicy], *interfaces: Interface) -> NodeNetworkStatus:
    scene = Scene()
    scene.offering.follow(tuple(policies), DEFAULT_FEATURES)
    scene.see(*interfaces)
    return scene.offering.report()


def known(reports: Iterable[NodeNetworkStatus], labels: Callable[[int], dict[str, str]] = lambda _: {}) -> Nodes:
    """Nodes that report; the number-th has these labels."""
    nodes = Nodes()
    for number, status in enumerate(reports):
        name = f"n{number}"
        nodes.reports.put(name, kept.report(name, status.interfaces))
        nodes.nodes.put(name, kept.node(name, **labels(number)))
    return nodes


def reported(nodes: Nodes, new: DeviceExposurePolicy | None) -> InterfaceReports:
    asked = referenced_attributes([] if new is None else [new.spec.selector.cel])
    found = asyncio.run(nodes.read_reports(asked, new))
    while found.left:  # a machine that is busy with other things looks at fewer nodes at a time
        found = asyncio.run(nodes.read_reports(asked, new))
    return found if new is None else replace(found, seen=folded(found.seen, new.spec.selector.cel))


def told(
    nodes: Nodes,
    policies: Sequence[DeviceExposurePolicy],
    old: DeviceExposurePolicy | None,
    new: DeviceExposurePolicy | None,
) -> str:
    return effect(policies, old, new, reported(nodes, new), lambda: True)


@pytest.fixture(scope="module")
def fifty() -> Nodes:
    """50 nodes of one kind: eight VFs each, one of them allocated on every fifth node, their PF, a NIC and a bridge."""

    def status(number: int) -> NodeNetworkStatus:
        scene = Scene(VFS, PFS)
        if not number % 5:
            scene.hold((POOL, "p0v3"))
        scene.see(*sriov("p0", 8), NIC, BRIDGE)
        return scene.offering.report()

    return known(map(status, range(50)), lambda number: {"rack": "a" if number < 10 else "b"})


class TestInWords:
    def test_an_exclude_policy_reports_the_devices_it_hides(self, fifty: Nodes) -> None:
        assert told(fifty, [VFS, PFS], None, exclude("e", f'{OURS}.type == "vf"')) == (
            "hides 400 devices on 50 nodes, 10 of them allocated"
        )

    def test_one_interface_of_a_name_is_found_among_others(self, fifty: Nodes) -> None:
        assert told(fifty, [VFS, PFS], None, exclude("e", named("p0"))) == "hides 50 devices on 50 nodes"
        picked = exclude("e", f"{OURS}.vfIndex == 3")
        assert told(fifty, [VFS, PFS], None, picked) == "hides 50 devices on 50 nodes, 10 of them allocated"

    def test_nodes_are_chosen_by_their_labels(self, fifty: Nodes) -> None:
        new = exclude("e", "true", nodeSelector={"matchLabels": {"rack": "a"}})
        assert told(fifty, [VFS, PFS], None, new) == "hides 90 devices on 10 nodes, 2 of them allocated"

    def test_an_expose_policy_reports_the_devices_it_offers(self, fifty: Nodes) -> None:
        new = shared("bridges", f'{OURS}.type == "bridge"', supportedCNIPlugins=[{"name": "bridge"}])
        assert told(fifty, [VFS, PFS], None, new) == "offers 50 devices more on 50 nodes"

    def test_devices_taken_over_from_another_policy_are_reported(self, fifty: Nodes) -> None:
        new = exclusive("aaa", f'{OURS}.type == "pf"')
        assert told(fifty, [VFS, PFS], None, new) == "takes over 50 devices on 50 nodes from other policies"

    def test_devices_left_to_another_policy_are_reported(self, fifty: Nodes) -> None:
        other = exclusive("zzz", f'{OURS}.type == "vf"')
        both = known([report([VFS, other], *sriov("p0", 2))])
        assert told(both, [VFS, other], VFS, None) == "leaves 2 devices on 1 node to other policies"

    def test_a_changed_policy_reports_hidden_and_offered_devices(self, fifty: Nodes) -> None:
        new = exclusive("vfs", f'{OURS}.type == "nic"')
        assert told(fifty, [VFS, PFS], VFS, new) == (
            "hides 400 devices on 50 nodes, 10 of them allocated; offers 50 devices more on 50 nodes"
        )

    def test_a_policy_change_without_effect_reports_nothing(self, fifty: Nodes) -> None:
        assert told(fifty, [VFS, PFS], VFS, replace(VFS, spec=replace(VFS.spec, priority=7))) == ""

    def test_a_policy_that_matches_no_interface_is_reported(self, fifty: Nodes) -> None:
        assert told(fifty, [VFS, PFS], None, exclusive("x", named("p00"))) == (
            "does not match any interface reported by 50 nodes"
        )

    def test_a_bridge_that_no_policy_has_matched_is_found_among_others(self) -> None:
        others = [replace(BRIDGE, if_name=name, bridge_name=name, mtu=1450) for name in ("docker0", "cni0")]
        pairs = [Interface(if_name=f"veth{number}", type="veth") for number in range(3)]
        nodes = known([report([VFS], *others, BRIDGE, *pairs)])
        new = shared(
            "bridges", f'{OURS}.type == "bridge" && {named("br-data")}', supportedCNIPlugins=[{"name": "bridge"}]
        )
        assert told(nodes, [VFS], None, new) == "offers 1 device more on 1 node"
        assert (
            told(nodes, [VFS], None, exclusive("x", named("br-date")))
            == "does not match any interface reported by 1 node"
        )

    def test_interfaces_that_are_only_counted_cannot_be_evaluated(self) -> None:
        many = [Interface(if_name=f"dummy{number}", type="dummy", mtu=number) for number in range(MOST_NAMED + 3)]
        nodes = known([report([VFS], *many, BRIDGE)])
        new = exclusive("x", named("dummy34"))
        assert told(nodes, [VFS], None, new) == "cannot be evaluated for 4 interfaces, which report too few attributes"
        assert told(nodes, [VFS], None, exclusive("x", named("br-data"))).startswith("offers 1 device more on 1 node")

    def test_an_existing_device_file_is_offered_only_by_a_policy_that_selects_it_explicitly(self) -> None:
        scene = Scene(VFS)
        for name in ("fpga0", "fpga1"):
            path = f"/dev/{name}"
            scene.registered += (Registration(provider="bctl", device=name, adds=True, device_file=path),)
        scene.files = {"/dev/fpga0": DeviceFile(number=(240, 0))}
        scene.see()
        nodes = known([scene.offering.report()])
        means = exclusive("files", f'{OURS}.registeredBy == "bctl"')
        assert told(nodes, [VFS], None, means) == "offers 1 device more on 1 node"
        assert told(nodes, [VFS], None, exclusive("all", "true")) == ""
        scene.offering.follow([VFS, means], DEFAULT_FEATURES)
        scene.see()
        nodes = known([scene.offering.report()])
        assert told(nodes, [VFS, means], None, exclude("no", "true")) == "hides 1 device on 1 node"
        assert told(nodes, [VFS, means], None, exclusive("aaa", "true")) == ""

    def test_without_node_reports_the_review_adds_no_warnings(self) -> None:
        assert told(Nodes(), [], None, exclude("e", "true")) == ""

    def test_attributes_missing_from_node_reports_are_not_guessed(self, fifty: Nodes) -> None:
        assert told(fifty, [VFS, PFS], None, exclude("e", f'{OURS}.mac == "02:00:00:00:00:01"')) == (
            "cannot be evaluated for 390 interfaces, which report too few attributes"
        )

    def test_names_that_are_written_in_parts_are_found(self, fifty: Nodes) -> None:
        assert told(fifty, [VFS, PFS], None, exclude("e", f'{OURS}["ty" + "pe"] == "vf"')).startswith(
            "hides 400 devices"
        )

    def test_a_forecast_out_of_time_reports_that_it_takes_too_long(self, fifty: Nodes) -> None:
        new = exclude("e", "true")
        assert effect([VFS, PFS], None, new, reported(fifty, new), lambda: False).startswith("takes too long")


class TestAtAdmission:
    def cluster(self, nodes: Nodes, new: DeviceExposurePolicy | None) -> World:
        return World(policies={"vfs": VFS, "pfs": PFS}, reported=reported(nodes, new))

    def test_a_policy_is_warned_of(self, fifty: Nodes, request_of: Request) -> None:
        new = exclude("e", "true")
        request = request_of(new)
        verdict = verdict_on(request, narrowed(request, self.cluster(fifty, new)))
        assert verdict.allowed
        assert verdict.warnings == (
            'DeviceExposurePolicy "e": hides 450 devices on 50 nodes, 10 of them allocated (ND1246)',
        )

    def test_a_deletion_is_let_through_and_warned_of(self, fifty: Nodes, request_of: Request) -> None:
        request = replace(request_of(VFS, VFS), operation="DELETE", object=request_of(VFS).old_object)
        assert verdict_on(request, narrowed(request, self.cluster(fifty, None))).warnings == (
            'DeviceExposurePolicy "vfs": its deletion hides 400 devices on 50 nodes, 10 of them allocated (ND1247)',
        )
        assert verdict_on(request, World()) == ALLOWED

    def test_a_caller_without_a_certificate_gets_a_forecast_from_published_attributes(self) -> None:
        nics, new = exclusive("nics", f'{OURS}.type == "nic"'), exclude("e", f'{OURS}.ipv4 == "10.0.0.1/24"')
        copy = Copy(cast(Client, None))
        copy.nodes, copy._cluster = known([report([nics], replace(NIC, ipv4=("10.0.0.1/24",)))]), World()

        def forecast(*, trusted: bool) -> str:
            found = asyncio.run(copy.with_reports(new, trusted=trusted)).reported
            return effect([nics], None, new, found, lambda: True)

        assert forecast(trusted=True) == "hides 1 device on 1 node"
        assert forecast(trusted=False) == "cannot be evaluated for 1 interface, which report too few attributes"


class TestReports:
    def test_a_node_that_reports_anew_counts_as_it_is_then(self) -> None:
        nodes = known([report([VFS], *sriov("p0", 2))])
        new = exclude("e", "true")
        with nodes.following():
            assert told(nodes, [VFS], None, new) == "hides 2 devices on 1 node"
            nodes.reports.put("n0", kept.report("n0", report([VFS], *sriov("p0", 4)).interfaces))
            assert told(nodes, [VFS], None, new) == "hides 4 devices on 1 node"
            nodes.reports.remove("n0")
            assert told(nodes, [VFS], None, new) == ""

    def test_interfaces_that_are_alike_are_sent_once(self, fifty: Nodes) -> None:
        assert len(reported(fifty, exclude("e", f'{OURS}.type == "vf"')).seen) <= 8

    def test_names_that_a_selector_cannot_distinguish_are_sent_once(self, fifty: Nodes) -> None:
        compared = reported(fifty, exclude("e", f'{OURS}.ifName in ["p0v1", "eno1"]'))
        assert len(compared.seen) <= 8
        assert sum(each.count for each in compared.seen) == 50 * 11
        assert len(reported(fifty, exclude("e", f'{OURS}.ifName.endsWith("1")')).seen) > 8


PORT = Interface(if_name="p0r0", type="representor", representor="pf0vf0", mac="02:00:00:00:00:bb", oper_state="up")
USED = replace(NIC, if_name="eno2", pci_address="0000:06:00.0", host_use=("bridge-port br-data",), master="br-data")
INTERFACES: Sequence[Interface] = (
    *sriov("p0", 3),
    *sriov("p1", 2, bus=4, speed=25_000),
    NIC,
    USED,
    BRIDGE,
    PORT,
)
CHOICES = (
    f'{OURS}.type == "vf"',
    f'{OURS}.type == "pf"',
    f'{OURS}.pfName == "p0"',
    f"{OURS}.linkSpeed > 50000",
    named("p1"),
    named("eno1"),
    f'{OURS}.type in ["bridge", "nic"]',
    f'{OURS}.type == "vf" && {OURS}.vfIndex < 2',
    f'{OURS}.ifName in ["p0v1", "p1v0", "br-data"]',
    f"{OURS}.ifName == {OURS}.bridgeName",
    f'{OURS}.ifName.endsWith("1")',
    f'{OURS}.type == "representor"',
    f'{OURS}.hostUse == ""',
    "true",
)


def drawn(source: random.Random, name: str) -> DeviceExposurePolicy:
    cel = source.choice(CHOICES)
    if source.random() < 0.3:
        return exclude(name, cel)
    spec: dict[str, Any] = {"priority": source.choice((50, 100))}
    suffix = source.choice(("", "-a", "-b"))
    if source.random() < 0.5:
        return policy(
            name, cel, spec=spec, deviceNameSuffix=suffix, supportedCNIPlugins=[{"name": "sriov", "exclusive": True}]
        )
    return shared(name, cel, spec=spec, deviceNameSuffix=suffix, supportedCNIPlugins=[{"name": "macvlan"}])


def offered(policies: Sequence[DeviceExposurePolicy]) -> dict[str, str]:
    """The devices of a node with these policies: whose each is."""
    status = report(policies, *INTERFACES)
    return {name: device.policy for group in status.interfaces for name, device in group.published()}


def test_the_forecast_equals_the_later_offer_of_the_node() -> None:
    for number in range(draws.count(60, 1000)):
        source = random.Random(draws.seed() + number)
        policies = [drawn(source, f"p{each}") for each in range(source.randint(0, 4))]
        old = source.choice(policies) if policies and source.random() < 0.6 else None
        new = drawn(source, old.name if old else "new") if old is None or source.random() < 0.6 else None
        after = [each for each in policies if each is not old] + ([new] if new else [])
        said = told(known([report(policies, *INTERFACES)]), policies, old, new)
        now, then = offered(policies), offered(after)
        gone, come = len(now.keys() - then.keys()), len(then.keys() - now.keys())
        other = [then[name] for name in now.keys() & then if now[name] != then[name]]
        taken = sum(new is not None and each == new.name for each in other)
        left = len(other) - taken
        expected = [
            f"hides {gone} device{'s' * (gone != 1)} on 1 node" if gone else "",
            f"offers {come} device{'s' * (come != 1)} more on 1 node" if come else "",
            f"takes over {taken} device{'s' * (taken != 1)} on 1 node from other policies" if taken else "",
            f"leaves {left} device{'s' * (left != 1)} on 1 node to other policies" if left else "",
        ]
        assert [each for each in said.split("; ") if each and "does not match any" not in each] == list(
            filter(None, expected)
        )


def test_vfs_that_start_or_stop_being_pooled_are_reported() -> None:
    plugins = [{"name": "sriov"}]
    pooled = policy("pooled", f'{OURS}.type == "vf"', pooledVFs={"lanes": 1}, supportedCNIPlugins=plugins)
    more = replace(pooled, spec=replace(pooled.spec, priority=500))
    singles = known([report([VFS], *sriov("p0", 3))])
    assert told(singles, [VFS], None, more) == "hides 3 devices on 1 node; pools 3 VFs on 1 node"
    pools = known([report([pooled], *sriov("p0", 3)), report([pooled], *sriov("p0", 3))])
    assert told(pools, [pooled], pooled, None) == "stops pooling 6 VFs on 2 nodes"
    alone = exclusive("alone", f'{OURS}.type == "vf"', "sriov")
    assert told(pools, [pooled], None, alone) == "offers 6 devices more on 2 nodes; stops pooling 6 VFs on 2 nodes"
    assert told(pools, [pooled], None, PFS) == "offers 2 devices more on 2 nodes"
