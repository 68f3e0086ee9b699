"""The verdicts on a cluster's NeutronPorts and a cloud's answers: the fact, the level, and a word of the next step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from netdra.doctor.diagnosis import Diagnosis, Unseen, worst
from netdra.doctor.neutron_look import interfaces_of, wires
from netdra.doctor.neutron_verdicts import (
    Account,
    CloudFacts,
    Failed,
    PortFacts,
    WiredNode,
    of_cloud,
    of_ports,
)
from netdra.model.meta import Condition, time_text
from netdra.model.neutron_port import ChosenVF, NeutronPort
from netdra.model.node_network import NodeInterfaces
from netdra.model.resource import ResourceSlice
from netdra.neutron.answers import Agent, NeutronNetwork, Port

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
JUST_NOW = time_text(NOW - timedelta(seconds=5))
LONG_AGO = time_text(NOW - timedelta(hours=3))


def condition(kind: str, status: Any, reason: str, message: str = "") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=LONG_AGO)


BOUND = condition("Bound", "True", "Bound")


def port(name: str, *conditions: Condition, since: str = LONG_AGO, deleted: str = "", step: str = "") -> NeutronPort:
    """A NeutronPort `n/<name>`."""
    metadata = {"name": name, "namespace": "n", "creationTimestamp": since}
    spec = {
        "claim": {"name": "c", "uid": "u"},
        "request": "vf",
        "pool": "p",
        "device": "d",
        "nodeName": "n1",
        "topology": "t",
        "step": "vf",
        "physnet": "physnet2",
        "pciAddress": "0000:05:10.1",
        "host": "n1",
    }
    plain = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "NeutronPort",
        "metadata": metadata | ({"deletionTimestamp": deleted} if deleted else {}),
        "spec": spec,
        "status": {"conditions": msgspec.to_builtins(conditions), "nextStep": step},
    }
    return msgspec.convert(plain, NeutronPort)


def unchosen(name: str, since: str = LONG_AGO) -> NeutronPort:
    """A NeutronPort of pooled VFs, of which the node has not chosen one."""
    made = port(name, since=since)
    return replace(made, spec=replace(made.spec, pci_address="", share_id="s"))


def told(facts: PortFacts) -> list[Diagnosis]:
    findings = of_ports(facts, "netdra", "net", NOW)
    assert {(finding.where, finding.check) for finding in findings} == {("cluster", "ports of Neutron")}
    assert all(bool(finding.fix) is (finding.level != "ok") for finding in findings)
    return findings


@pytest.mark.parametrize(
    ("facts", "level", "seen", "fix"),
    [
        ({"topologies": ()}, "ok", "no topology uses them", ""),
        ({}, "ok", "none", ""),
        ({"ports": (port("a", BOUND),)}, "ok", "1 NeutronPorts, all Bound", ""),
        (
            {"ports": (port("a", BOUND), port("b", since=JUST_NOW))},
            "ok",
            "2 NeutronPorts, 1 of them created a moment ago",
            "",
        ),
        (
            {"ports": (port("a", BOUND), port("b"))},
            "error",
            ("not processed by the controller: n/b for 3 h"),
            "deploy/net-con",
        ),
        (
            {"ports": (port("a", BOUND), unchosen("b"))},
            "warning",
            '1 wait for their nodes to select a VF: n/b for 3 h: ResourceClaim "n/c" is allocated on node n1',
            "driver run on node n1; the replacement of a deleted pod is scheduled again",
        ),
        ({"ports": (unchosen("a", JUST_NOW),)}, "ok", "1 NeutronPorts, 1 of them created a moment ago", ""),
        (
            {"ports": (replace(unchosen("a"), chosen_vf=ChosenVF(pci_address="0000:05:10.1")),)},
            "error",
            "the controller: n/a for 3 h",
            "deploy/net-con",
        ),
        (
            {"ports": (port("a", condition("Bound", "False", "Quota", "used up; quota set"), step="quota set"),)},
            "warning",
            "1 not Bound, Quota: n/a for 3 h: used up",
            "quota set",
        ),
        (
            {"ports": (port("a", condition("Bound", "False", "Refused", "no")),)},
            "warning",
            "1 not Bound, Refused: n/a for 3 h: no",
            "kubectl -n n describe neutronport a",
        ),
        (
            {"ports": (port("a", BOUND, deleted=LONG_AGO),)},
            "warning",
            "1 remain in Terminating: n/a for 3 h: the controller has not reported a reason",
            "docs/neutron.md",
        ),
        (
            {
                "ports": (
                    port("a", condition("Bound", "False", "Unreachable", "away; up?"), deleted=LONG_AGO, step="up?"),
                )
            },
            "warning",
            "1 remain in Terminating: n/a for 3 h: away",
            "docs/neutron.md",
        ),
        ({"ports": (port("a", BOUND, deleted=JUST_NOW),)}, "ok", "1 NeutronPorts", ""),
        (
            {"ports": (port("a", BOUND, condition("Enforced", "False", "NotEnforced", "security groups: no")),)},
            "warning",
            "1 not enforced: n/a for 3 h: security groups: no",
            "remove it in Neutron or from the topology",
        ),
        (
            {"ports": (port("a", BOUND, condition("Current", "False", "ChangedInNeutron", "VLAN 1 became 2")),)},
            "warning",
            "1 changed in Neutron: n/a for 3 h: VLAN 1 became 2",
            "pods with new claims get the new settings",
        ),
        ({"waiting": {"n/c": LONG_AGO}}, "error", "do not have a NeutronPort: n/c for 3 h", "logs deploy/net-con"),
        ({"waiting": {"n/c": JUST_NOW}}, "ok", "none", ""),
        ({"waiting": {"n/c": ""}}, "ok", "none", ""),
        ({"controllers": {"one": False, "other": True}}, "ok", "none", ""),
        ({"controllers": {"one": False}}, "error", "`neutron` (t), but no controller serves", "neutron.cloudsSecret"),
        ({"controllers": {"one": False}, "topologies": ()}, "ok", "no topology uses", ""),
        ({"ports": Unseen("forbidden")}, "warning", "could not be read: forbidden", "--kubeconfig"),
        ({"topologies": Unseen("forbidden")}, "warning", "could not be read: forbidden", "--kubeconfig"),
        ({"waiting": Unseen("forbidden")}, "warning", "could not be read: forbidden", "--kubeconfig"),
        ({"controllers": Unseen("forbidden")}, "warning", "could not be read: forbidden", "--kubeconfig"),
    ],
)
def test_each_state_of_neutron_ports_yields_one_finding_with_its_level_and_fix(
    facts: dict[str, Any], level: str, seen: str, fix: str
) -> None:
    (finding,) = told(PortFacts(**{"topologies": ("t",)} | facts))
    assert finding.level == level
    assert seen in finding.seen
    assert fix in finding.fix


def test_unbound_ports_are_grouped_by_reason_oldest_first_and_truncated_after_five() -> None:
    quota = condition("Bound", "False", "Quota", "used up")
    newer = msgspec.structs.replace(quota, last_transition_time=JUST_NOW, message="other")
    agent = condition("Bound", "False", "NoAgent", "dead")
    ports = (port("x", newer), *(port(f"p{number}", quota) for number in range(6)), port("z", agent))
    first, second = told(PortFacts(topologies=("t",), ports=ports))
    assert first.seen == "1 not Bound, NoAgent: n/z for 3 h: dead"
    names = ", ".join(f"n/p{number} for 3 h" for number in range(5))
    assert second.seen == f"7 not Bound, Quota: {names} and 2 more: used up"


NODES = (
    WiredNode(
        name="n1",
        host="host-1",
        physnets={"physnet2": frozenset({"eth2"}), "physnet3": frozenset({"eth3"})},
        interfaces=frozenset({"eth0", "eth2", "eth3"}),
    ),
    WiredNode(name="n2", host="n2", physnets={"physnet2": frozenset({"eth2"})}),
)
PHYSNETS = {"physnet2": ["eth2"], "physnet3": ["eth3"]}


def agent(host: str, *, alive: bool = True, **mappings: list[str]) -> Agent:
    return Agent(
        host=host, agent_type="NIC Switch agent", alive=alive, configurations={"device_mappings": mappings or PHYSNETS}
    )


def vf_port(vif_type: str) -> Port:
    return Port(id="p", network_id="n", vif_type=vif_type)


DATA = NeutronNetwork(id="1", name="data", physnet="physnet2")
STORAGE = NeutronNetwork(id="2", name="storage", physnet="physnet3")
UNSEEN = NeutronNetwork(id="3", name="unseen")
ACCOUNT = Account(user="netdra", project="k8s", roles=("member", "service"), url="https://neutron")
WELL = CloudFacts(
    account=ACCOUNT,
    extensions=frozenset({"binding"}),
    ports=(vf_port("hw_veb"),),
    agents=(agent("host-1"), agent("n2")),
    sees_agents=True,
    networks=(DATA, STORAGE),
    defaults={"physnet2": DATA},
)
GONE = Failed("Unreachable", "Neutron: GET ports: no answer", "must answer")


def test_a_cloud_that_has_everything_has_no_trouble() -> None:
    findings = of_cloud(WELL, NODES)
    assert [finding for finding in findings if finding.level != "ok" or finding.fix] == []
    assert {finding.where for finding in findings} == {"neutron"}
    assert {finding.check: finding.seen for finding in findings} == {
        "login": 'user "netdra" of project "k8s"',
        "Neutron": "https://neutron is reachable and supports port binding (extension binding)",
        "roles": "member, service",
        "mechanism sriovnicswitch": "has bound 1 of netdra's ports",
        "NIC switch agents": "alive for 2 nodes and physnet2, physnet3",
        "networks": "2, on physnet2, physnet3",
        "network of physnet2": "data",
    }


@pytest.mark.parametrize(
    ("changed", "check", "level", "seen", "fix"),
    [
        ({"account": Failed("Unauthorized", "401", "its secret")}, "login", "error", "401", "its secret"),
        ({"extensions": GONE}, "Neutron", "error", "no answer", "must answer"),
        ({"extensions": frozenset({"qos"})}, "Neutron", "error", "does not support the extension binding:", "ml2"),
        (
            {"account": replace(ACCOUNT, roles=("member",))},
            "roles",
            "error",
            "role service missing (found: member):",
            "role add --user netdra --project k8s service",
        ),
        (
            {"account": replace(ACCOUNT, roles=())},
            "roles",
            "error",
            "roles member and service missing",
            "k8s member; openstack",
        ),
        ({"ports": ()}, "mechanism sriovnicswitch", "warning", "the API does not list mechanisms", "mechanism_drivers"),
        ({"ports": GONE}, "mechanism sriovnicswitch", "warning", "could not be read: Neutron", "mechanism_drivers"),
        ({"ports": (vf_port("ovs"),)}, "mechanism sriovnicswitch", "error", "which are ovs", "mechanism_drivers"),
        (
            {"agents": (), "sees_agents": False},
            "NIC switch agents",
            "warning",
            "unknown: Neutron does not show agents to this user; by default, get_agent",
            "administrator's clouds.yaml",
        ),
        ({"agents": GONE}, "NIC switch agents", "warning", "could not be read: Neutron: GET", "must answer"),
        (
            {"agents": ()},
            "NIC switch agents",
            "error",
            (
                "2 nodes do not have an agent, so their VFs do not get ports: n1 (host host-1, physnet2, "
                "physnet3), n2 (physnet2)"
            ),
            "kubectl annotate node n1 networking.dra.io/neutron-host=HOST",
        ),
        (
            {"agents": (), "sees_agents": False, "account": replace(ACCOUNT, roles=("admin", "member", "service"))},
            "NIC switch agents",
            "error",
            "no agents found",
            "neutron-sriov-nic-agent",
        ),
        (
            {"agents": (agent("host-1"), agent("compute-2"))},
            "NIC switch agents",
            "error",
            (
                "1 nodes do not have an agent, so their VFs do not get ports: n2 (physnet2); agents are "
                "on compute-2, host-1"
            ),
            "annotate node n2",
        ),
        (
            {"agents": (agent("host-1", alive=False), agent("n2"))},
            "NIC switch agents",
            "error",
            "not alive on the hosts of 1 nodes, whose VFs do not get ports: n1 (host host-1",
            "agent list --host host-1",
        ),
        (
            {"agents": (agent("host-1", physnet2=["eth2"]), agent("n2"))},
            "NIC switch agents",
            "error",
            "do not get ports: physnet3:eth3 on n1",
            "physical_device_mappings",
        ),
        (
            {"agents": (agent("host-1", physnet2=["eth2", "eth9"], physnet3=["eth3"]), agent("n2"))},
            "NIC switch agents",
            "warning",
            "devices that the nodes do not have: physnet2:eth9 on n1",
            "correct",
        ),
        (
            {"agents": (agent("host-1"), agent("n2", physnet2=["eth7"]))},
            "NIC switch agents",
            "warning",
            "lack NICs that VFs belong to: physnet2:eth2 on n2",
            "add them",
        ),
        ({"networks": ()}, "networks", "error", "none of the networks may be used by netdra", "network create"),
        ({"networks": GONE}, "networks", "warning", "could not be read", "must answer"),
        ({"networks": (UNSEEN,)}, "networks", "warning", "their physical networks are unknown", "--neutron-physnets"),
        ({"networks": (DATA,)}, "networks", "warning", "is on physical network physnet3", "physical-network physnet3"),
        (
            {"defaults": {"physnet2": Failed("NoNetwork", 'no network "blue"')}},
            "network of physnet2",
            "error",
            "blue",
            "correct the name",
        ),
        ({"defaults": {"physnet2": GONE}}, "network of physnet2", "warning", "could not be read", "answer"),
        (
            {"defaults": {"physnet2": Failed("Ambiguous", "2 subnets", "give the id")}},
            "network of physnet2",
            "error",
            "2 subnets",
            "give the id",
        ),
        (
            {"defaults": {"physnet2": STORAGE}},
            "network of physnet2",
            "error",
            'storage belongs to physical network "physnet3"',
            "--neutron-physnets",
        ),
        (
            {"defaults": {"physnet": UNSEEN}},
            "network of physnet",
            "warning",
            "no node has devices of physnet",
            "physnet2",
        ),
    ],
)
def test_each_cloud_problem_is_reported_with_a_level_and_a_fix(
    changed: dict[str, Any], check: str, level: str, seen: str, fix: str
) -> None:
    findings = [finding for finding in of_cloud(replace(WELL, **changed), NODES) if finding.level != "ok"]
    assert [(finding.check, finding.level) for finding in findings] == [(check, level)]
    assert seen in findings[0].seen
    assert fix in findings[0].fix


def test_an_agent_with_swapped_physical_networks_is_reported_as_an_error() -> None:
    agents = (agent("host-1", physnet2=["eth3"], physnet3=["eth2"]), agent("n2"))
    (finding,) = [finding for finding in of_cloud(replace(WELL, agents=agents), NODES) if finding.level != "ok"]
    assert (finding.check, finding.level) == ("NIC switch agents", "error")
    assert finding.seen.endswith(
        "eth2 of n1 belongs to physnet2 on the node, but to physnet3 in the agent, eth3 of n1 belongs "
        "to physnet3 on the node, but to physnet2 in the agent"
    )


def test_a_warning_about_an_agent_keeps_the_ok_finding_about_live_agents() -> None:
    agents = (agent("host-1"), agent("n2", physnet2=["eth2"], physnet9=["eth9"]))
    nodes = (NODES[0], replace(NODES[1], interfaces=frozenset({"eth2"})))
    findings = [finding for finding in of_cloud(replace(WELL, agents=agents), nodes) if finding.check.startswith("NIC")]
    assert [finding.level for finding in findings] == ["ok", "warning"]
    assert findings[1].seen.endswith("physnet9:eth9 on n2")


def test_unreadable_nodes_skip_the_agent_check_and_without_physnets_agents_are_not_needed() -> None:
    findings = of_cloud(WELL, Unseen("no kubeconfig"))
    (finding,) = [finding for finding in findings if finding.level != "ok"]
    assert finding.seen == "could not be compared with the nodes: no kubeconfig"
    (idle,) = [finding for finding in of_cloud(WELL, ()) if finding.check == "NIC switch agents"]
    assert (idle.level, idle.seen) == ("warning", "not needed yet: no node publishes devices with physnet")


def test_checks_stop_at_a_failed_login_or_an_unreachable_neutron() -> None:
    assert [finding.check for finding in of_cloud(CloudFacts(account=GONE), NODES)] == ["login"]
    gone = CloudFacts(account=ACCOUNT, extensions=GONE)
    assert [finding.check for finding in of_cloud(gone, NODES)] == ["login", "Neutron"]
    assert worst(of_cloud(gone, NODES)) == "error"


def test_roles_are_not_checked_without_a_login() -> None:
    nobody = Account(user="", project="", roles=(), url="http://neutron")
    findings = {finding.check: finding for finding in of_cloud(replace(WELL, account=nobody), NODES)}
    assert "roles" not in findings
    assert findings["login"].seen == "without a login (auth_type none)"


def published(name: str, node: str, *devices: dict[str, Any], generation: int = 1) -> ResourceSlice:
    plain = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "dra.networking",
            "nodeName": node,
            "pool": {"name": f"{node}/p", "generation": generation, "resourceSliceCount": 1},
            "devices": [
                {"name": f"d{number}", "attributes": {key: {"string": value} for key, value in device.items()}}
                for number, device in enumerate(devices)
            ],
        },
    }
    return msgspec.convert(plain, ResourceSlice)


def test_nics_of_physical_networks_are_those_of_the_newest_slices() -> None:
    slices = (
        published("old", "n1", {"physnet": "gone", "pfName": "eth9"}),
        published(
            "new",
            "n1",
            {"physnet": "physnet2", "pfName": "eth2", "ifName": "eth2v0"},
            {"dra.networking/physnet": "physnet2", "ifName": "eth4"},
            {"physnet": "physnet3"},
            {"ifName": "eth0"},
            generation=2,
        ),
        published("other", "n2", {"ifName": "eth0"}),
    )
    assert wires(slices) == {"n1": {"physnet2": frozenset({"eth2", "eth4"}), "physnet3": frozenset()}}


def test_interfaces_are_those_that_a_node_reports() -> None:
    groups = [{"type": "pf", "count": 2, "names": ["eth2", "eth3"]}, {"type": "vf", "count": 1, "names": ["eth2v0"]}]
    report = msgspec.convert({"metadata": {"name": "n1"}, "status": {"interfaces": groups}}, NodeInterfaces)
    assert interfaces_of(report) == frozenset({"eth2", "eth3"})
    assert interfaces_of(None) is None
    assert interfaces_of(NodeInterfaces(metadata=report.metadata)) is None
