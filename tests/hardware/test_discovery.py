"""Discovery of SR-IOV hardware: every fact of PFs and VFs, and every change to them, seen from the kernel's events.

The expected facts are read by hand from sysfs, `ip` and `ethtool`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netdra.discovery.scan import scan
from netdra.discovery.watch import Watcher
from netdra.exposure.expose import expose
from netdra.model.inventory import Interface, Inventory
from testbed.waiting import until
from tests.builders import OURS, exclusive
from tests.hardware.node import PATIENCE, PF, VF, Function, bind, ip, links, run, unbind, up

NewNetns = Callable[[], str]
Rebind = Callable[[Function, str], None]
SetNumVFs = Callable[[PF, int], None]


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    with Watcher() as opened:
        yield opened


def follow(watcher: Watcher, condition: Callable[[Inventory], bool], what: str) -> Inventory:
    """Handle events until they have reported something, and compare the outcome with a fresh scan."""

    def differing() -> list[str]:
        watcher.handle()
        return differences(watcher.inventory, scan())

    def told() -> bool:
        watcher.handle()
        return condition(watcher.inventory)

    until(told, f"events to tell: {what}", seconds=PATIENCE)
    until(lambda: not differing(), "a fresh scan to agree", seconds=PATIENCE, detail=differing)
    assert watcher.rescans == 0
    return watcher.inventory


def differences(known: Inventory, fresh: Inventory) -> list[str]:
    """The differences from a fresh scan, field by field.

    Except for the permanent MAC of a VF: its driver writes it again at every reset without an event.
    """
    old, new = ({(each.identity, each.if_name): each for each in one.interfaces} for one in (known, fresh))
    lines = [f"{key}: only {'known' if key in old else 'fresh'}" for key in old.keys() ^ new.keys()]
    for key in old.keys() & new.keys():
        for field in Interface.__struct_fields__:
            before, after = getattr(old[key], field), getattr(new[key], field)
            if before != after and not (field == "permanent_mac" and old[key].type == "vf"):
                lines.append(f"{key} {field}: known {before!r}, fresh {after!r}")
    return lines


def has_vfs(pf: PF, count: int) -> Callable[[Inventory], bool]:
    """Whether an inventory has so many VFs of a PF."""
    return lambda seen: len(vfs_of(seen, pf)) == count


def has_master(vf: VF, master: str) -> Callable[[Inventory], bool]:
    """Whether a VF is enslaved to a link."""
    return lambda seen: interface(seen, vf).master == master


def interface(inventory: Inventory, function: Function) -> Interface:
    """The interface of a PCI function."""
    (found,) = [each for each in inventory.interfaces if each.pci_address == function.pci]
    return found


def named(inventory: Inventory, name: str) -> Interface:
    """The interface of that name."""
    (found,) = [each for each in inventory.interfaces if each.if_name == name]
    return found


def vfs_of(inventory: Inventory, pf: PF) -> dict[int, Interface]:
    """The VFs of a PF by index."""
    return {each.vf_index: each for each in inventory.interfaces if each.pf_pci_address == pf.pci}


def file(function: Function, name: str) -> str:
    return (function.folder / name).read_text().strip()


def common_facts(function: Function) -> dict[str, object]:
    """The facts of any function in sysfs and `ip`."""
    found: dict[str, object] = {
        "if_name": function.name,
        "pci_address": function.pci,
        "numa_node": int(file(function, "numa_node")),
        "pcie_root": function.folder.resolve().parts[3],
        "iommu_group": function.iommu_group,
        "vendor": file(function, "vendor").removeprefix("0x"),
        "product": file(function, "device").removeprefix("0x"),
        "driver": function.driver,
        "unreadable": (),
    }
    if function.name:
        link = links()[function.name]
        up = "UP" in link["flags"]
        speed = re.search(r"Speed: (\d+)Mb/s", run("ethtool", function.name)) if up else None
        found |= {
            "mac": link["address"],
            "mtu": link["mtu"],
            "oper_state": link["operstate"].lower(),
            "link_speed": int(speed.group(1)) if speed else 0,
            "ifindex": link["ifindex"],
        }
    return found


def vf_facts(pf: PF, vf: VF) -> dict[str, object]:
    return common_facts(vf) | {
        "type": "vf",
        "pf_name": pf.name,
        "pf_pci_address": pf.pci,
        "vf_index": vf.index,
        "device_name": f"{pf.name}v{vf.index}",
        "sriov_capable": False,
    }


def told(found: Interface, facts: dict[str, object]) -> dict[str, object]:
    """The same facts as discovery reports them."""
    return {field: getattr(found, field) for field in facts}


def test_discovered_facts_of_pfs_and_vfs_match_sysfs(pfs: tuple[PF, ...]) -> None:
    for pf in pfs:
        up(pf.name)

    inventory = scan()

    for pf in pfs:
        expected = common_facts(pf) | {
            "type": "pf",
            "sriov_capable": True,
            "num_vfs": 7,
            "total_vfs": 7,
            "permanent_mac": f"52:54:00:aa:00:{pf.numa_node:02x}",
            "link_speed": 1000,
            "oper_state": "up",
            "device_name": pf.name,
            "vf_index": -1,
        }
        assert told(interface(inventory, pf), expected) == expected
        for vf in pf.vfs():
            facts = vf_facts(pf, vf)
            assert told(interface(inventory, vf), facts) == facts
        assert sorted(vfs_of(inventory, pf)) == list(range(7))
    assert {interface(inventory, pf).pcie_root for pf in pfs} == {"pci0000:40", "pci0000:80"}
    assert {interface(inventory, pf).numa_node for pf in pfs} == {0, 1}


def test_changes_of_the_number_of_vfs_are_seen_live(
    pfs: tuple[PF, ...], set_num_vfs: SetNumVFs, watcher: Watcher
) -> None:
    pf, other = pfs
    untouched = vfs_of(watcher.inventory, other)
    for count in (0, 7, 3, 7):
        set_num_vfs(pf, count)

        inventory = follow(watcher, has_vfs(pf, count), f"{count} VFs")

        assert interface(inventory, pf).num_vfs == count
        assert sorted(vfs_of(inventory, pf)) == list(range(count))
        for vf in pf.vfs():
            facts = vf_facts(pf, vf)
            assert told(interface(inventory, vf), facts) == facts
        assert vfs_of(inventory, other) == untouched


def test_a_vf_without_driver_and_under_vfio_pci_stays_in_the_inventory(
    pfs: tuple[PF, ...], rebind: Rebind, watcher: Watcher
) -> None:
    pf, vf = pfs[1], pfs[1].vf(2)
    before = interface(watcher.inventory, vf)

    rebind(vf, "igbvf")
    unbind(vf)
    bare = interface(follow(watcher, lambda seen: interface(seen, vf).driver == "", "no driver"), vf)
    bind(vf, "vfio-pci")
    passed = interface(follow(watcher, lambda seen: interface(seen, vf).driver == "vfio-pci", "vfio-pci"), vf)
    bind(vf, "")
    back = interface(follow(watcher, lambda seen: interface(seen, vf).if_name != "", "the netdev is back"), vf)

    assert told(bare, vf_facts(pf, vf) | {"if_name": "", "driver": "", "mac": "", "ifindex": 0}) == {
        **told(before, vf_facts(pf, vf)),
        "if_name": "",
        "driver": "",
        "mac": "",
        "mtu": 0,
        "oper_state": "",
        "link_speed": 0,
        "ifindex": 0,
    }
    assert (passed.device_name, passed.driver, passed.if_name) == (before.device_name, "vfio-pci", "")
    assert passed.iommu_group == before.iommu_group
    facts = vf_facts(pf, vf)
    assert told(back, facts) == facts


def test_a_vf_in_a_namespace_is_the_same_device_without_a_netdev(
    pfs: tuple[PF, ...], new_netns: NewNetns, watcher: Watcher
) -> None:
    pf, vf = pfs[0], pfs[0].vf(4)
    name, netns = vf.name, new_netns()

    ip("link", "set", name, "netns", netns)
    away = interface(follow(watcher, lambda seen: interface(seen, vf).if_name == "", "the VF has left"), vf)
    ip("link", "set", name, "netns", "1", netns=netns)
    back = interface(follow(watcher, lambda seen: interface(seen, vf).if_name == name, "the VF is back"), vf)

    assert (away.type, away.device_name, away.driver) == ("vf", f"{pf.name}v4", "igbvf")
    assert (away.mac, away.ifindex, away.iommu_group) == ("", 0, vf.iommu_group)
    facts = vf_facts(pf, vf)
    assert told(back, facts) == facts


def test_a_vf_renamed_in_its_pod_comes_back_under_that_name_as_the_same_device(
    pfs: tuple[PF, ...], watcher: Watcher
) -> None:
    vf = pfs[0].vf(5)
    old = vf.name
    ip("netns", "add", "pod")
    try:
        ip("link", "set", old, "netns", "pod", "name", "net1")
        follow(watcher, lambda seen: interface(seen, vf).if_name == "", "the VF has left")
    finally:
        ip("netns", "delete", "pod")

    back = interface(follow(watcher, lambda seen: interface(seen, vf).if_name != "", "the VF is back"), vf)

    assert (back.if_name, back.device_name) == ("net1", f"{pfs[0].name}v5")
    ip("link", "set", "net1", "name", old)
    follow(watcher, lambda seen: interface(seen, vf).if_name == old, "the VF has its old name")


def test_a_pf_without_its_driver_takes_its_vfs_with_it(
    pfs: tuple[PF, ...], set_num_vfs: SetNumVFs, rebind: Rebind, watcher: Watcher
) -> None:
    pf, other = pfs
    before = vfs_of(watcher.inventory, other)

    rebind(pf, "igb")
    unbind(pf)
    follow(
        watcher,
        lambda seen: all(pf.pci not in (each.pci_address, each.pf_pci_address) for each in seen.interfaces),
        "the PF and its VFs are gone",
    )
    bind(pf, "")
    bare = follow(watcher, lambda seen: any(each.pci_address == pf.pci for each in seen.interfaces), "the PF is back")
    ip("link", "set", pf.name, "up")
    set_num_vfs(pf, 7)
    whole = follow(watcher, has_vfs(pf, 7), "its VFs are back")

    assert (interface(bare, pf).type, interface(bare, pf).num_vfs) == ("pf", 0)
    assert vfs_of(whole, other) == before


def test_enslaved_vfs_are_in_host_use_and_lower_the_slots(pfs: tuple[PF, ...], watcher: Watcher) -> None:
    pf = pfs[0]
    members = [pf.vf(1), pf.vf(3)]
    policies = [exclusive("vfs", f'{OURS}.type == "vf"', "sriov"), exclusive("whole", f'{OURS}.type == "pf"')]

    def slots() -> int:
        found = {each.name: each.counters for each in expose(watcher.inventory, policies).counter_sets}
        return found[f"{pf.name}-counters"]["exclusion-slots"]

    assert slots() == 8
    ip("link", "add", "hwbond", "type", "bond", "mode", "active-backup", "miimon", "100")
    try:
        for number, vf in enumerate(members, start=1):
            ip("link", "set", vf.name, "master", "hwbond")
            seen = follow(watcher, has_master(vf, "hwbond"), "a VF is enslaved")
            assert interface(seen, vf).in_host_use
            assert slots() == 8 - number
        bond = named(watcher.inventory, "hwbond")
        assert (bond.type, bond.lower_devices) == ("bond", tuple(sorted(vf.name for vf in members)))
        assert {interface(watcher.inventory, vf).mac for vf in members} == {bond.mac}
    finally:
        ip("link", "delete", "hwbond")
    follow(watcher, lambda now: not any(interface(now, vf).in_host_use for vf in members), "the VFs are free")
    assert slots() == 8


def test_a_vlan_on_a_vf_is_discovered_with_its_lower_device(pfs: tuple[PF, ...], watcher: Watcher) -> None:
    vf = pfs[1].vf(0)
    up(vf.name)
    ip("link", "add", "link", vf.name, "name", "hwvlan", "type", "vlan", "id", "1234")
    try:
        seen = follow(watcher, lambda now: any(each.if_name == "hwvlan" for each in now.interfaces), "the VLAN")
        vlan = named(seen, "hwvlan")
        assert (vlan.type, vlan.vlan_id, vlan.lower_devices, vlan.pci_address) == ("vlan", 1234, (vf.name,), "")
        assert interface(seen, vf).upper_devices == ("hwvlan",)
        assert interface(seen, vf).in_host_use
    finally:
        ip("link", "delete", "hwvlan")
        ip("link", "set", vf.name, "down")
    follow(watcher, lambda now: not interface(now, vf).in_host_use, "the VF is free")


def test_vfs_on_open_vswitch_bridges_are_seen_on_the_right_one(
    pfs: tuple[PF, ...], open_vswitch: None, watcher: Watcher
) -> None:
    vfs = {"ovs-a": pfs[0].vf(0), "ovs-b": pfs[1].vf(0)}
    for bridge, vf in vfs.items():
        run("ovs-vsctl", "add-br", bridge, "--", "add-port", bridge, vf.name)
    run("ovs-vsctl", "add-port", "ovs-b", "inner", "--", "set", "interface", "inner", "type=internal")

    seen = follow(
        watcher,
        lambda now: (
            {"ovs-a", "ovs-b", "inner"} <= {each.if_name for each in now.interfaces}
            and all(interface(now, vf).master for vf in vfs.values())
        ),
        "bridges and ports",
    )

    for bridge, vf in vfs.items():
        found = named(seen, bridge)
        assert (found.type, found.bridge_type, found.bridge_name) == ("bridge", "ovs", bridge)
        assert (interface(seen, vf).master, interface(seen, vf).master_bridge) == ("ovs-system", bridge)
        assert interface(seen, vf).in_host_use
    assert named(seen, "inner").type == "openvswitch"
    run("ovs-vsctl", "del-br", "ovs-a", "--", "del-br", "ovs-b")
    follow(watcher, lambda now: not any(interface(now, vf).in_host_use for vf in vfs.values()), "the VFs are free")


@pytest.mark.parametrize("on", ["pf", "vf"])
def test_software_rdma_is_discovered_on_its_parent_netdev(pfs: tuple[PF, ...], watcher: Watcher, on: str) -> None:
    function: Function = pfs[1] if on == "pf" else pfs[1].vf(6)
    run("rdma", "link", "add", "rxe7", "type", "rxe", "netdev", function.name)
    try:
        seen = follow(watcher, lambda now: interface(now, function).rdma, "the RDMA device")
        assert {each.pci_address: each.rdma_device for each in seen.interfaces if each.rdma} == {function.pci: "rxe7"}
    finally:
        run("rdma", "link", "delete", "rxe7")
    follow(watcher, lambda now: not interface(now, function).rdma, "no RDMA device")


def test_a_link_that_goes_down_and_up_is_seen(pfs: tuple[PF, ...], watcher: Watcher) -> None:
    pf = pfs[0]
    try:
        ip("link", "set", pf.name, "down")
        follow(watcher, lambda now: interface(now, pf).oper_state == "down", "the PF is down")
    finally:
        ip("link", "set", pf.name, "up")
    up = follow(
        watcher,
        lambda now: interface(now, pf).oper_state == "up" and interface(now, pf).link_speed == 1000,
        "the PF is up",
    )
    assert interface(up, pf).link_speed == int(Path(f"/sys/class/net/{pf.name}/speed").read_text())


def test_a_bond_and_the_links_on_it_follow_the_hardware_below_them(pfs: tuple[PF, ...], watcher: Watcher) -> None:
    """Two VFs of one PF, then one of each PF: the PCIe root and the NUMA node are those of all, or none."""
    near, far = (pf.vf(number) for pf, number in ((pfs[0], 5), (pfs[1], 5)))
    names = [near.name, pfs[0].vf(6).name, far.name]

    def of(inventory: Inventory, name: str) -> tuple[str, int, tuple[str, ...]]:
        found = next((each for each in inventory.interfaces if each.if_name == name), Interface())
        return found.pcie_root, found.numa_node, found.pcie_roots

    # VFs whose MAC address their PF has set take no other.
    modes = ("mode", "active-backup", "miimon", "100", "fail_over_mac", "active")
    ip("link", "add", "bond7", "type", "bond", *modes)
    try:
        for name in names[:2]:
            ip("link", "set", name, "down")
            ip("link", "set", name, "master", "bond7")
        # A VF that has just been joined refuses a VLAN until its PF has answered it.
        add = ("ip", "link", "add", "link", "bond7", "name", "bond7.9", "type", "vlan", "id", "9")
        until(lambda: not run(*add, check=False) and Path("/sys/class/net/bond7.9").exists(), "the VLAN")
        ip("link", "add", "link", "bond7.9", "name", "mac7", "type", "macvlan", "mode", "bridge")
        one = (pfs[0].pcie_root, pfs[0].numa_node, ())
        for name in ("bond7", "bond7.9", "mac7"):
            follow(watcher, lambda seen, name=name: of(seen, name) == one, f"{name} to have the facts of one PF")  # type: ignore[misc]
        ip("link", "set", names[2], "down")
        ip("link", "set", names[2], "master", "bond7")
        both = ("", -1, tuple(sorted(pf.pcie_root for pf in pfs)))
        for name in ("bond7", "bond7.9", "mac7"):
            follow(watcher, lambda seen, name=name: of(seen, name) == both, f"{name} to have both PCIe roots")  # type: ignore[misc]
    finally:
        ip("link", "delete", "bond7")
    follow(watcher, lambda seen: of(seen, "mac7") == ("", -1, ()), "the stack to be gone")
