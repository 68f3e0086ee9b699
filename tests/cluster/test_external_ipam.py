"""An external IPAM maintains reservations and learns uses, by the role and the scripts of the documentation alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import yaml
from testbed.api import Api, Object
from testbed.build import program
from testbed.control_plane import ControlPlane
from testbed.kubectl import denial, kubectl
from testbed.objects import manifest
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import running_controller, running_webhook
from tests.cluster.test_pod_networks import ADDRESS, NETWORK, Net

EXAMPLE = Path(__file__).parents[2] / "examples" / "external-ipam"
ROLE = "netdra-ipam"
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module", autouse=True)
def daemons(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller and the webhook."""
    with running_controller(control_plane, api) as process, running_webhook(control_plane, api):
        yield process


class Agent:
    """The program that connects the external IPAM, with its kubeconfig and nothing else."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._kubectl = f"{program('kubectl')} --kubeconfig={kubeconfig}"

    def reserve(self, network: str, *lines: str) -> str:
        """Make these the agent's reservations; returns the error, "" without one."""
        done = subprocess.run(
            [EXAMPLE / "reserve.sh", network],
            input="".join(f"{line}\n" for line in lines),
            env=os.environ | {"KUBECTL": self._kubectl},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stderr if done.returncode else ""

    def uses(self) -> subprocess.Popen[str]:
        """Follow the uses of addresses."""
        environment = os.environ | {"KUBECTL": self._kubectl}
        return subprocess.Popen([EXAMPLE / "uses.sh"], env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def agent(control_plane: ControlPlane, workspace: Workspace) -> Agent:
    """The agent with the chart's role."""
    name = workspace.name("ipam-agent")
    (role,) = (each for each in identities.rights("people.yaml") if each["metadata"]["name"] == ROLE)
    workspace.create(role)
    account, binding = yaml.safe_load_all((EXAMPLE / "rights.yaml").read_text())
    assert binding["subjects"] == [
        {"kind": account["kind"], **{key: account["metadata"][key] for key in ("name", "namespace")}}
    ]
    subjects = [{"kind": "User", "name": name, "apiGroup": RBAC}]
    workspace.create({**manifest(f"{RBAC}/v1/ClusterRoleBinding", name), **binding_of(binding), "subjects": subjects})
    kubeconfig = control_plane.kubeconfig(name, ["others"])
    until(lambda: not denial(kubeconfig, "get", "podaddresses"), "the rights to be heeded")
    return Agent(kubeconfig)


def binding_of(binding: Object) -> Object:
    """The role of a binding."""
    return {"roleRef": binding["roleRef"]}


def reservations(net: Net) -> dict[str, str]:
    """The names by reserved address."""
    found = net.api.get(NETWORK, net.name)
    return {entry["address"]: entry["name"] for entry in found["spec"].get("reservations", ())}


def test_an_external_ipam_maintains_its_reservations_beside_those_of_others(workspace: Workspace, agent: Agent) -> None:
    namespace = workspace.namespace
    by_hand = {"address": "10.82.0.9", "namespace": namespace, "name": "by-hand"}
    net = Net(workspace, ranges=[{"cidr": "10.82.0.0/24"}], keepSeconds=0, reservations=[by_hand])
    mine, printer = f"10.82.0.5,{namespace},mine", "10.82.0.1,outside,printer"
    assert agent.reserve(net.name, mine, printer) == ""
    assert reservations(net) == {"10.82.0.9": "by-hand", "10.82.0.5": "mine", "10.82.0.1": "printer"}

    net.claim("any")
    net.until("any", "10.82.0.2/24")  # the first address has a printer, by the external IPAM
    net.claim("mine")
    net.until("mine", "10.82.0.5/24")
    assert agent.reserve(net.name, mine) == ""
    assert reservations(net) == {"10.82.0.9": "by-hand", "10.82.0.5": "mine"}
    net.claim("first", requested="10.82.0.1")
    net.until("first", "10.82.0.1/24")

    assert "conflict" in agent.reserve(net.name, f"10.82.0.9,{namespace},another")
    assert "10.99.0.1" in agent.reserve(net.name, "10.99.0.1,outside,printer")
    assert reservations(net)["10.82.0.9"] == "by-hand"


def test_the_example_keeps_the_reservations_when_its_network_is_applied_again(
    workspace: Workspace, control_plane: ControlPlane, agent: Agent
) -> None:
    text = (EXAMPLE / "network.yaml").read_text()
    workspace.create(yaml.safe_load(text))
    assert agent.reserve("office", "10.82.0.5,db,postgres-0", "10.82.0.6,outside,printer") == ""
    for arguments in (("apply",), ("apply", "--server-side")):
        kubectl(control_plane.kubeconfig(), *arguments, "-f", "-", text=text)
        found = workspace.api.get(NETWORK, "office")
        assert [entry["name"] for entry in found["spec"]["reservations"]] == ["postgres-0", "printer"]


def test_an_external_ipam_learns_the_use_of_each_address(workspace: Workspace, agent: Agent) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.83.0.0/29"}], keepSeconds=3600)
    net.claim("before")
    net.until("before", "10.83.0.1/29")
    uses = agent.uses()
    try:
        assert uses.stdout is not None
        lines = (line.split() for line in uses.stdout)
        own = (line for line in lines if line[1] == net.name)
        assert next(own) == ["ADDED", net.name, "10.83.0.1/29", workspace.namespace, "before", "used"]
        net.claim("after")
        assert next(own) == ["ADDED", net.name, "10.83.0.2/29", workspace.namespace, "after", "used"]
        net.release("after")
        assert next(own) == ["MODIFIED", net.name, "10.83.0.2/29", workspace.namespace, "after", "kept"]
        net.api.delete(ADDRESS, f"{net.name}.10.83.0.2")
        assert next(own) == ["DELETED", net.name, "10.83.0.2/29", workspace.namespace, "after", "kept"]
    finally:
        uses.terminate()
        uses.communicate(timeout=10)


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"ranges": [{"cidr": "10.85.0.0/24"}]}},
        {"spec": {"ranges": [{"cidr": "10.84.0.0/24", "gateway": "10.84.0.7"}]}},
        {"spec": {"dns": ["192.0.2.1"]}},
        {"spec": {"routes": [{"destination": "0.0.0.0/0", "gateway": "10.84.0.7"}]}},
        {"spec": {"onDuplicate": None}},
        {"spec": {"vlan": 7}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"finalizers": ["example.com/mine"]}},
    ],
)
def test_the_role_of_an_external_ipam_changes_only_reservations(
    workspace: Workspace, agent: Agent, patch: Object
) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.84.0.0/24"}], onDuplicate="Report")
    text = ("patch", "podnetwork", net.name, "--type=merge", "-p", yaml.safe_dump(patch))
    said: list[str] = []

    def is_rejected() -> bool:
        said[:] = [denial(agent.kubeconfig, *text)]
        return "may change only spec.reservations" in said[0]

    until(is_rejected, "the policy to be heeded", detail=lambda: str(said))
    mine = yaml.safe_dump({"spec": {"reservations": [{"address": "10.84.0.5", "namespace": "db", "name": "web-0"}]}})
    kubectl(agent.kubeconfig, "patch", "podnetwork", net.name, "--type=merge", "-p", mine)
    assert reservations(net) == {"10.84.0.5": "web-0"}


def test_the_role_of_an_external_ipam_neither_creates_nor_deletes(workspace: Workspace, agent: Agent) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.86.0.0/24"}])
    net.claim("one")
    net.until("one", "10.86.0.1/24")
    assert "forbidden" in denial(agent.kubeconfig, "delete", "podnetwork", net.name)
    assert "forbidden" in denial(agent.kubeconfig, "delete", "podaddress", f"{net.name}.10.86.0.1")
    made = yaml.safe_dump(manifest(NETWORK, "another", spec={"ranges": [{"cidr": "10.87.0.0/24"}]}))
    assert "forbidden" in denial(agent.kubeconfig, "apply", "--server-side", "-f", "-", text=made)
    assert "spec.ranges: Required value" in agent.reserve("no-such-network", "10.86.0.9,outside,printer")
