"""The kubelet's calls over real gRPC on unix sockets: each claim's own outcome, old and new daemons."""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
import socket
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from netdra.kernel.errors import KernelError
from netdra.model.errors import InvalidInputError, NetdraError, TemporaryError
from netdra.node.kubelet import presence, services
from netdra.node.kubelet.plugin import MAX_PATH, KubeletPlugin, sockets
from netdra.node.kubelet.services import ClaimServices
from netdra.node.priority import MAX_SIDE_BY_SIDE, PriorityGate, Turns
from netdra.node.wire import kubelet_pb2 as wire
from testbed.waiting import until_async
from tests.unit.node.kubelet.caller import (
    REGISTRATION,
    SHARED,
    V1,
    V1BETA1,
    Handler,
    call,
    calling,
    claims_of,
    nothing,
    nothing_yet,
    prepare,
    run,
    serving,
)


def test_every_claim_of_a_call_has_its_own_outcome(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        handler = Handler()
        paths = sockets(root)
        async with serving(paths, handler), calling(paths.dra) as channel:
            answer = await prepare(channel, "fine", "wrong", "defect")
            assert {uid: each.error for uid, each in answer.claims.items()} == {
                "uid-0": "",
                "uid-1": "the claim is wrong; mend it",
                "uid-2": services.INTERNAL,
            }
            (device,) = answer.claims["uid-0"].devices
            assert (device.pool_name, device.device_name) == ("n1/nic-eth1", "eth1")
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
                "uid-1": "the claim is wrong; mend it",
            }

    run(test)
    traced = [record for record in caplog.records if record.exc_info and record.name.startswith("netdra")]
    assert len(traced) == 1
    assert "ZeroDivisionError: a secret detail" in caplog.text


@pytest.mark.parametrize(("number", "all_meet"), [(MAX_SIDE_BY_SIDE, True), (MAX_SIDE_BY_SIDE + 1, False)])
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


def test_a_prepare_that_takes_too_long_is_answered_with_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "CLAIM_SECONDS", 0.1)

    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler(meet=asyncio.Barrier(2))), calling(paths.dra) as channel:
            answer = await prepare(channel, "fine")
            assert answer.claims["uid-0"].error == "prepare was not done in 0 s; it is tried again"

    run(test)


def test_an_old_kubelet_gets_an_answer_without_unknown_fields(root: Path) -> None:
    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler()), calling(paths.dra) as channel:
            answer = await prepare(channel, "fine", service=V1BETA1)
            (device,) = answer.claims["uid-0"].devices
            assert device.device_name == "eth1"
            assert not device.HasField("share_id")

    run(test)


def test_the_driver_answers_the_registration_of_the_kubelet_and_keeps_the_reported_status(root: Path) -> None:
    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler()) as registration, calling(paths.registration) as channel:
            info = await call(channel, f"{REGISTRATION}/GetInfo", wire.InfoRequest(), wire.PluginInfo)
            assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "dra.networking", str(paths.dra))
            assert list(info.supported_versions) == [
                "v1.DRAPlugin",
                "v1beta1.DRAPlugin",
                *services.HEALTH_VERSIONS,
            ]
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


def unwatchable() -> None:
    raise KernelError(errno.EMFILE, "cannot watch folders (inotify)")


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "no watch left"])
@pytest.mark.parametrize("gone", [("dra",), ("registration",), ("dra", "registration"), ("plugin",)], ids="+".join)
def test_deleted_sockets_are_created_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, gone: tuple[str, ...], is_watched: bool
) -> None:
    monkeypatch.setattr(presence, "WATCHED_SECONDS", 3600.0)
    monkeypatch.setattr(presence, "UNWATCHED_SECONDS", 0.05)
    if not is_watched:
        monkeypatch.setattr(presence, "FolderChanges", unwatchable)
    paths = sockets(root)

    async def serves() -> bool:
        try:
            async with calling(paths.dra) as dra, calling(paths.registration) as registration:
                await call(registration, f"{REGISTRATION}/GetInfo", wire.InfoRequest(), wire.PluginInfo)
                return not (await prepare(dra, "fine")).claims["uid-0"].error
        except grpc.aio.AioRpcError:
            return False

    async def test() -> None:
        services_ = ClaimServices(Handler(), nothing, nothing, Turns(PriorityGate()), nothing)
        running = asyncio.create_task(KubeletPlugin(paths, services_, nothing_yet).run())
        await until_async(serves, "the sockets")
        for _ in range(2):
            for name in gone:
                path = getattr(paths, name)
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            await until_async(serves, "the sockets to be made again")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert not paths.registration.exists()
        assert not paths.dra.exists()

    run(test)


def test_a_daemon_that_ends_leaves_the_socket_of_another_one_that_has_its_path(root: Path) -> None:
    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler()):
            for path in (paths.dra, paths.registration):
                path.unlink()
                path.touch()
        assert paths.dra.exists()
        assert paths.registration.exists()

    run(test)


def test_a_missing_plugin_registry_folder_is_reported(root: Path) -> None:
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
def test_an_invalid_instance_name_is_rejected_as_part_of_a_socket_name(instance: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be part of a socket's name"):
        sockets(Path("/k"), instance)


def test_a_claim_error_is_logged_with_the_name_of_the_claim(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        paths = sockets(root)
        async with serving(paths, Handler()), calling(paths.dra) as channel:
            await prepare(channel, "wrong")

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "prepare ns/wrong (uid-0): the claim is wrong" in caplog.text
