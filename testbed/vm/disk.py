"""The machine's disk, and the programs of a worker node that are on it from the start.

A big program that the guest runs from the host's files starts slowly, and the guest would copy 215 MB for half a
minute; mke2fs does that outside in a second. Read by `testbed.vm.machine`, and in the guest by the tests of real pods.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from testbed.build import named_runtime, program
from testbed.vm.ingredients import need, run

# Of netdra's CNI plugins, which the driver runs at each start; those of eth0 are the runtime's.
DRIVERS = ("static",)
PROGRAMS = ("kubelet", "crictl", "ptp", "host-local", "loopback", *DRIVERS)
FOLDER = "programs"
"""Where the programs are on the disk, laid out as in the test bed's cache."""
_BYTES = 2 << 30


def worker_programs() -> tuple[Path, ...]:
    """The programs of a worker node, as they are outside.

    Raises:
        BuildError: one is not built.
    """
    runtime = named_runtime()
    return tuple(program(name) for name in (*PROGRAMS, *runtime.programs, *runtime.c_programs))


def make_disk(target: Path, programs: Iterable[Path] = ()) -> None:
    """Make the guest's disk: a file system with these programs, which takes room on the host as it is filled.

    Raises:
        IngredientError: mke2fs failed.
    """
    with target.open("wb") as disk:
        disk.truncate(_BYTES)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        for each in programs:
            _link(each, Path(folder) / FOLDER / each.parent.name / each.name)
        run(str(need("mke2fs")), "-q", "-F", "-t", "ext4", "-d", folder, str(target))


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy(source, target)
