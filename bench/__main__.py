"""`python -m bench [NAME ...]`: run the benchmarks, and print each figure beside its limit.

Each module of this package with a function `run` is a benchmark. The exit code is 1 if a figure is past its limit; on a
busy machine look at the ratios, which are taken side by side, before believing it.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

import msgspec
from rich.console import Console
from rich.table import Table

import bench
from bench.figures import Figure

_NO_BENCHMARKS = {
    "__main__",
    "bare",
    "drivers",
    "figures",
    "floor",
    "hollow_changes",
    "hollow_floor",
    "hollow_nodes",
    "moves",
    "podruns",
    "reviews",
    "slices",
    "timers",
}


def main() -> int:
    """Run what is asked for; returns the exit code."""
    known = [module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in _NO_BENCHMARKS]
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which ones (all, if none is named): {', '.join(known)}"
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(known))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    figures: dict[str, list[Figure]] = {}
    for name in arguments.names or known:
        print(f"bench: {name} ...", file=sys.stderr, flush=True)
        figures[name] = importlib.import_module(f"bench.{name}").run()
    if arguments.output == "json":
        print(msgspec.json.format(msgspec.json.encode(figures)).decode())
    else:
        _show(figures)
    return int(any(_is_past(figure) for found in figures.values() for figure in found))


def _is_past(figure: Figure) -> bool:
    return 0 < figure.limit < figure.value


def _show(figures: dict[str, list[Figure]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("benchmark", "figure", "measured", "limit", "note"):
        table.add_column(column, overflow="fold")
    for name, found in figures.items():
        for figure in found:
            limit = f"{figure.limit:g} {figure.unit}" if figure.limit else ""
            style = "bold red" if _is_past(figure) else ""
            table.add_row(name, figure.name, f"{figure.value:.4g} {figure.unit}", limit, figure.note, style=style)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":
    sys.exit(main())
