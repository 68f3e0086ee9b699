"""Pods of a PodGroup share the claim that Kubernetes makes for the group and reserves for it, not for the pods.

The feature is beta and off in Kubernetes 1.37, so the control plane and the kubelet of this module have its gates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from testbed.api import Api, Object
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.image import NAME as IMAGE
from testbed.kubelet import answered_claims
from testbed.objects import CLAIM, POD, manifest
from testbed.pods import CONTAINER, is_running
from tests.cluster.conftest import StartControlPlane, serve_kinds
from tests.cluster.pods import witness
from tests.cluster.pods.driver import TEMPLATE
from tests.cluster.pods.running import make_topology, publish, step
from tests.cluster.pods.stage import Stage, shares, whole

POD_GROUP = "scheduling.k8s.io/v1beta1/PodGroup"
GATES = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
GROUP = "workers"
NAME = "share"
"""The claim's name in the PodGroup and in its pods: Kubernetes matches it by this name and the template or claim."""


@pytest.fixture(scope="module")
def control_plane(start_control_plane: StartControlPlane) -> ControlPlane:
    """A control plane that serves PodGroups."""
    return start_control_plane(Settings(feature_gates=GATES, runtime_config=["scheduling.k8s.io/v1beta1=true"]))


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Iterator[Api]:
    """The administrator's client."""
    with closing(control_plane.client()) as client:
        yield client


@pytest.fixture(scope="module")
def custom_kinds(control_plane: ControlPlane, api: Api) -> None:
    """netdra's own kinds are served."""
    serve_kinds(control_plane, api)


def make_group(stage: Stage, minimum: int, **source: str) -> None:
    """Make a PodGroup that is scheduled from a number of pods on and has a claim: of a template, or an existing one."""
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}, "resourceClaims": [{"name": NAME, **source}]}
    stage.pods.api.create(manifest(POD_GROUP, GROUP, stage.workspace.namespace, spec=spec))


def delete_group(stage: Stage) -> None:
    stage.pods.api.delete(POD_GROUP, GROUP, stage.workspace.namespace)
    stage.pods.api.wait_for(POD_GROUP, GROUP, lambda found: found is None, namespace=stage.workspace.namespace)


def in_group(**source: str) -> Object:
    """The part of the spec that pods of the group share."""
    return {"resourceClaims": [{"name": NAME, **source}], "schedulingGroup": {"podGroupName": GROUP}}


def run(stage: Stage, spec: Object, *names: str) -> None:
    """Make pods, and wait until they run with their network."""
    for name in names:
        witness.add(stage.pods, name, NAME, **spec)
    for name in names:
        witness.hurry(stage.pods, name, is_running)
        whole(stage.pods, name)


def request_of(topology: str) -> Object:
    return {"name": "share", "exactly": {"deviceClassName": f"{topology}-share"}}


def reserved_for(stage: Stage, claim: str) -> list[tuple[str, str, str]]:
    users = stage.pods.api.get(CLAIM, claim, stage.workspace.namespace)["status"]["reservedFor"]
    return [(user.get("apiGroup", ""), user["resource"], user["name"]) for user in users]


def test_pods_of_a_group_share_the_claim_that_is_reserved_for_the_group(stage: Stage) -> None:
    api, namespace, driver = stage.pods.api, stage.workspace.namespace, stage.driver
    reservation = [("scheduling.k8s.io", "podgroups", GROUP)]
    devices = {"requests": [request_of(shares(stage.workspace, GROUP))]}
    api.create(manifest(TEMPLATE, "template", namespace, spec={"spec": {"devices": devices}}))
    make_group(stage, 2, resourceClaimTemplateName="template")
    member = in_group(resourceClaimTemplateName="template")

    run(stage, member, "first", "second")
    (claim,) = [found["metadata"]["name"] for found in api.list(CLAIM, namespace)]
    assert reserved_for(stage, claim) == reservation
    assert answered_claims(driver.node) == {(namespace, claim)}
    addresses = [witness.addresses(stage.pods, name) for name in ("first", "second")]
    assert addresses[0].isdisjoint(addresses[1])
    witness.wait_status(stage.pods, claim)

    # A driver that is restarted keeps the claim and the networks, and attaches a pod that joins the group.
    driver.restart()
    run(stage, member, "third")
    assert [witness.addresses(stage.pods, name) for name in ("first", "second")] == addresses

    # When its last pod is gone the node unprepares the claim, which stays reserved; it is prepared anew for later pods.
    witness.end(stage.pods, "first", "second", "third")
    driver.until_nothing_is_left()
    assert answered_claims(driver.node) == set()
    assert reserved_for(stage, claim) == reservation
    run(stage, member, "fourth", "fifth")
    assert answered_claims(driver.node) == {(namespace, claim)}

    witness.end(stage.pods, "fourth", "fifth")
    delete_group(stage)
    api.wait_for(CLAIM, claim, lambda found: found is None, namespace=namespace)
    driver.until_nothing_is_left()


def test_finished_pods_of_a_group_do_not_count(stage: Stage) -> None:
    api, namespace = stage.pods.api, stage.workspace.namespace
    publish(stage.driver.node, api, "nicg")
    request = request_of(make_topology(stage.workspace, "moved", step("share", "host-device", prefix="nicg")))
    member = in_group(resourceClaimName="claim")

    def in_turn(*names: str) -> None:
        """Pods of a new group use its claim one after the other: its device is moved into each."""
        make_group(stage, 1, resourceClaimName=stage.workspace.add_claim("claim", request))
        for name in names:
            run_to_end(stage, member, name)
        delete_group(stage)
        api.delete(CLAIM, "claim", namespace)
        api.wait_for(CLAIM, "claim", lambda found: found is None, namespace=namespace)

    in_turn("first", "second")
    # The node still knows of the finished pods, whose group and claim had the names of the new ones.
    in_turn("third")
    assert len(api.list(POD, namespace)) == 3


def run_to_end(stage: Stage, spec: Object, name: str) -> None:
    """Make a pod whose container ends at once if it has its network, and wait until it has ended well."""
    container: Object = {
        "name": CONTAINER,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["ip", "link", "show", "net1"],
        "resources": {"claims": [{"name": NAME}]},
    }
    stage.pods.add(name, containers=[container], restartPolicy="Never", **spec)
    witness.hurry(stage.pods, name, lambda found: (found or {})["status"]["phase"] == "Succeeded")
