"""Programs of netdra on a node, forked from one process that has imported netdra: no start imports it again.

Used in the SR-IOV machine, where the import takes longer than the rest of a start. A forked program is a process like
all others: its namespaces, environment, capabilities, arguments and log are those of its command line, and SIGKILL ends
it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

COMMAND = (sys.executable, "-m", "netdra")
"""How the commands begin that can be forked."""
_PACKAGES = ("chain", "cel", "controller", "discovery", "kernel", "kube", "node", "nri", "ops", "steps")
_MODULES = ("netdra.cli.main", "netdra.cli.node", "netdra.cli.controller")
_AT_IMPORT = "netdra.node.faults"  # reads the environment when it is imported
_NAMESPACES = ("cgroup", "net", "mnt", "uts", "ipc", "pid")
_FAILED = 127
# <linux/prctl.h>, <linux/capability.h>, and the number of capset(2) on x86-64
_PDEATHSIG, _CAPBSET_DROP, _CAPABILITY_VERSION, _CAPSET = 1, 24, 0x20080522, 126


class Forks:
    """The process that has imported netdra; it ends with the one that made it, and all that it has forked with it."""

    def __init__(self, log: Path) -> None:
        """Start it; the import continues when this returns.

        Args:
            log: the file for its own output.
        """
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                ("setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "testbed.forks"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )

    def start(
        self,
        node: int,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        capabilities: Sequence[str],
        *,
        joins: bool = False,
    ) -> Forked:
        """Start a command of netdra on a node.

        Args:
            node: the node's first process.
            arguments: those after `netdra`.
            log: the file that its output is appended to.
            environment: its variables.
            capabilities: the only ones that it has, all of them if it is empty.
            joins: whether it joins the cgroups whose namespace it enters.

        Raises:
            EOFError: the process that forks has ended; its log states why.
        """
        job = {
            "node": node,
            "arguments": [*arguments],
            "log": str(log),
            "environment": dict(environment),
            "capabilities": [*capabilities],
            "joins": joins,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise EOFError("the process that forks netdra has ended")
        return Forked(int(answer))

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Forked:
    """A forked process, as `testbed.process` expects one; its exit code is not known.

    Attributes:
        pid: as this machine counts.
        returncode: 0 once it has ended.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._handle = -1
        with suppress(ProcessLookupError):
            self._handle = os.pidfd_open(pid)

    def __del__(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)

    def poll(self) -> int | None:
        """0 if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not.
        """
        if self._handle >= 0 and self.returncode is None:
            ended, _, _ = select.select([self._handle], [], [], timeout)
            if not ended:
                raise subprocess.TimeoutExpired("netdra", timeout or 0.0)
        self.returncode = 0
        return 0

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self._handle >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """Kill it, if it has not ended."""
        self.send_signal(signal.SIGKILL)


def main() -> None:
    """Import netdra, and fork for each line on stdin, until it is closed or this process is killed."""
    for name in _MODULES:
        importlib.import_module(name)
    for package in _PACKAGES:
        found = importlib.import_module(f"netdra.{package}")
        for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            importlib.import_module(module.name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no parent waits for the processes that enter nodes
    for line in sys.stdin.buffer:
        reader, writer = os.pipe()
        if os.fork() == 0:
            _enter(json.loads(line), writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as answer:
            sys.stdout.buffer.write(answer.readline())
        sys.stdout.buffer.flush()


def _enter(job: dict[str, Any], writer: int) -> NoReturn:
    """Enter the node's namespaces as nsenter does, fork the program there, write its id, and wait for its end."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        handles = [os.open(f"/proc/{job['node']}/ns/{name}", os.O_RDONLY) for name in _NAMESPACES]
        for handle in handles:
            if libc.setns(handle, 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        for group in Path("/sys/fs/cgroup").glob("*/cgroup.procs") if job["joins"] else ():
            group.write_text("0")
        for target, source in enumerate((null, log, log)):
            os.dup2(source, target)
        pid = os.fork()
        if pid == 0:
            _become(job, libc)
        os.write(writer, f"{pid}\n".encode())
        os.close(writer)
        os.waitpid(pid, 0)
    finally:
        os._exit(_FAILED)


def _become(job: dict[str, Any], libc: ctypes.CDLL) -> NoReturn:
    """Be the program: what execve would have given it, and its `main`."""
    code: object = _FAILED
    try:
        libc.prctl(_PDEATHSIG, signal.SIGKILL)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir("/")
        os.environ.clear()
        os.environ.update(job["environment"])
        if job["capabilities"]:
            _keep_alone(libc, job["capabilities"])
        importlib.reload(sys.modules[_AT_IMPORT])
        faulthandler.enable()
        program = importlib.import_module("netdra.__main__")
        sys.argv = [str(program.__file__), *job["arguments"]]
        program.main()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001  (what would end an interpreter)
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else _FAILED)


def _keep_alone(libc: ctypes.CDLL, capabilities: Sequence[str]) -> None:
    """Drop all other capabilities, from the bounding set too, as setpriv does before an execve.

    Raises:
        OSError: the kernel refuses.
    """
    kept = {_NUMBERS.index(name.lower()) for name in capabilities}
    for number in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
        if number not in kept and libc.prctl(_CAPBSET_DROP, number, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    mask = sum(1 << number for number in kept)
    halves = [part for shift in (0, 32) for part in [mask >> shift & 0xFFFFFFFF] * 3]
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    if libc.syscall(_CAPSET, header, (ctypes.c_uint32 * len(halves))(*halves)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


# <linux/capability.h>, in its order
_NUMBERS = (
    *("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap"),
    *("linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner"),
    *("sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice"),
    *("sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap"),
    *("mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf"),
    "checkpoint_restore",
)


if __name__ == "__main__":
    main()
