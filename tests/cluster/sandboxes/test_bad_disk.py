"""The state folder is read-only, full or broken: no pod begins, pods that end are taken down, and nothing is lost."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from netdra.chain import holders
from netdra.model.errors import NetdraError
from netdra.model.plan import ClaimReference
from netdra.node.nri.hooks import Sandbox
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import POD
from testbed.waiting import until_async
from testbed.workspace import Workspace
from tests import disks
from tests.cluster.sandboxes.former import rounds
from tests.cluster.sandboxes.scene import Daemon, Machine, Scene, new_machine, step
from tests.disks import Disk, Faults

ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A real ext4 for all that a daemon writes."""
    with disks.ext4(tmp_path) as made:
        yield made


@pytest.fixture
def scene(control_plane: ControlPlane, workspace: Workspace, disk: Disk) -> Iterator[Scene]:
    """A node whose state is on that disk, and CDI specifications on that of the machine, as /run is one of its own."""
    machine = new_machine(disk.path)
    machine.files = msgspec.structs.replace(machine.files, cdi=disk.path.parent / "cdi")
    try:
        yield Scene(control_plane, workspace, workspace.add_node(), machine)
    finally:
        machine.close()


def with_lease(scene: Scene, folder: Path) -> tuple[str, Object]:
    """A claim for eth7, which gets a lease and a setting of its own, and its pod."""
    scene.publish("eth7")
    ipam = {"type": "host-local", "subnet": "192.0.2.0/24", "dataDir": str(folder / "leases")}
    nic, size = step("nic", "host-device", {"ipam": ipam}), step("size", "tuning", {"mtu": 1400}, after=("nic",))
    claim = scene.claim(scene.topology("leased", nic, size))
    return claim, scene.pod(claim)


def leases(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "leases").glob("*/192.*"))


def reference(scene: Scene, claim: str) -> ClaimReference:
    return ClaimReference(namespace=scene.workspace.namespace, name=claim, uid=scene.uid(claim))


def left(machine: Machine) -> list[str]:
    """The files of state that are left, without the marks of returned devices: these are examined in the background."""
    below = (machine.settings.state, machine.store.folder, machine.files.cdi, machine.files.plugin)
    files = (path for folder in below for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    files = (path for path in files if path.parent.name != holders.RETURNED)
    return sorted(str(path) for path in files if path.name not in {".new", ".lock"})


def given_back(scene: Scene, daemon: Daemon, sandbox: Sandbox, folder: Path) -> None:
    """A sandbox's network is gone, independent of the files on disk."""
    assert "eth7" in scene.machine.links()
    (link,) = scene.machine.ip("link", "show", "eth7")
    assert link["mtu"] == 1500
    assert leases(folder) == []
    assert not daemon.pods.network.table.namespaces.has(sandbox.id), daemon.pods.network.table.troubles


def read_only(disk: Disk) -> Callable[[], None]:
    disk.make_read_only()
    return disk.make_writable


def full(disk: Disk) -> Callable[[], None]:
    disk.fill()
    return disk.empty


@pytest.mark.parametrize("fail", [read_only, full])
def test_a_pod_that_ends_while_the_state_cannot_be_written_is_taken_down_and_settled_when_it_can(
    scene: Scene, disk: Disk, tmp_path: Path, fail: Callable[[Disk], Callable[[], None]]
) -> None:
    claim, pod = with_lease(scene, tmp_path)
    sandbox = scene.machine.sandbox(pod)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            mend = fail(disk)
            with suppress(NetdraError):  # the file is still there
                await daemon.stop(sandbox)
            given_back(scene, daemon, sandbox, tmp_path)
            await daemon.pods.claims.unprepare(reference(scene, claim))
            assert not scene.machine.store.uids()
            mend()
            await rounds(daemon)
            assert left(scene.machine) == []
            assert not daemon.pods.network.held

    asyncio.run(story())


def test_a_read_only_state_does_not_hold_the_namespace_of_a_pod_ended_without_stop(
    scene: Scene, disk: Disk, tmp_path: Path
) -> None:
    _, pod = with_lease(scene, tmp_path)
    sandbox = scene.machine.sandbox(pod)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            disk.make_read_only()
            scene.machine.end(sandbox)  # nobody tells of the stop
            await until_async(lambda: "eth7" in scene.machine.links(), "the device to come back")
            namespaces = daemon.pods.network.table.namespaces
            await until_async(lambda: not namespaces.has(sandbox.id), "the namespace to be released")
            given_back(scene, daemon, sandbox, tmp_path)
            (held,) = daemon.pods.network.held
            assert "Read-only file system" in held.trouble
            await rounds(daemon, 8)
            assert [event.reason for event in scene.told] == ["NetworkNotDetached"]
            disk.make_writable()
            await rounds(daemon)
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_the_next_daemon_detaches_networks_left_on_a_read_only_state(scene: Scene, disk: Disk, tmp_path: Path) -> None:
    _, pod = with_lease(scene, tmp_path)
    sandbox = scene.machine.sandbox(pod)

    async def attach() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.pods.hooks.synchronize([sandbox])
            with suppress(NetdraError):
                await daemon.stop(sandbox)
            given_back(scene, daemon, sandbox, tmp_path)
            disk.make_writable()
            await rounds(daemon)
            assert not scene.machine.checkpoints()

    asyncio.run(attach())
    disk.make_read_only()
    asyncio.run(story())


def test_a_state_that_cannot_even_be_read_keeps_no_namespace_and_the_rest_is_undone_when_it_can_be(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pod = with_lease(scene, tmp_path)
    sandbox = scene.machine.sandbox(pod)
    faults = Faults(scene.machine.settings.state, errno.EIO)
    faults.install(monkeypatch)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            faults.begin(0, reads=True)
            scene.machine.end(sandbox)
            namespaces = daemon.pods.network.table.namespaces
            await until_async(lambda: not namespaces.has(sandbox.id), "the namespace to be released")
            assert "eth7" in scene.machine.links()
            faults.end()
            await rounds(daemon)
            assert not scene.machine.checkpoints()
            assert leases(tmp_path) == []

    asyncio.run(story())


@contextmanager
def refused() -> Iterator[list[NetdraError]]:
    """A failure in the context is an error for people."""
    problems: list[NetdraError] = []
    try:
        yield problems
    except NetdraError as problem:
        problems.append(problem)


IN_TURNS = [
    pytest.param(ERRORS, id="each in its turn"),
    *(pytest.param((error,), marks=pytest.mark.repeats, id=errno.errorcode[error]) for error in ERRORS),
]


@pytest.mark.parametrize("errors", IN_TURNS)
def test_after_any_failed_write_a_new_pod_is_rejected_and_starts_when_writes_succeed(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: Sequence[int]
) -> None:
    claim, pod = with_lease(scene, tmp_path)
    named = reference(scene, claim)
    faults = Faults(tmp_path, errors[0])
    faults.install(monkeypatch)

    async def begin(daemon: Daemon, sandbox: Sandbox) -> None:
        await daemon.pods.claims.prepare(named)
        await daemon.run(sandbox)

    async def end(daemon: Daemon, sandbox: Sandbox) -> None:
        await daemon.stop(sandbox)
        await daemon.pods.claims.unprepare(named)
        scene.machine.end(sandbox)
        assert left(scene.machine) == []
        given_back(scene, daemon, sandbox, tmp_path)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.pods.claims.unprepare(named)
            sandbox = scene.machine.sandbox(pod)
            faults.begin()
            await begin(daemon, sandbox)
            writes = faults.count
            await end(daemon, sandbox)
            for number in range(writes):
                sandbox = scene.machine.sandbox(pod)
                faults.errno = errors[number % len(errors)]
                faults.begin(number)
                with refused() as problems:
                    await begin(daemon, sandbox)
                if problems:
                    with refused():
                        await begin(daemon, sandbox)  # the runtime, or the daemon by itself, tries again
                    assert not scene.machine.specified(), f"write {number}"
                    given_back(scene, daemon, sandbox, tmp_path)
                faults.end()
                if problems:
                    await begin(daemon, sandbox)
                assert scene.machine.specified() == {named.uid}
                assert scene.machine.addresses(sandbox, "net1")
                await end(daemon, sandbox)

    asyncio.run(story())


@pytest.mark.parametrize("errors", IN_TURNS)
def test_after_any_failed_write_an_ending_pod_is_detached_and_cleaned_up_once_writes_succeed(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: Sequence[int]
) -> None:
    claim, pod = with_lease(scene, tmp_path)
    named = reference(scene, claim)
    faults = Faults(tmp_path, errors[0])
    faults.install(monkeypatch)

    async def story() -> None:
        async with scene.daemon() as daemon:
            writes, number = 1, -1
            while number < writes:
                sandbox = scene.machine.sandbox(pod)
                await daemon.pods.claims.prepare(named)
                await daemon.run(sandbox)
                faults.errno = errors[number % len(errors)]
                faults.begin(number if number >= 0 else None)
                with refused():
                    await daemon.stop(sandbox)
                given_back(scene, daemon, sandbox, tmp_path)
                with refused():
                    await daemon.pods.claims.unprepare(named)
                if number < 0:
                    writes = faults.count
                scene.machine.end(sandbox)
                faults.end()
                await rounds(daemon)
                await daemon.pods.claims.unprepare(named)
                assert left(scene.machine) == [], f"write {number}"
                assert not daemon.pods.network.held
                assert not daemon.pods.network.table.troubles
                number += 1

    asyncio.run(story())
    assert scene.workspace.api.get(POD, pod["metadata"]["name"], scene.workspace.namespace)
