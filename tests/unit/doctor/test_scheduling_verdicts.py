"""The forecasts of `netdra doctor` on the scheduler: searches that are too long, and counts that no node has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.cluster.objects import PlacedPod
from netdra.doctor.diagnosis import Unseen
from netdra.doctor.scheduling_verdicts import SchedulingFacts, verdicts
from netdra.model.claim import DeviceClass, ResourceClaimTemplate, ResourceClaimTemplateSpec
from netdra.model.meta import ObjectMeta
from netdra.model.names import IMPLICIT_RESOURCE
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from tests.unit.slices.making import claim, class_of, device, request, shared, slice_of

RESOURCE = "example.com/vf"
OURS = 'device.attributes["dra.networking"]'
VF = msgspec.convert(
    {
        "metadata": {"name": "vf"},
        "spec": {
            "selectors": [{"cel": {"expression": f'device.driver == "dra.networking" && {OURS}.type == "vf"'}}],
            "extendedResourceName": RESOURCE,
        },
    },
    DeviceClass,
)


def rails(pfs: int, each: int, *, lanes: bool = False) -> tuple[ResourceSlice, ...]:
    made = shared if lanes else device
    attributes = {"dra.networking/supportedCNIs": ",sriov,", "dra.networking/type": "vf"}
    return tuple(
        slice_of(
            *(made(f"pf{pf}-{n}", attributes=attributes | {"dra.networking/pfName": f"pf{pf}"}) for n in range(each)),
            pool=f"n1/{pf}",
        )
        for pf in range(pfs)
    )


def topology(roots: int) -> NetworkTopology:
    steps = [
        {"name": f"r{pf}", "type": "sriov", "selector": {"cel": f'{OURS}.pfName == "pf{pf}"'}} for pf in range(roots)
    ]
    return msgspec.convert(
        {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "NetworkTopology",
            "metadata": {"name": "rails"},
            "spec": {"steps": steps},
        },
        NetworkTopology,
    )


def of_each(count: int) -> list[dict[str, Any]]:
    return [request(f"r{pf}", f'{OURS}.pfName == "pf{pf}"', of="vf") for pf in range(count)]


def template(name: str, *requests: dict[str, Any]) -> ResourceClaimTemplate:
    spec = ResourceClaimTemplateSpec(spec=claim(name, *requests).spec)
    return ResourceClaimTemplate(metadata=ObjectMeta(name=name, namespace="apps"), spec=spec)


def test_a_topology_with_many_equal_vfs_is_warned_of_and_with_few_lanes_it_is_not() -> None:
    (found,) = verdicts(SchedulingFacts(slices=rails(8, 16), topologies=(topology(8),)))
    assert (found.where, found.check, found.level) == ("cluster", "searches of the scheduler", "warning")
    assert found.seen.startswith('NetworkTopology "rails": if a request cannot be allocated on node n1')
    assert found.fix == "offer the VFs together (pooledVFs in their policy), in few lanes"
    (found,) = verdicts(SchedulingFacts(slices=rails(8, 4, lanes=True), topologies=(topology(8),)))
    assert (found.level, found.fix) == ("ok", "")


def test_templates_and_claims_that_ask_for_the_same_have_one_finding() -> None:
    facts = SchedulingFacts(
        slices=rails(8, 16),
        classes=(VF,),
        templates=(template("t", *of_each(8)),),
        claims=tuple(claim(f"c{number}", *of_each(8)) for number in range(3)),
    )
    (found,) = verdicts(facts)
    assert found.seen.startswith('ResourceClaimTemplate "apps/t" and 3 more: ')


@pytest.mark.parametrize("resource", [RESOURCE, f"{IMPLICIT_RESOURCE}vf"])
def test_a_pod_whose_limit_is_above_the_pooled_devices_is_pending_for_ever(resource: str) -> None:
    waiting = msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "apps"},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {resource: "2", "cpu": "500m"}}}]},
        },
        PlacedPod,
    )
    (found,) = verdicts(SchedulingFacts(slices=rails(1, 1, lanes=True), classes=(VF,), pods=(waiting,)))
    assert found.coded == (
        f'Pod "apps/p", request "{resource}": 2 devices are requested, but only 1 matches on any node, and a request '
        "cannot get the same shared device twice (ND1559)"
    )
    assert found.fix == "divide the pooled VFs into more lanes, or use several requests"
    (found,) = verdicts(SchedulingFacts(slices=rails(2, 1, lanes=True), classes=(VF,), pods=(waiting,)))
    assert found.level == "ok"


def test_the_claims_of_a_pending_pod_are_searched_together() -> None:
    spec = {
        "containers": [{"name": "main"}],
        "resourceClaims": [
            *({"name": f"n{rail}", "resourceClaimTemplateName": f"t{rail}"} for rail in range(4)),
            *({"name": f"n{rail}", "resourceClaimName": f"c{rail}"} for rail in range(4, 8)),
        ],
    }
    facts = SchedulingFacts(
        slices=rails(8, 16),
        classes=(VF,),
        templates=tuple(template(f"t{rail}", asked) for rail, asked in enumerate(of_each(8))),
        claims=tuple(claim(f"c{rail}", asked, namespace="apps") for rail, asked in enumerate(of_each(8))),
        pods=(msgspec.convert({"metadata": {"name": "p", "namespace": "apps"}, "spec": spec}, PlacedPod),),
    )
    (found,) = verdicts(facts)
    assert found.seen.startswith('Pod "apps/p": if a request cannot be allocated on node n1')
    deleted = ObjectMeta(name="p", namespace="apps", deletion_timestamp="2026-11-27T09:00:00Z")
    of_deleted = (msgspec.structs.replace(facts.pods[0], metadata=deleted),)
    (found,) = verdicts(msgspec.structs.replace(facts, pods=of_deleted))
    assert found.level == "ok"


def test_claims_for_other_drivers_devices_and_allocated_claims_are_not_judged() -> None:
    gpu = class_of("gpu", 'device.driver == "gpu.example"')
    others = tuple(
        slice_of(*(device(f"g{n}") for n in range(60)), driver="gpu.example", pool=f"g{p}") for p in range(4)
    )
    facts = SchedulingFacts(
        slices=others, classes=(gpu,), claims=(claim("c", *(request(f"r{n}", of="gpu", count=9) for n in range(3))),)
    )
    (found,) = verdicts(facts)
    assert (found.level, found.seen) == ("ok", "0 different requests for devices can be searched in time")


def test_of_many_findings_the_first_are_shown_and_the_others_counted() -> None:
    facts = SchedulingFacts(
        slices=rails(1, 1, lanes=True),
        classes=(VF,),
        templates=tuple(template(f"t{n}", request("r", of="vf", count=n)) for n in range(2, 10)),
    )
    found = verdicts(facts)
    assert len(found) == 6
    assert found[-1].seen == "3 more warnings of this kind"


def test_partially_read_and_unreadable_slices_are_reported() -> None:
    (found,) = verdicts(SchedulingFacts(slices=rails(2, 2), is_part=True))
    assert found.seen.endswith("on the first 2 ResourceSlices")
    (found,) = verdicts(Unseen("you may not list resourceslices"))
    assert (found.level, found.seen) == ("warning", "could not be read: you may not list resourceslices")
