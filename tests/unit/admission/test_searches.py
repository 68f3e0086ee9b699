"""Long searches of the scheduler are foreseen at admission from nodes' reports, as from the slices themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netdra.admission.messages import MAX_WARNING, AdmissionRequest
from netdra.admission.nodes import Nodes
from netdra.admission.requests import narrowed, verdict_on
from netdra.model import names
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.device import DEFAULT_FEATURES, Features
from netdra.model.inventory import Interface
from netdra.model.meta import OwnerReference
from netdra.model.node_network import InterfaceGroup, PublishedDevice
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.topology import NetworkTopology
from netdra.review import searches
from netdra.review.offers import MOST_DEVICES
from netdra.review.world import World
from netdra.slices.allocator import Allocator
from netdra.slices.allocator.worst_case import MOST_NODES
from netdra.topology.classes import device_classes, known_classes, plain_claim
from tests.builders import OURS, exclusive, policy, sriov, topology
from tests.unit.admission import kept
from tests.unit.node.publishing.scene import NODE, Scene

Request = Callable[..., AdmissionRequest]
VF = f'{OURS}.type == "vf"'
VFS = exclusive("vfs", VF, "sriov")
PFS = exclusive("pfs", f'{OURS}.type == "pf"')


def pooled(lanes: int = 1) -> DeviceExposurePolicy:
    return policy("pooled", VF, pooledVFs={"lanes": lanes}, supportedCNIPlugins=[{"name": "sriov"}])


def card(pfs: int, vfs: int) -> list[Interface]:
    """PFs with VFs, on two NUMA nodes."""
    return [replace(one, numa_node=pf % 2) for pf in range(pfs) for one in sriov(f"p{pf}", vfs, bus=pf + 1)]


def scene(*policies: DeviceExposurePolicy, interfaces: Iterable[Interface], features: Features | None = None) -> Scene:
    made = Scene(*policies, features=features or DEFAULT_FEATURES)
    made.see(*interfaces)
    return made


def reporting(*scenes: Scene) -> Nodes:
    nodes = Nodes()
    for number, made in enumerate(scenes):
        name = f"n{number}"
        nodes.reports.put(name, kept.report(name, made.offering.report().interfaces))
        nodes.nodes.put(name, kept.node(name))
    return nodes


def rails(count: int, *selectors: str) -> NetworkTopology:
    """A topology with a step for each selector, or with one of each of so many PFs."""
    cels = selectors or tuple(f'{VF} && {OURS}.pfName == "p{pf}"' for pf in range(count))
    return topology(
        "\n".join(
            f"- {{name: rail{number}, type: sriov, selector: {{cel: '{cel}'}}}}" for number, cel in enumerate(cels)
        ),
        "rails",
    )


def cluster(
    nodes: Nodes, asked: frozenset[str], *policies: DeviceExposurePolicy, named: bool = True, **more: Any
) -> World:
    offers = asyncio.run(nodes.offers(asked, named=named))
    return World(policies={one.name: one for one in policies}, offers=offers, **more)


def warned(new: NetworkTopology, nodes: Nodes, *policies: DeviceExposurePolicy, named: bool = True) -> tuple[str, ...]:
    known = cluster(nodes, searches.asked_by_topology(new), *policies, named=named)
    return tuple(finding.text for finding in searches.of_topology(new, known.policies, known.offers))


class TestTopologies:
    @pytest.mark.parametrize("named", [True, False])
    def test_a_device_per_vf_is_warned_of_and_pooled_vfs_are_not(self, request_of: Request, named: bool) -> None:
        interfaces = card(8, 16)
        new = rails(8)
        nodes = reporting(scene(VFS, interfaces=interfaces))
        known = cluster(nodes, searches.asked_by_topology(new), VFS, named=named)
        verdict = verdict_on(request_of(new), narrowed(request_of(new), known))
        assert verdict.allowed
        what, step = verdict.warnings
        assert what == (
            'NetworkTopology "rails", requests rail0 … rail7: if a request cannot be allocated on '
            f"{'node n0' if named else 'a node'}, kube-scheduler visits up to 36,650,387,584 devices, and about "
            "2,000,000 fit into its timeout of 10 s: the pod stays Pending although other nodes are free (ND1560)"
        )
        assert (
            step == 'NetworkTopology "rails": offer the VFs together (pooledVFs in their policy), in few lanes (ND1560)'
        )
        assert all(len(text) <= MAX_WARNING for text in verdict.warnings)
        assert warned(new, reporting(scene(pooled(), interfaces=interfaces)), pooled()) == ()
        assert warned(rails(2), nodes, VFS) == ()

    def test_the_scarcest_request_first_is_the_next_step_where_it_helps(self) -> None:
        interfaces = [*sriov("p0", 64, bus=1), *sriov("p1", 64, bus=2), *sriov("p2", 64, bus=3), *sriov("p3", 1, bus=4)]
        many = [f'{VF} && {OURS}.pfName in ["p0", "p1", "p2"]'] * 3
        last, first = rails(0, *many, f'{VF} && {OURS}.pfName == "p3"'), rails(0, f'{VF} && {OURS}.pfName == "p3"')
        nodes = reporting(scene(VFS, interfaces=interfaces))
        _, step = warned(last, nodes, VFS)
        assert step.startswith(
            'NetworkTopology "rails": change the order of the requests to rail3, rail0, rail1, rail2, or'
        )
        assert warned(first, nodes, VFS) == ()

    def test_devices_in_use_count_as_if_they_were_free(self) -> None:
        free = scene(VFS, interfaces=card(8, 16))
        used = scene(VFS, interfaces=card(8, 16))
        used.hold(*((f"{NODE}/sriov-p{pf}", f"p{pf}v{index}") for pf in range(8) for index in range(0, 16, 3)))
        used.see(*card(8, 16))
        assert warned(rails(8), reporting(used), VFS) == warned(rails(8), reporting(free), VFS)

    def test_attributes_of_policies_and_lists_of_plugins_are_known(self) -> None:
        racks = exclusive("racks", VF, "sriov", additionalAttributes={"rack": "r1"})
        nodes = reporting(scene(racks, interfaces=card(8, 16)))
        new = rails(0, *(f'{OURS}.rack == "r1" && {OURS}.pfName == "p{pf}"' for pf in range(8)))
        assert warned(new, nodes, racks)
        lists = device_classes(new, Features(list_attributes=True))
        claim = plain_claim(new)
        known = cluster(nodes, searches.asked_by_claim(claim, known_classes([], lists)), racks)
        classes = {one.metadata.name: one for one in lists}
        assert len([*searches.of_claim(claim, classes, known.policies, known.offers)]) == 2

    def test_a_search_without_time_left_yields_no_warning(self) -> None:
        nodes = reporting(scene(VFS, interfaces=card(8, 16)), scene(VFS, interfaces=card(8, 15)))
        new = rails(8)
        known = cluster(nodes, searches.asked_by_topology(new), VFS)
        for asked, expected in ((0, 0), (1000, 0), (8 * 128, 2), (10_000, 2)):
            left = partial(next, iter([True] * asked), False)
            found = searches.of_topology(new, known.policies, known.offers, left)
            assert len([*found]) == expected

    def test_attributes_missing_from_reports_are_not_guessed(self) -> None:
        nodes = reporting(scene(VFS, interfaces=card(8, 16)))
        new = rails(0, *(f'{VF} && {OURS}.mac == "02:00:00:00:00:0{pf}"' for pf in range(8)))
        assert warned(new, nodes, VFS) == ()
        assert warned(rails(8), nodes) == ()  # of a policy that is gone, the plugins are unknown
        empty = Nodes()
        empty.reports.put("n0", kept.report("n0"))
        assert warned(rails(8), empty, VFS) == ()


class TestNodes:
    def test_equal_nodes_are_checked_once_and_nodes_with_the_most_devices_first(self) -> None:
        small, large = scene(VFS, interfaces=card(2, 3)), scene(VFS, interfaces=card(8, 16))
        nodes = reporting(*[small] * 50, *[large] * 50)
        offers = asyncio.run(nodes.offers(frozenset(), named=True))
        assert [(offer.node, sum(device.count for device in offer.devices)) for offer in offers.nodes] == [
            ("n50", 128),
            ("n0", 6),
        ]
        assert offers.are_all
        assert asyncio.run(nodes.most_devices()) == 128
        nodes.reports.put("n0", kept.report("n0"))
        offers = asyncio.run(nodes.offers(frozenset(), named=True))
        assert ([offer.node for offer in offers.nodes], offers.are_all) == (["n50", "n1"], True)

    def test_offers_are_truncated_to_the_node_and_device_limits_of_a_worker(self) -> None:
        many = [scene(VFS, interfaces=card(1, 1 + number)) for number in range(MOST_NODES + 5)]
        offers = asyncio.run(reporting(*many).offers(frozenset(), named=True))
        assert (len(offers.nodes), offers.are_all) == (MOST_NODES, False)
        nodes = Nodes()
        for number in range(6):
            names_of_vfs = tuple(f"p{number}v{index}" for index in range(1000))
            group = InterfaceGroup(type="vf", count=1000, listed=names_of_vfs, devices=(PublishedDevice(policy="vfs"),))
            nodes.reports.put(f"n{number}", kept.report(f"n{number}", [group]))
        offers = asyncio.run(nodes.offers(frozenset(), named=True))
        assert 0 < sum(device.count for offer in offers.nodes for device in offer.devices) <= MOST_DEVICES
        assert not offers.are_all


def claim_for(
    steps: int, *, kind: str = "ResourceClaim", constraints: Sequence[Any] = (), **exactly: Any
) -> ResourceClaim | ResourceClaimTemplate:
    requests = [
        {"name": f"rail{pf}", "exactly": {"deviceClassName": f"rails-rail{pf}", **exactly}} for pf in range(steps)
    ]
    spec: dict[str, Any] = {"devices": {"requests": requests, "constraints": constraints}}
    spec = spec if kind == "ResourceClaim" else {"spec": spec}
    value = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "c"}, "spec": spec}
    if kind == "ResourceClaim":
        return msgspec.convert(value, ResourceClaim)
    return msgspec.convert(value, ResourceClaimTemplate)


class TestClaims:
    @pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
    def test_a_count_above_the_lanes_and_a_long_search_are_warned_of(self, request_of: Request, kind: str) -> None:
        classes = known_classes([rails(8)], [])
        nodes = reporting(scene(pooled(2), interfaces=card(8, 16)))
        new = claim_for(1, kind=kind, count=3)
        known = cluster(nodes, searches.asked_by_claim(new, classes), pooled(2), classes=classes)
        assert searches.concerns(new, classes)
        assert searches.may_be_long(new, asyncio.run(nodes.most_devices()))
        (warning,) = verdict_on(request_of(new), narrowed(request_of(new), known)).warnings
        assert warning == (
            f'{kind} "c", request "rail0": 3 devices are requested, but only 2 match on any node, and a request cannot '
            "get the same shared device twice; divide the pooled VFs into more lanes, or use several requests (ND1559)"
        )
        single = reporting(scene(VFS, interfaces=card(8, 16)))
        long = claim_for(8, kind=kind, capacity={"requests": {f"{names.DRIVER}/bandwidth": "1000"}})
        known = cluster(single, searches.asked_by_claim(long, classes), VFS, classes=classes)
        warnings = verdict_on(request_of(long), narrowed(request_of(long), known)).warnings
        assert [text.startswith(f'{kind} "c"') for text in warnings] == [True, True]

    def test_a_count_is_not_warned_of_while_some_nodes_are_unchecked(self, request_of: Request) -> None:
        classes = known_classes([rails(1)], [])
        new = claim_for(1, count=2)
        nodes = reporting(scene(pooled(), interfaces=card(1, 16)))
        known = cluster(nodes, searches.asked_by_claim(new, classes), pooled(), classes=classes)
        assert verdict_on(request_of(new), known).warnings
        part = replace(known, offers=replace(known.offers, are_all=False))
        assert verdict_on(request_of(new), part).warnings == ()

    def test_claims_of_pods_of_other_drivers_and_short_searches_ask_no_worker(self) -> None:
        classes = known_classes([rails(8)], [])
        other = msgspec.convert({"metadata": {"name": "gpu"}, "spec": {"selectors": []}}, DeviceClass)
        new = claim_for(8)
        assert searches.concerns(new, classes)
        owner = OwnerReference(api_version="v1", kind="Pod", name="p", uid="u")
        owned = replace(new, metadata=replace(new.metadata, owner_references=(owner,)))
        assert not searches.concerns(owned, classes)
        assert not searches.concerns(new, {f"rails-rail{pf}": other for pf in range(8)})
        assert not searches.may_be_long(new, 0)
        assert not searches.may_be_long(claim_for(2), 131)
        assert searches.may_be_long(claim_for(3), 131)

    def test_match_attribute_shortens_a_search_as_it_does_on_slices(self) -> None:
        """VFs of one PF are searched for on each PF alone."""
        classes = known_classes([rails(0, VF, VF, VF, f"{VF} && {OURS}.numaNode == 1")], [])
        nodes = reporting(scene(VFS, interfaces=card(4, 16)))
        for constraints in ([], [{"matchAttribute": f"{names.DRIVER}/pfName"}]):
            asked = claim_for(4, constraints=constraints)
            known = cluster(nodes, searches.asked_by_claim(asked, classes), VFS)
            assert bool([*searches.of_claim(asked, classes, known.policies, known.offers)]) == (not constraints)


SELECTORS = (
    VF,
    f'{VF} && {OURS}.pfName == "p0"',
    f'{VF} && {OURS}.pfName != "p0"',
    f"{VF} && {OURS}.numaNode == 1",
    f"{VF} && {OURS}.vfIndex < 5",
    f'{OURS}.ifName.startsWith("p1v")',
    f'{OURS}.type == "vf" || {OURS}.type == "pf"',
    f"{VF} && {OURS}.vfIndex == 0",
)


@given(
    pfs=st.integers(1, 4),
    vfs=st.integers(1, 40),
    lanes=st.integers(0, 8),
    chosen=st.lists(st.sampled_from(SELECTORS), min_size=1, max_size=6),
)
def test_the_figure_is_that_of_the_node_s_slices(pfs: int, vfs: int, lanes: int, chosen: Sequence[str]) -> None:
    """Of devices that exclude each other by nothing but themselves."""
    offered = pooled(lanes) if lanes else VFS
    made = scene(offered, interfaces=card(pfs, vfs))
    new = rails(0, *chosen)
    slices = [one for each in made.slices.values() for one in each]
    real = Allocator(slices, device_classes(new)).foresee(plain_claim(new))
    requests = ", ".join(f"rail{number}" for number in range(len(chosen)))
    listed = requests if len(chosen) <= 3 else f"rail0 … rail{len(chosen) - 1}"
    expected = [
        text
        for finding in real.findings(f'NetworkTopology "rails", requests {listed}', "node n0")
        for text in (f"{finding.what} (ND1560)", f'NetworkTopology "rails": {finding.hint} (ND1560)')
    ]
    assert [*warned(new, reporting(made), offered)] == expected


class TestFacts:
    """Steps that refer to devices are followed for the devices that nodes report."""

    def warned(self, new: NetworkTopology, *policies: DeviceExposurePolicy, named: bool = True) -> list[str]:
        nodes = reporting(scene(*policies, interfaces=card(1, 4)))
        known = cluster(nodes, searches.asked_by_topology(new), *policies, named=named)
        return [finding.text for finding in searches.of_facts(new, [], known.policies, known.offers)]

    def vf(self, config: str) -> NetworkTopology:
        return topology(f"- {{name: vf, type: sriov, selector: {{cel: '{VF}'}}, config: {{{config}}}}}")

    @pytest.mark.parametrize("named", [True, False])
    def test_a_name_that_is_too_long_for_a_device_is_warned_of(self, named: bool) -> None:
        (warning,) = self.warned(self.vf("name: 'longer-name-{{ device.ifName }}'"), VFS, named=named)
        node = 'node "n0"' if named else "a node"
        assert f'of {node} (and 3 more): interface name "longer-name-p0v' in warning

    def test_an_interface_name_that_fits_all_devices_is_not_warned_of(self) -> None:
        assert self.warned(self.vf("name: 'vf{{ device.attributes.vfIndex }}'"), VFS) == []

    def test_an_attribute_that_reports_do_not_have_is_not_known(self) -> None:
        assert self.warned(self.vf("name: 'vf{{ device.attributes.ofProvider }}'"), VFS) == []

    def test_an_attribute_of_a_policy_is(self) -> None:
        added = policy("vfs", VF, additionalAttributes={"rail": "x" * 20}, supportedCNIPlugins=[{"name": "sriov"}])
        assert len(self.warned(self.vf("name: 'r{{ device.attributes.rail }}'"), added)) == 1

    def test_an_interface_name_from_a_pooled_vf_is_not_warned_of(self) -> None:
        assert self.warned(self.vf("name: 'longer-name-{{ device.ifName }}'"), pooled(2)) == []

    def test_the_review_has_them(self, request_of: Request) -> None:
        new = self.vf("name: 'longer-name-{{ device.ifName }}'")
        known = cluster(reporting(scene(VFS, interfaces=card(1, 4))), searches.asked_by_topology(new), VFS)
        verdict = verdict_on(request_of(new), narrowed(request_of(new), known))
        assert verdict.allowed
        assert any("longer-name" in warning for warning in verdict.warnings)
