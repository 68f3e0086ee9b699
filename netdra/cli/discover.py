"""`netdra discover`: the network interfaces of this machine (or of a recorded tree), with every fact about them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from netdra.cli import shared, terminal
from netdra.discovery.scan import VANISHED, scan, scan_recorded
from netdra.model import names
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Interface, Inventory, attributes

if TYPE_CHECKING:
    from netdra.discovery.watch import InterfaceChanges

_COLUMNS = ("INTERFACE", "TYPE", "STATE", "MAC", "MTU", "MBIT/S", "PCI", "NUMA", "DRIVER", "MASTER", "MORE")
_LISTS = (("ipv4", "ipv4"), ("ipv6", "ipv6"), ("altName", "alt_names"), ("hostUse", "host_use"))
_RELATIONS = (("master", "master"), ("lowerDevices", "lower_devices"), ("upperDevices", "upper_devices"))
_PLACE = (("totalVFs", "total_vfs"), ("pfPciAddress", "pf_pci_address"), ("devPort", "dev_port"), ("vlanId", "vlan_id"))


@click.command(name="discover")
@shared.output("table", "json", "yaml")
@shared.sysfs
@click.option("--watch", is_flag=True, help="Keep running and print each change; stop with Ctrl-C.")
def command(output: str, root: str | None, watch: bool) -> None:
    """Print every network interface with the attributes that its device has in a ResourceSlice.

    Attributes of the domain dra.networking are printed without the domain. JSON and YAML also contain deviceName,
    lowerDevices, upperDevices, totalVFs, pfPciAddress, devPort and vlanId. Attributes that could not be read are
    omitted, and stderr shows their number. With --watch, JSON has one object per line: {"change": "added" | "changed" |
    "removed", "interface": {...}}, first for existing interfaces.
    """
    if watch:
        if root is not None:
            raise InvalidInputError(
                "--watch and --sysfs cannot be combined",
                hint="omit one of them: a recorded tree does not change",
                code="ND4017",
            )
        _watch(output)
        return
    inventory = scan() if root is None else scan_recorded(root)
    if output == "table":
        _print_table(inventory)
    else:
        terminal.print_data([facts(interface) for interface in inventory.interfaces], output)
    report(inventory)


def facts(interface: Interface) -> dict[str, Any]:
    """An interface as it is printed: attributes by name (ours without domain), lists as lists, and further facts."""
    shown: dict[str, Any] = {"deviceName": interface.device_name}
    shown |= {name.removeprefix(f"{names.DRIVER}/"): value for name, value in attributes(interface).items()}
    for name, field in (*_LISTS, *_RELATIONS, *_PLACE):
        if field not in interface.unreadable:
            value = getattr(interface, field)
            shown[name] = list(value) if isinstance(value, tuple) else value
    return shown


def report(inventory: Inventory) -> None:
    """Print on stderr which facts could not be read, if any."""
    for what, count in inventory.unreadable.items():
        named = f": {', '.join(inventory.vanished)}" if what == VANISHED else ""
        terminal.tell(f"could not be read ({'once' if count == 1 else f'{count} times'}): {what}{named}")


def _print_table(inventory: Inventory) -> None:
    terminal.print_table(_COLUMNS, map(_row, inventory.interfaces), right={"MTU", "MBIT/S", "NUMA"})


def _row(interface: Interface) -> tuple[str, ...]:
    return (
        interface.if_name or f"({interface.device_name})",
        interface.type,
        interface.oper_state,
        interface.mac,
        str(interface.mtu or ""),
        str(interface.link_speed or ""),
        interface.pci_address,
        str(interface.numa_node) if interface.numa_node >= 0 else "",
        interface.driver,
        interface.master,
        " ".join(_more(interface)),
    )


def _more(interface: Interface) -> Iterator[str]:
    """Facts that only some interfaces have, in a few words."""
    if interface.host_uplink:
        yield "uplink"
    if interface.sriov_capable:
        yield f"{interface.num_vfs}/{interface.total_vfs} VFs"
    if interface.bridge_type:
        yield f"{interface.bridge_type}{' VLAN-filtering' if interface.vlan_filtering else ''} bridge"
    if interface.vlan_id:
        yield f"VLAN {interface.vlan_id}"
    if interface.rdma_device:
        yield f"RDMA {interface.rdma_device}"
    if interface.eswitch_mode == "switchdev":
        yield "switchdev"
    yield from _relations(interface)
    yield from (*interface.ipv4, *interface.ipv6)


def _relations(interface: Interface) -> Iterator[str]:
    if interface.type == "vf":
        yield f"VF {interface.vf_index} of {interface.pf_name or interface.pf_pci_address}"
    if interface.type == "representor" and interface.vf_index >= 0:
        yield f"represents VF {interface.vf_index} of {interface.pf_name or interface.pf_pci_address}"
    if interface.uses:
        yield f"in use: {', '.join(interface.uses)}"
    if interface.lower_devices:
        yield f"on {','.join(interface.lower_devices)}"


def _watch(output: str) -> None:
    """Print all interfaces and then each change, until Ctrl-C."""
    from netdra.discovery.watch import Watcher

    try:
        with Watcher() as watcher:
            inventory = watcher.inventory
            if output == "table":
                _print_table(inventory)
            else:
                _print_changes("added", inventory.interfaces, output)
            report(inventory)
            while True:
                sys.stdout.flush()
                _print_change(watcher.wait(), output)
    except KeyboardInterrupt:
        return


def _print_change(change: InterfaceChanges, output: str) -> None:
    if output == "table":
        _print_lines(change)
        return
    _print_changes("removed", change.removed, output)
    _print_changes("added", change.added, output)
    _print_changes("changed", (after for _, after in change.changed), output)


def _print_changes(kind: str, interfaces: Iterable[Interface], output: str) -> None:
    for interface in interfaces:
        value = {"change": kind, "interface": facts(interface)}
        if output == "json":
            click.echo(msgspec.json.encode(value))
        else:
            click.echo("---")
            terminal.print_data(value, output)


def _print_lines(change: InterfaceChanges) -> None:
    """One line for each change: + came, - went, ~ has other facts."""
    for interface in change.removed:
        _print_line(f"- {interface.device_name} ({interface.type})")
    for interface in change.added:
        _print_line(
            f"+ {' '.join([interface.device_name, f'({interface.type})', interface.oper_state, *_more(interface)])}"
        )
    for before, after in change.changed:
        old, new = facts(before), facts(after)
        differing = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        changes = [f"{name} {_shown(old.get(name))} -> {_shown(new.get(name))}" for name in differing]
        _print_line(f"~ {before.device_name}: {', '.join(changes) or 'a fact that is not published'}")


def _print_line(text: str) -> None:
    click.echo(terminal.printable(text))


def _shown(value: Any) -> str:
    text = ",".join(value) if isinstance(value, list) else "" if value is None else str(value)
    return text or "none"
