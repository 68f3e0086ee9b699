"""A node on this machine: namespaces of its own, in which a container runtime, a kubelet and drivers are run.

Used by `testbed.containerd` and `testbed.kubelet`, and by tests that make the node's interfaces. A node has namespaces
for its network, mounts, processes, host name and cgroups: its programs have their default paths, its interfaces are the
test's to make, several nodes run side by side, and with its first process all that runs on it ends, after any failure.
A node that is alone has the machine's own network and cgroups, with the hardware in it: the SR-IOV machine is one.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.forks import COMMAND, Forks
from testbed.process import READY_TIMEOUT, Child, Process, ProcessError
from testbed.waiting import waiting

ADDRESS = "192.0.2.2"
UPLINK = "uplink"

_INIT = Path(__file__).with_name("node.sh")
_UNSHARE = ("unshare", "--mount", "--pid", "--uts", "--ipc", "--propagation=slave", "--fork", "--kill-child")
_UNSHARE_BESIDE = ("--net", "--cgroup")
# The cgroups that a process is in when it makes a cgroup namespace are that namespace's roots.
_JOIN = 'for group in $NODE_CGROUPS; do echo $$ >"$group/cgroup.procs"; done; exec "$@"'
# Entering a cgroup namespace joins none of its cgroups.
_JOIN_INSIDE = 'for group in /sys/fs/cgroup/*/cgroup.procs; do echo 0 >"$group"; done; exec "$@"'
_CGROUP_TIMEOUT = 60.0
_LISTEN = "0A"  # TCP_LISTEN of <net/tcp_states.h>, as /proc/net/tcp has it


class CommandError(Exception):
    """A command on a node ended with another code than 0; the text has what it printed."""


class Node:
    """A node that exists while its `with` block runs.

    Attributes:
        name: its host name, and its name as a Kubernetes node.
        address: where it is reached, on its network.
        alone: whether it has the machine's own network and cgroups.
        folder: logs, and the node's /run (`folder/run`), /var/lib (`lib`) and /var/log (`log`): a socket
            that a program of the node makes in /run can be reached there from outside.
        processes: what `start` has started, by name.
        forks: forks netdra's programs, where to start them takes too long.
    """

    folder: Path
    forks: Forks | None = None

    def __init__(
        self,
        name: str = "node",
        *,
        folder: Path | None = None,
        address: str = ADDRESS,
        alone: bool = False,
        patience: float = READY_TIMEOUT,
    ) -> None:
        """Prepare, start nothing.

        Args:
            name: a valid host name.
            folder: where to leave the logs; without one, they are in a temporary folder that goes with the node. It
                must not be below /run, /var/lib or /var/log, and short: the name of a socket has 107 bytes at most.
            address: the machine's, for a node that is alone.
            alone: no other node or test is on this machine, so it is given its network and its cgroups as they are.
            patience: seconds in which a program must be ready.
        """
        self.name = name
        self.address = address
        self.alone = alone
        self._patience = patience
        self.processes: dict[str, Process] = {}
        self._given_folder = folder
        self._undo = ExitStack()
        self._pid = 0

    def __enter__(self) -> Self:
        """Make the namespaces.

        Raises:
            ProcessError: the first process did not become ready.
        """
        with ExitStack() as undo:
            self.folder = self._given_folder or Path(
                undo.enter_context(tempfile.TemporaryDirectory(prefix="netdra-node-"))
            )
            self.folder.mkdir(parents=True, exist_ok=True)
            # Other runs of the tests on this machine may have a node in a folder of the same name.
            groups = [] if self.alone else make_cgroups(f"{self.folder.name}-{os.getpid()}")
            undo.callback(remove_cgroups, groups)
            init = self._init(groups)
            undo.callback(init.kill)
            init.start()
            init.wait_ready(self._patience)
            assert init.pid is not None
            self._pid = init.pid
            undo.callback(self._kill_all)
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill everything on the node, and remove what it leaves on this machine."""
        self._undo.close()

    @property
    def pid(self) -> int:
        """The node's first process, as this machine counts; its namespaces are the node's."""
        return self._pid

    def path(self, inside: str) -> Path:
        """How a path of the node is opened from outside, with the node's mounts (`/var/run/netns/cni-...`)."""
        # /var/run is a link to /run, and an absolute link leads from the caller's root, not from the one it is in.
        return Path(f"/proc/{self._pid}/root{inside.replace('/var/run/', '/run/', 1)}")

    def inside(self, *command: str) -> tuple[str, ...]:
        """The command that runs a command on the node, as a child of `nsenter`."""
        joined = () if self.alone else ("sh", "-c", _JOIN_INSIDE, "sh")
        return ("nsenter", f"--target={self._pid}", "--all", "--wd=/", "--", *joined, *command)

    def run(self, *command: str, text: str = "") -> str:
        """Run a command on the node, and return what it printed; `text` is its standard input.

        Raises:
            CommandError: it ended with another code than 0.
        """
        with waiting(Path(command[0]).name):
            done = subprocess.run(self.inside(*command), input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CommandError(f"'{' '.join(command)}' on {self.name} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout

    def start(
        self,
        name: str,
        command: Sequence[str],
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
        *,
        capabilities: Sequence[str] = (),
    ) -> Process:
        """Start a program on the node and wait until it is ready; it ends with the node if not before.

        A name can be used again when its program has ended. With `capabilities`, it has no others, as in a container.

        Raises:
            ProcessError: the program did not become ready, or the last one of that name still runs.
        """
        before = self.processes.get(name)
        if before is not None:
            if before.pid is not None:
                raise ProcessError(f"{name} still runs on {self.name}, as process {before.pid}")
            before.kill()  # what has entered the node for it may outlive it by a moment
        log = self.folder / f"{name}.log"
        if self.forks is not None and tuple(command[: len(COMMAND)]) == COMMAND:
            process: Process = ForkedProcess(name, command, log, ready, environment, self, capabilities)
        else:
            inside = self.inside(*_with_alone(capabilities), *command)
            process = Process(name, inside, log, ready, environment, wrapped=True)
        self.processes[name] = process
        process.start()
        process.wait_ready(self._patience)
        return process

    def listens(self, port: int) -> bool:
        """Whether something on the node listens on a TCP port."""
        suffix = f":{port:04X}"
        lines = [
            line.split()
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/{self._pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        ]
        return any(local.endswith(suffix) and state == _LISTEN for _, local, _, state, *_ in lines)

    def log_sizes(self) -> dict[str, int]:
        """How long each program's log is now, in bytes: what `log_tails` can begin after."""
        return {name: process.log.stat().st_size for name, process in self.processes.items()}

    def log_tails(self, since: Mapping[str, int], lines: int = 40) -> dict[str, str]:
        """The end of each program's log, from the given sizes on."""
        return {name: process.log_tail(lines, since.get(name, 0)) for name, process in self.processes.items()}

    def _init(self, groups: Sequence[Path]) -> Process:
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        start = f'hostname "$0" && exec sh {_INIT} "$@"'
        own = () if self.alone else _UNSHARE_BESIDE
        place = "alone" if self.alone else "beside"
        command = (*_UNSHARE, *own, "--mount-proc", "sh", "-c", start, self.name, str(self.folder), place)
        return Process(
            self.name,
            ("sh", "-c", _JOIN, "join", *command),
            self.folder / "node.log",
            ready.exists,
            {"NODE_CGROUPS": " ".join(map(str, groups))},
            wrapped=True,
        )

    def _kill_all(self) -> None:
        for process in reversed(self.processes.values()):
            process.kill()


class ForkedProcess(Process):
    """A program of netdra that a node's `forks` starts."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None,
        node: Node,
        capabilities: Sequence[str],
    ) -> None:
        super().__init__(name, command, log, ready, environment)
        self._node, self._capabilities = node, capabilities

    def _spawn(self) -> Child:
        assert self._node.forks is not None
        arguments, environment = self.command[len(COMMAND) :], os.environ | self._environment
        joins = not self._node.alone
        return self._node.forks.start(self._node.pid, arguments, self.log, environment, self._capabilities, joins=joins)


def _with_alone(capabilities: Sequence[str]) -> tuple[str, ...]:
    """The wrapper that runs a command with these capabilities and no others."""
    if not capabilities:
        return ()
    named = ",".join(("-all", *(f"+{capability.lower()}" for capability in capabilities)))
    return ("setpriv", f"--bounding-set={named}", f"--inh-caps={named}", "--")


def make_cgroups(name: str) -> list[Path]:
    """A cgroup in each hierarchy, below that of this process (cgroups(7)).

    Its name must be unique on this machine, where other tests may run: a group with processes cannot be removed.
    """
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines())
    groups = []
    for line in Path("/proc/self/mounts").read_text(encoding="ascii").splitlines():
        _, mounted, kind, options, *_ = line.split()
        if kind not in {"cgroup", "cgroup2"}:
            continue
        here = [path for found, path in own.items() if _is_hierarchy(found, kind, options)]
        if not here:
            continue
        group = Path(f"{mounted}{here[0]}") / name
        group.mkdir(exist_ok=True)
        groups.append(group)
        for file in ("cpuset.cpus", "cpuset.mems"):
            # Version 1 admits no process into a new group before both are set.
            if kind == "cgroup" and (group / file).exists():
                (group / file).write_text((group.parent / file).read_text())
    return groups


def _is_hierarchy(controllers: str, kind: str, options: str) -> bool:
    """Whether a line of /proc/self/cgroup, by its controllers, is about a mount: version 2 has none in the line."""
    if not controllers or kind == "cgroup2":
        return not controllers and kind == "cgroup2"
    return set(controllers.split(",")) <= set(options.split(","))


def remove_cgroups(groups: Sequence[Path]) -> None:
    """Remove cgroups from the leaves up; the kernel may take a moment to let the last process go.

    Raises:
        OSError: there are still processes in one of them.
    """
    deadline = time.monotonic() + _CGROUP_TIMEOUT
    for group in groups:
        for folder, _, _ in os.walk(group, topdown=False):
            while True:
                try:
                    Path(folder).rmdir()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)
