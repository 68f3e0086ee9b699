"""With the controller's stolen token, an attacker writes no DeviceClass but those that follow from the topologies.

An admission policy cannot read topologies, so the webhook compares each class that the controller writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdra.controller.classes import changes
from netdra.model import documents
from netdra.model.device import Features
from netdra.model.topology import NetworkTopology
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.kubectl import denial
from testbed.objects import CLASS, manifest
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import Webhook, refusal, running_webhook
from tests.cluster.test_controller import TOPOLOGY

DIFFERS = "differs from the class that follows from its owner"


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Webhook]:
    """The webhook, installed and asked by the API server."""
    with running_webhook(control_plane, api) as running:
        yield running


@pytest.fixture(scope="module")
def stolen(control_plane: ControlPlane, api: Api, webhook: Webhook) -> Path:
    """The controller's token."""
    return identities.kubeconfig(control_plane, api, "netdra-controller")


@pytest.fixture
def topology(workspace: Workspace) -> NetworkTopology:
    """A stored topology with an extended resource."""
    selector = 'device.attributes["dra.networking"].pfName == "ens1" || device.attributes["dra.networking"].vf'
    step = {"name": "vf0", "type": "sriov", "selector": {"cel": selector}, "extendedResourceName": "example.com/vf"}
    name = workspace.name("net")
    stored = workspace.create(manifest(TOPOLOGY, name, spec={"steps": [step]}))
    return documents.convert(stored, NetworkTopology, "test")


def made(topology: NetworkTopology) -> Object:
    """The topology's class as the controller writes it."""
    (created,) = changes(topology, {}, Features()).create
    written: Object = documents.plain(created)
    return written


def refused(token: Path, written: Object, how: str = "create") -> str:
    """Why the API server refuses a class; "" if it does not."""
    return denial(token, how, "--dry-run=server", "-f", "-", text=yaml.safe_dump(written))


def with_selector(written: Object, *expressions: str, **spec: Any) -> Object:
    """The class with other selectors, or another field of the spec."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {**written, "spec": written["spec"] | ({"selectors": selectors} if selectors else {}) | spec}


def test_it_makes_the_classes_of_topologies_and_no_others(stolen: Path, topology: NetworkTopology) -> None:
    right = made(topology)
    until(lambda: refused(stolen, right) == "", "the webhook to know the topology")
    (cel,) = (selector["cel"]["expression"] for selector in right["spec"]["selectors"])
    for wrong in (
        with_selector(right, f"{cel} || true"),
        with_selector(right, 'device.driver == "dra.networking" && true || true'),
        with_selector(right, f"{cel} && true"),
        with_selector(right, cel, 'device.driver == "dra.networking" || true'),
        with_selector(right, extendedResourceName="nvidia.com/gpu"),
        with_selector(right, f"{cel} || true", extendedResourceName="nvidia.com/gpu"),
    ):
        assert DIFFERS in refused(stolen, wrong), wrong["spec"]
    nobody = {**right, "metadata": right["metadata"] | {"name": "nobody-vf0"}}
    nobody["metadata"]["ownerReferences"] = [right["metadata"]["ownerReferences"][0] | {"name": "nobody"}]
    config = {"networkTopologyRef": {"name": "nobody"}, "step": "vf0"}
    nobody = with_selector(nobody, config=[{"opaque": {"driver": "dra.networking", "parameters": config}}])
    assert DIFFERS in refused(stolen, nobody)


def test_a_class_that_it_made_is_changed_only_with_its_topology(
    workspace: Workspace, stolen: Path, topology: NetworkTopology
) -> None:
    right = made(topology)
    until(lambda: refused(stolen, right) == "", "the webhook to know the topology")
    stored = workspace.create(right)
    (cel,) = (selector["cel"]["expression"] for selector in right["spec"]["selectors"])
    assert DIFFERS in refused(stolen, with_selector(stored, f"{cel} || true"), "replace")
    labelled = {**stored, "metadata": stored["metadata"] | {"labels": stored["metadata"]["labels"] | {"team": "a"}}}
    assert refused(stolen, labelled, "replace") == ""
    # The topology changes, and its class with it, though the webhook's copy may be behind.
    (step,) = workspace.api.get(TOPOLOGY, topology.name)["spec"]["steps"]
    changed = workspace.api.patch(TOPOLOGY, topology.name, {"spec": {"steps": [{**step, "selector": {"cel": "true"}}]}})
    after = made(documents.convert(changed, NetworkTopology, "test"))
    assert refused(stolen, {**stored, "spec": after["spec"]}, "replace") == ""
    assert DIFFERS in refused(stolen, with_selector(stored, f"{cel} || true"), "replace")


def test_without_the_webhook_it_makes_no_class_of_a_topology(
    stolen: Path, topology: NetworkTopology, webhook: Webhook, workspace: Workspace
) -> None:
    right = made(topology)
    webhook.process.kill()
    try:
        assert "failed calling webhook" in refused(stolen, right)
        foreign = manifest(CLASS, workspace.name("other"), spec={"selectors": []})
        assert refusal(lambda: workspace.api.create(foreign, dry_run=True)) == ""
    finally:
        webhook.process.start()
        webhook.process.wait_ready()
    until(lambda: refused(stolen, right) == "", "the webhook to answer again")
