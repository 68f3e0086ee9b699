"""The devices and interfaces of a cluster as lists show them, with the claims and pods that have them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from netdra.cluster.objects import TaintRule
from netdra.model.claim import ResourceClaim
from netdra.model.names import DRIVER
from netdra.model.node_network import NodeNetwork
from netdra.model.resource import Device, ResourceSlice
from netdra.slices.allocator import claim_key


class DeviceLine(NamedTuple):
    """A device in a list; the names are those of `netdra.story.usage.DeviceUse`.

    Attributes:
        keys: further texts that a search finds it by: its MAC, its PCI address.
    """

    node: str
    name: str
    type: str = ""
    pf: str = ""
    state: str = "free"
    claims: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    reason: str = ""
    keys: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The texts that a filter searches."""
        parts = (self.node, self.name, self.type, self.pf, *self.claims, *self.pods, *self.addresses, *self.keys)
        return " ".join(parts).lower()


class DeviceLines(NamedTuple):
    """Devices of the cluster: those that match a filter, up to a limit, and the number of all."""

    lines: Sequence[DeviceLine] = ()
    total: int = 0
    left: int = 0
    unread: Sequence[str] = ()


class DeviceHolder(NamedTuple):
    """A claim that has a device, its pods, and the addresses of the device in them."""

    claim: str
    pods: tuple[str, ...]
    addresses: tuple[str, ...]


DeviceHolders = Mapping[tuple[str, str], Sequence[DeviceHolder]]


def note_holder(held: dict[tuple[str, str], list[DeviceHolder]], claim: ResourceClaim) -> None:
    """Note the devices of netdra that a claim has, by pool and name."""
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        if result.is_attachable and not result.admin_access:
            held.setdefault((result.pool, result.device), []).append(_holder(claim, result.pool, result.device))


def slice_lines(one: ResourceSlice, holders: DeviceHolders, rules: Sequence[TaintRule]) -> Iterator[DeviceLine]:
    """The devices of a slice."""
    return (_line(one, device, holders, rules) for device in one.spec.devices)


def _holder(claim: ResourceClaim, pool: str, device: str) -> DeviceHolder:
    statuses = (status for status in claim.status.devices if (status.pool, status.device) == (pool, device))
    networks = [status.network_data for status in statuses if status.network_data is not None]
    pods = tuple(entry.name for entry in claim.status.reserved_for if entry.resource == "pods")
    return DeviceHolder(claim_key(claim), pods, tuple(address for network in networks for address in network.ips))


def _line(
    one: ResourceSlice,
    device: Device,
    holders: DeviceHolders,
    rules: Sequence[TaintRule],
) -> DeviceLine:
    def fact(name: str) -> str:
        found = device.attributes.get(f"{DRIVER}/{name}") or device.attributes.get(name)
        return str(found.value) if found is not None else ""

    held = holders.get((one.spec.pool.name, device.name), ())
    place = (DRIVER, one.spec.pool.name, device.name)
    taints = (*device.blocking_taints, *(rule.spec.taint for rule in rules if rule.applies_to(*place)))
    return DeviceLine(
        node=one.spec.node_name or "",
        name=device.name,
        type=fact("type"),
        pf=fact("pfName") or fact("ifName"),
        state="allocated" if held else "tainted" if taints else "free",
        claims=tuple(holder.claim for holder in held),
        pods=tuple(pod for holder in held for pod in holder.pods),
        addresses=tuple(address for holder in held for address in holder.addresses),
        reason=f"{taints[0].key}:{taints[0].effect}" if taints else "",
        keys=tuple(filter(None, (fact("mac"), fact("pciAddress"), fact("ifName"), fact("altName")))),
    )


def hidden_lines(report: NodeNetwork) -> Iterator[DeviceLine]:
    """The interfaces of a node that are not published."""
    for group in report.status.interfaces if report.status is not None else ():
        for name in () if group.devices or group.pools_vfs else group.names:
            facts, _ = group.facts(name)
            keys = (facts.get(f"{DRIVER}/mac"), facts.get(f"{DRIVER}/pciAddress"))
            found = tuple(str(key) for key in keys if key)
            yield DeviceLine(report.name, name, group.type, state="hidden", reason=group.reason, keys=found)
