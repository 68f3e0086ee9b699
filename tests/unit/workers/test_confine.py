"""A worker can compute, and nothing else: what a task makes it do besides, the kernel refuses."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from netdra.workers import confine

TRIES = {
    "open a file": "open('/etc/passwd')",
    "read its pod's token": "os.open('/proc/self/environ', os.O_RDONLY)",
    "make a socket": "socket.socket()",
    "start a program": "subprocess.run(['true'])",
    "fork": "os.fork()",
    "signal its parent": "os.kill(os.getppid(), signal.SIGTERM)",
    "remove a file": "os.unlink('/tmp/nothing')",
    "list a folder": "os.listdir('/')",
    "be somebody else": "os.setuid(0)",
    "another namespace": "ctypes.CDLL(None).unshare(0x40000000) and (_ for _ in ()).throw(PermissionError())",
}
CONFINED = """
import ctypes, os, signal, socket, subprocess, sys
import netdra.workers.confine as confine
assert confine.confine() == "", confine.confine()
try:
    {tried}
except OSError:
    os._exit(7)
"""


@pytest.mark.parametrize("tried", TRIES.values(), ids=TRIES)
def test_operations_beyond_computing_are_denied_to_a_worker(tried: str) -> None:
    done = subprocess.run([sys.executable, "-c", CONFINED.format(tried=tried)], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (7, b"")


def test_it_computes_and_answers() -> None:
    asked = "sys.stdout.write(str(sum(range(10**6)) + len(bytearray(1 << 26)))); sys.stdout.flush()"
    done = subprocess.run([sys.executable, "-c", CONFINED.format(tried=asked)], check=True, capture_output=True)
    assert int(done.stdout) == sum(range(10**6)) + (1 << 26)


def test_every_machine_that_is_known_has_the_same_calls() -> None:
    (_, first), (_, second) = confine._MACHINES.values()
    assert set(first) ^ set(second) == {"poll", "ppoll"}
    assert platform.machine() in confine._MACHINES
