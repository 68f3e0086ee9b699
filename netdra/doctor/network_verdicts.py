"""The checks of a cluster's PodNetworks and of their assigned addresses. Pure.

The facts are filled by `network_look`; called by `netdra doctor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import msgspec

from netdra.doctor.cluster_verdicts import AS_ADMINISTRATOR, NAMED
from netdra.doctor.diagnosis import Diagnosis, Unseen, diagnose
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import AVAILABLE, NEARLY_FULL, READY, PodNetwork, is_problem
from netdra.model.suggestions import listed
from netdra.rules import pod_networks, taken_ranges
from netdra.rules.taken_ranges import TakenRange

NETWORKS, ADDRESSES, RANGES = "PodNetworks", "addresses of PodNetworks", "ranges of PodNetworks"
PATIENCE = timedelta(minutes=1)
"""How long the controller may take to release an address."""
_finding = partial(diagnose, "cluster")


class NetworkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The PodNetworks of a cluster. Each part is the seen state, or the reason why it is unknown.

    Attributes:
        networks: the PodNetworks.
        addresses: the PodAddresses.
        claims: the uids of all ResourceClaims.
        nodes: by name, whether pods may run on a node that its kubelet cannot end.
        taken: the ranges that are used for something else.
    """

    networks: tuple[PodNetwork, ...] | Unseen = ()
    addresses: tuple[PodAddress, ...] | Unseen = ()
    claims: frozenset[str] | Unseen = frozenset()
    nodes: Mapping[str, bool] | Unseen = {}
    taken: tuple[TakenRange, ...] | Unseen = ()

    @property
    def known(self) -> tuple[PodNetwork, ...]:
        """The PodNetworks as far as they could be read."""
        return () if isinstance(self.networks, Unseen) else self.networks


def verdicts(facts: NetworkFacts, now: datetime) -> list[Diagnosis]:
    """All findings.

    Args:
        facts: the cluster's.
        now: the time, with its zone.
    """
    if isinstance(facts.networks, Unseen):
        return [
            _finding(NETWORKS, "warning", f"could not be read: {facts.networks.why}", AS_ADMINISTRATOR, code="ND3160")
        ]
    unseen = [part.why for part in (facts.addresses, facts.claims, facts.nodes) if isinstance(part, Unseen)]
    found = [*_networks(facts.networks)] or [_finding(NETWORKS, "ok", _counts(facts.networks))]
    if unseen:
        found.append(_finding(ADDRESSES, "warning", f"could not be read: {unseen[0]}", AS_ADMINISTRATOR, code="ND3161"))
    else:
        found += _addresses(facts, facts.networks, now)
    if isinstance(facts.taken, Unseen):
        found.append(
            _finding(RANGES, "warning", f"could not be compared: {facts.taken.why}", AS_ADMINISTRATOR, code="ND3162")
        )
    else:
        found += _overlaps(facts.networks, facts.taken)
    return found


def _counts(networks: tuple[PodNetwork, ...]) -> str:
    if not networks:
        return "none"
    statuses = [network.status for network in networks if network.status is not None]
    used, reserved = sum(status.used for status in statuses), sum(status.reserved for status in statuses)
    return f"{len(networks)} PodNetworks, {used} addresses used, {reserved} reserved"


def _networks(networks: tuple[PodNetwork, ...]) -> Iterator[Diagnosis]:
    for network in networks:
        conditions = network.status.conditions if network.status is not None else ()
        if not conditions:
            seen = f'PodNetwork "{network.name}" has no status: netdra\'s controller has not checked it'
            yield _finding(NETWORKS, "warning", seen, "check that netdra's controller runs", code="ND3163")
        problems = {condition.type: condition for condition in conditions if is_problem(condition)}
        for condition in problems.values():
            if condition.type == READY and network.metadata.deletion_timestamp:
                seen = f'PodNetwork "{network.name}": {condition.message}'
                yield _finding(
                    NETWORKS, "warning", seen, "delete the pods and claims that have addresses of it", code="ND3164"
                )
            elif condition.type == READY:
                seen = f'PodNetwork "{network.name}" cannot be used: {condition.message}'
                yield _finding(
                    NETWORKS, "warning", seen, f"correct it: kubectl edit podnetwork {network.name}", code="ND3165"
                )
            elif condition.type == AVAILABLE:
                seen = f'PodNetwork "{network.name}" has no free address: {condition.message}'
                yield _finding(
                    NETWORKS, "warning", seen, f"add a range: kubectl edit podnetwork {network.name}", code="ND3166"
                )
            elif condition.type == NEARLY_FULL and AVAILABLE not in problems:
                seen = f'PodNetwork "{network.name}" has few free addresses: {condition.message}'
                yield _finding(
                    NETWORKS, "warning", seen, f"add a range: kubectl edit podnetwork {network.name}", code="ND3167"
                )


def _addresses(facts: NetworkFacts, networks: tuple[PodNetwork, ...], now: datetime) -> Iterator[Diagnosis]:
    assert not isinstance(facts.addresses, Unseen)
    known = {network.name for network in networks}
    groups: dict[str, list[PodAddress]] = {}
    for address in facts.addresses:
        kind = _trouble(address, known, facts, now)
        if kind:
            groups.setdefault(kind, []).append(address)
    for kind, trouble in _TROUBLES.items():
        if addresses := groups.get(kind):
            names = listed((address.name for address in addresses), NAMED)
            seen = f"{trouble.text.format(count=len(addresses), nodes=_nodes(addresses))}: {names}"
            yield _finding(ADDRESSES, "warning", seen, trouble.fix(addresses[0]), code=trouble.code)
    if not groups:
        leases = sum(address.spec.lease is not None for address in facts.addresses)
        imported = f", {leases} of them imported from other IPAM plugins" if leases else ""
        yield _finding(ADDRESSES, "ok", f"{len(facts.addresses)} PodAddresses{imported}")


def _nodes(addresses: list[PodAddress]) -> str:
    return listed(sorted({address.spec.node_name for address in addresses}), NAMED)


def _trouble(address: PodAddress, networks: set[str], facts: NetworkFacts, now: datetime) -> str:
    """The key of an address's trouble in `_TROUBLES`; "" without any."""
    assert not isinstance(facts.claims, Unseen)
    assert not isinstance(facts.nodes, Unseen)
    spec = address.spec
    if spec.network not in networks:
        return "lease" if spec.lease is not None else "network" if spec.claim is not None else ""
    node = spec.node_name
    if spec.claim is None:
        return "held" if facts.nodes.get(node, False) else ""
    if spec.claim.uid in facts.claims:
        return "node" if node and node not in facts.nodes else ""
    if facts.nodes.get(node, False):
        return "held"
    return "gone" if _is_older(address, now) else ""


def _is_older(address: PodAddress, now: datetime) -> bool:
    created = address.metadata.creation_timestamp
    return bool(created) and now - datetime.fromisoformat(str(created)) > PATIENCE


def _describe(address: PodAddress) -> str:
    return f"kubectl describe podaddress {address.name}"


class _AddressTrouble(NamedTuple):
    """A kind of trouble: its text, what to do about the first address, and its code."""

    text: str
    fix: Callable[[PodAddress], str]
    code: str


_TROUBLES: Mapping[str, _AddressTrouble] = {
    "held": _AddressTrouble(
        "{count} released addresses are not assigned again, because nodes do not answer ({nodes})",
        lambda address: (
            f'if the machine of Node "{address.spec.node_name}" is off for good, delete the Node; else wait'
        ),
        code="ND3168",
    ),
    "gone": _AddressTrouble(
        "{count} addresses belong to claims that do not exist",
        lambda _: "check that netdra's controller runs: it releases them",
        code="ND3169",
    ),
    "node": _AddressTrouble(
        "{count} addresses belong to claims on nodes that do not exist ({nodes})",
        lambda address: f"delete the pods of these nodes; {_describe(address)}",
        code="ND3170",
    ),
    "network": _AddressTrouble("{count} addresses belong to PodNetworks that do not exist", _describe, code="ND3171"),
    "lease": _AddressTrouble(
        "{count} imported addresses belong to PodNetworks that do not exist",
        lambda address: f"netdra networks release {address.spec.network} --apply",
        code="ND3172",
    ),
}


def _overlaps(networks: tuple[PodNetwork, ...], taken: tuple[TakenRange, ...]) -> Iterator[Diagnosis]:
    findings = [finding for _, finding in pod_networks.overlaps(networks)]
    findings += [finding for network in networks for finding in taken_ranges.overlaps(network, taken)]
    for finding in findings[:NAMED]:
        yield _finding(RANGES, "warning", finding.coded, finding.hint)
    if len(findings) > NAMED:
        yield _finding(
            RANGES, "warning", f"{len(findings) - NAMED} more overlaps", "netdra validate --cluster", code="ND3173"
        )
    if networks and not findings:
        yield _finding(RANGES, "ok", "no overlap with other ranges of the cluster")
