"""netdra from a cluster's first day to its last: installed by the README's lines, upgraded, taken back, removed."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed import yaml
from testbed.api import Object
from testbed.build import program
from testbed.helm import CHARTS, HelmError
from testbed.objects import CLAIM, CLASS, POD, SLICE, add_namespace, manifest
from testbed.pods import Pods
from testbed.site import VALUES, Site
from tests.cluster.conftest import DEFINITION
from tests.cluster.daemons import CONFIGURATION, bundle_of
from tests.cluster.install.trying import warnings
from tests.cluster.pods.running import publish

ROOT = CHARTS.parent
EXAMPLE = ROOT / "examples" / "first-pod"
TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
PLUGIN = "networking.dra.io/v1alpha1/CNIPlugin"
DAEMON_SET = "apps/v1/DaemonSet"
HERE = "--namespace=netdra"
GONE = (
    *(CLASS, SLICE, "networking.dra.io/v1alpha1/NodeNetwork", "cni.networking.k8s.io/v1alpha1/CNIPluginSchema"),
    *("rbac.authorization.k8s.io/v1/ClusterRole", "rbac.authorization.k8s.io/v1/ClusterRoleBinding"),
    *(f"admissionregistration.k8s.io/v1/{kind}" for kind in ("ValidatingWebhookConfiguration",)),
    *(f"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy{kind}" for kind in ("", "Binding")),
)
"""Kinds of which nothing of netdra's is left."""
GONE_HERE = (
    *(DAEMON_SET, "apps/v1/Deployment", "v1/Service", "v1/Secret", "coordination.k8s.io/v1/Lease"),
    *("rbac.authorization.k8s.io/v1/Role", "rbac.authorization.k8s.io/v1/RoleBinding", "batch/v1/Job"),
)


def lines_of(page: Path, title: str) -> list[str]:
    """The commands of the first block below a title."""
    found = re.search(rf"^#+ {title}\n.*?^```\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def type_in(site: Site, line: str, values: Path) -> str:
    """Run a line as a user does in the checkout; the installation uses the node's image."""
    path = ":".join([*{str(program(name).parent) for name in ("helm", "kubectl")}, os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "HOME": str(values.parent), "KUBECONFIG": str(site.plane.kubeconfig())}
    full = f"{line} --values {values}" if line.startswith("helm install") else line
    done = subprocess.run(full.split(), cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(site: Site, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The output of the README's lines."""
    values = tmp_path_factory.mktemp("values") / "values.yaml"
    values.write_text(json.dumps(VALUES))
    return {line: type_in(site, line, values) for line in lines_of(ROOT / "README.md", "In a cluster")}


@pytest.fixture
def pods(site: Site, installed: dict[str, str]) -> Pods:
    """A namespace with the first pod's claim, and all that it needs."""
    for name in ("policy", "topology"):
        site.api.apply(yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text()))
    add_namespace(site.api, "apps")
    site.plane.kubectl("--namespace=apps", "apply", "-f", str(EXAMPLE / "claim.yaml"))
    return site.pods("apps")


def ours(found: list[Object]) -> list[str]:
    """Of objects those that netdra made, or were made for it; not Helm's record of the release."""
    return [
        each["metadata"]["name"]
        for each in found
        if "netdra" in json.dumps(each["metadata"].get("labels", {})) + each["metadata"]["name"]
        and each.get("type") != "helm.sh/release.v1"
    ]


def held(pods: Pods) -> str:
    """The kind of the interface that a pod has of netdra's."""
    (link,) = (link for link in pods.ip("first", "link") if link["ifname"] not in {"lo", "eth0"})
    kind: str = link["linkinfo"]["info_kind"]
    return kind


def test_the_lines_of_the_readme_install_it_and_nothing_is_missing(site: Site, installed: dict[str, str]) -> None:
    assert len(installed) == 3
    (tested,) = (printed for line, printed in installed.items() if line.startswith("helm test"))
    assert "Phase:          Succeeded" in tested
    (reported,) = (printed for line, printed in installed.items() if line.startswith("kubectl"))
    assert site.node.name in reported
    assert lines_of(ROOT / "docs" / "installing.md", "Installing") == list(installed)


def test_a_webhook_without_a_disk_beside_a_healthy_one_changes_nothing(site: Site, installed: dict[str, str]) -> None:
    site.install()
    (healthy,) = site.api.list(POD, "netdra", labels="app.kubernetes.io/component=webhook")
    before = [_certificate(site), *_bundles(site)]
    spec = copy.deepcopy(healthy["spec"])
    del spec["nodeName"]
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] != "tmp"]
    for container in spec["containers"]:
        container["volumeMounts"] = [each for each in container["volumeMounts"] if each["mountPath"] != "/tmp"]
    made = manifest(POD, "without-a-disk", "netdra", spec=spec)
    made["metadata"]["labels"] = {
        name: value for name, value in healthy["metadata"]["labels"].items() if name != "pod-template-hash"
    }
    site.api.create(made)
    site.api.wait_for(POD, "without-a-disk", is_ready, namespace="netdra")
    policy = yaml.safe_load((EXAMPLE / "policy.yaml").read_text())
    for number in range(100):
        policy["metadata"]["name"] = f"written-{number}"
        site.api.create(policy, dry_run=True)
    assert [_certificate(site), *_bundles(site)] == before
    site.api.delete(POD, "without-a-disk", "netdra")


def _certificate(site: Site) -> Any:
    found = site.api.get("v1/Secret", "netdra-webhook", "netdra")
    assert found is not None
    return found["metadata"]["resourceVersion"]


def _bundles(site: Site) -> list[bytes]:
    return [bundle_of(site.api.get(CONFIGURATION, name)) for name in ("netdra", "netdra-claims")]


def is_ready(pod: Object | None) -> bool:
    """Whether a pod's containers answer their probes."""
    conditions = (pod or {}).get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def test_a_pod_lives_through_upgrade_rollback_and_an_uninstall_that_is_refused_and_forced(
    site: Site, pods: Pods
) -> None:
    publish(site.node, site.api, "data0")
    pods.run("first", "data")
    assert held(pods) == "macvlan"

    chart = str(CHARTS / "netdra")
    site.helm("upgrade", "netdra", chart, HERE, "--reuse-values", "--set=logLevel=debug", "--wait", "--timeout=120s")
    assert held(pods) == "macvlan"
    site.helm("rollback", "netdra", HERE, "--wait", "--timeout=120s")
    assert held(pods) == "macvlan"
    assert warnings(site.api) == []

    site.api.create(manifest(PLUGIN, "ovs", spec={"image": "none", "binaryPath": "/ovs", "imagePullPolicy": "Never"}))
    site.api.wait_for(PLUGIN, "ovs", lambda found: found is not None and "finalizers" in found["metadata"])
    with pytest.raises(HelmError) as refused:
        site.helm("uninstall", "netdra", HERE, "--timeout=60s")
    told = refused.value.stdout + refused.value.stderr  # a log is one line there, with line breaks escaped
    assert "still needed by ResourceClaim apps/data (pods: first; devices: " in told
    assert "; CNIPlugin ovs. Delete the pods" in told
    assert "uninstall.force=true" in told
    (drivers,) = (each for each in site.api.list(DAEMON_SET, "netdra") if each["metadata"]["name"] == "netdra-node")
    assert drivers["status"]["numberReady"] == 1

    (last, *_) = json.loads(site.helm("history", "netdra", HERE, "--output=json", "--max=1"))
    assert last["status"] == "deployed", "a refused uninstall leaves the release usable"
    assert not [
        each["metadata"]["name"]
        for kind in ("rbac.authorization.k8s.io/v1/ClusterRole", "rbac.authorization.k8s.io/v1/ClusterRoleBinding")
        for each in site.api.list(kind)
        if "-uninstall-" in each["metadata"]["name"]
    ], "nobody has the rights to delete"
    site.helm("upgrade", "netdra", chart, HERE, "--reuse-values", "--set=uninstall.force=true", "--wait")
    site.helm("uninstall", "netdra", HERE, "--wait", "--timeout=120s")
    assert held(pods) == "macvlan", "whoever has a network keeps it"
    assert {kind: ours(site.api.list(kind)) for kind in GONE if ours(site.api.list(kind))} == {}
    assert {
        kind: ours(site.api.list(kind, "netdra")) for kind in GONE_HERE if ours(site.api.list(kind, "netdra"))
    } == {}
    assert ours(site.api.list(DEFINITION)), "with the definitions all of their objects would go"
    for kind, name in ((TOPOLOGY, "data"), (PLUGIN, "ovs")):
        stayed = site.api.get(kind, name)
        assert stayed is not None
        assert not stayed["metadata"].get("finalizers")
    assert not site.api.list(DAEMON_SET, "netdra")
    site.api.delete(PLUGIN, "ovs")

    # It cannot end until netdra is there again, and then it does by itself.
    site.api.delete(POD, "first", "apps", grace=5)
    site.install()
    site.api.wait_for(POD, "first", lambda found: found is None, namespace="apps")
    site.api.delete(CLAIM, "data", "apps")
    site.helm("uninstall", "netdra", HERE, "--wait", "--timeout=120s")
    assert not site.api.list(DAEMON_SET, "netdra")
