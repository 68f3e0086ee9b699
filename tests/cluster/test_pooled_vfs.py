"""Pooled VFs in a cluster: netdra's own slices and generated classes, the real scheduler, the node that chooses VFs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from netdra.model import documents, names
from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.plan import ClaimReference
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import Registration
from netdra.model.resource import DeviceAttribute
from netdra.model.topology import NetworkTopology
from netdra.slices.allocator import Allocation
from testbed import objects
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.dra import read_sequence
from testbed.objects import CLAIM, CLASS, POD, SLICE, manifest, scheduling
from testbed.workspace import Workspace, open_workspace
from tests.builders import OURS, sriov, topology
from tests.cluster.agreement import canonical
from tests.cluster.daemons import POLICY, running_controller
from tests.cluster.sriov_nodes import SRIOVNode, open_nodes
from tests.cluster.test_controller import TOPOLOGY, is_ready
from tests.drawn import pooled
from tests.drawn.pooled import ROWS, VFS

LANES = (1, 2, 4)
MODE = "pooled.example.com/mode"
"""The label of a node that says by which policies it offers VFs."""
PENDING = "cannot allocate all claims"
RAILS = 8
RAIL_VFS = 16
MOST_CPU_SECONDS = 1.0
"""Of the scheduler, for pods of all rails; one device per VF takes it more than a minute, and no pod is bound."""
SINGLE = {"supportedCNIPlugins": [{"name": "sriov", "exclusive": True}], "pooledVFs": None, "capacity": None}
GPU = "gpu.example.com"
FABRIC = "fabric.example.com"


@dataclass(frozen=True)
class Site:
    """Nodes with two PFs, and the policies of their VFs, by how many lanes they have; a namespace; a class of VFs."""

    workspace: Workspace
    nodes: Mapping[int, SRIOVNode]
    policies: Mapping[int, str]
    plain: str

    def vf(self, name: str, **fields: Any) -> Object:
        """A request for a pooled VF of the first PF, by a class without a topology."""
        return pooled.pooled(name, 0, deviceClassName=self.plain, **fields)

    def classes(self) -> list[DeviceClass]:
        return [msgspec.convert(each, DeviceClass) for each in self.workspace.api.list(CLASS)]

    def claim(self, name: str) -> ResourceClaim:
        return msgspec.convert(self.workspace.api.get(CLAIM, name, self.workspace.namespace), ResourceClaim)

    def reference(self, name: str) -> ClaimReference:
        return self.claim(name).reference


@dataclass(frozen=True)
class Rails:
    """Nodes, the label that pods select them by, and the class of each rail."""

    nodes: Sequence[SRIOVNode]
    mode: str
    classes: Mapping[str, str]

    def add_pod(self, workspace: Workspace, name: str, requests: Sequence[Object] = ()) -> str:
        """A pod for any of the nodes, with a claim of its name if it requests something."""
        claims = [workspace.add_claim(name, *requests)] if requests else []
        made = objects.pod(workspace.namespace, name, {claim: claim for claim in claims})
        made["spec"]["nodeSelector"] = {MODE: self.mode}
        workspace.api.create(made)
        return name


class Place(Protocol):
    """Has a new pod with a claim scheduled, and returns the claim's name, or ("", why the pod is Pending)."""

    def __call__(
        self, *requests: Object, node: SRIOVNode, constraints: list[Object] | None = None
    ) -> tuple[str, str]: ...


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller, installed and at work."""
    with running_controller(control_plane, api):
        yield


@pytest.fixture(scope="module")
def site(
    control_plane: ControlPlane, api: Api, controller: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Nodes with VFs, and the topology of the rows."""
    with open_workspace(api) as workspace:
        machines, policies = {}, {}
        for lanes in LANES:
            mode = workspace.name(f"lanes-{lanes}")
            machines[workspace.add_node(f"lanes-{lanes}", {MODE: mode})] = pooled.interfaces()
            policies[lanes], _ = (offer(workspace, each, mode) for each in pooled.policies(lanes))
        add_topology(workspace, pooled.TOPOLOGY)
        plain = workspace.add_class("plain", f'device.driver == "{names.DRIVER}" && {OURS}.type == "vf"')
        with open_nodes(control_plane, api, machines, tmp_path_factory.mktemp("nodes")) as nodes:
            workspace.settle(next(iter(nodes)))
            yield Site(workspace, dict(zip(LANES, nodes.values(), strict=True)), policies, plain)


@pytest.fixture(scope="module")
def rails(
    control_plane: ControlPlane, api: Api, controller: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rails]:
    """Eight nodes with eight PFs, and a topology with a VF of each."""
    with open_workspace(api) as workspace:
        mode = workspace.name("rails")
        (every, *_) = pooled.policies(1)
        offer(workspace, every, mode)
        pfs = [f"rail{number}" for number in range(RAILS)]
        steps = "\n".join(
            f'- {{name: {pf}, type: sriov, selector: {{cel: \'{OURS}.type == "vf" && {OURS}.pfName == "{pf}"\'}}}}'
            for pf in pfs
        )
        add_topology(workspace, topology(steps, name=workspace.name("rails")))
        machine = [each for bus, pf in enumerate(pfs) for each in sriov(pf, RAIL_VFS, speed=pooled.SPEED, bus=bus)]
        machines = {workspace.add_node(f"rails-{number}", {MODE: mode}): machine for number in range(RAILS)}
        with open_nodes(control_plane, api, machines, tmp_path_factory.mktemp("rails")) as nodes:
            workspace.settle(next(iter(nodes)))
            yield Rails([*nodes.values()], mode, {pf: f"{workspace.name('rails')}-{pf}" for pf in pfs})


@pytest.fixture
def place(site: Site) -> Iterator[Place]:
    """Pods of the test; what they have is free again afterwards."""
    with ExitStack() as undo:

        def placed(*requests: Object, node: SRIOVNode, constraints: list[Object] | None = None) -> tuple[str, str]:
            name, why = site.workspace.place(*requests, node=node.name, constraints=constraints)
            if name:
                undo.callback(site.workspace.release, name, name)
            return name, why

        yield placed


def offer(workspace: Workspace, policy: DeviceExposurePolicy, mode: str) -> str:
    """Make a policy of the nodes of a mode, and return its name."""
    written = documents.plain(policy)
    name = written["metadata"]["name"] = workspace.name(f"{policy.name}-{mode}")
    written["spec"]["nodeSelector"] = {"matchLabels": {MODE: mode}}
    workspace.create(written)
    return name


def add_topology(workspace: Workspace, made: NetworkTopology) -> None:
    """Make a topology, and wait until the controller has made its classes."""
    workspace.create(documents.plain(made))
    workspace.api.wait_for(TOPOLOGY, made.name, is_ready)


@pytest.mark.parametrize("row", ROWS)
def test_the_scheduler_gives_pooled_vfs_as_the_allocator_does(site: Site, place: Place, row: str) -> None:
    lanes, pods = ROWS[row]
    node = site.nodes[lanes]
    outcomes = pooled.allocate(row, node.slices(), site.classes(), node.name)
    for pod, outcome in zip(pods, outcomes, strict=True):
        assert list(pooled.given(outcome)) == list(pod.given)
        name, why = place(*pod.requests, node=node, constraints=list(pod.constraints))
        if isinstance(outcome, Allocation):
            assert why == ""
            assert canonical(site.claim(name)) == canonical(outcome.claims[0])
        else:
            assert PENDING in why


def test_the_limit_of_an_extended_resource_is_the_count_of_one_request(site: Site, workspace: Workspace) -> None:
    """So a container never gets two shares of one pooled device by it."""
    resources = {step: f"example.com/{workspace.name(step)}" for step in ("any", "one")}
    steps = f"""
    - {{name: any, type: sriov, extendedResourceName: {resources["any"]}, selector: {{cel: '{OURS}.type == "vf"'}}}}
    - {{name: one, type: sriov, extendedResourceName: {resources["one"]}, selector: {{cel: '{OURS}.pfName == "eth0"'}}}}
    """
    add_topology(workspace, topology(steps, name=workspace.name("extended")))
    workspace.settle(site.nodes[1].name)

    def schedule(lanes: int, step: str, limit: int) -> str:
        name = f"{step}-{limit}-of-{lanes}"
        made = objects.pod(workspace.namespace, name, node=site.nodes[lanes].name)
        made["spec"]["containers"][0]["resources"] = {"limits": {resources[step]: str(limit)}}
        workspace.api.create(made)
        return workspace.schedule(name)[1]

    assert [schedule(1, "any", 2), schedule(1, "one", 1), schedule(2, "one", 2)] == [""] * 3
    for lanes, step, limit in ((1, "one", 2), (1, "any", 3), (2, "one", 3)):
        assert PENDING in schedule(lanes, step, limit)
    workspace.api.delete_all(POD, workspace.namespace)
    workspace.api.wait_for_all(CLAIM, lambda claims: not claims, namespace=workspace.namespace)


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("resource.kubernetes.io/pcieRoot", [["eth0-vfs", "gpu1"], ["eth1-vfs", "gpu0"]]),
        (f"{FABRIC}/rail", [["eth0-vfs", "gpu0"], ["eth1-vfs", "gpu1"]]),
    ],
)
def test_a_vf_comes_from_where_another_drivers_device_is(
    site: Site, place: Place, workspace: Workspace, attribute: str, expected: list[list[str]]
) -> None:
    """By an attribute that all drivers know, and by one that a provider has registered of the pooled VFs."""
    node = site.nodes[1]
    rails = {f"eth{rail}-vfs": {"rail": DeviceAttribute(int_=rail)} for rail in range(2)}
    gpus = [
        {
            "name": f"gpu{rail}",
            "attributes": {
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:0{1 - rail}"},
                f"{FABRIC}/rail": {"int": rail},
            },
        }
        for rail in range(2)
    ]
    device_class = workspace.add_class("gpu", f'device.driver == "{GPU}"')
    published = manifest(
        SLICE,
        workspace.name("gpus"),
        spec={
            "driver": GPU,
            "nodeName": node.name,
            "pool": {"name": workspace.name("gpus"), "generation": 1, "resourceSliceCount": 1},
            "devices": gpus,
        },
    )
    requests = [pooled.pooled("nic"), {"name": "gpu", "exactly": {"deviceClassName": device_class}}]
    same: list[Object] = [{"matchAttribute": attribute}]
    with node.registered(
        *(Registration(provider=FABRIC, device=name, attributes=each) for name, each in rails.items())
    ):
        node.wait(lambda found: all(f"{FABRIC}/rail" in found[name]["attributes"] for name in rails))
        workspace.publish(node.name, published)
        placed = [place(*requests, node=node, constraints=same) for _ in range(3)]
        assert [site.workspace.devices(name) for name, _ in placed[:2]] == expected
        assert PENDING in placed[2][1], "VFs are left, but no GPU beside them"


def test_a_pf_without_a_link_gets_no_new_claims_but_those_that_tolerate_it(site: Site, place: Place) -> None:
    node, workspace = site.nodes[1], site.workspace
    before, _ = place(pooled.pooled("r", 0), node=node)
    with node.without_link("eth0"):
        workspace.settle(node.name)
        waiting = workspace.add_claim(workspace.name("waiting"), pooled.pooled("r", 0))
        workspace.add_pod(waiting, waiting, node=node.name)
        assert PENDING in workspace.schedule(waiting)[1]
        tolerations = [{"key": names.LINK_DOWN, "operator": "Exists", "effect": "NoSchedule"}]
        tolerating, _ = place(pooled.pooled("r", 0, tolerations=tolerations), node=node)
        other, _ = place(pooled.pooled(), node=node)
        devices = [workspace.devices(name) for name in (before, tolerating, other)]
        assert devices == [["eth0-vfs"], ["eth0-vfs"], ["eth1-vfs"]]
    workspace.wait_placed(waiting, node.name)
    workspace.release(waiting, waiting)


def vfs_of(node: SRIOVNode, claim: ClaimReference) -> list[str]:
    """The VFs of a prepared claim, in the order of its allocation."""
    return [device.facts.pci_address for device in node.record(claim).devices]


def described(node: SRIOVNode, claim: ClaimReference, request: str) -> tuple[str, str]:
    """The share's device and its VF as the metadata of a request state it."""
    newest, _ = read_sequence(node.files.metadata_path(claim.uid, request).read_text())
    (found,) = newest["requests"]
    (device,) = found["devices"]
    return device["name"], device["attributes"]["dra.networking/pciAddress"]["string"]


def test_shares_of_one_pool_are_vfs_of_their_own_in_answers_records_and_metadata(site: Site, place: Place) -> None:
    node = site.nodes[1]
    claims = {}
    for requests in (["a", "b"], ["c"], ["d"]):
        name, why = place(*(site.vf(request) for request in requests), node=node)
        assert why == ""
        claims[site.reference(name)] = (site.claim(name), requests)
    had: list[str] = []
    for reference, (claim, requests) in claims.items():
        assert claim.status.allocation is not None
        shares = [result.share_id for result in claim.status.allocation.devices.results]
        prepared = node.prepare(reference)
        assert [(each.share_id, each.device) for each in prepared] == [(share, "eth0-vfs") for share in shares]
        vfs = vfs_of(node, reference)
        assert [described(node, reference, request) for request in requests] == [("eth0-vfs", vf) for vf in vfs]
        had += vfs
        assert node.prepare(reference) == prepared
    assert len(set(had)) == 4
    for reference in claims:
        node.unprepare(reference)


@pytest.mark.parametrize(
    "after", [{"pooledVFs": {"lanes": 1}}, {"pooledVFs": {"lanes": 2}}, SINGLE], ids=["1", "2", "single"]
)
def test_a_claim_keeps_its_vf_when_the_policy_offers_vfs_in_another_way(
    site: Site, place: Place, after: Mapping[str, Any]
) -> None:
    """Its device stays published beside the new ones, which are of the other VFs, and is given to no other claim."""
    node, api, policy = site.nodes[4], site.workspace.api, site.policies[4]
    before = api.get(POLICY, policy)["spec"]["exposure"]
    name, _ = place(site.vf("r", bandwidth="10000"), node=node)
    kept = site.reference(name)
    answer, had = node.prepare(kept), vfs_of(node, kept)
    others: list[ClaimReference] = []
    try:
        api.patch(POLICY, policy, {"spec": {"exposure": after}})
        node.wait(lambda found: "eth0-vfs0" in found and not {"eth0-vfs3", "eth1-vfs3"} & set(found))
        site.workspace.settle(node.name)
        assert site.workspace.devices(name) == ["eth0-vfs0"]
        amount = {} if after is SINGLE else {"bandwidth": "1000"}
        rest = [site.vf(f"r{number}", **amount) for number in range(VFS)]
        more, why = place(*rest[1:], node=node)
        assert why == "", node.slices()
        assert PENDING in place(rest[0], node=node)[1]
        others.append(site.reference(more))
        node.prepare(others[0])
        assert len({*had, *vfs_of(node, others[0])}) == VFS
        assert node.prepare(kept) == answer
        assert vfs_of(node, kept) == had
    finally:
        for claim in (kept, *others):
            node.unprepare(claim)
        api.patch(POLICY, policy, {"spec": {"exposure": before}})
        node.wait(lambda found: {f"eth{pf}-vfs{lane}" for pf in range(2) for lane in range(4)} < set(found))


def scheduler_seconds(plane: ControlPlane) -> float:
    """The CPU time of the scheduler, by its threads: /proc/PID/stat only counts in 10 ms."""
    threads = Path(f"/proc/{plane.scheduler.pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


@pytest.mark.parametrize("has_link", [True, False], ids=["used up", "without a link"])
def test_pods_of_all_rails_are_bound_at_once_though_a_rail_of_one_node_has_no_vf_left(
    control_plane: ControlPlane, rails: Rails, workspace: Workspace, has_link: bool
) -> None:
    """The scheduler tries every combination of a node's devices before it knows that the last rail has none left."""
    (node, *_), (*_, last) = rails.nodes, rails.classes
    with ExitStack() as undo:
        if has_link:
            least = {"deviceClassName": rails.classes[last], "capacity": {"requests": {pooled.BANDWIDTH: "100"}}}
            every: list[Object] = [{"name": f"r{number}", "exactly": least} for number in range(RAIL_VFS)]
            assert workspace.place(*every, node=node.name)[1] == ""
        else:
            undo.enter_context(node.without_link(last))
            workspace.settle(node.name)

        before = scheduler_seconds(control_plane)
        requests = [{"name": rail, "exactly": {"deviceClassName": each}} for rail, each in rails.classes.items()]
        pods = [rails.add_pod(workspace, name, requests) for name in ("first", "second", "third")]
        beside = rails.add_pod(workspace, "beside")
        bound = [wait_bound(workspace, name) for name in (*pods, beside)]
        took = scheduler_seconds(control_plane) - before

    assert node.name not in bound[: len(pods)]
    for name in pods:
        assert workspace.devices(name) == [f"{rail}-vfs" for rail in rails.classes]
    assert took < MOST_CPU_SECONDS


def wait_bound(workspace: Workspace, name: str) -> str:
    """The node that a pod is bound to, once it is."""
    bound = workspace.api.wait_for(POD, name, lambda found: bool(scheduling(found)[0]), namespace=workspace.namespace)
    return scheduling(bound)[0]
