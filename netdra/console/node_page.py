"""A node as a board of its hardware: NUMA node, PCIe root, PF, VFs, each with its state and user. Pure.

GPUs and devices of other drivers are beside the NICs of their PCIe root. Below it, a table has the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from netdra.cluster.fleet import GONE
from netdra.cluster.objects import ClusterState
from netdra.console.fleet import hidden_state
from netdra.console.frame import STATES, TONES, bar, facts, link, note, section, state, table, together
from netdra.console.markup import Child, Markup, PageAddress, element
from netdra.model import names
from netdra.model.claim import ResourceClaim
from netdra.model.device import POOLED
from netdra.model.node_network import InterfaceGroup, NodeNetworkStatus
from netdra.model.resource import Device, ResourceSlice, newest
from netdra.slices.allocator import claim_key
from netdra.story.nodes import driver_problems
from netdra.story.usage import UseCount, pf_uses

MAX_DEVICES = 2048
"""Devices and interfaces of one page."""
MAX_USERS = 3
_ROOTS = (names.STANDARD_PCIE_ROOT, names.SEED_PCIE_ROOT)
_NUMA = (names.STANDARD_NUMA_NODE, names.qualified("numaNode"))
STACKS = frozenset({"bond", "bridge", "vlan", "vxlan", "macvlan", "ipvlan", "team", "vrf"})
_UNKNOWN = -1


class PlacedDevice(NamedTuple):
    """A device or an interface of a node.

    Attributes:
        root: its PCIe root, "" if unknown.
        parent: the NIC that it is on: a VF's PF; else its own name.
        kind: its type, for a device of another driver `GPU` or the driver's name.
        state: one of `netdra.console.frame.STATES`.
        claims: the claims that have it.
        remark: further facts, such as the reason why it is hidden.
        numa: its NUMA node, -1 if unknown.
        link: the state of its link, "" if unknown.
        speed: in Mbit/s, 0 if unknown.
        pci, mac: its addresses, "" if unknown.
        is_tainted: whether claims without a toleration are kept off it.
    """

    name: str
    root: str
    parent: str
    kind: str
    state: str
    claims: tuple[ResourceClaim, ...] = ()
    remark: str = ""
    is_ours: bool = True
    numa: int = _UNKNOWN
    link: str = ""
    speed: int = 0
    pci: str = ""
    mac: str = ""
    is_tainted: bool = False

    @property
    def tone(self) -> str:
        """The CSS class of its colour: "bad" if tainted, otherwise by its state."""
        return "bad" if self.is_tainted else TONES.get(self.state, "calm")

    @property
    def pods(self) -> list[tuple[str, str]]:
        """The pods that have it, as namespace and name."""
        return [
            (claim.metadata.namespace, entry.name)
            for claim in self.claims
            for entry in claim.status.reserved_for
            if entry.resource == "pods"
        ]

    @property
    def words(self) -> str:
        """The device in words."""
        users = ", ".join(f"{namespace}/{name}" for namespace, name in self.pods[:MAX_USERS])
        claims = ", ".join(map(claim_key, self.claims[:MAX_USERS]))
        used = f" by pod {users}" if users else f" by claim {claims}" if claims else ""
        more = f", {self.remark}" if self.remark else ""
        return f"{self.name} ({self.kind}): {self.state}{used}{more}"


def placed_devices(cluster: ClusterState, node: str) -> list[PlacedDevice]:
    """The devices and interfaces of a node, by NUMA node, PCIe root and NIC.

    Args:
        cluster: the objects, with all slices of the node and the claims that have devices of it.
    """
    users = _users(cluster.claims)
    slices = [one for one in cluster.tainted_slices if one.spec.node_name == node]
    found = _with_places([*_published(slices, users), *_hidden(node_status(cluster, node).interfaces)])
    kinds = {"pf": 0, "nic": 0, "vf": 1}
    found.sort(
        key=lambda entry: (
            not entry.root,
            entry.numa,
            entry.root,
            entry.parent,
            kinds.get(entry.kind, 2),
            (len(entry.name), entry.name),
        )
    )
    return found


def _with_places(found: Sequence[PlacedDevice]) -> list[PlacedDevice]:
    """The devices; a PF without a PCIe root is at that of its VFs, and NUMA nodes are those of PCIe roots."""
    roots = {entry.parent: entry.root for entry in found if entry.root and entry.is_ours}
    rooted = [entry._replace(root=entry.root or roots.get(entry.name, "")) for entry in found]
    numas = {entry.root: entry.numa for entry in rooted if entry.root and entry.numa != _UNKNOWN}
    return [
        entry._replace(numa=numas.get(entry.root, _UNKNOWN)) if entry.numa == _UNKNOWN else entry for entry in rooted
    ]


def node_status(cluster: ClusterState, node: str) -> NodeNetworkStatus:
    """The report of a node."""
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
    values = {name: attribute.value for name, attribute in device.attributes.items()}
    fact = partial(_fact, values, driver)
    is_ours = driver == names.DRIVER
    is_gone = any(taint.key == names.GONE for taint in device.taints)
    taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in device.taints)
    model = "" if is_ours else str(fact("model") or fact("productName") or driver)
    return PlacedDevice(
        name=device.name,
        root=_first(values, _ROOTS),
        parent=str(fact("pfName") or fact("ifName") or device.name) if is_ours else driver,
        kind=str(fact("type")) if is_ours else "GPU" if "gpu" in driver.lower() else driver,
        state=GONE if is_gone else "allocated" if claims else "offered",
        claims=claims,
        remark=f"taints: {taints}" if taints else model,
        is_ours=is_ours,
        is_tainted=bool(device.blocking_taints),
        **_hardware(values, driver),
    )


def _fact(values: Mapping[str, Any], driver: str, name: str) -> Any:
    return values.get(f"{driver}/{name}", values.get(name, ""))


def _hardware(values: Mapping[str, Any], driver: str) -> dict[str, Any]:
    """Where a device is plugged in, its link and its addresses."""
    fact = partial(_fact, values, driver)
    numa, speed = _first(values, (*_NUMA, f"{driver}/numaNode", f"{driver}/numa", "numaNode")), fact("linkSpeed")
    return {
        "numa": int(numa) if numa.removeprefix("-").isdecimal() else _UNKNOWN,
        "link": str(fact("operState")),
        "speed": speed if isinstance(speed, int) and speed > 0 else 0,
        "pci": str(fact("pciAddress") or values.get("resource.kubernetes.io/pciBusID", "")),
        "mac": str(fact("mac")),
    }


def _first(values: Mapping[str, Any], keys: Iterable[str]) -> str:
    return next((str(values[key]) for key in keys if values.get(key) not in (None, "")), "")


def _hidden(groups: Iterable[InterfaceGroup]) -> Iterator[PlacedDevice]:
    """The interfaces that are not published."""
    for group in groups:
        if group.devices or group.pools_vfs or group.reason.startswith(POOLED):
            continue
        hidden = GONE if group.state == GONE else hidden_state(group.attributes)
        for name in group.names:
            values, _ = group.facts(name)
            pf, master = values.get(names.qualified("pfName")), values.get(names.qualified("master"))
            remark = f"port of {master}; {group.reason}" if master else group.reason
            where = _hardware(values, names.DRIVER)
            where["link"] = where["link"] or group.state
            yield PlacedDevice(
                name, _first(values, _ROOTS), str(pf or name), group.type, hidden, remark=remark, **where
            )
        if not group.names:
            counted = f"{group.count} interfaces of type {group.type}"
            yield PlacedDevice(counted, "", counted, group.type, hidden, remark=group.reason, is_ours=False)


def node_content(cluster: ClusterState, node: str) -> Child:
    """The content of a node's page."""
    found = placed_devices(cluster, node)
    shown, left = found[:MAX_DEVICES], max(len(found) - MAX_DEVICES, 0)
    status = node_status(cluster, node)
    problems = [
        _problem(statement.text, statement.next_step, statement.reason) for statement in driver_problems(cluster, node)
    ]
    problems += [
        _problem(problem.message, "", "PolicyFails" if problem.policy else "NodeProblem") for problem in status.problems
    ]
    ours = [entry for entry in found if entry.is_ours and entry.state in ("offered", "allocated", GONE)]
    used = sum(entry.state == "allocated" for entry in ours)
    uses = {use.name.partition("/")[2]: use for use in pf_uses(cluster, [node])}
    return (
        element("ol", problems, class_="troubles") if problems else None,
        facts(
            (
                ("Devices", bar([("busy", used)], len(ours), f"{used} of {len(ours)} in use")),
                ("Hidden interfaces", sum(entry.state in ("hidden", "host") for entry in found) or ""),
                ("CNI plugins", ", ".join(status.plugins)),
                ("Traffic", link("of its pods", "traffic", node=node)),
            )
        ),
        None if found else note("The node publishes no device and reports no interface."),
        section("Hardware", _legend(shown), _board(node, shown, uses), name="hardware") if found else None,
        note(f"{left} more devices are not shown.") if left else None,
        _devices(node, shown),
        _policies(status),
    )


def _problem(text: str, next_step: str, code: str) -> Markup:
    inside = (
        element("p", state("error"), element("code", code) if code else None, class_="head"),
        element("p", text, class_="cause"),
        element("p", element("b", "Next: "), next_step, class_="next") if next_step else None,
    )
    return element("li", inside, class_="trouble bad")


def _legend(found: Iterable[PlacedDevice]) -> Markup:
    """The states that the board has."""
    present = {entry.state for entry in found}
    words = (
        element("span", element("span", class_=f"box {TONES[name]}"), f" {name}: {meaning}")
        for name, meaning in STATES.items()
        if name in present
    )
    return element("p", words, class_="legend quiet")


def _board(node: str, found: Sequence[PlacedDevice], uses: Mapping[str, UseCount]) -> Markup:
    placed = [entry for entry in found if entry.root]
    numas = sorted({entry.numa for entry in placed})
    boards = [_numa(node, numa, [entry for entry in placed if entry.numa == numa], uses) for numa in numas]
    stacks = [entry for entry in found if not entry.root and entry.kind in STACKS]
    others = [entry for entry in found if not entry.root and entry.kind not in STACKS]
    boards += [
        _box(title, _blocks(node, part, uses), "numa loose")
        for title, part in (("Stacks", stacks), ("Without a PCIe root", others))
        if part
    ]
    return element("div", boards, class_="board")


def _numa(node: str, numa: int, found: Sequence[PlacedDevice], uses: Mapping[str, UseCount]) -> Markup:
    roots = dict.fromkeys(entry.root for entry in found)
    inside = (
        _box(f"PCIe root {root}", _blocks(node, [entry for entry in found if entry.root == root], uses), "root")
        for root in roots
    )
    return _box(f"NUMA node {numa}" if numa != _UNKNOWN else "NUMA node unknown", inside, "numa")


def _box(title: str, inside: Child, kind: str) -> Markup:
    return element("section", element("h3", title), element("div", inside, class_="inside"), class_=kind)


def _blocks(node: str, found: Sequence[PlacedDevice], uses: Mapping[str, UseCount]) -> Iterator[Markup]:
    """A block for each NIC with its VFs, and for each device that is alone."""
    parents: dict[str, list[PlacedDevice]] = {}
    for entry in found:
        parents.setdefault(entry.parent if entry.is_ours else f"{entry.parent} {entry.name}", []).append(entry)
    for parent, own in parents.items():
        vfs = [entry for entry in own if entry.kind == "vf"]
        heads = [entry for entry in own if entry.kind != "vf"]
        yield _block(node, parent, heads, vfs, uses.get(parent))


def _block(
    node: str, parent: str, heads: Sequence[PlacedDevice], vfs: Sequence[PlacedDevice], use: UseCount | None
) -> Markup:
    """A NIC: its head, its bandwidth, and a cell for each VF."""
    first = heads[0] if heads else None
    used = sum(entry.state == "allocated" for entry in vfs)
    bandwidth = None
    if use is not None and use.bandwidth and use.allocated_bandwidth:
        words = f"{speed(use.allocated_bandwidth)} of {speed(use.bandwidth)} allocated"
        bandwidth = bar([("busy", use.allocated_bandwidth)], use.bandwidth, words)
    inside = (
        [_head(node, entry) for entry in heads] or element("p", element("b", parent), " PF", class_="head"),
        bandwidth,
        element("p", f"{used} of {len(vfs)} VFs in use", class_="quiet") if vfs else None,
        element("ul", (_vf(node, entry) for entry in vfs), class_="lanes" if len(vfs) <= 16 else "lanes many")
        if vfs
        else None,
    )
    tone = first.tone if first is not None else "calm"
    return element("div", inside, class_=f"nic {tone}" if first is None or first.is_ours else f"nic other {tone}")


def _head(node: str, entry: PlacedDevice) -> Markup:
    """A device's name, link, speed, address and users."""
    name = link(entry.name, "devices", node, entry.name) if entry.is_ours else entry.name
    traits = [entry.kind, _link(entry), speed(entry.speed), entry.pci]
    quiet = " · ".join(filter(None, traits))
    return element(
        "div",
        element("p", element("b", name), state(entry.state), class_="head"),
        element("p", quiet, class_="quiet") if quiet else None,
        [_user(claim) for claim in entry.claims[:MAX_USERS]],
        element("p", f"and {len(entry.claims) - MAX_USERS} more claims", class_="quiet")
        if len(entry.claims) > MAX_USERS
        else None,
        element("p", entry.remark, class_="quiet") if entry.remark else None,
    )


def _link(entry: PlacedDevice) -> str:
    return f"link {entry.link}" if entry.link in ("up", "down", "lowerlayerdown", "dormant") else entry.link


def speed(megabits: int) -> str:
    """A speed in words; "" for none."""
    if megabits >= 1000:
        return f"{megabits / 1000:g} Gbit/s"
    return f"{megabits} Mbit/s" if megabits else ""


def _vf(node: str, entry: PlacedDevice) -> Markup:
    """A cell for a VF: its number and its pod."""
    number = re.search(r"(\d+)\Z", entry.name)
    pods = entry.pods
    inside = (
        element("b", number[1] if number else entry.name),
        " ",
        element("span", pods[0][1] if pods else entry.state),
    )
    where = PageAddress("devices", node, entry.name)
    return element("li", element("a", inside, href=where, title=entry.words), class_=entry.tone)


def _claim_link(claim: ResourceClaim) -> Markup:
    return link(claim_key(claim), "claims", claim.metadata.namespace, claim.metadata.name)


def _user(claim: ResourceClaim) -> Markup:
    namespace = claim.metadata.namespace
    pods = [entry.name for entry in claim.status.reserved_for if entry.resource == "pods"]
    links = [link(f"{namespace}/{name}", "pods", namespace, name) for name in pods[:MAX_USERS]]
    return element("p", "pod " if links else "claim ", together(links) if links else _claim_link(claim))


def _devices(node: str, found: Sequence[PlacedDevice]) -> Markup | None:
    """The board as a table."""
    rows = [
        (
            link(entry.name, "devices", node, entry.name) if entry.is_ours else entry.name,
            entry.kind,
            state(entry.state),
            _link(entry).removeprefix("link "),
            speed(entry.speed),
            entry.pci,
            entry.mac,
            together(map(_claim_link, entry.claims[:MAX_USERS])),
            together(link(name, "pods", namespace, name) for namespace, name in entry.pods[:MAX_USERS]),
            entry.remark,
        )
        for entry in found
    ]
    columns = ("Device", "Type", "State", "Link", "Speed", "PCI address", "MAC", "Claim", "Pod", "Remark")
    return (
        section("All devices and interfaces", table(f"{len(rows)} devices and interfaces", columns, rows))
        if rows
        else None
    )


def _policies(status: NodeNetworkStatus) -> Markup | None:
    """The policies of the node's report."""
    if not status.policies:
        return None
    columns = ("Policy", "Matches", "Devices", "Failing")
    every = [
        (link(report.name, "policies", report.name), report.matches, report.devices, report.failing)
        for report in status.policies
    ]
    return section("Policies on this node", table("Policies", columns, every, numeric=1))
