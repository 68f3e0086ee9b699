"""The controller on the real API server, as a process with the rights of its service account and no others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from testbed import yaml
from testbed.api import Api, ApiError, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, manifest
from testbed.process import Process
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import running_controller, start_controller, steps
from tests.documents import TOPOLOGIES

pytestmark = pytest.mark.usefixtures("controller")

GROUP = "networking.dra.io/v1alpha1"
TOPOLOGY = f"{GROUP}/NetworkTopology"
POLICY = f"{GROUP}/DeviceExposurePolicy"
CUSTOM_DEVICE = f"{GROUP}/CustomDevice"
REPORT = f"{GROUP}/NodeNetwork"
USAGE = f"{GROUP}/NetworkTopologyUsage"
ROLLOUT = f"{GROUP}/DeviceExposurePolicyRollout"
DEVICE_ROLLOUT = f"{GROUP}/CustomDeviceRollout"
EVENT = "events.k8s.io/v1/Event"
SCHEMA = "cni.networking.k8s.io/v1alpha1/CNIPluginSchema"
ROOT = Path(__file__).parents[2]
SLICES = ROOT / "examples" / "worker-1" / "slices.yaml"
RECORDED = TOPOLOGIES / "ai-bonded-rdma.yaml"
FINALIZER = "networking.dra.io/in-use"


# Nodes that run beside these tests, with a driver, must have nothing to say of their policies.
NOWHERE = {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "nowhere"}}}


def condition(found: Object | None, kind: str) -> tuple[str, str]:
    """A condition's status and reason, or empty ones."""
    said = (found or {}).get("status", {}).get("conditions", [])
    return next(((each["status"], each["reason"]) for each in said if each["type"] == kind), ("", ""))


def is_ready(found: Object | None) -> bool:
    return condition(found, "Ready")[0] == "True"


def is_gone(found: Object | None) -> bool:
    return found is None


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work."""
    with running_controller(control_plane, api) as process:
        yield process


@pytest.fixture
def pair(workspace: Workspace) -> str:
    """A topology with the root steps vf0 and vf1, whose classes are there."""
    name = workspace.name("pair")
    workspace.create(manifest(TOPOLOGY, name, spec=steps("vf0", "vf1")))
    workspace.api.wait_for(TOPOLOGY, name, is_ready)
    return name


def allocate(workspace: Workspace, topology: str, name: str = "used") -> str:
    """A claim that uses a topology, as the scheduler leaves it."""
    requests = [{"name": step, "exactly": {"deviceClassName": f"{topology}-{step}"}} for step in ("vf0", "vf1")]
    made = workspace.api.create(manifest(CLAIM, name, workspace.namespace, spec={"devices": {"requests": requests}}))
    status = identities.allocated(name, topology, ["vf0", "vf1"])
    workspace.api.update({**made, "status": status}, subresource="status")
    return name


def test_a_class_for_each_root_step_appears(workspace: Workspace, pair: str, control_plane: ControlPlane) -> None:
    topology = workspace.api.get(TOPOLOGY, pair)
    made = workspace.api.get(CLASS, f"{pair}-vf1")
    assert made["metadata"]["labels"] == {"networking.dra.io/topology": pair, "networking.dra.io/step": "vf1"}
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("NetworkTopology", pair, topology["metadata"]["uid"])
    (config,) = made["spec"]["config"]
    assert config["opaque"] == {
        "driver": "dra.networking",
        "parameters": {"networkTopologyRef": {"name": pair}, "step": "vf1"},
    }
    (selector,) = (each["cel"]["expression"] for each in made["spec"]["selectors"])
    assert selector.startswith('device.driver == "dra.networking" && ')
    assert '.contains(",sriov,")' in selector
    assert topology["status"]["deviceClasses"] == [f"{pair}-vf0", f"{pair}-vf1"]
    shown = control_plane.kubectl("get", "ntopo", pair, "--no-headers").split()
    assert shown[:3] == [pair, "True", "True"]


def test_the_seen_topology_is_allocated_by_the_real_scheduler_and_held_while_it_is_used(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    api = workspace.api
    node = workspace.add_node()
    workspace.publish(node, *yaml.safe_load_all(SLICES.read_text().replace("worker-1", node)))
    written = yaml.safe_load(RECORDED.read_text())
    name = written["metadata"]["name"] = workspace.name("ai")
    workspace.create(written)
    api.wait_for(TOPOLOGY, name, is_ready)
    workspace.settle(node)
    requests = [{"name": step, "exactly": {"deviceClassName": f"{name}-{step}"}} for step in ("vf0", "vf1")]
    claim, reason = workspace.place(*requests, node=node)
    assert reason == ""
    assert [device[:8] for device in workspace.devices(claim)] == ["enp3s0f0", "enp3s0f1"]
    held = api.wait_for(USAGE, name, lambda found: condition(found, "InUse")[0] == "True")
    assert held is not None
    assert (held["status"]["users"], held["status"]["usedBy"]) == (1, [f"{workspace.namespace}/{claim}"])
    topology = api.get(TOPOLOGY, name)
    assert topology["metadata"]["finalizers"] == [FINALIZER]
    (owner,) = held["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("NetworkTopology", name, topology["metadata"]["uid"])
    shown = control_plane.kubectl("get", "ntopousage", name, "--no-headers").split()
    assert shown[:2] == [name, "1"]
    workspace.release(claim, claim)
    api.wait_for(USAGE, name, lambda found: condition(found, "InUse")[0] == "False")
    api.delete(TOPOLOGY, name)
    api.wait_for(TOPOLOGY, name, is_gone)


def test_a_topology_that_is_deleted_while_it_is_used_goes_after_its_last_user(workspace: Workspace, pair: str) -> None:
    api = workspace.api
    allocate(workspace, pair)
    api.wait_for(USAGE, pair, lambda found: condition(found, "InUse")[0] == "True")
    api.delete(TOPOLOGY, pair)
    going = api.wait_for(TOPOLOGY, pair, lambda found: condition(found, "Ready") == ("False", "Deleting"))
    assert going is not None
    for step in ("vf0", "vf1"):
        api.wait_for(CLASS, f"{pair}-{step}", is_gone)
    api.delete(CLAIM, "used", workspace.namespace)
    api.wait_for(TOPOLOGY, pair, is_gone)


def custom_device() -> Object:
    return {"provider": "bctl", "device": "enp1s0", "attributes": {"rdma": {"bool": True}}}


def told_of(api: Api, name: str, count: int) -> list[tuple[str, str]]:
    """The events about an object as (type, reason), in the order of their making, once there are so many."""
    found = api.wait_for_all(EVENT, lambda events: len(about(events, name)) >= count, namespace="default", fields="")
    return [(each["type"], each["reason"]) for each in sorted(about(found, name), key=lambda each: each["eventTime"])]


def about(events: list[Object], name: str) -> list[Object]:
    return [each for each in events if each["regarding"]["name"] == name]


def test_classes_that_another_version_wrote_are_rewritten_without_an_event(
    workspace: Workspace, control_plane: ControlPlane, controller: Process
) -> None:
    """As at an upgrade and a rollback: the former version has written its own classes."""
    api, name = workspace.api, workspace.name("net")
    workspace.create(manifest(TOPOLOGY, name, spec=steps("vf0")))
    api.wait_for(TOPOLOGY, name, lambda found: condition(found, "Ready")[0] == "True")
    control_plane.processes["netdra-controller"].stop()
    api.patch(CLASS, f"{name}-vf0", {"spec": {"selectors": [{"cel": {"expression": "false"}}]}})
    start_controller(control_plane, api)

    def is_restored(found: Object | None) -> bool:
        return found is not None and found["spec"]["selectors"][0]["cel"]["expression"] != "false"

    api.wait_for(CLASS, f"{name}-vf0", is_restored)
    # Events are written in order: the one of the next change comes after one that would be wrong.
    api.patch(TOPOLOGY, name, {"spec": steps("vf0", config={"vlann": 1})})
    assert told_of(api, name, 1) == [("Warning", "Unsound")]


def test_events_report_why_a_topology_is_not_ready_and_when_it_is_ready_again(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    api, name = workspace.api, workspace.name("net")
    api.create(manifest(CLASS, f"{name}-vf0", spec={"selectors": [{"cel": {"expression": "false"}}]}))
    workspace.create(manifest(TOPOLOGY, name, spec=steps("vf0")))
    assert told_of(api, name, 1) == [("Warning", "ForeignDeviceClass")]
    api.delete(CLASS, f"{name}-vf0")
    assert told_of(api, name, 2)[1] == ("Normal", "DeviceClassesReady")
    api.patch(CLASS, f"{name}-vf0", {"spec": {"selectors": [{"cel": {"expression": "false"}}]}})
    assert told_of(api, name, 3)[2] == ("Warning", "DriftCorrected")
    api.patch(TOPOLOGY, name, {"spec": steps("vf0", config={"vlann": 1})})
    assert told_of(api, name, 4)[3] == ("Warning", "Unsound")
    listed = control_plane.kubectl("events", "--for", f"networktopology.networking.dra.io/{name}", "-n", "default")
    assert 'does not accept parameter "vlann"' in listed


def test_a_topology_with_a_plugin_that_nodes_do_not_run_is_not_ready_until_a_policy_names_the_plugin(
    workspace: Workspace,
) -> None:
    api, name = workspace.api, workspace.name("net")
    spec = steps("vf0")
    spec["steps"].append({"name": "fw", "type": "firewall", "dependOn": ["vf0"]})
    workspace.create(manifest(TOPOLOGY, name, spec=spec))
    found = api.wait_for(TOPOLOGY, name, lambda found: condition(found, "Ready") == ("False", "PluginNotAllowed"))
    assert found is not None
    (why,) = [each["message"] for each in found["status"]["conditions"] if each["type"] == "Ready"]
    assert why.startswith('nodes reject new claims: plugin "firewall" is not allowed: the default list contains')
    assert "node.allowPlugins to [default, firewall]" in why
    assert found["status"]["deviceClasses"] == [f"{name}-vf0"]
    assert told_of(api, name, 1) == [("Warning", "PluginNotAllowed")]
    policy = {"selector": {"cel": "false"}, **NOWHERE, "exposure": {"supportedCNIPlugins": [{"name": "firewall"}]}}
    workspace.create(manifest(POLICY, workspace.name("policy"), spec=policy))
    api.wait_for(TOPOLOGY, name, is_ready)
    assert told_of(api, name, 2)[1] == ("Normal", "DeviceClassesReady")


def reports_of(nodes: int, found: Object | None) -> bool:
    return found is not None and found.get("status", {}).get("nodes") == nodes


def test_a_policy_that_fails_on_many_nodes_emits_one_event_for_the_failure(workspace: Workspace) -> None:
    api, name = workspace.api, workspace.name("policy")
    workspace.create(manifest(POLICY, name, spec={"selector": {"cel": "true"}, **NOWHERE}))
    for number in range(5):
        report(workspace, reporting(workspace.name(f"node{number}"), name, devices=1, problems=["no such key: rdma"]))
        api.wait_for(ROLLOUT, name, partial(reports_of, number + 1))
    rival = workspace.name("rival")
    workspace.create(manifest(POLICY, rival, spec={"selector": {"cel": "true"}, **NOWHERE}))
    assert sorted(told_of(api, name, 2)) == [("Warning", "FailsOnNodes"), ("Warning", "SameRank")]
    assert told_of(api, rival, 1) == [("Warning", "SameRank")]


def test_reports_on_a_custom_device_become_its_status(workspace: Workspace) -> None:
    api, name = workspace.api, workspace.name("device")
    workspace.create(manifest(CUSTOM_DEVICE, name, spec=custom_device()))
    api.wait_for(DEVICE_ROLLOUT, name, lambda found: condition(found, "Applied") == ("False", "NoDevice"))
    node = workspace.name("node")
    made = reporting(node, "none", devices=0, problems=[])
    made["status"]["customDevices"] = [{"name": name, "desired": 2, "applied": 1, "problems": ["no room"]}]
    report(workspace, made)
    partly = api.wait_for(DEVICE_ROLLOUT, name, lambda found: condition(found, "Applied")[1] == "NotEverywhere")
    assert partly is not None
    assert (partly["status"]["desiredNumber"], partly["status"]["appliedNumber"]) == (2, 1)
    assert partly["status"]["refusals"] == ["no room"]
    status = {"customDevices": [{"name": name, "desired": 2, "applied": 2}]}
    api.patch(REPORT, node, {"status": status}, subresource="status")
    api.wait_for(DEVICE_ROLLOUT, name, lambda found: condition(found, "Applied") == ("True", "Everywhere"))


def test_drift_is_corrected_and_a_class_that_was_deleted_comes_back(workspace: Workspace, pair: str) -> None:
    api = workspace.api
    right = api.get(CLASS, f"{pair}-vf0")
    wrong = {"selectors": [{"cel": {"expression": "false"}}], "extendedResourceName": "example.com/x"}
    api.patch(CLASS, f"{pair}-vf1", {"spec": wrong, "metadata": {"labels": {"team": "a"}}})
    mended = api.wait_for(CLASS, f"{pair}-vf1", lambda found: "extendedResourceName" not in (found or right)["spec"])
    assert mended is not None
    assert mended["metadata"]["labels"]["team"] == "a"
    api.delete(CLASS, f"{pair}-vf0")
    back = api.wait_for(CLASS, f"{pair}-vf0", lambda found: found is not None)
    assert back is not None
    assert back["spec"] == right["spec"]


def test_a_foreign_class_is_not_touched_until_it_is_gone(workspace: Workspace) -> None:
    api, name = workspace.api, workspace.name("net")
    foreign = f"{name}-vf0"
    made = api.create(manifest(CLASS, foreign, spec={"selectors": [{"cel": {"expression": "false"}}]}))
    workspace.create(manifest(TOPOLOGY, name, spec=steps("vf0", "vf1")))
    api.wait_for(TOPOLOGY, name, lambda found: condition(found, "Ready") == ("False", "ForeignDeviceClass"))
    api.get(CLASS, f"{name}-vf1")
    assert api.get(CLASS, foreign) == made
    api.delete(CLASS, foreign)
    api.wait_for(TOPOLOGY, name, is_ready)
    assert api.get(CLASS, foreign)["metadata"]["labels"]["networking.dra.io/topology"] == name


def test_an_unsound_topology_gets_no_classes_and_reports_the_reason(workspace: Workspace) -> None:
    api, name = workspace.api, workspace.name("net")
    workspace.create(manifest(TOPOLOGY, name, spec=steps("vf0", config={"vlann": 1})))
    found = api.wait_for(TOPOLOGY, name, lambda found: condition(found, "Compiled") == ("False", "Unsound"))
    assert found is not None
    (why,) = [each["message"] for each in found["status"]["conditions"] if each["type"] == "Compiled"]
    assert 'does not accept parameter "vlann"' in why
    assert not [each for each in api.list(CLASS) if each["metadata"]["name"].startswith(name)]
    api.patch(TOPOLOGY, name, {"spec": steps("vf0")})
    api.wait_for(TOPOLOGY, name, is_ready)


def test_a_second_controller_finds_everything_done_and_writes_nothing(
    control_plane: ControlPlane, workspace: Workspace, pair: str
) -> None:
    api = workspace.api
    allocate(workspace, pair)
    api.wait_for(USAGE, pair, lambda found: condition(found, "InUse")[0] == "True")
    policy = workspace.name("policy")
    workspace.create(manifest(POLICY, policy, spec={"selector": {"cel": "true"}, **NOWHERE}))
    api.wait_for(POLICY, policy, lambda found: condition(found, "Accepted")[0] == "True")
    schema = workspace.name("schema")
    workspace.create(manifest(SCHEMA, schema, spec={"cniType": "x"}))
    api.wait_for(SCHEMA, schema, lambda found: condition(found, "Accepted")[0] == "True")
    device = workspace.name("device")
    workspace.create(manifest(CUSTOM_DEVICE, device, spec=custom_device()))
    api.wait_for(DEVICE_ROLLOUT, device, lambda found: condition(found, "Applied")[1] == "NoDevice")
    api.wait_for(ROLLOUT, policy, lambda found: condition(found, "Degraded")[1] == "NoNodes")
    wrong = workspace.name("wrong")
    workspace.create(manifest(POLICY, wrong, spec={"selector": {"cel": "device.driver =="}, **NOWHERE}))
    told_of(api, wrong, 1)
    control_plane.processes["netdra-controller"].stop()
    seen = [(TOPOLOGY, pair), (CLASS, f"{pair}-vf0"), (CLASS, f"{pair}-vf1"), (POLICY, policy), (SCHEMA, schema)]
    seen += [(CUSTOM_DEVICE, device), (POLICY, wrong), (USAGE, pair), (ROLLOUT, policy), (DEVICE_ROLLOUT, device)]
    before = [api.get(*each) for each in seen]
    start_controller(control_plane, api)
    # What is made now is looked at after all that was there before.
    last = workspace.name("last")
    workspace.create(manifest(TOPOLOGY, last, spec=steps("a")))
    api.wait_for(TOPOLOGY, last, is_ready)
    assert [api.get(*each) for each in seen] == before
    assert len(told_of(api, wrong, 1)) == 1
    api.delete(CLAIM, "used", workspace.namespace)


def test_reports_of_many_nodes_become_one_status_with_few_writes(workspace: Workspace) -> None:
    api, name, nodes = workspace.api, workspace.name("policy"), 200
    workspace.create(manifest(POLICY, name, spec={"selector": {"cel": "true"}, **NOWHERE}))
    first = api.wait_for(ROLLOUT, name, lambda found: condition(found, "Degraded")[1] == "NoNodes")
    assert first is not None
    begun = time.monotonic()
    for number in range(nodes):
        problems = ["no such key: rdma"] if number % 2 else []
        report(workspace, reporting(workspace.name(f"node{number}"), name, devices=4, problems=problems))
    since = first["metadata"]["resourceVersion"]
    statuses = 0
    fields = f"metadata.name={name}"
    with closing(api.watch(ROLLOUT, fields=fields, since=since)) as changes:
        for _, found in changes:
            statuses += 1
            if found["status"]["nodes"] == nodes:
                break
    took = time.monotonic() - begun
    assert found["status"]["devices"] == 4 * nodes
    (problem,) = found["status"]["problems"]
    assert (problem["message"], problem["nodes"]) == ("no such key: rdma", nodes // 2)
    assert problem["interfaces"] == 3 * nodes // 2
    assert condition(found, "Degraded")[0] == "True"
    assert statuses <= took + 2


def using(workspace: Workspace, topology: str, number: int) -> Object:
    """A claim of a device of node number % 4 and of another driver's, as the scheduler leaves it."""
    name, pool = f"c{number:03}", f"n{number % 4}/sriov-eth0"
    requests = [{"name": "vf0", "exactly": {"deviceClassName": f"{topology}-vf0"}}]
    spec = {"devices": {"requests": requests}}
    made = workspace.api.create(manifest(CLAIM, name, workspace.namespace, spec=spec))
    status = identities.allocated(name, topology, ["vf0"])
    (own,) = status["allocation"]["devices"]["results"]
    own["pool"] = pool
    status["allocation"]["devices"]["results"].append({**own, "driver": "gpu.example"})
    return workspace.api.update({**made, "status": status}, subresource="status")


def note_ready(api: Api, claim: Object, ready: str, policy: str, message: str = "") -> Object:
    """Write a claim's devices as the drivers do: netdra's is ready or not, the other driver's fails always."""
    own, other = claim["status"]["allocation"]["devices"]["results"]
    since = "2026-01-01T00:00:00Z" if ready == "True" else "2026-01-02T00:00:00Z"
    entries = []
    for result, status, data in ((own, ready, {"policy": policy, "pods": []}), (other, "False", {"policy": ["odd"]})):
        condition = {"type": "Ready", "status": status, "reason": "Test", "message": message}
        condition["lastTransitionTime"] = since
        entry = {key: result[key] for key in ("driver", "pool", "device")}
        entries.append({**entry, "conditions": [condition], "data": data})
    return api.update({**claim, "status": {**claim["status"], "devices": entries}}, subresource="status")


def test_a_topology_and_a_policy_are_degraded_while_claims_fail_with_few_writes(
    workspace: Workspace, pair: str, control_plane: ControlPlane
) -> None:
    api, policy, number = workspace.api, workspace.name("policy"), 200
    workspace.create(manifest(POLICY, policy, spec={"selector": {"cel": "true"}, **NOWHERE}))
    api.wait_for(ROLLOUT, policy, lambda found: condition(found, "Degraded")[1] == "NoNodes")
    claims = [using(workspace, pair, at) for at in range(number)]
    claims = [note_ready(api, claim, "True", policy) for claim in claims]
    well = api.wait_for(USAGE, pair, lambda found: (found or {}).get("status", {}).get("users") == number)
    assert condition(well, "Degraded") == ("False", "NoFailures")
    before = [api.get(TOPOLOGY, pair), api.get(POLICY, policy)]
    kinds = ((USAGE, pair), (ROLLOUT, policy))
    since = [api.get(*each)["metadata"]["resourceVersion"] for each in kinds]
    begun = time.monotonic()
    claims = [
        note_ready(api, claim, "False", policy, f"no carrier, password=geheim{at}") for at, claim in enumerate(claims)
    ]
    for (kind, name), version in zip(kinds, since, strict=True):
        writes = 0
        with closing(api.watch(kind, fields=f"metadata.name={name}", since=version)) as changes:
            for _, found in changes:
                writes += 1
                if found["status"]["failingClaims"]["number"] == number:
                    break
        assert writes <= 2 + (time.monotonic() - begun) / 10, "the first failure, and then one in ten seconds"
        failing = found["status"]["failingClaims"]
        assert failing["nodes"] == ["n0", "n1", "n2", "n3"]
        assert failing["claims"] == [f"{workspace.namespace}/c{at:03}" for at in range(16)]
        assert failing["lastError"] == {
            "claim": f"{workspace.namespace}/c{number - 1:03}",
            "node": "n3",
            "message": "no carrier, password=[secret]",
            "time": "2026-01-02T00:00:00Z",
        }
        assert condition(found, "Degraded") == ("True", "ClaimsFailed")
    (message,) = (each["message"] for each in found["status"]["conditions"] if each["type"] == "Degraded")
    assert message.startswith(
        f"{number} claims fail on nodes n0, n1, n2, n3; the last error is of {workspace.namespace}/c"
    )
    shown = control_plane.kubectl("get", "ntopousage", pair, "--no-headers").split()
    assert shown[:4] == [pair, str(number), str(number), "True"]
    # As docs/controller.md has it.
    each = "{.metadata.namespace}/{.metadata.name}{'\\t'}{.status.devices[*].conditions[?(@.status=='False')].message}"
    path = f"jsonpath={{range .items[*]}}{each}{{'\\n'}}{{end}}"
    listed = control_plane.kubectl("get", "resourceclaims", "-A", "-o", path)
    assert f"{workspace.namespace}/c007\tno carrier, password=geheim7" in listed
    for claim in claims[::2]:
        api.delete(CLAIM, claim["metadata"]["name"], workspace.namespace)
    for claim in claims[1::2]:
        note_ready(api, claim, "True", policy)
    well = api.wait_for(USAGE, pair, lambda found: condition(found, "Degraded") == ("False", "NoFailures"))
    assert well is not None
    assert well["status"]["failingClaims"] == {"number": 0}
    api.wait_for(ROLLOUT, policy, lambda found: condition(found, "Degraded") == ("False", "NoNodes"))
    assert told_of(api, pair, 2) == [("Warning", "ClaimsFailed"), ("Normal", "NoFailures")]
    assert told_of(api, policy, 2) == [("Warning", "ClaimsFailed"), ("Normal", "NoNodes")]
    assert [api.get(TOPOLOGY, pair), api.get(POLICY, policy)] == before, "every node watches these"
    api.delete_all(CLAIM, workspace.namespace)


def test_the_api_server_rejects_device_data_that_is_not_an_object(workspace: Workspace, pair: str) -> None:
    """The controller reads a member of it of every driver."""
    claim = using(workspace, pair, 0)
    own, _ = claim["status"]["allocation"]["devices"]["results"]
    for data in ([1], "x", 1):
        entry = {key: own[key] for key in ("driver", "pool", "device")} | {"data": data}
        with pytest.raises(ApiError, match="data"):
            workspace.api.update({**claim, "status": {**claim["status"], "devices": [entry]}}, subresource="status")
    workspace.api.delete(CLAIM, claim["metadata"]["name"], workspace.namespace)


def test_a_claim_that_no_decoder_can_read_keeps_the_controller_from_nothing(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    """Opaque parameters of 10 KiB may be nested 5,000 levels deep, and any user may write them."""
    api, first, second = workspace.api, workspace.name("first"), workspace.name("second")
    deep = "[" * 4900 + "]" * 4900
    text = (
        f'{{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {{"name": "deep"}}, "spec": '
        '{"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "a"}}], '
        f'"config": [{{"opaque": {{"driver": "example.com", "parameters": {{"a": {deep}}}}}}}]}}}}}}'
    )
    control_plane.kubectl("create", "-n", workspace.namespace, "-f", "-", text=text)
    workspace.create(manifest(TOPOLOGY, first, spec=steps("vf0")))
    api.wait_for(TOPOLOGY, first, is_ready)
    control_plane.processes["netdra-controller"].stop()
    start_controller(control_plane, api)
    workspace.create(manifest(TOPOLOGY, second, spec=steps("vf0")))
    api.wait_for(TOPOLOGY, second, is_ready)
    control_plane.kubectl("delete", "resourceclaim", "deep", "-n", workspace.namespace)


def reporting(node: str, policy: str, *, devices: int, problems: list[str]) -> Object:
    """A node that reports on a policy."""
    status = {
        "policies": [{"name": policy, "devices": devices}],
        "problems": [{"policy": policy, "message": text, "interfaces": 3} for text in problems],
    }
    return manifest(REPORT, node, status=status)


def report(workspace: Workspace, written: Object) -> None:
    """Make or change a node's report."""
    name = written["metadata"]["name"]
    made = workspace.create(manifest(REPORT, name))
    workspace.api.update({**made, "status": written["status"]}, subresource="status")
