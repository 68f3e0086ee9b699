"""The checks of VFs' ports of Neutron, in the cluster and in the cloud: one finding each, with the next step. Pure.

The facts are filled by `neutron_look`; `of_ports` and `of_cloud` are called by `netdra doctor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import msgspec

from netdra.doctor.cluster_verdicts import AS_ADMINISTRATOR, NAMED
from netdra.doctor.diagnosis import Diagnosis, Level, Unseen, diagnose
from netdra.model.errors import without_hint
from netdra.model.neutron_port import HOST_ANNOTATION, NeutronPort
from netdra.model.suggestions import hint, listed
from netdra.neutron.answers import HARDWARE_SWITCH, ROLE, Agent, NeutronNetwork, Port, Subnet
from netdra.neutron.errors import AmbiguousError, NoNetworkError, OtherProjectError

PATIENCE = timedelta(minutes=1)
"""How long a port may have no answer, and one that is deleted may stay, before that is told."""
ROLES = ("member", ROLE)
"""The roles that may make and bind ports by Neutron's default policies."""
BINDING = "binding"
"""The extension of Neutron's API by which a port is bound to a host."""
_TERMINATING = (
    "they wait until Neutron deletes the port; claims and pods do not wait; docs/neutron.md describes "
    "how to proceed without Neutron"
)
_UNSAID = "the controller has not reported a reason"
_CHANGED = "running pods keep the former settings; pods with new claims get the new settings"
_NOT_ENFORCED = "remove it in Neutron or from the topology; docs/neutron.md lists the settings that VFs support"
_in_cluster = partial(diagnose, "cluster", "ports of Neutron")
_finding = partial(diagnose, "neutron")


class PortFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a cluster's VFs' ports. Each part is the seen state, or the reason why it is unknown.

    Attributes:
        topologies: those with `neutron`, by name.
        ports: all NeutronPorts.
        waiting: allocated claims of these topologies without ports, and since when (RFC 3339).
        controllers: by pod of netdra's controller, whether it is started with a cloud.
    """

    topologies: tuple[str, ...] | Unseen = ()
    ports: tuple[NeutronPort, ...] | Unseen = ()
    waiting: Mapping[str, str] | Unseen = {}
    controllers: Mapping[str, bool] | Unseen = {}


class Failed(msgspec.Struct, frozen=True):
    """A part of a cloud that could not be read: the error's word, why, and the next step."""

    reason: str
    what: str
    hint: str = ""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The user of the login: names, the roles of the token, and the URL of Neutron. `user` is "" without a login."""

    user: str
    project: str
    roles: tuple[str, ...]
    url: str


class CloudFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a cloud. Each part is the seen state, or the reason why it is unknown.

    Attributes:
        account: who is logged in.
        extensions: the aliases of the extensions of Neutron's API.
        ports: the ports that netdra has made, of any cluster.
        agents: the NIC switch agents that the user sees.
        sees_agents: whether the user sees any agent, of any kind.
        networks: all networks that netdra may use.
        subnets: the subnets of those of them that are on a physical network, as far as the user sees that.
        defaults: by physical network, the network that the controller's map gives it.
    """

    account: Account | Failed
    extensions: frozenset[str] | Failed = frozenset()
    ports: tuple[Port, ...] | Failed = ()
    agents: tuple[Agent, ...] | Failed = ()
    sees_agents: bool = False
    networks: tuple[NeutronNetwork, ...] | Failed = ()
    subnets: tuple[Subnet, ...] | Failed = ()
    defaults: Mapping[str, NeutronNetwork | Failed] = {}


class WiredNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that publishes devices of physical networks.

    Attributes:
        name: the node's.
        host: what its NIC switch agent calls it.
        physnets: by physical network, the NICs (PFs) that its devices are of.
        interfaces: the names of its interfaces; None if it does not report them.
    """

    name: str
    host: str
    physnets: Mapping[str, frozenset[str]]
    interfaces: frozenset[str] | None = None


def of_ports(facts: PortFacts, namespace: str, name: str, now: datetime) -> list[Diagnosis]:
    """All findings about a cluster's NeutronPorts.

    Args:
        facts: the cluster's.
        namespace: netdra's.
        name: what its objects are called.
        now: the time, with its zone.
    """
    parts = (facts.topologies, facts.ports, facts.waiting, facts.controllers)
    unseen = dict.fromkeys(part.why for part in parts if isinstance(part, Unseen))
    findings = [_in_cluster("warning", f"could not be read: {why}", AS_ADMINISTRATOR, code="ND3178") for why in unseen]
    ports = () if isinstance(facts.ports, Unseen) else facts.ports
    is_running = (
        f"check that a controller with --neutron-clouds is running: kubectl -n {namespace} logs "
        f"deploy/{name}-controller"
    )
    findings += [*_served(facts, is_running, now), *_troubled(ports, is_running, now)]
    if findings:
        return findings
    if ports:
        pending = sum(port.bound is None for port in ports)
        rest = f", {pending} of them created a moment ago" if pending else ", all Bound"
        return [_in_cluster("ok", f"{len(ports)} NeutronPorts{rest}")]
    return [_in_cluster("ok", "none" if facts.topologies else "no topology uses them")]


def of_cloud(facts: CloudFacts, nodes: Sequence[WiredNode] | Unseen) -> list[Diagnosis]:
    """All findings about a cloud.

    Args:
        facts: the cloud's.
        nodes: the nodes that publish devices of physical networks, or why they are not known.
    """
    account = facts.account
    if isinstance(account, Failed):
        return [_finding("login", "error", account.what, account.hint)]
    who = (
        f'user "{account.user}" of project "{account.project}"' if account.user else "without a login (auth_type none)"
    )
    findings = [_finding("login", "ok", who)]
    if isinstance(facts.extensions, Failed):
        return [*findings, _finding("Neutron", "error", facts.extensions.what, facts.extensions.hint)]
    findings += [
        _neutron(account, facts.extensions),
        *_roles(account),
        _mechanism(facts.ports),
        *_agents(facts, nodes),
        *_networks(facts, nodes),
        *_defaults(facts, nodes),
    ]
    return findings


def _unseen(check: str, problem: Failed, fix: str = "") -> Diagnosis:
    return _finding(check, "warning", f"could not be read: {problem.what}", fix or problem.hint, code="ND3179")


# The cluster


def _served(facts: PortFacts, is_running: str, now: datetime) -> Iterator[Diagnosis]:
    """Whether a controller looks after the ports: none is started with a cloud, or none has made them in time."""
    controllers = {} if isinstance(facts.controllers, Unseen) else facts.controllers
    if facts.topologies and not isinstance(facts.topologies, Unseen) and controllers and not any(controllers.values()):
        seen = f"topologies use `neutron` ({listed(facts.topologies, NAMED)}), but no controller serves Neutron"
        fix = "start it with --neutron-clouds: chart value controller.neutron.cloudsSecret"
        yield _in_cluster("error", seen, fix, code="ND3180")
    waiting = {} if isinstance(facts.waiting, Unseen) else facts.waiting
    late = {claim: age for claim, since in waiting.items() if (age := _age(since, now)) >= PATIENCE}
    if late:
        claims = listed((f"{claim} for {_span(age)}" for claim, age in late.items()), NAMED)
        seen = f"{len(late)} allocated claims whose topology uses `neutron` do not have a NeutronPort: {claims}"
        yield _in_cluster("error", seen, is_running, code="ND3181")


class _PortTrouble(NamedTuple):
    """A state of a port that is a trouble, since when it is in it, and why: a condition's message, or ""."""

    level: Level
    state: str
    since: str
    message: str = ""
    fix: str = ""
    code: str = ""


def _troubles(port: NeutronPort, is_running: str, now: datetime) -> Iterator[_PortTrouble]:
    """The troubles of a port, from its conditions."""
    bound, current, deleted = port.bound, port.current, port.metadata.deletion_timestamp
    if deleted:
        if _age(deleted, now) >= PATIENCE:
            why = without_hint(bound.message, port.next_step) if bound is not None and bound.status == "False" else ""
            yield _PortTrouble("warning", "remain in Terminating", deleted, why or _UNSAID, _TERMINATING, code="ND3182")
        return
    created = port.metadata.creation_timestamp or ""
    if not port.pci_address:
        if _age(created, now) >= PATIENCE:
            claim, node = f"{port.metadata.namespace}/{port.spec.claim.name}", port.spec.node_name
            text = f'ResourceClaim "{claim}" is allocated on node {node}, but not prepared there'
            fix = (
                f"see the events of the claim's pod (kubectl -n {port.metadata.namespace} get events), "
                f"and check that the kubelet and netdra's driver run on node {node}; the replacement "
                "of a deleted pod is scheduled again"
            )
            yield _PortTrouble("warning", "wait for their nodes to select a VF", created, text, fix, code="ND3183")
        return
    if bound is None and _age(created, now) >= PATIENCE:
        yield _PortTrouble(
            "error", "NeutronPorts not processed by the controller", created, fix=is_running, code="ND3184"
        )
    if bound is not None and bound.status != "True":
        what = without_hint(bound.message, port.next_step)
        fix = (
            " ".join(port.next_step.split()) or f"kubectl -n {port.metadata.namespace} describe neutronport {port.name}"
        )
        yield _PortTrouble(
            "warning", f"not Bound, {bound.reason}", bound.last_transition_time, what, fix, code="ND3185"
        )
    if current is not None and current.status == "False":
        what = current.message.partition("\n")[0]
        yield _PortTrouble("warning", "changed in Neutron", current.last_transition_time, what, _CHANGED, code="ND3186")
    if (enforced := port.enforced) is not None and enforced.status == "False":
        what = enforced.message
        yield _PortTrouble("warning", "not enforced", enforced.last_transition_time, what, _NOT_ENFORCED, code="ND3187")


def _troubled(ports: Iterable[NeutronPort], is_running: str, now: datetime) -> Iterator[Diagnosis]:
    """The ports in trouble, one finding a state; the oldest come first, and the oldest one's message is shown."""
    by_state: dict[str, list[tuple[NeutronPort, _PortTrouble]]] = {}
    for port in ports:
        for trouble in _troubles(port, is_running, now):
            by_state.setdefault(trouble.state, []).append((port, trouble))
    for state, group in sorted(by_state.items()):
        group.sort(key=lambda pair: pair[1].since)
        names = (f"{port.metadata.namespace}/{port.name} for {_span(_age(it.since, now))}" for port, it in group)
        oldest = min(group, key=lambda pair: (pair[1].message == _UNSAID, pair[1].since))[1]
        seen = f"{len(group)} {state}: {listed(names, NAMED)}"
        text = f"{seen}: {oldest.message}" if oldest.message else seen
        yield _in_cluster(oldest.level, text, oldest.fix, code=oldest.code)


def _age(since: str, now: datetime) -> timedelta:
    """How long something has been so; nothing where no time is given."""
    try:
        return now - datetime.fromisoformat(since)
    except (ValueError, TypeError):
        return timedelta()


def _span(age: timedelta) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if (count := int(age.total_seconds() // length)) > 0:
            return f"{count} {unit}"
    return f"{int(age.total_seconds())} s"


# The cloud


def _neutron(account: Account, extensions: frozenset[str]) -> Diagnosis:
    if BINDING in extensions:
        return _finding("Neutron", "ok", f"{account.url} is reachable and supports port binding (extension {BINDING})")
    seen = f"{account.url} does not support the extension {BINDING}: ports cannot be bound to VFs"
    return _finding("Neutron", "error", seen, "Neutron's core_plugin must be ml2", code="ND3188")


def _roles(account: Account) -> Iterator[Diagnosis]:
    if not account.user:
        return
    has = ", ".join(account.roles) or "none"
    lacking = [role for role in ROLES if role not in account.roles]
    if not lacking:
        yield _finding("roles", "ok", has)
        return
    seen = (
        f"{_plural('role', lacking)} {' and '.join(lacking)} missing (found: {has}): with Neutron's "
        "default policies, ports cannot be bound to VFs"
    )
    grants = (f"openstack role add --user {account.user} --project {account.project} {role}" for role in lacking)
    fix = f"{'; '.join(grants)}; an application credential keeps the roles of its creation: create a new one"
    yield _finding("roles", "error", seen, fix, code="ND3189")


def _mechanism(ports: Sequence[Port] | Failed) -> Diagnosis:
    """Whether sriovnicswitch is there. The API does not list mechanism drivers: the bound ports show them."""
    check = "mechanism sriovnicswitch"
    fix = "[ml2] mechanism_drivers in Neutron's configuration must contain sriovnicswitch"
    if isinstance(ports, Failed):
        return _unseen(check, ports, fix)
    taken = sum(port.vif_type == HARDWARE_SWITCH for port in ports)
    if taken:
        return _finding(check, "ok", f"has bound {taken} of netdra's ports")
    others = {port.vif_type for port in ports if port.is_bound}
    if others:
        seen = f"has not bound any of netdra's ports, which are {', '.join(sorted(others))}"
        return _finding(check, "error", seen, fix, code="ND3190")
    return _finding(
        check, "warning", "unknown: the API does not list mechanisms, and no bound port shows one", fix, code="ND3191"
    )


def _agents(facts: CloudFacts, nodes: Sequence[WiredNode] | Unseen) -> list[Diagnosis]:
    check = "NIC switch agents"
    agents, account = facts.agents, facts.account
    if isinstance(agents, Failed):
        return [_unseen(check, agents)]
    if not agents and not facts.sees_agents and isinstance(account, Account) and "admin" not in account.roles:
        seen = "unknown: Neutron does not show agents to this user; by default, get_agent requires an administrator"
        fix = (
            "use an administrator's clouds.yaml, or run as administrator: openstack network agent list --agent-type nic"
        )
        return [_finding(check, "warning", seen, fix, code="ND3192")]
    if isinstance(nodes, Unseen):
        return [
            _finding(
                check, "warning", f"could not be compared with the nodes: {nodes.why}", AS_ADMINISTRATOR, code="ND3193"
            )
        ]
    if not nodes:
        fix = "docs/physnets.md: netdra node --physnet, or a policy's attribute physnet"
        return [
            _finding(check, "warning", "not needed yet: no node publishes devices with physnet", fix, code="ND3194")
        ]
    wrong = [*_missing_agents(check, agents, nodes), *_mappings(check, agents, nodes)]
    if any(finding.level == "error" for finding in wrong):
        return wrong
    physnets = sorted({physnet for node in nodes for physnet in node.physnets})
    return [_finding(check, "ok", f"alive for {len(nodes)} nodes and {', '.join(physnets)}"), *wrong]


def _missing_agents(check: str, agents: Sequence[Agent], nodes: Sequence[WiredNode]) -> Iterator[Diagnosis]:
    """The nodes without an agent, or with one that is dead."""
    there = {agent.host for agent in agents}
    alive = {agent.host for agent in agents if agent.alive}
    without = [node for node in nodes if node.host not in there]
    dead = [node for node in nodes if node.host in there - alive]
    if without:
        hosts = f"agents are on {listed(sorted(there), NAMED)}" if there else "no agents found"
        fix = (
            "run neutron-sriov-nic-agent there; if it uses another host name: kubectl annotate node "
            f"{without[0].name} {HOST_ANNOTATION}=HOST"
        )
        seen = f"{len(without)} nodes do not have an agent, so their VFs do not get ports: {_nodes(without)}; {hosts}"
        yield _finding(check, "error", seen, fix, code="ND3195")
    if dead:
        seen = f"not alive on the hosts of {len(dead)} nodes, whose VFs do not get ports: {_nodes(dead)}"
        fix = f"openstack network agent list --host {dead[0].host}; the agent must run and reach Neutron's message bus"
        yield _finding(check, "error", seen, fix, code="ND3196")


_SETTING = "[sriov_nic] physical_device_mappings of the agent"


class _Mismatch(NamedTuple):
    """A difference of nodes and agents: its level and text, what to do about it, and its code."""

    level: Level
    seen: str
    fix: str
    code: str


_MISMATCHES: Mapping[str, _Mismatch] = {
    "unmapped": _Mismatch(
        "error",
        "lack a device for physical networks of VFs, which do not get ports",
        f"{_SETTING} must contain each of them",
        code="ND3197",
    ),
    "crossed": _Mismatch(
        "error",
        "differ from the physical networks of the nodes",
        f"correct {_SETTING}, or the physnet of the node's devices",
        code="ND3198",
    ),
    "skipped": _Mismatch("warning", "lack NICs that VFs belong to", f"add them to {_SETTING}", code="ND3199"),
    "strange": _Mismatch("warning", "contain devices that the nodes do not have", f"correct {_SETTING}", code="ND3200"),
}


def _mappings(check: str, agents: Sequence[Agent], nodes: Sequence[WiredNode]) -> Iterator[Diagnosis]:
    """The physical networks of living agents, compared with those that nodes publish."""
    by_host = {agent.host: agent for agent in agents if agent.alive}
    mismatches = [one for node in nodes if node.host in by_host for one in _mismatches(node, by_host[node.host])]
    for kind, mismatch in _MISMATCHES.items():
        if places := [place for what, place in mismatches if what == kind]:
            seen = f"{mismatch.seen}: {listed(places, NAMED)}"
            yield _finding(check, mismatch.level, seen, mismatch.fix, code=mismatch.code)


def _mismatches(node: WiredNode, agent: Agent) -> Iterator[tuple[str, str]]:
    """The differences of a node and its agent: the kind of mismatch, and its place."""
    mapped = {physnet: frozenset(devices) for physnet, devices in agent.devices.items()}
    for physnet, nics in sorted(node.physnets.items()):
        for nic in sorted(nics - mapped.get(physnet, frozenset())):
            elsewhere = sorted(other for other, devices in mapped.items() if nic in devices)
            if elsewhere:
                yield (
                    "crossed",
                    f"{nic} of {node.name} belongs to {physnet} on the node, but to {elsewhere[0]} in the agent",
                )
            elif physnet in mapped:
                yield "skipped", f"{physnet}:{nic} on {node.name}"
        if physnet not in mapped:
            yield "unmapped", ", ".join(f"{physnet}:{nic} on {node.name}" for nic in sorted(nics) or ["NIC"])
    if node.interfaces is not None:
        for physnet, devices in sorted(mapped.items()):
            for device in sorted(devices - node.interfaces):
                yield "strange", f"{physnet}:{device} on {node.name}"


def _nodes(nodes: Iterable[WiredNode]) -> str:
    return listed(
        (
            f"{node.name} ({f'host {node.host}, ' if node.host != node.name else ''}{', '.join(sorted(node.physnets))})"
            for node in nodes
        ),
        NAMED,
    )


def _networks(facts: CloudFacts, nodes: Sequence[WiredNode] | Unseen) -> Iterator[Diagnosis]:
    """Whether each physical network of a device has a network."""
    check, networks = "networks", facts.networks
    if isinstance(networks, Failed):
        yield _unseen(check, networks)
        return
    if not networks:
        fix = "openstack network create, or share one with the project: openstack network rbac create"
        yield _finding(check, "error", "none of the networks may be used by netdra", fix, code="ND3201")
        return
    if all(network.physnet is None for network in networks):
        seen = (
            f"{len(networks)}; their physical networks are unknown: by default, "
            "get_network:provider:physical_network requires an administrator"
        )
        fix = "set networks in topologies or in --neutron-physnets; an administrator's clouds.yaml shows more here"
        yield _finding(check, "warning", seen, fix, code="ND3202")
        return
    of_devices = () if isinstance(nodes, Unseen) else _of_devices(nodes)
    lacking = sorted(set(of_devices) - {network.physnet for network in networks})
    if lacking:
        seen = f"no network that netdra may use is on {_plural('physical network', lacking)} {listed(lacking, NAMED)}"
        fix = f"openstack network create --provider-network-type vlan --provider-physical-network {lacking[0]} ..."
        yield _finding(check, "warning", seen, fix, code="ND3203")
    else:
        physnets = sorted({network.physnet for network in networks if network.physnet})
        yield _finding(check, "ok", f"{len(networks)}, on {listed(physnets, NAMED)}")


def _defaults(facts: CloudFacts, nodes: Sequence[WiredNode] | Unseen) -> Iterator[Diagnosis]:
    """Whether the networks of the controller's map are there, and of the physical network that they are given to."""
    physnets = None if isinstance(nodes, Unseen) else _of_devices(nodes)
    for physnet, network in sorted(facts.defaults.items()):
        yield _default(physnet, network)
        if physnets is not None and physnet not in physnets:
            fix = hint(physnet, physnets) or "docs/physnets.md describes how devices get one"
            yield _finding(f"network of {physnet}", "warning", f"no node has devices of {physnet}", fix, code="ND3204")


def _default(physnet: str, network: NeutronNetwork | Failed) -> Diagnosis:
    check = f"network of {physnet}"
    if isinstance(network, Failed):
        if network.reason in (NoNetworkError.reason, AmbiguousError.reason, OtherProjectError.reason):
            fix = (
                network.hint or "correct the name, or share the network with the project: openstack network rbac create"
            )
            return _finding(check, "error", network.what, fix)
        return _unseen(check, network)
    shown = network.name or network.id
    if network.physnet is None:
        return _finding(check, "ok", f"{shown}; its physical network could not be compared with {physnet}")
    if network.physnet != physnet:
        seen = f'{shown} belongs to physical network "{network.physnet or "none"}"'
        return _finding(check, "error", seen, f"set a network for {physnet} in --neutron-physnets", code="ND3205")
    return _finding(check, "ok", shown)


def _of_devices(nodes: Iterable[WiredNode]) -> tuple[str, ...]:
    return tuple(sorted({physnet for node in nodes for physnet in node.physnets}))


def _plural(word: str, things: Sequence[str]) -> str:
    return word if len(things) == 1 else f"{word}s"
