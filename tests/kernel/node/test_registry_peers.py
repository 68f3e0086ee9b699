"""Root of the node is recognized: user 0 of a container, of another root folder, or of an ended process is not."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from netdra.node.registry.peers import credentials, is_node_root

CONNECT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as opened:
    opened.connect(sys.argv[1])
    if len(sys.argv) > 2:
        import os
        os.chroot(sys.argv[2])
    opened.send(b"x")
    opened.recv(1)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    with TemporaryDirectory() as path:
        Path(path).chmod(0o755)
        yield Path(path)


def asked(folder: Path, command: Sequence[str], *arguments: str, ended: bool = False) -> tuple[int, bool]:
    """The user that the kernel names for a program that connects, and whether it is the node's root."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "s"))
        (folder / "s").chmod(0o666)
        listening.listen(1)
        program = subprocess.Popen((*command, sys.executable, "-c", CONNECT, str(folder / "s"), *arguments))
        with listening.accept()[0] as opened:
            assert opened.recv(1) == b"x"
            if ended:
                opened.send(b"x")
                program.wait(30)
            answer = credentials(opened)[1], is_node_root(opened)
            with suppress(BrokenPipeError):
                opened.send(b"x")
        program.wait(30)
    return answer


@pytest.mark.parametrize(
    ("command", "is_root"),
    [
        ((), True),
        (("unshare", "--mount"), False),
        (("unshare", "--user", "--map-root-user"), False),
        (("setpriv", "--reuid=1000", "--clear-groups"), False),
    ],
)
def test_user_0_in_the_nodes_namespaces_is_root_of_the_node(
    folder: Path, command: Sequence[str], is_root: bool
) -> None:
    assert asked(folder, command) == (1000 if "setpriv" in command else 0, is_root)


def test_a_peer_below_another_root_folder_or_after_its_end_is_not_root_of_the_node(folder: Path) -> None:
    assert asked(folder, (), str(folder)) == (0, False)
    (folder / "s").unlink()
    assert asked(folder, (), ended=True) == (0, False)
