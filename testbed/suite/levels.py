"""The work of `make test`: the preparations, the levels, and the order in which they begin.

Read by `testbed.suite.run`. A level names the preparations before it; the order here is that in which levels are
begun as cores become free: those that take longest first, and behind them lint and the unit tests, which wait for
nothing and so use the cores to the end of the run. The others wait for a large part of their time: they are begun while
any part of a core is free, and those that decide when the run ends have more processes than cores.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.components import OLDEST_RUNTIME, RUNTIME

PYTHON = ".venv/bin/python"
RESULTS = Path("build/test")
"""Logs and reports of the last run, by level."""
_COMPILE = f"{PYTHON} -m compileall -q netdra testbed && {PYTHON} -m pytest --collect-only -q tests/hardware"
_HARDWARE = Path("build/hardware")
# Kubernetes takes a third of the processor time of all levels. With Go's default (100), in which garbage is collected
# more often, a file of cluster tests takes an eighth more.
_OF_GO = {"GOGC": os.environ.get("GOGC", "300")}
_SECOND_BOOT = "tests/hardware/real/second_boot.py"
_BEFORE_SECOND_BOOT = "tests/hardware/real/test_reboot.py"

Make = Callable[["Call"], Sequence[str]]


@dataclass(frozen=True)
class Call:
    """How a level is run this time.

    Attributes:
        arguments: pytest's; all of the level's tests if none exist.
        cores: how many it has for the time being.
        machine: how many the machine has.
        temporary: a folder that does not exist yet, for the tests' files; its name is short, since that of a socket in
            it has 107 bytes at most.
    """

    arguments: Sequence[str] = ()
    cores: int = 1
    temporary: Path | None = None
    machine: int = 1


@dataclass(frozen=True)
class Job:
    """Something to be done by one command.

    Attributes:
        name: what it is called, on the screen and on the command line.
        command: the program and its arguments.
        after: the jobs that must have succeeded before.
    """

    name: str
    command: Sequence[str]
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Level:
    """A level of tests.

    Attributes:
        name: what it is called, on the screen and on the command line.
        make: its command.
        after: the jobs that must have succeeded before.
        cores: how many it can use.
        load: the part of each of them that it uses; it waits for the rest of the time, and others can have it.
            Measured, as the processor time of a whole run over its duration.
        again: whether a test that fails is run once more, alone: not where nothing depends on the machine.
        alone_with: something that one level at a time can have.
        first: whether its part of the cores is kept for it while it is prepared, because it decides when the run ends.
        behind: a level that begins before, if it is run at all, because its end decides when the run ends.
        variables: further variables that it is run with.
        folder: where the report and the log are, for a level that empties a folder of its own first.
    """

    name: str
    make: Make
    after: tuple[str, ...]
    cores: int = 1
    load: float = 1.0
    again: bool = False
    alone_with: str = ""
    first: bool = False
    behind: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: Path = field(default=RESULTS)

    @property
    def report(self) -> Path:
        """The file with the reports of its tests, line by line."""
        return self.folder / f"{self.name}.jsonl"

    @property
    def log(self) -> Path:
        """The file that it prints to."""
        return RESULTS / f"{self.name}.log"

    def environment(self) -> Mapping[str, str]:
        """The variables that it is run with."""
        return {"NETDRA_REPORT": str(self.report.absolute()), **_OF_GO, **self.variables}


def _pytest(
    *paths: str, at_least: int = 1, beyond: int | None = None, but: Sequence[str] = (), options: Sequence[str] = ()
) -> Make:
    """A level that is one call of pytest, in several processes where there are cores for it.

    Args:
        paths: its tests.
        at_least: so many processes also while fewer cores are free, if the machine has as many.
        beyond: for tests that wait more than they work: so many processes more than the machine has cores, since those
            that others use now are free later.
        but: folders below the paths that belong to another level.
        options: further ones of pytest.
    """
    own = (*paths, *(f"--ignore={folder}" for folder in but))

    def make(call: Call) -> Sequence[str]:
        own_cores = max(call.cores, min(at_least, call.machine))
        workers = own_cores if beyond is None or call.machine == 1 else call.machine + beyond
        spread = ("-n", str(workers), "--dist=loadscope", "--no-loadscope-reorder") if workers > 1 else ()
        place = (f"--basetemp={call.temporary}",) if call.temporary is not None else ()
        return (PYTHON, "-m", "pytest", *place, *options, *spread, *_with_paths(call.arguments, own))

    return make


def _with_paths(arguments: Sequence[str], paths: Sequence[str]) -> Sequence[str]:
    """The arguments of pytest, with a level's own paths unless they name some."""
    return arguments if any(each.startswith("tests/") for each in arguments) else (*paths, *arguments)


def _lint(_call: Call) -> Sequence[str]:
    return ("make", "--no-print-directory", "--keep-going", "lint", "site")


def _machine(call: Call) -> Sequence[str]:
    """The SR-IOV machine, booted once, and a second time for the tests after a reboot."""
    # pytest's automatic plugins cost seconds there.
    pytest = ("env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", PYTHON, "-m", "pytest", "-p", "pytest_timeout")
    paths = _with_paths(call.arguments, ("tests/hardware",))
    first = [path for path in paths if not path.startswith(_SECOND_BOOT)]
    reboots = not call.arguments or any(path.startswith((_SECOND_BOOT, _BEFORE_SECOND_BOOT)) for path in paths)
    if reboots and not any(path.startswith((_BEFORE_SECOND_BOOT, "tests/hardware")) for path in first):
        first.append(_BEFORE_SECOND_BOOT)
    then = ("--then", shlex.join((*pytest, _SECOND_BOOT))) if reboots else ()
    return (
        "python3",
        "-m",
        "testbed.vm",
        "run",
        "--control-plane",
        "--results",
        str(_HARDWARE),
        *then,
        *pytest,
        *first,
    )


PREPARATIONS: Mapping[str, Job] = {
    job.name: job
    for job in (
        Job("packages", ("python3", "-m", "testbed", "system")),
        Job("browser", ("python3", "-m", "testbed", "system", "--for", "browser"), after=("packages",)),
        Job("environment", ("make", "--no-print-directory", ".venv/.dev")),
        # Under emulation compiling takes half a minute, and pytest's own form is found by no other compiler.
        Job("bytecode", ("sh", "-c", _COMPILE), after=("environment",)),
        Job("image", ("python3", "-m", "image", "--prepare"), after=("packages",)),
        Job("foreign-image", ("python3", "-m", "image", "--prepare", "--architecture=arm64"), after=("image",)),
        Job("former-image", (PYTHON, "-m", "testbed.former"), after=("environment", "image")),
        Job("cni", ("python3", "-m", "testbed", "build", "cni-plugins", "cnitool"), after=("packages",)),
        Job("vale", ("python3", "-m", "testbed", "build", "vale"), after=("packages",)),
        Job("components", ("python3", "-m", "testbed", "build"), after=("cni",)),
        Job("hardware-components", ("python3", "-m", "testbed", "build", "--for", "hardware"), after=("components",)),
        Job("emulator", ("python3", "-m", "testbed.vm", "install"), after=("packages",)),
    )
}

_CORE = "the core that the SR-IOV machine has"
"""An emulated machine takes one of two cores whole; what is left is too little for nodes of clusters and time-outs."""
_OF_PODS = ("tests/cluster/install", "tests/cluster/pods")  # those that take longest first
LEVELS: Mapping[str, Level] = {
    level.name: level
    for level in (
        Level(
            "hardware",
            _machine,
            after=("bytecode", "components", "hardware-components", "emulator"),
            load=0.75,
            again=True,
            folder=_HARDWARE,
            alone_with=_CORE,
            first=True,
        ),
        Level(
            "cluster",
            _pytest("tests/cluster", beyond=1, but=_OF_PODS),
            after=("environment", "components", "image", "foreign-image", "browser"),
            cores=2,
            load=0.6,
            again=True,
            first=True,
        ),
        Level("kernel", _pytest("tests/kernel"), after=("environment", "packages", "cni"), load=0.5, again=True),
        Level(
            "machine",
            _pytest("tests/testbed"),
            after=("environment", "emulator"),
            load=0.75,
            again=True,
            alone_with=_CORE,
            behind="hardware",
        ),
        Level(
            "pods",
            _pytest(*_OF_PODS, beyond=2),
            after=("environment", "components", "image", "foreign-image"),
            cores=3,
            load=0.6,
            again=True,
            alone_with=_CORE,
            behind="hardware",
        ),
        Level("lint", _lint, after=("environment", "vale"), load=0.75),
        Level("unit", _pytest("tests/unit", at_least=2), after=("environment",), cores=4, load=0.75, again=True),
        Level(
            "oldest",
            _pytest("tests/cluster/pods", options=("-m", "oldest")),
            after=("environment", "components"),
            load=0.5,
            again=True,
            variables={RUNTIME: OLDEST_RUNTIME},
        ),
        Level(
            "upgrade",
            _pytest("tests/upgrade"),
            after=("environment", "components", "image", "former-image"),
            load=0.5,
            again=True,
        ),
    )
}


def needed(levels: Sequence[str]) -> list[Job]:
    """The preparations for some levels, in an order in which they can be done."""
    wanted: set[str] = set()
    names = [name for level in levels for name in LEVELS[level].after]
    while names:
        name = names.pop()
        wanted.add(name)
        names += PREPARATIONS[name].after
    return [job for name, job in PREPARATIONS.items() if name in wanted]
