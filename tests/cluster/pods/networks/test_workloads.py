"""Many pods: a Deployment that grows and shrinks, and pods one after the other, with nothing of them left at the end.

`NETDRA_PODS=200` makes the sequence longer.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence

from testbed import pods as running
from testbed.api import Object
from testbed.objects import CLAIM, POD, manifest
from testbed.pods import is_running
from testbed.waiting import until
from tests import draws
from tests.cluster.pods.driver import WITHIN, Offer

DEPLOYMENT = "apps/v1/Deployment"
SCALE = 20
LONG = 240.0
PODS = int(os.environ.get("NETDRA_PODS") or draws.count(8, 200))


def deployment(offer: Offer, template: str) -> Object:
    """A Deployment of one pod with a claim of its own."""
    pod = running.manifest(offer.workspace.namespace, "pod", offer.driver.node.name, {"net": ""})
    spec = pod["spec"] | {"resourceClaims": [{"name": "net", "resourceClaimTemplateName": template}]}
    labels = {"app": "scaled"}
    return manifest(
        DEPLOYMENT,
        "scaled",
        offer.workspace.namespace,
        spec={
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    )


def scale(offer: Offer, replicas: int) -> Sequence[Object]:
    """Have so many pods of the Deployment, and return them when they run and no others are there."""
    change = {"spec": {"replicas": replicas}}
    offer.workspace.api.patch(DEPLOYMENT, "scaled", change, namespace=offer.workspace.namespace)

    def settled(found: list[Object]) -> bool:
        return len(found) == replicas and all(map(is_running, found))

    return offer.workspace.api.wait_for_all(POD, settled, namespace=offer.workspace.namespace, timeout=LONG)


def test_a_deployment_grows_to_twenty_pods_and_shrinks_to_none_and_nothing_is_left(offer: Offer) -> None:
    offer.veth("many0")
    offer.shared("many0", shares=2 * SCALE)
    before = offer.links(), offer.driver.node.run("ls", "/run/netns").split()
    template = offer.template("net", nic=offer.device_class("macvlan", "many0"))
    offer.workspace.api.create(deployment(offer, template))

    scale(offer, 1)
    names = [pod["metadata"]["name"] for pod in scale(offer, SCALE)]
    interfaces = [offer.inside(name) for name in names]
    assert [set(found) for found in interfaces] == [{"lo", "eth0", "net1"}] * SCALE
    assert len({found["net1"]["address"] for found in interfaces}) == SCALE
    assert offer.metric("netdra_claims_prepared") == SCALE
    scale(offer, 0)

    offer.workspace.api.wait_for_all(CLAIM, lambda found: not found, namespace=offer.workspace.namespace)
    offer.driver.until_nothing_is_left()
    until(
        lambda: (offer.links(), offer.driver.node.run("ls", "/run/netns").split()) == before,
        "the node's links and namespaces to be as before",
        seconds=WITHIN,
    )
    assert offer.metric("netdra_claims_prepared") == 0
    # It is counted with the next look at the node, which follows the last claim's end.
    until(lambda: offer.metric("netdra_held_devices") == 0, "no device to be held", seconds=WITHIN)
    assert offer.metric("netdra_attachments") == 0
    offer.workspace.api.delete(DEPLOYMENT, "scaled", offer.workspace.namespace)


def test_pods_one_after_the_other_each_get_the_device_that_the_last_one_gave_back(offer: Offer) -> None:
    offer.whole("many1")
    claim = offer.claim("net", nic=offer.device_class("host-device", "many1"))
    prepared = offer.metric("netdra_claim_prepare_duration_seconds_count", outcome="ok")
    seconds = []
    for number in range(PODS):
        begun = time.monotonic()
        offer.pods.run(f"pod{number}", claim)
        seconds.append(time.monotonic() - begun)
        assert "net1" in offer.inside(f"pod{number}")
        offer.pods.delete(f"pod{number}")
        assert "many1" in offer.links()
    assert offer.metric("netdra_claim_prepare_duration_seconds_count", outcome="ok") == prepared + PODS
    assert offer.metric("netdra_claims_prepared") == 0
    median, longest = statistics.median(seconds), max(seconds)
    print(f"create to Running: {PODS} pods, median {median:.3f} s, longest {longest:.3f} s", file=sys.stderr)
