"""Claims that the real scheduler allocated, prepared against the real API server: answers, records, every refusal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.exposure import expose
from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.model import documents, names
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims import prepare as preparing
from netdra.node.claims.prepare import Claims
from netdra.node.claims.store import ClaimStore
from netdra.node.view import HeldDevice
from netdra.slices.pack import layout
from netdra.topology.classes import device_classes
from netdra.topology.devices import DeviceKey, from_slices
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, HOSTNAME, NAMESPACE, POD, manifest
from testbed.workspace import Workspace
from tests.builders import OURS, exclusive, inventory, policy, shared, sriov
from tests.cluster.fault_proxy import Answer, FaultProxy

WITHIN = 60.0
PF, VF = f'{OURS}.type == "pf"', f'{OURS}.type == "vf"'
POLICIES = (
    exclusive("vfs", VF, "sriov", "host-device"),
    exclusive("whole", PF, "host-device", deviceNameSuffix="-whole"),
    shared("mac", PF, deviceNameSuffix="-mac", exclusionGroup="g", supportedCNIPlugins=[{"name": "macvlan"}]),
    shared("ip", PF, deviceNameSuffix="-ip", exclusionGroup="g", supportedCNIPlugins=[{"name": "ipvlan"}]),
    policy("overlay", PF, deviceNameSuffix="-ovn", supportedCNIPlugins=[{"name": "ovn-k8s-cni-overlay"}]),
)
BONDED = """
- {name: vf0, type: sriov, selector: {cel: 'true'}}
- {name: vf1, type: sriov, selector: {cel: 'true'}}
- {name: bond0, type: bond, dependOn: [vf0, vf1], config: {mode: active-backup,
    links: ['{{ vf0.interfaceName }}', '{{ vf1.interfaceName }}']}}
"""


@dataclass
class View:
    """The node as the publishing half would have it."""

    slices: Sequence[ResourceSlice]
    topologies: Mapping[str, NetworkTopology] = field(default_factory=dict)
    ready: bool = True

    @property
    def devices(self) -> Mapping[DeviceKey, PlannedDevice]:
        return from_slices(self.slices)


@dataclass
class Holders:
    held: Sequence[HeldDevice] = ()


@dataclass
class Scene:
    """A node with a NIC, its devices published, and the handler of its claims behind a proxy."""

    workspace: Workspace
    node: str
    view: View
    holders: Holders
    proxy: FaultProxy
    claims: Claims
    store: ClaimStore
    files: ClaimFiles

    def topology(self, name: str, steps: str) -> NetworkTopology:
        """A topology that the node knows, with its classes in the cluster."""
        made = documents.read(
            f"apiVersion: networking.dra.io/v1alpha1\nkind: NetworkTopology\n"
            f"metadata: {{name: {self.workspace.name(name)}}}\nspec:\n  steps:\n"
            + "\n".join(f"    {line}" for line in steps.strip().splitlines()),
            "test",
        )
        (topology,) = made
        assert isinstance(topology, NetworkTopology)
        self.view.topologies = {**self.view.topologies, topology.name: topology}
        for each in device_classes(topology):
            self.workspace.create(documents.plain(each))
        return topology

    def device_class(self, expression: str, parameters: Any = None, **spec: Any) -> str:
        """A class that an administrator wrote by hand."""
        name = self.workspace.name(f"class-{len(spec)}-{abs(hash((expression, str(parameters)))) % 10_000}")
        opaque = {"opaque": {"driver": names.DRIVER, "parameters": parameters}}
        selectors = [{"cel": {"expression": f'device.driver == "{names.DRIVER}" && {expression}'}}]
        config = [opaque] if parameters is not None else []
        self.workspace.create(manifest(CLASS, name, spec={"selectors": selectors, "config": config, **spec}))
        return name

    def allocated(self, claim: str, *requests: Object, pods: int = 1, config: Any = (), **pod: Any) -> ClaimReference:
        """A claim that pods have and the scheduler has allocated here."""
        api, namespace = self.workspace.api, self.workspace.namespace
        spec = {"devices": {"requests": list(requests), "config": list(config)}}
        made = api.create(manifest(CLAIM, claim, namespace, spec=spec))
        for number in range(pods):
            self.run_pod(f"{claim}-{number}", claim, **pod)
        api.wait_for(
            CLAIM,
            claim,
            lambda found: len((found or {}).get("status", {}).get("reservedFor", [])) == pods,
            namespace=namespace,
        )
        return ClaimReference(namespace=namespace, name=claim, uid=made["metadata"]["uid"])

    def run_pod(self, name: str, claim: str = "", *, limits: Mapping[str, str] | None = None, **spec: Any) -> None:
        container = {"name": "main", "image": "none", "resources": {"limits": dict(limits or {})}}
        claims = [{"name": "net", "resourceClaimName": claim}] if claim else []
        self.workspace.api.create(
            manifest(
                POD,
                name,
                self.workspace.namespace,
                spec={
                    "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": False,
                    "nodeSelector": {HOSTNAME: self.node},
                    "containers": [container],
                    "resourceClaims": claims,
                    **spec,
                },
            )
        )


@asynccontextmanager
async def node(plane: ControlPlane, workspace: Workspace, folder: Path) -> AsyncIterator[Scene]:
    name = workspace.add_node()
    found = expose(inventory(*sriov("eth0", 6), node=name), POLICIES)
    slices = layout(found, node=name).slices
    workspace.publish(name, *(documents.plain(each) for each in slices))
    view, holders = View(slices), Holders()
    store = ClaimStore.of_state(folder / "state")
    files = ClaimFiles(plugin=folder / "plugin", cdi=folder / "cdi")
    async with (
        asyncio.timeout(WITHIN),
        FaultProxy(plane).serving() as proxy,
        Client(connect(proxy.config)) as client,
    ):
        claims = Claims(client, name, view, holders, store, files)
        yield Scene(workspace, name, view, holders, proxy, claims, store, files)


def request(name: str, device_class: str, **further: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": device_class, **further}}


def supporting(plugin: str) -> str:
    return f'{OURS}.supportedCNIs.contains(",{plugin},")'


def reserved(claim: Object | None) -> list[Object]:
    found: list[Object] = (claim or {}).get("status", {}).get("reservedFor", [])
    return found


def extended(pod: Object | None) -> Object:
    found: Object = (pod or {}).get("status", {}).get("extendedResourceClaimStatus", {})
    return found


@pytest.fixture
def tell(control_plane: ControlPlane, workspace: Workspace, tmp_path: Path) -> Any:
    """Runs a story on a node of its own."""

    def run(story: Any) -> None:
        async def whole() -> None:
            async with node(control_plane, workspace, tmp_path) as scene:
                await story(scene)

        asyncio.run(whole())

    return run


def test_a_claim_is_prepared_once_answered_alike_and_forgotten_without_the_api(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        topology = scene.topology("bonded", BONDED)
        wanted = scene.allocated("c", request("vf0", f"{topology.name}-vf0"), request("vf1", f"{topology.name}-vf1"))
        told = await scene.claims.prepare(wanted)
        assert [each.requests for each in told] == [("vf0",), ("vf1",)]
        assert [each.cdi_ids for each in told] == [
            (f"dra.networking/claim={wanted.uid}-vf0",),
            (f"dra.networking/claim={wanted.uid}-vf1",),
        ]
        assert len({each.device for each in told}) == 2
        record = scene.store.get(wanted.uid)
        assert record is not None
        assert record.claim == wanted
        described = scene.files.plugin / "dra-device-metadata" / wanted.uid / "vf0" / "metadata.json"
        metadata = json.loads(described.read_text())
        (device,) = metadata["requests"][0]["devices"]
        assert device["attributes"]["dra.networking/pciAddress"]["string"].startswith("0000:")
        assert "networkData" not in device
        assert scene.files.specified() == ()

        # Again, as the kubelet does after its restart: the same answer, and the files anew.
        described.unlink()
        scene.view.slices = ()
        assert await scene.claims.prepare(wanted) == told
        assert described.exists()
        asked = len(scene.proxy.requests)
        for _ in range(2):
            await scene.claims.unprepare(wanted)
        assert len(scene.proxy.requests) == asked
        assert scene.store.get(wanted.uid) is None
        assert not described.parent.parent.exists()

    tell(story)


def test_a_claim_that_lacks_a_root_step_is_refused_in_these_words(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        topology = scene.topology("bonded", BONDED)
        wanted = scene.allocated("ai-gpu-bonded-rdma", request("vf0", f"{topology.name}-vf0"))
        with pytest.raises(InvalidInputError) as caught:
            await scene.claims.prepare(wanted)
        assert str(caught.value) == (
            f'NetworkTopology "{topology.name}" root step "vf1" has no matching device request in '
            'ResourceClaim "ai-gpu-bonded-rdma".\n'
            f'The ResourceClaim must contain a request named "vf1" with deviceClassName "{topology.name}-vf1".'
        )
        assert scene.store.uids() == frozenset()

    tell(story)


def test_several_topologies_plain_devices_and_alternatives_are_in_one_claim(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        bonded = scene.topology("bonded", BONDED)
        single = scene.topology("single", f"- {{name: nic, type: macvlan, selector: {{cel: '{PF}'}}}}")
        plain = scene.device_class(VF)
        nowhere = scene.device_class(f'{OURS}.ifName == "nowhere"')
        best, good = ({"name": "best", "deviceClassName": nowhere}, {"name": "good", "deviceClassName": plain})
        wanted = scene.allocated(
            "c",
            request("vf0", f"{bonded.name}-vf0"),
            request("vf1", f"{bonded.name}-vf1"),
            {"name": "main", "firstAvailable": [best, good]},
            request("two", plain, count=2),
            request("nic", f"{single.name}-nic"),
        )
        told = await scene.claims.prepare(wanted)
        assert [each.requests[0] for each in told] == ["vf0", "vf1", "main/good", "two", "two", "nic"]
        # One CDI device a request, and a container with the request gets it once.
        assert [each.cdi_ids for each in told[2:5]] == [
            (f"dra.networking/claim={wanted.uid}-main",),
            (f"dra.networking/claim={wanted.uid}-two",),
            (),
        ]

    tell(story)


def test_a_device_that_nothing_can_attach_is_refused(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = scene.allocated("c", request("net", scene.device_class(supporting("ovn-k8s-cni-overlay"))))
        with pytest.raises(InvalidInputError, match='request "net": nothing says how device "eth0-ovn" is attached'):
            await scene.claims.prepare(wanted)

    tell(story)


def test_a_class_says_how_its_devices_are_attached(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        parameters = {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "DeviceParameters",
            "step": {"type": "tuning"},
        }
        wrong = scene.allocated("wrong", request("net", scene.device_class(VF, parameters)))
        with pytest.raises(InvalidInputError, match='step type "tuning" is not among the plugins'):
            await scene.claims.prepare(wrong)
        parameters["step"] = {"type": "host-device", "config": {"name": "data0"}}
        right = scene.allocated("right", request("net", scene.device_class(VF, parameters)))
        assert len(await scene.claims.prepare(right)) == 1

    tell(story)


def test_a_device_with_admin_access_is_prepared_beside_its_owner(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        scene.workspace.api.patch(NAMESPACE, scene.workspace.namespace, label)
        one = scene.device_class(f"{VF} && {OURS}.vfIndex == 0")
        owner = scene.allocated("owner", request("net", one))
        watcher = scene.allocated("watcher", request("net", one, adminAccess=True), hostNetwork=True)
        assert (await scene.claims.prepare(owner))[0].device == (await scene.claims.prepare(watcher))[0].device
        record = scene.store.get(watcher.uid)
        assert record is not None
        assert record.devices[0].admin_access

    tell(story)


def test_a_pod_on_the_host_s_network_is_refused(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = scene.allocated("c", request("net", scene.device_class(VF)), hostNetwork=True)
        with pytest.raises(InvalidInputError, match='pod "c-0" is on the host\'s network'):
            await scene.claims.prepare(wanted)

    tell(story)


def test_pods_share_a_claim_only_if_its_device_stays_on_the_host(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        shared_device = scene.device_class(supporting("macvlan"))
        both = scene.allocated("both", request("net", shared_device), pods=2)
        assert (await scene.claims.prepare(both))[0].share_id
        moved = scene.allocated("moved", request("net", scene.device_class(VF)), pods=2)
        with pytest.raises(
            InvalidInputError, match=r'shared by pods moved-\d, moved-\d, but step "net" \(sriov\) moves'
        ):
            await scene.claims.prepare(moved)

    tell(story)


def test_what_a_claim_s_author_says_of_the_driver_is_refused_by_the_rule(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        topology = scene.topology("single", "- {name: net, type: sriov, selector: {cel: 'true'}}")
        parameters = {"networkTopologyRef": {"name": topology.name}, "step": "net"}
        config = [{"requests": ["net"], "opaque": {"driver": names.DRIVER, "parameters": parameters}}]
        plain = scene.device_class(VF)
        wanted = scene.allocated("c", request("net", plain), request("other", plain), config=config)
        with pytest.raises(InvalidInputError, match=r"configuration of its own .* for requests net; .*decision D10"):
            await scene.claims.prepare(wanted)

    tell(story)


def test_ten_kibibytes_of_another_drivers_brackets_are_passed_over(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = ClaimReference(namespace="ns", name="c", uid="u")
        opaque = '{"driver": "gpu.example.com", "parameters": ' + "[" * 5000 + "]" * 5000 + "}"
        config = '{"source": "FromClaim", "opaque": ' + opaque + "}"
        status = '{"allocation": {"devices": {"config": [' + config + "]}}}"
        body = '{"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": {}, "status": ' + status + "}"
        # As the API server would answer; the test bed's own client could not read such an object.
        scene.proxy.fault = lambda _: Answer(200, body.encode())
        assert await scene.claims.prepare(wanted) == ()

    tell(story)


def test_another_claim_of_the_name_and_one_that_is_gone_are_refused(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = scene.allocated("c", request("net", scene.device_class(VF)))
        former = msgspec.structs.replace(wanted, uid="00000000-0000-4000-8000-000000000000")
        with pytest.raises(NetdraError, match="it was deleted and made anew"):
            await scene.claims.prepare(former)
        with pytest.raises(PermanentError, match="is not there any more"):
            await scene.claims.prepare(msgspec.structs.replace(wanted, name="gone"))

    tell(story)


def test_a_claim_of_another_node_is_refused(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = scene.allocated("c", request("net", scene.device_class(VF)))
        elsewhere = Claims(scene.claims._client, "elsewhere", scene.view, scene.holders, scene.store, scene.files)
        with pytest.raises(PermanentError, match=f'is allocated for node {scene.node}, and this is "elsewhere"'):
            await elsewhere.prepare(wanted)

    tell(story)


def test_faults_of_the_api_server_are_waited_out_and_refusals_are_not(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = scene.allocated("c", request("net", scene.device_class(VF)))
        answers = [Answer.status(503), Answer.status(429), Answer.status(500)]
        scene.proxy.fault = lambda _: answers.pop() if answers else None
        scene.view.ready = False
        asyncio.get_running_loop().call_later(0.5, setattr, scene.view, "ready", True)
        assert len(await scene.claims.prepare(wanted)) == 1
        assert not answers

        await scene.claims.unprepare(wanted)
        asked = len(scene.proxy.requests)
        scene.proxy.fault = lambda _: Answer.status(403)
        with pytest.raises(PermanentError, match="403"):
            await scene.claims.prepare(wanted)
        assert len(scene.proxy.requests) == asked + 1

    tell(story)


def test_a_device_or_topology_that_the_node_does_not_know_is_told(tell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "VIEW_SECONDS", 0.3)

    async def story(scene: Scene) -> None:
        topology = scene.topology("single", "- {name: net, type: sriov, selector: {cel: 'true'}}")
        wanted = scene.allocated("c", request("net", f"{topology.name}-net"))
        scene.view.topologies = {}
        with pytest.raises(TemporaryError, match=f'NetworkTopology "{topology.name}".* is not there'):
            await scene.claims.prepare(wanted)
        scene.view.topologies = {topology.name: topology}
        slices, scene.view.slices = scene.view.slices, ()
        with pytest.raises(TemporaryError, match="is not known on this node"):
            await scene.claims.prepare(wanted)
        asyncio.get_running_loop().call_later(0.1, setattr, scene.view, "slices", slices)
        assert len(await scene.claims.prepare(wanted)) == 1

    tell(story)


def test_a_device_that_excludes_what_is_held_is_refused_until_that_is_given_back(tell: Any) -> None:
    """The scheduler is told of no counters, as by a server that drops them; the node knows them."""

    async def story(scene: Scene) -> None:
        counted = scene.view.slices
        bare = [without_counters(each) for each in counted]
        for each in bare:
            scene.workspace.api.apply(documents.plain(each))
        for each in counted:
            if each.spec.shared_counters:
                scene.workspace.api.delete("resource.k8s.io/v1/ResourceSlice", each.metadata.name)
        scene.workspace.settle(scene.node)
        mac = scene.allocated("mac", request("net", scene.device_class(supporting("macvlan"))))
        ip = scene.allocated("ip", request("net", scene.device_class(supporting("ipvlan"))))
        # Both are allocated, neither is prepared: the one that comes first has it.
        await scene.claims.prepare(mac)
        namespace = scene.workspace.namespace
        with pytest.raises(PermanentError) as caught:
            await scene.claims.prepare(ip)
        assert f'ResourceClaim "{namespace}/ip", request "net": device "eth0-ip"' in caught.value.what
        assert f'"eth0-mac", which ResourceClaim "{namespace}/mac" has' in caught.value.what
        await scene.claims.unprepare(mac)

        # One that could not be given back holds on, though its claim is no longer prepared.
        held = HeldDevice(key=(f"{scene.node}-sriov-eth0", "eth0-mac"), claim=mac.uid, trouble="busy")
        scene.holders.held = (held,)
        with pytest.raises(PermanentError, match=r"which the claim with uid .* \(busy\) has"):
            await scene.claims.prepare(ip)
        scene.holders.held = ()
        assert len(await scene.claims.prepare(ip)) == 1

    tell(story)


def without_counters(published: ResourceSlice) -> ResourceSlice:
    spec = published.spec
    devices = tuple(msgspec.structs.replace(each, consumes_counters=()) for each in spec.devices)
    pool = msgspec.structs.replace(spec.pool, generation=2, resource_slice_count=1)
    counters = () if spec.devices else spec.shared_counters
    changed = msgspec.structs.replace(spec, devices=devices, pool=pool, shared_counters=counters)
    return msgspec.structs.replace(published, spec=changed)


def test_a_claim_of_an_extended_resource_is_prepared_like_any_other(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        resource = f"example.com/vf-{scene.workspace.name('x')}"
        topology = scene.topology(
            "single",
            f"- {{name: net, type: sriov, selector: {{cel: '{VF}'}}, extendedResourceName: {resource}}}",
        )
        api, namespace = scene.workspace.api, scene.workspace.namespace
        scene.run_pod("extended", limits={resource: "2"})
        pod = api.wait_for(POD, "extended", lambda found: bool(extended(found)), namespace=namespace)
        claim = api.get(CLAIM, extended(pod)["resourceClaimName"], namespace)
        metadata = claim["metadata"]
        wanted = ClaimReference(namespace=namespace, name=metadata["name"], uid=metadata["uid"])
        told = await scene.claims.prepare(wanted)
        assert [each.requests for each in told] == [("container-0-request-0",)] * 2
        record = scene.store.get(wanted.uid)
        assert record is not None
        assert topology.name in scene.view.topologies

    tell(story)


def test_after_the_machine_s_restart_a_claim_is_looked_at_anew(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = scene.allocated("c", request("net", scene.device_class(VF)))
        told = await scene.claims.prepare(wanted)
        record = scene.store.get(wanted.uid)
        assert record is not None
        scene.store.put(msgspec.structs.replace(record, boot_id="an earlier one"))
        asked = len(scene.proxy.requests)
        assert await scene.claims.prepare(wanted) == told
        assert len(scene.proxy.requests) > asked
        assert scene.store.get(wanted.uid) == record

    tell(story)


def test_a_record_of_other_devices_than_the_claim_has_now_does_not_count(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = scene.allocated("c", request("net", scene.device_class(VF)))
        told = await scene.claims.prepare(wanted)
        record = scene.store.get(wanted.uid)
        assert record is not None
        (kept,) = record.devices
        former = msgspec.structs.replace(kept, told=msgspec.structs.replace(kept.told, device="eth0v5"))
        scene.store.put(msgspec.structs.replace(record, devices=(former,)))
        assert await scene.claims.prepare(wanted) == told
        assert scene.store.get(wanted.uid) == record

    tell(story)


def test_claims_are_prepared_side_by_side_by_two_daemons(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        another = Claims(
            scene.claims._client, scene.node, scene.view, scene.holders, ClaimStore(scene.store.folder), scene.files
        )
        plain = scene.device_class(VF)
        wanted = [scene.allocated(f"c{number}", request("net", plain)) for number in range(5)]
        found = await asyncio.gather(*(who.prepare(each) for each in wanted for who in (scene.claims, another)))
        assert found[::2] == found[1::2]
        assert len({told[0].device for told in found}) == 5
        assert scene.store.uids() == {each.uid for each in wanted}

    tell(story)
