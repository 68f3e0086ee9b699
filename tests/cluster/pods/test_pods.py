"""Pods of the API server run on a real kubelet and containerd, and continue when either is restarted."""

from __future__ import annotations

import json

from testbed.objects import POD
from testbed.pods import Pods, is_running, lives
from testbed.waiting import until
from tests.cluster.pods.conftest import Machine


def test_a_pod_runs_with_eth0_alone(pods: Pods) -> None:
    pod = pods.run("plain")
    links = {link["ifname"]: link for link in pods.ip("plain", "address")}
    assert set(links) == {"lo", "eth0"}
    (address,) = [found["local"] for found in links["eth0"]["addr_info"] if found["family"] == "inet"]
    assert address == pod["status"]["podIP"]
    assert pods.exec("plain", "hostname").strip() == "plain"


def test_a_deleted_pod_leaves_nothing_on_its_node(machine: Machine, pods: Pods) -> None:
    def left() -> list[str]:
        veths = [link["ifname"] for link in json.loads(machine.node.run("ip", "-j", "link", "show", "type", "veth"))]
        return [*veths, *machine.node.run("ls", "/run/netns").split()]

    before = left()
    pods.run("brief")
    assert len(left()) == len(before) + 2
    pods.delete("brief")
    until(lambda: left() == before, "nothing to be left on the node", detail=lambda: f"{left()}, not {before}")


def test_pods_go_on_when_the_kubelet_is_restarted(machine: Machine, pods: Pods) -> None:
    before = pods.run("early")
    machine.kubelet.process.kill()
    pods.add("while-down")
    machine.kubelet.process.start()
    machine.kubelet.process.wait_ready()
    pods.wait("while-down", is_running)
    machine.kubelet.process.restart()
    pods.run("late")
    after = pods.api.get(POD, "early", pods.namespace)
    assert lives(after) == lives(before)


def test_pods_go_on_when_containerd_is_restarted(machine: Machine, pods: Pods) -> None:
    before = pods.run("early")
    machine.containerd.process.kill()
    machine.containerd.process.start()
    machine.containerd.process.wait_ready()
    pods.run("late")
    after = pods.api.get(POD, "early", pods.namespace)
    assert (
        after["status"]["containerStatuses"][0]["containerID"]
        == before["status"]["containerStatuses"][0]["containerID"]
    )
    assert pods.exec("early", "hostname").strip() == "early"


def test_the_reason_why_a_pod_does_not_start_is_an_event(pods: Pods) -> None:
    container = {"name": "main", "image": "testbed.local/no-such:1", "imagePullPolicy": "Never"}
    pods.add("imageless", containers=[container])
    assert "not present with pull policy of Never" in pods.wait_event("imageless", "ErrImageNeverPull")["message"]
