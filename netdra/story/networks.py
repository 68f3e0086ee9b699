"""The addresses of PodNetworks that an allocated claim has or waits for, and the story of a PodNetwork. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from netdra.cluster.objects import ClusterEvent, ClusterState
from netdra.cluster.wanted import MAX_WAITING, missing_families, pod_network, present_addresses, wanted_addresses
from netdra.model import names as names_of
from netdra.model.claim import ResourceClaim, selected_node
from netdra.model.errors import without_hint
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import AVAILABLE, NEARLY_FULL, READY, REQUIRED, PodNetwork, is_problem
from netdra.model.suggestions import hint, listed
from netdra.model.topology import NetworkTopology
from netdra.networks.departures import has_left
from netdra.networks.errors import AddressError
from netdra.networks.ledger import NetworkLedger
from netdra.rules import pod_addresses, pod_networks
from netdra.rules.pod_addresses import WantedAddresses
from netdra.story.statement import Statement, Story, absent, done, fact, story_of, wrong

_REASONS = (
    "NoFreeAddress",
    "NoRangeForNode",
    "AddressTaken",
    "AddressHeld",
    "WrongAddress",
    "NoPodNetwork",
    "NamespaceNotAllowed",
    "NamespaceLimit",
    "RequestMissing",
    "NotAssigned",
)
"""Reasons of the events about addresses that are not assigned."""


_STATES = {
    READY: "cannot be used",
    AVAILABLE: "has a range without a free address",
    NEARLY_FULL: "has a range with few free addresses",
}
"""The state of a network by the condition that reports a problem, the worst first."""


def network_story(cluster: ClusterState, name: str) -> Story:
    """The statements about a PodNetwork, its ranges and waiting claims; a missing or unread one is one error."""
    subject = f"PodNetwork {name}"
    network = next((entry for entry in cluster.networks if entry.name == name), None)
    if network is None:
        unread = cluster.unread.get("podnetworks", "")
        text = unread or f'PodNetwork "{name}" does not exist'
        next_step = hint(name, (entry.name for entry in cluster.networks), "PodNetworks:")
        return absent(subject, unread, wrong(subject, text, next_step, code="ND5019"))
    return story_of(subject, _state(network), _statements(cluster, network), cluster.unread.values())


def _state(network: PodNetwork) -> str:
    conditions = network.status.conditions if network.status is not None else ()
    problems = {condition.type for condition in conditions if is_problem(condition)}
    if network.metadata.deletion_timestamp:
        return "is being deleted"
    default = "is Ready" if conditions else "is not checked yet"
    return next((text for kind, text in _STATES.items() if kind in problems), default)


def _statements(cluster: ClusterState, network: PodNetwork) -> Iterator[Statement]:
    about, status = f"PodNetwork {network.name}", network.status
    if status is None or not status.conditions:
        text = "no status: netdra's controller has not checked it"
        yield _warning(about, text, "check that netdra's controller runs: netdra doctor", "NoStatus", code="ND5020")
    for condition in status.conditions if status is not None else ():
        time, reason = condition.last_transition_time, condition.reason
        if not is_problem(condition):
            yield done(about, f"{condition.type}: {condition.message}", reason=reason, time=time)
        elif condition.type == READY and network.metadata.deletion_timestamp:
            next_step = "delete the pods and claims that have addresses of it"
            yield _warning(about, condition.message, next_step, reason, time, code="ND5021")
        elif condition.type == READY:
            yield wrong(
                about,
                f"it cannot be used: {condition.message}",
                "correct its spec",
                reason=reason,
                time=time,
                code="ND5022",
            )
        else:
            next_step = "add a range, or delete claims that have addresses"
            yield _warning(about, condition.message, next_step, reason, time, code="ND5023")
    for entry in status.ranges if status is not None else ():
        text = f"range {entry.cidr}: {entry.used} of {entry.total} addresses used, {entry.reserved} reserved"
        yield fact(about, text)
    yield from _of_limits(cluster, network, about)
    using = [entry for entry in cluster.topologies if _uses(entry, network.name)]
    names = listed((entry.name for entry in using), 4)
    yield fact(about, f"used by NetworkTopologies {names}" if using else "no NetworkTopology uses it")
    yield from _of_addresses(cluster, network, about)
    yield from islice(_waiting(cluster, network, {entry.name for entry in using}), MAX_WAITING)


def _of_limits(cluster: ClusterState, network: PodNetwork, about: str) -> Iterator[Statement]:
    """The rules of the network for claims and namespaces, and the namespaces that have all that they can have."""
    spec = network.spec
    if spec.namespaces:
        yield fact(about, f"for namespaces {listed(spec.namespaces, 4)}")
    if spec.requests == REQUIRED:
        yield fact(about, f"claims must request addresses by DeviceClass {names_of.network_class(network.name)}")
    if spec.per_namespace is None:
        return
    yield fact(about, f"a namespace gets addresses for {spec.per_namespace} steps at most")
    own = (entry for entry in cluster.addresses if entry.spec.network == network.name and entry.spec.lease is None)
    counts = Counter((entry.spec.owner.namespace, entry.family) for entry in own if not entry.spec.conflict_since)
    full = sorted({namespace for (namespace, _), count in counts.items() if count >= spec.per_namespace})
    if full:
        next_step = "delete claims of these namespaces, or raise limits.perNamespace"
        text = f"{len(full)} namespaces have all addresses that they can have: {listed(full, 4)}"
        yield _warning(about, text, next_step, "NamespaceLimit", code="ND5024")


def _warning(about: str, text: str, next_step: str, reason: str, time: str = "", *, code: str = "") -> Statement:
    return wrong(about, text, next_step, severity="warning", reason=reason, time=time, code=code)


def _uses(topology: NetworkTopology, network: str) -> bool:
    return any(step.pod_network == network for step in topology.spec.steps)


def _of_addresses(cluster: ClusterState, network: PodNetwork, about: str) -> Iterator[Statement]:
    """Imported leases, and addresses of claims that do not exist."""
    own = [address for address in cluster.addresses if address.spec.network == network.name]
    leases = sum(address.spec.lease is not None for address in own)
    if leases:
        yield fact(about, f"{leases} addresses are imported from other IPAM plugins")
    leaving = [entry.spec.address for entry in own if entry.spec.claim is None and entry.spec.node_name]
    if leaving:
        yield fact(about, f"{len(leaving)} released addresses wait for their nodes' reports: {listed(leaving, 4)}")
    if not cluster.could_read("resourceclaims"):
        return
    claims = {claim.metadata.uid for claim in cluster.claims}
    gone = [entry for entry in own if entry.spec.claim is not None and entry.spec.claim.uid not in claims]
    if gone:
        text = f"addresses of claims that do not exist: {listed((entry.spec.address for entry in gone), 4)}"
        yield _warning(about, text, "netdra doctor shows the nodes that hold them", "AddressHeld", code="ND5025")


def _waiting(cluster: ClusterState, network: PodNetwork, using: set[str]) -> Iterator[Statement]:
    """The claims that wait for an address of a network."""
    for claim in cluster.claims:
        if any(entry.name in using for entry in cluster.known.asked(claim)):
            found = addresses(cluster, claim, network.name)
            yield from (statement for statement in found if statement.is_problem)


def addresses(cluster: ClusterState, claim: ResourceClaim, network: str = "") -> Iterator[Statement]:
    """The state of the addresses of an allocated claim: of all PodNetworks, or of one."""
    if not cluster.could_read("podnetworks", "podaddresses"):
        return
    for entry in wanted_addresses(cluster, claim):
        if network in ("", entry.network):
            yield from _of_step(cluster, claim, entry)


def _of_step(cluster: ClusterState, claim: ResourceClaim, wanted: WantedAddresses) -> Iterator[Statement]:
    about = f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name}"
    step, name = f'step "{wanted.owner.step}"', wanted.network
    if not missing_families(cluster, claim, wanted):
        texts = listed((entry.spec.address for entry in present_addresses(cluster, claim, wanted)), 4)
        yield done(about, f'{step} has {texts} of PodNetwork "{name}"', reason="AddressAssigned")
        return
    what = f'{step} has no address of PodNetwork "{name}"'
    network, event = pod_network(cluster, name), _event(cluster, claim)
    if network is None:
        names = [entry.name for entry in cluster.networks]
        next_step = hint(name, names, "PodNetworks:") or "create it"
        yield wrong(about, f"{what}: it does not exist", next_step, reason="NoPodNetwork", code="ND5026")
    elif (problem := _problem(cluster, claim, wanted, network)) is not None:
        yield wrong(about, f"{what}: {problem.what}", problem.hint, reason=problem.reason, code=problem.code)
    elif event is not None:
        text = without_hint(event.message, event.next_step)
        next_step = event.next_step or f"kubectl describe pnet {name}"
        yield wrong(about, f"{what}: {text}", next_step, reason=event.reason, time=event.time, code="ND5027")
    else:
        yield _unexplained(network, what, about)


def _problem(
    cluster: ClusterState, claim: ResourceClaim, wanted: WantedAddresses, network: PodNetwork
) -> AddressError | None:
    """Why the controller cannot assign an address now, by its own rules; None if the objects do not show it.

    The objects are always there; events are kept for an hour, need a right, and are about the past.
    """
    node = _node_of(claim)
    found = cluster.node(node) if node else None
    try:
        pod_addresses.check_usable(network.name, network, pod_networks.check(network))
        pod_addresses.check_allowed(network, claim.metadata.namespace)
        if not present_addresses(cluster, claim, wanted):
            steps = sum(entry.network == network.name for entry in wanted_addresses(cluster, claim))
            pod_addresses.check_new(network, claim, steps)
        if node and found is None and any(entry.node_selector is not None for entry in network.spec.ranges):
            return None  # its labels are unknown
        ledger = NetworkLedger(network, (entry for entry in cluster.addresses if entry.spec.network == network.name))
        ledger.hold(_unassigned(cluster, network.name))
        for family in ledger.families:
            for own in ledger.of(wanted.owner, family)[:1]:
                _check_left(cluster, claim, own)
            ledger.check_limit(family, wanted.owner)
            ledger.choose(family, wanted.owner, found.metadata.labels if found else {}, wanted.requested, wanted.group)
    except AddressError as problem:
        return problem
    return None


def _check_left(cluster: ClusterState, claim: ResourceClaim, address: PodAddress) -> None:
    """Check that an address of a claim's owner can be its own.

    Raises:
        AddressHeldError: a former pod may have it.
    """
    spec = address.spec
    is_own = spec.claim is not None and spec.claim.uid == claim.metadata.uid
    if is_own and spec.node_name == _node_of(claim):
        return
    holder = cluster.claim(spec.owner.namespace, spec.claim.name) if spec.claim is not None else None
    is_over = is_own or holder is None or spec.claim is None or holder.metadata.uid != spec.claim.uid
    report = cluster.report(spec.node_name)
    if not is_over or (report is not None and not has_left(address, report)):
        raise pod_addresses.held(address, is_over=is_over)


def _node_of(claim: ResourceClaim) -> str:
    """The node that a claim is allocated on, "" if it is not known."""
    allocation = claim.status.allocation
    return selected_node(allocation.node_selector) if allocation is not None else ""


def _unassigned(cluster: ClusterState, network: str) -> Iterator[str]:
    """The addresses that nodes report as their pods' although no PodAddress assigns them."""
    stored = {(entry.spec.network, entry.spec.address.partition("/")[0]): entry for entry in cluster.addresses}
    for report in cluster.node_networks:
        for entry in report.status.unassigned_addresses if report.status is not None else ():
            address = stored.get((entry.network, entry.address))
            if entry.network == network and (address is None or address.spec.node_name == report.name):
                yield entry.address


def _event(cluster: ClusterState, claim: ResourceClaim) -> ClusterEvent | None:
    """The last event of the claim, or of one of its pods, about an address that is not assigned."""
    metadata = claim.metadata
    events = cluster.events_of("ResourceClaim", metadata.name, metadata.namespace, metadata.uid)
    for user in claim.status.reserved_for:
        events += cluster.events_of("Pod", user.name, metadata.namespace, user.uid) if user.resource == "pods" else []
    about = (event for event in events if event.reason in _REASONS)
    return max(about, key=lambda event: event.time, default=None)


def _unexplained(network: PodNetwork, what: str, about: str) -> Statement:
    """The cause as far as the network's status shows it."""
    for condition in network.status.conditions if network.status is not None else ():
        if condition.status == "False" and condition.type in (READY, AVAILABLE):
            reason = "NoPodNetwork" if condition.type == READY else "NoFreeAddress"
            next_step = "correct it" if condition.type == READY else "add a range, or delete claims that have addresses"
            time = condition.last_transition_time
            return wrong(about, f"{what}: {condition.message}", next_step, reason=reason, time=time, code="ND5028")
    next_step = "wait some seconds; then check that netdra's controller runs: netdra doctor"
    return wrong(about, f"{what} yet", next_step, reason="NotAssigned", code="ND5029")
