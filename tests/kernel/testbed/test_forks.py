"""netdra's programs on a node of the test bed, forked: the same processes as those that their command lines start."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from testbed.forks import COMMAND, Forks
from testbed.node import Node
from testbed.process import Ports, Process, ProcessError
from testbed.waiting import until

CAPABILITIES = ("NET_ADMIN", "SYS_ADMIN", "NET_RAW")
NAMESPACES = ("mnt", "uts", "ipc", "pid", "net", "cgroup", "user")


@contextmanager
def node(folder: Path, *, forks: bool, alone: bool = True) -> Iterator[Node]:
    """A node, alone with the machine's network; with `forks` it forks netdra's programs."""
    with Node("forking", folder=folder, alone=alone) as found:
        if not forks:
            yield found
            return
        with closing(Forks(folder / "forks.log")) as found.forks:
            yield found


def start(node: Node, *options: str) -> Process:
    """The controller of a cluster that does not answer: it serves its health, and asks again."""
    with closing(Ports("127.0.0.1")) as ports:
        port = ports.take()
    configuration = node.folder / "kubeconfig"
    cluster, user = {"server": "http://127.0.0.1:9"}, {"token": "none"}
    configuration.write_text(
        json.dumps(
            {
                "clusters": [{"name": "none", "cluster": cluster}],
                "users": [{"name": "none", "user": user}],
                "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
                "current-context": "none",
            }
        )
    )
    command = (*COMMAND, "controller", f"--kubeconfig={configuration}", f"--health-address=127.0.0.1:{port}", *options)
    return node.start("controller", command, lambda: node.listens(port), capabilities=CAPABILITIES)


def state(process: Process, node: Node) -> dict[str, object]:
    """The attributes of a process that nsenter, setpriv and execve set."""
    folder = Path(f"/proc/{process.pid}")
    status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
    namespaces = {name: (folder / "ns" / name).readlink() for name in NAMESPACES}
    nodes = {name: Path(f"/proc/{node.pid}/ns/{name}").readlink() for name in NAMESPACES}
    cgroups, of_node = (set(Path(f"/proc/{pid}/cgroup").read_text().splitlines()) for pid in (process.pid, node.pid))
    return {
        "capabilities": {name: text for name, text in status.items() if name.startswith("Cap")},
        "namespaces": [name for name in NAMESPACES if namespaces[name] == nodes[name]],
        "ids": [status["Uid"], status["Gid"]],
        "hierarchies in which it is in the node's cgroup": {line.split(":")[1] for line in cgroups & of_node},
        "threads' levels": len(status["NSpid"].split()),
        "ignored": {each.name for each in signal.Signals if int(status["SigIgn"], 16) >> (each - 1) & 1},
        "folder": (folder / "cwd").readlink(),
        "output": [(folder / "fd" / str(number)).readlink().name for number in (0, 1, 2)],
        "group": int((folder / "stat").read_text().rpartition(")")[2].split()[2]) != 0,
    }


@pytest.mark.parametrize("alone", [True, False])
def test_a_forked_program_has_the_namespaces_capabilities_and_files_of_its_command(tmp_path: Path, alone: bool) -> None:
    states = {}
    for forks in (False, True):
        with node(tmp_path / f"node-{forks}", forks=forks, alone=alone) as found:
            states[forks] = state(start(found), found)
    assert states[True] == states[False]
    assert states[True]["namespaces"] == [*NAMESPACES]


def test_a_forked_program_ends_as_others_do(tmp_path: Path) -> None:
    with node(tmp_path / "node", forks=True) as found:
        process = start(found)
        process.stop()
        assert process.pid is None
        assert "SIGTERM: ending" in process.log_tail()

        killed = start(found)
        former = killed.pid
        killed.kill()
        until(lambda: not Path(f"/proc/{former}").exists(), "the killed program to be gone")
        assert start(found).pid != former

    with node(tmp_path / "node", forks=True) as found:
        last = start(found)
        pid = last.pid
    until(lambda: not Path(f"/proc/{pid}").exists(), "the program to end with its node")


def test_a_forked_program_that_ends_at_once_is_reported_with_its_log(tmp_path: Path) -> None:
    with node(tmp_path / "node", forks=True) as found, pytest.raises(ProcessError, match="No such option"):
        start(found, "--no-such-option")
