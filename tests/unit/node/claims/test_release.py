"""A claim is released only if no pod of this node has it, as far as the API server can be read."""

from __future__ import annotations

from typing import Any, cast

from netdra.kube.errors import ApiError, Status
from netdra.kube.resources import Resource
from netdra.model.plan import ClaimReference
from netdra.node.claims.release import Releases
from netdra.node.claims.store import PodReference, PreparedClaim
from testbed import virtual_time
from tests.memory_api import MemoryApi, T


class _Broken(MemoryApi):
    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        raise ApiError("the API server is overloaded", Status(code=503))


def has_pod(api: MemoryApi, uid: str = "u", node: str = "node-1") -> bool:
    api.put("pods", {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"nodeName": "node-1"}})
    releases = Releases(api, node, *cast("Any", (None,) * 5))
    return virtual_time.run(releases.has_pod("ns", "p", uid))


def test_a_pod_is_there_if_it_is_the_same_one_and_on_this_node() -> None:
    assert has_pod(MemoryApi())
    assert not has_pod(MemoryApi(), uid="of-a-former-pod")
    assert not has_pod(MemoryApi(), node="node-2")


def test_a_pod_that_cannot_be_read_counts_as_there() -> None:
    assert has_pod(_Broken())


def test_a_claim_is_needed_while_a_pod_of_this_node_has_it_and_the_pod_is_read_once() -> None:
    record = PreparedClaim(
        boot_id="b",
        claim=ClaimReference(namespace="ns", name="c", uid="claim"),
        devices=(),
        pods=(PodReference(name="p", uid="u"),),
    )
    api, present = MemoryApi(), set[str]()
    releases = Releases(api, "node-1", *cast("Any", (None,) * 5))
    assert not virtual_time.run(releases.is_needed(record, present))
    api.put("pods", {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"nodeName": "node-1"}})
    assert virtual_time.run(releases.is_needed(record, present))
    assert present == {"u"}
    api.drop("pods", "p", "ns")
    assert virtual_time.run(releases.is_needed(record, present)), "that was just read"
