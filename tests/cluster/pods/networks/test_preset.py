"""`netdra preset shared` on a real node: without a handwritten policy, a pod has a macvlan of the node's interface."""

from __future__ import annotations

import subprocess
import sys

from testbed import yaml
from testbed.api import Object
from testbed.objects import NODE
from testbed.waiting import until
from tests.cluster.pods.driver import POLICY, Offer


def preset() -> Object:
    """The output of the command, for the kind of interface that nodes of the test bed have."""
    command = (sys.executable, "-m", "netdra", "preset", "shared", "--type", "veth")
    found: Object = yaml.safe_load(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def test_a_pod_has_a_macvlan_of_an_interface_that_no_policy_speaks_of(offer: Offer) -> None:
    node = offer.driver.node
    offer.veth("mac0")
    node.run("ip", "address", "add", "10.77.0.1/24", "dev", "mac0")
    offer.workspace.api.create(preset())
    try:
        offer.wait_published("mac0")
        allocatable = (offer.workspace.api.get(NODE, node.name) or {})["status"]["allocatable"]["pods"]

        def device() -> Object:
            return offer.published()["mac0"]

        assert device()["capacity"]["dra.networking/count"]["value"] == allocatable
        until(lambda: "10.77.0.1" in device()["attributes"]["ipv4"]["string"], "the address to be told")
        macvlan = offer.device_class("macvlan", "mac0")
        offer.pods.run("one", offer.claim("one", nic=macvlan))
        assert offer.inside("one")["net1"]["linkinfo"]["info_kind"] == "macvlan"
        assert "mac0" in offer.links()
        offer.pods.delete("one")
    finally:
        offer.workspace.api.delete(POLICY, "shared")
