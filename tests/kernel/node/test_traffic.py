"""Series of pods' interfaces have the kernel's own counters, end with their pod, and keep to their limit."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from netdra.chain import checkpoint
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.kernel import link
from netdra.model.plan import ClaimReference, Plan, PlannedStep
from netdra.node.sandboxes.namespaces import Namespaces
from netdra.node.traffic import reader
from netdra.node.traffic.reader import Traffic
from tests.kernel.chain.conftest import Bed, bed, device
from tests.plans import attach

__all__ = ["bed"]
CLAIM = ClaimReference(namespace="default", name="claim", uid="c1")
NET = "198.51.100"
Series = dict[tuple[str, str], dict[str, float]]


@pytest.fixture
def namespaces() -> Iterator[Namespaces]:
    found = Namespaces()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def _always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FRESH_SECONDS", 0.0)


def plan(bed: Bed, count: int) -> Plan:
    """Wires from the node into the pod: `net1` to the node's `far1`, and so on."""
    for number in range(1, count + 1):
        bed.veth(f"far{number}", f"near{number}", up=True)
    steps = [
        PlannedStep(
            name=f"wire{number}",
            type="host-device",
            if_name=f"net{number}",
            network="n",
            execution="Builtin",
            device=device(f"near{number}", request=f"r{number}", consumed_capacity={"bandwidth": "8"}),
        )
        for number in range(1, count + 1)
    ]
    return Plan(topology="wires", claim=CLAIM, steps=tuple(steps))


def traffic(bed: Bed, namespaces: Namespaces, most: int = 100, **given: Any) -> Traffic:
    """The exporter of the bed's pods."""
    return Traffic(lambda: checkpoint.load_all(bed.settings.state)[0], namespaces.opened, most, **given)


def series(page: bytes) -> Series:
    """The values by pod and interface, by metric without prefix."""
    found: Series = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            place = sample.labels["pod"], sample.labels["interface"]
            name = re.sub("netdra_pod_network_|_total", "", sample.name)
            found.setdefault(place, {})[name] = sample.value
    return found


def in_pod(bed: Bed, name: str = "net1") -> dict[str, float]:
    """The counters of a link of the pod, in iproute2."""
    done = subprocess.run(
        ("ip", "-n", bed.pod.path.rpartition("/")[2], "-s", "-j", "link", "show", name),
        capture_output=True,
        text=True,
        check=True,
    )
    counted = json.loads(done.stdout)[0]["stats64"]
    return {
        f"{word}_{name}": counted[side][key]
        for side, word in (("rx", "receive"), ("tx", "transmit"))
        for name, key in (("bytes", "bytes"), ("packets", "packets"), ("drop", "dropped"), ("errs", "errors"))
    }


def send(bed: Bed, count: int, size: int) -> int:
    """Send datagrams from the node to net1, and return their bytes on the wire: Ethernet, IPv4 and UDP headers."""
    bed.run("ip", "addr", "replace", f"{NET}.1/24", "dev", "far1")
    bed.run("ip", "addr", "replace", f"{NET}.2/24", "dev", "net1", inside=True)
    mac = bed.link("net1", inside=True)["address"]
    bed.run("ip", "neigh", "replace", f"{NET}.2", "lladdr", mac, "dev", "far1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _ in range(count):
            sock.sendto(b"x" * size, (f"{NET}.2", 9))
    return count * (size + 14 + 20 + 8)


def test_series_equal_the_sent_bytes_over_a_restart_and_end_with_the_pod(bed: Bed, namespaces: Namespaces) -> None:
    attach([plan(bed, 1)], bed.container, bed.pod.path, bed.settings)
    namespaces.hold(bed.container.sandbox, bed.pod.path)
    exported = traffic(bed, namespaces)
    before = series(exported.page())["p", "net1"]
    sent = send(bed, 500, 1000)
    after = series(exported.page())["p", "net1"]
    # The pod answers with ICMP errors to another side; IPv6 sends some packets of its own on a new link.
    assert sent <= after["receive_bytes"] - before["receive_bytes"] <= sent + 5_000
    assert 500 <= after["receive_packets"] - before["receive_packets"] <= 550
    assert after["bandwidth_bytes"] == 1_000_000

    restarted = traffic(bed, namespaces)
    again = series(restarted.page())["p", "net1"]
    assert sent + send(bed, 100, 100) <= series(restarted.page())["p", "net1"]["receive_bytes"]
    assert again["receive_bytes"] >= after["receive_bytes"]
    ours, theirs = series(exported.page())["p", "net1"], in_pod(bed)
    assert {name: ours[name] for name in theirs} == theirs

    bed.run("ip", "link", "set", "net1", "name", "renamed", inside=True)
    assert series(exported.page())["p", "net1"]["receive_packets"] >= 600
    detach(bed.container.sandbox, bed.settings)
    namespaces.release(bed.container.sandbox)
    assert series(exported.page()) == {}


def test_a_limit_leaves_each_pod_its_first_interfaces_and_is_reported_once(bed: Bed, namespaces: Namespaces) -> None:
    attach([plan(bed, 3)], bed.container, bed.pod.path, bed.settings)
    namespaces.hold(bed.container.sandbox, bed.pod.path)
    reports: list[int] = []
    exported = traffic(bed, namespaces, 2, on_omitted=reports.append)
    for _ in range(2):
        assert set(series(exported.page())) == {("p", "net1"), ("p", "net2")}
    assert reports == [1]
    saved = checkpoint.load(bed.settings.state, bed.container.sandbox)
    pod = PodIdentity(sandbox="another", name="q%d", namespace="default", uid="v")
    another = msgspec.structs.replace(saved, header=msgspec.structs.replace(saved.header, pod=pod))
    both = Traffic(lambda: [saved, another], namespaces.opened, 2)
    namespaces.hold("another", bed.pod.path)
    assert set(series(both.page())) == {("p", "net1"), ("q%d", "net1")}


def test_one_namespace_that_is_gone_or_one_deleted_link_keeps_no_other_series_away(
    bed: Bed, namespaces: Namespaces
) -> None:
    attach([plan(bed, 2)], bed.container, bed.pod.path, bed.settings)
    namespaces.hold(bed.container.sandbox, bed.pod.path)
    exported = traffic(bed, namespaces)
    assert len(series(exported.page())) == 2
    bed.run("ip", "link", "del", "net1", inside=True)
    remaining = series(exported.page())
    assert "receive_bytes" not in remaining.get(("p", "net1"), {})
    assert "receive_bytes" in remaining["p", "net2"]
    namespaces.release(bed.container.sandbox)
    assert all("receive_bytes" not in values for values in series(exported.page()).values())


def test_a_pass_leaves_threads_and_descriptors_as_they_were_and_a_busy_scraper_reads_the_kernel_once(
    bed: Bed, namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach([plan(bed, 1)], bed.container, bed.pod.path, bed.settings)
    namespaces.hold(bed.container.sandbox, bed.pod.path)
    exported = traffic(bed, namespaces)
    exported.page()
    with bed.host.socket() as sock:
        assert link.find(sock, "far1") is not None
    before = sorted(thread.name for thread in threading.enumerate()), len(_descriptors())
    for _ in range(20):
        exported.page()
    assert (sorted(thread.name for thread in threading.enumerate()), len(_descriptors())) == before
    monkeypatch.setattr(reader, "FRESH_SECONDS", 60.0)
    page = exported.page()
    send(bed, 10, 10)
    assert exported.page() is page


def _descriptors() -> list[Path]:
    return list(Path("/proc/self/fd").iterdir())
