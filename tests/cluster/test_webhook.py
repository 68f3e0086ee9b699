"""The webhook on the real API server, as a process with the rights of its service account and no others."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdra.cli.main import cli
from netdra.model import documents
from netdra.model.topology import NetworkTopologyReference, TopologyParameters
from testbed import yaml
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.kubectl import KubectlError
from testbed.objects import CLAIM, CLASS, manifest
from testbed.pace import within
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import (
    CONFIGURATION,
    DENIED,
    PATIENCE,
    POLICY,
    SECRET,
    WRONG_CLAIM,
    Webhook,
    bundle_of,
    refusal,
    running_webhook,
    steps,
    until_asked,
    until_refused,
)
from tests.cluster.identities import NETDRA
from tests.documents import CLAIMS, TOPOLOGIES

pytestmark = pytest.mark.usefixtures("webhook")

GROUP = "networking.dra.io/v1alpha1"
TOPOLOGY = f"{GROUP}/NetworkTopology"
SCHEMA = "cni.networking.k8s.io/v1alpha1/CNIPluginSchema"
CUSTOM_DEVICE = f"{GROUP}/CustomDevice"
TEMPLATE = "resource.k8s.io/v1/ResourceClaimTemplate"
NODE_NETWORK = f"{GROUP}/NodeNetwork"
VFS = 'device.attributes["dra.networking"].type == "vf"'
FIRST = f'{VFS} && device.attributes["dra.networking"].vfIndex == 0'
EXCLUSIVE = {"supportedCNIPlugins": [{"name": "sriov", "exclusive": True}]}
ASKED, PODS = "apiserver_admission_webhook_request_total{", 'name="pods.networking.dra.io"'
WRONG = Path(__file__).parents[1] / "unit" / "topology" / "wrong"


def claim(*classes: str) -> Object:
    """A claim's spec with a request for each class, named as the class's last part."""
    requests = [{"name": each.rpartition("-")[2], "exactly": {"deviceClassName": each}} for each in classes]
    return {"devices": {"requests": requests}}


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Webhook]:
    """The webhook, installed and asked by the API server."""
    with running_webhook(control_plane, api) as running:
        yield running


@pytest.fixture
def topology(workspace: Workspace) -> str:
    """A topology with the root steps vf0 and vf1."""
    name = workspace.name("pair")
    workspace.create(manifest(TOPOLOGY, name, spec=steps("vf0", "vf1")))
    return name


def test_a_template_that_lacks_a_root_step_is_refused_in_the_known_words(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    written = yaml.safe_load((TOPOLOGIES / "ai-bonded-rdma.yaml").read_text())
    template = yaml.safe_load((CLAIMS / "ai-gpu-bonded-rdma.yaml").read_text())
    control_plane.kubectl("apply", "-f", "-", text=yaml.safe_dump(written))
    try:
        control_plane.kubectl("apply", "-n", workspace.namespace, "-f", "-", text=yaml.safe_dump(template))
        template["metadata"]["name"] = "lacking"
        devices = template["spec"]["spec"]["devices"]
        devices["requests"] = [each for each in devices["requests"] if each["name"] != "vf1"]
        devices["constraints"][0]["requests"] = ["gpu", "vf0"]
        with pytest.raises(KubectlError) as refused:
            control_plane.kubectl("apply", "-n", workspace.namespace, "-f", "-", text=yaml.safe_dump(template))
    finally:
        control_plane.kubectl("delete", "networktopology", "ai-bonded-rdma")
    assert (
        'admission webhook "validate.networking.dra.io" denied the request: NetworkTopology "ai-bonded-rdma" requires '
        'root step requests [vf0, vf1], but ResourceClaimTemplate "lacking" only provides requests [vf0]. '
        "Missing: [vf1]"
    ) in refused.value.stderr


@pytest.mark.parametrize("path", sorted(WRONG.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_wrong_topology_is_rejected_with_the_reason(path: Path, control_plane: ControlPlane) -> None:
    with pytest.raises(KubectlError) as refused:
        control_plane.kubectl("create", "--dry-run=server", "-f", str(path))
    every = list(yaml.safe_load_all(path.read_text()))
    told = refused.value.stderr.split("error when creating")[1:]
    assert len(told) == len(every)
    # What the kind's own schema has no room for, such as an unknown field, the server tells of by itself.
    by_us = [(value, text) for value, text in zip(every, told, strict=True) if DENIED in text]
    silent = [text for value, text in by_us if value["metadata"]["annotations"]["says"] not in text]
    assert silent == []
    assert by_us


def test_a_claim_right_after_its_topology_is_judged_by_it(workspace: Workspace, topology: str) -> None:
    until_refused(workspace.api, manifest(CLAIM, "lacking", workspace.namespace, spec=claim(f"{topology}-vf0")))
    whole = manifest(CLAIM, "whole", workspace.namespace, spec=claim(f"{topology}-vf0", f"{topology}-vf1"))
    workspace.api.create(whole)


def test_a_deleted_topology_does_not_cause_the_rejection_of_a_claim(workspace: Workspace) -> None:
    name = workspace.name("gone")
    lacking = manifest(CLAIM, "lacking", workspace.namespace, spec=claim(f"{name}-vf0"))
    for _ in range(5):
        workspace.api.create(manifest(TOPOLOGY, name, spec=steps("vf0", "vf1")))
        workspace.api.delete(TOPOLOGY, name)
        workspace.api.create(lacking, dry_run=True)


def test_a_claim_is_accepted_if_a_newly_created_class_provides_the_missing_step(
    workspace: Workspace, topology: str
) -> None:
    meant = TopologyParameters(network_topology_ref=NetworkTopologyReference(name=topology), step="vf1")
    config = [{"opaque": {"driver": "dra.networking", "parameters": documents.plain(meant)}}]
    for number in range(5):
        own = workspace.name(f"own-{number}")
        requests = [
            {"name": "vf0", "exactly": {"deviceClassName": f"{topology}-vf0"}},
            {"name": "vf1", "exactly": {"deviceClassName": own}},
        ]
        written = manifest(CLAIM, f"whole-{number}", workspace.namespace, spec={"devices": {"requests": requests}})
        workspace.create(manifest(CLASS, own, spec={"config": config}))
        workspace.api.create(written, dry_run=True)


def test_the_steps_of_a_topology_are_fixed_while_pods_are_attached_with_it(workspace: Workspace, topology: str) -> None:
    api = workspace.api
    used = manifest(CLAIM, "used", workspace.namespace, spec=claim(f"{topology}-vf0", f"{topology}-vf1"))
    made = api.create(used)
    status = identities.allocated("used", topology, ["vf0", "vf1"])
    made = api.update({**made, "status": status}, subresource="status")

    def told(ready: str) -> Object:
        """Write the driver's status of the claim's first device."""
        when = "2026-01-01T00:00:00Z"
        condition = {"type": "Ready", "status": ready, "reason": "R", "message": "m", "lastTransitionTime": when}
        device = {"driver": "dra.networking", "pool": "pool", "device": "used-vf0", "conditions": [condition]}
        return api.update({**made, "status": {**status, "devices": [device]}}, subresource="status")

    present = api.get(TOPOLOGY, topology)
    changed = copy.deepcopy(present)
    changed["spec"] = steps("vf0", "vf1", config={"vlan": 7})
    made = told("True")
    error = refusal(lambda: api.update(changed))
    assert error.startswith(
        f'{DENIED}NetworkTopology "{topology}" is used by 1 ResourceClaim of attached pods, '
        "including steps that are only in its status; "
    )
    # Its pods all fail, maybe because of it: it can be mended.
    made = told("False")
    api.update(changed, dry_run=True)
    made = told("True")
    changed["spec"] = steps("vf0", "vf1")
    changed["spec"]["steps"][0]["selector"]["cel"] = "device.driver == 'dra.networking'"
    present = api.update(changed)
    api.delete(CLAIM, "used", workspace.namespace)
    present["spec"] = steps("vf0", "vf1", config={"vlan": 7})
    api.update(present)


def test_a_claim_s_values_are_held_against_the_parameters_of_its_topology(workspace: Workspace) -> None:
    name = workspace.name("vnf")
    address = {"addresses": [{"address": "{{ params.address }}"}]}
    spec = steps("vf0", config={"ipam": {"type": "static", **address}})
    spec["parameters"] = [{"name": "address", "format": "cidr", "within": ["10.77.0.0/24"]}]
    workspace.create(manifest(TOPOLOGY, name, spec=spec))

    def written(values: Object) -> Object:
        parameters = {"apiVersion": GROUP, "kind": "ParameterValues", "values": values}
        config = [{"opaque": {"driver": "dra.networking", "parameters": parameters}}]
        devices = {**claim(f"{name}-vf0")["devices"], "config": config}
        return manifest(CLAIM, "vnf", workspace.namespace, spec={"devices": devices})

    until_refused(workspace.api, written({}))
    error = refusal(lambda: workspace.api.create(written({"address": "10.78.0.5/24"})))
    assert "does not lie within 10.77.0.0/24" in error
    workspace.api.create(written({"address": "10.77.0.5/24"}), dry_run=True)


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        (TOPOLOGY, steps("vf0", config={"vlann": 7}), 'does not accept parameter "vlann"'),
        (TOPOLOGY, steps("vf0", selector={"cel": "device.drvr == 'x'"}), "undefined field 'drvr'"),
        (POLICY, {"selector": {"cel": "1 + 1"}}, "must be a bool"),
        (
            POLICY,
            {"action": "exclude", "selector": {"cel": 'device.attributes["dra.networking"].ifNmae == "eno1"'}},
            'did you mean "ifName"?',
        ),
        (
            POLICY,
            {"selector": {"cel": 'device.attributes["dra.network"].type == "vf"'}},
            'did you mean "dra.networking"?',
        ),
        (
            TOPOLOGY,
            steps("vf0", selector={"cel": 'device.attributes["dra.networking"].numaNode == "0"'}),
            "write 0 without quotes",
        ),
        (
            POLICY,
            {
                "selector": {"cel": "true"},
                "exposure": {"allowMultipleAllocations": True, "capacity": {"seats": {"value": "8"}}},
            },
            "requires requestPolicy.default or consumePerAllocation",
        ),
        (SCHEMA, {"cniType": "x", "configParameters": {"optional": [{"name": "a"}]}}, "a"),
        (CUSTOM_DEVICE, {"provider": "bctl", "device": "e", "attributes": {"v": {"version": "1"}}}, "semantic version"),
    ],
)
def test_objects_that_break_a_rule_are_rejected_with_the_message(
    workspace: Workspace, kind: str, spec: Object, message: str
) -> None:
    written = manifest(kind, workspace.name("wrong"), spec=spec)
    error = refusal(lambda: workspace.api.create(written, dry_run=True))
    assert error.startswith(DENIED)
    assert message in error


def test_invalid_netdra_parameters_of_a_class_are_rejected_and_other_drivers_are_ignored(
    workspace: Workspace,
) -> None:
    def written(driver: str, plugin: str) -> str:
        parameters = {"apiVersion": GROUP, "kind": "DeviceParameters", "step": {"type": plugin}}
        spec = {"config": [{"opaque": {"driver": driver, "parameters": parameters}}]}
        return refusal(lambda: workspace.api.create(manifest(CLASS, workspace.name("nics"), spec=spec), dry_run=True))

    assert 'opaque parameters, step: type "../sh" is not a valid CNI plugin name' in written("dra.networking", "../sh")
    assert written("dra.networking", "macvlan") == ""
    assert written("gpu.example.com", "../sh") == ""


def test_a_topology_with_an_unknown_plugin_returns_a_warning(
    control_plane: ControlPlane, workspace: Workspace, tmp_path: Path
) -> None:
    written = manifest(TOPOLOGY, workspace.name("odd"), spec=steps("a"))
    written["spec"]["steps"][0]["type"] = "my-plugin"
    file = tmp_path / "odd.yaml"
    file.write_text(yaml.safe_dump(written))
    with pytest.raises(KubectlError) as warned:
        control_plane.kubectl("create", "--dry-run=server", "--warnings-as-errors", "-f", str(file))
    assert 'no CNIPluginSchema describes plugin "my-plugin"' in warned.value.stderr


@pytest.fixture
def reporting(workspace: Workspace) -> str:
    """A node that reports two VFs, one of them allocated, which the policy of that name offers."""
    name = workspace.name("vfs")
    alike = {"type": "vf", "state": "up", "count": 1, "policies": {name: "wins"}, "attributes": {"pfName": "p0"}}
    groups = [
        {**alike, "names": ["p0v0"], "devices": [{"policy": name}], "attributes": {"pfName": "p0", "vfIndex": 0}},
        {**alike, "names": ["p0v1"], "devices": [{"policy": name, "allocated": True}]},
    ]
    made = workspace.create(manifest(NODE_NETWORK, workspace.name("node")))
    workspace.api.update({**made, "status": {"interfaces": groups}}, subresource="status")
    selects = {"selector": {"cel": f'device.attributes["dra.networking"].type == "vf" && "{name}" != ""'}}
    workspace.create(manifest(POLICY, name, spec={**selects, "exposure": EXCLUSIVE}))
    return name


def warnings(plane: ControlPlane, *arguments: str, text: str = "") -> str:
    """The warnings that kubectl prints beside its answer."""
    try:
        plane.kubectl(*arguments, "--dry-run=server", "--warnings-as-errors", text=text)
    except KubectlError as problem:
        return problem.stderr
    return ""


def test_creating_or_deleting_a_policy_warns_about_the_devices_it_hides(
    control_plane: ControlPlane, workspace: Workspace, reporting: str
) -> None:
    written = manifest(POLICY, workspace.name("guard"), spec={"action": "exclude", "selector": {"cel": VFS}})
    text = yaml.safe_dump(written)
    hides = "hides 2 devices on 1 node, 1 of them allocated"
    until(lambda: hides in warnings(control_plane, "create", "-f", "-", text=text), "the webhook to know the report")
    assert f'"{reporting}": its deletion {hides}' in warnings(control_plane, "delete", "dxp", reporting)


def test_a_topology_and_a_template_that_the_scheduler_may_not_get_to_the_end_with_are_warned_of(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    """8 PFs with 16 VFs each and a VF of each of them; and a count above the lanes of pooled VFs."""
    single, pooled = workspace.name("single"), workspace.name("pooled")
    plugins = {"supportedCNIPlugins": [{"name": "sriov"}]}
    for name, exposure in ((single, plugins), (pooled, {**plugins, "pooledVFs": {"lanes": 2}})):
        workspace.create(manifest(POLICY, name, spec={"selector": {"cel": "false"}, "exposure": exposure}))
    groups: list[Object] = []
    for pf in range(8):
        vfs = {"type": "vf", "state": "up", "attributes": {"pfName": f"r{pf}"}, "policies": {single: "wins"}}
        called = [f"r{pf}v{index}" for index in range(16)]
        groups.append({**vfs, "count": 16, "names": called, "devices": [{"policy": single}], "varying": ["vfIndex"]})
    lanes = {"type": "vf", "count": 2, "names": ["q0-vfs0", "q0-vfs1"], "attributes": {"pfName": "q0"}}
    groups.append({**lanes, "devices": [{"policy": pooled}], "poolsVFs": True})
    made = workspace.create(manifest(NODE_NETWORK, workspace.name("node")))
    workspace.api.update({**made, "status": {"interfaces": groups}}, subresource="status")
    rails = manifest(TOPOLOGY, workspace.name("rails"), spec=steps(*(f"r{pf}" for pf in range(8))))
    for pf, step in enumerate(rails["spec"]["steps"]):
        step["selector"] = {"cel": f'device.attributes["dra.networking"].pfName == "r{pf}"'}
    text = yaml.safe_dump(rails)
    foreseen = f'"{rails["metadata"]["name"]}", requests r0 … r7: if a request cannot be allocated on a node'
    until(lambda: foreseen in warnings(control_plane, "create", "-f", "-", text=text), "the webhook to know the report")
    told = warnings(control_plane, "create", "-f", "-", text=text)
    assert "kube-scheduler visits up to" in told
    assert "offer the VFs together (pooledVFs in their policy), in few lanes" in told
    pool = manifest(TOPOLOGY, workspace.name("pool"), spec=steps("vf"))
    pool["spec"]["steps"][0]["selector"] = {"cel": 'device.attributes["dra.networking"].pfName == "q0"'}
    workspace.create(pool)
    wanted = claim(f"{pool['metadata']['name']}-vf")
    wanted["devices"]["requests"][0]["exactly"]["count"] = 3
    template = yaml.safe_dump(manifest(TEMPLATE, workspace.name("three"), "default", spec={"spec": wanted}))
    above = 'request "vf": 3 devices are requested, but only 2 match on any node'
    until(
        lambda: above in warnings(control_plane, "create", "-f", "-", text=template), "the webhook to know the topology"
    )


def test_plan_shows_the_effect_of_a_policy_on_each_device_in_advance(
    control_plane: ControlPlane, workspace: Workspace, reporting: str, tmp_path: Path
) -> None:
    guard = manifest(POLICY, workspace.name("guard"), spec={"action": "exclude", "selector": {"cel": FIRST}})
    file = tmp_path / "guard.yaml"
    file.write_text(yaml.safe_dump(guard))
    node = workspace.name("node")
    kubeconfig = f"--kubeconfig={control_plane.kubeconfig()}"
    done = CliRunner().invoke(cli, ["plan", "--cluster", "--diff", kubeconfig, "--node", node, "--policies", str(file)])
    assert done.exit_code == 0, done.output
    header, line, last = done.stdout.splitlines()
    assert header.split() == ["NODE", "POOL", "DEVICE", "NOW", "AFTER", "IN", "USE"]
    assert line.split()[0] == node
    assert line.split()[2:] == ["p0v0", reporting, "-"]
    assert last == "1 hidden, 0 offered, 0 by another policy, on 1 node"


def test_while_the_webhook_is_away_claims_are_let_through_and_topologies_wait(
    workspace: Workspace, topology: str, webhook: Webhook
) -> None:
    api = workspace.api
    shipped = {each["metadata"]["name"]: each["webhooks"] for each in identities.template("webhook-rules.yaml")}
    times = {one["name"]: one["timeoutSeconds"] for one in shipped["netdra-claims"]}
    assert times == {"validate.networking.dra.io": 2, "pods.networking.dra.io": 1, "warn.networking.dra.io": 2}
    patience = times["validate.networking.dra.io"]
    asked_about_claims(api, "hurried.networking.dra.io", patience)
    webhook.process.pause()
    try:
        with within(3.0, "a claim that nobody judges", after=patience):
            api.create(manifest(CLAIM, "lacking", workspace.namespace, spec=claim(f"{topology}-vf0")))
        api.patch(TOPOLOGY, topology, {"metadata": {"finalizers": ["example.com/kept"], "labels": {"a": "b"}}})
        api.patch(TOPOLOGY, topology, {"status": {"observedGeneration": 3}}, subresource="status")
        api.patch(TOPOLOGY, topology, {"metadata": {"finalizers": None}})
        api.delete(TOPOLOGY, topology)
    finally:
        webhook.process.resume()
    webhook.process.kill()
    written = manifest(TOPOLOGY, workspace.name("new"), spec=steps("vf0"))
    error = refusal(lambda: api.create(written, dry_run=True))
    webhook.process.start()
    webhook.process.wait_ready()
    assert "failed calling webhook" in error
    asked_about_claims(api, "validate.networking.dra.io", PATIENCE)
    until_asked(api)


def asked_about_claims(api: Api, name: str, seconds: int) -> None:
    """Have the API server wait for the webhook's word on claims so long; it does once it calls it by that name."""
    changes = {"timeoutSeconds": seconds, "name": name}
    changed = [{"op": "replace", "path": f"/webhooks/0/{key}", "value": value} for key, value in changes.items()]
    api.patch(CONFIGURATION, "netdra-claims", changed, style="json")
    until_refused(api, WRONG_CLAIM, f'admission webhook "{name}" denied the request: ')


def test_trust_that_was_taken_away_comes_back(workspace: Workspace, webhook: Webhook) -> None:
    api = workspace.api
    for each in webhook.configurations:
        name = each["metadata"]["name"]
        place = "/webhooks/0/clientConfig/caBundle"
        api.patch(CONFIGURATION, name, [{"op": "remove", "path": place}], style="json")
        api.wait_for(CONFIGURATION, name, lambda found: bool(bundle_of(found)))
    until_asked(api)


def test_a_certificate_that_was_deleted_is_made_anew_and_served(workspace: Workspace, webhook: Webhook) -> None:
    api = workspace.api
    before = api.get(SECRET, "netdra-webhook", NETDRA)["data"]
    api.delete(SECRET, "netdra-webhook", NETDRA)
    made = api.wait_for(SECRET, "netdra-webhook", lambda found: found is not None, namespace=NETDRA)
    assert made is not None
    assert made["data"]["tls.crt"] != before["tls.crt"]
    bundle = made["data"]["ca.crt"]
    for each in webhook.configurations:
        api.wait_for(
            CONFIGURATION,
            each["metadata"]["name"],
            lambda found: bundle_of(found).startswith(base64.b64decode(bundle)),
        )
        # Another replica may still serve with the one before, until it has seen the new one.
        both = bundle_of(api.get(CONFIGURATION, each["metadata"]["name"]))
        assert both.endswith(base64.b64decode(before["ca.crt"]))
    until_asked(api)


def test_the_author_of_a_network_is_warned_of_topologies_with_another_vlan(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    name, lan = workspace.name("net"), workspace.name("lan")
    config = {"id": 7, "ipam": {"type": "network"}}
    steps = [
        {"name": "nic", "type": "macvlan", "selector": {"cel": "true"}},
        {"name": "tag", "type": "vlan", "dependOn": ["nic"], "network": name, "config": config},
    ]
    workspace.create(manifest(f"{GROUP}/NetworkTopology", lan, spec={"steps": steps}))
    written = yaml.safe_dump(
        manifest(f"{GROUP}/PodNetwork", name, spec={"ranges": [{"cidr": "10.81.0.0/24"}], "vlan": 8})
    )
    until(
        lambda: (
            f'"{lan}", step "tag": the step uses VLAN 7' in warnings(control_plane, "create", "-f", "-", text=written)
        ),
        "the webhook to know the topology",
        detail=lambda: warnings(control_plane, "create", "-f", "-", text=written),
    )
