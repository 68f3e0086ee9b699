"""The doctor on real NeutronPorts, and on the real Neutron and Keystone: what is well, and all that can be wrong."""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from netdra.admission import certificates
from netdra.doctor import neutron_verdicts
from netdra.neutron.marks import OWNER
from testbed import yaml
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import NODE, POD, SLICE, manifest
from testbed.openstack.cloud import PROJECT, Cloud
from testbed.process import Ports
from testbed.waiting import until, waiting
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import running_controller
from tests.cluster.identities import NETDRA
from tests.cluster.neutron.conftest import HOST, PORT, remove_ports
from tests.cluster.neutron.test_ports_of_claims import ask, topology, wait
from tests.cluster.neutron_ports import allotted

NODE_NETWORK = "networking.dra.io/v1alpha1/NodeNetwork"
NICS = {"physnet2": "enp1s0f0", "physnet3": "enp1s0f1"}
SEES = {
    "get_agent": "role:admin or role:service",
    "get_network__provider__physical_network": "role:admin or role:service",
}
PATIENCE = 180.0
GRACE_SECONDS = neutron_verdicts.PATIENCE.total_seconds() + 1.0
"""How old a port must be until its state is a problem; the API server's times are whole seconds."""
Look = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def node(workspace: Workspace, custom_kinds: None) -> str:
    """A node with VFs of two physical networks, which reports its interfaces and whose agent is on `HOST`."""
    name = workspace.add_node()
    workspace.api.patch(NODE, name, {"metadata": {"annotations": {"networking.dra.io/neutron-host": HOST}}})
    devices = [
        {
            "name": f"{nic}v{number}",
            "attributes": {
                "physnet": {"string": physnet},
                "pfName": {"string": nic},
                "pciAddress": {"string": f"0000:{bus}:00.{number}"},
                "type": {"string": "sriov-vf"},
                "supportedCNIs": {"string": ",sriov,"},
            },
        }
        for bus, (physnet, nic) in zip(("05", "06"), NICS.items(), strict=True)
        for number in range(8)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.networking", "nodeName": name, "pool": pool, "devices": devices}
    workspace.publish(name, manifest(SLICE, name, spec=spec))
    workspace.create(manifest(NODE_NETWORK, name))
    interfaces = [{"type": "pf", "count": 2, "names": list(NICS.values())}]
    workspace.api.patch(NODE_NETWORK, name, {"status": {"interfaces": interfaces}}, subresource="status")
    return name


def run(*arguments: str) -> list[dict[str, Any]]:
    """The doctor's findings, and nothing else, with the exit code that fits them."""
    command = [sys.executable, "-m", "netdra", "doctor", "--only=cluster", "--output=json", *arguments]
    with waiting("netdra doctor"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    told: list[dict[str, Any]] = json.loads(done.stdout)
    assert done.returncode == any(finding["level"] == "error" for finding in told)
    return told


@pytest.fixture
def look(control_plane: ControlPlane, cloud: Cloud) -> Look:
    """Has the doctor look, and returns its findings; none of them has a secret of the cloud's users."""

    def findings(*arguments: str) -> list[dict[str, Any]]:
        told = run(f"--kubeconfig={control_plane.kubeconfig()}", *arguments)
        for user in cloud.users.values():
            assert user.password not in str(told)
            assert user.secret not in str(told)
        return told

    return findings


@pytest.fixture
def asked(look: Look, cloud: Cloud, network: Any, tmp_path: Path) -> Look:
    """Has the doctor inspect the cloud, and returns what it states of the cloud alone."""
    clouds = cloud.clouds(tmp_path / "clouds.yaml")

    def findings(*arguments: str, file: Path = clouds) -> list[dict[str, Any]]:
        told = look(f"--neutron-clouds={file}", *arguments)
        return [finding for finding in told if finding["where"] == "neutron"]

    return findings


@pytest.fixture
def no_ports_stay(api: Api) -> Iterator[None]:
    """The NeutronPorts of a test that fails without a controller are removed."""
    yield
    remove_ports(api)


@pytest.fixture
def sees(cloud: Cloud) -> Iterator[None]:
    """The user may list agents, and sees of which physical network a network is."""
    cloud.allow(**SEES)
    yield
    cloud.allow()


@pytest.fixture
def agent(cloud: Cloud) -> Iterator[Cloud]:
    """The cloud, whose agent is as it was at the end."""
    yield cloud
    cloud.beat(HOST, **{physnet: [nic] for physnet, nic in NICS.items()})


@pytest.fixture(scope="module")
def storage(cloud: Cloud) -> Any:
    return cloud.network("storage", "physnet3", ["10.70.0.0/24"])


def only(findings: list[dict[str, Any]], check: str) -> dict[str, Any]:
    (finding,) = [finding for finding in findings if finding["check"] == check]
    return finding


def levels(findings: list[dict[str, Any]]) -> dict[str, str]:
    return {finding["check"]: finding["level"] for finding in findings if finding["level"] != "ok"}


def mapping(path: Path, **networks: Any) -> str:
    path.write_text(yaml.safe_dump(networks))
    return f"--neutron-physnets={path}"


def test_a_cloud_where_all_is_well_has_no_trouble(
    asked: Look, cloud: Cloud, network: Any, storage: Any, node: str, sees: None, tmp_path: Path
) -> None:
    made = cloud.make(
        "port",
        network_id=network["id"],
        project_id=cloud.projects[PROJECT],
        device_owner=OWNER,
        **{"binding:vnic_type": "direct", "binding:host_id": HOST},
    )
    try:
        findings = asked(mapping(tmp_path / "map", physnet2={"network": "data"}), "--neutron-cloud=openstack")
    finally:
        cloud.admin("neutron", "DELETE", f"/v2.0/ports/{made['id']}")
    assert levels(findings) == {}, findings
    assert only(findings, "login")["seen"] == 'user "netdra-service" of project "kubernetes"'
    assert only(findings, "Neutron")["seen"].startswith(f"{cloud.url('neutron')} is reachable")
    assert only(findings, "roles")["seen"] == "member, reader, service"
    assert only(findings, "mechanism sriovnicswitch")["seen"] == "has bound 1 of netdra's ports"
    assert only(findings, "NIC switch agents")["seen"] == "alive for 1 nodes and physnet2, physnet3"
    assert only(findings, "networks")["seen"].endswith("on physnet2, physnet3")
    assert only(findings, "network of physnet2")["seen"] == "data"


def test_an_overlap_of_a_physnet_subnet_with_a_pod_network_is_reported(
    asked: Look, workspace: Workspace, storage: Any, node: str, sees: None
) -> None:
    """No port is in the subnet; the network of another VLAN, or of another physical network, is on another wire."""
    kind, ranges = "networking.dra.io/v1alpha1/PodNetwork", [{"cidr": "10.70.0.0/25"}]
    near, far = workspace.name("near"), workspace.name("far")
    workspace.create(manifest(kind, near, spec={"ranges": ranges}))
    workspace.create(manifest(kind, far, spec={"ranges": ranges, "physnet": "physnet2"}))
    found = only(asked(), "subnets")
    assert found["level"] == "warning"
    assert f'PodNetwork "{near}": range 10.70.0.0/25 overlaps' in found["seen"]
    assert 'network "storage" of Neutron' in found["seen"]


def test_the_controllers_account_sees_all_that_is_compared(
    cloud: Cloud,
    network: Any,
    storage: Any,
    node: str,
    sees: None,
    control_plane: ControlPlane,
    api: Api,
    tmp_path: Path,
) -> None:
    identities.install(api)
    account = identities.kubeconfig(control_plane, api, "netdra-controller")
    findings = run(f"--kubeconfig={account}", f"--neutron-clouds={cloud.clouds(tmp_path / 'clouds.yaml')}")
    assert only(findings, "NIC switch agents")["seen"] == "alive for 1 nodes and physnet2, physnet3"
    ports = only(findings, "ports of Neutron")
    assert ports["level"] == "ok", ports


def test_doctor_warns_about_objects_that_the_user_may_not_see(
    asked: Look, network: Any, node: str, tmp_path: Path
) -> None:
    findings = asked(mapping(tmp_path / "map", physnet2={"network": "data"}))
    assert levels(findings) == dict.fromkeys(("mechanism sriovnicswitch", "NIC switch agents", "networks"), "warning")
    agents = only(findings, "NIC switch agents")
    assert agents["seen"].startswith("unknown: Neutron does not show agents to this user")
    assert "openstack network agent list" in agents["fix"]
    assert (
        "their physical networks are unknown: by default, get_network:provider:physical_network"
        in only(findings, "networks")["seen"]
    )
    assert "could not be compared with physnet2" in only(findings, "network of physnet2")["seen"]


def test_a_dead_or_missing_agent_is_reported_with_the_host(
    asked: Look, agent: Cloud, network: Any, node: str, storage: Any, sees: None, workspace: Workspace
) -> None:
    agent.silence(HOST)
    dead = only(asked(), "NIC switch agents")
    assert dead["level"] == "error"
    assert (
        f"not alive on the hosts of 1 nodes, whose VFs do not get ports: {node} (host {HOST}, physnet2" in dead["seen"]
    )
    assert f"openstack network agent list --host {HOST}" in dead["fix"]
    workspace.api.patch(NODE, node, {"metadata": {"annotations": {"networking.dra.io/neutron-host": None}}})
    missing = only(asked(), "NIC switch agents")
    assert missing["level"] == "error"
    assert (
        f"1 nodes do not have an agent, so their VFs do not get ports: {node} (physnet2, physnet3)" in missing["seen"]
    )
    assert HOST in missing["seen"]
    assert f"kubectl annotate node {node} networking.dra.io/neutron-host=HOST" in missing["fix"]


def test_agent_mappings_that_do_not_match_the_node_are_reported(
    asked: Look, agent: Cloud, network: Any, node: str, storage: Any, sees: None
) -> None:
    agent.beat(HOST, physnet2=["enp9s0f9"])
    errors, warnings = (
        [finding["seen"] for finding in asked() if finding["check"].startswith("NIC") and finding["level"] == level]
        for level in ("error", "warning")
    )
    assert len(errors) == 1
    assert errors[0].endswith(f"which do not get ports: physnet3:enp1s0f1 on {node}")
    assert [seen.rpartition(": ")[2] for seen in warnings] == [
        f"physnet2:enp1s0f0 on {node}",
        f"physnet2:enp9s0f9 on {node}",
    ]
    agent.beat(HOST, physnet2=[NICS["physnet3"]], physnet3=[NICS["physnet2"]])
    crossed = only(asked(), "NIC switch agents")
    assert crossed["level"] == "error"
    assert f"enp1s0f0 of {node} belongs to physnet2 on the node, but to physnet3 in the agent" in crossed["seen"]


def test_missing_networks_and_networks_of_another_physnet_are_reported(
    asked: Look, cloud: Cloud, network: Any, node: str, storage: Any, sees: None, tmp_path: Path
) -> None:
    file = tmp_path / "map"
    findings = asked(mapping(file, physnet2={"network": "nowhere"}, physnet3={"network": "data"}))
    assert only(findings, "network of physnet2")["level"] == "error"
    assert 'network "nowhere" not found' in only(findings, "network of physnet2")["seen"]
    assert only(findings, "network of physnet3")["level"] == "error"
    assert only(findings, "network of physnet3")["seen"] == 'data belongs to physical network "physnet2"'
    findings = asked(mapping(file, physnet2={"network": "data", "subnet": "nowhere"}))
    assert 'no subnets "nowhere"' in only(findings, "network of physnet2")["seen"]
    findings = asked(mapping(file, physnet22={"network": "data"}))
    assert any("no node has devices of physnet22" in finding["seen"] for finding in findings)
    cloud.admin("neutron", "DELETE", f"/v2.0/networks/{storage['id']}")
    try:
        lacking = only(asked(), "networks")
    finally:
        storage.update(cloud.network("storage", "physnet3", ["10.70.0.0/24"]))
    assert (lacking["level"], lacking["seen"].rpartition(" ")[2]) == ("warning", "physnet3")


def test_a_missing_role_of_the_user_is_reported_by_name(
    asked: Look, cloud: Cloud, network: Any, node: str, tmp_path: Path
) -> None:
    findings = asked(file=cloud.clouds(tmp_path / "member.yaml", "member"))
    roles = only(findings, "roles")
    assert roles["level"] == "error"
    assert roles["seen"].startswith("role service missing (found: member, reader)")
    assert "openstack role add --user netdra-member --project kubernetes service" in roles["fix"]


def test_a_wrong_password_a_wrong_url_and_an_untrusted_certificate_are_distinguished(
    asked: Look, cloud: Cloud, network: Any, node: str, tmp_path: Path
) -> None:
    def login(**auth: Any) -> dict[str, Any]:
        (finding,) = asked(file=cloud.clouds(tmp_path / "clouds.yaml", by="password", **auth))
        assert (finding["check"], finding["level"]) == ("login", "error")
        return finding

    refused = login(password="not-the-password")
    assert "401: it does not take the credentials" in refused["seen"]
    assert "not-the-password" not in str(refused)
    with closing(Ports("127.0.0.1")) as free:
        away = login(auth_url=f"http://127.0.0.1:{free.take()}/v3")
    assert "Connection refused" in away["seen"] or "Connect call failed" in away["seen"]
    encrypted = login(auth_url=f"{cloud.url('keystone').replace('http', 'https')}/v3")
    assert "the TLS handshake failed" in encrypted["seen"]
    assert "https://" in encrypted["fix"]
    with behind_tls(cloud.url("keystone"), tmp_path) as (url, authorities):
        plain = login(auth_url=f"{url.replace('https', 'http')}/v3")
        assert "the connection ended without an answer" in plain["seen"]
        assert "http://" in plain["fix"]
        untrusted = login(auth_url=f"{url}/v3")
        assert "its certificate is not accepted: " in untrusted["seen"]
        assert "cacert" in untrusted["fix"]
        file = cloud.clouds(tmp_path / "clouds.yaml", by="password", auth_url=f"{url}/v3")
        content = yaml.safe_load(file.read_text())
        content["clouds"]["openstack"]["cacert"] = authorities.name
        file.write_text(yaml.safe_dump(content))
        assert only(asked(file=file), "login")["level"] == "ok"


def test_a_hanging_neutron_is_reported_in_a_single_finding(asked: Look, cloud: Cloud, network: Any, node: str) -> None:
    cloud.neutron.pause()
    try:
        login, neutron = asked()
    finally:
        cloud.neutron.resume()
    assert (login["check"], login["level"]) == ("login", "ok")
    assert (neutron["check"], neutron["level"]) == ("Neutron", "error")
    assert "no answer within 10 s" in neutron["seen"]
    assert cloud.url("neutron") in neutron["fix"]


def test_the_doctor_reports_port_states_in_the_words_of_the_controller(
    look: Look,
    cloud: Cloud,
    network: Any,
    node: str,
    workspace: Workspace,
    control_plane: ControlPlane,
    api: Api,
    tmp_path: Path,
    no_ports_stay: None,
) -> None:
    """One story, for a port has to be a minute old before its state is a trouble."""

    def told() -> list[str]:
        findings = look()
        return [
            f"{finding['level']} {finding['seen']} {finding.get('fix', '')}"
            for finding in findings
            if is_of_ports(finding)
        ]

    def tells(*words: str) -> bool:
        return any(all(word in line for word in words) for line in told())

    assert tells("ok no topology uses them")
    arguments = (
        f"--neutron-clouds={cloud.clouds(tmp_path / 'clouds.yaml')}",
        f"--neutron-physnets={mapping(tmp_path / 'map', physnet2={'network': 'data'}).partition('=')[2]}",
        "--neutron-check-interval=2",
    )
    namespace = workspace.namespace
    with running_controller(control_plane, api, *arguments):
        class_name = topology(workspace)
        for name in ("changed", "kept"):
            ask(workspace, name, class_name, node)
            wait(workspace, name)
        assert tells("ok 2 NeutronPorts, all Bound")
        ask(workspace, "lost", topology(workspace, base="bad", network="nowhere"), node)
        (unbound,) = wait(workspace, "lost", "NoNetwork")
        assert tells("warning 1 not Bound, NoNetwork", f"{namespace}/{unbound['metadata']['name']} for", "nowhere")
        (changed,) = wait(workspace, "changed")
        path = f"/v2.0/ports/{changed['status']['portID']}"
        cloud.admin("neutron", "PUT", path, {"port": {"binding:host_id": ""}})
        cloud.admin("neutron", "PUT", path, {"port": {"mac_address": "fa:16:3e:00:00:99"}})
        until(lambda: tells("1 changed in Neutron", "fa:16:3e:00:00:99"), "the change", seconds=PATIENCE)
        cloud.neutron.pause()
        workspace.release("kept", "kept")
        wait(workspace, "kept", "Unreachable")
    try:
        pod = controller_pod()
        api.create(pod)
        assert tells("error topologies use `neutron`", "no controller serves Neutron", "cloudsSecret")
        ask(workspace, "alone", class_name, node)
        ask(workspace, "silent", class_name, node)
        workspace.wait_placed("silent", node)
        workspace.wait_placed("alone", node)
        devices = api.get("resource.k8s.io/v1/ResourceClaim", "silent", namespace)
        assert devices is not None
        addresses = {one["device"]: "0000:05:00.7" for one in devices["status"]["allocation"]["devices"]["results"]}
        (silent,) = allotted(api, namespace, "silent", node, addresses)
        silent.create()
        created = time.monotonic()
        until(lambda: time.monotonic() > created + GRACE_SECONDS, "ports that are old enough", seconds=PATIENCE)
        until(lambda: tells("1 remain in Terminating", "no answer within"), "the port that stays", seconds=PATIENCE)
        until(
            lambda: tells(
                "error 1 allocated claims whose topology uses `neutron` do not have a NeutronPort", f"{namespace}/alone"
            ),
            "the claim without a port",
            seconds=PATIENCE,
        )
        until(
            lambda: tells("error 1 NeutronPorts not processed by the controller", silent.name),
            "the port without an answer",
            seconds=PATIENCE,
        )
    finally:
        cloud.neutron.resume()
        api.delete(POD, "netdra-controller-1", NETDRA)
    with running_controller(control_plane, api, *arguments):
        for name in ("alone", "silent", "changed", "lost"):
            workspace.release(name, name)
        until(lambda: not api.list(PORT, namespace), "the ports to go", seconds=PATIENCE)


def test_missing_permission_to_read_ports_is_reported_as_a_warning(
    control_plane: ControlPlane, api: Api, custom_kinds: None
) -> None:
    user, group = "reads-no-ports", "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": ["networking.dra.io"], "resources": ["networktopologies", "nodenetworks"], "verbs": ["list"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims", "resourceslices"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    ]
    api.apply({**manifest(f"{group}/v1/ClusterRole", user), "rules": rules})
    subjects = [{"apiGroup": group, "kind": "User", "name": user}]
    role = {"apiGroup": group, "kind": "ClusterRole", "name": user}
    api.apply({**manifest(f"{group}/v1/ClusterRoleBinding", user), "roleRef": role, "subjects": subjects})

    def finding() -> dict[str, Any]:
        (found,) = filter(is_of_ports, run(f"--kubeconfig={control_plane.kubeconfig(user, ())}"))
        return found

    until(lambda: "neutronports" in finding()["seen"], "the API server to know the role", detail=finding)
    assert finding()["level"] == "warning"
    assert finding()["seen"].startswith("could not be read: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--neutron-cloud=one",), "require --neutron-clouds"),
        (("--neutron-clouds=/nowhere/clouds.yaml",), "/nowhere/clouds.yaml: No such file"),
        (("--only=node", "--neutron-clouds=FILE"), "omit --only node"),
    ],
)
def test_options_that_make_no_sense_are_bad_usage(
    cloud: Cloud, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    file = str(cloud.clouds(tmp_path / "clouds.yaml"))
    command = [sys.executable, "-m", "netdra", "doctor", *(one.replace("FILE", file) for one in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def is_of_ports(finding: dict[str, Any]) -> bool:
    return bool(finding["check"] == "ports of Neutron")


def controller_pod() -> Object:
    """A pod of the controller that is started without a cloud."""
    container = {"name": "controller", "image": "none", "args": ["controller", "--health-address=:8080"]}
    pod = manifest(POD, "netdra-controller-1", NETDRA, spec={"containers": [container]})
    pod["metadata"]["labels"] = {"app.kubernetes.io/part-of": "netdra", "app.kubernetes.io/component": "controller"}
    return pod


@contextmanager
def behind_tls(url: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """A server's URL by TLS, and the file of the authority that signed its certificate."""
    made = certificates.make(["127.0.0.1"], datetime.now(UTC))
    for name, text in (("tls.crt", made.chain), ("tls.key", made.key), ("ca.crt", made.authorities)):
        (folder / name).write_text(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server = urlsplit(url)

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with (
                suppress(OSError),
                context.wrap_socket(self.request, server_side=True) as near,
                socket.create_connection((server.hostname, server.port)) as far,
            ):
                onward = threading.Thread(target=copy, args=(near, far))
                onward.start()
                copy(far, near)
                near.shutdown(socket.SHUT_RDWR)
                onward.join()

    class Listener(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Listener(("127.0.0.1", 0), Relay) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{listener.server_address[1]}", folder / "ca.crt"
        finally:
            listener.shutdown()
            thread.join()


def copy(source: socket.socket, target: socket.socket) -> None:
    """Forward all data, until no more arrives."""
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
