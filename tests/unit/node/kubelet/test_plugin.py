"""The kubelet's calls over real gRPC on unix sockets: each claim's own outcome, health streams, old and new daemons."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from netdra.model.errors import InvalidInputError, NetdraError, TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.kubelet import health, services
from netdra.node.kubelet.handler import PreparedDevice
from netdra.node.kubelet.health import DeviceHealth
from netdra.node.kubelet.plugin import serving
from netdra.node.kubelet.sockets import MAX_PATH, sockets
from netdra.node.wire import kubelet_pb2 as wire

V1 = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
V1BETA1 = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"
REGISTRATION = "/pluginregistration.Registration"
WITHIN = 30.0
SHARED = PreparedDevice(
    requests=("main/sub",),
    pool="n1-nic-eth1",
    device="eth1",
    cdi_ids=("dra.networking/claim=u-main",),
    share_id="5a5e2d2c-0000-4000-8000-000000000001",
)


@dataclass
class Handler:
    """Answers as each claim's name says, and remembers what it was asked."""

    asked: list[str] = field(default_factory=list)
    meet: asyncio.Barrier | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        self.asked.append(f"prepare {claim.namespace}/{claim.name} {claim.uid}")
        async with self.changed:
            self.changed.notify_all()
        try:
            if self.meet is not None:
                await self.meet.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self._fail(claim)
        return (SHARED,)

    async def unprepare(self, claim: ClaimReference) -> None:
        self.asked.append(f"unprepare {claim.uid}")
        self._fail(claim)

    async def until_asked(self, times: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.asked) >= times)

    def _fail(self, claim: ClaimReference) -> None:
        if claim.name == "wrong":
            raise InvalidInputError("the claim is wrong", hint="mend it")
        if claim.name == "defect":
            raise ZeroDivisionError("a secret detail")


@pytest.fixture
def root() -> Iterator[Path]:
    """A kubelet's root folder, by a path short enough for sockets."""
    with TemporaryDirectory(prefix="kubelet-") as folder:
        (Path(folder) / "plugins_registry").mkdir()
        yield Path(folder)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WITHIN):
            await test()

    asyncio.run(bounded())


@asynccontextmanager
async def calling(path: Path) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        yield channel


async def call(channel: grpc.aio.Channel, method: str, request: Message, answer: type[Any]) -> Any:
    invoke: Any = channel.unary_unary(
        method, request_serializer=lambda message: message.SerializeToString(), response_deserializer=answer.FromString
    )
    return await invoke(request)


def watching(channel: grpc.aio.Channel, version: str = health.V1) -> Any:
    """A stream of the devices' health."""
    watch: Any = channel.unary_stream(
        f"/{version}/NodeWatchResources",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=wire.WatchResponse.FromString,
    )
    return watch(wire.WatchRequest())


def claims_of(*names: str) -> list[wire.Claim]:
    return [wire.Claim(namespace="ns", name=name, uid=f"uid-{place}") for place, name in enumerate(names)]


async def prepare(channel: grpc.aio.Channel, *names: str, service: str = V1) -> wire.PrepareResponse:
    request = wire.PrepareRequest(claims=claims_of(*names))
    found: wire.PrepareResponse = await call(channel, f"{service}/NodePrepareResources", request, wire.PrepareResponse)
    return found


def test_every_claim_of_a_call_has_its_own_outcome(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        handler = Handler()
        paths = sockets(root)
        async with serving(paths, handler), calling(paths.dra) as channel:
            answer = await prepare(channel, "fine", "wrong", "defect")
            assert {uid: each.error for uid, each in answer.claims.items()} == {
                "uid-0": "",
                "uid-1": "the claim is wrong\nmend it",
                "uid-2": services.INTERNAL,
            }
            (device,) = answer.claims["uid-0"].devices
            assert (device.pool_name, device.device_name) == ("n1-nic-eth1", "eth1")
            assert list(device.request_names) == ["main"]
            assert list(device.cdi_device_ids) == ["dra.networking/claim=u-main"]
            assert device.share_id == SHARED.share_id
            assert sorted(handler.asked) == [
                "prepare ns/defect uid-2",
                "prepare ns/fine uid-0",
                "prepare ns/wrong uid-1",
            ]
            request = wire.UnprepareRequest(claims=claims_of("fine", "wrong"))
            undone = await call(channel, f"{V1}/NodeUnprepareResources", request, wire.UnprepareResponse)
            assert {uid: each.error for uid, each in undone.claims.items()} == {
                "uid-0": "",
                "uid-1": "the claim is wrong\nmend it",
            }

    run(test)
    traced = [record for record in caplog.records if record.exc_info]
    assert len(traced) == 1
    assert "ZeroDivisionError: a secret detail" in caplog.text


@pytest.mark.parametrize(
    ("number", "all_meet"), [(services.MAX_SIDE_BY_SIDE, True), (services.MAX_SIDE_BY_SIDE + 1, False)]
)
def test_claims_of_a_call_are_prepared_side_by_side_but_not_without_bound(
    root: Path, number: int, all_meet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not all_meet:
        monkeypatch.setattr(services, "CLAIM_SECONDS", 0.5)

    async def test() -> None:
        # Nobody gets through the barrier unless all of them are at it.
        handler = Handler(meet=asyncio.Barrier(number))
        paths = sockets(root)
        async with serving(paths, handler), calling(paths.dra) as channel:
            answer = await prepare(channel, *["fine"] * number)
            assert {bool(each.error) for each in answer.claims.values()} == {not all_meet}

    run(test)


def test_a_claim_that_takes_too_long_is_told_before_the_kubelet_gives_the_call_up(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "CLAIM_SECONDS", 0.1)

    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler(meet=asyncio.Barrier(2))), calling(paths.dra) as channel:
            answer = await prepare(channel, "fine")
            assert answer.claims["uid-0"].error == "prepare was not done in 0 s; it is tried again"

    run(test)


def test_an_old_kubelet_is_answered_without_what_it_does_not_know(root: Path) -> None:
    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler()), calling(paths.dra) as channel:
            answer = await prepare(channel, "fine", service=V1BETA1)
            (device,) = answer.claims["uid-0"].devices
            assert device.device_name == "eth1"
            assert not device.HasField("share_id")

    run(test)


def test_the_kubelet_finds_the_driver_and_what_it_says_of_it_is_kept(root: Path) -> None:
    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler()) as registration, calling(paths.registration) as channel:
            info = await call(channel, f"{REGISTRATION}/GetInfo", wire.InfoRequest(), wire.PluginInfo)
            assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "dra.networking", str(paths.dra))
            assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
            assert (registration.registered, registration.problem) == (False, "")

            async def notify(registered: bool, error: str = "") -> None:
                status = wire.RegistrationStatus(plugin_registered=registered, error=error)
                method = f"{REGISTRATION}/NotifyRegistrationStatus"
                await call(channel, method, status, wire.RegistrationStatusResponse)

            await notify(registered=False, error="no such version")
            assert (registration.registered, registration.problem) == (False, "no such version")
            await notify(registered=True)
            assert (registration.registered, registration.problem, registration.times) == (True, "", 1)
        assert not paths.registration.exists()
        assert not paths.dra.exists()

    run(test)


@pytest.mark.parametrize("version", health.VERSIONS)
def test_health_is_told_at_once_again_in_time_and_on_each_change(
    root: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = health.RESEND_SECONDS

    async def test() -> None:
        turn = asyncio.Event()

        async def source() -> AsyncIterator[Sequence[DeviceHealth]]:
            yield (DeviceHealth(pool="p", device="d", state="healthy"),)
            await turn.wait()
            yield (DeviceHealth(pool="p", device="d", state="unhealthy", message="x" * 2000),)
            await asyncio.Event().wait()

        paths = sockets(root)
        async with serving(paths, Handler(), source), calling(paths.dra) as channel:
            stream = watching(channel, version)
            found = []
            async for message in stream:
                (device,) = message.devices
                found.append(device.health)
                assert (device.device.pool_name, device.device.device_name) == ("p", "d")
                assert device.health_check_timeout_seconds >= 3 * usual
                if len(found) == 2:
                    turn.set()
                if device.health == wire.UNHEALTHY:
                    assert len(device.message) == 1024
                    break
            assert found[:2] == [wire.HEALTHY, wire.HEALTHY]
            # The stream is still open here: leaving must end it and not wait for it.

    monkeypatch.setattr(health, "RESEND_SECONDS", 0.05)
    run(test)


def test_an_old_and_a_new_daemon_serve_side_by_side(root: Path) -> None:
    async def test() -> None:
        old, new = sockets(root, "uid-old"), sockets(root, "uid-new")
        async with serving(new, Handler()) as _:
            async with serving(old, Handler()), calling(old.dra) as channel:
                assert (await prepare(channel, "fine")).claims["uid-0"].error == ""
            assert not old.registration.exists()
            async with calling(new.dra) as channel:
                assert (await prepare(channel, "fine")).claims["uid-0"].error == ""
            assert new.registration.exists()

    run(test)


def test_sockets_of_dead_daemons_are_removed_and_those_of_living_ones_are_not(root: Path) -> None:
    plugin = root / "plugins" / "dra.networking"
    plugin.mkdir(parents=True)
    dead = [plugin / "dra-dead.sock", root / "plugins_registry" / "dra.networking-dead-reg.sock"]
    foreign = root / "plugins_registry" / "gpu.example.com-reg.sock"
    for path in (*dead, foreign):
        with closing(socket.socket(socket.AF_UNIX)) as left:
            left.bind(str(path))

    async def test() -> None:
        living = sockets(root, "living")
        async with serving(living, Handler()), serving(sockets(root, "another"), Handler()):
            assert [path.exists() for path in dead] == [False, False]
            assert foreign.exists()
            assert living.dra.exists()

    run(test)


def test_a_second_daemon_with_the_same_sockets_is_refused(root: Path) -> None:
    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler()):
            with pytest.raises(TemporaryError, match="another daemon's, which is running"):
                async with serving(paths, Handler()):
                    pass
            async with calling(paths.dra) as channel:
                assert (await prepare(channel, "fine")).claims["uid-0"].error == ""

    run(test)


def test_a_call_that_has_begun_is_let_end_when_the_daemon_stops(root: Path) -> None:
    async def test() -> None:
        handler = Handler(meet=asyncio.Barrier(2))
        paths = sockets(root)
        async with calling(paths.dra) as channel:
            async with serving(paths, handler):
                begun = asyncio.create_task(prepare(channel, "fine"))
                await handler.until_asked(1)
                ending = asyncio.create_task(later(handler))
            await ending
            assert (await begun).claims["uid-0"].error == ""

    run(test)


async def later(handler: Handler) -> None:
    """Let the call that waits end, well after the daemon has begun to stop."""
    await asyncio.sleep(0.5)
    assert handler.meet is not None
    await handler.meet.wait()


def test_a_stream_that_is_open_ends_when_the_daemon_stops(root: Path) -> None:
    async def source() -> AsyncIterator[Sequence[DeviceHealth]]:
        yield (DeviceHealth(pool="p", device="d", state="healthy"),)
        await asyncio.Event().wait()

    async def test() -> None:
        paths = sockets(root)
        async with calling(paths.dra) as channel:
            # A stream that nobody ends would hold the daemon for the whole grace, which is longer than the test.
            async with serving(paths, Handler(), source, grace=2 * WITHIN):
                stream = watching(channel)
                assert (await stream.read()).devices[0].health == wire.HEALTHY
            assert await stream.read() == grpc.aio.EOF

    run(test)


@contextmanager
def failing(code: grpc.StatusCode, text: str) -> Iterator[None]:
    """A call ends in a status, and with a text to the letter."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        yield
    assert (failure.value.code(), failure.value.details()) == (code, text)


def test_what_is_no_call_of_the_kubelet_is_refused_and_the_next_call_is_answered(root: Path) -> None:
    async def test() -> None:
        handler = Handler()
        paths = sockets(root)
        async with serving(paths, handler), calling(paths.dra) as channel:

            async def send(method: str, request: bytes) -> Any:
                invoke: Any = channel.unary_unary(method)
                return await invoke(request)

            with failing(grpc.StatusCode.UNIMPLEMENTED, "Method not found"):
                await send("/v1.Other/Call", b"")
            with failing(grpc.StatusCode.UNKNOWN, "Internal Server Error"):
                await send(f"{V1}/NodePrepareResources", b"no message")
            assert handler.asked == []
            # Far more than HTTP/2 lets pass before it has been read.
            assert (await prepare(channel, "long-" * 200_000)).claims["uid-0"].error == ""

    run(test)


def test_a_call_that_its_caller_gives_up_is_cancelled(root: Path) -> None:
    async def test() -> None:
        handler = Handler(meet=asyncio.Barrier(2))
        paths = sockets(root)
        async with serving(paths, handler), calling(paths.dra) as channel:
            given_up = asyncio.create_task(prepare(channel, "fine"))
            await handler.until_asked(1)
            given_up.cancel()
            await handler.cancelled.wait()

    run(test)


def test_a_defect_in_a_stream_ends_it_and_only_the_log_knows_of_what(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def source() -> AsyncIterator[Sequence[DeviceHealth]]:
        yield (DeviceHealth(pool="p", device="d", state="healthy"),)
        raise ZeroDivisionError("a secret detail")

    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler(), source), calling(paths.dra) as channel:
            with failing(grpc.StatusCode.UNKNOWN, "Internal Server Error"):
                async for _ in watching(channel):
                    pass

    run(test)
    assert "a secret detail" in caplog.text


def test_the_health_of_thousands_of_devices_is_one_message(root: Path) -> None:
    devices = [DeviceHealth(pool="p", device=f"device-{number}", state="healthy") for number in range(20_000)]

    async def source() -> AsyncIterator[Sequence[DeviceHealth]]:
        yield devices
        await asyncio.Event().wait()

    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler(), source), calling(paths.dra) as channel:
            # Far more than HTTP/2 lets pass before the other end has read it.
            told = await watching(channel).read()
            assert [each.device.device_name for each in told.devices] == [each.device for each in devices]

    run(test)


def test_a_driver_that_ends_takes_no_more_calls_and_waits_for_those_that_it_has(root: Path) -> None:
    async def source() -> AsyncIterator[Sequence[DeviceHealth]]:
        yield ()
        await asyncio.Event().wait()

    async def test() -> None:
        handler = Handler(meet=asyncio.Barrier(2))
        paths = sockets(root)
        async with calling(paths.dra) as channel:

            async def ending(stream: Any) -> None:
                while await stream.read() != grpc.aio.EOF:
                    pass
                assert handler.meet is not None
                with failing(grpc.StatusCode.UNAVAILABLE, "the driver is ending"):
                    await prepare(channel, "another")
                await handler.meet.wait()

            async with serving(paths, handler, source):
                begun = asyncio.create_task(prepare(channel, "fine"))
                await handler.until_asked(1)
                stream = watching(channel)
                await stream.read()
                late = asyncio.create_task(ending(stream))
            await late
            assert (await begun).claims["uid-0"].error == ""
            assert handler.asked == ["prepare ns/fine uid-0"]

    run(test)


def test_a_call_that_does_not_end_in_time_is_broken_off_with_the_daemon(root: Path) -> None:
    async def test() -> None:
        handler = Handler(meet=asyncio.Barrier(2))
        paths = sockets(root)
        async with calling(paths.dra) as channel:
            async with serving(paths, handler, grace=0.2):
                begun = asyncio.create_task(prepare(channel, "fine"))
                await handler.until_asked(1)
            assert handler.meet is not None
            assert handler.meet.n_waiting == 0
            with pytest.raises(grpc.aio.AioRpcError) as broken:
                await begun
            assert broken.value.code() == grpc.StatusCode.UNAVAILABLE

    run(test)


def test_a_registry_that_the_kubelet_has_not_made_is_told(root: Path) -> None:
    (root / "plugins_registry").rmdir()

    async def test() -> None:
        with pytest.raises(NetdraError, match="plugins_registry is not there"):
            async with serving(sockets(root), Handler()):
                pass

    run(test)


def test_paths_that_are_too_long_for_a_socket_are_shortened_without_clashes() -> None:
    root = Path("/var/lib/" + "k" * 30)
    made = [sockets(root, "a" * 60), sockets(root, "a" * 59 + "b")]
    paths = [str(path) for each in made for path in (each.dra, each.registration)]
    assert len(set(paths)) == 4
    assert all(len(path) <= MAX_PATH for path in paths)
    assert all(each.registration.name.startswith("dra.networking-") for each in made)
    assert all(each.registration.name.endswith("-reg.sock") for each in made)
    with pytest.raises(InvalidInputError, match="too long"):
        sockets(Path("/" + "k" * 80), "a" * 60)


@pytest.mark.parametrize("instance", ["../x", "a/b", "A", "a" * 64])
def test_an_instance_is_no_path(instance: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be part of a socket's name"):
        sockets(Path("/k"), instance)


def test_what_is_told_of_a_claim_is_logged_by_its_name(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler()), calling(paths.dra) as channel:
            await prepare(channel, "wrong")

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "prepare ns/wrong (uid-0): the claim is wrong" in caplog.text
