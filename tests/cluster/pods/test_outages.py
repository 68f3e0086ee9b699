"""The surroundings of the driver fail: kubelet, runtime, API server, disk, a step, the whole node, an update."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.control_plane import ControlPlane
from testbed.objects import POD
from testbed.pods import is_running
from testbed.waiting import until
from tests.cluster.pods import witness
from tests.cluster.pods.conftest import Machine
from tests.cluster.pods.reboot import NEW, rebooted
from tests.cluster.pods.running import publish
from tests.cluster.pods.stage import SHARED, Stage, whole


@pytest.mark.parametrize("program", ["kubelet", "runtime"])
def test_killed_while_pods_come_and_go_the_kubelet_and_the_runtime_leave_nothing_undone(
    stage: Stage, program: str
) -> None:
    process = stage.driver.node.processes[program]
    names = ("old", "new")
    witness.run(stage.pods, "old", stage.claim("c-old"))
    witness.add(stage.pods, "new", stage.claim("c-new"))
    stage.pods.wait_event("new", "Scheduled")
    process.kill()
    process.start()
    process.wait_ready()
    for name in names:
        witness.hurry(stage.pods, name, is_running)
        whole(stage.pods, name)
    for name in names:
        stage.pods.api.delete(POD, name, stage.pods.namespace, grace=5)
    process.kill()
    process.start()
    process.wait_ready()
    for name in names:
        witness.hurry(stage.pods, name, lambda found: found is None)
    stage.driver.until_nothing_is_left()


def test_while_the_api_server_does_not_answer_no_pod_begins_without_its_network(
    stage: Stage, control_plane: ControlPlane
) -> None:
    witness.run(stage.pods, "old", stage.claim("c-old"))
    claim = stage.claim("c-new")
    stage.driver.restart("prepare-done=hang")
    unnamed = [{"name": claim, "resourceClaimName": claim}]  # no container of the pod names it: nothing holds them
    witness.add(stage.pods, "new", resourceClaims=unnamed)
    stage.driver.wait_stop()
    control_plane.apiserver.pause()
    try:
        stage.driver.process.resume()
        until(lambda: sandbox_of("new", stage), "the sandbox to begin", seconds=witness.WITHIN)
    finally:
        control_plane.apiserver.resume()
    witness.hurry(stage.pods, "new", is_running)
    for name in ("old", "new"):
        whole(stage.pods, name)
    witness.wait_status(stage.pods, claim)


@pytest.mark.parametrize("folder", ["claims", "sandboxes"])
def test_a_pod_waits_while_the_disk_is_full_and_starts_when_space_is_free(stage: Stage, folder: str) -> None:
    node = stage.driver.node
    at = f"/var/lib/netdra/{folder}"
    node.run("mkdir", "-p", at)
    node.run("mount", "-t", "tmpfs", "-o", "size=4k,mode=0700", "full", at)
    try:
        node.run("sh", "-c", f"head -c 4096 /dev/zero >{at}/.filler")
        witness.add(stage.pods, "pod", stage.claim("c"))
        reason = {"claims": "FailedPrepareDynamicResources", "sandboxes": "FailedCreatePodSandBox"}[folder]
        stage.pods.wait_event("pod", reason, "No space left on device")
        assert witness.never_began(stage.pods, "pod")
    finally:
        node.run("umount", "--lazy", at)
    witness.hurry(stage.pods, "pod", is_running)
    whole(stage.pods, "pod")


def test_a_hanging_step_is_killed_and_reported_and_the_pod_runs_after_the_fix(stage: Stage) -> None:
    slow = stage.driver.recorder("slow-step")
    slow.does("ADD", "exec sleep 600")
    claim = stage.claim("c", "slow-step")
    witness.add(stage.pods, "pod", claim)
    stage.pods.wait_event("pod", "FailedCreatePodSandBox", 'step "more"')
    assert 'step "more"' in stage.pods.wait_event("pod", "NetworkNotAttached")["message"]
    assert witness.never_began(stage.pods, "pod")
    slow.prints("ADD", {})
    witness.hurry(stage.pods, "pod", is_running)
    whole(stage.pods, "pod")


def test_a_driver_that_hangs_lets_no_container_begin(stage: Stage) -> None:
    stage.driver.restart("attach-done=hang")
    witness.add(stage.pods, "pod", stage.claim("c"))
    stage.pods.wait_event("pod", "Failed", "unresolvable CDI devices")
    assert witness.never_began(stage.pods, "pod")
    stage.driver.restart()
    witness.hurry(stage.pods, "pod", is_running)
    whole(stage.pods, "pod")


def test_two_drivers_side_by_side_serve_pods_and_the_old_ones_death_is_not_felt(stage: Stage) -> None:
    witness.run(stage.pods, "before", stage.claim("c-before"))
    new = stage.driver.beside("new")
    new.start()
    try:
        witness.run(stage.pods, "both", stage.claim("c-both"))
        witness.add(stage.pods, "changing", stage.claim("c-changing"))
        stage.driver.kill()
        witness.hurry(stage.pods, "changing", is_running)
        witness.run(stage.pods, "after", stage.claim("c-after"))
        for name in ("before", "both", "changing", "after"):
            whole(stage.pods, name)
        witness.end(stage.pods, "before", "both", "changing", "after")
        new.until_nothing_is_left()
    finally:
        new.kill()


def test_after_a_reboot_pods_come_up_anew_and_their_old_leases_are_free(
    machine: Machine, stage: Stage, tmp_path: Path
) -> None:
    witness.run(stage.pods, "pod", stage.claim("c"))
    before, sandbox = checkpoints(stage), stage.pods.sandbox("pod")
    with rebooted(machine, tmp_path, SHARED):
        stage.driver.start()
        publish(machine.node, stage.pods.api, SHARED)
        witness.hurry(
            stage.pods, "pod", lambda found: is_running(found) and stage.pods.sandbox("pod") not in ("", sandbox)
        )
        whole(stage.pods, "pod")
        after = checkpoints(stage)
        assert len(after) == 1
        assert after != before
        assert len([path for path in stage.driver.left() if "/cni/networks/" in path]) == 1
        (record,) = (stage.driver.node.folder / "lib/netdra/claims").glob("*.json")
        assert NEW in record.read_text()
        witness.end(stage.pods, "pod")
        stage.driver.until_nothing_is_left()
    stage.driver.restart()


def sandbox_of(name: str, stage: Stage) -> str:
    """The id of a pod's sandbox that has begun, as the runtime states; "" for none."""
    options = ("--quiet", "--state=ready", f"--label=io.kubernetes.pod.namespace={stage.pods.namespace}")
    return stage.pods.containerd.crictl("pods", *options, f"--name={name}").strip()


def checkpoints(stage: Stage) -> list[str]:
    return [path for path in stage.driver.left() if path.endswith(".jsonl")]
