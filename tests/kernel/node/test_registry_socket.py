"""A program that puts its own socket in the registry's place gets no tokens, and not for long."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from netdra.model.errors import NetdraError, PermanentError
from netdra.node.registry import place
from netdra.node.registry.place import Place
from netdra.registry_client import RegistryClient
from testbed.waiting import PATIENCE
from tests.unit.node.kubelet.caller import run
from tests.unit.node.registry.scene import Scene, serving

FALSE = """
import os, socket, sys
path = sys.argv[1]
with socket.socket(socket.AF_UNIX) as opened:
    opened.bind(path + ".false")
    os.chmod(path + ".false", 0o666)
    opened.listen(8)
    os.rename(path + ".false", path)
    print("ready", flush=True)
    while True:
        accepted, _ = opened.accept()
        print(accepted.recv(1 << 16), flush=True)
"""
USER = ("setpriv", "--reuid=1000", "--clear-groups")
CONTAINER = ("unshare", "--mount")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may write to."""
    with TemporaryDirectory(prefix="registry-") as path:
        Path(path).chmod(0o777)
        yield Path(path)


@contextmanager
def false_server(path: Path, command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A program that serves in the socket's place."""
    program = subprocess.Popen((*command, sys.executable, "-c", FALSE, str(path)), stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    try:
        yield program
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


def test_a_client_gives_its_token_to_root_alone(folder: Path) -> None:
    path = folder / "registry.sock"
    with false_server(path, USER) as program:
        with (
            RegistryClient("bctl", str(path), "secret") as client,
            pytest.raises(PermanentError, match=r"is served by user 1000, not by root; .*readOnly"),
        ):
            client.register("eth0", {"a": 1})
        program.kill()
        assert program.stdout is not None
        assert "secret" not in program.stdout.read()


@pytest.mark.parametrize("command", [USER, CONTAINER])
def test_a_server_that_is_not_the_driver_is_replaced(folder: Path, command: Sequence[str]) -> None:
    async def story() -> None:
        async with serving(folder / "state", place=folder) as scene:
            before = scene.path.stat().st_ctime_ns  # a number of an inode may be given out again
            with false_server(scene.path, command):
                async with asyncio.timeout(PATIENCE):
                    while not await asyncio.to_thread(registers, scene):  # noqa: ASYNC110 (another program's socket)
                        await asyncio.sleep(0.05)
            assert before != scene.path.stat().st_ctime_ns

    run(story)


def registers(scene: Scene) -> bool:
    """Whether the registry itself answers at the path."""
    try:
        with RegistryClient("bctl", str(scene.path), timeout=0.5) as client:
            client.register("eth0", {"a": 1})
    except NetdraError:
        return False
    return True


def test_a_symlink_in_place_of_the_socket_does_not_get_its_permissions(folder: Path) -> None:
    """A link that comes between two looks leads to a file of the node."""
    secret = folder / "shadow"
    secret.write_text("")
    secret.chmod(0o600)
    fresh = folder / ".registry.sock.1"
    for target in (secret, folder):
        fresh.symlink_to(target)
        with pytest.raises(OSError, match="was replaced"):
            place._permit(fresh, Place(path=folder / "registry.sock", mode=0o666))
        fresh.unlink()
    assert secret.stat().st_mode & 0o777 == 0o600
