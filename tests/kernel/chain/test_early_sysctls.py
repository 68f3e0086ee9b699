"""Sysctls of a step are set before its interface is up: no router and no check of addresses acts before them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.model.errors import NetdraError
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step

# A plugin that makes an interface, and notes a setting of it just before it sets it up.
MAKER = (
    'n=$(basename "$CNI_NETNS"); ip -n "$n" link add "$CNI_IFNAME" type bridge || exit 1; '
    'ip netns exec "$n" cat /proc/sys/net/ipv6/conf/"$CNI_IFNAME"/accept_ra > %s; '
    'ip -n "$n" link set "$CNI_IFNAME" up; '
    """printf '{"cniVersion": "1.0.0", "interfaces": [{"name": "%%s", "sandbox": "%%s"}]}' """
    '"$CNI_IFNAME" "$CNI_NETNS"'
)
UNMAKE = 'ip -n "$(basename "$CNI_NETNS")" link del "$CNI_IFNAME" 2>/dev/null; true'
IPV6 = "net.ipv6.conf"


def value(bed: Bed, key: str) -> str:
    return bed.run("sysctl", "-n", key, inside=True).strip()


def attached(bed: Bed, kind: str, sysctls: Mapping[str, str], **more: Any) -> None:
    one = msgspec.structs.replace(step("s", kind, "net1", {}, **more), sysctls=sysctls)
    attach((plan(one),), bed.container, bed.pod.path, bed.settings)


@contextmanager
def watching(bed: Bed, file: Path) -> Iterator[None]:
    """Write the events of addresses in the pod to a file, from the first one of the block to the last."""

    def mark(address: str) -> None:
        def is_seen() -> bool:
            bed.run("ip", "addr", "replace", f"{address}/32", "dev", "lo", inside=True)
            return address in file.read_text()

        until(is_seen, "an event of an address")
        bed.run("ip", "addr", "del", f"{address}/32", "dev", "lo", inside=True)

    command = ("ip", "-n", Path(bed.pod.path).name, "monitor", "address")
    with file.open("w") as output, subprocess.Popen(command, stdout=output) as monitor:
        try:
            mark("10.99.0.1")
            yield
            mark("10.99.0.2")
        finally:
            monitor.terminate()


def is_checked(bed: Bed) -> bool:
    shown = bed.run("ip", "addr", "show", "net1", inside=True)
    return "inet6" in shown and "tentative" not in shown


@pytest.mark.parametrize("disabled", [True, False])
def test_an_interface_that_moves_in_has_its_sysctls_before_it_is_up(bed: Bed, disabled: bool, tmp_path: Path) -> None:
    bed.veth("nic0", "port0", up=True)
    bed.run("ip", "link", "set", "port0", "up")
    before = bed.state()
    events = tmp_path / "events"
    with watching(bed, events):
        sysctls = {f"{IPV6}.IFNAME.disable_ipv6": "1"} if disabled else {}
        attached(bed, "host-device", sysctls, device=device("nic0"))
        if not disabled:
            until(lambda: is_checked(bed), "a link-local address that was checked for duplicates")
    assert any("net1" in line and "inet6" in line for line in events.read_text().splitlines()) is not disabled
    assert value(bed, f"{IPV6}.net1.disable_ipv6") == str(int(disabled))
    assert value(bed, f"{IPV6}.default.disable_ipv6") == "0"
    assert check(bed.container.sandbox, bed.settings).is_clean
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


def test_a_program_makes_its_interface_with_the_sysctls_of_the_step(bed: Bed, tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    maker = recorder(bed, "maker")
    maker.does("ADD", MAKER % noted)
    maker.does("DEL", UNMAKE)
    somaxconn = value(bed, "net.core.somaxconn")
    wanted = {
        f"{IPV6}.IFNAME.accept_ra": "0",
        "net/ipv6/conf/IFNAME/keep_addr_on_down": "1",
        "net.core.somaxconn": "77",
    }
    attached(bed, "maker", wanted)
    assert noted.read_text().strip() == "0"
    assert [value(bed, f"{IPV6}.net1.{name}") for name in ("accept_ra", "keep_addr_on_down")] == ["0", "1"]
    assert [value(bed, f"{IPV6}.default.{name}") for name in ("accept_ra", "keep_addr_on_down")] == ["1", "0"]
    assert value(bed, "net.core.somaxconn") == "77"
    bed.run("sysctl", "-qw", f"{IPV6}.net1.accept_ra=2", inside=True)
    drift = [text for each in check(bed.container.sandbox, bed.settings).steps for text in each.drift]
    assert drift == ['sysctl net/ipv6/conf/net1/accept_ra is "2", not "0"']
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert value(bed, "net.core.somaxconn") == somaxconn


def test_sysctls_of_a_step_that_fails_are_undone(bed: Bed) -> None:
    recorder(bed, "maker").does("ADD", "exit 1")
    somaxconn = value(bed, "net.core.somaxconn")
    with pytest.raises(AttachError):
        attached(bed, "maker", {f"{IPV6}.IFNAME.accept_ra": "0", "net.core.somaxconn": "78"})
    assert (value(bed, f"{IPV6}.default.accept_ra"), value(bed, "net.core.somaxconn")) == ("1", somaxconn)
    for key, error in (("net.ipv6.conf.IFNAME.nothing", "is not one of this network namespace"), ("kernel.x", "pod")):
        with pytest.raises(NetdraError, match=error):
            attached(bed, "maker", {key: "1"})
