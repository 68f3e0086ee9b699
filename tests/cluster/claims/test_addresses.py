"""Claims with addresses of PodNetworks: Prepare waits for their PodAddresses, on the real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.claims import addresses
from testbed.objects import manifest
from testbed.pace import within
from tests.cluster.claims.scene import PF, Scene, request
from tests.cluster.test_pod_networks import ADDRESS, NETWORK

pytestmark = pytest.mark.usefixtures("custom_kinds")


def claimed(scene: Scene, pods: int = 1) -> tuple[ClaimReference, str, str]:
    """A claim of a topology with addresses; its PodNetwork's name and its topology's."""
    network = scene.workspace.name("net")
    step = f"name: nic, type: macvlan, selector: {{cel: '{PF}'}}, network: {network}"
    made = scene.topology("lan", f"- {{{step}, config: {{ipam: {{type: network}}}}}}").name
    return scene.allocated("c", request("nic", f"{made}-nic"), pods=pods), network, made


def assign(scene: Scene, of: ClaimReference, network: str, topology: str, text: str, **changed: Any) -> None:
    """Make a PodAddress as the controller does."""
    spec = {
        "network": network,
        "address": text,
        "families": ["IPv4", "IPv6"],
        "owner": {"namespace": of.namespace, "claim": of.name, "topology": topology, "step": "nic"},
        "claim": {"name": of.name, "uid": of.uid},
        "nodeName": scene.node,
    }
    plain = text.partition("/")[0].replace(":", "-").replace("--", "-0-0-0-0-0-0-")
    scene.workspace.create(manifest(ADDRESS, f"{network}.{plain}", spec=spec | changed))


async def waits(scene: Scene, wanted: ClaimReference) -> asyncio.Task[Any]:
    """A Prepare that watches for PodAddresses by now."""
    preparing = asyncio.create_task(scene.claims.prepare(wanted))
    async with asyncio.timeout(10.0):
        while not any(asked.is_watch and "podaddresses" in asked.path for asked in scene.proxy.requests):
            assert not preparing.done(), preparing.exception()
            await asyncio.sleep(0.01)
    return preparing


def test_addresses_that_come_late_are_seen_at_once_and_written_down(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        claim, network, topology = claimed(scene)
        # Another claim's, and one of another step, are not this one's.
        assign(scene, claim, network, topology, "10.1.0.7/24", claim={"name": claim.name, "uid": "other"})
        owner = {"namespace": claim.namespace, "claim": claim.name, "topology": topology, "step": "other"}
        assign(scene, claim, network, topology, "10.1.0.8/24", owner=owner)
        assign(scene, claim, network, topology, "10.1.0.5/24")
        preparing = await waits(scene, claim)
        await asyncio.sleep(0.3)
        assert not preparing.done()
        assign(scene, claim, network, topology, "2001::5/64")
        with within(1.0, "seeing that an address is assigned"):
            await preparing
        record = scene.store.get(claim.uid)
        assert record is not None
        assert record.plan is not None
        (step,) = record.plan.plans[0].steps
        assert step.pod_network == network
        assert step.config["ipam"] == {
            "type": "static",
            "addresses": [{"address": "10.1.0.5/24"}, {"address": "2001::5/64"}],
        }
        asked = len(scene.proxy.requests)
        await scene.claims.prepare(claim)
        assert not any("podaddresses" in one.path for one in scene.proxy.requests[asked:])

    tell(story)


def test_a_claim_without_addresses_reports_the_reason(tell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "SECONDS", 1.0)

    async def story(scene: Scene) -> None:
        claim, network, _ = claimed(scene)
        with pytest.raises(TemporaryError, match=f'no address of PodNetwork "{network}" is assigned .*does not exist'):
            await scene.claims.prepare(claim)
        made = scene.workspace.create(manifest(NETWORK, network, spec={"ranges": [{"cidr": "10.0.0.0/30"}]}))
        condition = {
            "type": "AddressesAvailable",
            "status": "False",
            "reason": "RangeFull",
            "message": "range 10.0.0.0/30 has no free address",
        }
        full = {"total": 2, "used": 2, "reserved": 0, "users": 2, "conditions": [condition]}
        scene.workspace.api.update({**made, "status": full}, subresource="status")
        with pytest.raises(TemporaryError, match=r"range 10\.0\.0\.0/30 has no free address"):
            await scene.claims.prepare(claim)
        assert scene.store.get(claim.uid) is None

    tell(story)


def test_a_claim_that_pods_share_has_no_addresses(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        claim, network, topology = claimed(scene, pods=2)
        assign(scene, claim, network, topology, "10.1.0.5/24", families=["IPv4"])
        with pytest.raises(InvalidInputError, match=f'has addresses of PodNetwork "{network}", which only one pod can'):
            await scene.claims.prepare(claim)

    tell(story)
