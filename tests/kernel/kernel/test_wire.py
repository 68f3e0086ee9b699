"""The wire between two namespaces is measured as it is: its MTU in both directions, its loss, its rate."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from netdra.kernel import link, wire
from netdra.kernel.errors import KernelError
from netdra.kernel.wire import WireReport
from tests.kernel.conftest import Machine

_LISTEN = "from netdra.kernel.wire import Listener; listener = Listener(); print('up', flush=True); listener.serve(60)"


@pytest.fixture
def joined(machine: Machine, other: Machine) -> tuple[Machine, Machine]:
    """Two machines with a wire."""
    machine.veth("net1", "net1", peer_in=other.namespace, up=True)
    for side, number in ((machine, 1), (other, 2)):
        link.change(side.sock, "net1", up=True)
        for address in (f"198.51.100.{number}/24", f"2001:db8::{number}/64"):
            command = ("ip", "-n", side.name, "addr", "add", address, "dev", "net1")
            subprocess.run((*command, *(("nodad",) if ":" in address else ())), check=True)
    machine.at_rest()
    other.at_rest()
    return machine, other


@contextmanager
def listening(netns: str) -> Iterator[None]:
    """A listener in a process of its own in a namespace."""
    command = ("ip", "netns", "exec", netns, sys.executable, "-c", _LISTEN)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            yield
        finally:
            process.kill()


def measured(machine: Machine, host: str, rate: float = 5e6) -> WireReport:
    with machine.entered():
        return wire.measure(host, seconds=0.5, rate=rate)


@pytest.mark.parametrize(("host", "most"), [("198.51.100.2", 1500), ("2001:db8::2", 1400)])
def test_a_whole_wire_has_its_mtu_no_loss_and_a_rate(joined: tuple[Machine, Machine], host: str, most: int) -> None:
    here, there = joined
    for side in joined:
        link.change(side.sock, "net1", mtu=most)
    with listening(there.name):
        report = measured(here, host)
    assert (report.interface, report.path_mtu, report.loss) == ("net1", most, 0.0)
    assert report.sent > 10
    assert report.rate > 10e6
    assert 0 < report.round_trip < 0.3


def test_a_hop_that_drops_large_packets_without_a_message_is_found(joined: tuple[Machine, Machine]) -> None:
    here, there = joined
    link.change(there.sock, "net1", mtu=1300)
    with listening(there.name):
        # A veth drops packets beyond its MTU and the header of a VLAN.
        assert measured(here, "198.51.100.2").path_mtu in range(1300, 1305)


def test_lost_datagrams_are_counted(joined: tuple[Machine, Machine]) -> None:
    here, there = joined
    limited = ("tc", "-n", here.name, "qdisc", "add", "dev", "net1", "root", "tbf")
    subprocess.run((*limited, "rate", "2mbit", "burst", "3kb", "limit", "6kb"), check=True)
    with listening(there.name):
        report = measured(here, "198.51.100.2", rate=20e6)
    assert 0.5 < report.loss < 1.0
    assert report.rate < 4e6


def test_a_peer_that_does_not_listen_is_an_error_that_names_it(joined: tuple[Machine, Machine]) -> None:
    here, _ = joined
    with here.entered(), pytest.raises(KernelError, match=r"cannot measure the wire to 198\.51\.100\.2"):
        wire.measure("198.51.100.2", patience=0.5)
