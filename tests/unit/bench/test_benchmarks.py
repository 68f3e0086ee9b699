"""The benchmarks that `make bench` runs: declared, quick if wanted, compared with former results, none lost by another.

By the command alone: what is inside is the benchmarks' own business.
"""

from __future__ import annotations

import importlib
import json
import operator
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BENCH = ROOT / "bench"


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def declared() -> set[str]:
    """The benchmarks that the command knows, by its help."""
    said = subprocess.run(
        [sys.executable, "-m", "bench", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(re.findall(r"\w+", said.stdout.partition("is named):")[2].partition("options:")[0]))


def test_each_module_that_can_be_run_is_declared_and_no_other() -> None:
    runs = {path.stem for path in BENCH.glob("*.py") if re.search(r"^def run\(\)", path.read_text(), re.MULTILINE)}
    assert runs == declared()


def test_each_has_a_quick_mode() -> None:
    for name in declared():
        assert re.search(r"^QUICK = ", (BENCH / f"{name}.py").read_text(), re.MULTILINE), name


def test_the_measured_phases_of_a_hook_are_functions_of_netdra() -> None:
    phases = re.findall(r'"(netdra\.[\w.]+):([\w.]+)"', (BENCH / "hook.py").read_text())
    assert len(phases) > 20
    for module, path in phases:
        assert callable(operator.attrgetter(path)(importlib.import_module(module))), (module, path)


@pytest.mark.parametrize("name", ["exposure", "nri"])
def test_a_benchmark_works(name: str, tmp_path: Path) -> None:
    found = bench(tmp_path, "--quick", "--output=json", name)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)[name]
    assert not (tmp_path / "build" / "bench.json").exists(), "figures of a quick run are not kept with the others"


def test_a_failing_benchmark_is_reported_and_the_figures_that_came_are_kept(tmp_path: Path) -> None:
    # A folder in its place keeps the first from being read.
    (tmp_path / "bench").mkdir()
    for path in BENCH.glob("*.py"):
        (tmp_path / "bench" / path.name).write_text(path.read_text())
    (tmp_path / "bench" / "allocator.py").write_text(
        "from bench.figures import Figure\n"
        'def run():\n    yield Figure("first", 1.0, "s")\n    raise RuntimeError("no peer to be had")\nQUICK = {}\n'
    )
    found = bench(tmp_path, "--quick", "allocator", "exposure")
    assert found.returncode == 1
    kept = json.loads((tmp_path / "build" / "bench-quick.json").read_text())
    assert [figure["name"] for figure in kept["allocator"]] == ["first"]
    assert kept["exposure"][-1]["name"] == "processor time of this benchmark"
    assert "bench: allocator: first: 1 s\n" in found.stderr
    assert "no peer to be had" in found.stderr
    assert "bench: allocator failed" in found.stderr
    assert "first pass" in found.stdout


def test_slower_figures_are_listed_before_faster_figures_with_a_ratio(tmp_path: Path) -> None:
    first = bench(tmp_path, "--quick", "--output=json", "exposure")
    figures = json.loads(first.stdout)
    names = [figure["name"] for figure in figures["exposure"]]
    figures["exposure"][0]["value"] *= 1000
    figures["exposure"][1]["value"] /= 1000
    (tmp_path / "old.json").write_text(json.dumps(figures))
    shown = bench(tmp_path, "--quick", "--compare=old.json", "exposure").stdout.partition("ratio")[2]
    lines = {name: line for name in names for line in shown.splitlines() if f" {name} " in line}
    assert lines[names[0]].endswith("faster")
    assert lines[names[1]].endswith("slower")
    assert shown.index(lines[names[1]]) < shown.index(lines[names[0]])


def test_an_invalid_or_missing_compare_file_is_an_error_and_nothing_runs(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("[]")
    for name in ("old.json", "missing.json"):
        found = bench(tmp_path, f"--compare={name}", "exposure")
        assert found.returncode == 2
        assert f"--compare {name}" in found.stderr
        assert "bench: exposure ..." not in found.stderr
