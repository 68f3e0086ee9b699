"""netdra installed as on a real cluster: its pods run from its image, and a pod gets its network by them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.objects import CLAIM, manifest
from testbed.pods import Pods
from testbed.site import IMAGE, TAG, Site
from testbed.workspace import open_workspace
from tests.cluster.pods.running import TOPOLOGY, publish, step

CAPABILITIES = {"NET_ADMIN": 12, "NET_RAW": 13, "SYS_CHROOT": 18, "SYS_ADMIN": 21}
"""By their numbers in linux/capability.h."""
EXAMPLE = Path(__file__).parents[3] / "examples" / "first-pod"


@pytest.fixture(scope="module")
def installed(site: Site) -> Site:
    """netdra at work."""
    site.install()
    return site


@pytest.fixture
def pods(installed: Site) -> Iterator[Pods]:
    """The pods of a namespace of the test's own."""
    with open_workspace(installed.api) as workspace:
        found = installed.pods(workspace.namespace)
        yield found
        found.delete_all()


def test_a_pod_gets_its_network_by_netdras_own_pods(installed: Site, pods: Pods) -> None:
    for name in ("policy", "topology"):
        installed.api.create(yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text()))
    publish(installed.node, installed.api, "data0")
    installed.plane.kubectl("--namespace", pods.namespace, "apply", "-f", str(EXAMPLE / "claim.yaml"))
    pods.run("first", "data")
    (link,) = (link for link in pods.ip("first", "link") if link["ifname"] not in {"lo", "eth0"})
    assert link["linkinfo"]["info_kind"] == "macvlan"
    pods.delete("first")


def test_the_driver_has_no_more_privileges_than_it_needs(installed: Site, pods: Pods) -> None:
    """A topology with a program in the node's root, a lease kept there, a setting of the kernel, and an MTU."""
    status = installed.plane.kubectl(
        *("--namespace=netdra", "exec", "daemonset/netdra-node", "--"),
        *("python3", "-c", "print(open('/proc/self/status').read())"),
    )
    held = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    wanted = sum(1 << number for number in CAPABILITIES.values())
    assert {int(held[kind], 16) for kind in ("CapPrm", "CapEff", "CapBnd")} == {wanted}
    assert (held["NoNewPrivs"], held["Seccomp"]) == ("1", "2")
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.79.0.0/24"}]]}
    size = {"dev": "{{ lan.interfaceName }}", "mtu": 1400, "sysctl": {"net/ipv4/conf/IFNAME/arp_filter": "1"}}
    steps = [
        step("lan", "macvlan", {"mode": "bridge", "ipam": ipam}, prefix="data0"),
        step("size", "tuning", size, after="lan"),
    ]
    installed.api.create(manifest(TOPOLOGY, "tuned", spec={"steps": steps}))
    installed.plane.kubectl("wait", "--for=create", "deviceclass/tuned-lan", "--timeout=30s")
    request = {"name": "lan", "exactly": {"deviceClassName": "tuned-lan"}}
    installed.api.create(manifest(CLAIM, "tuned", pods.namespace, spec={"devices": {"requests": [request]}}))
    pods.run("tuned", "tuned")
    assert pods.run_inside("tuned", "cat", "/proc/sys/net/ipv4/conf/net1/arp_filter").strip() == "1"
    pods.delete("tuned")
    assert 'level":"error' not in installed.plane.kubectl("--namespace=netdra", "logs", "daemonset/netdra-node")


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
