"""netdra installed as on a real cluster: its pods run from its image, and a pod gets its network by them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from netdra.bundle import archive
from netdra.cni.confining import FIRST_USER
from testbed import yaml
from testbed.api import Object
from testbed.build import program
from testbed.objects import CLAIM, SLICE, manifest
from testbed.pods import Pods
from testbed.process import Ports, Process
from testbed.site import CNI_PATH, IMAGE, TAG, Site
from testbed.waiting import until
from testbed.workspace import open_workspace
from tests.cluster.install.trying import first_pod
from tests.cluster.pods.running import TOPOLOGY, publish, step

CAPABILITIES = {
    "SETGID": 6,
    "SETUID": 7,
    "NET_BROADCAST": 11,
    "NET_ADMIN": 12,
    "NET_RAW": 13,
    "SYS_CHROOT": 18,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
}
"""By their numbers in linux/capability.h."""
GROUP = 4242
SCHEMA = "cni.networking.k8s.io/v1alpha1/CNIPluginSchema"
HOSTILE = """#!/bin/sh
attempt() { if (eval "$2") >/dev/null 2>&1; then echo "$1=yes"; else echo "$1=no"; fi }
{
  echo "user=$(id -u)"
  attempt wrote 'echo x >>/var/lib/secret'
  attempt made 'mkdir /tmp/hostile /var/lib/hostile'
  attempt read 'cat /var/lib/secret'
  attempt environ 'cat /proc/1/environ'
  sed -n 's/CapEff:./CapEff=/p' /proc/self/status
} >&2
exit 3
"""
"""A program that tells what it could do."""
POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"
POD_MONITORS = manifest(
    DEFINITION,
    "podmonitors.monitoring.coreos.com",
    spec={
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"plural": "podmonitors", "singular": "podmonitor", "kind": "PodMonitor"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
)
"""The kind of the Prometheus operator that `metrics.podMonitor` needs; no operator runs."""
ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "first-pod"
SUPPORT = ROOT / "docs" / "support-bundle.md"
TRAFFIC = ROOT / "docs" / "traffic.md"
OPERATING = ROOT / "docs" / "operating.md"


@pytest.fixture(scope="module")
def installed(site: Site) -> Site:
    """netdra at work."""
    site.install()
    return site


@pytest.fixture
def pods(installed: Site) -> Iterator[Pods]:
    """The pods of a namespace of the test's own."""
    with open_workspace(installed.api) as workspace:
        found = installed.pods(workspace.namespace)
        yield found
        found.delete_all()


def test_a_pod_gets_its_network_by_netdras_own_pods(installed: Site, pods: Pods) -> None:
    first_pod(installed, pods)


def test_with_the_shared_preset_pods_share_an_interface_without_a_handwritten_policy(
    installed: Site, pods: Pods
) -> None:
    installed.node.run("ip", "link", "add", "preset0", "type", "veth", "peer", "name", "preset1")
    for name in ("preset0", "preset1"):
        installed.node.run("ip", "link", "set", name, "up")
    installed.install({"presets": {"shared": True}})
    made = installed.api.get(POLICY, "shared")
    assert made is not None
    # The test's interfaces are no NICs: the administrator's change outlives the next upgrade.
    spec = {"selector": {"cel": 'device.attributes["dra.networking"].ifName == "preset0"'}}
    installed.api.patch(POLICY, "shared", {"spec": spec})
    installed.install({"presets": {"shared": True}})
    found = installed.api.get(POLICY, "shared")
    assert found is not None
    assert found["spec"]["selector"] == spec["selector"]
    assert not [job for job in installed.api.list("batch/v1/Job", "netdra") if "preset" in job["metadata"]["name"]]
    installed.api.create(manifest(TOPOLOGY, "share", spec={"steps": [step("lan", "macvlan", {}, prefix="preset0")]}))
    installed.plane.kubectl("wait", "--for=create", "deviceclass/share-lan", "--timeout=30s")
    request = {"name": "lan", "exactly": {"deviceClassName": "share-lan"}}
    for name in ("one", "two"):
        installed.api.create(manifest(CLAIM, name, pods.namespace, spec={"devices": {"requests": [request]}}))
        pods.run(name, name)
        (link,) = (link for link in pods.ip(name, "link") if link["ifname"] not in {"lo", "eth0"})
        assert link["linkinfo"]["info_kind"] == "macvlan"
    installed.api.delete(POLICY, "shared")


def test_a_pod_publishes_its_measurement_of_a_device_through_the_registry(installed: Site, pods: Pods) -> None:
    """The device registry as the chart serves it: a socket of a group, for pods with a token alone."""
    account = f"system:serviceaccount:{pods.namespace}:probe"
    registry = {"enabled": True, "group": GROUP, "tokensOnly": True, "providers": {"bctl": account}}
    installed.install({"node": {"deviceRegistry": registry}})
    installed.api.create(manifest("v1/ServiceAccount", "probe", pods.namespace))
    policy = {
        "selector": {"cel": 'device.attributes["dra.networking"].ifName == "measured0"'},
        "exposure": {"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]},
    }
    installed.api.create(manifest(POLICY, "measured", spec=policy))
    installed.node.run("ip", "link", "add", "measured0", "type", "veth", "peer", "name", "measured1")
    for name, provider in (("probe", "bctl"), ("other", "rack")):
        installed.api.create(provider_pod(pods.namespace, name, provider))
    ended = partial(installed.api.wait_for, "v1/Pod", namespace=pods.namespace)
    probe, other = (ended(name, has_ended) for name in ("probe", "other"))
    log = partial(installed.plane.kubectl, "--namespace", pods.namespace, "logs")
    assert probe is not None
    assert other is not None
    assert probe["status"]["phase"] == "Succeeded", log("probe")
    # A name is anybody's who has a token, unless it belongs to somebody.
    assert other["status"]["phase"] == "Succeeded", log("other")
    published = installed.api.wait_for_all(SLICE, lambda items: "bctl/speed" in attributes(items, "measured0"))
    assert attributes(published, "measured0")["bctl/speed"] == {"int": 4096}
    for name in ("probe", "other"):
        installed.api.delete("v1/Pod", name, pods.namespace)
    installed.api.delete(POLICY, "measured")
    installed.install()


def provider_pod(namespace: str, name: str, provider: str) -> Object:
    """A pod without an owner that registers an attribute of an interface, by netdra's own command in its image."""
    command = (
        *("netdra", "register", "measured0", f"--provider={provider}", "--attribute=speed=4096"),
        *("--socket=/run/netdra/registry.sock", "--token-file=/var/run/secrets/netdra/token"),
    )
    token = {"path": "token", "audience": "dra.networking", "expirationSeconds": 600}
    spec = {
        "serviceAccountName": "probe",
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "supplementalGroups": [GROUP]},
        "containers": [
            {
                "name": "probe",
                "image": f"{IMAGE}:{TAG}",
                "command": [*command],
                "volumeMounts": [
                    {"name": "socket", "mountPath": "/run/netdra"},
                    {"name": "token", "mountPath": "/var/run/secrets/netdra"},
                ],
            }
        ],
        "volumes": [
            {"name": "socket", "hostPath": {"path": "/run/netdra", "type": "Directory"}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
        ],
    }
    return {**manifest("v1/Pod", name, namespace), "spec": spec}


def has_ended(pod: Object | None) -> bool:
    return pod is not None and pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def attributes(slices: Iterable[Object], device: str) -> Object:
    """The attributes of a published device."""
    found = [one for part in slices for one in part["spec"].get("devices", []) if one["name"] == device]
    return found[0].get("attributes", {}) if found else {}


def test_the_driver_has_no_more_privileges_than_it_needs(installed: Site, pods: Pods) -> None:
    """A topology with a program in the node's root, a lease kept there, a setting of the kernel, and an MTU."""
    status = installed.plane.kubectl(
        *("--namespace=netdra", "exec", "daemonset/netdra-node", "--"),
        *("python3", "-c", "print(open('/proc/self/status').read())"),
    )
    held = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    wanted = sum(1 << number for number in CAPABILITIES.values())
    assert {int(held[kind], 16) for kind in ("CapPrm", "CapEff", "CapBnd")} == {wanted}
    assert (held["NoNewPrivs"], held["Seccomp"]) == ("1", "2")
    # With these the runtime's default profile lets it read BPF programs.
    read = "from netdra.kernel import bpf; print(bpf.uses(1, ''))"
    exec_ = ("--namespace=netdra", "exec", "daemonset/netdra-node", "--", "python3", "-c", read)
    assert installed.plane.kubectl(*exec_) == "()\n"
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.79.0.0/24"}]]}
    size = {"dev": "{{ lan.interfaceName }}", "mtu": 1400, "sysctl": {"net/ipv4/conf/IFNAME/arp_filter": "1"}}
    steps = [
        step("lan", "macvlan", {"mode": "bridge", "ipam": ipam}, prefix="data0"),
        step("size", "tuning", size, after="lan"),
    ]
    installed.api.create(manifest(TOPOLOGY, "tuned", spec={"steps": steps}))
    installed.plane.kubectl("wait", "--for=create", "deviceclass/tuned-lan", "--timeout=30s")
    request = {"name": "lan", "exactly": {"deviceClassName": "tuned-lan"}}
    installed.api.create(manifest(CLAIM, "tuned", pods.namespace, spec={"devices": {"requests": [request]}}))
    pods.run("tuned", "tuned")
    assert pods.run_inside("tuned", "cat", "/proc/sys/net/ipv4/conf/net1/arp_filter").strip() == "1"
    pods.delete("tuned")
    assert 'level":"error' not in installed.plane.kubectl("--namespace=netdra", "logs", "daemonset/netdra-node")


def test_a_program_has_no_rights_when_it_is_asked_for_its_versions(installed: Site) -> None:
    """In the node's root, where a plugin is root when a pod asks for it."""
    secret = installed.node.folder / "lib" / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    program = installed.node.folder / CNI_PATH.removeprefix("/var/") / "hostile"
    program.write_text(HOSTILE)
    program.chmod(0o700)
    contract = {"cniType": "hostile", "configParameters": {"optional": [{"name": "mode", "type": "string"}]}}
    installed.api.create(manifest(SCHEMA, "hostile", spec=contract))
    try:
        logs = partial(installed.plane.kubectl, "--namespace=netdra", "logs", "daemonset/netdra-node")
        until(lambda: "hostile" in logs(), "the program to be asked", detail=logs)
        (line,) = (json.loads(each) for each in logs().splitlines() if '\\"hostile\\"' in each)
    finally:
        installed.api.delete(SCHEMA, "hostile")
        program.unlink()
    assert "is not offered" in line["message"], line
    printed = " ".join(line["message"].split("stderr: ")[1:])
    told = dict(part.split("=", 1) for part in printed.split())
    assert int(told.pop("user")) >= FIRST_USER
    assert told == {"wrote": "no", "made": "no", "read": "no", "environ": "no", "CapEff": "0000000000000000"}


def test_without_plugins_the_driver_sees_neither_the_nodes_root_nor_its_processes(installed: Site, pods: Pods) -> None:
    installed.install({"node": {"runPlugins": False}})
    ask = "import os; print(os.path.exists('/host'), os.readlink('/proc/1/exe').rpartition('/')[2])"
    seen = installed.plane.kubectl("--namespace=netdra", "exec", "daemonset/netdra-node", "--", "python3", "-c", ask)
    assert seen.split()[0] == "False"
    assert seen.split()[1].startswith("python3")
    policy = {"selector": {"cel": 'device.attributes["dra.networking"].ifName == "data7"'}}
    exposure = {"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]}
    installed.api.create(manifest(POLICY, "without", spec={**policy, "exposure": exposure}))
    publish(installed.node, installed.api, "data7")
    installed.api.create(manifest(TOPOLOGY, "own", spec={"steps": [step("lan", "host-device", prefix="data7")]}))
    installed.plane.kubectl("wait", "--for=create", "deviceclass/own-lan", "--timeout=30s")
    request = {"name": "lan", "exactly": {"deviceClassName": "own-lan"}}
    installed.api.create(manifest(CLAIM, "own", pods.namespace, spec={"devices": {"requests": [request]}}))
    pods.run("own", "own")
    (link,) = (link for link in pods.ip("own", "link") if link["ifname"] not in {"lo", "eth0"})
    assert link["link_netnsid"] >= 0
    pods.delete("own")
    assert 'level":"error' not in installed.plane.kubectl("--namespace=netdra", "logs", "daemonset/netdra-node")
    installed.api.delete(POLICY, "without")
    installed.install()


def test_commands_run_in_the_drivers_pod(installed: Site) -> None:
    """The image has no shell, and kubectl exec needs none."""
    printed = installed.plane.kubectl(
        *("--namespace=netdra", "exec", "daemonset/netdra-node", "--"),
        *("netdra", "doctor", "--only", "node", "--output", "json"),
    )
    levels = {finding["check"]: finding["level"] for finding in json.loads(printed)}
    assert (levels["NRI"], levels["kubelet"], levels["CDI"]) == ("ok", "ok", "ok")


def test_doctor_checks_the_node_from_the_drivers_pod_as_the_page_writes_it(installed: Site) -> None:
    (command,) = re.findall(r"^kubectl (-n netdra exec .*netdra doctor .*)$", OPERATING.read_text(), re.MULTILINE)
    printed = installed.plane.kubectl(*command.split(), "--output", "json")
    levels = {finding["check"]: finding["level"] for finding in json.loads(printed)}
    assert {levels[check] for check in ("NRI", "kubelet", "CDI", "CNI plugins")} == {"ok"}


def test_the_bundle_of_a_node_has_the_state_of_its_pods_by_the_command_of_the_page(
    installed: Site, pods: Pods, tmp_path: Path
) -> None:
    (command,) = re.findall(r"^kubectl (-n netdra exec .* > node.tar.gz)$", SUPPORT.read_text(), re.MULTILINE)
    installed.api.create(
        manifest(TOPOLOGY, "bundled", spec={"steps": [step("lan", "macvlan", {"mode": "bridge"}, prefix="data0")]})
    )
    installed.plane.kubectl("wait", "--for=create", "deviceclass/bundled-lan", "--timeout=30s")
    request = {"name": "lan", "exactly": {"deviceClassName": "bundled-lan"}}
    made = installed.api.create(manifest(CLAIM, "bundled", pods.namespace, spec={"devices": {"requests": [request]}}))
    pods.run("bundled", "bundled")
    kubectl = f"{program('kubectl')} --kubeconfig={installed.plane.kubeconfig()}"
    subprocess.run(["bash", "-euc", f"{kubectl} {command}"], cwd=tmp_path, check=True, timeout=120)
    bundle = archive.read_file(tmp_path / "node.tar.gz")
    files = {"doctor.json", "inventory.json", "metrics.txt", "ready.txt", f"claims/{made['metadata']['uid']}.json"}
    assert files | {f"checkpoints/{pods.sandbox('bundled')}.json"} <= bundle.files.keys()
    assert bundle.files["ready.txt"] == b"ok\n"
    assert bundle.manifest.left_out == ()
    levels = {finding["check"]: finding["level"] for finding in json.loads(bundle.files["doctor.json"])}
    assert levels["CNI plugins"] == "ok"


def test_the_console_shows_its_pages_and_its_account_reads_alone(installed: Site, pods: Pods) -> None:
    """With the traffic of pods, which `netdra top` reads in the same way: from the driver's pod by the API server."""
    installed.api.create(POD_MONITORS)
    values = {
        "console": {"enabled": True, "traffic": True},
        "node": {"traffic": {"enabled": True}},
        "metrics": {"podMonitor": True},
    }
    installed.plane.kubectl("wait", "--for=condition=Established", f"crd/{POD_MONITORS['metadata']['name']}")
    installed.install(values)
    _run_busy_pod(installed, pods)
    (row,) = json.loads(_top_traffic(installed))
    assert (row["namespace"], row["pod"], row["interface"]) == (pods.namespace, "busy", "net1")
    assert (row["node"], row["device"]) == (installed.node.name, "busy0")
    assert row["transmitBytes"] > 0
    deployment = installed.api.get("apps/v1/Deployment", "netdra-console", "netdra")
    assert deployment is not None
    assert deployment["status"]["readyReplicas"] == 1
    logs = partial(installed.plane.kubectl, "--namespace=netdra", "logs", "deployment/netdra-console")
    node = installed.node.name
    with forwarded(installed, "deployment/netdra-console", 8089) as port:
        opener = build_opener(HTTPCookieProcessor())
        opener.open(f"http://127.0.0.1:{port}{re.findall(r'/enter.token=[^ ]+', logs())[-1].strip()}").close()
        for path in ("/", f"/nodes/{node}", f"/devices/{node}/busy0"):
            with opener.open(f"http://127.0.0.1:{port}{path}") as answer:
                page = answer.read().decode()
            assert node in page, path
            assert "does not allow" not in page, path

        def traffic() -> str:
            with opener.open(f"http://127.0.0.1:{port}/traffic?node={node}") as answer:
                text: str = answer.read().decode()
            return text

        until(lambda: f"{pods.namespace}/busy" in traffic() and 'class="curve' in traffic(), "rates", detail=traffic)
    pods.delete("busy")
    installed.api.delete(POLICY, "busy")
    assert allowed(installed, "list", "nodes")
    for verb in ("get", "list", "watch", "create", "update", "patch", "delete"):
        assert not allowed(installed, verb, "secrets")
    resources = ("pods", "nodes", "resourceslices.resource.k8s.io", "networktopologies.networking.dra.io", "*.*")
    for verb in ("create", "update", "patch", "delete", "deletecollection"):
        assert [each for each in resources if allowed(installed, verb, each)] == [], verb
    assert 'level":"error' not in logs()
    installed.install()
    installed.api.wait_for("apps/v1/Deployment", "netdra-console", lambda found: found is None, namespace="netdra")
    installed.api.delete(DEFINITION, POD_MONITORS["metadata"]["name"])


def _run_busy_pod(site: Site, pods: Pods) -> None:
    """Run a pod that sends on its interface of netdra all the time."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.79.1.0/24"}]]}
    policy = {"selector": {"cel": 'device.attributes["dra.networking"].ifName == "busy0"'}}
    exposure = {"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]}
    site.api.create(manifest(POLICY, "busy", spec={**policy, "exposure": exposure}))
    publish(site.node, site.api, "busy0")
    steps = [step("lan", "host-device", {"ipam": ipam}, prefix="busy0")]
    site.api.create(manifest(TOPOLOGY, "busy", spec={"steps": steps}))
    site.plane.kubectl("wait", "--for=create", "deviceclass/busy-lan", "--timeout=30s")
    request = {"name": "lan", "exactly": {"deviceClassName": "busy-lan"}}
    site.api.create(manifest(CLAIM, "busy", pods.namespace, spec={"devices": {"requests": [request]}}))
    pods.run("busy", "busy")
    pods.exec("busy", "sh", "-c", "ping -q 10.79.1.250 >/dev/null 2>&1 </dev/null &")  # nobody answers its ARP


def _top_traffic(site: Site) -> str:
    """The output of `netdra top --traffic` of the administrator, on another machine than the node."""
    command = (
        *(sys.executable, "-m", "netdra", "top", "--traffic", f"--kubeconfig={site.plane.kubeconfig()}"),
        *(f"--node={site.node.name}", "--every=3", "--output=json"),
    )
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_the_job_of_the_page_proves_a_wire_between_two_pods(installed: Site, pods: Pods) -> None:
    """As it is written, but on one node, with its interface and image, and for half a second."""
    (text,) = (
        each
        for each in re.findall(r"^```yaml\n(.*?)^```$", TRAFFIC.read_text(), re.MULTILINE | re.DOTALL)
        if "Job" in each
    )
    text = text.replace("enp3s0f0", "rail0").replace("image: localhost/netdra", f"image: {IMAGE}:{TAG}")
    topology, *objects = yaml.safe_load_all(text)
    spec = objects[-1]["spec"]["template"]["spec"]
    del spec["affinity"]
    spec["containers"][0]["command"] += ["--seconds=0.5", "--rate=2"]  # a receiver that waits for a CPU loses nothing
    policy = {"selector": {"cel": 'device.attributes["dra.networking"].ifName == "rail0"'}}
    slots = {"slots": {"value": "8", "requestPolicy": {"default": "1"}}}
    exposure = {"allowMultipleAllocations": True, "supportedCNIPlugins": [{"name": "macvlan"}], "capacity": slots}
    installed.api.create(manifest(POLICY, "wire", spec={**policy, "exposure": exposure}))
    publish(installed.node, installed.api, "rail0")
    for name in ("far-rail0", "rail0"):
        installed.node.run("ip", "link", "set", name, "mtu", "9000")
    installed.api.create(topology)
    installed.plane.kubectl("wait", "--for=create", "deviceclass/prove-rail-rail", "--timeout=30s")
    for each in objects:
        each["metadata"]["namespace"] = pods.namespace
        installed.api.create(each)
    kubectl = partial(installed.plane.kubectl, f"--namespace={pods.namespace}")
    kubectl("wait", "--for=condition=complete", "job/prove-rail", "--timeout=180s")
    printed = kubectl("logs", "job/prove-rail")
    assert re.search(r"198\.51\.100\.10 +net1 .* 9000 +0\.00% .* ok", printed), printed
    kubectl("delete", "job/prove-rail")
    installed.api.delete(POLICY, "wire")
    installed.api.delete(TOPOLOGY, "prove-rail")


def allowed(site: Site, verb: str, resource: str) -> bool:
    """Whether the API server allows the console's account something in all namespaces."""
    name, _, group = resource.partition(".")
    asked = {
        "user": "system:serviceaccount:netdra:netdra-console",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:netdra", "system:authenticated"],
        "resourceAttributes": {"verb": verb, "group": group, "resource": name},
    }
    review = site.api.create(manifest("authorization.k8s.io/v1/SubjectAccessReview", "", spec=asked))
    answer: bool = review["status"]["allowed"]
    return answer


@contextmanager
def forwarded(site: Site, workload: str, port: int) -> Iterator[int]:
    """The local port by which kubectl forwards to a workload's port."""
    with closing(Ports("127.0.0.1")) as ports:
        local = ports.take()
        command = (
            *(str(program("kubectl")), f"--kubeconfig={site.plane.kubeconfig()}", "--namespace=netdra"),
            *("port-forward", workload, f"{local}:{port}"),
        )
        log = site.node.folder / "port-forward.log"
        process = Process("port-forward", command, log, lambda: log.exists() and "Forwarding from" in log.read_text())
        process.start()
        try:
            process.wait_ready()
            yield local
        finally:
            process.stop()


def test_the_installed_pods_run_only_the_built_image(installed: Site) -> None:
    images = {
        container["image"] for pod in installed.api.list("v1/Pod", "netdra") for container in pod["spec"]["containers"]
    }
    assert images == {f"{IMAGE}:{TAG}"}
