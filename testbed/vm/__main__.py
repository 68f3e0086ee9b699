"""`python -m testbed.vm install` and `python -m testbed.vm run COMMAND ...`: the SR-IOV machine. Called by make."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed import copies
from testbed.build import BuildError
from testbed.helm import HelmError
from testbed.process import ProcessError
from testbed.vm import ingredients, machine
from testbed.vm.beside import control_plane
from testbed.vm.disk import worker_programs

RESULTS = Path("build/hardware")


def main() -> int:
    """Parse the arguments, get what is missing, run the command in the machine, and return its exit code."""
    parser = argparse.ArgumentParser(prog="testbed.vm")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("install", help="get what the machine needs (root)")
    run = verbs.add_parser("run", help="boot the machine and run a command in it, from this folder")
    run.add_argument("--results", type=Path, default=RESULTS, help="the folder for logs and results (it is emptied)")
    run.add_argument("--limit", type=float, default=2700, metavar="SECONDS", help="how long the command may take")
    run.add_argument("--then", default="", metavar="COMMAND", help="what is run after a reboot, as one argument")
    run.add_argument("--control-plane", action="store_true", help="run a control plane that the machine can reach")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    arguments = parser.parse_args()
    started = time.monotonic()
    try:
        parts = ingredients.ensure()
        if arguments.verb == "install":
            return 0
        if arguments.control_plane:
            with control_plane() as environment:
                status = _run(arguments, parts, environment, worker_programs())
        else:
            status = _run(arguments, parts, {})
    except (ingredients.IngredientError, machine.MachineError, BuildError, ProcessError, HelmError) as problem:
        print(f"testbed: {problem}", file=sys.stderr)
        return 1
    print(
        f"testbed: exit code {status} after {time.monotonic() - started:.1f} s, logs in {arguments.results}",
        file=sys.stderr,
    )
    return status


def _run(
    arguments: argparse.Namespace,
    parts: ingredients.Ingredients,
    environment: Mapping[str, str],
    programs: Sequence[Path] = (),
) -> int:
    then, whole = shlex.split(arguments.then), {**environment, copies.LIBRARY: str(copies.library())}
    return machine.run(arguments.command, parts, arguments.results, arguments.limit, whole, then, programs)


if __name__ == "__main__":
    sys.exit(main())
