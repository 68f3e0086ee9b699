"""Single edits of a topology that `netdra validate` passes without a word: its pod runs, or no device fits.

Edits that validate reports are not tried; those that the API server rejects are compared with validate without pods.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.api import Api, ApiError, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, manifest, scheduling
from testbed.pods import is_running
from testbed.waiting import until
from tests import draws, edits, validation
from tests.cluster.daemons import running_controller
from tests.cluster.pods.driver import TOPOLOGY, Offer
from tests.cluster.pods.running import step

PODS = draws.count(3, 25)
SEED = draws.seed() if draws.ANEW else 2
"""A pod takes seconds, so `make test` runs the same few; `make explore` draws others."""
MOST_EDITS = 4000
WITHIN = 90.0
ROUTES = [{"destination": "198.51.100.0/24", "gateway": "192.0.2.1", "metric": 7}]
IPAM = {"type": "host-local", "ranges": [[{"subnet": "203.0.113.0/24", "rangeStart": "203.0.113.9"}]]}


@pytest.fixture(scope="module", autouse=True)
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller, at work."""
    with running_controller(control_plane, api):
        yield


def original() -> Object:
    """A topology whose pod runs."""
    steps = [
        step("nic", "macvlan", {"mode": "bridge", "mtu": 1400, "ipam": IPAM}, prefix="edit0"),
        step("place", "tuning", {"addresses": ["192.0.2.9/24", "2001:db8::9/64"], "routes": ROUTES}, after="nic"),
        step("tune", "tuning", {"mtu": 1300, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}, after="place"),
    ]
    return manifest(TOPOLOGY, "edited", spec={"steps": steps})


def unreported(draw: random.Random, folder: Path) -> Iterator[tuple[str, Object]]:
    """Edits that validate has nothing to state of, each another one."""
    seen = set()
    for what, edited in edits.drawn(draw, MOST_EDITS, [original()]):
        text = yaml.safe_dump(edited, sort_keys=False)
        if text in seen:
            continue
        seen.add(text)
        if validation.lines(folder, text) == (0, []):
            yield what, edited


def roots(topology: Object) -> list[str]:
    return [each["name"] for each in topology["spec"]["steps"] if not each.get("dependOn")]


def outcome(offer: Offer, topology: Object, name: str) -> str:
    """The error of a pod of a topology, "" if it runs or if no device is available."""
    api = offer.workspace.api
    topology["metadata"] = {**topology["metadata"], "name": offer.workspace.name(name)}
    try:
        offer.workspace.create(topology)
    except ApiError as problem:
        return f"rejected: {problem.message}"
    made = topology["metadata"]["name"]
    classes = {root: f"{made}-{root}" for root in roots(topology)}

    def has_classes() -> bool:
        present = {each["metadata"]["name"] for each in api.list(CLASS)}
        return present >= set(classes.values())

    try:
        until(has_classes, f"the controller to make {sorted(classes.values())}")
    except AssertionError as problem:
        api.delete(TOPOLOGY, made)
        return f"no classes: {problem}"
    claim = offer.claim(name, **classes)
    offer.pods.add(name, claim)

    def decided(found: Object | None) -> bool:
        return is_running(found) or (found is not None and scheduling(found)[1] != "")

    try:
        offer.pods.wait(name, decided, timeout=WITHIN)
    except TimeoutError:
        events = api.list("v1/Event", offer.workspace.namespace)
        said = [each.get("message", "") for each in events if each["involvedObject"]["name"] == name]
        return f"does not run: {said[-3:]}"
    finally:
        offer.pods.delete(name)
        api.delete(CLAIM, claim, offer.workspace.namespace)
        api.delete(TOPOLOGY, made)
    return ""


def test_a_topology_edit_that_validate_accepts_does_not_fail_on_the_node(offer: Offer, tmp_path: Path) -> None:
    offer.veth("edit0", mtu="1600")
    offer.shared("edit0", shares=8)
    failed, tried = [], 0
    for what, edited in unreported(random.Random(SEED), tmp_path):
        if why := outcome(offer, edited, f"pod{tried}"):
            failed.append(f"{what}\n  {why}")
        tried += 1
        if tried == PODS:
            break
    assert failed == [], "\n".join(failed)
    assert tried == PODS
