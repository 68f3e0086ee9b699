"""Nothing in an anonymous capture reveals the node's owner, and all that a bug report needs is still in it."""

from __future__ import annotations

import ipaddress
import random
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import inspect

from netdra.cli import capture
from netdra.discovery.capture import anonymize, to_text
from netdra.discovery.overrides import with_host_use, with_uplinks
from netdra.discovery.scan import scan_recorded
from netdra.exposure import expose
from netdra.model.inventory import Interface, Inventory, InventoryNode
from netdra.model.policy import DeviceExposurePolicy
from tests import builders, draws
from tests.builders import OURS, exclusive, read_inventory, shared
from tests.servers import description
from tests.trees import sriov_machine

INVENTORY = inspect.type_info(Inventory)
CHANCE = random.Random(f"{draws.seed()} anonymity")


class Canary(NamedTuple):
    """A text that could identify a user, and the parts of it that must not occur: letters and digits alone."""

    text: str
    needles: tuple[str, ...]


def plain(text: str) -> str:
    return re.sub(r"[^0-9a-z]", "", text.lower())


def word() -> str:
    return "kanari" + "".join(CHANCE.choices("ghjklmnopqrstuvwxyz", k=6))


def digits(size: int) -> str:
    # No pseudonym has so many different digits.
    return "".join(CHANCE.choices("3456789abcdef", k=2 * size))


def of(text: str) -> Canary:
    return Canary(text, (plain(text),))


def ip(network: str, spell: Callable[[Any], str]) -> Canary:
    inside = ipaddress.ip_network(network)
    address = inside[CHANCE.randrange(inside.num_addresses // 2, inside.num_addresses - 1)]
    return Canary(spell(address), (plain(str(address)), plain(address.exploded), address.packed.hex()))


def pairs(separator: str, size: int) -> str:
    text = digits(size)
    return separator.join(text[place : place + 2] for place in range(0, len(text), 2))


def named(before: str, after: str = "") -> Canary:
    middle = word()
    return Canary(before + middle + after, (middle,))


SHAPES: Mapping[str, Callable[[], Canary]] = {
    "MAC": lambda: of(pairs(":", 6)),
    "MAC with dashes": lambda: of(pairs("-", 6)),
    "MAC without separators": lambda: of(pairs("", 6)),
    "MAC in capitals": lambda: of(pairs(":", 6).upper()),
    "MAC in three parts": lambda: of(".".join(digits(2) for _ in range(3))),
    "MAC of InfiniBand": lambda: of(pairs(":", 20)),
    "GUID of InfiniBand": lambda: of(":".join(digits(2) for _ in range(4))),
    "GUID of InfiniBand in a number": lambda: of("0x" + digits(8)),
    "GUID of VMBus": lambda: of(str(uuid.UUID(int=CHANCE.getrandbits(128)))),
    "GUID in braces": lambda: of("{" + str(uuid.UUID(int=CHANCE.getrandbits(128))).upper() + "}"),
    "PCI serial number": lambda: of(pairs("-", 8)),
    "IPv4": lambda: ip("10.0.0.0/8", str),
    "IPv4 with a prefix": lambda: ip("172.16.0.0/12", lambda address: f"{address}/24"),
    "IPv4 with dashes": lambda: ip("203.0.112.0/20", lambda address: str(address).replace(".", "-")),
    "IPv4 in hexadecimal": lambda: ip("100.64.0.0/10", lambda address: f"0x{address.packed.hex()}"),
    "IPv6": lambda: ip("2a02:db8:5::/48", str),
    "IPv6 in full": lambda: ip("2a02:db8:5::/48", lambda address: f"{address.exploded}/64"),
    "IPv6 in capitals": lambda: ip("fd00:5::/48", lambda address: str(address).upper()),
    "IPv6 of a link": lambda: ip("fe80::/64", lambda address: f"{address}%{word()}"),
    "IPv6 of an IPv4": lambda: ip("10.0.0.0/8", lambda address: f"::ffff:{address}"),
    "host": lambda: named("", ".corp.example"),
    "host with a number": lambda: named("", "-07"),
    "word": lambda: named(""),
    "word in capitals": lambda: of(word().upper()),
    "kernel command line": lambda: named("BOOT_IMAGE=/vmlinuz root=UUID=1 console=ttyS0 hostname=", " quiet"),
    "DMI": lambda: named("Acme PowerServer R7, serial ", "/J3K"),
    "bridge of Open vSwitch": lambda: named("br-"),
    "port of Open vSwitch": lambda: named("patch-", "-to-br-int"),
    "netns": lambda: named("/run/netns/"),
    "label": lambda: named("rack.", ".example/place"),
    "port of Neutron": lambda: of("tap" + str(uuid.UUID(int=CHANCE.getrandbits(128)))[:11]),
    "text": lambda: named("rack 12, port 7: ", "\N{LATIN SMALL LETTER U WITH DIAERESIS} \u202e\n"),
}
PLACES = (
    "{}", "enx{}", "enp3s0f0n{}", "wlx{}", "br-{}", "veth{}", "cali{}", "bond0.{}", "vlan-{}", "{}.100", "{}v3", "{}_0",
    "mlx5_{}", "roce{}", "ibp3s0{}", "bridge-port {}", "{}-port br0", "{}-parent", "stated {}", "/dev/{}",
    "/dev/net/{}", "pci0000:{}", "0000:03:00.{}", "1-{}:1.0", "mtu: {}", "{}: EINVAL", "pf0vf{}", "kubernetes.io/{}",
    "linux{}", "node-role.kubernetes.io/{}", "hugepages-{}", "{}Gi", "[{}]", "rack {}, port 7", "\n{}",
)  # fmt: skip
DRIVER = re.compile("[A-Za-z][A-Za-z0-9_]*")
"""A driver's name is a kernel module's: any word may be one, and stays."""


def filled(kind: inspect.Type, text: Callable[[str], str], field: str = "") -> Any:
    """A value of a type with a text of its own in each place that takes one, keys among them.

    A type that this does not know fails the test: state here how it is filled.
    """
    match kind:
        case inspect.StrType():
            return text(field)
        case inspect.IntType() | inspect.BoolType():
            return 1
        case inspect.VarTupleType():
            return tuple(filled(kind.item_type, text, field) for _ in range(2))
        case inspect.DictType() if isinstance(kind.key_type, inspect.StrType):
            return {filled(kind.key_type, text, field): filled(kind.value_type, text, field) for _ in range(2)}
        case inspect.StructType():
            return kind.cls(**{each.name: filled(each.type, text, each.name) for each in kind.fields})
    pytest.fail(f"{field}: this test cannot put a canary in a {kind}")


def canaries(shape: str, place: str) -> tuple[Inventory, list[Canary]]:
    """An inventory with a canary of its own in every text."""
    there: list[Canary] = []
    drawn: set[tuple[str, ...]] = set()

    def text(field: str) -> str:
        canary = next(canary for canary in iter(SHAPES[shape], None) if canary.needles not in drawn)
        drawn.add(canary.needles)
        value = place.format(canary.text)
        if not (field == "driver" and DRIVER.fullmatch(value)):
            there.append(canary)
        return value

    return filled(INVENTORY, text), there


@pytest.mark.parametrize("shape", SHAPES)
def test_no_canary_in_any_field_gets_into_an_anonymous_capture(shape: str) -> None:
    for place in PLACES:
        inventory, there = canaries(shape, place)
        assert len(there) > 60
        before, after = (plain(to_text(each)) for each in (inventory, anonymize(inventory)))
        assert all(any(needle in before for needle in canary.needles) for canary in there)
        left = [needle for canary in there for needle in canary.needles if needle in after]
        assert [after[after.index(needle) - 40 :][:100] for needle in left] == [], (place, left)


def test_no_canary_gets_out_of_the_command_either(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path / "sys")
    tree.netdev("enx9c3f4e5d6a7b", address="9c:3f:4e:5d:6a:7b", ifalias="rack kanari at 10.77.13.201")
    tree.netdev("br-kanari")
    tree.enslave("enx9c3f4e5d6a7b", "br-kanari")
    tree.link("class/net/kanari9", "devices/virtual/net/kanari9")
    file = tmp_path / "capture.json"
    given_names = ("--node", "kanari.example", "--uplink", "br-kanari", "--host-use", "br-kanari")
    for target in (str(file), "-"):
        done = CliRunner().invoke(capture.command, [target, "--anonymize", "--sysfs", str(tree), *given_names])
        assert done.exit_code == 0, done.output
        said = plain(done.stdout + done.stderr + file.read_text())
        assert [each for each in ("kanari", "9c3f4e5d6a7b", "107713201") if each in said] == []
    read = read_inventory(file.read_text())
    assert {(each.if_name, each.master) for each in read.interfaces if each.master.startswith("br-")} == {
        (f"enx{each.mac.replace(':', '')}", "br-1") for each in read.interfaces if each.master == "br-1"
    }


NAMES = st.text("abcdefgxz0123456789-_.", min_size=1, max_size=15) | st.sampled_from(
    (
        "eth0",
        "eth0.100",
        "br-1",
        "br-2",
        "link-1",
        "enx020000000001",
        "enx020000000002",
        "acme",
        "acme.7",
        "bond7",
        "lo",
    )
)


@given(st.lists(NAMES, min_size=2, max_size=8, unique=True))
@example(["br-ex.7", "br-ex", "br-x.7", "br-x", "enx020000000001", "enx020000000002"])
def test_names_stay_names_and_as_many(names: list[str]) -> None:
    before = builders.inventory(
        *(Interface(if_name=name, mac=f"02:00:00:00:00:{at:02x}") for at, name in enumerate(names))
    )
    after = [each.if_name for each in anonymize(before).interfaces]
    assert len(set(after)) == len(names)
    assert all(0 < len(name) <= 15 and not set(name) & set("/ :") for name in after)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, name) for name in (
            "lo", "eth0", "eno49", "ens1f0np0", "enp96s0f1", "enP2p1s0f0np0v3", "ens1f0npf0vf3", "ib0", "ibp3s0",
            "bond0",             "bond0.100", "br0", "br-ex", "docker0", "ovs-system", "eth0_3", "enp3s0f0_0", "wlp2s0",
        )),
        ("br-acme", "br-1"), ("vethac08834", "veth-1"), ("cali1a2b3c4d5e6", "cali-1"), ("tap1a2b3c4d-5e", "tap-1"),
        ("lxc1a2b3c4d5e6f", "lxc-1"), ("acme", "nic-1"), ("enacme", "nic-1"), ("bond-acme", "bond-1"),
        ("enx9c3f4e5d6a7b", "enx020000000001"),
    ],
)  # fmt: skip
def test_names_of_the_kernel_and_of_systemd_stay_and_others_keep_their_class(name: str, expected: str) -> None:
    assert anonymize(builders.inventory(Interface(if_name=name))).interfaces[0].if_name == expected


def servers(tmp_path: Path) -> Iterator[Inventory]:
    trees = [description.build(name, tmp_path / name).root for name in description.NAMES]
    for root in (*trees, sriov_machine(tmp_path / "machine").root):
        recorded = scan_recorded(str(root), InventoryNode(name="kanari"))
        yield recorded
        yield with_host_use(with_uplinks(recorded, ["none"]), ["none"])
    wired = builders.inventory(
        *builders.sriov("acmenic", 3, alias="uplink of acme", physnet="acme-net", alt_names=("acme-first",)),
        *builders.sriov(
            "ens2f0", 2, bus=4, ipv4=("10.0.0.7/24",), ipv6=("2a02:db8::7/64",), host_use=("bridge-port br-acme",)
        ),
        Interface(if_name="br-acme", type="bridge", bridge_name="br-acme", lower_devices=("ens2f0",), mtu=1500),
        Interface(if_name="acmenic.100", type="vlan", vlan_id=100, lower_devices=("acmenic",), mtu=1500),
    )
    yield msgspec.structs.replace(
        wired, node=InventoryNode(name="acme", physnets={"acme-net": ("acmenic", "0000:04:00.0")})
    )


POLICIES: list[DeviceExposurePolicy] = [
    shared("links", f'{OURS}.type != "loopback" && {OURS}.type != "vf"', deviceNameSuffix="-shared"),
    exclusive("functions", f'{OURS}.type == "pf" || {OURS}.type == "vf"'),
    exclusive("of-vendor", f'{OURS}.vendor == "8086" && {OURS}.numaNode == 0', deviceNameSuffix="-first"),
]
RELATIONS = ("pf_name", "bridge_name", "master", "master_bridge", "lower_devices", "upper_devices", "representor")
KEPT = (
    "type", "oper_state", "pci_address", "bus", "vendor", "product", "driver", "pf_pci_address", "bridge_type",
    "pcie_root", "pcie_roots", "rdma_mode", "iommu_group", "eswitch_mode", "encapsulation", "unreadable",
)  # fmt: skip


def relations(inventory: Inventory) -> list[Any]:
    """The relations of each interface, by place in the inventory, and the others with which it shares a text."""
    places = {each.if_name: place for place, each in enumerate(inventory.interfaces) if each.if_name}
    by_field = []
    for field in Interface.__struct_fields__:
        values = [getattr(each, field) for each in inventory.interfaces]
        firsts = [values.index(value) for value in values]
        lists = [(value,) if isinstance(value, str) else value for value in values] if field in RELATIONS else []
        by_field.append((field, firsts, [sorted(places.get(name, -1) for name in names) for names in lists]))
    return by_field


def offered(inventory: Inventory) -> list[Any]:
    """The devices from exposure: by device the place of its interface, its persona's form, and its counters."""
    places = {each.identity: place for place, each in enumerate(inventory.interfaces)}
    return sorted(
        (
            places[each.interface],
            each.shared,
            len(each.attributes),
            sorted(each.capacity),
            sorted(map(len, each.consumes.values())),
        )
        for each in expose(inventory, POLICIES).devices
    )


def test_an_anonymous_capture_has_the_shape_of_the_node(tmp_path: Path) -> None:
    for before in servers(tmp_path):
        after = read_inventory(to_text(anonymize(before)))
        assert relations(after) == relations(before)
        for was, now in zip(before.interfaces, after.interfaces, strict=True):
            assert [getattr(now, field) for field in KEPT] == [getattr(was, field) for field in KEPT]
            numbers = {field for field in Interface.__struct_fields__ if isinstance(getattr(was, field), int)}
            assert {field: getattr(now, field) for field in numbers} == {
                field: getattr(was, field) for field in numbers
            }
            assert (now.uses != ()) == (was.uses != ())
        assert (after.unreadable, len(after.vanished)) == (before.unreadable, len(before.vanished))
        assert [len(each) for each in after.node.physnets.values()] == [
            len(each) for each in before.node.physnets.values()
        ]
        assert offered(after) == offered(before)
        assert offered(before) or before.unreadable
