"""The free addresses of PodNetworks on an API server and a scheduler without shared devices (decision D71)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest
from click.testing import CliRunner

from netdra.cli.main import cli
from testbed.api import Api
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import CLASS, manifest
from testbed.waiting import until
from testbed.workspace import Workspace, open_workspace
from tests.cluster.conftest import StartControlPlane, serve_kinds
from tests.cluster.daemons import running_controller
from tests.cluster.test_network_shares import Shared, slices
from tests.cluster.test_pod_networks import NETWORK

CLAIMS = 5
GATE = "DRAConsumableCapacity"
QUICK = "from netdra.controller.addresses import shares; shares.RECHECK_SECONDS = 1.0"


@pytest.fixture(scope="module")
def plane(start_control_plane: StartControlPlane) -> ControlPlane:
    return start_control_plane(Settings(feature_gates={GATE: False}))


@pytest.fixture(scope="module")
def own_api(plane: ControlPlane) -> Iterator[Api]:
    """The administrator's client, while the controller is at work."""
    with closing(plane.client()) as api:
        serve_kinds(plane, api)
        with running_controller(plane, api):
            yield api


@pytest.fixture
def workspace(own_api: Api) -> Iterator[Workspace]:
    with open_workspace(own_api) as opened:
        yield opened


def writes(plane: ControlPlane) -> dict[str, int]:
    """The requests that create, change or delete ResourceSlices, by their verb and whether they are dry runs."""
    found: dict[str, int] = {}
    for line in plane.kubectl("get", "--raw", "/metrics").splitlines():
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        if line.startswith("apiserver_request_total{") and labels["resource"] == "resourceslices":
            key = " ".join(filter(None, (labels["verb"], labels["dry_run"])))
            found[key] = found.get(key, 0) + int(float(line.rpartition(" ")[2]))
    return {key: count for key, count in found.items() if key.split()[0] not in ("GET", "LIST", "WATCH")}


def published(api: Api, name: str) -> bool:
    classes = (each["metadata"]["name"] for each in api.list(CLASS))
    return bool(slices(api, name)) or f"podnetwork.{name}" in classes


def test_nothing_is_published_or_written_again_and_claims_without_a_request_get_addresses(
    plane: ControlPlane, workspace: Workspace
) -> None:
    net = Shared(workspace, ranges=[{"cidr": "10.44.0.0/28"}], keepSeconds=0)
    other = workspace.create(manifest(NETWORK, workspace.name("more"), spec={"ranges": [{"cidr": "10.45.0.0/29"}]}))
    net.until_status(total=14)
    until(lambda: writes(plane), "the controller to ask the API server what it supports")
    before = writes(plane)
    for number in range(CLAIMS):
        net.claim(f"claim-{number}")
        net.until(f"claim-{number}", f"10.44.0.{number + 1}/28")
    net.until_status(used=CLAIMS)

    assert not published(net.api, net.name)
    assert not published(net.api, other["metadata"]["name"])
    assert before == writes(plane)
    assert before.keys() == {"POST All"}
    log = plane.processes["netdra-controller"].log.read_text()
    assert log.count("has feature gates off (DRAConsumableCapacity)") == 1
    assert "forbidden" not in log


def test_the_gate_is_named_by_doctor_and_for_a_pod_that_requests_addresses(
    plane: ControlPlane, workspace: Workspace
) -> None:
    net = Shared(workspace, ranges=[{"cidr": "10.46.0.0/28"}], keepSeconds=0)
    net.pod("asks")
    access = f"--kubeconfig={plane.kubeconfig()}"
    why = CliRunner().invoke(cli, ["why", "pod", f"{workspace.namespace}/asks", access]).stdout
    assert "makes it only with the feature gates DRAConsumableCapacity and DRADeviceTaints" in why
    assert "remove the request from the claim" in why
    doctor = CliRunner().invoke(cli, ["doctor", "--only", "cluster", "-o", "json", access]).stdout
    assert "claims cannot request addresses of PodNetworks" in doctor


def test_shares_are_published_after_the_gate_is_switched_on(
    plane: ControlPlane, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller asks the API server again; here each second, not every ten minutes."""
    server, controller = (plane.processes[name] for name in ("kube-apiserver", "netdra-controller"))
    program = ("-c", f"{QUICK}; from netdra.__main__ import main; main()")
    monkeypatch.setattr(controller, "command", (controller.command[0], *program, *controller.command[3:]))
    controller.restart()
    net = Shared(workspace, ranges=[{"cidr": "10.47.0.0/28"}], keepSeconds=0)
    net.until_status(total=14)
    assert not published(net.api, net.name)

    on = [each.replace(f"{GATE}=false", f"{GATE}=true") for each in server.command]
    monkeypatch.setattr(server, "command", tuple(on))
    server.restart()
    until(lambda: slices(net.api, net.name), "the free addresses to be published")
    net.api.wait_for(CLASS, f"podnetwork.{net.name}", lambda found: found is not None)
