"""The index of a cluster after any edits is that of its objects, and an edit or a review costs the same among many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netdra.admission.copy import Copy
from netdra.admission.messages import AdmissionRequest, Kind
from netdra.admission.requests import narrowed, verdict_on
from netdra.kube.client import Client
from netdra.model import documents
from netdra.model.custom_device import CustomDevice
from netdra.model.meta import ObjectMeta
from netdra.model.policy import DeviceExposurePolicyStatus
from netdra.model.topology import NetworkTopology, NetworkTopologyStatus
from netdra.review.index import WorldIndex
from netdra.review.world import World
from tests import builders
from tests.builders import exclude, exclusive, policy
from tests.effort import calls

NAMES = ("net", "net-a", "x")


def handing(subnet: str, **step: str) -> NetworkTopology:
    extra = "".join(f", {key}: {value}" for key, value in step.items())
    return builders.topology(f"""
- {{name: a, type: sriov{extra}, config: {{ipam: {{type: host-local, subnet: {subnet}}}}}}}
- {{name: a-a, type: my-plugin}}
""")


TOPOLOGIES = (
    handing("10.0.0.0/24"),
    handing("10.0.0.0/16", extendedResourceName="example.com/vf"),
    builders.topology("- {name: a, type: sriov, extendedResourceName: example.com/vf}"),
    builders.topology("- {name: a, type: sriov, dependOn: [b]}\n- {name: a-a, type: sriov}"),
)
POLICIES = (
    exclusive("p", "true", additionalAttributes={"rack": "7"}),
    exclusive("p", "true", additionalAttributes={"rack": 7}),
    policy("p", "true", pooledVFs={"lanes": 1}, capacity={"seats": {"value": "1"}}),
    exclude("p", "true"),
)


def custom_device(device: str, **attributes: Any) -> CustomDevice:
    value = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "CustomDevice",
        "metadata": {"name": "c"},
        "spec": {"provider": "bctl", "device": device, "attributes": attributes},
    }
    return documents.convert(value, CustomDevice, "test")


DEVICES = (custom_device("eth1", a={"bool": True}), custom_device("eth1", a={"int": 1}), custom_device("eth2"))
OBJECTS: tuple[tuple[Any, ...], ...] = (TOPOLOGIES, POLICIES, DEVICES)
EDIT = st.integers(0, 2).flatmap(
    lambda kind: st.tuples(st.just(kind), st.sampled_from(NAMES), st.sampled_from((None, *OBJECTS[kind])))
)


def named(item: Any, name: str) -> Any:
    return replace(item, metadata=ObjectMeta(name=name))


def request_of(item: Any) -> AdmissionRequest:
    group, _, version = item.api_version.partition("/")
    kind = Kind(group, version, type(item).__name__)
    return AdmissionRequest(
        uid="", kind=kind, operation="CREATE", name=item.name, object=msgspec.Raw(msgspec.json.encode(item))
    )


@given(st.lists(EDIT, max_size=12))
def test_after_any_edits_the_index_and_the_narrowed_cluster_match_the_objects(
    edits: list[tuple[int, str, Any]],
) -> None:
    copy = Copy(cast(Client, None))
    stores: tuple[Any, ...] = (copy.topologies, copy.policies, copy.custom_devices)
    for kind, name, item in edits:
        if item is None:
            stores[kind].remove(name)
        else:
            stores[kind].put(name, named(item, name))
    cluster, anew = copy.cluster, WorldIndex(copy.cluster)
    assert (cluster.classes, cluster.added) == (anew.classes, anew.added.value)
    assert (copy.index.pooling, copy.index._parts) == (anew.pooling, anew._parts)
    for kind in range(3):
        for item in OBJECTS[kind]:
            for name in ("net", "net-a-a"):
                request = request_of(named(item, name))
                sent = narrowed(request, cluster, copy.index)
                assert sent == narrowed(request, cluster)


@given(st.lists(EDIT, max_size=6), st.sampled_from(TOPOLOGIES + DEVICES), st.sampled_from((*NAMES, "net-a-a")))
def test_the_verdict_is_that_of_the_whole_cluster(edits: list[tuple[int, str, Any]], item: Any, name: str) -> None:
    kept: tuple[dict[str, Any], ...] = ({}, {}, {})
    for kind, key, edited in edits:
        kept[kind].pop(key, None)
        if edited is not None:
            kept[kind][key] = named(edited, key)
    cluster = World(topologies=kept[0], policies=kept[1], custom_devices=kept[2])
    request = request_of(named(item, name))
    assert verdict_on(request, narrowed(request, cluster)) == verdict_on(request, cluster)


def test_a_status_that_is_written_changes_nothing_that_verdicts_go_by() -> None:
    copy = Copy(cast(Client, None))
    copy.policies.put("p", named(POLICIES[0], "p"))
    copy.topologies.put("net", named(TOPOLOGIES[0], "net"))
    before = copy.cluster
    meta = ObjectMeta(name="p", resource_version="7")
    copy.policies.put("p", replace(POLICIES[0], metadata=meta, status=DeviceExposurePolicyStatus()))
    meta = ObjectMeta(name="net", resource_version="8")
    copy.topologies.put("net", replace(TOPOLOGIES[0], metadata=meta, status=NetworkTopologyStatus()))
    assert copy.cluster is before
    copy.policies.put("p", replace(POLICIES[0], metadata=replace(meta, labels={"a": "b"})))
    assert copy.cluster is not before


def filled(number: int) -> Copy:
    copy = Copy(cast(Client, None))
    for name in (f"p{at:05}" for at in range(number)):
        copy.policies.put(name, named(POLICIES[0], name))
        copy.topologies.put(name, named(TOPOLOGIES[3], name))
        copy.custom_devices.put(name, named(custom_device(name), name))
    return copy


def edit_policy(copy: Copy) -> None:
    copy.policies.put("new", named(POLICIES[1], "new"))
    copy.policies.remove("new")
    assert copy.cluster.policies


def edit_topology(copy: Copy) -> None:
    copy.topologies.put("new", named(TOPOLOGIES[0], "new"))
    copy.topologies.remove("new")
    assert copy.cluster.topologies


def reviewed(item: Any) -> Callable[[Copy], None]:
    def send(copy: Copy) -> None:
        request = request_of(named(item, "new"))
        verdict_on(request, narrowed(request, copy.cluster, copy.index))

    return send


@pytest.mark.parametrize(
    "work",
    [edit_policy, edit_topology, reviewed(POLICIES[0]), reviewed(TOPOLOGIES[0]), reviewed(DEVICES[0])],
    ids=["policy", "topology", "review of a policy", "review of a topology", "review of a CustomDevice"],
)
def test_an_edit_and_a_review_cost_the_same_among_many_objects(work: Callable[[Copy], None]) -> None:
    few, many = filled(100), filled(1000)
    work(few)
    work(many)
    assert calls(lambda: work(many)) <= 1.2 * calls(lambda: work(few))
