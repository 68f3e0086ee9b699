"""Leases of whereabouts and host-local are imported into PodNetworks while their pods run, and end with them.

whereabouts' kinds are served by the real API server, with the fields that its leases have; host-local is the program.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed import build
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.kubectl import denial, kubectl
from testbed.objects import manifest
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import running_controller
from tests.cluster.test_controller import EVENT
from tests.cluster.test_pod_networks import ADDRESS, Net
from tests.cluster.whereabouts import POOL, RESERVATION, serving_kinds


@pytest.fixture(scope="module", autouse=True)
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work, with the rights of its account and no others."""
    with running_controller(control_plane, api) as process:
        yield process


@pytest.fixture(scope="module")
def whereabouts(api: Api) -> Iterator[None]:
    """The kinds of whereabouts."""
    with serving_kinds(api):
        yield


def _reasons(workspace: Workspace) -> set[str]:
    """The reasons of a workspace's events."""
    return {event["reason"] for event in workspace.api.list(EVENT, workspace.namespace)}


class Importer:
    """`netdra networks` with a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def __call__(self, *arguments: str, code: int = 0) -> tuple[dict[str, str], str]:
        """Run it; returns the states by address, and the messages."""
        command = [sys.executable, "-m", "netdra", "networks", *arguments, "-o", "json"]
        done = subprocess.run(
            [*command, f"--kubeconfig={self._kubeconfig}"], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        listed = json.loads(done.stdout) if done.stdout else []
        return {entry["address"]: entry["state"] for entry in listed}, done.stderr


@pytest.fixture
def networks(control_plane: ControlPlane) -> Importer:
    """`netdra networks` of the administrator."""
    return Importer(control_plane.kubeconfig("importer", ["system:masters"]))


def _pool(workspace: Workspace, name: str, subnet: str, leases: dict[int, str]) -> Object:
    allocations = {
        str(distance): {"id": f"c{distance}", "podref": pod, "ifname": "net1"} for distance, pod in leases.items()
    }
    spec = {"range": subnet, "allocations": allocations}
    return workspace.create(manifest(POOL, name, workspace.namespace, spec=spec))


def test_a_cluster_without_whereabouts_is_an_error_with_the_next_step(workspace: Workspace, networks: Importer) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.79.0.0/24"}])
    _, told = networks("import", "no-such", code=2)
    assert 'PodNetwork "no-such" does not exist' in told
    _, told = networks("import", net.name, code=2)
    assert "the cluster has no IPPools" in told
    assert "netdra networks release" in told


@pytest.mark.usefixtures("whereabouts")
def test_leases_of_whereabouts_are_not_assigned_while_they_exist(workspace: Workspace, networks: Importer) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.77.0.0/29"}, {"cidr": "2001:db8:77::/64"}], keepSeconds=0)
    _pool(workspace, "10.77.0.0-29", "10.77.0.0/29", {1: "db/web-0", 2: "db/web-1"})
    _pool(workspace, "2001-db8-77---64", "2001:db8:77::/64", {1: "db/web-0"})
    _pool(workspace, "10.99.0.0-24", "10.99.0.0/24", {1: "db/web-0"})
    reserved = manifest(RESERVATION, "lan-10.77.0.3", workspace.namespace, spec={"podref": "db/web-2"})
    workspace.create(reserved)
    everything = ("10.77.0.1", "10.77.0.2", "10.77.0.3", "2001:db8:77::1")

    states, told = networks("import", net.name)
    assert states == dict.fromkeys(everything, "new")
    assert "4 to import, 1 outside the ranges" in told
    assert "dry run" in told
    assert net.addresses == []

    assert networks("import", net.name, "--apply")[0] == dict.fromkeys(everything, "new")
    assert networks("import", net.name, "--apply")[0] == dict.fromkeys(everything, "imported")
    net.until_status(reserved=4, used=0)
    net.claim("mine")
    net.until("mine", "10.77.0.4/29", "2001:db8:77::2/64")
    net.claim("wants-a-lease", requested="10.77.0.2")
    until(lambda: "AddressTaken" in _reasons(workspace), "the leased address to be refused")
    assert net.of("wants-a-lease") == []

    # whereabouts releases an address when its pod ends.
    pool = net.api.get(POOL, "10.77.0.0-29", workspace.namespace)
    pool["spec"]["allocations"] = {"1": pool["spec"]["allocations"]["1"]}
    net.api.update(pool)
    states, told = networks("import", net.name, "--apply")
    assert states == dict.fromkeys(everything, "imported") | {"10.77.0.2": "ended"}
    assert "3 already imported, 1 released" in told
    net.until("wants-a-lease", "10.77.0.2/29", "2001:db8:77::3/64")

    # Another pod gets an address of whereabouts that netdra has assigned: reported, not overwritten.
    pool = net.api.get(POOL, "10.77.0.0-29", workspace.namespace)
    pool["spec"]["allocations"]["4"] = {"id": "c4", "podref": "db/late", "ifname": "net1"}
    net.api.update(pool)
    states, told = networks("import", net.name, "--apply", code=1)
    assert states["10.77.0.4"] == "conflict"
    assert net.of("mine") == ["10.77.0.4/29", "2001:db8:77::2/64"]

    states, _ = networks("release", net.name, "--apply")
    assert states == dict.fromkeys(("10.77.0.1", "10.77.0.3", "2001:db8:77::1"), "ended")
    net.until_status(reserved=0, used=4)
    assert networks("release", net.name)[0] == {}


@pytest.mark.usefixtures("whereabouts")
def test_only_the_named_pools_are_imported_and_released(workspace: Workspace, networks: Importer) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.78.0.0/24"}])
    for name, distance in (("lan-10.78.0.0-24", 5), ("other-10.78.0.0-24", 6)):
        _pool(workspace, name, "10.78.0.0/24", {distance: "db/web-0"})
    lan, other = (f"{workspace.namespace}/{name}-10.78.0.0-24" for name in ("lan", "other"))
    networks("import", net.name, f"--pool={lan}", "--apply")
    assert networks("import", net.name, f"--pool={other}", "--apply")[0] == {"10.78.0.6": "new"}
    assert [entry["spec"]["lease"]["pool"] for entry in net.addresses] == [lan, other]
    _, told = networks("import", net.name, "--pool=kube-system/no-such", code=2)
    assert 'IPPool "kube-system/no-such" does not exist' in told
    networks("release", net.name, "--apply")


def _host_local(folder: Path, command: str, container: str) -> str:
    """Run the program; returns the address that it assigns."""
    ranges = [[{"subnet": "10.80.0.0/24"}]]
    config = {
        "cniVersion": "1.0.0",
        "name": "storage-net",
        "type": "macvlan",
        "ipam": {"type": "host-local", "dataDir": str(folder), "ranges": ranges},
    }
    asked = {"CNI_COMMAND": command, "CNI_CONTAINERID": container, "CNI_IFNAME": "net1", "CNI_NETNS": "/none"}
    done = subprocess.run(
        [build.program("host-local")],
        input=json.dumps(config),
        env=os.environ | asked | {"CNI_PATH": "/none"},
        capture_output=True,
        text=True,
        check=True,
    )
    return str(json.loads(done.stdout)["ips"][0]["address"]) if done.stdout else ""


def test_leases_of_host_local_are_imported_by_node(workspace: Workspace, networks: Importer, tmp_path: Path) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.80.0.0/24"}], keepSeconds=0)
    one, two = tmp_path / "node-1", tmp_path / "node-2"
    assert [_host_local(one, "ADD", name) for name in ("c1", "c2")] == ["10.80.0.2/24", "10.80.0.3/24"]
    of_one = ("import", net.name, f"--host-local={one}/storage-net", "--node=node-1", "--apply")
    assert networks(*of_one)[0] == {"10.80.0.2": "new", "10.80.0.3": "new"}
    assert networks(*of_one)[0] == {"10.80.0.2": "imported", "10.80.0.3": "imported"}
    assert net.addresses[0]["spec"]["lease"] == {
        "plugin": "host-local",
        "pool": "storage-net",
        "container": "c1",
        "interface": "net1",
        "node": "node-1",
    }
    net.claim("mine")
    net.until("mine", "10.80.0.1/24")

    # host-local knows its own node only: another node has assigned the same address.
    assert _host_local(two, "ADD", "c3") == "10.80.0.2/24"
    of_two = ("import", net.name, f"--host-local={two}/storage-net", "--node=node-2", "--apply")
    states, told = networks(*of_two, code=1)
    assert states == {"10.80.0.2": "conflict"}
    assert "two pods may have an address" in told

    _host_local(one, "DEL", "c1")
    assert networks(*of_one)[0] == {"10.80.0.2": "ended", "10.80.0.3": "imported"}
    assert networks(*of_two)[0] == {"10.80.0.2": "new"}
    _, told = networks("import", net.name, f"--host-local={tmp_path}", "--node=node-1", code=2)
    assert "is not a folder of host-local" in told
    networks("release", net.name, "--apply")


def test_an_importer_may_write_leases_but_no_other_addresses(control_plane: ControlPlane, workspace: Workspace) -> None:
    """An address with a claim or a node would be given to a pod."""
    net = Net(workspace, ranges=[{"cidr": "10.81.0.0/24"}])
    importer = control_plane.kubeconfig("someone-importing", ["others"])
    rules = [
        {"apiGroups": ["networking.dra.io"], "resources": ["podaddresses"], "verbs": ["get", "list", "create"]},
        {"apiGroups": ["networking.dra.io"], "resources": ["podaddresses"], "verbs": ["update", "delete"]},
    ]
    role = workspace.name("importer")
    made = workspace.create({**manifest("rbac.authorization.k8s.io/v1/ClusterRole", role), "rules": rules})
    subjects = [{"kind": "User", "name": "someone-importing", "apiGroup": "rbac.authorization.k8s.io"}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    binding = manifest("rbac.authorization.k8s.io/v1/ClusterRoleBinding", role)
    workspace.create({**binding, "roleRef": reference, "subjects": subjects})

    def address(last: int, **spec: object) -> str:
        owner = {"namespace": "db", "pod": "web-0", "claim": "c1", "topology": "", "step": ""}
        text = f"10.81.0.{last}"
        about = {"network": net.name, "address": f"{text}/24", "families": ["IPv4"], "owner": owner, **spec}
        return yaml.safe_dump(manifest(ADDRESS, f"{net.name}.{text}", spec=about))

    lease = {"plugin": "whereabouts", "pool": "kube-system/pool"}
    claimed = {"claim": {"name": "c", "uid": "u"}}
    create = ("create", "-f", "-")
    text = "someone-importing may not write PodAddresses"
    until(lambda: text in denial(importer, *create, text=address(5, lease=lease)), "the policy to be heeded")
    made["rules"][1]["verbs"].append("import")
    net.api.update(made)
    until(lambda: not denial(importer, *create, text=address(5, lease=lease)), "the right to be heeded")
    assert text in denial(importer, *create, text=address(6, **claimed))
    assert text in denial(importer, *create, text=address(6, keptSince="2026-11-27T10:00:00Z"))
    lease_of_pod: dict[str, object] = {"lease": lease}
    for spec in ({**lease_of_pod, **claimed}, {**lease_of_pod, "nodeName": "node-1"}):
        assert "lease of another plugin" in denial(importer, *create, text=address(6, **spec))
    name = f"{net.name}.10.81.0.5"
    controller = identities.kubeconfig(control_plane, workspace.api, "netdra-controller")
    assert "may not write PodAddresses" in denial(controller, "delete", "podaddress", name)
    kubectl(importer, "replace", "-f", "-", text=address(5, lease={**lease, "container": "c2"}))
    assert text in denial(importer, "replace", "-f", "-", text=address(5, **claimed))
    kubectl(importer, "delete", "podaddress", name)
