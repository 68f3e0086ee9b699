"""The driver dies at every point of a real pod's life: no container begins without its network, and nothing is left."""

from __future__ import annotations

import pytest

from testbed.api import Object
from testbed.image import NAME
from testbed.kubelet import answered_claims
from testbed.objects import POD
from testbed.pods import CONTAINER, is_running
from testbed.waiting import until
from tests.cluster.pods import witness
from tests.cluster.pods.stage import Stage, whole

COMING = ("prepare-begun", "prepare-described", "prepare-done", "attach-begun", "attach-done", "attach-guarded")
LONGER_SECONDS = 120
"""How long a pod whose container does not end may take to end."""
GOING = ("detach-begun", "detach-done", "unprepare-begun", "unprepare-removed")


@pytest.mark.parametrize("point", COMING)
def test_killed_while_a_pod_comes_it_begins_with_its_network_or_not_at_all(stage: Stage, point: str) -> None:
    stage.driver.restart(f"{point}=kill")
    claim = stage.claim("c")
    witness.add(stage.pods, "pod", claim, restartPolicy="Never")
    stage.driver.wait_end()
    if point != "attach-guarded":
        assert witness.never_began(stage.pods, "pod")
    stage.driver.start()
    witness.hurry(stage.pods, "pod", is_running)
    whole(stage.pods, "pod")
    witness.wait_status(stage.pods, claim)


@pytest.mark.parametrize("point", GOING)
def test_after_a_kill_during_pod_deletion_the_next_driver_releases_the_rest(stage: Stage, point: str) -> None:
    witness.run(stage.pods, "pod", stage.claim("c"))
    stage.driver.restart(f"{point}=kill")
    stage.pods.api.delete("v1/Pod", "pod", stage.pods.namespace, grace=5)
    stage.driver.wait_end()
    stage.driver.start()
    witness.hurry(stage.pods, "pod", lambda found: found is None)
    stage.driver.until_nothing_is_left()


def dead_between(stage: Stage, name: str, claim: str, **spec: Object | list[Object] | str) -> None:
    """A pod whose claim is prepared, and whose sandbox begins when the driver is dead."""
    runtime = stage.pods.containerd.process
    stage.driver.restart("prepare-done=hang")
    witness.add(stage.pods, name, claim, **spec)
    stage.driver.wait_stop()
    # Not before the kubelet is about the pod: it looks at the runtime every other second, and does nothing else then.
    runtime.pause()
    try:
        stage.driver.process.resume()
        until(
            lambda: (stage.pods.namespace, claim) in answered_claims(stage.driver.node),
            "the kubelet to have the claim's devices",
            seconds=witness.WITHIN,
        )
        stage.driver.kill()
    finally:
        runtime.resume()


def test_a_pod_whose_sandbox_begins_without_the_driver_waits_for_it_and_then_runs_by_itself(stage: Stage) -> None:
    dead_between(stage, "pod", stage.claim("c"), restartPolicy="Never")
    stage.pods.wait_event("pod", "Failed", "unresolvable CDI devices")
    assert set(witness.interfaces(stage.pods, "pod")) == {"lo", "eth0"}
    assert witness.never_began(stage.pods, "pod")
    stage.driver.start()
    stage.pods.wait("pod", is_running)
    whole(stage.pods, "pod")


def test_of_a_claim_that_no_container_names_nothing_holds_the_pod_and_the_network_comes_late(stage: Stage) -> None:
    container = {"name": CONTAINER, "image": NAME, "imagePullPolicy": "Never"}
    dead_between(stage, "pod", stage.claim("c"), containers=[container])
    stage.pods.wait("pod", is_running)
    assert set(witness.interfaces(stage.pods, "pod")) == {"lo", "eth0"}
    stage.driver.start()
    stage.pods.wait_event("pod", "NetworkAttachedLate")
    assert "net1" in witness.interfaces(stage.pods, "pod")


def test_killed_while_it_attaches_the_second_pod_of_a_shared_claim_that_pod_waits_too(stage: Stage) -> None:
    claim = stage.claim("c")
    witness.run(stage.pods, "first", claim)
    stage.driver.restart("attach-begun=kill")
    witness.add(stage.pods, "second", claim)
    stage.driver.wait_end()
    stage.pods.wait_event("second", "Failed", "unresolvable CDI devices")
    assert witness.never_began(stage.pods, "second")
    stage.driver.start()
    witness.hurry(stage.pods, "second", is_running)
    for name in ("first", "second"):
        whole(stage.pods, name)


def test_while_the_driver_is_away_the_second_pod_of_a_shared_claim_begins_early_and_its_network_comes_late(
    stage: Stage,
) -> None:
    claim = stage.claim("c")
    witness.run(stage.pods, "first", claim)
    stage.driver.kill()
    witness.run(stage.pods, "second", claim)
    assert "net1" not in witness.began_with(stage.pods, "second")
    stage.driver.start()
    stage.pods.wait_event("second", "NetworkAttachedLate")
    assert len(witness.addresses(stage.pods, "second")) == 1


def test_a_sandbox_that_is_made_anew_while_the_driver_is_away_gets_its_network_late(stage: Stage) -> None:
    witness.run(stage.pods, "pod", stage.claim("c"))
    before = stage.pods.sandbox("pod")
    stage.driver.kill()
    stage.pods.containerd.crictl("stopp", before)
    witness.hurry(stage.pods, "pod", lambda found: is_running(found) and stage.pods.sandbox("pod") != before)
    assert "net1" not in witness.interfaces(stage.pods, "pod")
    stage.driver.start()
    stage.pods.wait_event("pod", "NetworkAttachedLate")
    assert len(witness.addresses(stage.pods, "pod")) == 1
    assert len([path for path in stage.driver.left() if path.endswith(".jsonl")]) == 1


def test_a_pod_created_again_with_its_claim_while_the_driver_is_away_begins_early_and_its_network_comes_late(
    stage: Stage,
) -> None:
    """The first pod has not ended yet, so the kubelet has not begun to unprepare the claim."""
    claim, run = stage.claim("c"), stage.driver.node.run
    witness.run(stage.pods, "pod", claim, terminationGracePeriodSeconds=LONGER_SECONDS)
    former = str(stage.pods.pid("pod"))
    stage.driver.kill()
    run("kill", "-STOP", former)
    try:
        stage.pods.api.delete(POD, "pod", stage.pods.namespace)  # with force: the kubelet need not confirm its end
        witness.run(stage.pods, "pod", claim)
    finally:
        run("sh", "-c", f"kill -KILL {former} || true")  # the kubelet may have killed it by now
    assert "net1" not in witness.began_with(stage.pods, "pod")
    stage.driver.start()
    stage.pods.wait_event("pod", "NetworkAttachedLate")
    assert len(witness.addresses(stage.pods, "pod")) == 1


def test_a_pod_created_again_while_the_kubelet_unprepares_its_claim_waits_for_the_driver(stage: Stage) -> None:
    claim = stage.claim("c")
    witness.run(stage.pods, "pod", claim)
    stage.driver.kill()
    stage.pods.api.delete(POD, "pod", stage.pods.namespace)
    until(lambda: unprepares(stage, "pod"), "the kubelet to begin to unprepare the claim", seconds=witness.WITHIN)
    witness.add(stage.pods, "pod", claim)
    stage.pods.wait_event("pod", "FailedPrepareDynamicResources")
    assert witness.never_began(stage.pods, "pod")
    stage.driver.start()
    witness.hurry(stage.pods, "pod", is_running)
    whole(stage.pods, "pod")


def unprepares(stage: Stage, name: str) -> bool:
    """Whether the kubelet has tried to unprepare the claims of a pod, and the driver did not answer."""
    lines = stage.driver.node.processes["kubelet"].log.read_text(errors="replace").splitlines()
    pod = f'pod="{stage.pods.namespace}/{name}"'
    return any("unprepare dynamic resources" in line and pod in line for line in lines)
