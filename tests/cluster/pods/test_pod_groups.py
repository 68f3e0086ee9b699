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
from testbed.kubelet import answered_claims
from testbed.objects import CLAIM, manifest
from testbed.pods import is_running
from tests.cluster.conftest import StartControlPlane, serve_kinds
from tests.cluster.pods import witness
from tests.cluster.pods.driver import TEMPLATE
from tests.cluster.pods.stage import Stage, shares, whole

POD_GROUP = "scheduling.k8s.io/v1beta1/PodGroup"
GATES = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
GROUP = "workers"
NAME = "share"
"""The claim's name in the PodGroup and in its pods: Kubernetes matches them by name and template."""


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


def claim_of_group(stage: Stage, **scheduling_policy: Object) -> Object:
    """Make a PodGroup with a claim for a share, and return the claim that Kubernetes makes from the template."""
    namespace = stage.workspace.namespace
    requests = [{"name": "share", "exactly": {"deviceClassName": f"{shares(stage.workspace, GROUP)}-share"}}]
    stage.pods.api.create(manifest(TEMPLATE, GROUP, namespace, spec={"spec": {"devices": {"requests": requests}}}))
    claims = [{"name": NAME, "resourceClaimTemplateName": GROUP}]
    spec = {"schedulingPolicy": scheduling_policy, "resourceClaims": claims}
    stage.pods.api.create(manifest(POD_GROUP, GROUP, namespace, spec=spec))
    (claim,) = stage.pods.api.wait_for_all(CLAIM, lambda found: len(found) == 1, namespace=namespace)
    return claim


def add(stage: Stage, *names: str) -> None:
    """Make pods of the group, and wait until they run with their network."""
    claims = [{"name": NAME, "resourceClaimTemplateName": GROUP}]
    for name in names:
        witness.add(stage.pods, name, NAME, resourceClaims=claims, schedulingGroup={"podGroupName": GROUP})
    for name in names:
        witness.hurry(stage.pods, name, is_running)
        whole(stage.pods, name)


def reserved_for(stage: Stage, claim: str) -> list[tuple[str, str, str]]:
    users = stage.pods.api.get(CLAIM, claim, stage.workspace.namespace)["status"]["reservedFor"]
    return [(user.get("apiGroup", ""), user["resource"], user["name"]) for user in users]


def test_pods_of_a_group_share_the_claim_that_is_reserved_for_the_group(stage: Stage) -> None:
    api, namespace, driver = stage.pods.api, stage.workspace.namespace, stage.driver
    group = [("scheduling.k8s.io", "podgroups", GROUP)]
    claim = claim_of_group(stage, gang={"minCount": 2})["metadata"]["name"]

    add(stage, "first", "second")
    assert reserved_for(stage, claim) == group
    assert answered_claims(driver.node) == {(namespace, claim)}
    addresses = [witness.addresses(stage.pods, name) for name in ("first", "second")]
    assert addresses[0].isdisjoint(addresses[1])
    witness.wait_status(stage.pods, claim)

    # A driver that is restarted keeps the claim and the networks, and attaches a pod that joins the group.
    driver.process.restart()
    add(stage, "third")
    assert [witness.addresses(stage.pods, name) for name in ("first", "second")] == addresses

    # When its last pod is gone the node unprepares the claim, which stays reserved; it is prepared anew for later pods.
    witness.end(stage.pods, "first", "second", "third")
    driver.until_nothing_is_left()
    assert answered_claims(driver.node) == set()
    assert reserved_for(stage, claim) == group
    add(stage, "fourth", "fifth")
    assert answered_claims(driver.node) == {(namespace, claim)}

    witness.end(stage.pods, "fourth", "fifth")
    api.delete(POD_GROUP, GROUP, namespace)
    api.wait_for(CLAIM, claim, lambda found: found is None, namespace=namespace)
    driver.until_nothing_is_left()
