"""The controller of ports in Neutron, with an API server and a Neutron in memory."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from msgspec.structs import replace

from netdra.controller.neutron import ports
from netdra.controller.neutron.ports import NeutronPorts, NeutronSettings
from netdra.kube.errors import NotFoundError, Status, UnavailableError
from netdra.kube.store import Store
from netdra.model.claim import ClaimUse, ResourceClaim
from netdra.model.meta import OwnerReference
from netdra.model.neutron_port import NeutronPort, NeutronPortStatus, name_of
from netdra.model.topology import NetworkTopology
from netdra.neutron.answers import NeutronNetwork, PortRequest
from netdra.neutron.client import Neutron
from netdra.neutron.errors import NeutronRefusedError, UnauthorizedError, UnreachableError
from netdra.neutron.marks import OWNER
from netdra.neutron.session import Session
from tests.unit.controller.test_neutron_ports import claim, node, topology

NAMED = "5c1f7f3e-0000-4000-8000-000000000000"
BLUE, GREEN = "b1000000-0000-4000-8000-000000000000", "97ee0000-0000-4000-8000-000000000000"
KEY = "apps/data"
SLOTS = {"vf0": "0000:05:00.0", "vf1": "0000:05:00.1"}


class Cloud:
    """A Neutron that binds every port; `before` may wait, or refuse by a status."""

    def __init__(self) -> None:
        self.networks = {
            name: {"id": identity, "name": name, "mtu": 1500, "provider:physical_network": "physnet2"}
            for name, identity in (("blue", BLUE), ("green", GREEN))
        }
        self.ports: dict[str, dict[str, Any]] = {}
        self.refused: Callable[[str, str], int] = lambda method, path: 0
        self.asked: list[tuple[str, str]] = []
        self.quota = 1000
        self.policies: dict[str, dict[str, Any]] = {}
        self.extensions = {"tag-ports-during-bulk-creation"}
        self._made = 0

    def make(self, identity: str, **fields: Any) -> dict[str, Any]:
        mac = f"fa:16:3e:00:00:{self._made:02x}"
        self._made += 1
        port: dict[str, Any] = {"id": identity, "network_id": BLUE, "mac_address": mac, "device_id": ""}
        port |= {"binding:host_id": "", "binding:profile": {}, "revision_number": 0, "tags": []}
        self.ports[identity] = port
        return self._change(port, fields)

    def _change(self, port: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
        port.update(fields)
        port["revision_number"] += 1
        is_bound = bool(port["binding:host_id"])
        port["binding:vif_type"] = "hw_veb" if is_bound else "unbound"
        port["binding:vif_details"] = {"vlan": "214"} if is_bound else {}
        return port

    async def send(
        self, server: str, what: str, method: str, url: str, body: bytes | None, headers: Any
    ) -> tuple[int, Any, bytes]:
        """As `Session._send`."""
        await asyncio.sleep(0)  # others have their turn, as with a server
        path = urlsplit(url).path.partition("/v2.0/")[2]
        self.asked.append((method, path))
        kind, _, identity = path.partition("/")
        sent = json.loads(body) if body else {}
        fields = sent.get("port", sent)
        query = {key: values for key, values in parse_qs(urlsplit(url).query).items() if key != "fields"}
        status, answer = self._answer(method, kind, identity, fields, query, headers)
        await asyncio.sleep(0)
        return status, {}, json.dumps(answer).encode()

    def _answer(
        self, method: str, kind: str, identity: str, fields: dict[str, Any], query: dict[str, list[str]], headers: Any
    ) -> tuple[int, Any]:
        if refused := self.refused(method, f"{kind}/{identity}"):
            return refused, {}
        if kind == "qos":
            there = [policy for policy in self.policies.values() if policy["id"] in query.get("id", [identity[9:]])]
            return (200, {"policy": there[0]}) if "/" in identity else (200, {"policies": there})
        if kind in ("subnets", "extensions"):
            return 200, {kind: [{"alias": alias} for alias in self.extensions] if kind == "extensions" else []}
        identity, _, part = identity.partition("/")
        objects: dict[str, Any] = self.ports if kind == "ports" else self.networks
        there = [one for one in objects.values() if all(one.get(key) in values for key, values in query.items())]
        if method == "POST":
            if len(self.ports) >= self.quota:
                return 409, {"NeutronError": {"type": "OverQuota", "message": "Quota exceeded"}}
            assert self.extensions or "tags" not in fields, "without the extension, this is a bad request"
            return 201, {"port": self.make(f"port-{self._made}", **fields)}
        if not identity:
            return 200, {kind: there}
        if kind == "networks":
            return 200, {"network": next(one for one in objects.values() if one["id"] == identity)}
        return self._of_port(method, identity, part, fields, headers) if identity in self.ports else (404, {})

    def _of_port(self, method: str, identity: str, part: str, fields: dict[str, Any], headers: Any) -> tuple[int, Any]:
        objects = self.ports
        if method == "DELETE":
            del objects[identity]
            return 204, {}
        if method == "PUT":
            match = headers.get("If-Match", "").removeprefix("revision_number=")
            if match and int(match) != objects[identity]["revision_number"]:
                error = {"type": "RevisionNumberConstraintFailed", "message": "Constrained to another revision"}
                return 412, {"NeutronError": error}
            self._change(objects[identity], fields)
            if part:
                return 200, {part: objects[identity][part]}
        return 200, {"port": objects[identity]}


class Known:
    """Answers that are known already: the network blue, and a host without ports."""

    async def get(self, key: Any, ask: Any, *, fresh: bool = False) -> Any:
        return [NeutronNetwork(id=BLUE, name="blue", physnet="physnet2")] if isinstance(key, tuple) else []

    def forget(self) -> None:
        """It is known again at once."""

    def has_older(self, seconds: float) -> bool:
        return False


class Api:
    """NeutronPorts and claims in memory; what is written is in the controller's copies at once."""

    def __init__(self) -> None:
        self.store: Store[NeutronPort] = Store()
        self.claims: dict[str, ResourceClaim] = {}
        self.failures: dict[str, int] = {}
        self.versions = 0
        self.vfs = 0

    def _begin(self, what: str) -> None:
        if self.failures.get(what):
            self.failures[what] -= 1
            raise UnavailableError(f"API server: {what}: 503", Status(code=503))

    def _put(self, port: NeutronPort) -> None:
        self.versions += 1
        self.store.put(f"apps/{port.name}", port)

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        self._begin(f"get {resource.plural}")
        if resource.plural == "namespaces":
            return SimpleNamespace(metadata=SimpleNamespace(uid="cluster-1"))
        if resource.plural == "nodes":
            return SimpleNamespace(metadata=SimpleNamespace(annotations={}))
        if name not in self.claims:
            raise NotFoundError("gone", Status(code=404))
        return self.claims[name]

    async def list(self, *_: Any) -> Any:
        return list((node(count=self.vfs) if self.vfs else node()).slices)

    async def create(self, resource: Any, port: NeutronPort) -> None:
        self._put(port)

    async def delete(self, resource: Any, port: NeutronPort) -> None:
        self._put(replace(port, metadata=replace(port.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))

    async def apply(self, resource: Any, wanted: Any, **_: Any) -> None:
        self._begin("apply status")
        port = self.store.objects[f"apps/{wanted['metadata']['name']}"]
        self._put(replace(port, status=msgspec.convert(wanted["status"], NeutronPortStatus)))

    async def merge(self, resource: Any, name: str, patch: Any, namespace: str = "") -> None:
        self.store.remove(f"apps/{name}")


class Scene:
    """A controller of one claim's ports, whose queues a test works off by hand."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: float = 600.0) -> None:
        self.clouds = folder / "clouds.yaml"
        self.clouds.write_text('clouds: {c: {auth_type: none, auth: {endpoint: "http://neutron.invalid"}}}')
        self.cloud, self.api = Cloud(), Api()
        monkeypatch.setattr(Session, "_send", lambda _, *asked: self.cloud.send(*asked))
        self.topologies: Store[NetworkTopology] = Store()
        self.claims: Store[ClaimUse] = Store()
        state: Any = SimpleNamespace(claims=self.claims, topologies=self.topologies, users=lambda name: (KEY,))
        api: Any = self.api
        self.notes: list[Any] = []
        recorder: Any = SimpleNamespace(emit=self.notes.append)
        settings = NeutronSettings(clouds=self.clouds, sweep_seconds=seconds, requests_per_second=0)
        self.controller = NeutronPorts(api, recorder, state, settings, "netdra", nullcontext)
        self.controller._ports = self.api.store
        monkeypatch.setattr(self.controller._ownership, "_confirmed", math.inf)  # see test_neutron_ownership.py

    def allocate(self, *devices: str, pod: str = "", **fields: Any) -> None:
        """The claim as it is allocated now, and the pod that it was made for."""
        there = claim(*devices)
        owners = (OwnerReference(api_version="v1", kind="Pod", name=pod, uid="uid-pod"),) if pod else ()
        there = replace(there, metadata=replace(there.metadata, owner_references=owners))
        there = replace(there, status=replace(there.status, **fields))
        self.api.claims["data"] = there
        self.claims.put(KEY, msgspec.convert(msgspec.to_builtins(there), ClaimUse, strict=False))

    def ask(self, **asked: Any) -> None:
        """Change the requests of the topology."""
        self.topologies.put("data", topology(**asked)["data"])

    async def settle(self, *devices: str) -> None:
        """Inspect the claim, and at the ports of these devices or of all."""
        await self.controller._claim(KEY)
        named = [f"apps/{name_of('uid-1', 'pool', device)}" for device in devices]
        for key in named or list(self.ports):
            await self.controller._port(key)

    @property
    def ports(self) -> dict[str, NeutronPort]:
        return dict(self.api.store.objects)

    def port(self, device: str) -> NeutronPort:
        return self.ports[f"apps/{name_of('uid-1', 'pool', device)}"]

    @property
    def reasons(self) -> list[str]:
        return sorted(port.bound.reason if port.bound else "" for port in self.ports.values())


Story = Callable[[Scene], Coroutine[Any, Any, None]]


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def told(story: Story, seconds: float = 600.0) -> None:
        async def run() -> None:
            scene = Scene(tmp_path, monkeypatch, seconds)
            with scene.api.store.following(scene.controller._on_port_change):
                async with scene.controller._neutron:
                    await story(scene)

        asyncio.run(run())

    return told


def test_an_api_server_error_does_not_end_the_sweeps_and_a_later_sweep_reports_all_changes(
    tell: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(scene: Scene) -> None:
        scene.ask(network="blue")
        scene.allocate("vf0", "vf1")
        await scene.settle()
        for stored in scene.cloud.ports.values():
            stored["mac_address"] = "fa:16:3e:00:00:99"
        scene.controller._cluster = ""
        scene.api.failures = {"get namespaces": 1, "apply status": 1}
        looking = asyncio.create_task(scene.controller._run_sweeps())

        async def all_told() -> None:
            while not all(port.current for port in scene.ports.values()):
                assert not looking.done(), looking.exception()
                await asyncio.sleep(0.005)

        try:
            await asyncio.wait_for(all_told(), 10.0)
        finally:
            looking.cancel()

    tell(story, seconds=0.01)
    said = [record.getMessage() for record in caplog.records if record.name == ports.__name__]
    assert [text for text in said if "get namespaces: 503" in text]
    assert [text for text in said if text.startswith("1 of the cluster's ports") and "apply status: 503" in text]


def test_a_port_that_neutron_fails_to_return_does_not_block_the_check_of_other_ports(tell: Callable[..., None]) -> None:
    async def story(scene: Scene) -> None:
        scene.ask(network="blue")
        scene.allocate("vf0", "vf1")
        await scene.settle()
        for stored in scene.cloud.ports.values():  # asked for one by one, as ports that somebody else made are
            stored["device_owner"] = "somebody"
        first = scene.port("vf0").status
        assert first is not None
        scene.cloud.refused = lambda method, path: (
            HTTPStatus.SERVICE_UNAVAILABLE if path == f"ports/{first.port_id}" else 0
        )
        second = scene.port("vf1").status
        assert second is not None
        del scene.cloud.ports[second.port_id]
        (problem,) = await scene.controller._inspection.look_through()
        assert "503" in problem.what
        assert scene.reasons == ["Bound", "Lost"]

    tell(story)


def test_a_named_port_is_one_vfs_and_the_next_ones_when_it_was_given_back(tell: Callable[..., None]) -> None:
    async def story(scene: Scene) -> None:
        stored = scene.cloud.make(NAMED)
        scene.ask(port=NAMED)
        scene.allocate("vf0", "vf1")
        await scene.settle("vf0", "vf1")
        assert scene.reasons == ["Bound", "Refused"]
        assert stored["binding:profile"]["pci_slot"] == SLOTS["vf0"]
        refused = scene.port("vf1").bound
        assert refused is not None
        assert f"is used already: VF {SLOTS['vf0']} of host node-7 has it" in refused.message
        scene.allocate("vf1")
        await scene.settle("vf0", "vf1")
        assert scene.reasons == ["Bound"]
        assert stored["binding:profile"]["pci_slot"] == SLOTS["vf1"]

    tell(story)


def test_a_controller_that_dies_while_it_gives_a_port_back_leaves_its_type_to_the_next(
    tell: Callable[..., None],
) -> None:
    async def story(scene: Scene) -> None:
        stored = scene.cloud.make(NAMED, **{"binding:vnic_type": "normal"})
        scene.ask(port=NAMED)
        scene.allocate("vf0")
        await scene.settle("vf0")
        assert stored["binding:vnic_type"] == "direct"
        scene.allocate()
        # The first request of two is carried out, and the second one is not.
        scene.cloud.refused = lambda method, path: 503 if method == "PUT" and not stored["device_id"] else 0
        with pytest.raises(UnreachableError):
            await scene.settle("vf0")
        assert (stored["binding:vnic_type"], stored["device_id"], stored["binding:host_id"]) == ("direct", "", "")
        scene.cloud.refused = lambda method, path: 0
        await scene.settle("vf0")
        assert (stored["binding:vnic_type"], stored["binding:profile"], scene.ports) == ("normal", {}, {})

    tell(story)


@pytest.mark.parametrize("order", [("vf0", "vf1"), ("vf1", "vf0"), ()], ids=["first", "late", "at once"])
def test_a_port_that_the_claims_next_vf_uses_is_not_given_back_with_the_last_one(
    tell: Callable[..., None], order: tuple[str, ...]
) -> None:
    async def story(scene: Scene) -> None:
        stored = scene.cloud.make(NAMED)
        scene.ask(port=NAMED)
        scene.allocate("vf0")
        await scene.settle()
        scene.allocate("vf1")
        await scene.controller._claim(KEY)
        if order:
            await scene.settle(*order)
        else:
            await asyncio.gather(*map(scene.controller._port, scene.ports))
        assert scene.reasons == ["Bound"]
        assert (stored["device_id"], stored["binding:host_id"]) == ("uid-1", "node-7")
        assert stored["binding:profile"]["pci_slot"] == SLOTS["vf1"]

    tell(story)


@pytest.mark.parametrize("processes", [1, 2])
def test_of_two_that_take_a_port_at_once_one_has_it(tell: Callable[..., None], processes: int) -> None:
    """Two processes are a controller that does not know yet that it leads no more, and the next."""

    async def story(scene: Scene) -> None:
        stored = scene.cloud.make(NAMED)
        clients = [Neutron(Session(scene.clouds)) for _ in range(processes)]
        asked = [
            PortRequest(
                name=f"of-{uid}", claim=uid, cluster="cluster-1", host="node-7", network="", physnet="physnet2",
                pci_slot=slot,
            )
            for uid, slot in zip(("uid-1", "uid-2"), SLOTS.values(), strict=True)
        ]  # fmt: skip
        takes = (clients[n % processes].adopt(asked[n], NAMED, lambda host, pci_slot: True) for n in range(2))
        taken = await asyncio.gather(*takes, return_exceptions=True)
        (refused,) = (one for one in taken if isinstance(one, BaseException))
        assert isinstance(refused, NeutronRefusedError)
        assert "is used already" in refused.what
        ((port, _, _),) = (one for one in taken if isinstance(one, tuple))
        assert (port.device_id, port.pci_slot) == (stored["device_id"], stored["binding:profile"]["pci_slot"])

    tell(story)


def test_an_unbound_port_follows_its_topology_and_a_bound_port_stays_unchanged(
    tell: Callable[..., None],
) -> None:
    async def story(scene: Scene) -> None:
        scene.ask(network="bluu")
        scene.allocate("vf0")
        await scene.settle()
        assert scene.reasons == ["NoNetwork"]
        before = scene.api.versions
        await scene.controller._claim(KEY)
        assert scene.api.versions == before, "as long as the same is asked for, nothing is written"
        scene.ask(network="blue")
        for _ in range(2):  # it goes, and comes again
            await scene.settle()
        assert scene.reasons == ["Bound"]
        (stored,) = scene.cloud.ports.values()
        assert stored["network_id"] == BLUE
        scene.ask(network="green")
        for _ in range(2):
            await scene.settle()
        assert list(scene.cloud.ports) == [stored["id"]]
        assert scene.reasons == ["Bound"]

    tell(story)


def test_a_name_that_leads_to_another_network_is_reported_and_not_followed(tell: Callable[..., None]) -> None:
    async def story(scene: Scene) -> None:
        scene.ask(network="blue")
        scene.allocate("vf0")
        await scene.settle()
        assert scene.reasons == ["Bound"]
        assert await scene.controller._inspection.look_through() == []
        assert scene.port("vf0").current is None
        other = "b1000000-0000-4000-8000-000000000001"
        scene.cloud.networks["blue"] |= {"name": "former"}
        scene.cloud.networks["next"] = scene.cloud.networks["blue"] | {"id": other, "name": "blue"}
        assert await scene.controller._inspection.look_through() == []
        current = scene.port("vf0").current
        assert current is not None
        assert f'network "blue" now has the ID {other}' in current.message
        assert f"this port is in {BLUE}" in current.message
        assert "set the ID" in current.message
        scene.allocate("vf0", "vf1")
        await scene.settle()
        refused = scene.port("vf1").bound
        assert refused is not None
        assert refused.reason == "NetworkMoved"
        assert f"NeutronPort apps/{scene.port('vf0').name} is in {BLUE}" in refused.message
        assert len(scene.cloud.ports) == 1
        scene.cloud.networks["next"] |= {"name": "next"}
        scene.cloud.networks["blue"] |= {"name": "blue"}
        await scene.settle()
        assert scene.reasons == ["Bound", "Bound"]
        await scene.controller._inspection.look_through()
        assert scene.port("vf0").current is None

    tell(story)


def test_a_new_port_costs_two_requests_and_the_next_one_of_its_host_one(tell: Callable[..., None]) -> None:
    async def story(scene: Scene) -> None:
        scene.ask(network="blue")
        scene.allocate("vf0")
        await scene.settle()
        assert scene.reasons == ["Bound"]
        # The fake gives no addresses, so the subnets are not asked for.
        once = [("GET", "networks"), ("GET", "ports"), ("GET", "extensions")]
        assert scene.cloud.asked == [*once, ("POST", "ports")]
        scene.allocate("vf0", "vf1")
        await scene.settle()
        assert scene.reasons == ["Bound", "Bound"]
        assert scene.cloud.asked[4:] == [("POST", "ports")]

    tell(story)


def test_a_port_that_may_have_been_made_is_looked_for(tell: Callable[..., None]) -> None:
    """By a request without an answer, by a former process, or for a NeutronPort whose finalizer was taken away."""

    async def story(scene: Scene) -> None:
        scene.ask(network="blue")
        scene.allocate("vf0")
        await scene.controller._claim(KEY)
        made = scene.cloud.send

        async def without_answer(*asked: Any) -> Any:
            await made(*asked)
            raise UnreachableError("no answer")

        scene.cloud.send = without_answer  # type: ignore[assignment]
        scene.controller._neutron._networks, scene.controller._neutron._hosts = Known(), Known()  # type: ignore[assignment]
        scene.controller._neutron._extensions = Known()  # type: ignore[assignment]
        with pytest.raises(UnreachableError):
            await scene.settle()
        (stored,) = scene.cloud.ports.values()
        scene.cloud.send = made  # type: ignore[method-assign]
        await scene.settle()
        assert scene.reasons == ["Bound"]
        assert list(scene.cloud.ports) == [stored["id"]]
        (port,) = scene.ports.values()
        scene.api.store.remove(f"apps/{port.name}")
        await scene.settle()
        assert scene.reasons == ["Bound"]
        assert list(scene.cloud.ports) == [stored["id"]]

    tell(story)


@pytest.mark.parametrize("at_once", [True, False], ids=["tags with the port", "tags after it"])
def test_operators_read_pod_namespace_and_node_of_a_port(tell: Callable[..., None], at_once: bool) -> None:
    async def story(scene: Scene) -> None:
        if not at_once:
            scene.cloud.extensions = set()
        scene.ask(network="blue")
        scene.allocate("vf0", pod="web-0")
        await scene.settle()
        assert scene.reasons == ["Bound"]
        (stored,) = scene.cloud.ports.values()
        assert stored["name"] == "apps/web-0/vf"
        assert stored["description"].startswith(f"netdra cluster=cluster-1 port={scene.port('vf0').name}; pod web-0, ")
        assert {"netdra", "netdra:namespace=apps", "netdra:pod=web-0", "netdra:node=node-7"} <= set(stored["tags"])
        asked = len(scene.cloud.asked)
        assert await scene.controller._inspection.look_through() == []
        assert {method for method, _ in scene.cloud.asked[asked:]} == {"GET"}, "a second look writes nothing"

    tell(story)


def test_a_port_of_a_former_version_is_known_again_labelled_and_deleted_with_its_claim(
    tell: Callable[..., None],
) -> None:
    async def story(scene: Scene) -> None:
        scene.ask(network="blue")
        name = name_of("uid-1", "pool", "vf0")
        former = scene.cloud.make(
            "former", name=name, device_id="uid-1", device_owner=OWNER, description="netdra cluster=cluster-1",
            tags=["billing"], **{"binding:host_id": "node-7", "binding:profile": {"pci_slot": SLOTS["vf0"]}},
        )  # fmt: skip
        scene.allocate("vf0")
        await scene.settle()
        assert list(scene.cloud.ports) == ["former"]
        assert scene.reasons == ["Bound"]
        assert former["name"] == "apps/data/vf"
        assert former["description"].startswith(f"netdra cluster=cluster-1 port={name}; ")
        assert {"billing", "netdra:claim=data"} <= set(former["tags"])
        assert await scene.controller._inspection.look_through() == []
        assert list(scene.cloud.ports) == ["former"]
        scene.allocate()
        await scene.settle()
        for key in scene.ports:
            await scene.controller._port(key)
        assert scene.cloud.ports == {}

    tell(story)


def test_a_label_that_neutron_refuses_keeps_no_port_from_being_bound(tell: Callable[..., None]) -> None:
    async def story(scene: Scene) -> None:
        scene.cloud.extensions = set()
        scene.cloud.refused = lambda method, path: HTTPStatus.FORBIDDEN if path.endswith("/tags") else 0
        scene.ask(network="blue")
        scene.allocate("vf0")
        await scene.settle()
        assert scene.reasons == ["Bound"]
        scene.cloud.refused = lambda method, path: 0
        assert await scene.controller._inspection.look_through() == []
        (stored,) = scene.cloud.ports.values()
        assert "netdra:claim=data" in stored["tags"], "the next look repeats it"

    tell(story)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"mac_address": "fa:16:3e:00:00:99"}, " changed to fa:16:3e:00:00:99"),
        ({"admin_state_up": False}, "admin state up changed to down"),
        ({"port_security_enabled": False}, "port security on changed to off"),
        ({"qos_policy_id": "gold"}, "maximum rate none changed to 5 Mbit/s"),
    ],
)
def test_a_change_in_neutron_is_reported_by_the_next_check_for_changes(
    tell: Callable[..., None], fields: dict[str, Any], told: str
) -> None:
    async def story(scene: Scene) -> None:
        rule = {"type": "bandwidth_limit", "direction": "egress", "max_kbps": 5000}
        scene.cloud.policies["gold"] = {"id": "gold", "shared": True, "revision_number": 1, "rules": [rule]}
        scene.ask(network="blue")
        scene.allocate("vf0", "vf1", pod="web-0")
        await scene.settle()
        inspection = scene.controller._inspection
        assert await inspection.look_for_changes() == []
        assert [port.current for port in scene.ports.values()] == [None, None]
        written, asked = scene.api.versions, len(scene.cloud.asked)
        assert await inspection.look_for_changes() == []
        assert scene.api.versions == written
        assert scene.cloud.asked[asked:] == [("GET", "ports"), ("GET", "networks"), ("GET", "subnets")]
        first = scene.port("vf0").status
        assert first is not None
        assert first.settings is not None
        scene.cloud._change(scene.cloud.ports[first.port_id], fields)
        assert await inspection.look_for_changes() == []
        current = scene.port("vf0").current
        assert current is not None
        assert told in current.message
        assert scene.port("vf1").current is None
        kinds = {
            (note.regarding.kind, note.regarding.name) for note in scene.notes if note.reason == "ChangedInNeutron"
        }
        assert kinds == {("ResourceClaim", "data"), ("Pod", "web-0")}
        undone = {"admin_state_up": True, "port_security_enabled": True, "qos_policy_id": None}
        scene.cloud._change(scene.cloud.ports[first.port_id], undone | {"mac_address": first.settings.mac})
        assert await inspection.look_for_changes() == []
        assert scene.port("vf0").current is None

    tell(story)


def test_a_changed_policy_or_network_and_a_deleted_port_are_reported_by_the_next_check(
    tell: Callable[..., None],
) -> None:
    async def story(scene: Scene) -> None:
        rule = {"type": "bandwidth_limit", "direction": "egress", "max_kbps": 5000}
        policy = {"id": "gold", "shared": True, "revision_number": 1, "rules": [rule]}
        scene.cloud.policies["gold"] = policy
        scene.ask(network="blue", qosPolicy="gold")
        scene.allocate("vf0", "vf1")
        await scene.settle()
        inspection = scene.controller._inspection
        assert await inspection.look_for_changes() == []
        policy |= {"rules": [rule | {"max_kbps": 7000}], "revision_number": 2}
        scene.cloud.networks["blue"] |= {"mtu": 1400, "revision_number": 1}
        assert await inspection.look_for_changes() == []
        current = scene.port("vf0").current
        assert current is not None
        assert "MTU 1500 changed to 1400; maximum rate 5 Mbit/s changed to 7 Mbit/s" in current.message
        gone = scene.port("vf0").status
        assert gone is not None
        del scene.cloud.ports[gone.port_id]
        assert await inspection.look_for_changes() == []
        assert scene.reasons == ["Bound", "Lost"]

    tell(story)


def test_a_quota_that_has_room_again_is_noticed_by_the_next_port_and_the_others_follow(
    tell: Callable[..., None],
) -> None:
    async def story(scene: Scene) -> None:
        scene.cloud.quota = 0
        scene.ask(network="blue")
        scene.allocate("vf0", "vf1")
        await scene.settle()
        assert scene.reasons == ["Quota", "Quota"]
        scene.cloud.quota = 2
        working = asyncio.create_task(scene.controller.ports.run())
        try:
            scene.controller._look_at_refused_by_quota(1)
            await asyncio.wait_for(bound(scene, 2), ports.AGAIN_SECONDS / 4)
        finally:
            working.cancel()

    tell(story)


async def bound(scene: Scene, count: int) -> None:
    """Wait until all ports are bound."""
    change = asyncio.Event()
    with scene.api.store.following(lambda _: change.set()):
        while scene.reasons != ["Bound"] * count:
            change.clear()
            await change.wait()


def test_two_hundred_ports_at_once_are_one_request_each(tell: Callable[..., None]) -> None:
    """A bulk request for several ports takes Neutron as long as one request each, and outlasts every timeout."""

    async def story(scene: Scene) -> None:
        devices = [f"vf{number}" for number in range(200)]
        scene.ask(network="blue")
        scene.api.vfs = len(devices)
        scene.allocate(*devices)
        await scene.controller._claim(KEY)
        working = asyncio.create_task(scene.controller.ports.run())
        try:
            await asyncio.wait_for(bound(scene, 200), 60.0)
        finally:
            working.cancel()
        asked = Counter(scene.cloud.asked)
        assert asked.pop(("GET", "ports")) <= 20, "one each two seconds"
        assert asked == {("POST", "ports"): 200, ("GET", "networks"): 1, ("GET", "extensions"): 1}

    tell(story)


def test_settings_that_no_vf_can_enforce_are_reported_until_they_are_removed(tell: Callable[..., None]) -> None:
    async def story(scene: Scene) -> None:
        rule = {"type": "bandwidth_limit", "direction": "ingress", "max_kbps": 5000}
        policy = {"id": "gold", "name": "gold", "shared": True, "revision_number": 1, "rules": [rule]}
        scene.cloud.policies["gold"] = policy
        scene.ask(network="blue", qosPolicy="gold")
        scene.allocate("vf0")
        await scene.settle()
        assert scene.reasons == ["Bound"]
        enforced = scene.port("vf0").enforced
        assert enforced is not None
        assert "rule bandwidth_limit of direction ingress of QoS policy gold are not enforced" in enforced.message
        assert [note.reason for note in scene.notes] == ["NotEnforced"]
        assert await scene.controller._inspection.look_for_changes() == []
        policy |= {"rules": [], "revision_number": 2}
        assert await scene.controller._inspection.look_for_changes() == []
        assert scene.port("vf0").enforced is None

    tell(story)


def test_a_login_that_failed_is_one_for_all_until_some_seconds_or_the_file_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "clouds.yaml"
    auth = 'auth_url: "http://keystone.invalid", username: u, user_domain_id: d, project_id: x'
    file.write_text(f"clouds: {{c: {{auth: {{{auth}, password: wrong}}}}}}")
    tried: list[str] = []

    async def send(_: Session, server: str, *asked: Any) -> tuple[int, Any, bytes]:
        tried.append(server)
        await asyncio.sleep(0)
        return HTTPStatus.UNAUTHORIZED, {}, b"{}"

    monkeypatch.setattr(Session, "_send", send)

    async def story() -> None:
        async with Neutron(Session(file)) as client:
            for logins in (1, 1):
                answers = await asyncio.gather(*(client.network("blue") for _ in range(40)), return_exceptions=True)
                assert {type(answer) for answer in answers} == {UnauthorizedError}
                assert len({str(answer) for answer in answers}) == 1
                assert tried == ["Keystone"] * logins
            file.write_text(file.read_text().replace("wrong", "other"))
            with pytest.raises(UnauthorizedError):
                await client.session.login()
            assert len(tried) == 2
            monkeypatch.setattr("netdra.neutron.session.FAILED_SECONDS", 0.0)
            file.write_text(file.read_text().replace("other", "third one"))
            for logins in (3, 4):
                with pytest.raises(UnauthorizedError):
                    await client.session.login()
                assert len(tried) == logins

    asyncio.run(story())
