"""`python -m bench [NAME ...]`: run the benchmarks, and print each figure beside its limit.

Figures are kept in build/bench.json as they come, so one benchmark that fails loses no others. The exit code is 1 if
one failed or a figure is past its limit; on a busy machine look at the ratios, which are taken side by side, before
believing it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.figures import Figure

BENCHMARKS = (
    *("allocator", "chain", "churn", "discovery", "exposure"),
    *("hollow", "hook", "nri", "pods", "publishing", "webhook"),
)
"""Each is a module of this package whose function `run` returns figures."""
KEPT = Path("build/bench.json")


def main() -> int:
    """Run what is asked for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which ones (all, if none is named): {', '.join(BENCHMARKS)}"
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    figures: dict[str, list[Figure]] = {}
    failed: list[str] = []
    for name in arguments.names or BENCHMARKS:
        print(f"bench: {name} ...", file=sys.stderr, flush=True)
        try:
            figures[name] = importlib.import_module(f"bench.{name}").run()
        except Exception:  # noqa: BLE001 - the other benchmarks' figures are worth having
            traceback.print_exc()
            failed.append(name)
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_bytes(_json(figures))
    if arguments.output == "json":
        print(_json(figures).decode())
    else:
        _show(figures)
    for name in failed:
        print(f"bench: {name} failed; its traceback is above", file=sys.stderr)
    return int(bool(failed) or any(_is_past(figure) for found in figures.values() for figure in found))


def _json(figures: dict[str, list[Figure]]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(figures))


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
