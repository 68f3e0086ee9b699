"""`python -m bench [NAME ...]`: run the benchmarks, and print each figure beside its limit.

Figures are printed and kept in build/bench.json as they come, so a benchmark that fails loses none that it had, and
none of others. Beside them are the load of the machine and the benchmark's processor time. The exit code is 1 if one
failed or a figure is past its limit; on a busy machine inspect the ratios, which are taken side by side, before
believing it. `--compare OLD.json` shows beside each figure what it was, and as a ratio what became of it. `--quick`
runs benchmarks with the few rounds that their `QUICK` states, and on shared control planes: that they work, and no
figure to believe.
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from bench.bed import sharing
from bench.figures import Figure
from netdra.cli.terminal import print_table

BENCHMARKS = (
    *("addresses", "allocator", "chain", "churn", "commands", "console", "discovery", "exposure"),
    *(
        "hollow",
        "hook",
        "imports",
        "neutron",
        "node",
        "nri",
        "pods",
        "publishing",
        "registry",
        "scale",
        "scheduling",
        "storms",
        "takeover",
        "traffic",
        "webhook",
    ),
)
"""Modules of this package: `run` returns figures, and `QUICK` has constants, by name, for a run of a few seconds."""
KEPT, KEPT_QUICK = Path("build/bench.json"), Path("build/bench-quick.json")
NOISE = 1.1
"""From which ratio on a figure counts as slower, and below whose inverse as faster."""

Figures = Mapping[str, Sequence[Figure]]


def main() -> int:
    """Run the named benchmarks; returns the exit code."""
    arguments = _arguments()
    old = _kept(arguments.compare) if arguments.compare else {}
    kept = KEPT_QUICK if arguments.quick else KEPT
    figures: dict[str, list[Figure]] = {}
    failed: list[str] = []
    with ExitStack() as undo:
        if arguments.quick:
            undo.enter_context(sharing())
        for name in arguments.names or BENCHMARKS:
            print(f"bench: {name} ...", file=sys.stderr, flush=True)
            try:
                for figure in _run(name, quick=arguments.quick):
                    figures.setdefault(name, []).append(figure)
                    _keep(kept, figures)
                    print(f"bench: {name}: {figure.name}: {_shown(figure)}", file=sys.stderr, flush=True)
            except Exception:  # noqa: BLE001 - the other benchmarks' figures are worth having
                traceback.print_exc()
                failed.append(name)
    if arguments.output == "json":
        print(_json(figures).decode())
    else:
        print_table(("benchmark", "figure", "measured", "limit", "note"), _rows(figures), ("measured", "limit"))
    if old:
        print()
        print_table(("benchmark", "figure", "before", "now", "ratio", ""), compared(old, figures), ("before", "now"))
    for name in failed:
        print(f"bench: {name} failed; its traceback is above", file=sys.stderr)
    past = not arguments.quick and any(_is_past(figure) for group in figures.values() for figure in group)
    return int(bool(failed) or past)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which ones (all, if none is named): {', '.join(BENCHMARKS)}"
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--quick", action="store_true", help="only see that they work")
    parser.add_argument(
        "--compare", type=Path, metavar="OLD.json", help=f"figures of an earlier run, as {KEPT} keeps them"
    )
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(BENCHMARKS)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if arguments.compare is not None:
        try:
            _kept(arguments.compare)
        except (OSError, msgspec.DecodeError) as problem:
            parser.error(f"--compare {arguments.compare}: {problem}; use {KEPT} of an earlier run")
    return arguments


def _run(name: str, *, quick: bool) -> Iterator[Figure]:
    """The figures of a benchmark as they come, and in the end how busy the machine was."""
    module = importlib.import_module(f"bench.{name}")
    (load, *_), before = os.getloadavg(), _processor_seconds()
    with _changed(module.QUICK if quick else {}):
        yield from module.run()
    note = f"load of the machine {load:.1f} before and {os.getloadavg()[0]:.1f} afterwards, {os.cpu_count()} cores"
    yield Figure("processor time of this benchmark", _processor_seconds() - before, "s", note=note)


def _processor_seconds() -> float:
    """The processor time of this process and of all that it has started and seen end."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@contextmanager
def _changed(constants: Mapping[str, object]) -> Iterator[None]:
    """Set a benchmark's constants, wherever the modules that it is made of hold them, until the end of the block."""
    modules = [module for name, module in sys.modules.items() if name.startswith("bench.")]
    former = [(module, name, vars(module)[name]) for module in modules for name in constants.keys() & vars(module)]
    for module, name, _ in former:
        setattr(module, name, constants[name])
    try:
        yield
    finally:
        for module, name, value in former:
            setattr(module, name, value)


def _keep(path: Path, figures: Figures) -> None:
    """Write the figures into a file that is complete at any time."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.write_bytes(_json(figures))
    new.replace(path)


def _kept(path: Path) -> Figures:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, list[Figure]])


def _json(figures: Figures) -> bytes:
    return msgspec.json.format(msgspec.json.encode(figures))


def _is_past(figure: Figure) -> bool:
    return 0 < figure.limit < figure.value


def _rows(figures: Figures) -> Iterator[tuple[str, ...]]:
    for name, group in figures.items():
        for figure in group:
            limit = f"{figure.limit:g} {figure.unit}" + (" !" if _is_past(figure) else "") if figure.limit else ""
            yield name, figure.name, f"{figure.value:.4g} {figure.unit}", limit, figure.note


def compared(old: Figures, new: Figures) -> Iterator[tuple[str, ...]]:
    """A row for each figure that both have, what became slower or larger first; then those that only one has."""
    before = {(name, figure.name): figure for name, group in old.items() if name in new for figure in group}
    now = {(name, figure.name): figure for name, group in new.items() for figure in group}
    both = [key for key in now if key in before and before[key].value > 0]
    ratios = {key: now[key].value / before[key].value for key in both}
    for key in sorted(both, key=lambda key: -ratios[key]):
        word = "slower" if ratios[key] > NOISE else "faster" if ratios[key] < 1 / NOISE else ""
        yield (*key, _shown(before[key]), _shown(now[key]), f"{ratios[key]:.2f} x", word)
    for key in [key for key in (*before, *now) if (key in before) != (key in now)]:
        yield (*key, *(_shown(group[key]) if key in group else "" for group in (before, now)), "", "")


def _shown(figure: Figure) -> str:
    return f"{figure.value:.4g} {figure.unit}"


if __name__ == "__main__":
    sys.exit(main())
