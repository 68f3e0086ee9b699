"""A lease over the network: a built-in step delegates to the dhcp plugin, whose daemon asks a real server."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

import msgspec
import pytest

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.model.plan import PlannedStep
from testbed import build
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, device, differences, with_budget
from tests.plans import attach, plan, step

FIRST, LAST = IPv4Address("10.5.0.10"), IPv4Address("10.5.0.20")  # the server picks one by the client's MAC
SERVER = f"""
start {FIRST}
end {LAST}
interface br0
max_leases 5
lease_file {{folder}}/leases
pidfile {{folder}}/pid
option subnet 255.255.255.0
option router 10.5.0.1
option lease 3600
"""


@contextmanager
def running(*command: str, until: str) -> Iterator[None]:
    """A program in the node's namespace, from when it reports that it is ready until the context ends."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            while until and until not in (line := process.stdout.readline()):
                assert line, f"{command[0]} has ended"
            yield
        finally:
            process.kill()


@pytest.fixture
def dhcp(bed: Bed, tmp_path: Path) -> Iterator[str]:
    """A network with a DHCP server, and the plugin's daemon; the path of its socket."""
    bed.run("ip", "link", "add", "br0", "up", "address", "02:00:00:00:00:b0", "type", "bridge")
    bed.run("ip", "addr", "add", "10.5.0.1/24", "dev", "br0")
    bed.veth("eth7", "peer7")
    bed.run("ip", "link", "set", "peer7", "up", "master", "br0")
    (bed.plugins / "dhcp").symlink_to(build.program("dhcp"))
    (tmp_path / "leases").touch()
    config = tmp_path / "udhcpd.conf"
    config.write_text(SERVER.format(folder=tmp_path))
    path = str(tmp_path / "dhcp.sock")
    with (
        running("busybox", "udhcpd", "-f", str(config), until="started"),
        running(str(bed.plugins / "dhcp"), "daemon", "-socketpath", path, until=""),
    ):
        listens(path)
        yield path


def listens(path: str) -> None:
    """Wait until the daemon listens on a socket, which exists before; the daemon sends no signal."""
    with socket.socket(socket.AF_UNIX) as probe:
        until(lambda: probe.connect_ex(path) == 0, "the daemon of dhcp to listen")


def leasing(path: str) -> PlannedStep:
    """A step with a lease of the server, by the daemon with that socket."""
    ipam = {"type": "dhcp", "daemonSocketPath": path}
    return step("dev", "host-device", "net1", {"ipam": ipam}, device=device("eth7"))


def test_a_lease_is_taken_over_the_network_and_given_back(bed: Bed, dhcp: str) -> None:
    bed = with_budget(bed, 60.0)  # a request that is lost is sent again after seconds
    before = bed.state()
    report = attach((plan(leasing(dhcp)),), bed.container, bed.pod.path, bed.settings)
    (address,) = report.steps[0].result.ips
    assert FIRST <= IPv4Interface(address.address).ip <= LAST
    assert (address.gateway, address.interface) == ("10.5.0.1", 0)
    assert address.address in bed.addresses("net1", inside=True)
    assert bed.run("busybox", "ping", "-c", "1", "-w", "10", "10.5.0.1", inside=True)
    assert check(bed.container.sandbox, bed.settings).is_clean
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


@pytest.mark.parametrize("requested", [False, True])
def test_the_server_s_router_is_the_pod_s_only_where_the_step_requests_it(bed: Bed, dhcp: str, requested: bool) -> None:
    bed = with_budget(bed, 60.0)
    made = msgspec.structs.replace(leasing(dhcp), default_route=requested)
    report = attach((plan(made),), bed.container, bed.pod.path, bed.settings)
    routers = [entry["gateway"] for entry in bed.ip("route", "show", "default", inside=True)]
    assert routers == (["10.5.0.1"] if requested else [])
    text = 'default route via 10.5.0.1 of IPAM plugin "dhcp" is not in the pod'
    assert any(text in note for note in report.steps[0].notes) is not requested
    assert check(bed.container.sandbox, bed.settings).is_clean
    assert detach(bed.container.sandbox, bed.settings).is_clean
