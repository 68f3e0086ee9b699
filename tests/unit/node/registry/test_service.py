"""The registry on its socket, called by grpcio: trusted callers, refused calls, and the limits of strangers."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import pytest

from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.registration import RegistrationOutcome
from netdra.node.registry import connections, service
from netdra.node.registry.owners import ROOT
from netdra.node.registry.service import LIMITS, SERVICE, SERVICES
from netdra.node.registry.shares import MAX_OF_PROVIDER, RegistryLimits
from netdra.node.registry.table import FILE, RegistrationTable
from netdra.node.wire import registry_pb2 as wire
from netdra.registry_client import RegistryClient
from testbed.pace import measured, within
from testbed.waiting import PATIENCE, until_async
from tests.unit.node.kubelet.caller import run
from tests.unit.node.registry.scene import Scene, serving

Story = Callable[[Scene], Coroutine[Any, Any, None]]
UID = f"uid:{os.getuid()}" if os.getuid() else ROOT


def tell(folder: Path, story: Story, **options: Any) -> None:
    async def told() -> None:
        async with serving(folder, **options) as scene:
            await story(scene)

    run(told)


def amount(value: str, **policy: Any) -> dict[str, Any]:
    given = wire.CapacityRequestPolicy(**policy) if policy else None
    return {"capacity": {"bandwidth": wire.DeviceCapacity(value=value, request_policy=given)}}


def text(value: str) -> dict[str, Any]:
    return {"attributes": {"a": wire.DeviceAttribute(string=value)}}


class TestCalls:
    def test_a_registration_is_accepted_listed_and_deregistered(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            span = wire.CapacityRequestPolicyRange(min="1", step="1")
            answer = await scene.register(**amount("4096", default="1", valid_range=span), ttl_seconds=60)
            assert (answer.success, answer.message, answer.ttl_seconds) == (True, "", 60)
            scene.node.outcomes = (
                RegistrationOutcome(provider="bctl", device="eth7-shared", meant="eth7"),
                RegistrationOutcome(provider="x", device="eth7", meant="eth7", custom_device="c", problem="no room"),
            )
            first, second = await scene.listed()
            assert (first.provider, first.device, first.owner, first.adds) == ("bctl", "eth7", UID, False)
            assert first.capacity["bandwidth"].request_policy.valid_range == span
            assert [each.device for each in first.outcomes] == ["eth7-shared"]
            assert (second.custom_device, second.outcomes[0].problem) == ("c", "no room")
            assert (await scene.deregister()).success
            assert scene.table.registrations == ()
            assert "nothing was registered" in (await scene.deregister()).message

        tell(folder, story)

    def test_a_device_that_was_registered_stays_one_when_its_attributes_change(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            request = wire.RegisterDeviceRequest(device="eth7", provider="bctl")
            assert (await scene.call("RegisterDevice", request, wire.RegisterDeviceResponse)).success
            assert (await scene.register()).success
            (held,) = scene.table.registrations
            assert held.adds
            assert "rdma" in held.attributes

        tell(folder, story)

    @pytest.mark.parametrize(
        ("said", "message"),
        [
            ({"provider": ""}, "is not a domain"),
            ({"provider": "kubernetes.io"}, "is reserved"),
            ({"device": ""}, "not a valid device or interface name"),
            ({"attributes": {f"a{at}": wire.DeviceAttribute(int=1) for at in range(33)}}, "33 attributes"),
            ({"attributes": {"a": wire.DeviceAttribute()}}, "0 values"),
            ({"attributes": {"a": wire.DeviceAttribute(int=1, bool=True)}}, "2 values"),
            (text("x" * 65), "longer than 64 bytes"),
            (amount("-1"), "not a quantity from 0"),
            (amount("1" + "0" * 40), "not a quantity from 0"),
            (amount("9", default="10"), "exceeds the capacity of the device"),
            ({"ttl_seconds": 0, **text("x")}, "ttl_seconds: 0 is not from 1"),
        ],
    )
    def test_a_rule_that_is_broken_is_in_the_answer(self, folder: Path, said: dict[str, Any], message: str) -> None:
        async def story(scene: Scene) -> None:
            answer = await scene.register(**{"attributes": {"a": wire.DeviceAttribute(int=1)}, **said})
            assert not answer.success
            assert message in answer.message
            assert len(scene.table) == 0

        tell(folder, story)

    def test_a_watch_stream_lists_the_published_devices(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            watch: Any = scene.channel.unary_stream(
                f"{SERVICE}/WatchDevices",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=wire.WatchDevicesResponse.FromString,
            )
            first = await anext(aiter(watch(wire.WatchDevicesRequest())))
            assert [(each.pool, each.name, each.healthy) for each in first.devices] == [("n/veth-eth7", "eth7", True)]

        tell(folder, story)

    def test_the_python_client_registers_lists_and_deregisters(self, folder: Path) -> None:
        def client(path: Path) -> list[str]:
            with RegistryClient("bctl", str(path)) as registry:
                registry.register("eth7", {"rdma": True, "n": 3, "s": "x"}, {"bandwidth": 4096}, ttl=60)
                registry.register("wire1", adds=True)
                with pytest.raises(InvalidInputError, match="longer than 64"):
                    registry.register("eth7", {"s": "x" * 65})
                listed = registry.registrations()
                registry.deregister()
                assert registry.registrations() == []
            return [each.device for each in listed]

        async def story(scene: Scene) -> None:
            assert await asyncio.to_thread(client, scene.path) == ["eth7", "wire1"]

        tell(folder, story)
        with (
            pytest.raises(TemporaryError, match=r"registry\.sock"),
            RegistryClient("bctl", str(folder / "registry.sock")) as one,
        ):
            one.registrations()


class TestOwners:
    def test_only_its_owner_registers_or_deregisters_under_a_provider_name(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            assert (await scene.register(token="a")).success
            other = await scene.register(token="b")
            assert (other.success, '"bctl" belongs to account:a' in other.message) == (False, True)
            assert not (await scene.deregister(token="b")).success
            assert len(scene.table) == 1
            away = await scene.register(token="away")
            assert (away.success, away.message) == (False, "the API server is away")

        tell(folder, story)

    def test_the_sockets_mode_and_group_are_as_they_are_asked_for(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            found = scene.path.stat()
            assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o620, os.getgid())

        tell(folder, story, mode=0o620, group=str(os.getgid()))


class TestRestarts:
    def test_granted_registrations_are_stored_on_disk_with_their_owner(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            for at in range(50):
                assert (await scene.register(device=f"eth{at}", token="a")).message == ""

        tell(folder, story)
        before = RegistrationTable(folder / FILE)
        assert len(before.registrations) == 50
        assert before.owners["bctl"].name == "account:a"

    def test_a_lease_ends_without_its_provider_and_also_while_the_driver_is_away(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            with within(4.0, "the end of a lease", after=1.0) as pace:
                await scene.register(device="eth8", ttl_seconds=600, **text("x"))
                await scene.register(ttl_seconds=1, **text("x"))
                await until_async(lambda: len(scene.table.registrations) == 1, "the lease to end")
            assert pace.seconds > 0.9
            await scene.register(ttl_seconds=1, **text("x"))

        tell(folder, story)
        time.sleep(1.1)
        assert [each.device for each in RegistrationTable(folder / FILE).registrations] == ["eth8"]

    def test_a_deleted_socket_is_created_again(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            scene.path.unlink()
            await until_async(scene.path.exists, "the socket to be made again")
            assert (await scene.register(**text("x"))).success
            assert [listed.device for listed in await scene.listed()] == ["eth7"]

        tell(folder, story)

    @pytest.mark.parametrize("step", [3600.0, -3600.0])
    def test_a_step_of_the_wall_clock_neither_ends_a_lease_nor_prolongs_it(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, step: float
    ) -> None:
        wall = time.time

        async def story(scene: Scene) -> None:
            await scene.register(ttl_seconds=120, **text("x"))
            monkeypatch.setattr(time, "time", lambda: wall() + step)
            scene.table.sweep()
            (listed,) = await scene.listed()
            assert 60 < listed.ttl_seconds <= 120

        tell(folder, story)
        again = RegistrationTable(folder / FILE)
        assert [60 < again.left(grant) <= 120 for grant in again.grants] == [True]

    def test_a_name_that_root_sets_free_while_all_is_written_stays_free(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, go_on = threading.Event(), threading.Event()

        async def story(scene: Scene) -> None:
            await scene.register(token="a")
            await scene.deregister(token="a")
            journal = scene.table._journal
            write = journal.write

            def slowly(*arguments: Any) -> None:
                write(*arguments)
                begun.set()
                go_on.wait(PATIENCE)

            monkeypatch.setattr(journal, "write", slowly)
            scene.table._rewrite = True
            scene.table._write.set()
            await until_async(begun.is_set, "the journal to be written")
            freeing = asyncio.create_task(scene.deregister())  # by root, who needs no token
            await until_async(lambda: "bctl" not in scene.table.owners, "the name to be free")
            go_on.set()
            assert (await freeing).success

        tell(folder, story)
        assert "bctl" not in RegistrationTable(folder / FILE).owners

    def test_a_full_disk_loses_no_registration_and_is_reported(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        full = True

        def write(fd: int, content: bytes) -> int:
            if full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return os.pwrite(fd, content, os.fstat(fd).st_size)

        async def story(scene: Scene) -> None:
            nonlocal full
            monkeypatch.setattr(os, "write", write)
            answer = await scene.register()
            assert answer.success
            assert "is lost if the driver restarts" in answer.message
            assert "No space left" in answer.message
            assert len(scene.table.registrations) == 1
            full = False
            assert (await scene.register(device="eth8")).message == ""
            monkeypatch.undo()

        tell(folder, story)
        assert {each.device for each in RegistrationTable(folder / FILE).registrations} == {"eth7", "eth8"}


class TestStrangers:
    def test_a_file_in_the_way_is_left_alone_and_waited_for(self, folder: Path) -> None:
        path = folder / "registry.sock"
        path.write_text("somebody's")

        async def story(scene: Scene) -> None:
            await until_async(lambda: "is not a socket" in scene.registry.problem, "the problem to be told")
            assert path.read_text() == "somebody's"
            path.unlink()
            await asyncio.wait_for(scene.registry.serving.wait(), 20)

        tell(folder, story, wait=False)
        assert not path.exists()

    def test_a_socket_is_replaced_only_when_no_process_serves_it(self, folder: Path) -> None:
        path = folder / "registry.sock"
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen(1)

            async def story(scene: Scene) -> None:
                await until_async(lambda: "served by another process" in scene.registry.problem, "the problem")
                other.close()
                await asyncio.wait_for(scene.registry.serving.wait(), 20)
                assert (await scene.register()).success

            tell(folder, story, wait=False)

    @pytest.mark.parametrize(
        "said", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 5000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 3000]
    )
    def test_garbage_ends_its_own_connection_alone(
        self, folder: Path, said: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service, "LIMITS", LIMITS._replace(first=0.3))

        async def story(scene: Scene) -> None:
            reader, writer = await asyncio.open_unix_connection(str(scene.path))
            writer.write(said)
            await asyncio.wait_for(reader.read(-1), 20)
            writer.close()
            assert (await scene.register()).success

        tell(folder, story)

    def test_silent_connections_are_closed_and_do_not_block_other_clients(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service, "LIMITS", LIMITS._replace(first=0.3, of_peer=8))

        async def story(scene: Scene) -> None:
            assert (await scene.register()).success
            silent = [await asyncio.open_unix_connection(str(scene.path)) for _ in range(40)]
            assert (await scene.register()).success
            for reader, writer in silent:
                await asyncio.wait_for(reader.read(-1), 20)
                writer.close()
            again, writer = await asyncio.open_unix_connection(str(scene.path))
            assert await asyncio.wait_for(again.read(1), 20), "its place is free again"
            writer.close()

        tell(folder, story)

    def test_a_request_that_is_too_long_is_refused_by_grpcs_own_code(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await scene.register(**text("x" * 100_000))
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await scene.register()).success

        tell(folder, story)

    def test_a_million_devices_are_refused_when_it_is_full(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            answers = [await scene.register(device=f"eth{at}") for at in range(8)]
            assert [each.success for each in answers] == [True] * 5 + [False] * 3
            assert "has 5 registrations" in answers[-1].message

        tell(folder, story, limits=RegistryLimits(of_provider=5))

    def test_a_flood_is_answered_whole_and_a_hook_goes_first(self, folder: Path) -> None:
        """1,000 registrations in about a second from several clients; what a pod waits for is not behind them."""
        waits: list[float] = []

        async def hooks(scene: Scene) -> None:
            while True:
                begun = time.monotonic()
                with scene.node.gate.in_hand():
                    for _ in range(4):
                        await asyncio.sleep(0)
                waits.append(time.monotonic() - begun)
                await asyncio.sleep(0.02)

        async def story(scene: Scene) -> None:
            with measured() as pace:
                beside = asyncio.create_task(hooks(scene))
                answers = await asyncio.gather(
                    *(scene.register(device=f"eth{at % 500}", **text(str(at))) for at in range(1000))
                )
                beside.cancel()
            assert all(each.success for each in answers)
            assert len(scene.table.registrations) == 500
            assert median(waits) < 0.1 * pace.slowness

        tell(folder, story)
        assert len(RegistrationTable(folder / FILE).registrations) == 500
        assert MAX_OF_PROVIDER > 500


def test_a_caller_is_identified_by_kernel_credentials_not_by_its_request(folder: Path) -> None:
    async def story(scene: Scene) -> None:
        callers: list[connections.Caller] = []

        class Seen:
            async def owner(self, caller: connections.Caller) -> str:
                callers.append(caller)
                return "x"

        scene.registry._callers = Seen()  # type: ignore[assignment]
        await scene.register(token="t")
        (caller,) = callers
        assert (caller.pid, caller.uid, caller.gid, caller.token) == (os.getpid(), os.getuid(), os.getgid(), "t")

    tell(folder, story)


def test_every_method_of_the_protos_is_served(folder: Path) -> None:
    async def story(scene: Scene) -> None:
        described = {f"/{each.full_name}/{method.name}" for each in SERVICES for method in each.methods}
        served = {path for path in scene.registry.methods if not path.startswith("/grpc.")}
        assert served == described

    tell(folder, story)


class TestFiles:
    def test_an_allowed_device_file_is_accepted_and_a_missing_one_is_awaited(self, folder: Path) -> None:
        async def story(scene: Scene) -> None:
            answer = await scene.add("clock", "/dev/zero")
            assert (answer.success, answer.message) == (True, "")
            answer = await scene.add("later", "/dev/netdra-later")
            assert (answer.success, "/dev/netdra-later does not exist; netdra offers it once" in answer.message) == (
                True,
                True,
            )
            # Attributes that are said anew leave the file as it is.
            assert (await scene.register("clock")).success
            listed = {each.device: each for each in await scene.listed()}
            assert (listed["clock"].device_file, listed["clock"].device_file_problem) == ("/dev/zero", "")
            assert "does not exist" in listed["later"].device_file_problem
            assert [each.device_file for each in scene.table.registrations] == ["/dev/zero", "/dev/netdra-later"]
            assert (await scene.deregister()).success

        tell(folder, story, files=["/dev/zero", "/dev/netdra-*"])

    @pytest.mark.parametrize(
        ("path", "rule"),
        [
            ("", "is not a path"),
            ("/etc/passwd", "not an absolute path below /dev"),
            ("/dev/../etc/passwd", 'or ".."'),
            ("/dev/null", "is not allowed on this node, which allows /dev/zero, /dev/fd/*, /dev/sh*"),
            ("/dev/fd/0", "is not allowed on this node"),
            ("/dev/shm", "is a folder; only character devices are supported"),
            ("/dev/" + "x" * 70, "longer than the 64 characters"),
        ],
    )
    def test_an_invalid_device_file_is_rejected_with_the_rule_and_not_registered(
        self, folder: Path, path: str, rule: str
    ) -> None:
        async def story(scene: Scene) -> None:
            answer = await scene.add("bad", path)
            assert (answer.success, rule in answer.message) == (False, True), answer.message
            assert await scene.listed() == []

        tell(folder, story, files=["/dev/zero", "/dev/fd/*", "/dev/sh*"])

    def test_a_device_file_no_longer_allowed_is_kept_and_reported(self, folder: Path) -> None:
        async def allowed(scene: Scene) -> None:
            assert (await scene.add("clock", "/dev/zero")).success

        async def no_longer(scene: Scene) -> None:
            (listed,) = await scene.listed()
            assert "/dev/zero is not allowed on this node" in listed.device_file_problem

        tell(folder, allowed, files=["/dev/zero"])
        tell(folder, no_longer)
