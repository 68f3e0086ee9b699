"""The doctor on real control planes: bare with gates off, with netdra, with parts of it broken, asked by a process."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from netdra.cli.crds import text
from netdra.model import crd, kinds
from netdra.model.meta import micro_time_text
from netdra.model.names import CONTROLLER_LEASE
from testbed import helm, objects
from testbed.api import Api, Object
from testbed.commands import Settings
from testbed.components import KUBERNETES_VERSION
from testbed.control_plane import ControlPlane
from testbed.process import Ports, answers
from testbed.waiting import until, waiting
from tests.cluster import identities
from tests.cluster.conftest import DEFINITION, StartControlPlane, is_established
from tests.cluster.daemons import POLICY, until_asked
from tests.cluster.identities import NETDRA
from tests.cluster.test_rights import may

OFF = {
    "DRAPartitionableDevices": False,
    "DRAConsumableCapacity": False,
    "DRADeviceTaints": False,
    "DRADeviceTaintRules": False,
}
CONFIGURATION = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
TESTS = "tests/doctor.yaml"
LEASE = "coordination.k8s.io/v1/Lease"
Findings = dict[str, dict[str, Any]]


def doctor(kubeconfig: Path, *more: str) -> tuple[int, Findings]:
    """The exit code and the findings by check."""
    command = [sys.executable, "-m", "netdra", "doctor", "--only=cluster", f"--kubeconfig={kubeconfig}", *more]
    with waiting("netdra doctor"):
        done = subprocess.run([*command, "--output=json"], capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, {each["check"]: each for each in json.loads(done.stdout)}


def levels(found: Findings, level: str) -> set[str]:
    return {check for check, each in found.items() if each["level"] == level}


@pytest.fixture(scope="module")
def bare(start_control_plane: StartControlPlane) -> ControlPlane:
    """A cluster without netdra, with the gates off that can be."""
    return start_control_plane(Settings(scheduler=False, feature_gates=OFF))


@pytest.fixture(scope="module")
def installed(start_control_plane: StartControlPlane) -> Iterator[ControlPlane]:
    """A cluster with netdra's kinds, rights and webhook."""
    plane = start_control_plane(Settings(scheduler=False))
    with ExitStack() as undo:
        api = undo.enter_context(closing(plane.client()))
        plane.kubectl("apply", "--server-side", "-f", "-", text="---\n".join(map(text, kinds.KINDS)))
        for kind in kinds.KINDS:
            api.wait_for(DEFINITION, kind.name, is_established)
        identities.install(api)
        port = undo.enter_context(closing(Ports("127.0.0.1"))).take()
        for configuration in identities.template("webhook-rules.yaml"):
            for each in configuration["webhooks"]:
                each["clientConfig"] = {"url": f"https://127.0.0.1:{port}/validate"}
            api.create(configuration)
        command = [
            *(sys.executable, "-m", "netdra", "webhook", "--host=127.0.0.1", "--address=127.0.0.1", f"--port={port}"),
            f"--kubeconfig={identities.kubeconfig(plane, api, 'netdra-webhook')}",
        ]
        ready = answers(f"https://127.0.0.1:{port}/readyz", ssl._create_unverified_context())
        plane.run("netdra-webhook", command, ready)
        until_asked(api)
        yield plane


@pytest.fixture
def api(installed: ControlPlane) -> Iterator[Api]:
    """The administrator's client of the cluster with netdra, whose controller leads elsewhere."""
    with closing(installed.client()) as client:
        client.apply(lease(datetime.now(UTC)))
        yield client


def lease(renewed: datetime) -> Object:
    """The lease of a controller that renewed it then, and does not again."""
    spec = {"holderIdentity": "elsewhere", "leaseDurationSeconds": 15, "renewTime": micro_time_text(renewed)}
    return objects.manifest(LEASE, CONTROLLER_LEASE, NETDRA, spec=spec)


def component(api: Api, part: str, node: str, *, ready: bool, name: str) -> None:
    """A pod of netdra's that the kubelet has reported on."""
    labels = {"app.kubernetes.io/part-of": "netdra", "app.kubernetes.io/component": part}
    spec = {"containers": [{"name": "main", "image": "none"}], "nodeName": node}
    pod = objects.manifest(objects.POD, name, NETDRA, spec=spec)
    pod["metadata"]["labels"] = labels
    created = api.create(pod)
    waiting = {"name": "main", "image": "none", "imageID": "", "ready": ready, "restartCount": 5}
    waiting["state"] = {"running": {}} if ready else {"waiting": {"reason": "CrashLoopBackOff"}}
    created["status"] = {
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": [waiting],
    }
    api.update(created, subresource="status")


def patch_node(api: Api, name: str, status: Object) -> None:
    api.patch(objects.NODE, name, {"status": status}, style="strategic", subresource="status")


@pytest.fixture
def two_nodes(api: Api) -> Iterator[None]:
    """The nodes `one` and `two`, whose kubelets answer, and a policy that selects both."""
    for name in ("one", "two"):
        objects.add_node(api, name)
        patch_node(api, name, {"nodeInfo": {"kubeletVersion": KUBERNETES_VERSION}})
    api.create(objects.manifest(POLICY, "all", spec={"selector": {"cel": "true"}}))
    yield
    api.delete(POLICY, "all")
    for name in ("one", "two"):
        api.delete(objects.NODE, name)


def test_in_a_bare_cluster_doctor_reports_missing_netdra_objects_and_disabled_gates(bare: ControlPlane) -> None:
    code, found = doctor(bare.kubeconfig())
    assert code == 1
    assert found["API server"]["seen"].startswith("v1.")
    assert found["resource.k8s.io"]["level"] == "ok"
    served = int(found["API server"]["seen"].split(".")[1])
    for gate, stable in {"DRAPartitionableDevices": 38, "DRAConsumableCapacity": 38, "DRADeviceTaints": 37}.items():
        assert found[gate]["level"] == "warning"
        assert (f"remove {gate}=false" if served >= stable else f"{gate}=true") in found[gate]["fix"]
    missing = {f"CRD {kind.name}" for kind in kinds.KINDS}
    configurations = {"webhook configuration netdra", "webhook configuration netdra-claims"}
    rights = {f"rights of netdra {process}" for process in ("node", "controller", "webhook")}
    assert levels(found, "error") == missing | configurations | rights | {"netdra controller"}
    assert found[f"CRD {kinds.POLICY.name}"]["fix"] == "netdra crds | kubectl apply --server-side -f -"


def test_a_cluster_with_netdra_has_no_error(installed: ControlPlane, api: Api) -> None:
    labels = {
        "app.kubernetes.io/part-of": "netdra",
        "app.kubernetes.io/component": "node",
        "app.kubernetes.io/version": "0.0.1",
    }
    pod = objects.manifest(objects.POD, "old", "netdra", spec={"containers": [{"name": "main", "image": "none"}]})
    pod["metadata"]["labels"] = labels
    api.create(pod)
    try:
        code, found = doctor(installed.kubeconfig())
    finally:
        api.delete(objects.POD, "old", "netdra")
    assert levels(found, "error") == set()
    assert code == 0
    assert found["webhook"]["seen"] == "rejects invalid objects"
    assert found["DRAPartitionableDevices"]["seen"] == "on"
    assert "node 0.0.1" in found["versions of netdra"]["seen"]
    assert levels(found, "warning") == {"versions of netdra"}


def test_nodes_without_a_driver_that_is_ready_are_an_error_until_all_have_one(
    installed: ControlPlane, api: Api, two_nodes: None
) -> None:
    found = [doctor(installed.kubeconfig())]
    component(api, "node", "one", ready=True, name="driver-one")
    component(api, "node", "two", ready=False, name="driver-two")
    found.append(doctor(installed.kubeconfig()))
    api.delete(objects.POD, "driver-two", NETDRA)
    component(api, "node", "two", ready=True, name="driver-two-again")
    found.append(doctor(installed.kubeconfig()))
    for name in ("driver-one", "driver-two-again"):
        api.delete(objects.POD, name, NETDRA)
    (none, first), (half, second), (code, third) = found
    assert levels(third, "error") == set(), third
    assert (none, half, code) == (1, 1, 0)
    assert "not ready on 2 nodes" in first["netdra node"]["seen"]
    assert "one has no pod of it" in first["netdra node"]["seen"]
    assert "nodeSelector" in first["netdra node"]["fix"]
    assert "(two): pod driver-two is not ready (CrashLoopBackOff)" in second["netdra node"]["seen"]
    assert "app.kubernetes.io/component=node" in second["netdra node"]["fix"]
    assert third["netdra node"]["level"] == "ok"


def test_a_node_that_is_not_ready_itself_is_a_warning(installed: ControlPlane, api: Api, two_nodes: None) -> None:
    patch_node(api, "two", {"conditions": [{"type": "Ready", "status": "Unknown"}]})
    component(api, "node", "one", ready=True, name="driver-one")
    code, found = doctor(installed.kubeconfig())
    api.delete(objects.POD, "driver-one", NETDRA)
    assert (code, found["netdra node"]["level"]) == (0, "warning")
    assert "(two) are not Ready" in found["netdra node"]["seen"]


def test_no_controller_that_works_is_an_error_since_its_last_renewal(installed: ControlPlane, api: Api) -> None:
    api.apply(lease(datetime.now(UTC) - timedelta(hours=1)))
    component(api, "controller", "", ready=False, name="stuck")
    try:
        code, ended = doctor(installed.kubeconfig())
        api.delete(LEASE, CONTROLLER_LEASE, NETDRA)
        _, never = doctor(installed.kubeconfig())
    finally:
        api.delete(objects.POD, "stuck", NETDRA)
    assert code == 1
    assert levels(ended, "error") == {"netdra controller"} == levels(never, "error")
    assert ended["netdra controller"]["seen"].startswith("no controller works since 20")
    assert "pod stuck is not ready (CrashLoopBackOff)" in ended["netdra controller"]["seen"]
    assert never["netdra controller"]["seen"].startswith("no controller works: ")


def test_a_controller_whose_clock_is_an_hour_behind_works(installed: ControlPlane, api: Api) -> None:
    """Leases are judged by their renewals: the times in them are those of another machine's clock."""
    ended = threading.Event()

    def renew() -> None:
        with closing(installed.client()) as client:
            while not ended.wait(0.5):
                client.apply(lease(datetime.now(UTC) - timedelta(hours=1)))

    api.apply(lease(datetime.now(UTC) - timedelta(hours=1)))
    thread = threading.Thread(target=renew)
    thread.start()
    try:
        _, found = doctor(installed.kubeconfig())
    finally:
        ended.set()
        thread.join()
    assert found["netdra controller"] == {
        "where": "cluster",
        "check": "netdra controller",
        "level": "ok",
        "seen": "elsewhere leads",
    }


def test_a_topology_whose_claims_fail_is_named_until_none_does(installed: ControlPlane, api: Api) -> None:
    def usage(number: int, status: str) -> None:
        condition = {"type": "Degraded", "status": status, "reason": "Test"}
        written = {"failingClaims": {"number": number}, "conditions": [condition]}
        api.apply(objects.manifest("networking.dra.io/v1alpha1/NetworkTopologyUsage", "rails", status=written))

    usage(3, "True")
    try:
        code, found = doctor(installed.kubeconfig())
        degraded = found["usages and rollouts"]
        usage(0, "False")
        _, well = doctor(installed.kubeconfig())
    finally:
        api.delete("networking.dra.io/v1alpha1/NetworkTopologyUsage", "rails")
    assert (code, degraded["level"]) == (0, "warning")
    assert degraded["seen"] == "topologies with failing claims: rails (3)"
    assert degraded["fix"] == "kubectl describe networktopologyusage rails"
    assert well["usages and rollouts"]["level"] == "ok"


def test_a_topology_with_a_plugin_that_nodes_do_not_run_is_found_by_the_list_of_their_drivers(
    installed: ControlPlane, api: Api
) -> None:
    kind = "networking.dra.io/v1alpha1/NetworkTopology"
    steps = [
        {"name": "vf", "type": "sriov", "selector": {"cel": "true"}},
        {"name": "fw", "type": "firewall", "dependOn": ["vf"]},
    ]
    api.create(objects.manifest(kind, "walled", spec={"steps": steps}))
    container = {"name": "main", "image": "none", "args": ["node", "--allow-plugin=default", "--allow-plugin=firewall"]}
    pod = objects.manifest(objects.POD, "driver", "netdra", spec={"containers": [container]})
    pod["metadata"]["labels"] = {"app.kubernetes.io/part-of": "netdra", "app.kubernetes.io/component": "node"}
    try:
        _, before = doctor(installed.kubeconfig())
        api.create(pod)
        _, after = doctor(installed.kubeconfig())
    finally:
        api.delete(kind, "walled")
        api.delete(objects.POD, "driver", "netdra")
    assert before["plugins of topologies"]["level"] == "warning"
    assert 'NetworkTopology "walled": plugin "firewall" is not allowed' in before["plugins of topologies"]["seen"]
    assert "[default, firewall]" in before["plugins of topologies"]["fix"]
    assert after["plugins of topologies"]["level"] == "ok"


def test_a_bond_of_vfs_whose_frames_the_nic_may_drop_is_found(installed: ControlPlane, api: Api) -> None:
    kind = "networking.dra.io/v1alpha1/NetworkTopology"
    vfs = [{"name": name, "type": "sriov", "selector": {"cel": "true"}} for name in ("a", "b")]
    config = {"mode": "active-backup", "links": ["{{ a.interfaceName }}", "{{ b.interfaceName }}"]}
    bond = {"name": "bond0", "type": "bond", "dependOn": ["a", "b"], "config": config}
    api.create(objects.manifest(kind, "pair", spec={"steps": [*vfs, bond]}))
    try:
        _, found = doctor(installed.kubeconfig())
    finally:
        api.delete(kind, "pair")
    assert found["frames of VFs"]["level"] == "warning"
    assert 'NetworkTopology "pair", step "bond0": the bond sends with one MAC' in found["frames of VFs"]["seen"]
    assert "failOverMac: active" in found["frames of VFs"]["fix"]


def test_stored_objects_with_errors_and_frames_of_other_macs_are_found(installed: ControlPlane, api: Api) -> None:
    kind = "networking.dra.io/v1alpha1/NetworkTopology"
    vf = {"name": "a", "type": "sriov", "selector": {"cel": "true"}}
    tagged = {**vf, "network": "storage", "config": {"vlan": 100, "ipam": {"type": "network"}}}
    above = {"name": "m", "type": "macvlan", "dependOn": ["a"], "config": {"master": "{{ a.interfaceName }}"}}
    # The webhook takes the topology, because the network comes after it.
    api.create(objects.manifest(kind, "tagged", spec={"steps": [tagged]}))
    network = "networking.dra.io/v1alpha1/PodNetwork"
    api.create(objects.manifest(network, "storage", spec={"vlan": 200, "ranges": [{"cidr": "10.66.0.0/24"}]}))
    api.create(objects.manifest(kind, "above", spec={"steps": [vf, above]}))
    try:
        _, found = doctor(installed.kubeconfig())
    finally:
        api.delete(kind, "tagged")
        api.delete(network, "storage")
        api.delete(kind, "above")
    assert found["stored objects"]["level"] == found["frames of VFs"]["level"] == "warning"
    assert 'step "a": the step uses VLAN 100, but PodNetwork "storage" is VLAN 200' in found["stored objects"]["seen"]
    assert "macvlan sends with a MAC address of its own" in found["frames of VFs"]["seen"]


def test_an_older_definition_is_found(installed: ControlPlane, api: Api) -> None:
    manifest = crd.manifest(kinds.CNI_PLUGIN)
    del manifest["spec"]["versions"][0]["additionalPrinterColumns"]
    installed.kubectl("replace", "-f", "-", text=yaml.safe_dump(manifest))
    try:
        _, found = doctor(installed.kubeconfig())
    finally:
        installed.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text(kinds.CNI_PLUGIN))
    assert levels(found, "error") == {f"CRD {kinds.CNI_PLUGIN.name}"}
    assert "additionalPrinterColumns" in found[f"CRD {kinds.CNI_PLUGIN.name}"]["seen"]


def test_a_webhook_that_does_not_answer_is_found(installed: ControlPlane) -> None:
    webhook = installed.processes["netdra-webhook"]
    webhook.kill()
    try:
        code, found = doctor(installed.kubeconfig())
    finally:
        webhook.start()
        webhook.wait_ready()
    assert code == 1
    assert levels(found, "error") == {"webhook"}
    assert "connection refused" in found["webhook"]["seen"]


def until_controller_may_read(api: Api, *, allowed: bool) -> None:
    """Wait until the API server judges by the bindings of now, of which it hears a moment later."""
    until(
        lambda: may(api, "netdra-controller", "get", "resourceclaims.resource.k8s.io") == allowed,
        "the API server to judge by the bindings",
    )


def test_a_right_that_was_taken_away_is_named(installed: ControlPlane, api: Api) -> None:
    installed.kubectl("delete", "clusterrolebinding", "netdra-controller")
    try:
        until_controller_may_read(api, allowed=False)
        _, found = doctor(installed.kubeconfig())
    finally:
        identities.install(api)
        until_controller_may_read(api, allowed=True)
    assert levels(found, "error") == {"rights of netdra controller"}
    assert "get resourceclaims.resource.k8s.io" in found["rights of netdra controller"]["seen"]


def test_a_process_checks_its_own_rights_and_reports_objects_it_cannot_read(installed: ControlPlane, api: Api) -> None:
    code, found = doctor(identities.kubeconfig(installed, api, "netdra-controller"))
    assert found["rights of netdra controller"]["level"] == "ok"
    assert "rights of netdra node" not in found
    unseen = {check for check, each in found.items() if each["seen"].startswith("could not be read")}
    assert {"CustomResourceDefinitions", "webhook"} <= unseen
    assert levels(found, "error") == set()
    assert code == 0


def test_the_account_of_helm_test_can_read_all_that_doctor_checks(installed: ControlPlane, api: Api) -> None:
    text = helm.template(helm.CHARTS / NETDRA, NETDRA, NETDRA, {"hooks": {"render": "always"}})
    account = [each for each in helm.objects(text, TESTS) if each["kind"] != "Pod"]
    for each in account:
        api.apply(each)
    user = identities.kubeconfig(installed, api, "netdra-doctor")

    def unread() -> list[Object]:
        _, found = doctor(user)
        return [each for each in found.values() if "could not be" in each["seen"]]

    try:
        until(lambda: not unread(), "the account to read all objects", detail=unread)
    finally:
        for each in account:
            api.delete(
                f"{each['apiVersion']}/{each['kind']}", each["metadata"]["name"], each["metadata"].get("namespace", "")
            )


def test_a_topology_that_the_scheduler_may_not_get_to_the_end_with_is_found(installed: ControlPlane, api: Api) -> None:
    """8 PFs with 16 VFs each, and a VF of each of them."""
    ours = 'device.attributes["dra.networking"]'
    attributes = {"dra.networking/supportedCNIs": {"string": ",sriov,"}, "dra.networking/type": {"string": "vf"}}
    for pf in range(8):
        devices = [
            {"name": f"vf{pf}-{n}", "attributes": attributes | {"dra.networking/pfName": {"string": f"pf{pf}"}}}
            for n in range(16)
        ]
        pool = {"name": f"rails/{pf}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "dra.networking", "nodeName": "rails", "pool": pool, "devices": devices}
        api.create(objects.manifest(objects.SLICE, f"rails-{pf}", spec=spec))
    steps = [{"name": f"r{pf}", "type": "sriov", "selector": {"cel": f'{ours}.pfName == "pf{pf}"'}} for pf in range(8)]
    kind = "networking.dra.io/v1alpha1/NetworkTopology"
    api.create(objects.manifest(kind, "rails", spec={"steps": steps}))
    try:
        _, found = doctor(installed.kubeconfig())
    finally:
        api.delete(kind, "rails")
        for pf in range(8):
            api.delete(objects.SLICE, f"rails-{pf}")
    search = found["searches of the scheduler"]
    assert search["level"] == "warning"
    assert search["seen"].startswith('NetworkTopology "rails": if a request cannot be allocated on node rails')
    assert search["fix"] == "offer the VFs together (pooledVFs in their policy), in few lanes"


def test_networks_and_addresses_of_a_cluster_are_examined(installed: ControlPlane, api: Api) -> None:
    """Without a controller, no process checks the network, or releases the address of a claim that is gone."""
    group = "networking.dra.io/v1alpha1"
    ranges = [{"cidr": "10.0.0.0/16"}]
    owner = {"namespace": "default", "claim": "gone", "topology": "lan", "step": "lan"}
    claim = {"name": "gone", "uid": "5f0c"}
    spec = {"network": "storage", "address": "10.0.1.1/16", "families": ["IPv4"], "owner": owner, "claim": claim}
    api.create(objects.manifest(f"{group}/PodNetwork", "storage", spec={"ranges": ranges}))
    api.create(objects.manifest(f"{group}/PodAddress", "other.10.0.1.1", spec={**spec, "network": "other"}))
    try:
        _, found = doctor(installed.kubeconfig())
    finally:
        api.delete(f"{group}/PodAddress", "other.10.0.1.1")
        api.delete(f"{group}/PodNetwork", "storage")
    assert 'PodNetwork "storage" has no status' in found["PodNetworks"]["seen"]
    assert "PodNetworks that do not exist: other.10.0.1.1" in found["addresses of PodNetworks"]["seen"]
    assert 'ServiceCIDR "kubernetes"' in found["ranges of PodNetworks"]["seen"]


def test_a_server_that_is_away_is_an_error_and_no_traceback(installed: ControlPlane, tmp_path: Path) -> None:
    config = json.loads(installed.kubeconfig().read_text())
    with closing(Ports("127.0.0.1")) as ports:
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{ports.take()}"
        (tmp_path / "away.kubeconfig").write_text(json.dumps(config))
        code, found = doctor(tmp_path / "away.kubeconfig")
    assert code == 1
    assert levels(found, "error") == {"API server"}
