"""CPU of commands as whole processes, and the memory of a simulation of a large cluster.

CPU times are the best of several runs in turns, with the modules compiled. A claim that fits on none of many nodes is
explained for each of them; its input is the JSON of `kubectl get`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench import allocator
from bench.figures import Figure

ROUNDS = 20
NODES = 1_000
SIMULATE_ROUNDS = 3
SIMULATE_MIB = 200.0
MIB = 1024
"""KiB, in which the kernel counts the memory of an ended process."""
_EXAMPLE = str(Path(__file__).parents[1] / "examples" / "first-pod")
COMMANDS: dict[str, tuple[tuple[str, ...], float]] = {
    "--help": (("--help",), 60.0),
    "why --help": (("why", "--help"), 60.0),
    "discover": (("discover",), 110.0),
    "plan of an example": (("plan", _EXAMPLE), 130.0),
    "validate of an example with an inventory": (("validate", _EXAMPLE), 180.0),
}
"""The arguments, and the limit in milliseconds, which leaves room for neighbours on the machine."""
QUICK = {"ROUNDS": 1, "NODES": 3, "SIMULATE_ROUNDS": 1}


class Run(NamedTuple):
    """The milliseconds of CPU and the MiB of a process from start to end."""

    cpu: float
    memory: float


def run() -> Iterator[Figure]:
    """CPU of commands; CPU and memory of a simulation."""
    bare: list[Run] = []
    runs: dict[str, list[Run]] = {name: [] for name in COMMANDS}
    for number in range(ROUNDS + 1):
        bare.append(_run(sys.executable, "-c", ""))
        for name, (arguments, _) in COMMANDS.items():
            measured = _netdra(*arguments)
            runs[name] += [measured] if number or ROUNDS == 1 else []  # the first one may compile modules
    python = min(bare).cpu
    for name, (_, limit) in COMMANDS.items():
        note = f"whole process; Python alone takes {python:.0f} ms"
        yield Figure(f"CPU of netdra {name}", min(runs[name]).cpu, "ms", limit, note)
    yield from _simulation()


def _simulation() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        _write(path)
        runs = [_netdra("simulate", str(path)) for _ in range(SIMULATE_ROUNDS)]
        size = f"{NODES:,} nodes x {allocator.VFS + 1} devices, {path.stat().st_size / MIB / MIB:.0f} MiB of JSON"
    name = "netdra simulate of a claim that fits on no node"
    yield Figure(f"CPU of {name}", min(runs).cpu, "ms", 0.0, size)
    yield Figure(f"memory of {name}", min(run.memory for run in runs), "MiB", SIMULATE_MIB, size)


def _write(path: Path) -> None:
    """Slices, classes and a claim as a List; the memory of a child is at least its parent's, so node after node."""
    wanted = allocator.claim_object("nowhere", "vf", count=allocator.VFS + 1)
    slices = (found for number in range(NODES) for found in allocator.node_slices(f"node-{number:04}"))
    with path.open("wb") as file:
        file.write(b'{"apiVersion": "v1", "kind": "List", "items": [')
        for number, item in enumerate(chain(slices, allocator.class_objects(), [wanted])):
            file.write((b"," if number else b"") + msgspec.json.encode(item))
        file.write(b"]}")


def _netdra(*arguments: str) -> Run:
    return _run(sys.executable, "-m", "netdra", *arguments)


def _run(*command: str) -> Run:
    """Run a process; 1 is an answer, too."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return Run(1000 * (used.ru_utime + used.ru_stime), used.ru_maxrss / MIB)
