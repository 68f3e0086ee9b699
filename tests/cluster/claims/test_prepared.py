"""Claims that the real scheduler allocated, prepared against the real API server: answers and records."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from netdra.model.errors import InvalidInputError
from netdra.model.plan import ClaimReference
from netdra.node.claims.store import ClaimStore
from testbed.dra import read_sequence
from testbed.objects import CLAIM, NAMESPACE, POD
from tests.builders import OURS
from tests.cluster.claims.alone import handler
from tests.cluster.claims.scene import BONDED, PF, VF, Scene, extended, request
from tests.cluster.fault_proxy import Answer


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
        described = scene.files.metadata_path(wanted.uid, "vf0")
        metadata, _ = read_sequence(described.read_text())
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
        assert not list(described.parent.iterdir())

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


def test_a_device_class_defines_how_its_devices_are_attached(tell: Any) -> None:
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


def test_after_a_reboot_of_the_node_prepare_reads_the_claim_again(tell: Any) -> None:
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
        another = handler(
            scene.client, scene.node, scene.view, scene.holders, ClaimStore(scene.store.folder), scene.files
        )
        plain = scene.device_class(VF)
        wanted = [scene.allocated(f"c{number}", request("net", plain)) for number in range(5)]
        found = await asyncio.gather(*(who.prepare(each) for each in wanted for who in (scene.claims, another)))
        assert found[::2] == found[1::2]
        assert len({told[0].device for told in found}) == 5
        assert scene.store.uids() == {each.uid for each in wanted}

    tell(story)
