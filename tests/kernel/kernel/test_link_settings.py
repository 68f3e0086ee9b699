"""Sizes, per-link sysctls and bridge ports as iproute2 and /proc/sys show them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from netdra.kernel import link, link_settings
from netdra.kernel.errors import KernelError
from netdra.kernel.netlink import Message
from tests.kernel.conftest import Machine


def message(machine: Machine, name: str) -> Message:
    return link.get(machine.sock, name).message


SKIPPED = link_settings.READ_ONLY | set(link_settings.FILES_ALONE)


def files(family: str, name: str) -> dict[str, str]:
    folder = Path(f"/proc/sys/net/{family}/conf/{name}")
    return {path.name: path.read_text().strip() for path in folder.iterdir() if path.name not in SKIPPED}


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_each_sysctl_of_a_link_is_in_its_message(machine: Machine, family: str) -> None:
    machine.veth("eth7", "peer7")
    names = link_settings.IPV4 if family == "ipv4" else link_settings.IPV6

    def seen() -> dict[str, str]:
        values = link_settings.sysctls(message(machine, "eth7"))[0 if family == "ipv4" else 1]
        shown = zip(names, values, strict=False)
        return {name: link_settings.sysctl_text(name, value) for name, value in shown if name not in SKIPPED}

    present = machine.namespace.run(lambda: files(family, "eth7"))
    assert len(present) > 30
    assert {name: seen()[name] for name in present} == present
    # Each by itself: many have the same value by default.
    for name, value in present.items():
        wanted = {"0": "1", "1": "0"}.get(value) or str(int(value) - 1)
        path = f"{family}/conf/eth7/{name}"
        with suppress(KernelError):  # some values are out of a setting's range
            machine.namespace.run(partial(link_settings.write_sysctl, path, wanted))
        now = machine.namespace.run(lambda: files(family, "eth7"))
        assert {each: seen()[each] for each in now} == now, name


def test_link_sizes_and_group_match_iproute2_output(machine: Machine) -> None:
    machine.veth("eth7", "peer7")
    values = {"gso_max_size": 30000, "gso_max_segs": 7, "gro_max_size": 40000}
    arguments = [text for name, value in values.items() for text in (name, str(value))]
    machine.run("ip", "link", "set", "eth7", "group", "7", *arguments)
    (seen,) = machine.ip("link", "show", "eth7")
    sizes = link_settings.sizes(message(machine, "eth7"))
    common = sizes.keys() & seen.keys()
    assert {name: sizes[name] for name in common} == {name: seen[name] for name in common}
    assert sizes.items() >= values.items()
    # An older iproute2 does not have those of IPv4. The kernel sets them along.
    assert (sizes["gso_ipv4_max_size"], sizes["gro_ipv4_max_size"]) == (30000, 40000)
    assert link_settings.group(message(machine, "eth7")) == 7


def test_bridge_port_settings_match_iproute2_output_and_can_be_set(machine: Machine) -> None:
    machine.veth("eth7", "peer7")
    assert link_settings.bridge_port(message(machine, "eth7")) == {}
    machine.run("ip", "link", "add", "br0", "type", "bridge")
    machine.run("ip", "link", "set", "eth7", "master", "br0")
    default = link_settings.bridge_port(message(machine, "eth7"))
    wanted = {
        name: value + 1 if name in {"cost", "priority", "mcast_max_groups", "mcast_hosts_limit"} else 1 - value
        for name, value in default.items()
        if name not in {"mcast_router", "group_fwd_mask", "mab"}
    }
    link_settings.change_bridge_port(machine.sock, machine.index("eth7"), wanted)
    now = link_settings.bridge_port(message(machine, "eth7"))
    assert now == {**default, **wanted}
    shown = machine.ip("link", "show", "eth7")[0]["linkinfo"]["info_slave_data"]
    common = shown.keys() & now.keys()
    assert len(common) > 15
    assert {name: int(shown[name]) for name in common} == {name: now[name] for name in common}


def test_a_link_is_the_same_however_it_was_read(machine: Machine) -> None:
    machine.veth("eth7", "peer7")
    machine.at_rest()
    assert link.get(machine.sock, "eth7") in link.dump(machine.sock)
