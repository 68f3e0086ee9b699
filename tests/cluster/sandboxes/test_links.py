"""The links of devices in pods are watched: the claim's condition, an event of the pod, and the device's health."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from netdra.kernel import link
from netdra.kernel.errors import KernelRefusedError
from netdra.node.publishing.interfaces import BURST
from netdra.node.traffic import links
from netdra.node.traffic.interfaces import SandboxInterface
from netdra.node.traffic.links import PodLink, broken
from testbed.waiting import until_async
from tests.cluster.sandboxes.scene import Scene, step

WITHIN = 2.0


def conditions(scene: Scene, claim: str) -> list[tuple[str, str]]:
    """The conditions of a claim's device, with their reasons."""
    return [(each["type"], each["reason"]) for each in scene.stored(claim)["status"]["devices"][0]["conditions"]]


def link_events(scene: Scene) -> list[str]:
    """The events about links."""
    return [each.reason for each in scene.told if each.reason.startswith("Link")]


def cable(scene: Scene, *, up: bool) -> None:
    """Connect the far end of the device's cable, or disconnect it."""
    with scene.machine.host.socket() as sock:
        link.change(sock, "eth7p", up=up)


@pytest.mark.parametrize("polled", [False, True], ids=["by events", "without the right to listen"])
def test_a_link_that_is_lost_in_a_pod_is_reported_in_two_seconds_and_so_is_its_return(
    scene: Scene, polled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if polled:
        monkeypatch.setattr(links, "POLL_SECONDS", 0.5)
        monkeypatch.setattr(links, "PodLinkMonitor", _refused)
    else:
        monkeypatch.setattr(links, "CHECK_SECONDS", 600.0)
    scene.publish("eth7")
    claim = scene.claim(scene.topology("wire", step("nic", "host-device")))
    sandbox = scene.machine.sandbox(scene.pod(claim))

    async def story() -> None:
        async with scene.daemon() as daemon:
            watch = daemon.pods.links
            await daemon.run(sandbox)
            await until_async(lambda: watch.states, "the first look")
            assert (link_events(scene), broken(watch.states)) == ([], {})

            cable(scene, up=False)
            began = time.monotonic()
            await until_async(lambda: link_events(scene) == ["LinkDown"], "the event", detail=lambda: scene.told)
            await until_async(lambda: ("Healthy", "NoCarrier") in conditions(scene, claim), "the condition")
            assert time.monotonic() - began < WITHIN
            (event,) = [each for each in scene.told if each.reason == "LinkDown"]
            assert (event.regarding.kind, event.regarding.name) == ("Pod", sandbox.name)
            assert 'interface "net1" (device "eth7")' in event.note
            assert list(broken(watch.states)) == [(scene.node, "eth7")]

            cable(scene, up=True)
            began = time.monotonic()
            await until_async(lambda: link_events(scene) == ["LinkDown", "LinkUp"], "the link to be back")
            await until_async(lambda: conditions(scene, claim) == [("Ready", "Attached")], "the condition to go")
            assert (time.monotonic() - began < WITHIN, broken(watch.states)) == (True, {})

            # Nothing of the detachment, which sets the link down in the pod, is an event.
            await daemon.stop(sandbox)
            await until_async(lambda: not watch.states, "the pod to be forgotten")
            assert link_events(scene) == ["LinkDown", "LinkUp"]

    asyncio.run(story())


def test_a_short_loss_is_a_flap_and_a_link_that_the_pod_sets_down_is_no_fault_of_the_device(
    scene: Scene,
) -> None:
    scene.publish("eth7")
    claim = scene.claim(scene.topology("wire", step("nic", "host-device")))
    sandbox = scene.machine.sandbox(scene.pod(claim))

    async def story() -> None:
        async with scene.daemon() as daemon:
            watch = daemon.pods.links
            await daemon.run(sandbox)
            await until_async(lambda: watch.states, "the first look")
            (before,) = watch.states.values()
            cable(scene, up=False)
            cable(scene, up=True)
            await until_async(lambda: "LinkFlapped" in link_events(scene), "the flap", detail=lambda: scene.told)
            await until_async(lambda: not next(iter(watch.states.values())).silent, "the link to be up")
            (after,) = watch.states.values()
            assert after.carrier_down > before.carrier_down

            command = ("ip", "-n", Path(sandbox.netns).name, "link", "set", "net1", "down")
            await asyncio.to_thread(subprocess.run, command, check=True)
            await until_async(lambda: "LinkDown" in link_events(scene), "the event", detail=lambda: scene.told)
            assert broken(watch.states) == {}
            assert "Find the program in the pod" in scene.told[-1].next_step

    asyncio.run(story())


def test_a_pod_that_changes_its_link_all_the_time_is_read_seldom_and_a_new_pod_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    plain = links._links

    def counted(interfaces: Sequence[SandboxInterface]) -> dict[SandboxInterface, PodLink]:
        read.append(len(interfaces))
        return plain(interfaces)

    monkeypatch.setattr(links, "_links", counted)
    scene.publish("eth7", "eth8")
    first, second = (scene.claim(scene.topology(name, step("nic", "host-device"))) for name in ("one", "two"))
    noisy, new = (scene.machine.sandbox(scene.pod(claim)) for claim in (first, second))

    async def story() -> None:
        async with scene.daemon() as daemon:
            watch = daemon.pods.links
            await daemon.run(noisy)
            await until_async(lambda: watch.states, "the first look")
            flip = f"while :; do for s in down up; do ip -n {Path(noisy.netns).name} link set net1 $s; done; done"
            process = await asyncio.create_subprocess_exec("timeout", "6", "sh", "-c", flip)
            read.clear()
            await asyncio.sleep(5.0)
            assert 1 <= len(read) <= BURST + 1
            assert len(link_events(scene)) <= BURST + 1
            await process.wait()
            read.clear()
            await daemon.run(new)
            await until_async(lambda: len(watch.states) == 2, "the new pod to be read")
            assert len(read) <= 2

    asyncio.run(story())


def _refused() -> None:
    raise KernelRefusedError(1, "cannot listen")
