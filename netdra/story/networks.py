"""The addresses of PodNetworks that an allocated claim has or waits for, and the story of a PodNetwork. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from netdra.model import names as names_of
from netdra.model.claim import ResourceClaim
from netdra.model.errors import NetdraError
from netdra.model.pod_address import PodAddress, family_of
from netdra.model.pod_network import AVAILABLE, READY, REQUIRED, PodNetwork
from netdra.model.suggestions import hint, listed
from netdra.model.topology import NetworkTopology
from netdra.story.objects import ClusterEvent, ClusterState
from netdra.story.statement import Statement, Story, done, fact, story_of, wrong
from netdra.topology.bind import addressed_steps
from netdra.topology.users import pod_owner

_REASONS = (
    "NoFreeAddress",
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


MAX_WAITING = 5
"""How many claims that wait for an address a network's story names."""


def network_story(cluster: ClusterState, name: str) -> Story:
    """The story of a PodNetwork."""
    subject = f"PodNetwork {name}"
    network = next((entry for entry in cluster.networks if entry.name == name), None)
    if network is None:
        unread = cluster.unread.get("podnetworks", "")
        text = unread or f'PodNetwork "{name}" does not exist'
        next_step = hint(name, (entry.name for entry in cluster.networks), "PodNetworks:")
        return story_of(subject, "cannot be read" if unread else "does not exist", [wrong(subject, text, next_step)])
    return story_of(subject, _state(network), _statements(cluster, network), cluster.unread.values())


def _state(network: PodNetwork) -> str:
    conditions = network.status.conditions if network.status is not None else ()
    failing = next((condition for condition in conditions if condition.status == "False"), None)
    if network.metadata.deletion_timestamp:
        return "is being deleted"
    if failing is not None:
        return "has a range without a free address" if failing.type == AVAILABLE else "cannot be used"
    return "is Ready" if conditions else "is not checked yet"


def _statements(cluster: ClusterState, network: PodNetwork) -> Iterator[Statement]:
    about, status = f"PodNetwork {network.name}", network.status
    if status is None or not status.conditions:
        text = "no status: netdra's controller has not checked it"
        yield _warning(about, text, "check that netdra's controller runs: netdra doctor", "NoStatus")
    for condition in status.conditions if status is not None else ():
        time, reason = condition.last_transition_time, condition.reason
        if condition.status == "True":
            yield done(about, f"{condition.type}: {condition.message}", reason=reason, time=time)
        elif condition.type == READY and network.metadata.deletion_timestamp:
            next_step = "delete the pods and claims that have addresses of it"
            yield _warning(about, condition.message, next_step, reason, time)
        elif condition.type == READY:
            yield wrong(about, f"it cannot be used: {condition.message}", "correct its spec", reason=reason, time=time)
        else:
            next_step = "add a range, or delete claims that have addresses"
            yield _warning(about, condition.message, next_step, reason, time)
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
        yield _warning(about, text, next_step, "NamespaceLimit")


def _warning(about: str, text: str, next_step: str, reason: str, time: str = "") -> Statement:
    return Statement(severity="warning", object=about, text=text, next_step=next_step, reason=reason, time=time)


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
        yield _warning(about, text, "netdra doctor shows the nodes that hold them", "AddressHeld")


def _waiting(cluster: ClusterState, network: PodNetwork, using: set[str]) -> Iterator[Statement]:
    """The claims that wait for an address of a network."""
    for claim in cluster.claims:
        if claim.status.allocation is not None and any(entry.name in using for entry in cluster.known.asked(claim)):
            found = addresses(cluster, claim, network.name)
            yield from (statement for statement in found if statement.is_problem)


def addresses(cluster: ClusterState, claim: ResourceClaim, network: str = "") -> Iterator[Statement]:
    """The state of the addresses of an allocated claim: of all PodNetworks, or of one."""
    if not cluster.could_read("podnetworks", "podaddresses"):
        return
    topologies = {topology.name: topology for topology in cluster.topologies}
    try:
        steps = [*addressed_steps(claim, topologies)]
    except NetdraError:
        return  # its node reports that the claim does not fit its topology
    own = cluster.addresses_by_claim.get(claim.metadata.uid, [])
    for topology, step, index in steps:
        if network and step.pod_network != network:
            continue
        present = [entry for entry in own if _step_of(entry) == (topology, step.name, index)]
        yield from _of_step(cluster, claim, step.pod_network, f'step "{step.name}"', present)


def _step_of(address: PodAddress) -> tuple[str, str, int]:
    owner = address.spec.owner
    return owner.topology, owner.step, owner.index


def _of_step(
    cluster: ClusterState, claim: ResourceClaim, name: str, step: str, present: list[PodAddress]
) -> Iterator[Statement]:
    about = f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name}"
    network = next((entry for entry in cluster.networks if entry.name == name), None)
    families = {family_of(entry.cidr) for entry in network.spec.ranges} if network is not None else {"any"}
    missing = sorted(families - {entry.family for entry in present})
    if not missing:
        texts = listed((entry.spec.address for entry in present), 4)
        yield done(about, f'{step} has {texts} of PodNetwork "{name}"', reason="AddressAssigned")
        return
    what = f'{step} has no address of PodNetwork "{name}"'
    event = _event(cluster, claim)
    if network is None:
        names = [entry.name for entry in cluster.networks]
        next_step = hint(name, names, "PodNetworks:") or "create it"
        yield wrong(about, f"{what}: it does not exist", next_step, reason="NoPodNetwork")
    elif event is not None:
        cause, _, next_step = event.message.rpartition("; ")
        text, next_step = (cause, next_step) if cause else (event.message, f"kubectl describe pnet {name}")
        yield wrong(about, f"{what}: {text}", next_step, reason=event.reason, time=event.time)
    else:
        yield _unexplained(network, claim, what, about)


def _event(cluster: ClusterState, claim: ResourceClaim) -> ClusterEvent | None:
    """The last event of the claim, or of its pod, about an address that is not assigned."""
    metadata = claim.metadata
    events = cluster.events_of("ResourceClaim", metadata.name, metadata.namespace, metadata.uid)
    if (pod := pod_owner(metadata)) is not None:
        events += cluster.events_of("Pod", pod.name, metadata.namespace, pod.uid)
    told = (event for event in events if event.reason in _REASONS)
    return max(told, key=lambda event: event.time, default=None)


def _unexplained(network: PodNetwork, claim: ResourceClaim, what: str, about: str) -> Statement:
    """The cause as far as the network itself shows it: events are kept for an hour, and need a right."""
    conditions = network.status.conditions if network.status is not None else ()
    namespaces = network.spec.namespaces
    if namespaces and claim.metadata.namespace not in namespaces:
        text = f'it is not for namespace "{claim.metadata.namespace}"'
        next_step = f"its spec.namespaces has {', '.join(namespaces)}"
        return wrong(about, f"{what}: {text}", next_step, reason="NamespaceNotAllowed")
    if network.metadata.deletion_timestamp:
        next_step = "use another PodNetwork, or create it again after its deletion"
        return wrong(about, f"{what}: it is being deleted", next_step, reason="NoPodNetwork")
    for condition in conditions:
        if condition.status == "False" and condition.type in (READY, AVAILABLE):
            reason = "NoPodNetwork" if condition.type == READY else "NoFreeAddress"
            next_step = "correct it" if condition.type == READY else "add a range, or delete claims that have addresses"
            time = condition.last_transition_time
            return wrong(about, f"{what}: {condition.message}", next_step, reason=reason, time=time)
    next_step = "wait some seconds; then check that netdra's controller runs: netdra doctor"
    return wrong(about, f"{what} yet", next_step, reason="NotAssigned")
