"""netdra installed as on a real cluster: its pods run from its image, and a pod gets its network by them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.objects import NAMESPACE, add_namespace
from testbed.pods import Pods
from testbed.site import IMAGE, TAG, Site
from tests.cluster.pods.running import publish

EXAMPLE = Path(__file__).parents[3] / "examples" / "first-pod"


@pytest.fixture(scope="module")
def installed(site: Site) -> Site:
    """netdra at work."""
    site.install()
    return site


@pytest.fixture
def pods(installed: Site) -> Iterator[Pods]:
    """The pods of a namespace of the test's own."""
    name = "real-pods"
    add_namespace(installed.api, name)
    found = installed.pods(name)
    yield found
    found.delete_all()
    installed.api.delete(NAMESPACE, name)


def test_a_pod_gets_its_network_by_netdras_own_pods(installed: Site, pods: Pods) -> None:
    for name in ("policy", "topology"):
        installed.api.create(yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text()))
    publish(installed.node, installed.api, "data0")
    installed.plane.kubectl("--namespace", pods.namespace, "apply", "-f", str(EXAMPLE / "claim.yaml"))
    pods.run("first", "data")
    (link,) = (link for link in pods.ip("first", "link") if link["ifname"] not in {"lo", "eth0"})
    assert link["linkinfo"]["info_kind"] == "macvlan"
    pods.delete("first")


def test_commands_run_in_the_drivers_pod(installed: Site) -> None:
    """The image has no shell, and kubectl exec needs none."""
    printed = installed.plane.kubectl(
        *("--namespace=netdra", "exec", "daemonset/netdra-node", "--"),
        *("netdra", "doctor", "--only", "node", "--output", "json"),
    )
    levels = {finding["check"]: finding["level"] for finding in json.loads(printed)}
    assert (levels["NRI"], levels["kubelet"], levels["CDI"]) == ("ok", "ok", "ok")


def test_the_image_is_what_its_pods_run(installed: Site) -> None:
    images = {
        container["image"] for pod in installed.api.list("v1/Pod", "netdra") for container in pod["spec"]["containers"]
    }
    assert images == {f"{IMAGE}:{TAG}"}
