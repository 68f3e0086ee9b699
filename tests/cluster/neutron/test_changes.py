"""Operators' changes in the real Neutron, and their view there, while the controller does not search all ports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from testbed.api import Object
from testbed.openstack.cloud import Cloud
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.neutron.test_ports_of_claims import (
    PATIENCE,
    ask,
    bound,
    claim_of,
    in_neutron,
    node,
    ports,
    topology,
    wait,
)

__all__ = ["node"]


@pytest.fixture(scope="module")
def arguments(cloud: Cloud, network: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("clouds")
    (folder / "physnets.yaml").write_text("physnet2: {network: data}\n")
    return (
        f"--neutron-clouds={cloud.clouds(folder / 'clouds.yaml')}",
        f"--neutron-physnets={folder / 'physnets.yaml'}",
        "--neutron-check-interval=3600",
        "--neutron-poll-interval=1",
        "--neutron-cluster-name=prod 1",
    )


def condition(workspace: Workspace, claim: str, kind: str) -> Callable[[], str]:
    """The message of a condition of a claim's port; "" without one."""

    def message() -> str:
        (port,) = ports(workspace, claim)
        conditions = port["status"]["conditions"]
        return next((one["message"] for one in conditions if one["type"] == kind), "")

    return message


def notes(workspace: Workspace, reason: str, text: str) -> Callable[[], set[str]]:
    """The kinds of objects that events with a text are of."""
    return lambda: {
        event["regarding"]["kind"]
        for event in workspace.api.list("events.k8s.io/v1/Event", workspace.namespace)
        if event["reason"] == reason and text in event["note"]
    }


def test_operators_find_a_pods_port_by_its_tags(workspace: Workspace, cloud: Cloud, node: str) -> None:
    ask(workspace, "web", topology(workspace), node)
    (port,) = wait(workspace, "web")
    query = f"tags=netdra:namespace%3D{workspace.namespace},netdra:claim%3Dweb,netdra:cluster%3Dprod_1"

    def tagged() -> list[Any]:
        return list(cloud.admin("neutron", "GET", f"/v2.0/ports?{query}")["ports"])

    (stored,) = until(tagged, "the port's tags", seconds=PATIENCE)
    assert stored["id"] == port["status"]["portID"]
    assert stored["name"] == f"{workspace.namespace}/web/vf"
    assert f"port={port['metadata']['name']}; " in stored["description"]
    assert node in stored["description"]


def test_changes_in_neutron_are_reported_without_a_search_of_all_ports(
    workspace: Workspace, cloud: Cloud, node: str
) -> None:
    class_name = topology(workspace)
    for name in ("changed", "deleted"):
        ask(workspace, name, class_name, node)
        wait(workspace, name)
    (changed,), (deleted,) = ports(workspace, "changed"), ports(workspace, "deleted")
    path = f"/v2.0/ports/{changed['status']['portID']}"
    current = condition(workspace, "changed", "Current")
    cloud.admin("neutron", "PUT", path, {"port": {"admin_state_up": False}})
    until(lambda: "admin state up changed to down" in current(), "the admin state", seconds=PATIENCE, detail=current)
    policy = cloud.admin("neutron", "POST", "/v2.0/qos/policies", {"policy": {"name": "slow", "shared": True}})[
        "policy"
    ]
    cloud.admin("neutron", "PUT", path, {"port": {"admin_state_up": True, "qos_policy_id": policy["id"]}})
    until(lambda: not current(), "the port to be as it was", seconds=PATIENCE, detail=current)
    limit = {"bandwidth_limit_rule": {"max_kbps": 5000, "direction": "egress"}}
    cloud.admin("neutron", "POST", f"/v2.0/qos/policies/{policy['id']}/bandwidth_limit_rules", limit)
    until(lambda: "maximum rate none changed to 5 Mbit/s" in current(), "the rate", seconds=PATIENCE, detail=current)
    until(lambda: notes(workspace, "ChangedInNeutron", "5 Mbit/s")() == {"ResourceClaim"}, "an event", seconds=PATIENCE)
    assert ports(workspace, "changed")[0]["status"]["settings"] == changed["status"]["settings"]
    cloud.admin("neutron", "DELETE", f"/v2.0/ports/{deleted['status']['portID']}")
    wait(workspace, "deleted", "Lost")


def test_a_quota_with_room_again_is_noticed_soon(
    workspace: Workspace, cloud: Cloud, node: str, controller: Process
) -> None:
    class_name = topology(workspace)
    until(lambda: not cloud.ports(), "the ports of other tests to go", seconds=PATIENCE)
    cloud.limit(0)
    try:
        for name in ("first", "second"):
            ask(workspace, name, class_name, node)
        for name in ("first", "second"):
            wait(workspace, name, "Quota")
    finally:
        cloud.limit(-1)
    until(
        lambda: all(bound(port)[0] == "True" for name in ("first", "second") for port in ports(workspace, name)),
        "both ports",
        seconds=50.0,  # less than the minute after which each refused port is tried by itself
        detail=lambda: str([bound(port) for port in ports(workspace)]),
    )
    for name in ("first", "second"):
        assert len(in_neutron(cloud, claim_of(workspace, name))) == 1


def test_security_groups_are_reported_as_not_enforced_on_vfs(
    workspace: Workspace, cloud: Cloud, network: Any, node: str
) -> None:
    rules = {"name": "web", "project_id": network["project_id"]}
    group: Object = cloud.admin("neutron", "POST", "/v2.0/security-groups", {"security_group": rules})["security_group"]
    ask(workspace, "grouped", topology(workspace, securityGroups=[group["id"]]), node)
    wait(workspace, "grouped")
    assert condition(workspace, "grouped", "Enforced")().startswith("security groups are not enforced")
    until(lambda: notes(workspace, "NotEnforced", "security groups")() == {"ResourceClaim"}, "an event")
