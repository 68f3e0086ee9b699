"""A link above hardware has its PCIe root, NUMA node and physical network, at any height."""

from __future__ import annotations

import msgspec
import pytest

from netdra.discovery.facts import MachineFacts, SysfsDevice
from netdra.discovery.recorded import _BLANK
from netdra.discovery.scan import interfaces
from netdra.exposure import expose
from netdra.kernel.link import Link
from netdra.model.device import Features
from netdra.model.inventory import Interface, Inventory, InventoryNode, wire_all
from tests.builders import exclusive

NICS = {"n0": ("pci0000:10", 0), "n1": ("pci0000:10", 0), "n2": ("pci0000:80", 1), "n3": ("pci0000:40", 0)}
PHYSNETS = {"red": ("n0", "n1"), "blue": ("n2",)}
ROOT = "resource.kubernetes.io/pcieRoot"

Seen = tuple[str, int, str, tuple[str, ...]]
NOTHING: Seen = ("", -1, "", ())


def machine(links: dict[str, tuple[str, tuple[str, ...]]]) -> MachineFacts:
    """NICs, and links on them: each with its kind, and the link below it or its ports."""
    facts = MachineFacts()
    names = [*NICS, *links]
    index = {name: at for at, name in enumerate(names, 2)}
    masters = {port: name for name, (kind, below) in links.items() if kind in ("bond", "bridge") for port in below}
    facts.wired = InventoryNode(name="n", physnets=PHYSNETS).wired
    for name in names:
        kind, below = links.get(name, ("", ()))
        lower = index[below[0]] if below and kind not in ("bond", "bridge") else 0
        master = index.get(masters.get(name, ""), 0)
        made: Link = msgspec.structs.replace(
            _BLANK, index=index[name], name=name, kind=kind, lower=lower, master=master, hardware=1
        )
        facts.put(made)
        if name in NICS:
            root, node = NICS[name]
            facts.put_device(
                index[name], SysfsDevice(address=f"0000:0{index[name]}:00.0", numa_node=node, pcie_root=root)
            )
    return facts


def seen(found: Interface) -> Seen:
    return found.pcie_root, found.numa_node, found.physnet, found.pcie_roots


@pytest.mark.parametrize(
    ("links", "name", "expected"),
    [
        ({"bond0": ("bond", ("n0", "n1"))}, "bond0", ("pci0000:10", 0, "red", ())),
        ({"bond0": ("bond", ("n0", "n2"))}, "bond0", ("", -1, "", ("pci0000:10", "pci0000:80"))),
        ({"bond0": ("bond", ("n0", "n3"))}, "bond0", ("", 0, "", ("pci0000:10", "pci0000:40"))),
        ({"v": ("vlan", ("n2",))}, "v", ("pci0000:80", 1, "blue", ())),
        (
            {"bond0": ("bond", ("n0", "n1")), "v": ("vlan", ("bond0",)), "m": ("macvlan", ("v",))},
            "m", ("pci0000:10", 0, "red", ()),
        ),
        ({"pod": ("veth", ()), "br": ("bridge", ("n2", "pod"))}, "br", ("pci0000:80", 1, "blue", ())),
        ({"br": ("bridge", ("n0", "n1"))}, "br", NOTHING),
        ({"pod": ("veth", ()), "br": ("bridge", ("pod",))}, "br", NOTHING),
        ({"d": ("dummy", ()), "v": ("vlan", ("d",))}, "v", NOTHING),
        ({"v": ("vlan", ("n3",)), "br": ("bridge", ("v",)), "x": ("ipvlan", ("br",))}, "x", ("pci0000:40", 0, "", ())),
    ],
    ids=["bond", "roots", "roots-one-node", "vlan", "high", "bridge", "two-uplinks", "no-uplink", "dummy", "chain"],
)  # fmt: skip
def test_a_link_without_hardware_has_the_facts_of_all_hardware_below_it(
    links: dict[str, tuple[str, tuple[str, ...]]], name: str, expected: Seen
) -> None:
    facts = machine(links)
    found = {each.if_name: each for each in interfaces(facts).values()}
    assert seen(found[name]) == expected
    assert seen(found["n2"]) == ("pci0000:80", 1, "blue", ())
    # A node that has other names for its NICs wires them anew, with the same result.
    again = wire_all(facts.wired, found.values())
    assert {each.if_name: seen(each) for each in again} == {each: seen(found[each]) for each in found}


@pytest.mark.parametrize("lists", [True, False])
def test_several_pcie_roots_are_a_list_where_the_server_takes_lists_and_else_none(lists: bool) -> None:
    facts = machine({"bond0": ("bond", ("n0", "n2"))})
    inventory = Inventory(node=InventoryNode(name="n"), interfaces=tuple(interfaces(facts).values()))
    chosen = exclusive("bonds", 'device.attributes["dra.networking"].type == "bond"', additionalFacts=["lowerDevices"])
    (device,) = expose(inventory, [chosen], features=Features(list_attributes=lists)).devices
    assert device.attributes.get(ROOT) == (("pci0000:10", "pci0000:80") if lists else None)
    assert device.attributes["dra.networking/lowerDevices"] == "n0,n2"
    (one,) = expose(
        Inventory(
            node=inventory.node, interfaces=tuple(interfaces(machine({"bond0": ("bond", ("n0", "n1"))})).values())
        ),
        [chosen],
    ).devices
    assert (one.attributes[ROOT], one.attributes["dra.networking/numaNode"]) == ("pci0000:10", 0)
