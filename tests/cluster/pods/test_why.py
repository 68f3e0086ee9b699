"""`netdra why` of real pods: faults on a node have their cause in the first three lines, a pod that runs every step."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from netdra.cli.main import cli
from netdra.model.names import DRIVER
from netdra.model.topology import NetworkTopology
from netdra.topology.classes import device_classes
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.driver import Driver
from testbed.image import NAME
from testbed.objects import CLAIM, manifest
from testbed.pods import CONTAINER, Pods, is_running
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.pods import witness
from tests.cluster.pods.driver import TEMPLATE
from tests.cluster.pods.running import TOPOLOGY, step
from tests.cluster.pods.stage import SHARED, Stage, shares

VALUES = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "ParameterValues"}


def why(plane: ControlPlane, workspace: Workspace, *arguments: str) -> Result:
    options = (f"--kubeconfig={plane.kubeconfig()}", f"--namespace={workspace.namespace}")
    return CliRunner().invoke(cli, ["why", *arguments, *options])


def first_lines(told: Result) -> str:
    return "\n".join(told.stdout.splitlines()[:3])


def wait_reason(stage: Stage, claim: str, reason: str) -> None:
    """Have the kubelet inspect the pod until the claim's device has a reason; by itself it may wait for long."""

    def has_reason(_: Object | None) -> bool:
        devices = stage.pods.claim_status(claim)
        return [each["conditions"][0]["reason"] for each in devices] == [reason]

    witness.hurry(stage.pods, "pod", has_reason)


def test_a_pod_that_runs_has_its_steps_and_addresses_and_then_its_drift(
    stage: Stage, control_plane: ControlPlane, workspace: Workspace
) -> None:
    witness.add(stage.pods, "pod", stage.claim("net"))
    wait_reason(stage, "net", "Attached")
    stage.pods.wait("pod", is_running)
    told = why(control_plane, workspace, "pod", "pod")
    assert told.exit_code == 0, told.output
    assert "No problem was found." in first_lines(told)
    assert "is attached as net1 with 198.51.100." in told.stdout
    assert "step size (tuning) → net1" in told.stdout
    of_claim = why(control_plane, workspace, "claim", "net")
    assert (of_claim.exit_code, "is used by pod" in first_lines(of_claim)) == (0, True), of_claim.output
    of_device = why(control_plane, workspace, "device", f"{stage.driver.node.name}/{SHARED}")
    assert f"is allocated to {workspace.namespace}/net" in first_lines(of_device)

    stage.pods.run_inside("pod", "ip", "link", "set", "net1", "mtu", "1300")
    stage.driver.restart()
    stage.pods.wait_event("pod", "NetworkChanged")
    told = why(control_plane, workspace, "pod", "pod")
    assert told.exit_code == 1, told.output
    assert "the network is not as it was attached" in first_lines(told)
    assert "mtu" in first_lines(told).lower()


def test_a_step_that_fails_is_the_cause_with_the_plugins_own_words(
    stage: Stage, control_plane: ControlPlane, workspace: Workspace
) -> None:
    stage.driver.recorder("far-end").fails("ADD", message="no carrier on the far side")
    witness.add(stage.pods, "pod", stage.claim("net", "far-end"))
    wait_reason(stage, "net", "StepFailed")
    told = why(control_plane, workspace, "pod", "pod")
    assert told.exit_code == 1, told.output
    assert 'step "more"' in first_lines(told)
    assert "no carrier on the far side" in first_lines(told)


@pytest.fixture
def parametrized(workspace: Workspace) -> str:
    """A topology whose claims give a number."""
    name = workspace.name("values")
    parameters = [{"name": "mtu", "type": "integer", "minimum": 1280, "maximum": 1400}]
    steps = [step("share", "macvlan", {"mode": "bridge", "mtu": "{{ params.mtu }}"}, prefix=SHARED)]
    topology = manifest(TOPOLOGY, name, spec={"parameters": parameters, "steps": steps})
    workspace.create(topology)
    for each in device_classes(msgspec.convert(topology, NetworkTopology)):
        workspace.create(msgspec.to_builtins(each))
    return name


def test_values_out_of_their_bounds_are_the_cause(
    stage: Stage, parametrized: str, control_plane: ControlPlane, workspace: Workspace
) -> None:
    opaque = {"driver": DRIVER, "parameters": {**VALUES, "values": {"mtu": 9000}}}
    requests = [{"name": "share", "exactly": {"deviceClassName": f"{parametrized}-share"}}]
    devices: dict[str, Any] = {"requests": requests, "config": [{"requests": ["share"], "opaque": opaque}]}
    workspace.api.create(manifest(CLAIM, "values", workspace.namespace, spec={"devices": devices}))
    stage.pods.add("pod", "values")
    wait_reason(stage, "values", "NotPrepared")
    told = why(control_plane, workspace, "pod", "pod", "-o", "json")
    assert told.exit_code == 1, told.output
    assert "9000" in json.loads(told.stdout)["cause"]["text"]
    assert json.loads(told.stdout)["cause"]["reason"] == "NotPrepared"


def test_a_node_whose_driver_does_not_run_is_the_cause(
    driver: Driver, shares: None, pods: Pods, workspace: Workspace, stage: Stage, control_plane: ControlPlane
) -> None:
    claim = stage.claim("net")
    driver.kill()
    try:
        pods.add("pod", claim)

        def is_told(_: Object | None) -> bool:
            return "cannot reach the driver dra.networking" in first_lines(why(control_plane, workspace, "pod", "pod"))

        witness.hurry(pods, "pod", is_told)
    finally:
        driver.start()


def test_a_pod_that_has_ended_has_no_cause_and_the_state_of_its_claims(
    stage: Stage, control_plane: ControlPlane, workspace: Workspace
) -> None:
    request = {"name": "share", "exactly": {"deviceClassName": f"{shares(workspace, 'template')}-share"}}
    template = {"spec": {"devices": {"requests": [request]}}}
    workspace.create(manifest(TEMPLATE, "nets", workspace.namespace, spec=template))
    container = {
        "name": CONTAINER,
        "image": NAME,
        "imagePullPolicy": "Never",
        "command": ["ip", "link", "show", "net1"],
        "resources": {"claims": [{"name": "net"}]},
    }
    claims = {"job": {"resourceClaimTemplateName": "nets"}, "named": {"resourceClaimName": stage.claim("net")}}
    for name, claim in claims.items():
        entries = [{"name": "net", **claim}]
        stage.pods.add(name, containers=[container], resourceClaims=entries, restartPolicy="Never")
    for name in claims:
        witness.hurry(stage.pods, name, lambda found: (found or {})["status"]["phase"] == "Succeeded")

    def is_told(name: str, text: str) -> bool:
        told = why(control_plane, workspace, "pod", name)
        assert f"Pod {workspace.namespace}/{name} has ended (Succeeded)." in told.stdout
        assert (told.exit_code, "No problem was found." in first_lines(told)) == (0, True), told.output
        return text in told.stdout

    until(lambda: is_told("job", "was created for the pod, and Kubernetes has deleted it"), "the claim to be deleted")
    until(lambda: is_told("named", "Kubernetes has released its devices"), "the claim to be released")
    of_claim = why(control_plane, workspace, "claim", "net")
    assert of_claim.exit_code == 0, of_claim.output
    assert "named by pods named, which have ended" in of_claim.stdout


def test_devices_of_a_node_and_their_users_are_listed_and_counted(
    stage: Stage, control_plane: ControlPlane, workspace: Workspace
) -> None:
    witness.add(stage.pods, "pod", stage.claim("net"))
    wait_reason(stage, "net", "Attached")
    stage.pods.wait("pod", is_running)
    access = [f"--kubeconfig={control_plane.kubeconfig()}", f"--node={stage.driver.node.name}", "-o", "json"]
    uses = json.loads(CliRunner().invoke(cli, ["get", "--used", *access]).stdout)
    (use,) = uses
    assert (use["device"], use["claims"], use["pods"]) == (SHARED, [f"{workspace.namespace}/net"], ["pod"])
    assert use["interface"] == "net1"
    counted = json.loads(CliRunner().invoke(cli, ["top", *access]).stdout)
    (node,) = counted["nodes"]
    assert (node["name"], node["allocated"]) == (stage.driver.node.name, 1)
    assert {each["name"] for each in counted["pfs"]} >= {f"{stage.driver.node.name}/{SHARED}"}
