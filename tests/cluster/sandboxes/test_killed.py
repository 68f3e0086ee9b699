"""The daemon is killed at each named point of a call; what is there then is safe, and all is well when it is back."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from netdra.model.plan import ClaimReference
from netdra.node import faults
from netdra.node.nri.hooks import Sandbox
from testbed.objects import POD
from testbed.waiting import until_async
from tests.cluster.sandboxes.gate import shared
from tests.cluster.sandboxes.killed import Job
from tests.cluster.sandboxes.scene import BUDGET, Scene, chain_of_three

ROOT = Path(__file__).parents[3]
NODE = ROOT / "netdra/node"
PREPARE = ("prepare-begun", "prepare-described", "prepare-done")
UNPREPARE = ("unprepare-begun", "unprepare-removed")
ATTACH = ("attach-begun", "attach-done", "attach-guarded")
DETACH = ("detach-begun", "detach-done")


def call(scene: Scene, verb: str, sandbox: Sandbox, claim: str, point: str = "") -> int:
    """Make a call in a daemon of its own; its exit code, negative if it was killed."""
    reference = ClaimReference(namespace=scene.workspace.namespace, name=claim, uid=scene.uid(claim))
    job = msgspec.json.encode(
        {
            "verb": verb,
            "sandbox": sandbox,
            "claim": reference,
            "node": scene.node,
            "kubeconfig": str(scene.plane.kubeconfig()),
            "folder": str(scene.machine.folder),
            "settings": scene.machine.settings,
            "host": scene.machine.host.fd,
            "slices": scene.view.slices,
            "topologies": list(scene.view.topologies.values()),
        },
        enc_hook=str,
    )
    assert msgspec.json.decode(job, type=Job, dec_hook=lambda kind, value: kind(value)).sandbox == sandbox
    return subprocess.run(
        (sys.executable, "-m", "tests.cluster.sandboxes.killed"),
        input=job,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", faults.VARIABLE: f"{point}=kill"},
        pass_fds=(scene.machine.host.fd,),
        cwd=ROOT,
        timeout=3 * BUDGET,
        check=False,
    ).returncode


@pytest.mark.parametrize("point", ATTACH)
def test_killed_while_attaching_no_container_is_made_before_the_network_is_complete(scene: Scene, point: str) -> None:
    claim, sandbox = scene.of_three()

    assert call(scene, "run", sandbox, claim, point) == -signal.SIGKILL
    complete = point == "attach-guarded"
    assert bool(scene.machine.specified()) == complete
    if complete:
        assert scene.machine.addresses(sandbox, "net1") == {"192.0.2.7/24"}

    async def back() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            assert scene.machine.addresses(sandbox, "net1") == {"192.0.2.7/24"}
            assert scene.machine.specified() == {scene.uid(claim)}
            await daemon.stop(sandbox)
            assert "eth7" in scene.machine.links()
            assert not scene.machine.checkpoints()

    asyncio.run(back())


def test_killed_while_attaching_the_second_pod_of_a_shared_claim_no_container_is_made_until_both_are_complete(
    scene: Scene,
) -> None:
    claim, one, other, gate = shared(scene)
    assert call(scene, "run", one, claim) == 0
    assert scene.machine.specified() == {scene.uid(claim)}
    assert call(scene, "run", other, claim, "attach-begun") == -signal.SIGKILL
    assert not scene.machine.specified()

    async def back() -> None:
        async with scene.daemon() as daemon:
            assert not scene.machine.specified()
            gate.holds()
            recovery = daemon.pods.recovery
            async with recovery.table.turn(other):
                compared = asyncio.create_task(daemon.synchronize(one, other))
                await until_async(lambda: recovery._unseen == {other.id}, "the first pod to be compared")
                assert not scene.machine.specified()
            await gate.reached()
            assert not scene.machine.specified()
            await gate.opens()
            await compared
            assert "net1" in scene.machine.links(other)
            assert scene.machine.specified() == {scene.uid(claim)}

    asyncio.run(back())


@pytest.mark.parametrize("point", DETACH)
def test_killed_while_detaching_the_rest_is_done_by_the_next_daemon(scene: Scene, point: str) -> None:
    claim, sandbox = scene.of_three()
    assert call(scene, "run", sandbox, claim) == 0
    assert scene.machine.specified() == {scene.uid(claim)}

    assert call(scene, "stop", sandbox, claim, point) == -signal.SIGKILL
    assert not scene.machine.specified()
    scene.workspace.api.delete(POD, sandbox.name, sandbox.namespace)  # the runtime's list alone does not count (D59)

    async def back() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize()
            await daemon.pods.recovery.look_around()
            assert scene.machine.links(sandbox) == {"lo"}
            assert "eth7" in scene.machine.links()
            assert not scene.machine.checkpoints()
            assert not scene.machine.specified()

    asyncio.run(back())


@pytest.mark.parametrize("point", PREPARE)
def test_killed_while_preparing_the_kubelets_next_call_is_answered_as_if_it_were_the_first(
    scene: Scene, point: str
) -> None:
    scene.publish("eth7")
    claim = scene.claim(scene.topology("three", *chain_of_three()))
    sandbox = scene.machine.sandbox(scene.pod(claim, prepare=False))

    assert call(scene, "prepare", sandbox, claim, point) == -signal.SIGKILL
    assert not scene.machine.specified()
    scene.prepare(claim)

    async def back() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            assert scene.machine.specified() == {scene.uid(claim)}

    asyncio.run(back())


@pytest.mark.parametrize("point", UNPREPARE)
def test_after_a_kill_during_unprepare_the_next_daemon_releases_the_claim(scene: Scene, point: str) -> None:
    scene.publish("eth7")
    claim = scene.claim(scene.topology("three", *chain_of_three()))
    pod = scene.pod(claim)
    sandbox = scene.machine.sandbox(pod)

    assert call(scene, "unprepare", sandbox, claim, point) == -signal.SIGKILL
    assert not scene.machine.specified()
    scene.workspace.release(pod["metadata"]["name"], claim)

    async def back() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize()
            for _ in range(2):
                await daemon.pods.recovery.look_around()
            assert not scene.machine.store.uids()
            assert not daemon.pods.network.held

    asyncio.run(back())


def test_every_named_point_is_tried_here_and_is_on_the_page() -> None:
    source = "".join(path.read_text() for path in NODE.rglob("*.py"))
    tried = (*PREPARE, *ATTACH, *DETACH, *UNPREPARE)
    assert set(re.findall(r'faults\.point\("([a-z-]+)"\)', source)) == set(tried)
    page = (ROOT / "docs/crashes.md").read_text()
    assert [point for point in tried if f"`{point}`" not in page] == []
