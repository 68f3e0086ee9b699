"""The controller has a port in the real Neutron for each VF of a claim, and nothing of it is lost or left behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest

from netdra.controller.neutron.ownership import LEASE as OWNERSHIP
from netdra.model.neutron_port import name_of
from netdra.neutron.marks import OWNER
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, NODE, manifest
from testbed.openstack.cloud import PROJECT, Cloud
from testbed.pace import within
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.daemons import refusal, start_controller
from tests.cluster.identities import NETDRA
from tests.cluster.neutron.conftest import HOST, PORT

TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
ADMISSION = "admissionregistration.k8s.io/v1"
LEASE = "coordination.k8s.io/v1/Lease"
VFS, MANY = 44, 40
PATIENCE = 180.0


@pytest.fixture
def node(workspace: Workspace, controller: Process) -> str:
    """A node with VFs of two physical networks, that its NIC switch agent calls `HOST`."""
    name = workspace.add_node()
    workspace.api.patch(NODE, name, {"metadata": {"annotations": {"networking.dra.io/neutron-host": HOST}}})
    devices = [
        {
            "name": f"{physnet}-{number}",
            "attributes": {
                "physnet": {"string": physnet},
                "pciAddress": {"string": f"0000:{bus}:{number // 8:02x}.{number % 8}"},
                "type": {"string": "sriov-vf"},
                "supportedCNIs": {"string": ",sriov,"},
            },
        }
        for physnet, bus, count in (("physnet2", "05", VFS), ("physnet3", "06", 8))
        for number in range(count)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.networking", "nodeName": name, "pool": pool, "devices": devices}
    workspace.publish(name, manifest("resource.k8s.io/v1/ResourceSlice", name, spec=spec))
    return name


def topology(
    workspace: Workspace, physnet: str = "physnet2", base: str = "vf", *, slot: str = "", **neutron: Any
) -> str:
    """A topology of one VF with a port; the name of its class is returned."""
    alone = f' && device.attributes["dra.networking"].pciAddress == "{slot}"' if slot else ""
    selector = {"cel": f'device.attributes["dra.networking"].physnet == "{physnet}"{alone}'}
    step = {"name": "vf", "type": "sriov", "selector": selector, "neutron": neutron}
    name = workspace.name(base)
    workspace.create(manifest(TOPOLOGY, name, spec={"steps": [step]}))
    workspace.api.wait_for("resource.k8s.io/v1/DeviceClass", f"{name}-vf", lambda found: found is not None)
    return f"{name}-vf"


def ask(workspace: Workspace, name: str, class_name: str, node: str, count: int = 1) -> None:
    request = {"name": "vf", "exactly": {"deviceClassName": class_name, "count": count}}
    workspace.add_pod(name, workspace.add_claim(name, request), node=node)


def ports(workspace: Workspace, claim: str = "") -> list[Object]:
    return [
        port
        for port in workspace.api.list(PORT, workspace.namespace)
        if not claim or port["spec"]["claim"]["name"] == claim
    ]


def bound(port: Object) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    conditions = port.get("status", {}).get("conditions", ())
    return next(
        ((one["status"], one["reason"], one["message"]) for one in conditions if one["type"] == "Bound"), ("", "", "")
    )


def wait(workspace: Workspace, claim: str, reason: str = "Bound", count: int = 1) -> list[Object]:
    """Wait until a claim's ports are all of one reason."""

    def are() -> list[Object]:
        there = ports(workspace, claim)
        return there if len(there) == count and all(bound(port)[1] == reason for port in there) else []

    return until(are, f"ports that are {reason}", seconds=PATIENCE, detail=lambda: [bound(p) for p in ports(workspace)])


def in_neutron(cloud: Cloud, claim: Object) -> list[Any]:
    return [port for port in cloud.ports() if port["device_id"] == claim["metadata"]["uid"]]


def claim_of(workspace: Workspace, name: str) -> Object:
    found = workspace.api.get(CLAIM, name, workspace.namespace)
    assert found is not None
    return found


def gone(workspace: Workspace, cloud: Cloud, claim: Object) -> Callable[[], bool]:
    return lambda: not ports(workspace, claim["metadata"]["name"]) and not in_neutron(cloud, claim)


def start_next(control_plane: ControlPlane, api: Api, arguments: Any) -> None:
    """Start a controller after a killed one: it leads at once, and not after the dead one's lease has run out."""
    api.delete(LEASE, "netdra-controller", NETDRA)
    start_controller(control_plane, api, *arguments)


def told(workspace: Workspace, claim: str, reason: str) -> str:
    """The message of a claim's event."""

    def notes() -> list[str]:
        return [
            event["note"]
            for event in workspace.api.list("events.k8s.io/v1/Event", workspace.namespace)
            if (event["regarding"]["name"], event["reason"]) == (claim, reason)
        ]

    return until(notes, f"event {reason}", seconds=PATIENCE)[0]


def test_a_vf_has_its_port_within_two_seconds_and_the_port_goes_with_the_claim(
    workspace: Workspace, cloud: Cloud, network: Any, node: str, control_plane: ControlPlane
) -> None:
    class_name = topology(workspace)
    ask(workspace, "first", class_name, node)
    wait(workspace, "first")
    ask(workspace, "one", class_name, node)
    workspace.wait_placed("one", node)
    with within(2.0, "a port from its VF's allocation on"):
        (port,) = wait(workspace, "one")
    claim = claim_of(workspace, "one")
    (stored,) = in_neutron(cloud, claim)
    settings = port["status"]["settings"]
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert port["metadata"]["name"] == name_of(claim["metadata"]["uid"], node, result["device"])
    assert port["spec"]["nodeName"] == node
    assert (port["status"]["portID"], settings["mac"]) == (stored["id"], stored["mac_address"])
    assert settings["vlan"] == network["provider:segmentation_id"]
    assert {address.partition("/")[0] for address in settings["addresses"]} == {
        address["ip_address"] for address in stored["fixed_ips"]
    }
    assert stored["binding:host_id"] == HOST
    assert stored["binding:profile"] == {"pci_slot": port["spec"]["pciAddress"], "physical_network": "physnet2"}
    shown = control_plane.kubectl("get", "nport", f"--namespace={workspace.namespace}", "--no-headers").splitlines()[0]
    assert shown.split()[1:3] == ["physnet2", "data"]
    workspace.release("one", "one")
    until(gone(workspace, cloud, claim), "the port to go")
    assert len(ports(workspace)) == 1


def test_many_vfs_at_once_have_one_port_each(workspace: Workspace, cloud: Cloud, node: str) -> None:
    class_name = topology(workspace)
    for number in range(MANY):
        ask(workspace, f"many-{number}", class_name, node)
    until(lambda: len(ports(workspace)) == MANY, "an object for each", seconds=PATIENCE)
    until(lambda: all(bound(port)[0] == "True" for port in ports(workspace)), "all ports", seconds=PATIENCE)
    there = ports(workspace)
    ours = {port["id"]: port for port in cloud.ports() if port["device_owner"] == OWNER}
    assert len({port["status"]["settings"]["mac"] for port in there}) == MANY
    assert {port["status"]["portID"] for port in there} <= ours.keys()
    uids = {port["spec"]["claim"]["uid"] for port in there}
    assert sum(port["device_id"] in uids for port in ours.values()) == MANY


def test_two_vfs_of_one_claim_have_two_ports_with_the_addresses_that_were_asked_for(
    workspace: Workspace, cloud: Cloud, node: str
) -> None:
    ask(workspace, "two", topology(workspace), node, count=2)
    assert len({port["status"]["portID"] for port in wait(workspace, "two", count=2)}) == 2
    ask(workspace, "fixed", topology(workspace, base="fixed", network="data", fixedIPs=["10.20.0.77"]), node)
    (port,) = wait(workspace, "fixed")
    assert port["status"]["settings"]["addresses"] == ["10.20.0.77/24"]


def test_a_port_failure_sets_a_reason_and_emits_an_event_of_the_claim(
    workspace: Workspace, cloud: Cloud, node: str
) -> None:
    cases: dict[str, tuple[str, dict[str, Any], str]] = {
        "NoNetwork": ("physnet2", {"network": "nowhere"}, "nowhere"),
        "NoAddress": ("physnet2", {"network": "data", "fixedIPs": ["192.0.2.1"]}, "192.0.2.1"),
        "NoPort": ("physnet2", {"port": "5c1f7f3e-0000-4000-8000-000000000000"}, "not found, or not visible"),
    }
    for number, (reason, (physnet, neutron, _)) in enumerate(cases.items()):
        ask(workspace, reason.lower(), topology(workspace, physnet, f"bad{number}", **neutron), node)
    for reason, (_, _, text) in cases.items():
        (port,) = wait(workspace, reason.lower(), reason)
        assert text in bound(port)[2]
        assert text in told(workspace, reason.lower(), reason)
    cloud.limit(0)
    try:
        ask(workspace, "quota", topology(workspace, base="quota"), node)
        assert "quota" in bound(wait(workspace, "quota", "Quota")[0])[2].lower()
    finally:
        cloud.limit(-1)
    workspace.api.patch(NODE, node, {"metadata": {"annotations": {"networking.dra.io/neutron-host": "silent"}}})
    ask(workspace, "silent", topology(workspace, base="silent"), node)
    assert "silent" in bound(wait(workspace, "silent", "NoAgent")[0])[2]


def test_a_vf_whose_topology_names_no_network_has_a_port_in_the_default_of_its_physical_network(
    workspace: Workspace, cloud: Cloud, network: Any, node: str
) -> None:
    cloud.network("beside", "physnet2")
    ask(workspace, "default", topology(workspace, base="default"), node)
    wait(workspace, "default")
    (stored,) = in_neutron(cloud, claim_of(workspace, "default"))
    assert stored["network_id"] == network["id"]


def test_the_physnet_of_a_network_is_checked_only_with_permission_to_see_it(
    workspace: Workspace, cloud: Cloud, node: str
) -> None:
    """The role that binds ports does not see which network is of which physical network, unless a policy lets it."""
    ask(workspace, "unseen", topology(workspace, "physnet3", "unseen"), node)
    (port,) = wait(workspace, "unseen", "Forbidden")
    assert "physnet3" in bound(port)[2]
    cloud.network("one", "physnet3")
    cloud.network("other", "physnet3")
    ask(workspace, "believed", topology(workspace, "physnet2", "believed", network="one"), node)
    assert "not allowed to read whether network one belongs to physnet2" in bound(wait(workspace, "believed")[0])[2]
    cloud.allow(get_network__provider__physical_network="role:service or role:admin")
    try:
        ask(workspace, "several", topology(workspace, "physnet3", "several"), node)
        (port,) = wait(workspace, "several", "Ambiguous")
        assert "one (" in bound(port)[2]
        ask(workspace, "wrong", topology(workspace, "physnet2", "wrong", network="one"), node)
        assert "physnet3" in bound(wait(workspace, "wrong", "WrongPhysnet")[0])[2]
    finally:
        cloud.allow()


def test_a_vf_that_has_a_port_gets_no_second_one(workspace: Workspace, cloud: Cloud, network: Any, node: str) -> None:
    slot = "0000:05:05.1"
    bind = {"binding:vnic_type": "direct", "binding:host_id": HOST, "binding:profile": {"pci_slot": slot}}
    common = {"network_id": network["id"], "project_id": cloud.projects[PROJECT]}
    cloud.allow(create_port__binding__profile="role:service or role:admin")
    cloud.make("port", device_id="somebody", **common, **bind)
    cloud.allow()
    ask(workspace, "taken", topology(workspace, slot=slot), node)
    (port,) = wait(workspace, "taken", "SlotTaken")
    assert port["spec"]["pciAddress"] == slot
    assert "somebody" in bound(port)[2]


def test_a_precreated_port_is_used_and_released_without_deletion(
    workspace: Workspace, cloud: Cloud, network: Any, node: str
) -> None:
    made = cloud.make(
        "port", network_id=network["id"], project_id=cloud.projects[PROJECT], **{"binding:vnic_type": "direct"}
    )
    ask(workspace, "given", topology(workspace, port=made["id"]), node)
    (port,) = wait(workspace, "given")
    assert port["status"]["settings"]["mac"] == made["mac_address"]
    ask(workspace, "again", topology(workspace, base="again", port=made["id"]), node)
    assert "used already" in bound(wait(workspace, "again", "Refused")[0])[2]
    workspace.release("given", "given")
    until(lambda: not ports(workspace, "given"), "the object to go", seconds=PATIENCE)
    (left,) = [port for port in cloud.ports() if port["id"] == made["id"]]
    assert (left["device_id"], left["binding:host_id"], left["binding:profile"]) == ("", "", {})


def test_a_named_port_is_for_one_vf_of_a_claim(workspace: Workspace, cloud: Cloud, network: Any, node: str) -> None:
    made = cloud.make(
        "port", network_id=network["id"], project_id=cloud.projects[PROJECT], **{"binding:vnic_type": "direct"}
    )
    ask(workspace, "both", topology(workspace, port=made["id"]), node, count=2)

    def settled() -> list[Object]:
        there = ports(workspace, "both")
        return there if sorted(bound(port)[1] for port in there) == ["Bound", "Refused"] else []

    first, second = sorted(until(settled, "one bound port", seconds=PATIENCE), key=lambda port: bound(port)[1])
    (stored,) = [port for port in cloud.ports() if port["id"] == made["id"]]
    assert stored["binding:profile"]["pci_slot"] == first["spec"]["pciAddress"]
    assert f"VF {first['spec']['pciAddress']} of host {HOST} has it" in bound(second)[2]


def test_a_wrong_network_that_is_corrected_in_the_topology_lets_the_pod_go_on(
    workspace: Workspace, cloud: Cloud, network: Any, node: str
) -> None:
    class_name = topology(workspace, base="mended", network="nowhere")
    ask(workspace, "mended", class_name, node)
    wait(workspace, "mended", "NoNetwork")
    name = class_name.removesuffix("-vf")
    (step,) = workspace.api.get(TOPOLOGY, name)["spec"]["steps"]
    workspace.api.patch(TOPOLOGY, name, {"spec": {"steps": [step | {"neutron": {"network": "data"}}]}})
    (port,) = wait(workspace, "mended")
    assert (port["spec"]["network"], port["status"]["networkID"]) == ("data", network["id"])
    assert len(in_neutron(cloud, claim_of(workspace, "mended"))) == 1


def test_a_controller_that_is_killed_leaves_one_port_and_the_next_finds_it(
    workspace: Workspace,
    cloud: Cloud,
    node: str,
    control_plane: ControlPlane,
    api: Api,
    controller: Process,
    arguments: Any,
) -> None:
    class_name = topology(workspace)
    for name in ("killed", "killed-before-any-record"):
        with unrecorded(workspace) if name != "killed" else nullcontext():
            ask(workspace, name, class_name, node)
            workspace.wait_placed(name, node)
            claim = claim_of(workspace, name)
            until(partial(in_neutron, cloud, claim), "the port to be made", seconds=PATIENCE)
            control_plane.processes["netdra-controller"].kill()
        start_next(control_plane, workspace.api, arguments)
        (port,) = wait(workspace, name)
        assert [stored["id"] for stored in in_neutron(cloud, claim)] == [port["status"]["portID"]]


@contextmanager
def unrecorded(workspace: Workspace) -> Iterator[None]:
    """Have the API server reject all statuses of the namespace's NeutronPorts, of which it has one."""
    name = workspace.name("unrecorded")
    rule = {"apiGroups": ["networking.dra.io"], "apiVersions": ["*"], "resources": ["neutronports/status"]}
    spec = {
        "matchConstraints": {"resourceRules": [{**rule, "operations": ["UPDATE"]}]},
        "validations": [{"expression": "false", "message": "no record"}],
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": workspace.namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    workspace.create(manifest(f"{ADMISSION}/ValidatingAdmissionPolicy", name, spec=spec))
    workspace.create(manifest(f"{ADMISSION}/ValidatingAdmissionPolicyBinding", name, spec=binding))

    def is_rejected() -> bool:
        port, *_ = ports(workspace)
        return "no record" in refusal(lambda: workspace.api.update(port, subresource="status", dry_run=True))

    until(is_rejected, "statuses to be rejected")
    yield
    workspace.api.delete(f"{ADMISSION}/ValidatingAdmissionPolicyBinding", name)
    until(lambda: not is_rejected(), "statuses to be accepted")


def test_a_cluster_that_is_restored_from_a_snapshot_deletes_no_port_until_an_administrator_decides(
    workspace: Workspace, cloud: Cloud, node: str, control_plane: ControlPlane, controller: Process, arguments: Any
) -> None:
    api, class_name = workspace.api, topology(workspace)

    def begin_anew() -> None:
        control_plane.processes["netdra-controller"].kill()
        start_next(control_plane, api, arguments)

    def delete(name: str) -> Object:
        claim = claim_of(workspace, name)
        workspace.release(name, name)
        return claim

    for name in ("before", "after", "kept"):
        ask(workspace, name, class_name, node)
        wait(workspace, name)
    until(gone(workspace, cloud, delete("before")), "the port to go", seconds=PATIENCE)
    snapshot = api.get(LEASE, OWNERSHIP, NETDRA)["metadata"]["annotations"]

    begin_anew()
    until(gone(workspace, cloud, delete("after")), "the port to go", seconds=PATIENCE)
    assert api.get(LEASE, OWNERSHIP, NETDRA)["metadata"]["annotations"] != snapshot

    api.patch(LEASE, OWNERSHIP, {"metadata": {"annotations": snapshot}}, namespace=NETDRA)
    begin_anew()
    claim = delete("kept")
    (port,) = wait(workspace, "kept", "OtherCluster")
    assert port["metadata"]["deletionTimestamp"]
    assert f"kubectl delete lease -n {NETDRA} {OWNERSHIP}" in bound(port)[2]
    assert [stored["id"] for stored in in_neutron(cloud, claim)] == [port["status"]["portID"]]

    api.delete(LEASE, OWNERSHIP, NETDRA)
    begin_anew()
    until(gone(workspace, cloud, claim), "the port to go", seconds=PATIENCE)


def test_a_claim_is_deleted_during_a_neutron_outage_and_its_port_afterwards(
    workspace: Workspace, cloud: Cloud, node: str
) -> None:
    ask(workspace, "late", topology(workspace), node)
    wait(workspace, "late")
    claim = claim_of(workspace, "late")
    cloud.neutron.pause()
    try:
        workspace.release("late", "late")
        (port,) = wait(workspace, "late", "Unreachable")
        assert port["metadata"]["deletionTimestamp"]
        assert "no answer within" in bound(port)[2]
    finally:
        cloud.neutron.resume()
    until(gone(workspace, cloud, claim), "the port to go", seconds=PATIENCE)


def test_ports_of_claims_that_are_gone_are_deleted_and_another_clusters_stay(
    workspace: Workspace, cloud: Cloud, network: Any, controller: Process
) -> None:
    cluster = workspace.api.get("v1/Namespace", "kube-system")["metadata"]["uid"]
    common = {"network_id": network["id"], "project_id": cloud.projects[PROJECT], "device_owner": OWNER}
    ours = cloud.make("port", device_id="gone", name="gone-0", description=f"netdra cluster={cluster}", **common)
    theirs = cloud.make("port", device_id="gone", name="gone-0", description="netdra cluster=another", **common)
    until(lambda: ours["id"] not in {port["id"] for port in cloud.ports()}, "the orphan to go", seconds=PATIENCE)
    assert theirs["id"] in {port["id"] for port in cloud.ports()}


def test_a_port_deleted_or_changed_in_neutron_is_reported_and_not_replaced(
    workspace: Workspace, cloud: Cloud, node: str, control_plane: ControlPlane, arguments: Any
) -> None:
    class_name = topology(workspace)
    for name in ("deleted", "changed"):
        ask(workspace, name, class_name, node)
    (deleted,), (changed,) = wait(workspace, "deleted"), wait(workspace, "changed")
    cloud.admin("neutron", "DELETE", f"/v2.0/ports/{deleted['status']['portID']}")
    mac = "fa:16:3e:00:00:77"
    path = f"/v2.0/ports/{changed['status']['portID']}"
    # A bound port's MAC address is not to be changed.
    cloud.admin("neutron", "PUT", path, {"port": {"binding:host_id": ""}})
    cloud.admin("neutron", "PUT", path, {"port": {"mac_address": mac}})
    (port,) = wait(workspace, "deleted", "Lost")
    assert port["status"]["settings"] == deleted["status"]["settings"]
    assert "gone from Neutron" in told(workspace, "deleted", "Lost")

    def compared() -> list[Any]:
        (port,) = ports(workspace, "changed")
        return [one for one in port["status"]["conditions"] if one["type"] == "Current" and mac in one["message"]]

    until(compared, "the change to be told", seconds=PATIENCE)
    assert ports(workspace, "changed")[0]["status"]["settings"] == changed["status"]["settings"]
    # A controller that starts goes through all ports once.
    control_plane.processes["netdra-controller"].kill()
    start_next(control_plane, workspace.api, arguments)
    ask(workspace, "later", class_name, node)
    wait(workspace, "later")
    wait(workspace, "deleted", "Lost")
    assert not in_neutron(cloud, claim_of(workspace, "deleted"))


def test_logs_events_and_ports_of_the_controller_contain_no_secret(
    workspace: Workspace, cloud: Cloud, controller: Process, control_plane: ControlPlane
) -> None:
    user = cloud.users["service"]
    said = control_plane.processes["netdra-controller"].log.read_text()
    said += json.dumps([workspace.api.list(PORT), workspace.api.list("events.k8s.io/v1/Event")])
    assert user.name in said or "port" in said
    for secret in (user.password, user.secret):
        assert secret not in said
