"""The driver, the kubelet and the runtime are restarted while pods run: pods keep their networks, and go cleanly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testbed.api import Object
from testbed.objects import POD
from testbed.pods import is_running, lives
from testbed.waiting import until
from tests.cluster.pods import witness
from tests.cluster.pods.conftest import Machine
from tests.cluster.pods.driver import WITHIN, Offer

Restart = Callable[[Machine, Offer], None]


def driver_stopped(machine: Machine, offer: Offer) -> None:
    """The driver is terminated, and another one starts."""
    offer.driver.process.restart()


def driver_killed(machine: Machine, offer: Offer) -> None:
    """The driver dies, and another one comes."""
    offer.driver.restart()


def kubelet_killed(machine: Machine, offer: Offer) -> None:
    """The kubelet dies and comes back, and has the driver registered again."""
    registrations = offer.metric("netdra_kubelet_registrations_total", outcome="ok")
    machine.kubelet.process.kill()
    machine.kubelet.process.start()
    machine.kubelet.process.wait_ready()
    machine.kubelet.wait_ready()
    until(
        lambda: offer.metric("netdra_kubelet_registrations_total", outcome="ok") > registrations,
        "the kubelet to register netdra again",
        seconds=WITHIN,
    )


def runtime_killed(machine: Machine, offer: Offer) -> None:
    """The runtime dies and comes back, and the driver connects to it again."""
    connections = offer.metric("netdra_nri_connections_total")
    machine.containerd.process.kill()
    machine.containerd.process.start()
    machine.containerd.process.wait_ready()
    until(
        lambda: offer.metric("netdra_nri_connections_total") > connections,
        "netdra to connect to the runtime again",
        seconds=WITHIN,
    )


def lasting(offer: Offer) -> dict[str, Object]:
    """The pod's interfaces without fields that change by themselves: the kernel's note of a carrier, and its effects.

    IPv6 addresses that are just being detected do so too.
    """
    facts = ("ifindex", "address", "mtu", "link_index")
    return {
        name: {fact: link[fact] for fact in facts if fact in link} | {"flags": set(link["flags"]) - {"NO-CARRIER"}}
        for name, link in offer.inside("pod").items()
    }


@pytest.mark.parametrize("restart", [driver_stopped, driver_killed, kubelet_killed, runtime_killed])
def test_a_pod_keeps_its_network_and_goes_cleanly_afterwards(machine: Machine, offer: Offer, restart: Restart) -> None:
    offer.whole("keep0")
    claim = offer.claim("claim", nic=offer.device_class("host-device", "keep0"))
    before = offer.pods.run("pod", claim)
    witness.wait_status(offer.pods, claim)
    network, status = lasting(offer), offer.status(claim)

    restart(machine, offer)

    assert lasting(offer) == network
    assert offer.status(claim) == status
    after = offer.workspace.api.get(POD, "pod", offer.workspace.namespace)
    assert is_running(after)
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert lives(after) == lives(before)
    assert offer.driver.left()
    offer.pods.delete("pod")
    offer.driver.until_nothing_is_left()
    # Also where the runtime was restarted, which then may tell of no stop of an older sandbox.
    assert "keep0" in offer.links()
    assert offer.metric("netdra_held_namespaces") == 0

    offer.pods.run("next", claim)
    assert "net1" in offer.inside("next")
