"""A claim is released only if no pod of this node has it, as far as the API server can be read."""

from __future__ import annotations

from typing import Any, cast

from netdra.kube.errors import ApiError, Status
from netdra.kube.resources import Resource
from netdra.node.claims.release import Releases
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
