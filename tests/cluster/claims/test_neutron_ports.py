"""Claims whose VFs have ports in Neutron: Prepare waits for their NeutronPorts, on the real API server."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.claims import ports
from testbed.dra import read_sequence
from testbed.objects import POD
from testbed.pace import measured, within
from tests.cluster.claims.scene import VF, Scene, extended, request
from tests.cluster.neutron_ports import NETWORK_ID, PORT, PORT_ID, SETTINGS, Allotted, allotted

pytestmark = pytest.mark.usefixtures("custom_kinds")
NOT_THERE = "is not there"


def topology(scene: Scene, further: str = "") -> str:
    steps = f"- {{name: vf, type: sriov, selector: {{cel: '{VF}'}}, neutron: {{}}{further}}}"
    return scene.topology("ported", steps).name


def claimed(scene: Scene, count: int = 1) -> ClaimReference:
    return scene.allocated("c", request("vf", f"{topology(scene)}-vf", count=count))


def devices(scene: Scene, wanted: ClaimReference) -> list[Allotted]:
    addresses = {device.device: device.pci_address for device in scene.view.devices.values()}
    return allotted(scene.workspace.api, wanted.namespace, wanted.name, scene.node, addresses)


async def waits(scene: Scene, wanted: ClaimReference) -> asyncio.Task[Any]:
    """A Prepare that watches for a NeutronPort by now."""
    preparing = asyncio.create_task(scene.claims.prepare(wanted))
    async with asyncio.timeout(10.0):
        while not any(asked.is_watch and "neutronports" in asked.path for asked in scene.proxy.requests):
            assert not preparing.done(), preparing.exception()
            await asyncio.sleep(0.01)
    return preparing


def test_a_port_that_is_bound_is_written_down_and_never_asked_for_again(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene)
        (vf,) = devices(scene, wanted)
        vf.create()
        vf.bind()
        told = await scene.claims.prepare(wanted)
        assert [one.device for one in told] == [vf.device]
        record = scene.store.get(wanted.uid)
        assert record is not None
        (kept,) = record.devices
        assert kept.port is not None
        assert (kept.port.port_id, kept.port.network_id, kept.port.network_name) == (PORT_ID, NETWORK_ID, "net2")
        assert msgspec.json.decode(msgspec.json.encode(kept.port.settings)) == {
            setting: value for setting, value in SETTINGS.items() if setting != "spoofchk"
        }
        assert kept.port.settings.spoofchk
        described, _ = read_sequence(scene.files.metadata_path(wanted.uid, "vf").read_text())
        attributes = described["requests"][0]["devices"][0]["attributes"]
        assert attributes["dra.networking/neutronPortID"] == {"string": PORT_ID}
        assert attributes["dra.networking/neutronVLAN"] == {"int": 241}
        assert attributes["dra.networking/neutronMAC"] == {"string": SETTINGS["mac"]}
        assert attributes["dra.networking/neutronAddresses"] == {"strings": ["10.20.0.5/16"]}

        # What becomes of the port later, or of all ports, is no matter of this claim's: it is answered alike.
        vf.refuse("Lost", "it is gone")
        asked = len(scene.proxy.requests)
        assert await scene.claims.prepare(wanted) == told
        assert not any("neutronports" in one.path for one in scene.proxy.requests[asked:])
        assert scene.store.get(wanted.uid) == record

    tell(story)


def test_claims_without_neutron_ask_for_no_port(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        plain = scene.topology("plain", f"- {{name: vf, type: sriov, selector: {{cel: '{VF}'}}}}")
        await scene.claims.prepare(scene.allocated("c", request("vf", f"{plain.name}-vf")))
        assert not any("neutronports" in one.path for one in scene.proxy.requests)

    tell(story)


def test_a_port_that_comes_late_is_seen_at_once(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene, count=2)
        one, other = devices(scene, wanted)
        preparing = await waits(scene, wanted)
        one.create()
        one.refuse("NoAgent", "no NIC switch agent is alive")
        other.create()
        other.bind(mac="fa:16:3e:00:00:0b")
        await asyncio.sleep(0.5)
        assert not preparing.done()
        one.bind()
        with within(1.0, "seeing that a port is bound"):
            told = await preparing
        assert [each.device for each in told] == [one.device, other.device]
        record = scene.store.get(wanted.uid)
        assert record is not None
        macs = [kept.port.settings.mac for kept in record.devices if kept.port is not None]
        assert macs == [SETTINGS["mac"], "fa:16:3e:00:00:0b"]

    tell(story)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("NoAgent", "no NIC switch agent is alive on host n for physnet2"),
        ("Quota", "Quota exceeded for resources: ['port']"),
        ("NoAddress", "No more IP addresses available on network"),
        ("Unreachable", "Neutron: create port: no answer in 10 s"),
        ("Forbidden", "the role service is lacking"),
    ],
)
def test_prepare_reports_why_a_port_is_not_bound_and_succeeds_after_it_is_bound(
    tell: Any, monkeypatch: pytest.MonkeyPatch, reason: str, message: str
) -> None:
    monkeypatch.setattr(ports, "SECONDS", 3.0)

    async def story(scene: Scene) -> None:
        wanted = claimed(scene)
        (vf,) = devices(scene, wanted)
        vf.create()
        vf.refuse(reason, message)
        with pytest.raises(TemporaryError) as problem:
            await scene.claims.prepare(wanted)
        text = str(problem.value)
        assert f'"{vf.namespace}/{vf.name}" is not bound: {reason}: {message}' in text
        assert f'device "{vf.device}"' in text
        assert scene.store.get(wanted.uid) is None
        # The kubelet asks again, and by then Neutron has thought better of it.
        vf.bind()
        assert len(await scene.claims.prepare(wanted)) == 1

    tell(story)


def test_a_missing_port_error_states_once_that_the_controller_requires_a_cloud(
    tell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "SECONDS", 3.0)

    async def story(scene: Scene) -> None:
        wanted = claimed(scene, count=2)
        one, other = devices(scene, wanted)
        one.create()
        with pytest.raises(TemporaryError) as problem:
            await scene.claims.prepare(wanted)
        text = str(problem.value)
        assert f'NeutronPort "{one.namespace}/{one.name}" is not bound yet' in text
        assert f'NeutronPort "{other.namespace}/{other.name}" {NOT_THERE}' in text
        assert text.count("if it has been given a cloud") == 1
        assert scene.store.get(wanted.uid) is None

    tell(story)


def test_a_wait_is_over_in_time_for_the_kubelet(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene)
        began = time.monotonic()
        with (
            within(3.0, "giving up on a port", after=ports.SECONDS),
            pytest.raises(TemporaryError, match=NOT_THERE),
        ):
            await scene.claims.prepare(wanted)
        assert time.monotonic() - began > ports.SECONDS - 0.5

    tell(story)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"claim": {"name": "c", "uid": "another"}}, "spec.claim.uid"),
        ({"claim": {"name": "another", "uid": ""}}, "spec.claim.name"),
        ({"pool": "another"}, "spec.pool"),
        ({"device": "another"}, "spec.device"),
        ({"nodeName": "another"}, "spec.nodeName"),
        ({"pciAddress": "0000:ff:00.1"}, 'spec.pciAddress is "0000:ff:00.1"'),
    ],
)
def test_a_port_of_another_vf_is_refused_at_once(tell: Any, changed: dict[str, Any], told: str) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene)
        (vf,) = devices(scene, wanted)
        if "claim" in changed:
            changed["claim"]["uid"] = changed["claim"]["uid"] or wanted.uid
        vf.create(**changed)
        vf.bind()
        with pytest.raises(PermanentError, match="is not of the VF that was allocated") as problem:
            await scene.claims.prepare(wanted)
        assert told in str(problem.value)
        assert scene.store.get(wanted.uid) is None

    tell(story)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"mac": "01:00:5e:00:00:01"}, "mac"),
        ({"vlan": 4095}, "vlan 4095"),
        ({"mtu": 20}, "mtu 20"),
        ({"addresses": ["10.0.0.5"]}, 'address "10.0.0.5"'),
        ({"gateways": ["router"]}, '"router" is not an address'),
        ({"routes": [{"destination": "10.0.0.0/8", "gateway": "fe80::x"}]}, "no route"),
        ({"minTxRate": 20, "maxTxRate": 10}, "minTxRate 20"),
    ],
)
def test_port_settings_that_a_vf_cannot_take_are_rejected(tell: Any, settings: dict[str, Any], told: str) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene)
        (vf,) = devices(scene, wanted)
        vf.create()
        vf.bind(**settings)
        with pytest.raises(InvalidInputError, match=told):
            await scene.claims.prepare(wanted)

    tell(story)


def test_a_port_that_is_being_deleted_is_waited_out(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene)
        (vf,) = devices(scene, wanted)
        vf.create()
        vf.bind(mac="fa:16:3e:00:00:0c")
        api = scene.workspace.api
        finalizers = {"metadata": {"finalizers": ["networking.dra.io/neutron-port"]}}
        api.patch(PORT, vf.name, finalizers, namespace=vf.namespace)
        api.delete(PORT, vf.name, vf.namespace)
        preparing = await waits(scene, wanted)
        assert not preparing.done()
        api.patch(PORT, vf.name, {"metadata": {"finalizers": None}}, namespace=vf.namespace)
        vf.create()
        vf.bind()
        await preparing
        record = scene.store.get(wanted.uid)
        assert record is not None
        assert record.devices[0].port is not None
        assert record.devices[0].port.settings.mac == SETTINGS["mac"]

    tell(story)


@pytest.mark.parametrize("field", ["topology", "step", "request"])
def test_a_port_of_an_earlier_allocation_is_waited_out(tell: Any, field: str) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene)
        (vf,) = devices(scene, wanted)
        vf.create(**{field: "another"})
        vf.bind(mac="fa:16:3e:00:00:0c")
        preparing = await waits(scene, wanted)
        assert not preparing.done()
        scene.workspace.api.delete(PORT, vf.name, vf.namespace)
        vf.create()
        vf.bind()
        await preparing
        record = scene.store.get(wanted.uid)
        assert record is not None
        assert record.devices[0].port is not None
        assert record.devices[0].port.settings.mac == SETTINGS["mac"]

    tell(story)


def test_an_api_server_that_breaks_off_is_asked_again(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene)
        (vf,) = devices(scene, wanted)
        preparing = await waits(scene, wanted)
        scene.proxy.cut_all()
        vf.create()
        vf.bind()
        assert len(await preparing) == 1

    tell(story)


def test_only_a_vf_that_netdra_sets_up_has_a_port(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        name = topology(scene)
        wanted = scene.allocated("c", request("vf", f"{name}-vf"))
        sound = scene.view.topologies[name]  # and now it is changed while no webhook answers
        steps = (msgspec.structs.replace(sound.spec.steps[0], execution="Binary"),)
        changed = msgspec.structs.replace(sound, spec=msgspec.structs.replace(sound.spec, steps=steps))
        scene.view.topologies = {**scene.view.topologies, name: changed}
        with pytest.raises(InvalidInputError, match="neutron does not go with execution Binary"):
            await scene.claims.prepare(wanted)

    tell(story)


def test_claims_of_a_pod_wait_side_by_side(tell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "SECONDS", 2.0)

    async def story(scene: Scene) -> None:
        name = topology(scene)
        wanted = [scene.allocated(f"c{number}", request("vf", f"{name}-vf")) for number in range(4)]
        with within(2.0, "waiting for four claims' ports side by side", after=ports.SECONDS):
            problems = await asyncio.gather(*map(scene.claims.prepare, wanted), return_exceptions=True)
        assert all(isinstance(problem, NetdraError) for problem in problems)

    tell(story)


def test_extended_resources_have_ports_like_all_others(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        resource = f"example.com/vf-{scene.workspace.name('x')}"
        topology(scene, f", extendedResourceName: {resource}")
        api, namespace = scene.workspace.api, scene.workspace.namespace
        scene.run_pod("extended", limits={resource: "2"})
        pod = api.wait_for(POD, "extended", lambda pod: bool(extended(pod)), namespace=namespace)
        claim = extended(pod)["resourceClaimName"]
        uid = api.get("resource.k8s.io/v1/ResourceClaim", claim, namespace)["metadata"]["uid"]
        wanted = ClaimReference(namespace=namespace, name=claim, uid=uid)
        for number, vf in enumerate(devices(scene, wanted)):
            vf.create()
            vf.bind(mac=f"fa:16:3e:00:00:0{number}")
        assert len(await scene.claims.prepare(wanted)) == 2
        record = scene.store.get(uid)
        assert record is not None
        macs = {kept.port.settings.mac for kept in record.devices if kept.port is not None}
        assert macs == {"fa:16:3e:00:00:00", "fa:16:3e:00:00:01"}

    tell(story)


def test_a_port_that_is_there_costs_one_request(tell: Any, record_testsuite_property: Any) -> None:
    async def story(scene: Scene) -> None:
        plain = scene.topology("plain", f"- {{name: vf, type: sriov, selector: {{cel: '{VF}'}}}}")
        ported = topology(scene)
        seconds: dict[str, list[float]] = {"plain": [], "ported": []}
        with measured() as pace:
            for number in range(3):
                for kind, name in (("plain", plain.name), ("ported", ported)):
                    wanted = scene.allocated(f"{kind}-{number}", request("vf", f"{name}-vf"))
                    if kind == "ported":
                        (vf,) = devices(scene, wanted)
                        vf.create()
                        vf.bind()
                    asked, began = len(scene.proxy.requests), time.perf_counter()
                    await scene.claims.prepare(wanted)
                    seconds[kind].append(time.perf_counter() - began)
                    about_ports = [one for one in scene.proxy.requests[asked:] if "neutronports" in one.path]
                    assert len(about_ports) == (kind == "ported")
                    await scene.claims.unprepare(wanted)
        added = min(seconds["ported"]) - min(seconds["plain"])
        record_testsuite_property("a port in Neutron, ms of Prepare", round(added * 1000, 1))
        assert added < 0.1 * pace.slowness

    tell(story)
