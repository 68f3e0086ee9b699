"""The requirements for real pods on every container runtime, in any order in which the runtime works.

`make test` runs these on the newest and on the oldest containerd, `make test-runtimes` on every supported runtime.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from netdra.model import names
from testbed.api import Object
from testbed.node import CommandError
from testbed.objects import POD
from testbed.pods import is_running
from testbed.waiting import until
from tests.cluster.pods import witness
from tests.cluster.pods.conftest import Machine
from tests.cluster.pods.driver import WITHIN, Offer
from tests.cluster.pods.running import make_topology, step

pytestmark = pytest.mark.oldest

EVENT = "v1/Event"


def chain(offer: Offer, name: str) -> str:
    """A claim for a chain of three steps on an interface of the node."""
    offer.whole(name)
    topology = make_topology(
        offer.workspace,
        "three",
        step("nic", "host-device", prefix=name),
        step("address", "tuning", {"dev": "{{ nic.interfaceName }}", "addresses": ["192.0.2.7/24"]}, after="nic"),
        step("size", "tuning", {"dev": "{{ nic.interfaceName }}", "mtu": 1400}, after="address"),
    )
    return offer.claim(name, nic=f"{topology}-nic")


def whole(offer: Offer, pod: str) -> None:
    """A pod has its chain, and has had it from its first moment."""
    found = offer.inside(pod)
    assert set(found) == {"lo", "eth0", "net1"}
    assert found["net1"]["mtu"] == 1400
    assert witness.addresses(offer.pods, pod) == {"192.0.2.7/24"}
    assert "net1" in witness.began_with(offer.pods, pod)


def end_namespace(offer: Offer, pod: str) -> None:
    """A pod's namespace goes before the runtime has been asked to stop it, as CRI-O has it."""
    path = offer.pods.containerd.netns(offer.pods.sandbox(pod))
    offer.driver.node.run("sh", "-c", 'umount --lazy "$1" && rm "$1"', "sh", path)


def test_a_pods_chain_is_there_before_its_first_process_and_its_device_comes_back(offer: Offer) -> None:
    claim = chain(offer, "run0")
    for name in ("first", "second"):
        witness.run(offer.pods, name, claim)
        whole(offer, name)
        witness.wait_status(offer.pods, claim)
        assert offer.metric("netdra_held_namespaces") == 1
        offer.pods.delete(name)
        assert "run0" in offer.links()
        assert offer.metric("netdra_held_namespaces") == 0


def test_a_device_returns_to_the_node_after_its_pod_namespace_ended_before_the_pod_stop(offer: Offer) -> None:
    claim = chain(offer, "run1")
    witness.run(offer.pods, "pod", claim)
    end_namespace(offer, "pod")
    offer.pods.api.delete(POD, "pod", offer.pods.namespace, grace=1)
    witness.hurry(offer.pods, "pod", lambda found: found is None)
    offer.driver.until_nothing_is_left()
    assert "run1" in offer.links()
    assert offer.metric("netdra_held_namespaces") == 0


def test_a_pod_keeps_its_network_when_the_path_of_its_namespace_is_removed(offer: Offer) -> None:
    claim = chain(offer, "run5")
    witness.run(offer.pods, "pod", claim)
    inside = ("nsenter", f"--net=/proc/{offer.pods.pid('pod')}/ns/net", "ip", "link")
    end_namespace(offer, "pod")
    offer.pods.wait_event("pod", "NetworkNamespaceUnnamed")
    assert "net1" in offer.driver.node.run(*inside)

    offer.driver.restart()
    until(lambda: len(events(offer, "NetworkNamespaceUnnamed")) > 1, "the next driver's event", seconds=WITHIN)
    assert offer.metric("netdra_held_namespaces") == 1
    assert "net1" in offer.driver.node.run(*inside)
    assert not events(offer, "NetworkNotRestored")

    offer.pods.api.delete(POD, "pod", offer.pods.namespace, grace=1)
    witness.hurry(offer.pods, "pod", lambda found: found is None)
    offer.driver.until_nothing_is_left()
    assert "run5" in offer.links()


def test_a_restarted_container_starts_although_its_specification_was_removed(offer: Offer) -> None:
    claim = chain(offer, "run6")
    witness.run(offer.pods, "pod", claim)
    offer.driver.node.run("sh", "-c", f"rm /run/cdi/{names.DRIVER}-claim-*; kill -KILL {offer.pods.pid('pod')}")
    offer.pods.wait_event("pod", "SpecificationRestored", claim)
    witness.hurry(offer.pods, "pod", lambda found: is_running(found) and restarts(found) > 0)
    assert "net1" in offer.inside("pod")


def events(offer: Offer, reason: str) -> list[Object]:
    """The events of the pod with a reason."""
    return offer.pods.api.list(EVENT, offer.pods.namespace, fields=f"involvedObject.name=pod,reason={reason}")


def restarts(pod: Object | None) -> int:
    """How often a pod's container was started again."""
    return sum(status["restartCount"] for status in (pod or {})["status"]["containerStatuses"])


def test_killed_while_attaching_no_container_begins_and_the_next_driver_lets_it(offer: Offer) -> None:
    claim = chain(offer, "run2")
    offer.driver.restart("attach-begun=kill")
    witness.add(offer.pods, "pod", claim, restartPolicy="Never")
    offer.driver.wait_end()
    offer.pods.wait_event("pod", "Failed", "unresolvable CDI devices")
    assert witness.never_began(offer.pods, "pod")
    offer.driver.start()
    witness.hurry(offer.pods, "pod", is_running)
    whole(offer, "pod")
    assert offer.metric("netdra_held_namespaces") == 1


def test_after_a_kill_during_pod_deletion_the_next_driver_releases_the_rest(offer: Offer) -> None:
    claim = chain(offer, "run3")
    witness.run(offer.pods, "pod", claim)
    offer.driver.restart("detach-done=kill")
    offer.pods.api.delete(POD, "pod", offer.pods.namespace, grace=1)
    offer.driver.wait_end()
    offer.driver.start()
    witness.hurry(offer.pods, "pod", lambda found: found is None)
    offer.driver.until_nothing_is_left()
    assert "run3" in offer.links()
    assert offer.metric("netdra_held_namespaces") == 0


def test_a_stopped_sandbox_does_not_affect_the_next_sandbox_of_its_pod(machine: Machine, offer: Offer) -> None:
    """A runtime may list it by the path that its namespace had, after a restart of either of the two."""
    claim = chain(offer, "run4")
    witness.run(offer.pods, "pod", claim)
    former = offer.pods.sandbox("pod")
    with suppress(CommandError):  # the kubelet sees its end and stops it too: one of the two finds no eth0
        offer.pods.containerd.stop_pod_sandbox(former)
    witness.hurry(offer.pods, "pod", lambda found: is_running(found) and offer.pods.sandbox("pod") not in ("", former))
    whole(offer, "pod")
    connections = offer.metric("netdra_nri_connections_total")
    machine.containerd.process.kill()
    machine.containerd.process.start()
    machine.containerd.process.wait_ready()
    until(lambda: offer.metric("netdra_nri_connections_total") > connections, "netdra to be connected anew")
    offer.driver.restart()
    whole(offer, "pod")
    witness.wait_status(offer.pods, claim)
    events = offer.pods.api.list(EVENT, offer.pods.namespace)
    assert [each["message"] for each in events if each["reason"].startswith("Network")] == []
    offer.pods.delete("pod")
    offer.driver.until_nothing_is_left()
    assert "run4" in offer.links()
