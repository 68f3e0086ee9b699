"""CNI plugins that come and go: the scheduler waits for one, and places the pod as soon as it is there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.api import Object
from testbed.build import program
from testbed.objects import POD, SLICE, scheduling
from testbed.pace import within
from testbed.pods import is_running
from tests.cluster.pods import witness
from tests.cluster.pods.stage import Stage

REPORT = "networking.dra.io/v1alpha1/NodeNetwork"
SOON = 5.0
"""Seconds from a plugin's arrival until a pod that waits for it runs."""
ATTEMPTS = 3


def supported(found: list[Object]) -> set[str]:
    devices = [device for each in found for device in each["spec"].get("devices", [])]
    return {device["attributes"]["supportedCNIs"].get("string") for device in devices}


@pytest.fixture
def macvlan(stage: Stage) -> Iterator[Path]:
    """The plugin's file, which the node does not have; it gets it back."""
    path = stage.driver.plugins / "macvlan"
    path.unlink()
    stage.workspace.api.wait_for_all(
        SLICE, lambda found: ",macvlan," not in supported(found), fields=f"spec.nodeName={stage.driver.node.name}"
    )
    yield path
    path.unlink(missing_ok=True)
    path.symlink_to(program("macvlan"))
    stage.workspace.api.wait_for_all(
        SLICE, lambda found: ",macvlan," in supported(found), fields=f"spec.nodeName={stage.driver.node.name}"
    )


def install(path: Path) -> None:
    """Whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    shutil.copy(program(path.name), part)
    part.rename(path)


def lacked(found: list[Object]) -> set[str]:
    devices = [device for each in found for device in each["spec"].get("devices", [])]
    return {device["attributes"].get("lackedCNIs", {}).get("string", "") for device in devices}


@pytest.fixture
def host_local(stage: Stage) -> Iterator[Path]:
    """The IPAM plugin's file, which the node does not have; it gets it back."""
    path = stage.driver.plugins / "host-local"
    path.unlink()
    yield path
    path.unlink(missing_ok=True)
    path.symlink_to(program("host-local"))
    stage.workspace.api.wait_for_all(
        SLICE, lambda found: lacked(found) == {""}, fields=f"spec.nodeName={stage.driver.node.name}"
    )


def unplaced(stage: Stage, name: str) -> str:
    """Make a pod that no node can take, and return its name: the scheduler may see a slice later than the test does."""
    for attempt in range(ATTEMPTS):
        pod = f"{name}-{attempt}"
        witness.add(stage.pods, pod, stage.claim(pod))
        decided = stage.pods.wait(pod, lambda found: scheduling(found) != ("", ""))
        if not scheduling(decided)[0]:
            assert "cannot allocate all claims" in scheduling(decided)[1]
            return pod
        witness.end(stage.pods, pod)
    raise AssertionError(f"a node without the plugin took {ATTEMPTS} pods one after the other")


def test_a_pod_that_waits_for_a_plugin_starts_by_itself_when_it_arrives(stage: Stage, macvlan: Path) -> None:
    early = unplaced(stage, "early")
    with within(SOON, "a pod's start after its plugin's arrival"):
        install(macvlan)
        stage.pods.wait(early, is_running)
    assert "net1" in witness.began_with(stage.pods, early)


def test_a_running_pod_keeps_its_device_while_its_plugin_is_away(stage: Stage, macvlan: Path) -> None:
    install(macvlan)
    api, node = stage.workspace.api, stage.driver.node.name
    claim = stage.claim("held")
    stage.pods.run("held", claim)
    before = api.get("resource.k8s.io/v1/ResourceClaim", claim, stage.workspace.namespace)["status"]["allocation"]
    macvlan.unlink()

    def says(found: Object | None) -> bool:
        missing = (found or {}).get("status", {}).get("missingPlugins", [])
        return [(each["name"], each["allocated"]) for each in missing] == [("macvlan", 1)]

    report = api.wait_for(REPORT, node, says)
    assert report is not None
    assert any('CNI plugin "macvlan" is not offered' in each["message"] for each in report["status"]["problems"])
    found = api.list(SLICE, fields=f"spec.nodeName={node}")
    assert any(device["name"] == "mac0" for each in found for device in each["spec"].get("devices", []))
    after = api.get("resource.k8s.io/v1/ResourceClaim", claim, stage.workspace.namespace)["status"]["allocation"]
    assert after == before
    assert "net1" in witness.interfaces(stage.pods, "held")
    assert api.get(POD, "held", stage.workspace.namespace)["status"]["phase"] == "Running"
    install(macvlan)


def test_a_pod_waits_for_an_ipam_plugin_as_for_any_other(stage: Stage, host_local: Path) -> None:
    """A device reports nothing of IPAM: the node reports the missing plugins that topologies need."""
    api, node = stage.workspace.api, stage.driver.node.name
    stage.claim("first")  # whose topology needs the plugin
    api.wait_for_all(SLICE, lambda found: lacked(found) == {",host-local,"}, fields=f"spec.nodeName={node}")
    leased = unplaced(stage, "leased")

    def says(found: Object | None) -> bool:
        missing = (found or {}).get("status", {}).get("missingPlugins", [])
        return [(each["name"], each.get("neededByTopologies")) for each in missing] == [("host-local", True)]

    api.wait_for(REPORT, node, says)
    with within(SOON, "a pod's start after its IPAM plugin's arrival"):
        install(host_local)
        stage.pods.wait(leased, is_running)
    assert len(witness.addresses(stage.pods, leased)) == 1
