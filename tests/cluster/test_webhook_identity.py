"""Warnings about claims of a namespace, Services, nodes and Neutron: only for the API server's certificate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from netdra.cli.main import cli
from testbed.api import Api, Object
from testbed.control_plane import WEBHOOK_CLIENT, ControlPlane
from testbed.kubectl import denial
from testbed.objects import manifest
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.daemons import Webhook, running_webhook
from tests.cluster.test_rights import PORT_SPEC
from tests.cluster.test_webhook import ASKED, GROUP, PODS, TEMPLATE, claim, topology, warnings

__all__ = ["topology"]
pytestmark = pytest.mark.usefixtures("webhook")


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Webhook]:
    """The webhook, which answers the API server alone."""
    authority = control_plane.authority.own.certificate
    with running_webhook(control_plane, api, f"--client-ca={authority}", f"--client-name={WEBHOOK_CLIENT}") as running:
        yield running


def test_ranges_that_the_cluster_and_its_cloud_use_are_warned_of(
    control_plane: ControlPlane, workspace: Workspace, tmp_path: Path
) -> None:
    api, name = workspace.api, workspace.name("net")
    node = api.get("v1/Node", workspace.add_node("routed"))
    pods = "10.244.7.0/24"
    api.patch("v1/Node", node["metadata"]["name"], {"spec": {"podCIDR": pods, "podCIDRs": [pods]}})
    port = manifest(f"{GROUP}/NeutronPort", "port", workspace.namespace, spec=PORT_SPEC)
    settings = {"mac": "fa:16:3e:00:00:01", "vlan": 100, "addresses": ["10.79.0.5/24"]}
    status = {"networkName": "blue", "networkID": "n", "portID": "p", "settings": settings}
    api.update({**workspace.create(port), "status": status}, subresource="status")

    def written(*ranges: str, **spec: object) -> str:
        listed = [{"cidr": entry} for entry in ranges]
        return yaml.safe_dump(manifest(f"{GROUP}/PodNetwork", name, spec={"ranges": listed, **spec}))

    everything = written("10.0.0.0/24", "10.244.0.0/16", "10.79.0.0/16")
    expected = (
        "range 10.0.0.0/24 overlaps with the Service addresses 10.0.0.0/24 of ",
        f"range 10.244.0.0/16 overlaps with the pod addresses {pods} of ",
        "range 10.79.0.0/16 overlaps with subnet 10.79.0.0/24 of ",
    )
    until(
        lambda: all(text in warnings(control_plane, "create", "-f", "-", text=everything) for text in expected),
        "the webhook to know the ranges",
        detail=lambda: warnings(control_plane, "create", "-f", "-", text=everything),
    )
    assert "overlaps" not in warnings(control_plane, "create", "-f", "-", text=written("10.79.0.0/16", vlan=7))
    file = tmp_path / "network.yaml"
    file.write_text(everything)
    checked = CliRunner().invoke(
        cli, ["validate", str(file), "--cluster", f"--kubeconfig={control_plane.kubeconfig()}", "-o", "json"]
    )
    messages = "\n".join(problem["message"] for problem in json.loads(checked.stdout)["problems"])
    for text, owner in zip(
        expected,
        ('ServiceCIDR "kubernetes"', f'Node "{node["metadata"]["name"]}"', 'network "blue" of Neutron'),
        strict=True,
    ):
        assert f"{text}{owner}" in messages, checked.output


def test_pods_and_workloads_get_warnings_and_pods_of_a_controller_are_not_reviewed(
    control_plane: ControlPlane, workspace: Workspace, topology: str
) -> None:
    namespace = workspace.namespace
    spec = claim(f"{topology}-vf0", f"{topology}-vf1")
    workspace.api.create(manifest(TEMPLATE, "net", namespace, spec={"spec": spec}))

    def written(template: str = "net", listed: str = "net", **more: object) -> Object:
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": listed}] if listed else []}}
        named = [{"name": "net", "resourceClaimTemplateName": template}]
        return {"containers": [container], "resourceClaims": named, **more}

    def said(kind: str, pods: Object) -> list[str]:
        name = workspace.name("w").rpartition("-")[2] + kind.lower()
        template = {"metadata": {"labels": {"app": name}}, "spec": pods}
        found = manifest("v1/Pod" if kind == "Pod" else f"apps/v1/{kind}", f"w{name}", namespace)
        found["spec"] = pods if kind == "Pod" else {"selector": {"matchLabels": {"app": name}}, "template": template}
        arguments = ("--warnings-as-errors", "create", "--dry-run=server", "-f", "-")
        output = denial(control_plane.kubeconfig(), *arguments, text=yaml.safe_dump(found))
        return [line for line in output.splitlines() if line.startswith("Warning: ")]

    for kind in ("Pod", "Deployment"):
        assert said(kind, written()) == []
        (lacking,) = said(kind, written("nets"))
        assert f'claim "net": ResourceClaimTemplate "nets" not found in namespace "{namespace}"; create it' in lacking
        (unlisted,) = said(kind, written(listed=""))
        assert 'no container lists claim "net"' in unlisted
        (host,) = said(kind, written(hostNetwork=True))
        assert "uses the host's network (hostNetwork), but requests network devices" in host
    plain: Object = {"containers": [{"name": "main", "image": "none"}]}
    assert said("Pod", plain) == said("Deployment", plain) == []

    def asked() -> float:
        lines = control_plane.kubectl("get", "--raw", "/metrics").splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(ASKED) and PODS in line)

    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w", "controller": True}
    before = asked()
    for owners in ([], [owner]):
        pod = manifest("v1/Pod", f"p{len(owners)}", namespace, spec=written())
        pod["metadata"]["ownerReferences"] = owners
        workspace.api.create(pod, dry_run=True)
    assert asked() - before == 1
