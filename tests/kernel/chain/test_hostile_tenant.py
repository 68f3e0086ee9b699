"""A pod with all rights in its namespace does to its device what it can: the next pod's traffic works all the same.

After the device is back, iproute2, ethtool, bridge and tc see no difference, or no pod gets the device and the
difference is named.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.kernel import netns
from netdra.kernel.netns import Namespace
from netdra.model.plan import Plan
from tests import draws
from tests.hostile import Act, as_called, driver_acts, link_acts, traffic_acts, view
from tests.kernel.chain.conftest import Bed, device, differences
from tests.plans import attach, plan, step

ACTS = st.lists(st.one_of(link_acts(), driver_acts(), traffic_acts()), min_size=1, max_size=6)


def on_node(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=check)


def mine() -> tuple[Plan, ...]:
    return (plan(step("nic", "host-device", "net1", device=device("eth7"))),)


def act_inside(bed: Bed, acts: Sequence[Act]) -> None:
    """Do what a pod does to its device, which it may rename."""
    for act in acts:
        name = next(entry["ifname"] for entry in bed.ip("link", inside=True) if entry["ifname"] in ("net1", "renamed"))
        on_node("ip", "netns", "exec", Path(bed.pod.path).name, *as_called(act, name), check=False)


@contextmanager
def next_pod() -> Iterator[tuple[PodIdentity, Namespace]]:
    name = f"netdra-test-{uuid.uuid4().hex[:8]}"
    space = Namespace.create(name)
    try:
        yield PodIdentity(sandbox=f"sb-{uuid.uuid4().hex[:8]}", name="q", namespace="other", uid="u2"), space
    finally:
        space.close()
        netns.delete(name)


def assert_traffic_works(bed: Bed) -> None:
    """The next pod gets the device and reaches the other end of its wire."""
    with next_pod() as (pod, space):
        attach(mine(), pod, space.path, bed.settings)
        inside = ("ip", "netns", "exec", Path(space.path).name)
        on_node(*inside, "ip", "address", "add", "192.0.2.1/24", "dev", "net1")
        on_node(*inside, "busybox", "ping", "-q", "-c", "1", "-W", "5", "192.0.2.2")
        assert detach(pod.sandbox, bed.settings).is_clean


@pytest.fixture
def wired(bed: Bed) -> Bed:
    """A device of the node with somebody at the other end of its wire."""
    bed.veth("eth7", "peer7", up=True)
    bed.run("ip", "link", "set", "peer7", "up")
    bed.run("ip", "address", "add", "192.0.2.2/24", "dev", "peer7")
    return bed


def test_nothing_that_a_pod_does_to_its_device_reaches_the_next_pod(wired: Bed) -> None:
    before = view(on_node, "eth7")

    @settings(max_examples=draws.count(20, 2000), phases=(Phase.explicit, Phase.generate))
    @given(acts=ACTS)
    @example(acts=[("ip", "link", "set", "dev", "DEVICE", "arp", "off")])
    @example(acts=[("ip", "link", "set", "dev", "DEVICE", "multicast", "off")])
    @example(acts=[("ip", "link", "set", "dev", "DEVICE", "mode", "dormant")])
    @example(acts=[("ip", "link", "set", "dev", "DEVICE", "state", "dormant")])
    @example(acts=[("ip", "link", "set", "dev", "DEVICE", "protodown", "on")])
    @example(acts=[("ip", "link", "set", "dev", "DEVICE", "broadcast", "ff:ff:ff:ff:00:01")])
    def try_all(acts: list[Act]) -> None:
        attach(mine(), wired.container, wired.pod.path, wired.settings)
        act_inside(wired, acts)
        report = detach(wired.container.sandbox, wired.settings)
        assert report.is_clean, str(report)
        assert differences(before, view(on_node, "eth7")) == []
        assert_traffic_works(wired)

    try_all()
