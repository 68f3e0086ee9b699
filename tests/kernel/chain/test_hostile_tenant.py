"""A pod with all rights in its namespace does to its device what it can: the next pod's traffic works anyway.

After the device is back, iproute2, ethtool, bridge and tc see no difference, or no pod gets the device and the
difference is named.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from netdra.chain import returned
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.kernel import netns
from netdra.kernel.netns import Namespace
from netdra.model.plan import Plan
from tests import draws, programs
from tests.hostile_pod import Act, as_called, driver_acts, link_acts, traffic_acts, view
from tests.kernel.chain.conftest import Bed, device, differences
from tests.plans import attach, plan, step

PROGRAM, HELD_PROGRAM, LINK_ELSEWHERE = "attach", "hold", "put elsewhere"
"""Acts that no command of iproute2 is: a BPF program, by a BPF link too, and a macvlan in another namespace."""


def acts_beyond() -> st.SearchStrategy[Act]:
    places = st.sampled_from(programs.PLACES)
    modes = st.sampled_from(["bridge", "private", "vepa", "passthru"])
    return st.one_of(
        st.tuples(st.sampled_from([PROGRAM, HELD_PROGRAM]), places), st.tuples(st.just(LINK_ELSEWHERE), modes)
    )


ACTS = st.lists(st.one_of(link_acts(), driver_acts(), traffic_acts(), acts_beyond()), min_size=1, max_size=6)


def on_node(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=check)


def mine() -> tuple[Plan, ...]:
    return (plan(step("nic", "host-device", "net1", device=device("eth7"))),)


def act_inside(bed: Bed, acts: Sequence[Act], second: str) -> list[int]:
    """Do what a pod does to its device, which it may rename; return the descriptors of BPF links that it keeps.

    Args:
        bed: the node and the pod.
        acts: what it does; the kernel may refuse it.
        second: the name of another namespace that the pod can reach.
    """
    kept: list[int] = []
    for act in acts:
        name = next(entry["ifname"] for entry in bed.ip("link", inside=True) if entry["ifname"] in ("net1", "renamed"))
        inside = ("ip", "netns", "exec", Path(bed.pod.path).name)
        if act[0] == LINK_ELSEWHERE:
            spy = ("ip", "link", "add", f"spy{len(act)}", "link", name, "up", "netns", second, "type", "macvlan")
            on_node(*inside, *spy, "mode", act[1], check=False)
        elif act[0] == PROGRAM:
            with suppress(OSError):
                bed.pod.run(partial(programs.attach, name, act[1]))
        elif act[0] == HELD_PROGRAM:
            with suppress(OSError):
                kept.append(bed.pod.run(partial(programs.hold, name, act[1])))
        else:
            on_node(*inside, *as_called(act, name), check=False)
    return kept


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
    """A device of the node with a peer at the other end of its wire."""
    bed.veth("eth7", "peer7", up=True)
    bed.run("ip", "link", "set", "peer7", "up")
    bed.run("ip", "address", "add", "192.0.2.2/24", "dev", "peer7")
    return bed


@pytest.fixture
def second() -> Iterator[str]:
    """The name of a namespace that outlives the pod."""
    name = f"netdra-test-{uuid.uuid4().hex[:8]}"
    with Namespace.create(name):
        yield name
        netns.delete(name)


def test_nothing_that_a_pod_does_to_its_device_reaches_the_next_pod(wired: Bed, second: str) -> None:
    before = view(on_node, "eth7")

    @settings(max_examples=draws.count(20, 10_000), phases=(Phase.explicit, Phase.generate))
    @given(acts=ACTS)
    @example(acts=[("ip", "link", "set", "dev", "DEVICE", "arp", "off")])
    @example(acts=[("ip", "link", "set", "dev", "DEVICE", "multicast", "off")])
    @example(acts=[("ip", "link", "set", "dev", "DEVICE", "mode", "dormant")])
    @example(acts=[("ip", "link", "set", "dev", "DEVICE", "state", "dormant")])
    @example(acts=[("ip", "link", "set", "dev", "DEVICE", "protodown", "on")])
    @example(acts=[(PROGRAM, "tcx ingress"), (HELD_PROGRAM, "tcx egress"), (HELD_PROGRAM, "xdp")])
    @example(
        acts=[
            ("ip", "link", "set", "dev", "DEVICE", "address", "02:00:00:00:66:d9"),
            ("ip", "link", "set", "dev", "DEVICE", "name", "renamed"),
        ]
    )
    @example(acts=[(LINK_ELSEWHERE, "passthru")])
    @example(acts=[(LINK_ELSEWHERE, "bridge"), (PROGRAM, "xdp generic")])
    @example(acts=[("ip", "link", "set", "dev", "DEVICE", "broadcast", "ff:ff:ff:ff:00:01")])
    def try_all(acts: list[Act]) -> None:
        attach(mine(), wired.container, wired.pod.path, wired.settings)
        kept = act_inside(wired, acts, second)
        try:
            report = detach(wired.container.sandbox, wired.settings)
            assert report.is_clean, str(report)
            assert_traffic_works(wired)
            returned.examine(wired.settings.state, 60.0)
            assert programs.on("eth7") == []
            assert "spy" not in on_node("ip", "-n", second, "link").stdout
            assert differences(before, view(on_node, "eth7")) == []
        finally:
            for descriptor in kept:
                os.close(descriptor)

    try_all()
