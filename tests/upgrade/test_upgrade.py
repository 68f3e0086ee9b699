"""An upgrade from an older netdra with pods at work, back, and forward again: no pod loses its network.

Each version takes down what the other one made: it reads its claims, checkpoints and records of devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import former
from testbed.objects import CLAIM, POD, SLICE, manifest
from testbed.pods import Pods, lives
from testbed.site import IMAGE, IMAGE_VALUES, VALUES, Site
from testbed.waiting import until
from testbed.workspace import open_workspace
from tests.cluster.pods.driver import ATTRIBUTES, POLICY
from tests.cluster.pods.running import TOPOLOGY, links, publish, step

pytestmark = pytest.mark.timeout(900)

FORMER_TAG = "FORMER"
_NO_DNS = "MissingClusterDNS"
"""The kubelet's warning of each pod in a cluster without DNS, as the test bed's."""
WHERE = ("--namespace=netdra", "--create-namespace", "--wait", "--timeout=180s")
IPAM = {"type": "host-local", "ranges": [[{"subnet": "10.79.0.0/24"}]]}
STATIC = {"type": "static", "addresses": [{"address": "10.80.0.5/24"}]}
STEPS = {
    "shares": [
        step("lan", "macvlan", {"mode": "bridge", "ipam": IPAM}, prefix="data0"),
        step("size", "tuning", {"dev": "{{ lan.interfaceName }}", "mtu": 1400}, after="lan"),
    ],
    "whole": [step("nic", "host-device", {"ipam": STATIC}, prefix="nic0")],
}
EXPOSED = {
    "data0": {
        "allowMultipleAllocations": True,
        "capacity": {"shares": {"value": "8", "requestPolicy": {"default": "1"}}},
        "supportedCNIPlugins": [{"name": "macvlan"}],
    },
    "nic0": {"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]},
}


@pytest.fixture
def pods(site: Site) -> Iterator[Pods]:
    """The pods of a namespace of the test's own, on a node with two interfaces that the older netdra offers."""
    install_former(site, former.image())
    for name, exposure in EXPOSED.items():
        selector = {"cel": f'{ATTRIBUTES}.ifName == "{name}"'}
        site.api.create(manifest(POLICY, name, spec={"selector": selector, "exposure": exposure}))
        publish(site.node, site.api, name)
    for name, steps in STEPS.items():
        site.api.create(manifest(TOPOLOGY, name, spec={"steps": steps}))
        site.plane.kubectl("wait", "--for=create", f"deviceclass/{class_of(name)}", "--timeout=30s")
    with open_workspace(site.api) as workspace:
        found = site.pods(workspace.namespace)
        yield found
        found.delete_all()


def install_former(site: Site, archive: Path) -> None:
    """Install the older netdra by its own chart, from its own image."""
    before = set(tags(site))
    site.containerd.ctr("--namespace=k8s.io", "images", "import", "--local", str(archive))
    (tag,) = set(tags(site)) - before
    site.containerd.ctr("--namespace=k8s.io", "images", "tag", f"{IMAGE}:{tag}", f"{IMAGE}:{FORMER_TAG}")
    values = {**VALUES, "image": {**IMAGE_VALUES, "tag": FORMER_TAG}}
    site.helm("upgrade", "--install", "netdra", str(former.FORMER / "charts" / "netdra"), *WHERE, values=values)


def tags(site: Site) -> list[str]:
    """The tags of netdra's images on the node."""
    listed = site.containerd.crictl("images").splitlines()
    return [line.split()[1] for line in listed if line.startswith(f"{IMAGE} ")]


def class_of(topology: str) -> str:
    """The DeviceClass of a topology's root step."""
    return f"{topology}-{STEPS[topology][0]['name']}"


def run(pods: Pods, name: str, topology: str) -> None:
    """Run a pod with a claim of its own for a topology."""
    request = {"name": STEPS[topology][0]["name"], "exactly": {"deviceClassName": class_of(topology)}}
    pods.api.create(manifest(CLAIM, name, pods.namespace, spec={"devices": {"requests": [request]}}))
    pods.run(name, name)


def seen(pods: Pods, *names: str) -> dict[str, object]:
    """The state of each pod: its interfaces with their addresses, and its containers with their starts."""
    return {
        name: (
            {
                (each["ifname"], each["mtu"], entry["local"])
                for each in pods.ip(name, "address")
                for entry in each["addr_info"]
                if entry["family"] == "inet"
            },
            lives(pods.api.get(POD, name, pods.namespace)),
        )
        for name in names
    }


def ends(site: Site, pods: Pods, *names: str) -> None:
    """Delete pods, and wait until other pods can have the whole device.

    Kubernetes' controller ends the allocation of a claim a moment after its pod. A driver that began while a pod had
    the end of a pair offers it a second after its return (`netdra.discovery.pairs`).
    """
    pods.delete(*names)
    until(lambda: "nic0" in links(site.node), "the device to be back")
    for name in names:
        pods.api.wait_for(
            CLAIM,
            name,
            lambda found: not (found or {}).get("status", {}).get("allocation"),
            namespace=pods.namespace,
        )
    pods.api.wait_for_all(
        SLICE,
        lambda found: any(device["name"] == "nic0" for each in found for device in each["spec"].get("devices", ())),
        fields=f"spec.nodeName={site.node.name}",
    )


def test_pods_keep_their_networks_and_each_version_detaches_pods_of_the_other(site: Site, pods: Pods) -> None:
    run(pods, "share", "shares")
    run(pods, "whole", "whole")
    before = seen(pods, "share", "whole")

    site.install()
    assert seen(pods, "share", "whole") == before
    ends(site, pods, "whole")
    run(pods, "newer-share", "shares")
    run(pods, "newer-whole", "whole")
    kept = seen(pods, "share", "newer-share", "newer-whole")

    site.helm("rollback", "netdra", "1", "--namespace=netdra", "--wait", "--timeout=180s")
    assert seen(pods, "share", "newer-share", "newer-whole") == kept
    ends(site, pods, "newer-share", "newer-whole")
    run(pods, "again", "whole")
    last = seen(pods, "share", "again")

    site.install()
    assert seen(pods, "share", "again") == last
    ends(site, pods, "share", "again")
    events = site.api.list("v1/Event", pods.namespace)
    assert {event["reason"] for event in events if event["type"] == "Warning"} <= {_NO_DNS}
    logged = site.plane.kubectl("--namespace=netdra", "logs", "daemonset/netdra-node")
    assert [line for line in logged.splitlines() if '"level":"error"' in line] == []
