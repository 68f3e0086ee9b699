"""`netdra why` on a real control plane: of each of many faults, the cause is in the first three lines.

Nodes have no machine: netdra's own publishing half makes their slices and NodeNetworks of interfaces. The controller
and the scheduler are real. Faults that need a kubelet are in `pods/test_why.py`.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import HTTPCookieProcessor, build_opener

import msgspec
import pytest
from click.testing import CliRunner, Result

from netdra.bundle.anonymity import known_words
from netdra.cli.main import cli
from netdra.cluster import reading, watching
from netdra.console.routes import KINDS
from netdra.kube import features as gates
from netdra.kube import resources
from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.kube.kubeconfig import find_config
from netdra.model import documents
from netdra.model.device import Features
from netdra.model.inventory import Interface
from netdra.model.policy import DeviceExposurePolicy
from netdra.node.publishing.offering import Offering
from netdra.node.publishing.plugins import Presence
from testbed import objects
from testbed.api import Api, Object
from testbed.build import program
from testbed.control_plane import ControlPlane
from testbed.objects import HOSTNAME, POD, manifest
from testbed.waiting import until
from testbed.workspace import Workspace, open_workspace
from tests import builders
from tests.cluster import identities, neutron_ports
from tests.cluster.daemons import running_controller
from tests.cluster.test_controller import EVENT
from tests.cluster.test_pod_networks import NETWORK, Net
from tests.hollow_nodes import Quiet

GROUP = "networking.dra.io/v1alpha1"
TOPOLOGY, POLICY, REPORT = f"{GROUP}/NetworkTopology", f"{GROUP}/DeviceExposurePolicy", f"{GROUP}/NodeNetwork"
RULE = "resource.k8s.io/v1/DeviceTaintRule"
BINDING = "rbac.authorization.k8s.io/v1/RoleBinding"
CLUSTER_BINDING = "rbac.authorization.k8s.io/v1/ClusterRoleBinding"
READER = "netdra-reader"
ASKS_FOR_ROLE = f'request a ClusterRoleBinding to the ClusterRole "{READER}"'
PROGRAMS = ("macvlan", "host-local", "static", "tuning")


@dataclass
class Scene:
    """Nodes that publish, topologies, and the additions of each test.

    Attributes:
        nodes: by their purpose, the nodes' names.
        topologies: by their purpose, the topologies' names.
    """

    plane: ControlPlane
    workspace: Workspace
    nodes: dict[str, str] = field(default_factory=dict)
    topologies: dict[str, str] = field(default_factory=dict)
    policies: list[DeviceExposurePolicy] = field(default_factory=list)

    @property
    def api(self) -> Api:
        return self.workspace.api

    def policy(self, base: str, cel: str, *plugins: str) -> None:
        name = self.workspace.name(base)
        made = builders.policy(name, cel, supportedCNIPlugins=[{"name": each, "exclusive": True} for each in plugins])
        self.workspace.create(documents.plain(made))
        self.policies.append(made)

    def node(self, base: str, *interfaces: Interface, programs: Sequence[str] = PROGRAMS, required: str = "") -> None:
        """A node that publishes what the policies make of its interfaces, and reports."""
        name = self.nodes[base] = self.workspace.add_node(base)
        offering = Offering(name, {})
        needed = [required] if required else []
        offering.follow(self.policies, Features(), Presence(tuple(programs)), needed)
        found = builders.inventory(*interfaces, node=name)
        offered = offering.update(found, {}, (), Quiet(), time.monotonic())
        for slices in offered.slices.values():
            for each in slices:
                self.workspace.create(documents.plain(each))
        status = documents.plain(offering.report())
        status["features"] = list(gates.on(Features()))
        self.workspace.create(manifest(REPORT, name))
        self.api.patch(REPORT, name, {"status": status}, subresource="status")

    def topology(self, base: str, *steps: Object) -> str:
        name = self.topologies[base] = self.workspace.name(base)
        self.workspace.create(manifest(TOPOLOGY, name, spec={"steps": list(steps)}))
        return name

    def request(self, topology: str, step: str = "nic", **exactly: Any) -> Object:
        wanted = f"{self.topologies[topology]}-{step}"
        return {"name": exactly.pop("name", step), "exactly": {"deviceClassName": wanted, **exactly}}

    def pod(
        self,
        name: str,
        *claims: str,
        node: str = "",
        decided: bool = True,
        labels: Mapping[str, str] | None = None,
        **changed: Any,
    ) -> str:
        """A pod, once the scheduler has decided on it; it ignores a pod whose claims do not exist."""
        made = objects.pod(self.workspace.namespace, name, dict(zip(claims, claims, strict=True)))
        made["metadata"] |= {"labels": labels} if labels else {}
        made["spec"]["nodeSelector"] = {HOSTNAME: self.nodes[node]} if node else {}
        made["spec"] |= changed
        self.api.create(made)
        if decided:
            self.workspace.schedule(name)
        return name

    def why(self, *arguments: str, kubeconfig: Path | None = None) -> Result:
        access = [f"--kubeconfig={kubeconfig or self.plane.kubeconfig()}"]
        namespace = ["-n", self.workspace.namespace] if arguments[0] in ("pod", "claim") else []
        return CliRunner().invoke(cli, ["why", *arguments, *namespace, *access])


def step(name: str, kind: str, if_name: str = "", after: str = "", **more: Any) -> Object:
    selector = {"cel": f'{builders.OURS}.ifName.startsWith("{if_name}")'}
    return {"name": name, "type": kind, **({"dependOn": [after]} if after else {"selector": selector}), **more}


def nic(name: str, **facts: Any) -> Interface:
    known: dict[str, Any] = {"mac": "02:00:00:00:00:01", "oper_state": "up", "mtu": 1500, "link_speed": 25_000}
    return Interface(if_name=name, type="nic", **known | facts)


@pytest.fixture(scope="module")
def scene(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Scene]:
    with open_scene(control_plane, api) as opened:
        yield opened


@contextmanager
def open_scene(control_plane: ControlPlane, api: Api) -> Iterator[Scene]:
    """Four nodes: one with NICs, one whose NICs no policy matches, one without a driver, one without a plugin."""
    with running_controller(control_plane, api), open_workspace(api) as workspace:
        opened = Scene(control_plane, workspace)
        opened.policy("a-nics", f'{builders.OURS}.ifName.startsWith("eth")', "host-device", "macvlan")
        opened.policy("b-nics", f'{builders.OURS}.ifName.startsWith("eth")', "ipvlan")
        opened.policy("lans", f'{builders.OURS}.ifName.startsWith("lan")', "macvlan")
        opened.policy("vfs", f'{builders.OURS}.type == "vf"', "sriov")
        opened.node("nics", nic("eth0"), nic("eth1"), *builders.sriov("enp3s0f0", 2))
        opened.node("hidden", nic("wlan0"))
        opened.node("pluginless", nic("lan0"), programs=("macvlan",), required="whereabouts")
        opened.nodes["bare"] = workspace.add_node("bare")
        opened.topology("one", step("nic", "host-device", "eth0"))
        opened.topology("two", step("nic", "host-device", "eth"), step("other", "host-device", "eth"))
        opened.topology("conflict", step("nic", "ipvlan", "eth"))
        opened.topology("lan", step("nic", "macvlan", "lan", config={"ipam": {"type": "whereabouts"}}))
        opened.topology("forbidden", step("nic", "host-device", "eth1"), step("wall", "firewall", after="nic"))
        opened.topology("vf", {"name": "vf", "type": "sriov", "selector": {"cel": f'{builders.OURS}.type == "vf"'}})
        for name in opened.topologies.values():
            api.wait_for(TOPOLOGY, name, is_compiled)
        yield opened


def is_compiled(topology: Object | None) -> bool:
    """Whether the controller is done with a topology."""
    found = (topology or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["reason"] != "Pending" for each in found)


Fault = Callable[[Scene], Sequence[str]]
"""Prepares a fault, and returns the arguments of `netdra why`."""


def claimed(scene: Scene, name: str, topology: str, *, constraints: Any = None, **pod: Any) -> Sequence[str]:
    steps = ("nic", "other") if topology == "two" else ("nic",)
    claim = scene.workspace.add_claim(name, *(scene.request(topology, each) for each in steps), constraints=constraints)
    return "pod", scene.pod(name, claim, **pod)


def no_policy(scene: Scene) -> Sequence[str]:
    return claimed(scene, "no-policy", "one", node="hidden")


def conflict(scene: Scene) -> Sequence[str]:
    return claimed(scene, "conflict", "conflict", node="nics")


def unknown_class(scene: Scene) -> Sequence[str]:
    claim = scene.workspace.add_claim("unknown", {"name": "nic", "exactly": {"deviceClassName": "nowhere-nic"}})
    return "pod", scene.pod("unknown-class", claim)


def in_use(scene: Scene) -> Sequence[str]:
    claimed(scene, "first", "one")
    return claimed(scene, "second", "one")


def selected_nothing(scene: Scene) -> Sequence[str]:
    expression = f"{builders.OURS}.mtu == 9000"
    request = scene.request("one", selectors=[{"cel": {"expression": expression}}])
    return "pod", scene.pod("jumbo", scene.workspace.add_claim("jumbo", request), node="nics")


def constrained(scene: Scene) -> Sequence[str]:
    constraint = {"requests": ["nic", "other"], "matchAttribute": "dra.networking/ifName"}
    return claimed(scene, "constrained", "two", constraints=[constraint])


def no_claim(scene: Scene) -> Sequence[str]:
    return "pod", scene.pod("no-claim", "nothing", decided=False)


def claim_elsewhere(scene: Scene) -> Sequence[str]:
    devices = {"requests": [scene.request("one")]}
    scene.workspace.create(manifest(objects.CLAIM, "elsewhere", "default", spec={"devices": devices}))
    return "pod", scene.pod("claim-elsewhere", "elsewhere", decided=False)


def no_template(scene: Scene) -> Sequence[str]:
    claims = [{"name": "net", "resourceClaimTemplateName": "missing"}]
    return "pod", scene.pod("no-template", decided=False, resourceClaims=claims)


def unlisted(scene: Scene) -> Sequence[str]:
    claim = scene.workspace.add_claim("unlisted", scene.request("one"))
    return "pod", scene.pod("unlisted", claim, containers=[{"name": "main", "image": "none"}])


def excluded_nodes(scene: Scene) -> Sequence[str]:
    return claimed(scene, "excluded", "one", node="pluginless")


def no_driver(scene: Scene) -> Sequence[str]:
    return claimed(scene, "no-driver", "one", node="bare")


def no_plugin(scene: Scene) -> Sequence[str]:
    return claimed(scene, "no-plugin", "lan")


def not_allowed(scene: Scene) -> Sequence[str]:
    return claimed(scene, "not-allowed", "forbidden")


def host_network(scene: Scene) -> Sequence[str]:
    return claimed(scene, "host-network", "one", hostNetwork=True)


def no_cpu(scene: Scene) -> Sequence[str]:
    claim = scene.workspace.add_claim("no-cpu", scene.request("one"))
    resources = {"claims": [{"name": claim}], "requests": {"cpu": "100000"}}
    return "pod", scene.pod("no-cpu", claim, containers=[{"name": "main", "image": "none", "resources": resources}])


def no_resource(scene: Scene) -> Sequence[str]:
    resources = {"limits": {"example.com/vff": "1"}}
    return "pod", scene.pod("no-resource", containers=[{"name": "main", "image": "none", "resources": resources}])


def gated(scene: Scene) -> Sequence[str]:
    made = objects.pod(scene.workspace.namespace, "gated")
    scene.api.create({**made, "spec": {**made["spec"], "schedulingGates": [{"name": "example.com/quota"}]}})
    return "pod", "gated"


def is_refused(scene: Scene, topology: str, *steps: str) -> bool:
    """Whether the scheduler refuses a claim for these steps; nothing of it is left."""
    workspace = scene.workspace
    name, _ = workspace.place(*(scene.request(topology, each) for each in steps), node=scene.nodes["nics"])
    if name:
        workspace.release(name, name)
    return not name


def admin_taint(scene: Scene) -> Sequence[str]:
    selector = {"driver": "dra.networking", "device": "eth1"}
    taint = {"key": "example.com/repair", "value": "fan", "effect": "NoSchedule"}
    name = scene.workspace.name("repair")
    scene.workspace.create(manifest(RULE, name, spec={"deviceSelector": selector, "taint": taint}))
    until(lambda: is_refused(scene, "two", "nic", "other"), "the scheduler to know the rule")
    return claimed(scene, "tainted", "two")


def test_a_taint_rule_without_a_selector_taints_no_device_for_netdra_and_the_scheduler(scene: Scene) -> None:
    def idle(found: Scene) -> Sequence[str]:
        rules: dict[str, Object] = {
            "without-selector": {"taint": {"key": "example.com/idle", "effect": "NoSchedule"}},
            "without-effect": {"deviceSelector": {}, "taint": {"key": "example.com/note", "effect": "None"}},
        }
        for base, spec in rules.items():
            found.workspace.create(manifest(RULE, found.workspace.name(base), spec=spec))
        return admin_taint(found)  # the scheduler has read the rules before it, too

    node = scene.nodes["nics"]
    with prepared(scene, idle):
        access = [f"--node={node}", "-o", "json", f"--kubeconfig={scene.plane.kubeconfig()}"]
        uses = json.loads(CliRunner().invoke(cli, ["get", *access]).stdout)
        states = {use["device"]: use["state"] for use in uses if use["type"] == "nic"}
        assert states == {"eth0": "free", "eth1": "tainted"}
        counted = json.loads(CliRunner().invoke(cli, ["top", *access]).stdout)
        assert [entry["tainted"] for entry in counted["nodes"]] == [1]
        assert scene.why("device", f"{node}/eth0").exit_code == 0
        assert not is_refused(scene, "one", "nic")


def tainted_device(scene: Scene) -> Sequence[str]:
    admin_taint(scene)
    return "device", f"{scene.nodes['nics']}/eth1"


def unknown_device(scene: Scene) -> Sequence[str]:
    return "device", f"{scene.nodes['hidden']}/wlan0"


def forbidden_topology(scene: Scene) -> Sequence[str]:
    return "topology", scene.topologies["forbidden"]


def unbound_port(scene: Scene) -> Sequence[str]:
    claim = scene.workspace.add_claim("port", scene.request("vf", "vf"))
    scene.pod("port", claim)
    node = scene.nodes["nics"]
    addresses = {f"enp3s0f0v{index}": f"0000:03:01.{index}" for index in range(2)}
    (port,) = neutron_ports.allotted(scene.api, scene.workspace.namespace, claim, node, addresses)
    port.create()
    port.refuse("BindingFailed", "no agent has the physical network physnet2")
    return "pod", "port"


FAULTS: dict[Fault, tuple[str, ...]] = {
    no_policy: ("wlan0: not matched by any policy",),
    conflict: ("b-nics", "is not used", "same selector, priority and suffix"),
    unknown_class: ('DeviceClass "nowhere-nic"', "does not exist", "no NetworkTopology"),
    in_use: ("eth0", "held by claim", "first"),
    selected_nothing: ("not selected by the request's expression 1", "change the request's selectors"),
    constrained: ("dra.networking/ifName", "constraint"),
    no_claim: ('ResourceClaim "nothing" not found',),
    claim_elsewhere: ('it exists in namespace "default"',),
    no_template: ('ResourceClaimTemplate "missing" not found',),
    unlisted: ('no container lists claim "unlisted"',),
    excluded_nodes: ("available only on nodes that the pod excludes", "nodeSelector requires kubernetes.io/hostname="),
    no_driver: ("netdra's driver has never reported from node", "bare"),
    no_plugin: ('cannot run CNI plugin "whereabouts"', "pluginless"),
    not_allowed: ("is not Ready", "firewall", "node.allowPlugins"),
    host_network: ("host's network (hostNetwork)",),
    no_cpu: ("Insufficient cpu",),
    no_resource: ("example.com/vff", "no DeviceClass and no node provides this resource"),
    gated: ("scheduling gates", "example.com/quota"),
    admin_taint: ("eth1", "example.com/repair=fan:NoSchedule", "DeviceTaintRule", "repair-"),
    tainted_device: ("example.com/repair=fan:NoSchedule", "DeviceTaintRule", "repair-"),
    unknown_device: ('"wlan0" is hidden', "not matched by any policy"),
    forbidden_topology: ("PluginNotAllowed", "firewall", "node.allowPlugins"),
    unbound_port: ("is not Bound in Neutron", "BindingFailed", "physnet2"),
}
"""By fault, the texts that the first three lines have."""


@contextmanager
def prepared(scene: Scene, fault: Fault) -> Iterator[Sequence[str]]:
    """A fault, with nothing of it left afterwards."""
    made = len(scene.workspace._made)
    try:
        yield fault(scene)
    finally:
        namespace = scene.workspace.namespace
        for kind in (POD, objects.CLAIM):
            scene.api.delete_all(kind, namespace)
        scene.api.wait_for_all(objects.CLAIM, lambda found: not found, namespace=namespace)
        for each in reversed(scene.workspace._made[made:]):
            metadata = each["metadata"]
            kind = f"{each['apiVersion']}/{each['kind']}"
            scene.api.delete(kind, metadata["name"], metadata.get("namespace", ""))
        del scene.workspace._made[made:]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.replace("_", "-"))
def test_the_cause_of_a_fault_is_in_the_first_three_lines(scene: Scene, fault: Fault) -> None:
    with prepared(scene, fault) as arguments:
        told = scene.why(*arguments)
        first = "\n".join(told.stdout.splitlines()[:3])
        for text in FAULTS[fault]:
            assert text in first, told.output
        assert told.exit_code == (0 if fault is unlisted else 1), told.output
        as_data = json.loads(scene.why(*arguments, "-o", "json").stdout)
        assert as_data["cause"]["text"].splitlines()[0] in first


TOGETHER = (
    *(no_policy, in_use, constrained, no_claim, excluded_nodes, no_plugin, not_allowed, no_cpu, tainted_device),
    *(forbidden_topology, unbound_port),
)
"""Faults that can be prepared at one time; each leads to a cause, which may be another one than alone."""


def test_from_a_support_bundle_the_answers_are_those_of_the_cluster(scene: Scene, tmp_path: Path) -> None:
    """Also from an anonymous one with its mapping. An event may come in between, then it is written again."""
    bundle, anonymous, names = (tmp_path / name for name in ("bundle.tar.gz", "anonymous.tar.gz", "names.json"))

    def write(path: Path, *options: str) -> None:
        access = f"--kubeconfig={scene.plane.kubeconfig()}"
        written = CliRunner().invoke(cli, ["support-bundle", str(path), access, *options])
        assert written.exit_code == 0, written.output

    def ask(subject: Sequence[str], *options: str) -> str:
        namespace = ["-n", scene.workspace.namespace] if not subject or subject[0] == "pod" else []
        return CliRunner().invoke(cli, ["why", *subject, *namespace, *options]).stdout

    def written_at_rest() -> list[str] | None:
        before = [ask(subject, *access) for subject in subjects]
        write(bundle)
        write(anonymous, "--anonymize", "--mapping", str(names))
        return before if [ask(subject, *access) for subject in subjects] == before else None

    def prepare(scene: Scene) -> Sequence[str]:
        subjects.extend(tuple(fault(scene)) for fault in TOGETHER)
        return ()

    access = [f"--kubeconfig={scene.plane.kubeconfig()}"]
    subjects: list[tuple[str, ...]] = [()]
    with prepared(scene, prepare):
        answers = until(written_at_rest, "the answers to be the same before and after")
        for subject, answer in zip(subjects, answers, strict=True):
            assert ask(subject, "--bundle", str(bundle)) == answer, subject
            restored = ask(subject, "--bundle", str(anonymous), "--mapping", str(names))
            assert restored == answer, subject
    bare = gzip.decompress(anonymous.read_bytes())
    for name in (scene.workspace.namespace, *scene.nodes.values(), *scene.topologies.values()):
        # A name of words that each installation has, such as "vf-17", tells nothing of its owner, and stays.
        assert name.encode() not in bare or {*re.findall("[A-Za-z]+", name)} <= known_words().names


def test_a_support_bundle_without_rights_names_the_parts_that_it_lacks(scene: Scene, tmp_path: Path) -> None:
    account = scene.plane.kubeconfig(scene.workspace.name("outsider"), ())
    bundle = str(tmp_path / "bundle.tar.gz")
    written = CliRunner().invoke(cli, ["support-bundle", bundle, f"--kubeconfig={account}"])
    assert written.exit_code == 0, written.output
    for part in ("objects/pods.json", "objects/nodes.json", "objects/podnetworks.json", "logs and metrics"):
        assert f"netdra: left out: {part}: you are not allowed to read this part" in written.stderr
    told = CliRunner().invoke(cli, ["why", "device", f"{scene.nodes['nics']}/eth0", "--bundle", bundle])
    assert told.stdout == scene.why("device", f"{scene.nodes['nics']}/eth0", kubeconfig=account).stdout


def test_pods_in_trouble_are_shown_by_their_cause_the_most_frequent_first(scene: Scene) -> None:
    """Of a namespace, of all namespaces, and of a workload."""
    labels = {"app": "web"}
    with open_workspace(scene.api) as workspace:
        own = Scene(scene.plane, workspace, scene.nodes, scene.topologies)
        claimed(own, "stuck-1", "one", node="hidden", labels=labels)
        claimed(own, "stuck-2", "one", node="hidden")
        claimed(own, "other", "one", node="pluginless")
        claimed(own, "well", "one", node="nics", labels=labels)
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        own.api.create(manifest("apps/v1/ReplicaSet", "web", workspace.namespace, spec=spec))

        def affected(*arguments: str) -> list[list[str]]:
            shown = own.why(*arguments, "-o", "json")
            assert shown.exit_code == 1, shown.output
            here = f"Pod {workspace.namespace}/"
            troubles = json.loads(shown.stdout)["troubles"]
            named = [[each.removeprefix(here) for each in entry["subjects"]] for entry in troubles]
            return [
                [each for each in names if " " not in each] for names in named if any(" " not in each for each in names)
            ]

        assert affected("-n", workspace.namespace) == [["stuck-1", "stuck-2"], ["other"]]
        assert affected("-A")[0][:2] == ["stuck-1", "stuck-2"]
        assert affected("rs/web", "-n", workspace.namespace) == [["stuck-1"]]
        assert affected("replicaset", f"{workspace.namespace}/web") == [["stuck-1"]]
        text = own.why("-n", workspace.namespace).stdout
        assert f"Namespace {workspace.namespace}: " in text.splitlines()[0]
        assert "4 of 4 pods with claims were checked" in text.splitlines()[0]
        assert f"Affects Pod {workspace.namespace}/stuck-1, Pod {workspace.namespace}/stuck-2" in text
        assert "Next: " in text
        missing = own.why("deployment", "wbe", "-n", workspace.namespace)
        assert 'deployments.apps "wbe" not found' in str(missing.exception)


class NoAddress(NamedTuple):
    """Why a named claim gets no address: the network's spec, what the claim requests, and the expected texts.

    Attributes:
        reason: that of the event.
        text: in the first three lines; `{namespace}` is the test's.
    """

    spec: Object
    reason: str
    text: str
    requested: str = ""


def of_range(cidr: str, **further: Any) -> Object:
    return {"ranges": [{"cidr": cidr, **further}], "keepSeconds": 0}


NO_ADDRESS = {
    "taken": NoAddress(
        of_range("10.31.0.0/29"), "AddressTaken", "address 10.31.0.2 is assigned to {namespace}/first", "10.31.0.2"
    ),
    "out of range": NoAddress(
        of_range("10.31.0.0/29"), "WrongAddress", "10.99.0.2 is not in any of the network's ranges", "10.99.0.2"
    ),
    "gateway": NoAddress(
        of_range("10.31.0.0/29", gateway="10.31.0.1"),
        "WrongAddress",
        "10.31.0.1 is the address of a router",
        "10.31.0.1",
    ),
    "reserved": NoAddress(
        of_range("10.31.0.0/29") | {"reservations": [{"address": "10.31.0.5", "namespace": "db", "name": "web-0"}]},
        "WrongAddress",
        "10.31.0.5 is reserved for db/web-0",
        "10.31.0.5",
    ),
    "namespace": NoAddress(
        of_range("10.31.0.0/29") | {"namespaces": ["db"]}, "NamespaceNotAllowed", 'is not for namespace "{namespace}"'
    ),
    "no network": NoAddress({}, "NoPodNetwork", "does not exist"),
    "no range for the node": NoAddress(
        of_range("10.31.0.0/29", nodeSelector={"matchLabels": {"rack": "none"}}),
        "NoRangeForNode",
        "has no range of IPv4 for the node",
    ),
    "full": NoAddress(
        of_range("10.31.0.0/30", exclude=["10.31.0.2"]), "NoFreeAddress", "has no free address of 10.31.0.0/30"
    ),
}


@pytest.mark.parametrize("cause", NO_ADDRESS)
def test_pod_claim_and_network_name_the_cause_of_a_named_claims_missing_address(scene: Scene, cause: str) -> None:
    spec, reason, text, requested = NO_ADDRESS[cause]
    with open_workspace(scene.api) as workspace:
        own, node = Scene(scene.plane, workspace), workspace.add_node("bare")
        text = text.format(namespace=workspace.namespace)
        net = Net(workspace, **spec or of_range("10.31.0.0/29"))
        if not spec:
            scene.api.delete(NETWORK, net.name)
        if cause in ("taken", "full"):
            net.claim("first", node, requested=requested)
            until(lambda: net.of("first"), "the first claim to have its address")
        net.claim("waits", node, requested=requested)
        own.pod("waits", "waits", decided=False, nodeName=node)

        def is_reported(events: list[Object]) -> bool:
            about = (entry for entry in events if entry["regarding"]["name"] == "waits")
            return any(entry["reason"] == reason and text in entry["note"] for entry in about)

        scene.api.wait_for_all(EVENT, is_reported, namespace=workspace.namespace)
        subjects = [("pod", "waits"), ("claim", "waits"), ("network", net.name)]
        for _ in range(2):
            for subject in subjects:
                shown = own.why(*subject)
                assert text in "\n".join(shown.stdout.splitlines()[:3]), shown.output
                assert shown.exit_code == 1
            scene.api.delete_all(EVENT, workspace.namespace)  # they expire; the objects show the cause
            subjects = [subject for subject in subjects if subject[0] != "network" or spec]


def test_with_rights_in_one_namespace_why_continues_and_names_the_unread_resources(scene: Scene) -> None:
    user = scene.workspace.name("tenant")
    account = scene.plane.kubeconfig(user, ())
    refused = scene.why("pod", "any", kubeconfig=account)
    assert "the cluster does not allow you to list pods" in refused.stdout.splitlines()[1]
    assert refused.exit_code == 1
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    binding = manifest(BINDING, user, scene.workspace.namespace, roleRef=reference, subjects=subjects)
    with prepared(scene, no_cpu) as arguments:
        scene.workspace.create(binding)
        told = until(
            lambda: seen if "Insufficient" in (seen := scene.why(*arguments, kubeconfig=account)).stdout else None,
            "the rights to be known",
        )
        assert "Insufficient cpu" in told.stdout.splitlines()[1]
        for plural in ("resourceslices", "nodes", "resourceclaims in all namespaces", "networktopologies"):
            assert f"Not read: the cluster does not allow you to list {plural}; {ASKS_FOR_ROLE}" in told.stdout
    for command in ("get", "top"):
        told = CliRunner().invoke(cli, [command, f"--kubeconfig={account}"])
        for plural in ("resourceslices", "resourceclaims", "nodenetworks", "deviceclasses"):
            assert f"the cluster does not allow you to list {plural}; {ASKS_FOR_ROLE}" in told.stderr


@pytest.fixture
def reader(scene: Scene) -> str:
    """A user who has the chart's role netdra-reader and nothing else."""
    user = scene.workspace.name("reader")
    (role,) = (each for each in identities.template("people.yaml") if each["metadata"]["name"] == READER)
    scene.workspace.create(role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    scene.workspace.create(manifest(CLUSTER_BINDING, user, roleRef=reference, subjects=subjects))
    until(lambda: may(scene.api, user, "list", "nodes"), "the rights to be known")
    return user


def may(api: Api, user: str, verb: str, resource: str, group: str = "") -> bool:
    """Whether the API server allows a user something in all namespaces."""
    asked = {"user": user, "resourceAttributes": {"verb": verb, "group": group, "resource": resource}}
    review = manifest("authorization.k8s.io/v1/SubjectAccessReview", "", spec=asked)
    allowed: bool = api.create(review)["status"]["allowed"]
    return allowed


def test_the_role_for_readers_lets_every_command_and_page_read_all_it_shows(scene: Scene, reader: str) -> None:
    kubeconfig = scene.plane.kubeconfig(reader, ())
    access = f"--kubeconfig={kubeconfig}"
    namespace, node = scene.workspace.namespace, scene.nodes["nics"]
    with prepared(scene, in_use):
        stories = {
            "pod": f"{namespace}/second",
            "claim": f"{namespace}/second",
            "device": f"{node}/eth0",
            "topology": scene.topologies["one"],
        }
        for kind, name in stories.items():
            told = CliRunner().invoke(cli, ["why", kind, name, access, "-o", "json"])
            assert (
                told.output
                == CliRunner()
                .invoke(cli, ["why", kind, name, f"--kubeconfig={scene.plane.kubeconfig()}", "-o", "json"])
                .output
            )
            assert "unread" not in json.loads(told.stdout)
        everything = CliRunner().invoke(cli, ["why", "-A", access, "-o", "json"])
        assert "unread" not in json.loads(everything.stdout)
        for workload in reading.WORKLOADS.values():
            assert may(scene.api, reader, "get", workload.plural, workload.group_version.rpartition("/")[0])
        for command in ("get", "top"):
            told = CliRunner().invoke(cli, [command, access])
            assert (told.exit_code, told.stderr) == (0, "")
        plural = {word: part for part, word in KINDS.items()}
        pages = ["/", f"/nodes/{node}", "/what-if"]
        pages += [f"/{plural[kind]}/{name}" for kind, name in stories.items()]
        with console_of(scene.plane, kubeconfig) as read:
            for path in pages:
                found = read(path)
                assert "does not allow" not in found, path
                assert node in found or path in ("/what-if", f"/topologies/{scene.topologies['one']}"), path
    for resource in ("secrets", "configmaps", "pods/log"):
        assert not may(scene.api, reader, "get", resource)
    assert not may(scene.api, reader, "create", "networktopologies", "networking.dra.io")


@contextmanager
def console_of(plane: ControlPlane, kubeconfig: Path) -> Iterator[Callable[[str], str]]:
    """A console with the rights of a kubeconfig; the function returns the page of a path."""
    command = [sys.executable, "-m", "netdra", "console", f"--kubeconfig={kubeconfig}"]
    name = f"console-of-{kubeconfig.stem}"  # the control plane keeps the logs of former consoles

    def urls() -> list[str]:
        return re.findall(r"http://127\.0\.0\.1:\d+/enter\?token=\S+", plane.processes[name].log.read_text())

    process = plane.run(name, command, lambda: bool(urls()))
    try:
        url = urls()[-1]
        opener = build_opener(HTTPCookieProcessor())
        opener.open(url).close()
        root = url.partition("/enter")[0]

        def read(path: str) -> str:
            with opener.open(f"{root}{path}") as answer:
                return str(answer.read().decode())

        yield read
    finally:
        process.stop()


def test_a_watched_story_is_printed_again_when_it_has_changed_and_ends_with_ctrl_c(scene: Scene) -> None:
    with prepared(scene, no_claim) as arguments:
        command = [sys.executable, "-m", "netdra", "why", *arguments, "--watch", "-n", scene.workspace.namespace]
        environment = {**os.environ, "KUBECONFIG": str(scene.plane.kubeconfig()), "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            try:
                assert process.stdout is not None
                printed = iter(process.stdout.readline, "")
                assert any('ResourceClaim "nothing" not found' in line for line in printed)
                scene.workspace.add_claim("nothing", scene.request("one"))
                assert any("scheduled to node" in line for line in printed)
            finally:
                process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0


def test_a_story_is_read_again_as_soon_as_one_of_its_addresses_changes(scene: Scene) -> None:
    """The PodNetwork does not exist, so nothing else changes with the address."""
    scope = reading.scope_of("claim", scene.workspace.namespace, "any")
    owner = {"namespace": scene.workspace.namespace, "claim": "any", "topology": "lan", "step": "lan"}
    spec = {"network": "none", "address": "10.0.1.1/16", "families": ["IPv4"], "owner": owner}
    written = manifest(f"{GROUP}/PodAddress", "none.10.0.1.1", spec={**spec, "claim": {"name": "any", "uid": "5f0c"}})
    begun = time.monotonic()
    since = asyncio.run(changed(scene, scope, written))
    assert time.monotonic() - begun < watching.AT_MOST_SECONDS / 2
    (addresses,) = [watched for watched in since if watched.resource is resources.POD_ADDRESSES]
    assert addresses.concerns(msgspec.Raw(msgspec.json.encode(written)))
    owner["namespace"] = "other"
    assert not addresses.concerns(msgspec.Raw(msgspec.json.encode(written)))


async def changed(scene: Scene, scope: reading.Scope, written: Object) -> Sequence[watching.WatchedKind]:
    """Wait until a story of the scope is read again because an object is written."""
    async with Client(connect(find_config(scene.plane.kubeconfig()))) as client:
        since = await watching.versions(client, scope)
        waiting = asyncio.create_task(watching.wait_change(client, since))
        await asyncio.to_thread(scene.workspace.create, written)
        await waiting
        return since


def test_kubectl_runs_the_command_as_its_plugin(scene: Scene, tmp_path: Path) -> None:
    programs = {
        "kubectl-netdra": "netdra.__main__",
        "kubectl_complete-netdra": "netdra.cli.kubectl_completion",
    }
    for name, module in programs.items():
        start = f"from {module} import main; main()"
        script = f'#!/bin/sh\nPYTHONPATH={Path(__file__).parents[2]} exec {sys.executable} -c "{start}" "$@"\n'
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    kubectl = str(program("kubectl"))
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(scene.plane.kubeconfig())}
    command = [kubectl, "netdra", "why", "topology", scene.topologies["one"]]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (done.returncode, "is Ready" in done.stdout.splitlines()[0]) == (0, True), (done.stdout, done.stderr)
    command = [kubectl, "__complete", "netdra", "why", "to"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.stdout.splitlines()[0] == "topology", (done.stdout, done.stderr)


def test_devices_are_listed_with_their_users_and_counted(scene: Scene) -> None:
    with prepared(scene, in_use):
        access = [f"--kubeconfig={scene.plane.kubeconfig()}", f"--node={scene.nodes['nics']}", "-o", "json"]
        uses = {each["device"]: each for each in json.loads(CliRunner().invoke(cli, ["get", *access]).stdout)}
        assert uses["eth0"]["claims"] == [f"{scene.workspace.namespace}/first"]
        assert uses["eth0"]["pods"] == ["first"]
        assert (uses["eth1"]["state"], uses["enp3s0f0"]["state"]) == ("free", "hidden")
        counted = json.loads(CliRunner().invoke(cli, ["top", *access]).stdout)
        (node,) = counted["nodes"]
        assert (node["devices"], node["allocated"], node["free"]) == (4, 1, 3)
        classes = {each["deviceClass"]: each for each in counted["classes"]}
        assert classes[f"{scene.topologies['one']}-nic"]["free"] == 0
        assert classes[f"{scene.topologies['vf']}-vf"]["devices"] == 2
        pfs = {each["name"].partition("/")[2]: each for each in counted["pfs"]}
        assert pfs["eth0"]["allocatedBandwidth"] == 25_000
