"""Open vSwitch: bridges distinguished from other internal ports by its database, and from Linux bridges without it."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from netdra.discovery import assemble, ovs
from netdra.discovery.facts import MachineFacts
from netdra.kernel import link, uapi
from netdra.kernel.netlink import attribute, nested, text, u32
from netdra.model.inventory import Interface
from testbed.pace import within

# What ovsdb-server answers to the three selects; br-ex has an uplink and a bond of two, br-int only itself.
REPLY = {
    "id": 0,
    "error": None,
    "result": [
        {
            "rows": [
                {"name": "br-ex", "ports": ["set", [["uuid", "p1"], ["uuid", "p2"], ["uuid", "p3"]]]},
                {"name": "br-int", "ports": ["uuid", "p4"]},
            ]
        },
        {
            "rows": [
                {"_uuid": ["uuid", "p1"], "interfaces": ["uuid", "i1"]},
                {"_uuid": ["uuid", "p2"], "interfaces": ["uuid", "i2"]},
                {"_uuid": ["uuid", "p3"], "interfaces": ["set", [["uuid", "i3"], ["uuid", "i4"]]]},
                {"_uuid": ["uuid", "p4"], "interfaces": ["uuid", "i5"]},
            ]
        },
        {
            "rows": [
                {"_uuid": ["uuid", number], "name": name}
                for number, name in (("i1", "br-ex"), ("i2", "eno1"), ("i3", "ens1"), ("i4", "ens2"), ("i5", "br-int"))
            ]
        },
    ],
}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """A socket that answers one connection as ovsdb-server does: an echo request of its own first, then in pieces."""
    path = tmp_path / "db.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                request = json.loads(connection.recv(65536))
                assert request["method"] == "transact"
                answer = (json.dumps({"id": "echo", "method": "echo", "params": []}) + json.dumps(REPLY)).encode()
                for start in range(0, len(answer), 100):
                    connection.sendall(answer[start : start + 100])

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        thread.join()


def test_the_database_maps_each_port_to_its_bridge(database: Path) -> None:
    assert ovs.bridges(str(database)) == {
        "br-ex": "br-ex",
        "eno1": "br-ex",
        "ens1": "br-ex",
        "ens2": "br-ex",
        "br-int": "br-int",
    }


def test_bridges_are_unknown_without_a_database_socket(tmp_path: Path) -> None:
    assert ovs.bridges(str(tmp_path / "absent.sock")) is None


def test_a_server_that_sends_without_end_is_left_after_the_time_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "db.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b'"')
                while True:
                    connection.sendall(b"x" * 256 * 1024)

        thread = threading.Thread(target=serve)
        thread.start()
        with within(3.0, "a database that never ends its answer"):
            assert ovs.bridges(str(path)) is None
        thread.join()


def ovs_machine(bridges: dict[str, str] | None) -> dict[str, Interface]:
    """The datapath, br-ex with eno1, br-int with the internal port mp0, and a default route through br-ex."""
    facts = MachineFacts()
    for index, (name, kind, master) in enumerate(
        [
            ("ovs-system", "openvswitch", 0),
            ("br-ex", "openvswitch", 0),
            ("br-int", "openvswitch", 0),
            ("mp0", "openvswitch", 0),
            ("eno1", "", 1),
            ("gnv0", "geneve", 1),
            ("br0", "bridge", 0),
        ],
        1,
    ):
        info = nested(uapi.IFLA_LINKINFO, attribute(uapi.IFLA_INFO_KIND, text(kind))) if kind else b""
        header = struct.pack("=BxHiII", 0, 1, index, 0, 0)
        body = header + attribute(uapi.IFLA_IFNAME, text(name)) + attribute(uapi.IFLA_MASTER, u32(master)) + info
        facts.put(link.parse(body))
    facts.default_links = facts.links_for_all = frozenset({2})
    facts.ovs_bridges = bridges
    uplinks = assemble.host_uplinks(facts)
    return {facts.links[index].name: assemble.interface(facts, index, uplinks) for index in facts.links}


def test_the_database_distinguishes_bridges_from_internal_ports() -> None:
    found = ovs_machine({"br-ex": "br-ex", "eno1": "br-ex", "br-int": "br-int", "mp0": "br-int", "gnv0": "br-int"})
    assert {name: (each.type, each.bridge_type) for name, each in found.items()} == {
        "ovs-system": ("openvswitch", ""),
        "br-ex": ("bridge", "ovs"),
        "br-int": ("bridge", "ovs"),
        "mp0": ("openvswitch", ""),
        "eno1": ("nic", ""),
        "gnv0": ("geneve", ""),
        "br0": ("bridge", "linux"),
    }
    assert (found["eno1"].master_bridge, found["gnv0"].master_bridge) == ("br-ex", "br-int")
    assert {name for name, each in found.items() if each.host_uplink} == {"br-ex", "eno1"}


def test_without_the_database_all_ports_below_an_uplink_are_protected() -> None:
    found = ovs_machine(None)
    assert (found["br-int"].type, found["br-int"].bridge_type, found["br-int"].driver) == (
        "bridge",
        "ovs",
        "openvswitch",
    )
    assert found["eno1"].master_bridge == "ovs-system"
    assert {name for name, each in found.items() if each.host_uplink} == {"br-ex", "eno1", "gnv0"}
