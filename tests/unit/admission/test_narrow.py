"""A worker is sent only what its review inspects: the verdict is that of the whole cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from netdra.admission.messages import AdmissionRequest, Verdict
from netdra.admission.requests import narrowed, verdict_on
from netdra.cel.vocabulary import Added
from netdra.exposure.foresight import InterfaceReports, SimilarInterfaces
from netdra.exposure.ranks import Rivals
from netdra.model import documents
from netdra.model.custom_device import CustomDevice
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.review.world import NOTHING, World
from netdra.topology.classes import known_classes
from tests.builders import OURS, exclusive, policy, shared

Request = Callable[..., AdmissionRequest]
Topology = Callable[..., NetworkTopology]
GROUPS = {"CNIPluginSchema": "cni.networking.k8s.io"}


def written(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    version = f"{GROUPS.get(kind, 'networking.dra.io')}/v1alpha1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def whole(topology: Topology) -> World:
    """A cluster with something of each kind that others can clash with, and something that they cannot."""
    topologies = (
        topology("a", "- {name: b-c, type: sriov, extendedResourceName: example.com/vf}"),
        topology("far", "- {name: x, type: my-plugin, config: {level: 1}}"),
        topology("fed", "- {name: x, type: sriov, config: {ipam: {type: my-ipam, pool: 7}}}"),
    )
    limits = {"configParameters": {"optional": [{"name": "level", "type": "string"}]}}
    schema = documents.convert(written("CNIPluginSchema", "s", cniType="my-plugin", **limits), CNIPluginSchema, "test")
    custom = written("CustomDevice", "c", provider="bctl", device="eth1", addIfNotExist=True)
    return World(
        topologies={each.name: each for each in topologies},
        schemas={"s": schema},
        policies={"p": shared("p", "true"), "pool": policy("pool", "true", pooledVFs={"lanes": 1})},
        custom_devices={"c": documents.convert(custom, CustomDevice, "test")},
        classes=known_classes(topologies, []),
        users=("team/a",),
        added=Added({"dra.networking/rack": ("string",)}),
    )


SCHEMA = {"configParameters": {"optional": [{"name": "pool", "type": "string"}, {"name": "level", "type": "string"}]}}


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (("a-b", "- {name: c, type: sriov}"), "has the same name as that of step"),
        (("other", "- {name: y, type: sriov, extendedResourceName: example.com/vf}"), "example.com/vf"),
        (("other", "- {name: y, type: my-plugin, config: {level: 2}}"), "level"),
        (
            ("other", f"- {{name: y, type: sriov, selector: {{cel: '{OURS}.rack == 7'}}}}"),
            "rack is a string and 7 an int",
        ),
        (
            ("other", f"- {{name: y, type: sriov, selector: {{cel: '{OURS}.vfIndex == 3'}}}}"),
            "never selects devices of pooledVFs",
        ),
        (written("DeviceExposurePolicy", "q", selector={"cel": f'{OURS}.rack == "7"'}), "added to devices after"),
        (written("CNIPluginSchema", "t", cniType="my-plugin", **SCHEMA), '"s" counts'),
        (written("CNIPluginSchema", "r", cniType="my-plugin", **SCHEMA), "the stored topologies far do not match it"),
        (written("CNIPluginSchema", "t", cniType="my-ipam", **SCHEMA), "the stored topologies fed do not match it"),
        (written("CustomDevice", "d", provider="bctl", device="eth1", addIfNotExist=True), "c describes the same"),
        (written("CustomDevice", "d", provider="bctl"), "device"),
    ],
)
def test_the_verdict_is_that_of_the_whole_cluster(
    request_of: Request, topology: Topology, whole: World, new: Any, said: str
) -> None:
    request = request_of(topology(*new) if isinstance(new, tuple) else new)
    verdict = verdict_on(request, whole)
    assert said in "\n".join((*verdict.errors, *verdict.warnings))
    assert verdict_on(request, narrowed(request, whole)) == verdict


def test_a_policy_is_compared_with_policies_of_its_rank_and_policies_in_interface_reports(
    request_of: Request, whole: World
) -> None:
    request = request_of(exclusive("q", "true"))
    standing = SimilarInterfaces({}, standings={"p": "wins", "gone": "wins"})
    cluster = replace(whole, reported=InterfaceReports((standing,), nodes=1))
    sent = narrowed(request, cluster)
    assert sent == World(
        policies={"p": whole.policies["p"]}, added=whole.added, reported=cluster.reported, rivals=Rivals(("p", "pool"))
    )
    assert verdict_on(request, sent) == verdict_on(request, cluster)


def test_topologies_that_can_neither_clash_nor_break_are_not_sent(
    request_of: Request, topology: Topology, whole: World
) -> None:
    assert narrowed(request_of(topology("new", "- {name: y, type: sriov}")), whole).topologies == {}
    sent = narrowed(request_of(written("CNIPluginSchema", "t", cniType="my-plugin")), whole)
    assert sent.topologies.keys() == {"far"}


def test_an_unreadable_object_is_sent_without_any_cluster_state(
    request_of: Request, topology: Topology, whole: World
) -> None:
    request = request_of(topology("new", "- {name: y, type: sriov}"))
    broken = msgspec.structs.replace(request, object=msgspec.Raw(b'{"spec": 7}'))
    assert narrowed(broken, whole) == NOTHING
    refused: Verdict = verdict_on(broken, narrowed(broken, whole))
    assert not refused.allowed
