"""Neighbours that had an address of a pod elsewhere reach the pod at once: attaching announces all of its addresses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from netdra.chain import announcements
from netdra.chain.site import open_pod
from netdra.kernel import kinds, link
from netdra.kernel.netlink import Socket
from netdra.model.plan import Plan
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, device
from tests.kernel.conftest import Machine, new_machine
from tests.plans import attach, plan, step

FOUR, SIX = "10.66.0.5", "2001:db8:66::5"
ELSEWHERE = "02:00:00:00:00:99"
SECOND = 1.0
STATIC = {"ipam": {"type": "static", "addresses": [{"address": f"{FOUR}/24"}, {"address": f"{SIX}/64"}]}}


@pytest.fixture
def neighbour(bed: Bed) -> Iterator[Machine]:
    """A machine at the other end of the node's wire `wire`, as `far`, with stale entries for the pod's addresses."""
    for made in new_machine():
        with Socket() as sock:
            link.create(sock, "wire", "veth", kinds.veth(kinds.Peer("far", netns_fd=made.namespace.fd)), up=True)
        link.change(made.sock, "far", up=True)
        for text in ("10.66.0.9/24", "2001:db8:66::9/64"):
            made.run("ip", "address", "add", text, "dev", "far", "nodad")
        for text in (FOUR, SIX):
            made.run("ip", "neigh", "replace", text, "lladdr", ELSEWHERE, "dev", "far", "nud", "stale")
        yield made


def known(neighbour: Machine) -> dict[str, str]:
    """The MACs that the neighbour has for the pod's addresses."""
    found = {entry["dst"]: entry.get("lladdr", "") for entry in neighbour.ip("neigh", "show", "dev", "far") or []}
    return {text: found.get(text, "") for text in (FOUR, SIX)}


def nic(**config: Any) -> Plan:
    return plan(step("nic", "host-device", "net1", config, device=device("wire")))


def tuned() -> Plan:
    tuning = step("tune", "tuning", "net1", {"addresses": [f"{FOUR}/24", f"{SIX}/64"]}, after=["nic"])
    return plan(*nic().steps, tuning)


def kept() -> Plan:
    found = device("wire", keep=("addresses",), allow_host_addresses=True)
    return plan(step("nic", "host-device", "net1", device=found))


PLANS: dict[str, Callable[[], Plan]] = {
    "tuning": tuned,
    "ipam of a built-in step": lambda: nic(**STATIC),
    "kept": kept,
}


def give(bed: Bed) -> None:
    """The node's wire has the addresses."""
    for text in (f"{FOUR}/24", f"{SIX}/64"):
        bed.run("ip", "address", "add", text, "dev", "wire", "nodad")


@pytest.mark.parametrize("made", PLANS)
def test_a_neighbour_with_a_stale_entry_reaches_the_addresses_of_a_pod_at_once(
    bed: Bed, neighbour: Machine, made: str
) -> None:
    if made == "kept":
        give(bed)
    attach((PLANS[made](),), bed.container, bed.pod.path, bed.settings)

    assert known(neighbour) == dict.fromkeys((FOUR, SIX), bed.link("net1", inside=True)["address"])
    for text in (FOUR, SIX):
        neighbour.run("busybox", "ping", "-c", "1", "-W", "1", text)


def again(bed: Bed, made: Plan) -> dict[str, str]:
    """Announce a second time, as the daemon does; returns the interfaces that wait."""
    with open_pod(bed.pod.path) as space:
        return announcements.announce(announcements.names_of([made]), space)


@pytest.mark.parametrize(
    ("kind", "config", "wire"),
    [
        ("macvlan", {"mode": "bridge", "master": "wire"}, "wire"),
        ("bridge", {"bridge": "lan"}, "lan"),
    ],
)
def test_addresses_of_programs_are_announced_when_the_kernel_has_searched_for_duplicates(
    bed: Bed, neighbour: Machine, kind: str, config: dict[str, Any], wire: str
) -> None:
    if kind == "bridge":
        bed.run("ip", "link", "add", "lan", "type", "bridge")
        bed.run("ip", "link", "set", "wire", "master", "lan")
    made = plan(step("lan", kind, "net1", {**config, **STATIC}, device=device(wire)))
    attach((made,), bed.container, bed.pod.path, bed.settings)
    mac = bed.link("net1", inside=True)["address"]

    until(lambda: known(neighbour)[FOUR] == mac, "the IPv4 address to be announced", seconds=SECOND)
    until(lambda: not again(bed, made), "the kernel to have searched", seconds=10 * SECOND)
    assert known(neighbour) == dict.fromkeys((FOUR, SIX), mac)


def test_an_interface_without_a_carrier_is_announced_when_its_link_is_up(bed: Bed, neighbour: Machine) -> None:
    made = tuned()
    link.change(neighbour.sock, "far", up=False)
    attach((made,), bed.container, bed.pod.path, bed.settings)
    assert again(bed, made) == {"net1": 'interface "net1" has no carrier (operstate down)'}

    link.change(neighbour.sock, "far", up=True)
    for text in (FOUR, SIX):
        neighbour.run("ip", "neigh", "replace", text, "lladdr", ELSEWHERE, "dev", "far", "nud", "stale")
    assert again(bed, made) == {}
    until(
        lambda: set(known(neighbour).values()) == {bed.link("net1", inside=True)["address"]},
        "the addresses to be announced",
        seconds=SECOND,
    )


def test_announcing_takes_an_attach_no_time(bed: Bed, neighbour: Machine) -> None:
    """The kernel takes 16 ms to close a socket that sends packets; attaching does not wait for that."""
    attach((tuned(),), bed.container, bed.pod.path, bed.settings)
    seconds = []
    with open_pod(bed.pod.path) as space:
        for _ in range(10):
            begun = time.monotonic()
            announcements.first([tuned()], space)
            seconds.append(time.monotonic() - begun)
    assert min(seconds) < 0.005
