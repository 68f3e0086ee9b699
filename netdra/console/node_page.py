"""A node: its network devices, stacks, GPUs and other devices by PCIe root, each with its state and user. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from netdra.console.fleet import GONE, hidden_state
from netdra.console.frame import legend, note, notes, page, state, table
from netdra.console.markup import Markup, PageAddress, element
from netdra.model import names
from netdra.model.claim import ResourceClaim
from netdra.model.device import POOLED
from netdra.model.node_network import InterfaceGroup, NodeNetworkStatus
from netdra.model.resource import Device, ResourceSlice, newest
from netdra.slices.allocator import claim_key
from netdra.story.nodes import driver_problems
from netdra.story.objects import ClusterState

MAX_DEVICES = 2048
"""Devices and interfaces of one page."""
MAX_USERS = 3
_ROOTS = (names.STANDARD_PCIE_ROOT, names.SEED_PCIE_ROOT)
_STACKS = frozenset({"bond", "bridge", "vlan", "vxlan", "macvlan", "ipvlan", "team", "vrf"})


class PlacedDevice(NamedTuple):
    """A device or an interface of a node.

    Attributes:
        root: its PCIe root, "" if unknown.
        parent: the NIC that it is on: a VF's PF; else its own name.
        kind: its type, for a device of another driver `GPU` or the driver's name.
        state: one of `netdra.console.frame.STATES`.
        claims: the claims that have it.
        remark: further facts, such as the reason why it is hidden.
    """

    name: str
    root: str
    parent: str
    kind: str
    state: str
    claims: tuple[ResourceClaim, ...] = ()
    remark: str = ""
    is_ours: bool = True


def placed_devices(cluster: ClusterState, node: str) -> list[PlacedDevice]:
    """The devices and interfaces of a node, by PCIe root and NIC.

    Args:
        cluster: the objects, with all slices of the node and the claims that have devices of it.
        node: the node.
    """
    users = _users(cluster.claims)
    slices = [one for one in cluster.tainted_slices if one.spec.node_name == node]
    found = [*_published(slices, users), *_hidden(_status(cluster, node).interfaces)]
    kinds = {"pf": 0, "nic": 0, "vf": 1}
    found.sort(key=lambda entry: (not entry.root, entry.root, entry.parent, kinds.get(entry.kind, 2), _order(entry)))
    return found


def _order(entry: PlacedDevice) -> tuple[int, str]:
    return len(entry.name), entry.name


def _status(cluster: ClusterState, node: str) -> NodeNetworkStatus:
    report = cluster.report(node)
    return report.status if report is not None and report.status is not None else NodeNetworkStatus()


def _users(claims: Iterable[ResourceClaim]) -> Mapping[tuple[str, str, str], tuple[ResourceClaim, ...]]:
    users: dict[tuple[str, str, str], dict[str, ResourceClaim]] = {}
    for claim in claims:
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            if not result.admin_access:
                users.setdefault((result.driver, result.pool, result.device), {})[claim_key(claim)] = claim
    return {device: tuple(found.values()) for device, found in users.items()}


def _published(
    slices: Iterable[ResourceSlice], users: Mapping[tuple[str, str, str], tuple[ResourceClaim, ...]]
) -> Iterator[PlacedDevice]:
    by_driver: dict[str, list[ResourceSlice]] = {}
    for one in slices:
        by_driver.setdefault(one.spec.driver, []).append(one)
    for driver, published in by_driver.items():
        for pool, current in newest(published).items():
            for device in (device for one in current for device in one.spec.devices):
                yield _device(driver, device, users.get((driver, pool, device.name), ()))


def _device(driver: str, device: Device, claims: tuple[ResourceClaim, ...]) -> PlacedDevice:
    facts = {name: attribute.value for name, attribute in device.attributes.items()}

    def fact(name: str) -> Any:
        return facts.get(f"{driver}/{name}", facts.get(name, ""))

    is_ours = driver == names.DRIVER
    is_gone = any(taint.key == names.GONE for taint in device.taints)
    taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in device.taints)
    return PlacedDevice(
        name=device.name,
        root=_root(facts),
        parent=str(fact("pfName") or fact("ifName") or device.name) if is_ours else driver,
        kind=str(fact("type")) if is_ours else "GPU" if "gpu" in driver.lower() else driver,
        state=GONE if is_gone else "allocated" if claims else "offered",
        claims=claims,
        remark=f"taints: {taints}" if taints else "",
        is_ours=is_ours,
    )


def _root(facts: Mapping[str, Any]) -> str:
    return str(next((facts[name] for name in _ROOTS if facts.get(name)), ""))


def _hidden(groups: Iterable[InterfaceGroup]) -> Iterator[PlacedDevice]:
    """The interfaces that are not published."""
    for group in groups:
        if group.devices or group.pools_vfs or group.reason.startswith(POOLED):
            continue
        hidden = GONE if group.state == GONE else hidden_state(group.attributes)
        for name in group.names:
            facts, _ = group.facts(name)
            pf, master = facts.get(names.qualified("pfName")), facts.get(names.qualified("master"))
            remark = f"port of {master}; {group.reason}" if master else group.reason
            yield PlacedDevice(name, _root(facts), str(pf or name), group.type, hidden, remark=remark)
        if not group.names:
            counted = f"{group.count} interfaces of type {group.type}"
            yield PlacedDevice(counted, "", counted, group.type, hidden, remark=group.reason, is_ours=False)


def node_page(cluster: ClusterState, node: str) -> bytes:
    """The page of a node."""
    found = placed_devices(cluster, node)
    shown = found[:MAX_DEVICES]
    roots = dict.fromkeys(entry.root for entry in shown)
    problems = [note(statement.text, "problem") for statement in driver_problems(cluster, node)]
    left = len(found) - len(shown)
    content = (
        problems,
        None if found else note("The node publishes no device and reports no interface."),
        legend(),
        (_of_root(node, root, [entry for entry in shown if entry.root == root]) for root in roots),
        note(f"{left} more devices are not shown.") if left else None,
        _reported(_status(cluster, node)),
        notes(cluster.unread.values()),
    )
    return page(f"Node {node}", content, is_live=True)


def _of_root(node: str, root: str, devices: list[PlacedDevice]) -> Markup:
    if root:
        return element("section", element("h2", f"PCIe root {root}"), _parents(node, devices), class_="root")
    stacks = [entry for entry in devices if entry.kind in _STACKS]
    others = [entry for entry in devices if entry.kind not in _STACKS]
    parts = (("Stacks", stacks), ("Without a PCIe root", others))
    return element(
        "div",
        (
            element("section", element("h2", title), _parents(node, part), class_="root")
            for title, part in parts
            if part
        ),
    )


def _parents(node: str, devices: list[PlacedDevice]) -> Iterator[Markup]:
    """The devices of each NIC under its name, then those that are alone on theirs."""
    parents: dict[str, list[PlacedDevice]] = {}
    for entry in devices:
        parents.setdefault(entry.parent, []).append(entry)
    alone = [entry for found in parents.values() if len(found) == 1 for entry in found]
    for parent, found in parents.items():
        if len(found) > 1:
            yield element("h3", parent)
            yield _chips(node, found)
    if alone:
        yield _chips(node, alone)


def _chips(node: str, devices: Iterable[PlacedDevice]) -> Markup:
    return element("ul", (_chip(node, entry) for entry in devices), class_="chips")


def _chip(node: str, entry: PlacedDevice) -> Markup:
    why = PageAddress("why", "device", node, entry.name)
    name = element("a", entry.name, href=why) if entry.is_ours else element("span", entry.name)
    users = (_user(claim) for claim in entry.claims[:MAX_USERS])
    more = len(entry.claims) - MAX_USERS
    return element(
        "li",
        name,
        element("small", entry.kind),
        state(entry.state),
        users,
        element("small", f"and {more} more claims") if more > 0 else None,
        element("small", entry.remark) if entry.remark else None,
        class_=f"chip {entry.state}",
    )


def _user(claim: ResourceClaim) -> Markup:
    namespace = claim.metadata.namespace
    pods = [entry.name for entry in claim.status.reserved_for if entry.resource == "pods"]
    links = (element("a", f"Pod {name}", href=PageAddress("pod", namespace, name)) for name in pods[:MAX_USERS])
    link = element("a", claim_key(claim), href=PageAddress("why", "claim", namespace, claim.metadata.name))
    return element("small", "claim ", link, ([", ", each] for each in links))


def _reported(status: NodeNetworkStatus) -> Iterator[Markup]:
    """Problems, policies and plugins of the node's report."""
    if status.problems:
        rows = [(problem.message, problem.policy, problem.interfaces or "") for problem in status.problems]
        yield element("section", table("Problems", ("Problem", "Policy", "Interfaces"), rows))
    if status.policies:
        columns = ("Policy", "Matches", "Devices", "Failing")
        every = [(report.name, report.matches, report.devices, report.failing) for report in status.policies]
        yield element("section", table("Policies", columns, every))
    if status.plugins:
        yield element("section", element("h2", "CNI plugins"), element("p", ", ".join(status.plugins)))
