"""Network namespaces that are held: they live until they are released, and no longer, even if others remove them."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from netdra.kernel import link, netns
from netdra.kernel.errors import KernelError, KernelMissingError
from netdra.kernel.netns import Namespace, inode_at
from netdra.node.sandboxes import namespaces as module
from netdra.node.sandboxes.namespaces import Namespaces
from testbed.waiting import until, until_async
from tests import refusing
from tests.kernel.conftest import Machine
from tests.refusing import Refusal


class Box:
    """A sandbox's namespace with a wire to the machine, whose end there is gone as soon as the namespace is."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.name = f"netdra-test-{uuid.uuid4().hex[:8]}"
        self.wire = f"w{uuid.uuid4().hex[:8]}"
        with Namespace.create(self.name) as made:
            self.path = made.path
            machine.veth(self.wire, "peer", peer_in=made)

    def remove(self) -> None:
        """As a runtime does."""
        with suppress(KernelMissingError):
            netns.delete(self.name)

    def lives(self) -> bool:
        return link.find(self.machine.sock, self.wire) is not None


@pytest.fixture
def boxes(machine: Machine) -> Iterator[list[Box]]:
    made = [Box(machine) for _ in range(2)]
    yield made
    for box in made:
        box.remove()


@pytest.fixture
def namespaces() -> Iterator[Namespaces]:
    found = Namespaces()
    yield found
    found.close()


def test_a_namespace_lives_while_it_is_held_and_ends_when_it_is_let_go(
    boxes: list[Box], namespaces: Namespaces
) -> None:
    box = boxes[0]
    namespaces.hold("s", box.path)
    assert namespaces.lost() == ()
    box.remove()
    assert namespaces.lost() == ("s",)
    assert (len(namespaces), namespaces.has("s"), namespaces.sandboxes()) == (1, True, ("s",))
    seen = subprocess.run(
        ("nsenter", f"--net={namespaces.path('s')}", "ip", "-o", "link"), capture_output=True, text=True, check=True
    )
    assert "peer@" in seen.stdout
    assert box.lives()
    namespaces.release("s")
    until(lambda: not box.lives(), "the kernel to end the namespace")
    namespaces.release("s")
    assert (len(namespaces), namespaces.path("s"), namespaces.lost()) == (0, "", ())


def test_held_again_it_is_held_once(boxes: list[Box], namespaces: Namespaces) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: namespaces.hold("s", boxes[0].path), range(50)))
    boxes[0].remove()
    namespaces.release("s")
    until(lambda: not boxes[0].lives(), "the kernel to end the namespace")


def test_another_one_takes_its_place(boxes: list[Box], namespaces: Namespaces) -> None:
    for box in boxes:
        namespaces.hold("s", box.path)
        box.remove()
    until(lambda: not boxes[0].lives(), "the kernel to end the first namespace")
    assert boxes[1].lives()
    namespaces.hold("s", boxes[0].path)  # there is nothing any more: what is held stays
    assert namespaces.has("s")
    namespaces.hold("other", boxes[0].path)
    assert not namespaces.has("other")


def test_a_path_that_another_namespace_has_by_now_is_lost_too(
    boxes: list[Box], namespaces: Namespaces, machine: Machine
) -> None:
    box = boxes[0]
    namespaces.hold("s", box.path)
    box.remove()
    with Namespace.create(box.name):
        assert namespaces.lost() == ("s",)


@pytest.mark.parametrize("number", refusing.ERRNOS, ids=errno.errorcode.get)
def test_an_unreadable_namespace_is_not_lost_and_a_failed_hold_raises_an_error(
    boxes: list[Box], namespaces: Namespaces, number: int
) -> None:
    namespaces.hold("s", boxes[0].path)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with refusing.refusing(Refusal(number, first=1)):
        assert namespaces.lost() == ()
    for first in (1, 2):  # it cannot be opened; it is open and cannot be looked at
        with (
            refusing.refusing(Refusal(number, first)),
            pytest.raises(KernelError, match=re.escape(os.strerror(number))),
        ):
            namespaces.hold("other", boxes[1].path)
    assert namespaces.sandboxes() == ("s",)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    boxes[0].remove()
    assert namespaces.lost() == ("s",)


def test_a_program_that_is_started_does_not_hold_it(boxes: list[Box], namespaces: Namespaces) -> None:
    namespaces.hold("s", boxes[0].path)
    with subprocess.Popen(("sleep", "600"), close_fds=False) as child:
        try:
            boxes[0].remove()
            namespaces.release("s")
            until(lambda: not boxes[0].lives(), "the kernel to end the namespace")
        finally:
            child.kill()


def test_a_lost_namespace_is_reported_once_unless_it_is_released(
    boxes: list[Box], namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)

    async def main() -> None:
        told: list[tuple[str, ...]] = []
        following = asyncio.create_task(namespaces.follow(lambda: told.append(namespaces.lost())))
        for number, box in enumerate(boxes):
            namespaces.hold(str(number), box.path)
        await asyncio.sleep(0.2)
        assert told == []
        boxes[0].remove()
        namespaces.release("0")  # as a stop that is told in time
        boxes[1].remove()
        await until_async(lambda: bool(told), "the lost one to be told")
        await asyncio.sleep(0.3)
        assert told == [("1",)]
        namespaces.release("1")
        again = Box(boxes[1].machine)
        namespaces.hold("1", again.path)
        again.remove()
        await until_async(lambda: len(told) > 1, "one of the same sandbox to be told anew")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(main())


def refuses() -> None:
    raise KernelError(errno.EMFILE, "cannot poll /proc/self/mountinfo")


@pytest.mark.parametrize("is_deaf", [False, True])
def test_a_removed_namespace_is_noticed_by_its_unmount_or_else_by_polling(
    boxes: list[Box], namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch, is_deaf: bool
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 3600.0)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    if is_deaf:
        monkeypatch.setattr(module, "MountChanges", refuses)

    async def main() -> None:
        told: list[tuple[str, ...]] = []
        following = asyncio.create_task(namespaces.follow(lambda: told.append(namespaces.lost())))
        namespaces.hold("s", boxes[0].path)
        await asyncio.sleep(0.2)
        boxes[0].remove()
        await until_async(lambda: told == [("s",)], "the lost one to be told")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(main())


def test_constant_mount_changes_trigger_a_check_of_held_namespaces_once_a_second(
    boxes: list[Box], namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    stat = os.stat

    def counted(path: str, **how: Any) -> os.stat_result:
        looks.append(path)
        return stat(path, **how)

    async def main() -> None:
        namespaces.hold("s", boxes[0].path)
        monkeypatch.setattr(os, "stat", counted)
        following = asyncio.create_task(namespaces.follow(lambda: None))
        ends = time.monotonic() + 2.5
        while time.monotonic() < ends:
            Box(boxes[0].machine).remove()
            await asyncio.sleep(0.02)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(main())
    # At the start, soon after the first change, and then in the second and third second.
    assert 3 <= looks.count(boxes[0].path) <= 4


def test_a_namespace_held_by_a_process_that_ends_is_seen_though_nothing_is_unmounted(
    namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 3600.0)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)

    async def main() -> None:
        told: list[tuple[str, ...]] = []
        following = asyncio.create_task(namespaces.follow(lambda: told.append(namespaces.lost())))
        await asyncio.sleep(0.2)
        child = await asyncio.create_subprocess_exec("unshare", "--net", "sleep", "600")
        try:
            path = f"/proc/{child.pid}/ns/net"
            await until_async(lambda: inode_at(path) != inode_at(), "the process to be inside")
            namespaces.hold("s", path)
            await asyncio.sleep(0.2)
            assert told == []
        finally:
            child.kill()
            await child.wait()
        await until_async(lambda: told == [("s",)], "the lost one to be told")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(main())


@contextmanager
def inhabited(box: Box) -> Iterator[int]:
    """A process in a sandbox's namespace; its number."""
    with subprocess.Popen(("nsenter", f"--net={box.path}", "sleep", "600")) as child:
        try:
            until(lambda: inode_at(f"/proc/{child.pid}/ns/net") == inode_at(box.path), "the process to be inside")
            yield child.pid
        finally:
            child.kill()


def test_a_namespace_that_loses_its_path_is_reported_and_followed_by_a_process_in_it(
    boxes: list[Box], namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)

    async def main() -> None:
        told: list[tuple[str, ...]] = []
        following = asyncio.create_task(namespaces.follow(lambda: told.append(namespaces.lost())))
        with inhabited(boxes[0]) as pid:
            namespaces.hold("s", boxes[0].path)
            boxes[0].remove()
            await until_async(lambda: told == [()], "the removed path to be told")
            assert namespaces.others_path("s") == f"/proc/{pid}/ns/net"
            await asyncio.sleep(0.3)
            assert told == [()]
        await until_async(lambda: told == [(), ("s",)], "the lost namespace to be told")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(main())


def test_a_path_whose_loss_another_caller_sees_first_is_reported(
    boxes: list[Box], namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round over all sandboxes has read the path just before its removal, and then asks for the lost ones."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)

    async def main() -> None:
        told: list[tuple[str, ...]] = []
        with inhabited(boxes[0]):
            namespaces.hold("s", boxes[0].path)
            boxes[0].remove()
            assert namespaces.lost() == ()
            following = asyncio.create_task(namespaces.follow(lambda: told.append(namespaces.lost())))
            await until_async(lambda: bool(told), "the removed path to be told")
            await asyncio.sleep(0.3)
            assert told == [()]
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    asyncio.run(main())


def test_a_process_that_must_not_be_inspected_may_be_in_a_lost_namespace(
    boxes: list[Box], namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    readlink = os.readlink
    hidden: set[str] = set()

    def refusing_readlink(path: str, **how: Any) -> str:
        if path in hidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return readlink(path, **how)

    monkeypatch.setattr(os, "readlink", refusing_readlink)
    namespaces.hold("s", boxes[0].path)
    with inhabited(boxes[1]) as pid:
        boxes[0].remove()
        hidden.add(f"/proc/{pid}/ns/net")
        with pytest.raises(KernelError, match="cannot read /proc/"):
            namespaces.lost()
        assert not namespaces.count_failure("s")
        with inhabited(boxes[1]):  # a process beside it shows where the hidden one is
            assert namespaces.lost() == ("s",)
