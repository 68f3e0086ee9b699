"""`netdra networks release-kept` on the real API server: listed and released addresses, and the rights of users."""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from netdra.controller.addresses import kept as keeping
from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.kube.kubeconfig import find_config
from netdra.networks.kept import KeptSelection
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.daemons import running_controller
from tests.cluster.test_pod_networks import Net


@pytest.fixture(scope="module", autouse=True)
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work, with the rights of its account and no others."""
    with running_controller(control_plane, api) as process:
        yield process


def release(kubeconfig: Path, *arguments: str, code: int = 0) -> tuple[dict[str, str], str]:
    """Run the command; returns the states by address, and the messages."""
    command = [sys.executable, "-m", "netdra", "networks", "release-kept", *arguments, "-o", "json"]
    done = subprocess.run([*command, f"--kubeconfig={kubeconfig}"], capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    listed = json.loads(done.stdout) if done.stdout else []
    return {entry["address"]: entry["state"] for entry in listed}, done.stderr


@pytest.fixture
def administrator(control_plane: ControlPlane) -> Path:
    """A kubeconfig with all rights."""
    return control_plane.kubeconfig("administrator", ["system:masters"])


def kept_by(workspace: Workspace, *names: str, node: str = "", subnet: str = "10.14.0.0/24") -> Net:
    """A network that keeps an address for each of these claims, which are gone, and assigns one to a claim `user`."""
    net = Net(workspace, ranges=[{"cidr": subnet}], keepSeconds=3600, quarantineSeconds=0)
    for name in names:
        net.claim(name, node=node)
        until(functools.partial(net.of, name), f"claim {name} to have an address")
    net.claim("user")
    until(lambda: net.of("user"), "the last claim to have an address")
    for name in names:
        net.release(name)
    until(lambda: len(kept(net)) == len(names), "the addresses to be kept", detail=lambda: str(net.addresses))
    return net


def kept(net: Net) -> list[Object]:
    """The PodAddresses of a network without a claim."""
    return [entry for entry in net.addresses if "claim" not in entry["spec"]]


def test_kept_addresses_are_listed_first_and_then_released_for_other_claims(
    workspace: Workspace, administrator: Path
) -> None:
    net = kept_by(workspace, "postgres-0", "postgres-1", "web-0")
    states, told = release(administrator, net.name)
    assert states == {"10.14.0.1": "kept", "10.14.0.2": "kept", "10.14.0.3": "kept"}
    assert "dry run: nothing was written" in told
    assert len(kept(net)) == 3
    assert release(administrator, net.name, "--older-than=1d", "--apply")[0] == {}
    assert release(administrator, net.name, "--namespace=another", "--apply")[0] == {}
    assert 'PodNetwork "no-such" does not exist' in release(administrator, "no-such", code=2)[1]
    for wrong in ((), (net.name, "--all"), (net.name, "--older-than=soon")):
        release(administrator, *wrong, code=2)

    chosen = (f"--namespace={workspace.namespace}", "--owner=postgres-*", "--apply")
    assert release(administrator, "--all", *chosen)[0] == {"10.14.0.1": "released", "10.14.0.2": "released"}
    assert [entry["spec"]["owner"]["claim"] for entry in kept(net)] == ["web-0"]
    assert net.of("user") == ["10.14.0.4/24"]
    net.claim("new", requested="10.14.0.1")
    net.until("new", "10.14.0.1/24")
    net.until_status(used=2, reserved=1)


def test_an_address_that_its_node_has_not_reported_as_free_is_not_released(
    workspace: Workspace, administrator: Path
) -> None:
    net = kept_by(workspace, "postgres-0", node=workspace.add_node(), subnet="10.15.0.0/24")
    assert release(administrator, net.name)[0] == {"10.15.0.1": "held"}
    states, told = release(administrator, net.name, "--apply", code=4)
    assert states == {"10.15.0.1": "held"}
    assert "1 held by its node" in told
    assert len(kept(net)) == 1


def test_an_address_that_a_claim_has_got_meanwhile_stays(workspace: Workspace, administrator: Path) -> None:
    net = kept_by(workspace, "postgres-0", subnet="10.16.0.0/24")

    async def work() -> list[tuple[str, str]]:
        async with Client(connect(find_config(administrator))) as client:
            planned = await keeping.plan(client, KeptSelection((net.name,)), datetime.now(UTC))
            await asyncio.to_thread(net.claim, "postgres-0")
            await asyncio.to_thread(net.until, "postgres-0", "10.16.0.1/24")
            done = await keeping.write(client, planned)
        return [(entry.shown.state, entry.shown.detail) for entry in done]

    assert asyncio.run(work()) == [("changed", "assigned to claim postgres-0 meanwhile")]
    assert net.of("postgres-0") == ["10.16.0.1/24"]


def test_the_command_has_the_rights_of_its_user_and_no_others(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    net = kept_by(workspace, "postgres-0", subnet="10.17.0.0/24")
    user = control_plane.kubeconfig("someone-releasing", ["others"])
    assert 'cannot list resource "podnetworks"' in release(user, net.name, code=3)[1]
    rules = [
        {"apiGroups": ["networking.dra.io"], "resources": ["podnetworks"], "verbs": ["list"]},
        {"apiGroups": ["networking.dra.io"], "resources": ["podaddresses"], "verbs": ["get", "list", "delete"]},
    ]
    role = workspace.name("releaser")
    made = workspace.create({**manifest("rbac.authorization.k8s.io/v1/ClusterRole", role), "rules": rules})
    subjects = [{"kind": "User", "name": "someone-releasing", "apiGroup": "rbac.authorization.k8s.io"}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    binding = manifest("rbac.authorization.k8s.io/v1/ClusterRoleBinding", role)
    workspace.create({**binding, "roleRef": reference, "subjects": subjects})
    until(lambda: run_dry(user, net) == {"10.17.0.1": "kept"}, "the rights to be heeded")
    assert "may not write PodAddresses" in release(user, net.name, "--apply", code=3)[1]
    assert len(kept(net)) == 1
    made["rules"][1]["verbs"].append("release")
    net.api.update(made)
    until(lambda: not kept(net) or apply(user, net), "the right to be heeded")


def run_dry(kubeconfig: Path, net: Net) -> dict[str, str]:
    """The states that a dry run lists; none without the rights."""
    command = [sys.executable, "-m", "netdra", "networks", "release-kept", net.name, "-o", "json"]
    done = subprocess.run([*command, f"--kubeconfig={kubeconfig}"], capture_output=True, text=True, check=False)
    return {entry["address"]: entry["state"] for entry in json.loads(done.stdout or "[]")}


def apply(kubeconfig: Path, net: Net) -> bool:
    """Release the kept addresses of a network; returns whether that was allowed."""
    command = [sys.executable, "-m", "netdra", "networks", "release-kept", net.name, "--apply"]
    done = subprocess.run([*command, f"--kubeconfig={kubeconfig}"], capture_output=True, text=True, check=False)
    return done.returncode == 0
