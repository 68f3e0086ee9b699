"""The benchmarks that `make bench` runs are those that there are, and one that fails loses no other's figures."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import bench
from bench import __main__ as program
from bench.figures import Figure


def test_each_module_that_can_be_run_is_declared_and_no_other() -> None:
    modules = {module.name for module in pkgutil.iter_modules(bench.__path__)} - {"__main__"}
    runs = {name for name in modules if hasattr(importlib.import_module(f"bench.{name}"), "run")}
    assert runs == set(program.BENCHMARKS)


def test_one_that_fails_is_told_and_the_others_figures_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> list[Figure]:
        raise RuntimeError("no peer to be had")

    one = Figure("a step", 2.0, "ms", limit=3.0)
    monkeypatch.setitem(sys.modules, "bench.allocator", SimpleNamespace(run=fail))
    monkeypatch.setitem(sys.modules, "bench.chain", SimpleNamespace(run=lambda: [one]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", "allocator", "chain"])
    assert program.main() == 1
    assert list(json.loads((tmp_path / "build" / "bench.json").read_text())) == ["chain"]
    said = capsys.readouterr()
    assert "no peer to be had" in said.err
    assert "bench: allocator failed" in said.err
    assert "a step" in said.out
