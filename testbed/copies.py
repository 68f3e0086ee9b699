"""Programs that are loaded once, and run in a copy of themselves for each command line (testbed/copies.c).

Used in the SR-IOV machine, where loading `ip` takes ten times as long as its work. A copy is a process like all others:
it has the arguments and files that are given, and is gone with all that it knew when it has ended.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import struct
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path

from testbed.build import cache_root, compile_c

LIBRARY = "NETDRA_COPIES"
"""The variable with the path of the library, where it is built already."""
_SOURCE = Path(__file__).with_suffix(".c")
_REQUESTS = "COPIES_REQUESTS"
_MOST_BYTES = 65536


def library() -> Path:
    """The preloaded library; built if it does not exist.

    Raises:
        BuildError: it does not compile.
    """
    if known := os.environ.get(LIBRARY):
        return Path(known)
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    target = cache_root() / f"copies-{digest}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        built = target.with_suffix(f".{os.getpid()}")
        compile_c(built, [_SOURCE], ("-std=gnu11", "-O2", "-shared", "-fPIC"))
        built.rename(target)
    return target


class Copies:
    """A loaded program. It ends with this process, or when it is closed."""

    def __init__(self, program: str) -> None:
        """Load it.

        Args:
            program: its name on PATH, of a program that is linked dynamically.
        """
        path = shutil.which(program)
        if path is None:
            raise FileNotFoundError(program)
        self._program = program
        self._turn = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            preloaded = {"LD_PRELOAD": str(library()), _REQUESTS: str(theirs.fileno())}
            self._loaded = subprocess.Popen((path,), env=os.environ | preloaded, pass_fds=(theirs.fileno(),))

    def run(self, *arguments: str, text: str = "", timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command line to its end, with a text as standard input.

        Raises:
            TimeoutError: it has not ended in time.
            OSError: the program is not loaded any more, or the command line is too long.
        """
        command = (self._program, *arguments)
        packet = b"".join(part.encode() + b"\0" for part in command)
        if len(packet) > _MOST_BYTES:
            raise OSError(f"a command line of {len(packet)} bytes is too long")
        with ExitStack() as files, self._turn:
            opened = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
            for number in opened:
                files.callback(os.close, number)
            os.write(opened[0], text.encode())
            os.lseek(opened[0], 0, os.SEEK_SET)
            self._requests.settimeout(timeout)
            try:
                socket.send_fds(self._requests, [packet], opened)
                answer = self._requests.recv(4)
            except TimeoutError:
                self._requests.close()  # the next answer would be that of this command line
                raise
            if not answer:
                raise OSError(f"{self._program} is not loaded any more")
            (status,) = struct.unpack("i", answer)
            out, err = (os.pread(number, os.fstat(number).st_size, 0).decode() for number in opened[1:])
        return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), out, err)

    def close(self) -> None:
        """End it."""
        self._requests.close()
        self._loaded.wait()
