"""Claims that are refused when they are prepared, each in its words, and conditions that Prepare waits for instead."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from netdra.model import documents, names
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError, without_code
from netdra.model.resource import ResourceSlice
from netdra.node.claims import prepare as preparing
from netdra.node.view import HeldDevice
from tests.cluster.claims.alone import handler
from tests.cluster.claims.scene import BONDED, VF, Scene, request, supporting
from tests.cluster.fault_proxy import Answer


def test_a_claim_that_lacks_a_root_step_is_refused_in_these_words(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        topology = scene.topology("bonded", BONDED)
        wanted = scene.allocated("ai-gpu-bonded-rdma", request("vf0", f"{topology.name}-vf0"))
        with pytest.raises(InvalidInputError) as caught:
            await scene.claims.prepare(wanted)
        assert without_code(str(caught.value)) == (
            f'NetworkTopology "{topology.name}" root step "vf1" has no matching device request in '
            'ResourceClaim "ai-gpu-bonded-rdma". '
            f'The ResourceClaim must contain a request named "vf1" with deviceClassName "{topology.name}-vf1".'
        )
        assert scene.store.uids() == frozenset()

    tell(story)


def test_a_device_that_nothing_can_attach_is_refused(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = scene.allocated("c", request("net", scene.device_class(supporting("ovn-k8s-cni-overlay"))))
        with pytest.raises(
            InvalidInputError, match='request "net": it is not defined how device "eth0-ovn" is attached'
        ):
            await scene.claims.prepare(wanted)

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


def test_driver_configuration_by_the_author_of_a_claim_is_rejected_with_the_rule(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        topology = scene.topology("single", "- {name: net, type: sriov, selector: {cel: 'true'}}")
        parameters = {"networkTopologyRef": {"name": topology.name}, "step": "net"}
        config = [{"requests": ["net"], "opaque": {"driver": names.DRIVER, "parameters": parameters}}]
        plain = scene.device_class(VF)
        wanted = scene.allocated("c", request("net", plain), request("other", plain), config=config)
        with pytest.raises(InvalidInputError, match=r"contains configuration .* for requests net; .*decision D32"):
            await scene.claims.prepare(wanted)

    tell(story)


def test_prepare_accepts_only_values_that_the_parameters_of_the_topology_allow(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        topology = scene.topology(
            "vnf",
            "- {name: net, type: sriov, selector: {cel: 'true'},\n"
            "   config: {ipam: {type: static, addresses: [{address: '{{ params.address }}'}]}}}",
            "[{name: address, format: cidr, within: [10.77.0.0/24]}]",
        )
        asked = request("net", f"{topology.name}-net")

        def config(**values: Any) -> list[Any]:
            parameters = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "ParameterValues", "values": values}
            return [{"opaque": {"driver": names.DRIVER, "parameters": parameters}}]

        for name, values, why in (
            ("none", {}, "needs a value for its parameter address"),
            ("wide", {"address": "10.77.0.5/8"}, "does not lie within"),
            ("more", {"address": "10.77.0.5/24", "type": "evil"}, 'has no parameter "type"'),
        ):
            refused = scene.allocated(name, asked, config=config(**values))
            with pytest.raises(InvalidInputError, match=why):
                await scene.claims.prepare(refused)
            assert not scene.store.has(refused.uid)
        right = scene.allocated("right", asked, config=config(address="10.77.0.5/24"))
        assert len(await scene.claims.prepare(right)) == 1

    tell(story)


def test_another_claim_of_the_name_and_one_that_is_gone_are_refused(tell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "API_SECONDS", 1.0)

    async def story(scene: Scene) -> None:
        wanted = scene.allocated("c", request("net", scene.device_class(VF)))
        former = msgspec.structs.replace(wanted, uid="00000000-0000-4000-8000-000000000000")
        asked = len(scene.proxy.requests)
        with pytest.raises(NetdraError, match="the claim was deleted and created again"):
            await scene.claims.prepare(former)
        assert len(scene.proxy.requests) > asked + 1  # the answer may have been an old one
        with pytest.raises(PermanentError, match="is not there any more"):
            await scene.claims.prepare(msgspec.structs.replace(wanted, name="gone"))

    tell(story)


def test_a_claim_of_another_node_is_refused(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = scene.allocated("c", request("net", scene.device_class(VF)))
        elsewhere = handler(scene.client, "elsewhere", scene.view, scene.holders, scene.store, scene.files)
        with pytest.raises(PermanentError, match=f'is allocated for node {scene.node}, and this is "elsewhere"'):
            await elsewhere.prepare(wanted)

    tell(story)


def test_faults_of_the_api_server_are_waited_out_and_refusals_are_not(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = scene.allocated("c", request("net", scene.device_class(VF)))
        answers = [Answer.status(503), Answer.status(429), Answer.status(500)]
        scene.proxy.fault = lambda _: answers.pop() if answers else None
        scene.view.ready = False
        asyncio.get_running_loop().call_later(0.05, setattr, scene.view, "ready", True)
        assert len(await scene.claims.prepare(wanted)) == 1
        assert not answers

        await scene.claims.unprepare(wanted)
        asked = len(scene.proxy.requests)
        scene.proxy.fault = lambda _: Answer.status(403)
        with pytest.raises(PermanentError, match="403"):
            await scene.claims.prepare(wanted)
        assert len(scene.proxy.requests) == asked + 1

    tell(story)


def test_prepare_reports_a_device_or_topology_that_is_unknown_on_the_node(
    tell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "VIEW_SECONDS", 0.3)

    async def story(scene: Scene) -> None:
        topology = scene.topology("single", "- {name: net, type: sriov, selector: {cel: 'true'}}")
        wanted = scene.allocated("c", request("net", f"{topology.name}-net"))
        scene.view.topologies = {}
        with pytest.raises(TemporaryError, match=f'NetworkTopology "{topology.name}", which does not exist'):
            await scene.claims.prepare(wanted)
        scene.view.topologies = {topology.name: topology}
        slices, scene.view.slices = scene.view.slices, ()
        with pytest.raises(TemporaryError, match="is not known on this node"):
            await scene.claims.prepare(wanted)
        monkeypatch.setattr(preparing, "VIEW_SECONDS", 60.0)
        asyncio.get_running_loop().call_later(0.1, setattr, scene.view, "slices", slices)
        assert len(await scene.claims.prepare(wanted)) == 1

    tell(story)


def test_a_device_that_excludes_a_held_device_is_rejected_until_the_held_one_is_released(tell: Any) -> None:
    """The scheduler sees no counters, as with a server that drops them; the node knows them."""

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
        assert f'"eth0-mac", which ResourceClaim "{namespace}/mac" uses' in caught.value.what
        await scene.claims.unprepare(mac)

        # One that could not be given back holds on, though its claim is no longer prepared.
        held = HeldDevice(key=(f"{scene.node}/sriov-eth0", "eth0-mac"), claim=mac.uid, trouble="busy")
        scene.holders.held = (held,)
        with pytest.raises(PermanentError, match=r"which the claim with uid .* \(busy\) uses"):
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
