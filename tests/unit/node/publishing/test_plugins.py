"""The CNI path is followed: real folders, real programs that answer, lie, hang, come and go."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from netdra.cni.confined import ConfinedPrograms
from netdra.cni.plugins import Binary, PluginPath
from netdra.cni.process import Finished
from netdra.kernel.errors import KernelError
from netdra.node.publishing import plugins
from netdra.node.publishing.plugins import NodePlugins, Presence
from testbed.pace import within
from testbed.waiting import until_async
from tests import refusing
from tests.refusing import Refusal

ANSWER = """#!/bin/sh
echo '{"cniVersion": "1.1.0", "supportedVersions": ["0.4.0", "1.0.0", "1.1.0"]}'
"""
SOON = 20.0
"""Seconds: long for a busy machine, and shorter than `plugins.SCAN_SECONDS`."""


def install(path: Path, text: str = ANSWER) -> Path:
    """As an installer does: whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    part.chmod(0o755)
    return part.rename(path)


ASKED: Counter[str] = Counter()
"""By path, how often a program was run."""


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take seconds to run a program."""
    monkeypatch.setattr(plugins, "KNOWN_SECONDS", SOON)


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program cannot report its calls: it writes no file."""
    run = ConfinedPrograms.run

    def counting(programs: ConfinedPrograms, binary: Binary, *arguments: Any) -> Finished:
        ASKED[binary.path] += 1
        return run(programs, binary, *arguments)

    ASKED.clear()
    monkeypatch.setattr(ConfinedPrograms, "run", counting)


def asked(path: Path) -> int:
    return ASKED[str(path)]


def was_asked(path: Path) -> bool:
    return asked(path) > 0


@asynccontextmanager
async def followed(
    *folders: Path,
    root: str = "/",
    allowed: Callable[[str], bool] = lambda _: True,
    changed: Callable[[NodePlugins], None] = lambda _: None,
) -> AsyncIterator[NodePlugins]:
    where = PluginPath(directories=tuple(map(str, folders)), root=root)
    found = NodePlugins(where, lambda: changed(found), allowed)
    task = asyncio.create_task(found.run())
    try:
        await found.wait_known()
        yield found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def there(found: NodePlugins, *names: str, seconds: float = SOON) -> None:
    def detail() -> object:
        return found.presence

    await until_async(lambda: found.presence.programs == names, f"plugins {names}", seconds=seconds, detail=detail)


def test_programs_that_are_there_at_the_start_count_at_once_and_are_asked_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with followed(tmp_path / "a", tmp_path / "b") as found:
            assert found.presence.programs == ("bridge", "macvlan")
            install(tmp_path / "b" / "vlan")
            await there(found, "bridge", "macvlan", "vlan")
        assert [asked(each) for each in (first, second)] == [1, 1]

    first, second = install(tmp_path / "a" / "macvlan"), install(tmp_path / "b" / "bridge")
    asyncio.run(story())


def test_a_plugin_comes_is_replaced_and_goes(tmp_path: Path) -> None:
    async def story() -> None:
        async with followed(tmp_path) as found:
            program = install(tmp_path / "macvlan")
            await there(found, "macvlan")
            install(tmp_path / "macvlan", ANSWER + "# another version\n")
            await until_async(lambda: asked(program) > 1, "the new one to be asked", seconds=SOON)
            await asyncio.sleep(0.3)
            assert (found.presence.programs, asked(program)) == (("macvlan",), 2)
            install(tmp_path / "macvlan", "#!/bin/sh\nexit 1\n")
            await there(found)
            assert "exit status 1" in found.presence.unusable["macvlan"]
            assert found.presence.lost == found.presence.unusable
            install(tmp_path / "macvlan")
            await there(found, "macvlan")
            assert found.presence.lost == found.presence.unusable == {}
            program.unlink()
            await there(found)
            assert found.presence.lost == {"macvlan": f"executable not found in {tmp_path}"}

    asyncio.run(story())


def test_a_program_that_is_not_allowed_is_never_run_and_is_asked_when_it_is(tmp_path: Path) -> None:
    async def story() -> None:
        async with followed(tmp_path, allowed=lambda name: name in allowed) as found:
            await there(found, "macvlan")
            install(tmp_path / "late")
            await until_async(lambda: "late" in found.presence.unusable, "the late one", seconds=SOON)
            assert "not allowed on this node" in found.presence.unusable["placed"]
            assert not was_asked(placed)
            allowed.add("placed")
            found.look_again()
            await there(found, "macvlan", "placed")
            assert asked(placed) == 1
            allowed.discard("placed")
            found.look_again()
            await there(found, "macvlan")
            assert "not allowed" in found.presence.lost["placed"]
        assert not was_asked(tmp_path / "late")

    allowed = {"macvlan"}
    placed = install(tmp_path / "placed")
    install(tmp_path / "macvlan")
    asyncio.run(story())


def test_a_plugin_that_becomes_allowed_is_never_reported_as_missing(tmp_path: Path) -> None:
    """Each time it is not known yet until it has answered, and `wait_known` waits for that."""
    reasons: list[str] = []

    def note(found: NodePlugins) -> None:
        presence = found.presence
        reasons.extend(part["late"] for part in (presence.unusable, presence.lost) if "late" in part)

    async def story() -> None:
        async with followed(tmp_path, allowed=lambda name: name in allowed, changed=note) as found:
            for _ in range(2):
                await until_async(lambda: "late" in found.presence.unusable, "the plugin to be forbidden", seconds=SOON)
                reasons.clear()
                allowed.add("late")
                found.look_again()
                note(found)
                await found.wait_known()
                assert found.presence.programs == ("late",)
                assert reasons == []
                allowed.clear()
                found.look_again()

    allowed: set[str] = set()
    install(tmp_path / "late")
    asyncio.run(story())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/bin/sh\necho hello\n", "its answer to VERSION is invalid"),
        ('#!/bin/sh\necho \'{"supportedVersions": ["9.9.9"]}\'\n', "it supports CNI 9.9.9"),
        ("#!/bin/sh\nkill -9 $$\n", "it was terminated by signal 9"),
        ("#!/no/such/interpreter\n", "cannot be run"),
        ("\x7fELF, but only at the beginning", "cannot be run"),
        ("", "cannot be run"),
    ],
)
def test_a_program_without_a_valid_plugin_answer_is_left_out_with_the_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    async def story() -> None:
        async with followed(tmp_path) as found:
            assert found.presence.programs == ("bridge",)
            assert why in found.presence.unusable["broken"]

    install(tmp_path / "bridge")
    install(tmp_path / "broken", text)
    asyncio.run(story())


def test_a_hanging_plugin_does_not_delay_the_other_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            with within(1.0, "the first look at the plugins", after=plugins.KNOWN_SECONDS):
                found = await stack.enter_async_context(followed(tmp_path))
            assert found.presence.programs == ("bridge",)
            install(tmp_path / "macvlan")
            await there(found, "bridge", "macvlan")
            assert found.presence.unusable == {}
            await until_async(lambda: found.presence.unusable, "the hanging one to be said")
            assert "it timed out after 5.0 s" in found.presence.unusable["hanging"]

    monkeypatch.setattr(plugins, "KNOWN_SECONDS", 2.0)
    monkeypatch.setattr(plugins, "ANSWER_SECONDS", 5.0)
    install(tmp_path / "bridge")
    install(tmp_path / "hanging", "#!/bin/sh\nsleep 600\n")
    asyncio.run(story())


def test_a_plugin_without_an_answer_is_asked_again_after_the_retry_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with followed(tmp_path / "bin") as found:
            assert found.presence.programs == ()
            await asyncio.to_thread(ready.touch)
            await there(found, "late")

    monkeypatch.setattr(plugins, "RETRY_SECONDS", 0.3)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        ready = Path(folder, "ready")
        install(tmp_path / "bin" / "late", ANSWER.replace("echo", f"[ -e {ready} ] || exit 1; echo"))
        asyncio.run(story())


def _made_later(folder: Path) -> None:
    install(folder / "bin" / "macvlan")


def _swapped_link(folder: Path) -> None:
    install(folder / "v2" / "macvlan")
    (folder / "new").symlink_to("v2")
    (folder / "new").rename(folder / "bin")


def _renamed_folder(folder: Path) -> None:
    install(folder / "other" / "macvlan")
    if (folder / "bin").is_dir():
        (folder / "bin").rename(folder / "old")
    (folder / "other").rename(folder / "bin")


def _written_in_place(folder: Path) -> None:
    path = folder / "bin" / "macvlan"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        path.chmod(0o755)
        for line in ANSWER.splitlines(keepends=True):
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.05)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("arrive", [_made_later, _swapped_link, _renamed_folder, _written_in_place])
@pytest.mark.parametrize("before", ["missing", "folder"])
def test_a_plugin_is_seen_however_it_arrives(
    tmp_path: Path, before: str, arrive: Callable[[Path], None], inside: bool
) -> None:
    async def story() -> None:
        folder = Path("/opt/cni/bin") if inside else tmp_path / "opt" / "cni" / "bin"
        async with followed(folder, root=str(tmp_path) if inside else "/") as found:
            await asyncio.to_thread(arrive, tmp_path / "opt" / "cni")
            seen = found._installed
            await until_async(lambda: "macvlan" in found._installed, "the plugin", seconds=SOON, detail=lambda: seen)

    (tmp_path / "opt" / "cni").mkdir(parents=True)
    if before == "folder":
        if arrive is _swapped_link:
            (tmp_path / "opt" / "cni" / "v1").mkdir()
            (tmp_path / "opt" / "cni" / "bin").symlink_to("v1")
        else:
            (tmp_path / "opt" / "cni" / "bin").mkdir()
    asyncio.run(story())


def test_the_cni_path_is_polled_when_inotify_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused:
        def __init__(self) -> None:
            raise KernelError(24, "cannot watch folders (inotify)")

    async def story() -> None:
        async with followed(tmp_path) as found:
            install(tmp_path / "macvlan")
            await there(found, "macvlan")

    monkeypatch.setattr(plugins, "FolderChanges", Refused)
    monkeypatch.setattr(plugins, "UNWATCHED_SECONDS", 0.2)
    asyncio.run(story())


def test_plugins_remain_present_while_the_cni_path_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with followed(tmp_path) as found:
            used_up = Refusal(errno.EMFILE, first=1, length=10**6, calls_of="cni/plugins.py")
            with refusing.refusing(used_up):
                install(tmp_path / "vlan")
                await until_async(lambda: len(used_up.refused) > 5, "the path to be looked at in vain")
                assert found.presence == Presence(("macvlan",))
            await there(found, "macvlan", "vlan")

    install(tmp_path / "macvlan")
    monkeypatch.setattr(plugins, "UNWATCHED_SECONDS", 0.2)
    asyncio.run(story())


def test_nothing_is_done_while_nothing_happens(tmp_path: Path) -> None:
    async def story() -> None:
        async with followed(tmp_path) as found:
            looks = 0
            read = found._read

            def counted(changes: object) -> object:
                nonlocal looks
                looks += 1
                return read(changes)  # type: ignore[arg-type]

            found._read = counted  # type: ignore[assignment,method-assign]
            await asyncio.sleep(0.6)
            assert looks <= 1  # of what was asked at the start
            looks = 0
            await asyncio.sleep(0.6)
            assert looks == 0

    install(tmp_path / "bridge", ANSWER)
    asyncio.run(story())
