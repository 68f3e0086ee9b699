"""The lists of each kind of objects: nodes, devices, pods, claims, topologies, policies, networks, plugins. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from netdra.cluster.devices import DeviceLine, DeviceLines
from netdra.cluster.objects import ClusterState, PlacedPod
from netdra.console.fleet import NodeCounts
from netdra.console.frame import bar, link, state, together
from netdra.console.listing import Cell, ListColumn, ListRow, ObjectList
from netdra.console.markup import Child, element
from netdra.console.times import ago
from netdra.console.troubles import ClusterTrouble
from netdra.model.claim import ResourceClaim, selected_node
from netdra.model.cni_plugin import CNIPluginStatus
from netdra.model.meta import Condition
from netdra.model.names import DRIVER
from netdra.model.pod_network import AVAILABLE, NEARLY_FULL, READY, PodNetwork, PodNetworkStatus, is_problem
from netdra.model.rollout import NetworkTopologyUsageStatus
from netdra.model.suggestions import listed
from netdra.model.topology import NetworkTopology
from netdra.story.policies import rollout_of

Codes = Mapping[tuple[str, str, str], Sequence[ClusterTrouble]]
"""The troubles of each object, by the first part of its page's path, its place and its name."""
_NAMED = 3


def codes_of(troubles: Iterable[ClusterTrouble]) -> Codes:
    """The troubles of each object."""
    found: dict[tuple[str, str, str], list[ClusterTrouble]] = {}
    for trouble in troubles:
        for subject in trouble.subjects:
            found.setdefault((subject.page, subject.place, subject.name), []).append(trouble)
    return found


def _text(value: str) -> Cell:
    return Cell(value, value)


def _number(value: int) -> Cell:
    return Cell(value, value)


def _state(name: str) -> Cell:
    return Cell(state(name), name)


def _name(page: str, place: str, name: str) -> Cell:
    words = f"{place}/{name}" if place else name
    return Cell(link(words, *filter(None, (page, place, name))), words)


def _since(time: str | None, now: str) -> Cell:
    return Cell(ago(time or "", now), time or "")


def _cause(codes: Codes, page: str, place: str, name: str) -> tuple[Cell, tuple[str, ...]]:
    """The first cause of an object's trouble, and the codes of all."""
    found = codes.get((page, place, name), ())
    if not found:
        return _text(""), ()
    first = found[0]
    code = element("code", first.code, class_="bad" if first.is_error else "warn")
    words = element("span", _short(first.text), title=first.text)
    return Cell((code, " ", words), first.code), tuple(trouble.code for trouble in found)


def _short(text: str, most: int = 90) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def node_list(nodes: Sequence[NodeCounts], codes: Codes) -> ObjectList:
    """The page "Nodes": a row for each node, with the use of its devices and the cause of a problem."""
    columns = (
        ListColumn("name", "Node"),
        ListColumn("state", "State"),
        ListColumn("use", "Devices in use", is_number=True),
        ListColumn("free", "Free", is_number=True),
        ListColumn("host", "Used by the node", is_number=True),
        ListColumn("hidden", "Hidden", is_number=True),
        ListColumn("cause", "Problem"),
    )
    return ObjectList("Nodes", "nodes", columns, [_node(node, codes) for node in nodes])


def _node(node: NodeCounts, codes: Codes) -> ListRow:
    cause, known = _cause(codes, "nodes", "", node.name)
    is_bad = node.is_in_trouble or bool(known)
    name = "Trouble" if is_bad else "Ready" if node.devices else "Unused"
    if not known and node.is_in_trouble:
        cause = _text(node.words.partition(": ")[2])
    used = f"{node.allocated} of {node.devices}"
    use = Cell(bar([("busy", node.allocated), ("bad", node.tainted)], node.devices, used), node.share)
    cells = (_name("nodes", "", node.name), _state(name), use, _number(node.offered), _number(node.host))
    row = (*cells, _number(node.hidden), cause)
    return ListRow(("nodes", node.name), row, name, text=node.name.lower(), codes=known)


def device_list(found: DeviceLines, limit: int) -> ObjectList:
    """Devices, and interfaces that are not published."""
    columns = (
        ListColumn("name", "Device"),
        ListColumn("node", "Node"),
        ListColumn("type", "Type"),
        ListColumn("pf", "PF"),
        ListColumn("state", "State"),
        ListColumn("claim", "Claim"),
        ListColumn("pod", "Pod"),
        ListColumn("address", "Addresses"),
        ListColumn("reason", "Reason"),
    )
    remark = (
        f"{found.left} more devices match; the first {limit} are listed. Filter by a name or a node."
        if found.left
        else ""
    )
    rows = [_device(line) for line in found.lines]
    return ObjectList("Devices", "devices", columns, rows, remark, found.unread, found.total)


def _device(line: DeviceLine) -> ListRow:
    claims = [_claim_link(name) for name in line.claims[:_NAMED]]
    namespace = line.claims[0].partition("/")[0] if line.claims else ""
    pods = [link(name, "pods", namespace, name) for name in line.pods[:_NAMED]]
    cells = (
        Cell(link(line.name, "devices", line.node, line.name), line.name),
        _name("nodes", "", line.node),
        _text(line.type),
        _text("" if line.pf == line.name else line.pf),
        _state(line.state),
        Cell(together(claims), ",".join(line.claims)),
        Cell(together(pods), ",".join(line.pods)),
        _text(", ".join(line.addresses)),
        _text(_short(line.reason)),
    )
    return ListRow(("devices", line.node, line.name), cells, line.state, namespace, line.text)


def _claim_link(key: str) -> Child:
    namespace, _, name = key.partition("/")
    return link(key, "claims", namespace, name)


def pod_state(pod: PlacedPod) -> str:
    """One of "Ended", "Ending", "Running" (all containers run) and "Waiting"."""
    if pod.has_ended:
        return "Ended"
    if pod.metadata.is_ending:
        return "Ending"
    return "Running" if pod.is_running else "Waiting"


def pod_list(cluster: ClusterState, codes: Codes) -> ObjectList:
    """The page "Pods": a row for each pod that has a claim; others have no network of netdra."""
    columns = (
        ListColumn("name", "Pod"),
        ListColumn("state", "State"),
        ListColumn("node", "Node"),
        ListColumn("claims", "Claims"),
        ListColumn("cause", "Cause"),
        ListColumn("age", "Created"),
    )
    claimed = [pod for pod in cluster.pods if pod.has_claims]
    others = len(cluster.pods) - len(claimed)
    remark = f"{others} more pods have no claim, so {DRIVER} does nothing for them." if others else ""
    rows = [_pod(pod, cluster.server_time, codes) for pod in claimed]
    return ObjectList("Pods", "pods", columns, rows, remark, [*cluster.unread.values()])


def _pod(pod: PlacedPod, now: str, codes: Codes) -> ListRow:
    namespace, name = pod.metadata.namespace, pod.metadata.name
    cause, known = _cause(codes, "pods", namespace, name)
    node = pod.spec.node_name
    names = [claim for _, claim in pod.claim_names() if claim]
    claims = [link(claim, "claims", namespace, claim) for claim in names[:_NAMED]]
    cells = (
        _name("pods", namespace, name),
        _state(pod_state(pod)),
        _name("nodes", "", node) if node else _text(""),
        Cell(together(claims), ",".join(names)),
        cause,
        _since(pod.metadata.creation_timestamp, now),
    )
    text = " ".join((namespace, name, node, *names)).lower()
    return ListRow(("pods", namespace, name), cells, pod_state(pod), namespace, f"{namespace}/{name} {text}", known)


def claim_state(claim: ResourceClaim) -> str:
    """One of "Failing" (a device is not ready), "Pending", "Reserved" and "Allocated"."""
    for status in claim.status.devices:
        conditions = status.conditions if isinstance(status.conditions, list | tuple) else ()
        if any(isinstance(entry, Mapping) and entry.get("status") == "False" for entry in conditions):
            return "Failing"
    if claim.status.allocation is None:
        return "Pending"
    return "Reserved" if claim.status.reserved_for else "Allocated"


def claim_list(cluster: ClusterState) -> ObjectList:
    """The page "Claims": a row for each claim that was read, in the order of the cluster's list."""
    columns = (
        ListColumn("name", "Claim"),
        ListColumn("state", "State"),
        ListColumn("node", "Node"),
        ListColumn("devices", "Devices"),
        ListColumn("topologies", "Topology"),
        ListColumn("pods", "Pods"),
        ListColumn("age", "Created"),
    )
    rows = [_claim(cluster, claim) for claim in cluster.claims]
    return ObjectList("Claims", "claims", columns, rows, "", [*cluster.unread.values()])


def _claim(cluster: ClusterState, claim: ResourceClaim) -> ListRow:
    namespace, name = claim.metadata.namespace, claim.metadata.name
    allocation = claim.status.allocation
    node = selected_node(allocation.node_selector) if allocation is not None else ""
    results = [entry for entry in allocation.devices.results if entry.is_attachable] if allocation is not None else []
    names = [entry.device for entry in results]
    devices = [link(device, "devices", node, device) if node else device for device in names[:_NAMED]]
    topologies = sorted({topology.name for topology in cluster.known.asked(claim)})
    users = [entry.name for entry in claim.status.reserved_for if entry.resource == "pods"]
    addresses = [str(ip) for status in claim.status.devices if status.network_data for ip in status.network_data.ips]
    cells = (
        _name("claims", namespace, name),
        _state(claim_state(claim)),
        _name("nodes", "", node) if node else _text(""),
        Cell(together(devices), ",".join(names)),
        Cell(together([link(topology, "topologies", topology) for topology in topologies]), ",".join(topologies)),
        Cell(together([link(pod, "pods", namespace, pod) for pod in users[:_NAMED]]), ",".join(users)),
        _since(claim.metadata.creation_timestamp, cluster.server_time),
    )
    text = " ".join((f"{namespace}/{name}", node, *names, *topologies, *users, *addresses)).lower()
    return ListRow(("claims", namespace, name), cells, claim_state(claim), namespace, text)


def topology_state(topology: NetworkTopology, usage: NetworkTopologyUsageStatus) -> str:
    """One of "Failing" (a condition is False), "Degraded" (claims fail), "Ready" and "Unchecked" (no condition)."""
    conditions = topology.status.conditions if topology.status is not None else ()
    if any(condition.status == "False" for condition in conditions):
        return "Failing"
    if _is_true(usage.conditions, "Degraded"):
        return "Degraded"
    return "Ready" if conditions else "Unchecked"


def _is_true(conditions: Iterable[Condition], kind: str) -> bool:
    return any((condition.type, condition.status) == (kind, "True") for condition in conditions)


def usage_of(cluster: ClusterState, name: str) -> NetworkTopologyUsageStatus:
    """The claims that use a topology, as far as they are counted."""
    found = next((entry for entry in cluster.usages if entry.metadata.name == name), None)
    return found.status if found is not None and found.status is not None else NetworkTopologyUsageStatus()


def topology_list(cluster: ClusterState, codes: Codes) -> ObjectList:
    """The page "Topologies": a row for each, with the number of its claims and the cause of a failure."""
    columns = (
        ListColumn("name", "Topology"),
        ListColumn("state", "State"),
        ListColumn("steps", "Steps", is_number=True),
        ListColumn("claims", "Claims", is_number=True),
        ListColumn("failing", "Failing", is_number=True),
        ListColumn("cause", "Cause"),
        ListColumn("age", "Created"),
    )
    rows = [_topology(cluster, topology, codes) for topology in cluster.topologies]
    return ObjectList("Topologies", "topologies", columns, rows, "", [*cluster.unread.values()])


def _topology(cluster: ClusterState, topology: NetworkTopology, codes: Codes) -> ListRow:
    usage = usage_of(cluster, topology.name)
    name = topology_state(topology, usage)
    cause, known = _cause(codes, "topologies", "", topology.name)
    cells = (
        _name("topologies", "", topology.name),
        _state(name),
        _number(len(topology.spec.steps)),
        _number(usage.users),
        _number(usage.failing_claims.number),
        cause,
        _since(topology.metadata.creation_timestamp, cluster.server_time),
    )
    return ListRow(("topologies", topology.name), cells, name, text=topology.name.lower(), codes=known)


def policy_list(cluster: ClusterState, codes: Codes) -> ObjectList:
    """The page "Policies": a row for each, with the results on its nodes and the cause of a failure."""
    columns = (
        ListColumn("name", "Policy"),
        ListColumn("state", "State"),
        ListColumn("action", "Action"),
        ListColumn("priority", "Priority", is_number=True),
        ListColumn("devices", "Devices", is_number=True),
        ListColumn("nodes", "Nodes", is_number=True),
        ListColumn("cause", "Cause"),
        ListColumn("age", "Created"),
    )
    rows: list[ListRow] = []
    for policy in cluster.policies:
        rollout = rollout_of(cluster, policy.name)
        conditions = (*(policy.status.conditions if policy.status is not None else ()), *rollout.conditions)
        is_refused = any((found.type, found.status) == ("Accepted", "False") for found in conditions)
        degraded = is_refused or _is_true(conditions, "Degraded")
        name = "Degraded" if degraded else "Applied" if conditions else "Unchecked"
        cause, known = _cause(codes, "policies", "", policy.name)
        nodes = f"{rollout.updated_nodes} of {rollout.nodes}"
        cells = (
            _name("policies", "", policy.name),
            _state(name),
            _text(policy.spec.action),
            _number(policy.spec.priority),
            _number(rollout.devices),
            Cell(nodes, rollout.nodes),
            cause,
            _since(policy.metadata.creation_timestamp, cluster.server_time),
        )
        rows.append(ListRow(("policies", policy.name), cells, name, text=policy.name.lower(), codes=known))
    return ObjectList("Policies", "policies", columns, rows, "", [*cluster.unread.values()])


def network_state(network: PodNetwork) -> str:
    """The state of a PodNetwork in one or two words."""
    conditions = network.status.conditions if network.status is not None else ()
    problems = {condition.type for condition in conditions if is_problem(condition)}
    states = ((READY, "Failing"), (AVAILABLE, "Full"), (NEARLY_FULL, "Nearly full"))
    return next((name for kind, name in states if kind in problems), "Ready" if conditions else "Unchecked")


def usage_bar(status: PodNetworkStatus) -> Child:
    """The used, reserved and free addresses of a network as a bar."""
    free = max(status.total - status.used - status.reserved, 0)
    words = f"{status.used} used, {status.reserved} reserved, {free} free"
    return bar([("busy", status.used), ("warn", status.reserved)], status.total, words)


def network_list(cluster: ClusterState, codes: Codes) -> ObjectList:
    """The page "Networks": a row for each PodNetwork, with its used and free addresses."""
    columns = (
        ListColumn("name", "Network"),
        ListColumn("state", "State"),
        ListColumn("use", "Addresses", is_number=True),
        ListColumn("total", "Total", is_number=True),
        ListColumn("ranges", "Ranges"),
        ListColumn("claims", "Claims", is_number=True),
        ListColumn("cause", "Cause"),
        ListColumn("age", "Created"),
    )
    rows: list[ListRow] = []
    for network in cluster.networks:
        status = network.status or PodNetworkStatus()
        cause, known = _cause(codes, "networks", "", network.name)
        ranges = [entry.cidr for entry in network.spec.ranges]
        share = (status.used + status.reserved) * 10_000 // status.total if status.total else 0
        cells = (
            _name("networks", "", network.name),
            _state(network_state(network)),
            Cell(usage_bar(status), share),
            _number(status.total),
            _text(listed(ranges, _NAMED)),
            _number(status.users),
            cause,
            _since(network.metadata.creation_timestamp, cluster.server_time),
        )
        text = " ".join((network.name, *ranges)).lower()
        rows.append(ListRow(("networks", network.name), cells, network_state(network), text=text, codes=known))
    return ObjectList("Networks", "networks", columns, rows, "", [*cluster.unread.values()])


def plugin_list(cluster: ClusterState, codes: Codes) -> ObjectList:
    """All plugins that netdra installs."""
    columns = (
        ListColumn("name", "Plugin"),
        ListColumn("state", "State"),
        ListColumn("nodes", "Nodes", is_number=True),
        ListColumn("image", "Image"),
        ListColumn("cause", "Cause"),
        ListColumn("age", "Created"),
    )
    rows: list[ListRow] = []
    for plugin in cluster.plugins:
        status = plugin.status or CNIPluginStatus()
        is_done = _is_true(status.conditions, "Installed")
        name = "Failing" if status.failures else "Installed" if is_done else "Installing"
        cause, known = _cause(codes, "plugins", "", plugin.name)
        words = f"{status.ready_nodes} of {status.desired_nodes}"
        cells = (
            _name("plugins", "", plugin.name),
            _state(name),
            Cell(bar([("good", status.ready_nodes)], status.desired_nodes, words), status.ready_nodes),
            _text(plugin.spec.image),
            cause,
            _since(plugin.metadata.creation_timestamp, cluster.server_time),
        )
        text = f"{plugin.name} {plugin.spec.image}".lower()
        rows.append(ListRow(("plugins", plugin.name), cells, name, text=text, codes=known))
    return ObjectList("Plugins", "plugins", columns, rows, "", [*cluster.unread.values()])


LISTS: Mapping[str, Callable[[ClusterState, Codes], ObjectList]] = {
    "pods": pod_list,
    "claims": lambda cluster, _: claim_list(cluster),
    "topologies": topology_list,
    "policies": policy_list,
    "networks": network_list,
    "plugins": plugin_list,
}
"""The lists that are made of a cluster's objects and the troubles alone."""
