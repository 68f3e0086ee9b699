"""With all rights in a namespace, an author forges no report of a node in the status of a claim.

The controller goes by these reports: which addresses other machines use, and which a pod has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed import yaml
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.kubectl import denial, kubectl
from testbed.objects import CLAIM, manifest
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import running_controller
from tests.cluster.test_address_moves import NODE_NETWORK, Machine
from tests.cluster.test_controller import EVENT
from tests.cluster.test_pod_networks import Net
from tests.cluster.test_rights import Author, Driver

CLUSTER_ROLE, BINDING = (f"rbac.authorization.k8s.io/v1/{kind}" for kind in ("ClusterRole", "ClusterRoleBinding"))
ALONE = "may not write devices of driver dra.networking in the status of a ResourceClaim"
DUPLICATE = {"duplicates": [{"address": "10.7.0.1", "hardwareAddress": "02:00:00:00:00:01"}]}
NOT_READY = [
    {
        "type": "Ready",
        "status": "False",
        "reason": "Refused",
        "message": "why",
        "lastTransitionTime": "2026-11-27T10:00:00Z",
    }
]
INTERFACE = {"interfaceName": "net1", "ips": ["10.7.0.1/29"]}


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work, with the chart's admission policies."""
    with running_controller(control_plane, api) as process:
        yield process


def said(**more: object) -> Object:
    """A device of netdra that the claim was allocated."""
    return {"driver": "dra.networking", "pool": "pool", "device": "claim-vf0", **more}


@pytest.fixture
def claim(workspace: Workspace) -> Object:
    """A claim with a device of netdra and one of another driver, allocated on a node."""
    node = workspace.add_node("one")
    requests = [{"name": "vf0", "exactly": {"deviceClassName": "net-vf0"}}]
    made = workspace.api.create(manifest(CLAIM, "claim", workspace.namespace, spec={"devices": {"requests": requests}}))
    status = identities.allocated("claim", "net", ["vf0"], node)
    status["allocation"]["devices"]["results"].append(
        {"request": "vf0", "driver": "gpu.example.com", "pool": "pool", "device": "gpu0"}
    )
    return workspace.api.update({**made, "status": status}, subresource="status")


class Forger(Author):
    """An author with all rights in the namespace, who writes statuses of claims."""

    def patch(self, status: Object, claim: str = "claim") -> str:
        """The error of a change of a claim's status; "" if it is accepted."""
        how = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
        return self.refused("patch", "resourceclaim", claim, *how)

    def replace(self, found: Object, listed: list[Object]) -> str:
        """The error of other devices in a claim's status."""
        written = {**found, "status": found["status"] | {"devices": listed}}
        return self.refused("replace", "--subresource=status", "-f", "-", written=written)

    def apply(self, status: Object, namespace: str) -> str:
        """The error of a server-side apply of a claim's status."""
        written = manifest(CLAIM, "claim", namespace, status=status)
        how = ("--server-side", "--force-conflicts", "--subresource=status")
        return self.refused("apply", *how, "-f", "-", written=written)


@pytest.fixture
def forger(control_plane: ControlPlane, workspace: Workspace, controller: Process, claim: Object) -> Forger:
    """The author, once the API server heeds the policy."""
    author = Forger(control_plane, workspace)
    until(lambda: author.patch({"devices": [said()]}) != "", "the policy to be heeded")
    return author


def devices(workspace: Workspace) -> list[Object]:
    """The devices in the claim's status."""
    found = workspace.api.get(CLAIM, "claim", workspace.namespace)
    listed: list[Object] = found["status"].get("devices", [])
    return listed


def test_an_author_with_all_rights_in_the_namespace_writes_no_device_of_netdra(
    workspace: Workspace, control_plane: ControlPlane, forger: Forger, claim: Object
) -> None:
    may = ("auth", "can-i", "arbitrary-node:patch", "resourceclaims.resource.k8s.io", "--subresource=driver")
    assert forger(*may).strip() == "yes"
    for forged in (said(), said(data=DUPLICATE), said(networkData=INTERFACE)):
        assert ALONE in forger.patch({"devices": [forged]})
        assert ALONE in forger.apply({"devices": [forged]}, workspace.namespace)
    node = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    Driver(control_plane, workspace.api, node).say(workspace.namespace, "claim", said(networkData=INTERFACE))
    (stored,) = devices(workspace)
    for forged in (said(), said(data=DUPLICATE, networkData=INTERFACE), said(networkData=INTERFACE | {"ips": []})):
        assert ALONE in forger.patch({"devices": [forged]})
    # Without the entry, the address would count as one that the pod no longer has.
    assert ALONE in forger.patch({"devices": []})
    assert ALONE in forger.patch({"devices": None})
    gpu = {"driver": "gpu.example.com", "pool": "pool", "device": "gpu0"}
    assert ALONE in forger.patch({"devices": [gpu]})
    assert devices(workspace) == [stored]
    # The device of another driver does not concern netdra.
    assert forger.patch({"devices": [stored, gpu]}) == ""
    assert [entry["driver"] for entry in devices(workspace)] == ["dra.networking", "gpu.example.com"]


def test_with_the_most_devices_and_the_largest_reports_the_policy_decides(
    workspace: Workspace, forger: Forger, claim: Object
) -> None:
    """An expression that costs more than the API server allows would refuse every write of the claim."""
    results = claim["status"]["allocation"]["devices"]["results"]
    del results[:]
    largest = {"text": "x" * 9_000}
    entries = []
    for number in range(32):
        device = {"driver": "dra.networking", "pool": "p" * 200, "device": f"d{number}"}
        results.append({"request": "vf0", **device})
        entries.append({**device, "data": largest, "networkData": {"ips": [f"10.7.0.{at}/24" for at in range(1, 17)]}})
    found = workspace.api.get(CLAIM, "claim", workspace.namespace)
    workspace.api.update({**found, "status": {}}, subresource="status")
    found = workspace.api.get(CLAIM, "claim", workspace.namespace)
    found = workspace.api.update({**found, "status": claim["status"] | {"devices": entries}}, subresource="status")
    stored = found["status"]["devices"]
    assert ALONE in forger.replace(found, [*stored[:-1], stored[-1] | {"data": DUPLICATE}])
    assert forger.replace(found, stored[::-1]) == ""


def binder(control_plane: ControlPlane, workspace: Workspace) -> Any:
    """kubectl as the scheduler and the controller manager write statuses: with the rights for allocations alone."""
    name = workspace.name("binder")
    rules = [
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims", "resourceclaims/status", "resourceclaims/binding"],
            "verbs": ["get", "update", "patch"],
        }
    ]
    workspace.create({**manifest(CLUSTER_ROLE, name), "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]
    workspace.create({**manifest(BINDING, name), "roleRef": reference, "subjects": subjects})
    return control_plane.kubeconfig(name, ["others"])


def test_the_scheduler_and_the_controller_manager_reserve_and_deallocate_claims_with_devices_of_netdra(
    workspace: Workspace, control_plane: ControlPlane, forger: Forger, claim: Object
) -> None:
    account = binder(control_plane, workspace)

    def write(status: Object) -> str:
        how = ("-n", workspace.namespace, "replace", "--subresource=status", "-f", "-")
        found = yaml.safe_load(
            kubectl(account, "-n", workspace.namespace, "get", "resourceclaim", "claim", "-o", "yaml")
        )
        return denial(account, *how, text=yaml.safe_dump({**found, "status": found["status"] | status}))

    until(lambda: "orbidden" not in write({}), "the role to be heeded")
    node = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    Driver(control_plane, workspace.api, node).say(workspace.namespace, "claim", said(networkData=INTERFACE))
    assert write({"reservedFor": [{"resource": "pods", "name": "a", "uid": "u"}]}) == ""
    assert write({"reservedFor": []}) == ""
    assert [entry["device"] for entry in devices(workspace)] == ["claim-vf0"]
    # As the controller manager does: the allocation goes, and the API server drops the devices with it.
    assert write({"allocation": None}) == ""
    assert workspace.api.get(CLAIM, "claim", workspace.namespace)["status"] == {}


def forge(net: Net, claim: str, **more: object) -> None:
    """Write what the claim's only device reports, as an account with all rights in the cluster does."""
    found = net.api.get(CLAIM, claim, net.workspace.namespace)
    (result,) = found["status"]["allocation"]["devices"]["results"]
    device = {key: result[key] for key in ("driver", "pool", "device")}
    net.api.update({**found, "status": found["status"] | {"devices": [{**device, **more}]}}, subresource="status")


def attach_forged(net: Net, address: str) -> None:
    """Allocate a claim whose status has an address, in one write, so that the controller sees both at once."""
    made = net.make("thief")
    status = identities.allocated("thief", net.topology, ["lan"])
    (result,) = status["allocation"]["devices"]["results"]
    device = {key: result[key] for key in ("driver", "pool", "device")}
    status["devices"] = [{**device, "networkData": {"interfaceName": "net1", "ips": [address]}}]
    net.api.update({**made, "status": status}, subresource="status")


def test_an_address_that_is_reserved_for_another_owner_is_not_assigned_because_of_a_status(
    workspace: Workspace, controller: Process
) -> None:
    reserved = {"address": "10.31.0.5", "namespace": "bank", "name": "db"}
    net = Net(workspace, ranges=[{"cidr": "10.31.0.0/28"}], keepSeconds=0, reservations=[reserved])
    attach_forged(net, "10.31.0.5/28")
    until(lambda: net.of("thief"), "an address")
    assert net.of("thief") == ["10.31.0.1/28"]


def test_an_address_of_another_claims_pod_is_not_assigned_because_of_a_status(
    workspace: Workspace, controller: Process
) -> None:
    net, machine = Net(workspace, ranges=[{"cidr": "fd00:33::/64"}], keepSeconds=0), Machine(workspace, "bank")
    machine.say(1, {"network": net.name, "address": "fd00:33::5", "claim": "bank/db"})
    until(lambda: workspace.api.get(NODE_NETWORK, machine.name)["status"]["unassignedAddresses"], "the report")

    def is_known(events: list[Object]) -> bool:
        return any("is used by a pod whose address is not assigned" in event["note"] for event in events)

    net.claim("probe", requested="fd00:33::5")
    net.api.wait_for_all(EVENT, is_known, namespace=workspace.namespace)
    attach_forged(net, "fd00:33::5/64")
    until(lambda: net.of("thief"), "an address")
    assert net.of("thief") == ["fd00:33::1/64"]


def test_reports_about_one_claim_do_not_set_aside_all_addresses_of_a_network(
    workspace: Workspace, controller: Process
) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.32.0.0/25"}], keepSeconds=0, onDuplicate="Reassign")
    net.claim("forged", node="node-1")
    until(lambda: net.of("forged"), "an address")

    def aside() -> list[Object]:
        return [found for found in net.addresses if "conflictSince" in found["spec"]]

    def said_enough(events: list[Object]) -> bool:
        return any("is not replaced: 16 addresses were replaced" in event["note"] for event in events)

    for number in range(17):
        (address,) = net.of("forged")
        forge(net, "forged", conditions=NOT_READY, data={"duplicates": [{"address": address.partition("/")[0]}]})
        if number < 16:
            until(lambda address=address: net.of("forged") not in ([], [address]), "another address")  # type: ignore[misc]
    net.api.wait_for_all(EVENT, said_enough, namespace=workspace.namespace)
    assert len(aside()) == 16
    assert net.of("forged") == [address]
    net.claim("other")
    until(lambda: net.of("other"), "an address for another claim")
