"""Conversations with scripted runtimes: of the old style, of the new one, in other orders; and how the plugin ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.node.metrics import NODE
from netdra.node.nri.plugin import NriSettings
from netdra.nri import framing, nri_pb2
from netdra.nri.framing import Code
from testbed.pace import measured
from tests.unit.node.nri.peer import PATIENCE, listening, pod, seen
from tests.unit.node.nri.scene import EVERY_POD_EVENT, RUN, Play, Scene


def test_configure_may_come_before_the_answer_to_the_registration(play: Play) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.come()
        call, asked = await peer.registration()
        assert (asked.plugin_name, asked.plugin_idx) == ("tester", "42")
        configured = await peer.ask("Configure", nri_pb2.ConfigureRequest(runtime_name="r", request_timeout=2500))
        assert nri_pb2.ConfigureResponse.FromString(configured.payload).events == EVERY_POD_EVENT
        assert not scene.plugin.connected.is_set()
        await peer.ask("Synchronize", nri_pb2.SynchronizeRequest())
        peer.accept(call)
        await scene.connected()
        assert scene.plugin.runtime is not None
        assert scene.plugin.runtime.request_timeout == 2.5

    play(act)


def test_an_old_runtime_reports_pods_by_state_change_events_alone(play: Play) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.come()
        await peer.handshake()
        with measured() as pace:
            for event in (RUN, nri_pb2.STOP_POD_SANDBOX, nri_pb2.REMOVE_POD_SANDBOX):
                change = nri_pb2.StateChangeEvent(event=event, pod=pod("a", "/run/netns/x"))
                assert (await peer.ask("StateChange", change, seconds=400)).status.code == Code.OK
        of_a = seen("a", "/run/netns/x")
        assert scene.diary.told == [("synchronize", ()), ("run", of_a), ("stop", of_a), ("remove", of_a)]
        assert all(300 - pace.slowness < budget <= 300 for budget in scene.diary.budgets), pace

    play(act)


def test_a_runtime_of_the_new_style_has_a_method_for_each_event(play: Play) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.come()
        await peer.handshake(request_timeout=800_000)
        with measured() as pace:
            for method in (
                "RunPodSandbox",
                "UpdatePodSandbox",
                "PostUpdatePodSandbox",
                "StopPodSandbox",
                "RemovePodSandbox",
            ):
                assert (await peer.ask(method, nri_pb2.PodSandboxRequest(pod=pod("a")))).status.code == Code.OK
        assert [what for what, _ in scene.diary.told] == ["synchronize", "run", "stop", "remove"]
        assert all(600 - pace.slowness < budget <= 600 for budget in scene.diary.budgets), pace

    play(act)


def test_events_of_containers_are_answered_and_ignored(play: Play) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.come()
        await peer.handshake()
        for event in (nri_pb2.UNKNOWN, 7, 11, 99):
            change = nri_pb2.StateChangeEvent(pod=pod("a"))
            wire = change.SerializeToString() + bytes([0x08, event])
            answer = await peer.ask("StateChange", nri_pb2.StateChangeEvent.FromString(wire))
            assert answer.status.code == Code.OK
        assert [what for what, _ in scene.diary.told] == ["synchronize"]

    play(act)


def test_a_list_in_parts_reaches_the_hooks_as_one(play: Play) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.come()
        peer.accept((await peer.registration())[0])
        await peer.ask("Configure", nri_pb2.ConfigureRequest())
        for name, more in (("a", True), ("b", True), ("c", False)):
            part = nri_pb2.SynchronizeRequest(pods=[pod(name)], more=more)
            answer = nri_pb2.SynchronizeResponse.FromString((await peer.ask("Synchronize", part)).payload)
            assert answer.more == more
        assert scene.diary.told == [("synchronize", (seen("a"), seen("b"), seen("c")))]

    play(act)


def test_a_listed_sandbox_without_its_specification_has_the_network_of_its_process(play: Play) -> None:
    """containerd leaves it so if it is killed while it makes the sandbox; what stops has no process to go by."""

    def bare(name: str, pid: int) -> nri_pb2.PodSandbox:
        described = pod(name, pid=pid)
        described.linux.ClearField("namespaces")
        return described

    async def act(scene: Scene) -> None:
        peer = await scene.come()
        peer.accept((await peer.registration())[0])
        await peer.ask("Configure", nri_pb2.ConfigureRequest())
        sandboxes = [bare("a", 7), bare("b", 0), pod("hosts"), pod("own", "/run/netns/own")]
        await peer.ask("Synchronize", nri_pb2.SynchronizeRequest(pods=sandboxes))
        await peer.ask("StopPodSandbox", nri_pb2.PodSandboxRequest(pod=bare("a", 7)))
        listed = seen("a", "/proc/7/ns/net"), seen("b", pid=0), seen("hosts"), seen("own", "/run/netns/own")
        assert scene.diary.told == [("synchronize", listed), ("stop", seen("a"))]

    play(act)


def test_a_list_without_an_end_is_refused(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdra.node.nri.plugin.MOST_SANDBOXES", 3)

    async def act(scene: Scene) -> None:
        peer = await scene.come()
        part = nri_pb2.SynchronizeRequest(pods=[pod("a"), pod("b")], more=True)
        assert (await peer.ask("Synchronize", part)).status.code == Code.OK
        assert (await peer.ask("Synchronize", part)).status.code == Code.RESOURCE_EXHAUSTED

    play(act)


def test_a_sandbox_is_described_as_the_runtime_knows_it(play: Play) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.come()
        await peer.handshake(pod("host"), pod("own", "/run/netns/x"), pod("stopped", "", 0))
        expected = (seen("host"), seen("own", "/run/netns/x"), seen("stopped", "", 0))
        assert scene.diary.told == [("synchronize", expected)]

    play(act)


def test_a_pod_is_refused_by_the_text_of_the_error(play: Play) -> None:
    async def act(scene: Scene) -> None:
        def refuse(_: object) -> asyncio.Future[None]:
            raise TemporaryError("eth1 \udcff is busy " + "é" * 5000, hint="wait")

        peer = await scene.come()
        await peer.handshake()
        scene.diary.act = refuse
        answer = await peer.ask("RunPodSandbox", nri_pb2.PodSandboxRequest(pod=pod("a")))
        assert answer.status.code == Code.ABORTED
        assert answer.status.message.startswith("eth1 ? is busy éé")
        assert len(answer.SerializeToString()) < framing.MOST_SENT
        scene.diary.act = None
        assert (await peer.ask("RunPodSandbox", nri_pb2.PodSandboxRequest(pod=pod("a")))).status.code == Code.OK

    play(act)


def test_a_slow_sandbox_is_answered_in_time_and_holds_up_no_other(play: Play) -> None:
    async def act(scene: Scene) -> None:
        stuck: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        scene.diary.act = lambda about: stuck if about.name == "slow" else done
        peer = await scene.come()
        await peer.handshake()
        slow = nri_pb2.PodSandboxRequest(pod=pod("slow"))
        patient = peer.begin("RunPodSandbox", slow, seconds=PATIENCE)
        assert (await peer.ask("RunPodSandbox", nri_pb2.PodSandboxRequest(pod=pod("quick")))).status.code == Code.OK
        answer = await peer.ask("RunPodSandbox", slow, seconds=1.0)
        assert not patient.done()
        assert answer.status.code == Code.ABORTED
        assert "the run hook of pod ns/slow, sandbox id-slow, has not ended after" in answer.status.message
        stuck.set_result(None)

    play(act)


@pytest.mark.parametrize(
    ("method", "service"),
    [("CreateContainer", "nri.pkg.api.v1alpha1.Plugin"), ("RunPodSandbox", "nri.pkg.api.v2.Plugin"), ("", "")],
)
def test_unknown_methods_and_services_are_answered_with_unimplemented(play: Play, method: str, service: str) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.come()
        await peer.handshake()
        answer = await peer.ask(method, nri_pb2.Empty(), service=service)
        assert answer.status.code == Code.UNIMPLEMENTED

    play(act)


def test_an_event_before_the_list_of_sandboxes_is_refused(play: Play) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.come()
        answer = await peer.ask("RunPodSandbox", nri_pb2.PodSandboxRequest(pod=pod("a")))
        assert answer.status.code == Code.FAILED_PRECONDITION
        assert scene.diary.told == []

    play(act)


def test_an_event_without_a_sandbox_is_refused(play: Play) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.come()
        await peer.handshake()
        answer = await peer.ask("RunPodSandbox", nri_pb2.PodSandboxRequest())
        assert answer.status.code == Code.INVALID_ARGUMENT

    play(act)


def test_a_message_that_cannot_be_read_is_refused_and_the_connection_kept(play: Play) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.come()
        await peer.handshake()
        # A registration has text where a pod is to be.
        answer = await peer.ask("StopPodSandbox", nri_pb2.RegisterPluginRequest(plugin_name="\N{BEL}text"))
        assert answer.status.code == Code.INVALID_ARGUMENT
        assert (await peer.ask("Shutdown", nri_pb2.Empty())).status.code == Code.OK

    play(act)


def test_after_a_loss_it_registers_again_and_hears_of_all_sandboxes(play: Play) -> None:
    async def act(scene: Scene) -> None:
        first = await scene.come()
        await first.handshake(pod("a"))
        await scene.connected()
        await first.close()
        second = await scene.come()
        assert not scene.plugin.connected.is_set()
        await second.handshake(pod("a"), pod("b"))
        await scene.connected()
        assert [len(listed) for _, listed in scene.diary.told if isinstance(listed, tuple)] == [1, 2]
        assert scene.plugin.problem == ""
        assert NODE.registry.get_sample_value("netdra_nri_connected") == 1

    play(act)


def test_a_stopping_daemon_first_answers_the_call_in_progress(tmp_path: Path) -> None:
    async def main() -> None:
        async with listening(tmp_path / "nri.sock") as come:
            scene = Scene(tmp_path / "nri.sock", come)
            working = asyncio.create_task(scene.plugin.run())
            peer = await scene.come()
            await peer.handshake()
            begun = asyncio.Event()
            ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def act(_: object) -> asyncio.Future[None]:
                begun.set()
                return ends

            scene.diary.act = act
            answer = peer.begin("RunPodSandbox", nri_pb2.PodSandboxRequest(pod=pod("a")), seconds=PATIENCE)
            async with asyncio.timeout(PATIENCE):
                await begun.wait()
                working.cancel()
                await asyncio.sleep(0)
                ends.set_result(None)
                assert (await answer).status.code == Code.OK
                await peer.ended.wait()
                await asyncio.gather(working, return_exceptions=True)
            assert working.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "index", "reason"),
    [
        ("a/b", "10", 'name "a/b"'),
        ("", "10", 'name ""'),
        ("a", "1", 'index "1"'),
        ("a", "100", 'index "100"'),
        ("a", "\N{FULLWIDTH DIGIT ONE}0", "index"),
    ],
)
def test_a_name_or_an_index_that_a_runtime_would_refuse_is_refused_at_once(name: str, index: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        NriSettings(name=name, index=index)
