"""The test bed's control plane is real, fresh in seconds, alone, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from testbed import objects
from testbed.api import Api, ApiError, Object
from testbed.build import program
from testbed.commands import Settings
from testbed.components import KUBERNETES_VERSION
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, NAMESPACE, POD, SLICE, manifest
from testbed.pace import within
from testbed.process import ProcessError
from testbed.waiting import until
from testbed.workspace import Workspace, open_workspace

DRIVER = "dra.networking"
STARTS_IN_SECONDS = 6.0  # 2.6 s on an idle machine with two cores
SERVERS = ("kube-apiserver", "kube-scheduler", "kube-controller-manager")


def slice_of(node: str, *devices: str) -> Object:
    """A slice with devices that have two attributes each."""
    attributes = {"ifName": {"string": "eth1"}, "mtu": {"int": 9000}}
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": device, "attributes": attributes} for device in devices],
    }
    return manifest(SLICE, f"{node}-slice", spec=spec)


def test_a_second_control_plane_is_ready_within_seconds_beside_the_first_and_leaves_nothing(
    control_plane: ControlPlane, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with ExitStack() as undo:
        with within(STARTS_IN_SECONDS, "the start of a control plane") as start:
            other = undo.enter_context(ControlPlane())
        api = undo.enter_context(closing(other.client()))
        memory = {name: process.memory() for name, process in other.processes.items()}
        assert other.server != control_plane.server
        assert api.list(SLICE) == []
        assert api.list("v1/Node") == []
        assert min(memory.values()) > 0
        folder, server = other.folder, urlsplit(other.server)
        pids = [process.pid for process in other.processes.values()]
        assert len(pids) == 4
        pids.append(run_further(other, tmp_path / "ready"))
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not folder.exists()
    with socket.socket() as probe:
        assert probe.connect_ex((server.hostname, server.port)) != 0
    record_property("seconds_to_ready", round(start.seconds, 2))
    record_property("resident_bytes", memory)


def run_further(plane: ControlPlane, ready: Path) -> int | None:
    """Run a further program beside the components; return its process id."""
    command = ["sh", "-c", 'echo "hello from $WHO"; touch "$READY"; exec sleep 1000']
    started = plane.run("further", command, ready.exists, {"WHO": "the test", "READY": str(ready)})
    assert plane.log_tails({})["further"] == "hello from the test"
    with pytest.raises(ProcessError, match=f"further still runs, as process {started.pid}"):
        plane.run("further", command, ready.exists)
    with pytest.raises(ProcessError, match=r"ended with code 3 before it was ready(.|\n)*said why"):
        plane.run("broken", ["sh", "-c", "echo said why; exit 3"], lambda: False)
    return started.pid


def test_every_component_is_of_the_release_that_the_facts_were_gathered_on(control_plane: ControlPlane) -> None:
    assert KUBERNETES_VERSION == "v1.37.2"
    versions = json.loads(control_plane.kubectl("version", "--output=json"))
    assert versions["serverVersion"]["gitVersion"] == KUBERNETES_VERSION
    assert versions["clientVersion"]["gitVersion"] == KUBERNETES_VERSION
    for name in SERVERS:
        printed = subprocess.run([program(name), "--version"], capture_output=True, text=True, check=True).stdout
        assert printed.split() == ["Kubernetes", KUBERNETES_VERSION]


def test_a_resource_slice_is_stored_as_it_was_sent(workspace: Workspace) -> None:
    sent = slice_of(workspace.add_node(), "eth1")
    workspace.create(sent)
    assert workspace.api.get(SLICE, sent["metadata"]["name"])["spec"] == sent["spec"]


def test_the_scheduler_gives_a_device_to_one_pod_and_reports_why_the_next_must_wait(workspace: Workspace) -> None:
    node = workspace.add_node()
    device_class = workspace.add_class("nic", f'device.driver == "{DRIVER}"')
    workspace.publish(node, slice_of(node, "eth1"))
    request = {"name": "nic", "exactly": {"deviceClassName": device_class}}
    workspace.add_pod("first", workspace.add_claim("first", request), node=node)
    assert workspace.schedule("first") == (node, "")
    assert workspace.devices("first") == ["eth1"]
    workspace.add_pod("second", workspace.add_claim("second", request), node=node)
    scheduled, reason = workspace.schedule("second")
    assert scheduled == ""
    assert "cannot allocate all claims" in reason
    workspace.release("first", "first")
    workspace.api.wait_for(
        POD, "second", lambda found: bool(found and found["spec"].get("nodeName")), namespace=workspace.namespace
    )


def test_waiting_ends_with_the_event_that_is_waited_for(workspace: Workspace) -> None:
    api, namespace = workspace.api, workspace.namespace
    workspace.add_pod("pod")
    changes = api.watch(POD, namespace, since=api.get(POD, "pod", namespace)["metadata"]["resourceVersion"])
    api.patch(POD, "pod", {"metadata": {"labels": {"seen": "yes"}}}, namespace=namespace)
    with closing(changes):
        assert any(found["metadata"].get("labels") == {"seen": "yes"} for _, found in changes)
    api.delete(POD, "pod", namespace)
    assert api.wait_for(POD, "pod", lambda found: found is None, namespace=namespace) is None


def test_waiting_in_vain_shows_the_object_as_it_was_last(workspace: Workspace) -> None:
    workspace.add_pod("pod")
    with pytest.raises(TimeoutError, match=r'waited 0\.2 s for v1/Pod metadata\.name=pod(.|\n)*"phase": "Pending"'):
        workspace.api.wait_for(POD, "pod", lambda found: found is None, namespace=workspace.namespace, timeout=0.2)


def test_a_client_has_the_rights_of_the_user_and_groups_in_its_certificate(control_plane: ControlPlane) -> None:
    with closing(control_plane.client("system:node:n1", ["system:nodes"])) as api:
        review = api.create(manifest("authentication.k8s.io/v1/SelfSubjectReview", ""))
        with pytest.raises(ApiError) as refused:
            api.list("v1/Secret")
    user = review["status"]["userInfo"]
    assert user["username"] == "system:node:n1"
    assert set(user["groups"]) == {"system:nodes", "system:authenticated"}
    assert refused.value.reason == "Forbidden"


def test_feature_gates_reach_the_api_server(api: Api, start_control_plane: Callable[[Settings], ControlPlane]) -> None:
    lists = slice_of("n1", "eth1")
    lists["spec"]["devices"][0]["attributes"] = {"cnis": {"strings": ["sriov", "host-device"]}}
    with pytest.raises(ApiError) as refused:
        api.create(lists, dry_run=True)
    assert refused.value.reason == "Invalid"
    gates = {"DRAListTypeAttributes": True}
    gated = start_control_plane(Settings(feature_gates=gates, scheduler=False, controller_manager=False))
    with closing(gated.client()) as gated_api:
        assert gated_api.create(lists, dry_run=True)["spec"] == lists["spec"]


@pytest.fixture(scope="module")
def own(start_control_plane: Callable[[Settings], ControlPlane]) -> ControlPlane:
    """A control plane of this module's own."""
    return start_control_plane(Settings())


def test_objects_outlive_a_killed_api_server_and_a_paused_one_answers_when_it_goes_on(own: ControlPlane) -> None:
    with closing(own.client()) as api, open_workspace(api) as made:
        node = made.add_node()
        own.apiserver.kill()
        with pytest.raises(OSError, match="refused"):
            api.get("v1/Node", node)
        own.apiserver.start()
        own.apiserver.wait_ready()
        own.apiserver.pause()
        hurried = Api(own.server, own.authority.own.certificate, own.authority.client("any"), timeout=0.2)
        with closing(hurried), pytest.raises(TimeoutError):
            hurried.get("v1/Node", node)
        own.apiserver.resume()
        assert api.get("v1/Node", node)["metadata"]["name"] == node
        api.delete("v1/Node", node)


def test_a_cleared_control_plane_has_the_objects_of_its_start_and_works_as_before(own: ControlPlane) -> None:
    kinds = ("v1/Node", POD, SLICE, CLAIM, CLASS)
    with closing(own.client()) as api:
        own.clear()
        namespaces = api.list(NAMESPACE)
        for _ in range(2):
            objects.add_namespace(api, "team")
            objects.add_node(api, "n1")
            api.create(slice_of("n1", "eth1"))
            selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
            api.create(manifest(CLASS, "nic", spec={"selectors": [selector]}))
            request = {"name": "nic", "exactly": {"deviceClassName": "nic"}}
            claim = manifest(CLAIM, "nic", "team", spec={"devices": {"requests": [request]}})
            claim["metadata"]["finalizers"] = ["example.com/stays"]
            api.create(claim)
            api.create(objects.pod("team", "user", {"nic": "nic"}))
            api.wait_for(POD, "user", lambda found: objects.scheduling(found)[0] == "n1", namespace="team")
            further = own.run("further", ["sleep", "1000"], lambda: True)
            own.clear()
            assert further.pid is None
            assert list(own.processes) == ["etcd", *SERVERS]
            until(lambda: not any(api.list(kind) for kind in kinds), "the API server to see the deletions")
            assert [found["metadata"]["name"] for found in api.list(NAMESPACE)] == [
                found["metadata"]["name"] for found in namespaces
            ]


def test_a_namespace_with_nothing_of_its_own_is_removed_at_once_and_another_one_stays(own: ControlPlane) -> None:
    with closing(own.client()) as api:
        for name in ("empty", "full"):
            objects.add_namespace(api, name)
        # Named as the service account that each namespace has.
        api.create(manifest("v1/ConfigMap", "default", "full"))
        assert own.remove_namespace("empty")
        assert not own.remove_namespace("full")
        api.wait_for(NAMESPACE, "empty", lambda found: found is None)
        assert api.get("v1/ConfigMap", "default", "full") is not None
        until(lambda: not api.list(objects.SERVICE_ACCOUNT, "empty"), "the service account to go with its namespace")
        assert api.list(objects.SERVICE_ACCOUNT, "full")


def test_a_namespace_whose_last_claim_is_being_deleted_is_removed_with_a_later_one(own: ControlPlane) -> None:
    with closing(own.client()) as api:
        for name in ("first", "second"):
            objects.add_namespace(api, name)
        claim = manifest(CLAIM, "nic", "first", spec={"devices": {}})
        claim["metadata"]["finalizers"] = ["example.com/stays"]
        api.create(claim)
        api.delete(CLAIM, "nic", "first")
        assert own.remove_namespace("first")
        assert api.get(NAMESPACE, "first") is not None
        assert api.get(CLAIM, "nic", "first") is not None
        api.patch(CLAIM, "nic", {"metadata": {"finalizers": None}}, namespace="first")
        api.wait_for(CLAIM, "nic", lambda found: found is None, namespace="first")
        assert own.remove_namespace("second")
        for name in ("first", "second"):
            api.wait_for(NAMESPACE, name, lambda found: found is None)


def test_no_component_survives_a_test_run_that_is_killed() -> None:
    script = (
        "import sys; from testbed.control_plane import ControlPlane, Settings\n"
        "with ControlPlane(Settings(controller_manager=False)) as plane:\n"
        "    print(*[process.pid for process in plane.processes.values()], flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        handles = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    assert len(handles) == 3
    for handle in handles:
        ended, _, _ = select.select([handle], [], [], 60)
        os.close(handle)
        assert ended
