"""The wall clock, which anyone may set, decides nothing that is kept: each function that reads it is listed here.

Times that are kept on a node are seconds since boot with the boot's id (`netdra.ops.boot`); waiting goes by the
monotonic clock.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import netdra

ROOT = Path(netdra.__file__).parent
READINGS = frozenset(
    {
        *("time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.CLOCK_REALTIME"),
        *("datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
    }
)
FIELD = "a time in an object's fields, or compared with one"
ALLOWED = {
    "cli/networks.py: _release_kept": FIELD,
    "cli/support_bundle.py: _write": "the time of a bundle, for its readers",
    "controller/state.py: now": FIELD,
    "controller/neutron/inspection.py: Inspection._check": FIELD,
    "controller/plugins/cluster_plugins.py: ClusterPlugins._write_status": FIELD,
    "kube/events.py: _now": FIELD,
    "kube/leader.py: Election._ours": FIELD,
    "node/health/service.py: _reported": FIELD,
    "node/kubelet/services.py: HealthService._watch": "a field of the answer to the kubelet",
    "node/sandboxes/writer.py: _now": FIELD,
    "kube/reflector.py: Reflector._heard": "a metric, which Prometheus compares with its own clock",
    "kube/auth.py: _Printed.holds": "a credential's end, which the program that prints it states by the wall clock",
    "kube/client.py: Client.now": "the time by the API server's clock, before the API server has stated it",
    "node/registry/journal.py: RegistrationJournal.__init__": "leases of an earlier boot, which no other clock dates",
    "node/registry/table.py: RegistrationTable.__init__": "handed to the journal",
}
"""Each function that reads the wall clock, and for what."""


def readings(source: str) -> Iterator[str]:
    """The functions of a module that read the wall clock, or name what reads it."""

    def within(node: ast.AST, place: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from within(child, (*place, child.name))
                continue
            names = ast.unparse(child).split(".")[-2:] if isinstance(child, ast.Attribute) else []
            if isinstance(child, ast.ImportFrom) and child.module == "time":
                names = ["time", *(alias.name for alias in child.names if f"time.{alias.name}" in READINGS)]
            if ".".join(names) in READINGS:
                yield ".".join(place)
            yield from within(child, place)

    return within(ast.parse(source), ())


def test_the_wall_clock_is_read_only_for_objects_and_people() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {place}"
        for path in ROOT.rglob("*.py")
        for place in readings(path.read_text(encoding="utf-8"))
    }
    assert found == set(ALLOWED), "use netdra.ops.boot.since_boot with boot_id(), or add the function with its reason"


@pytest.mark.parametrize(
    "statement",
    [
        "time.time()",
        "clock = time.time",
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "time.clock_gettime(time.CLOCK_REALTIME)",
        "from time import time",
    ],
)
def test_a_reading_of_the_wall_clock_is_found(statement: str) -> None:
    assert list(readings(f"class Kept:\n  def note(self):\n    {statement}\n")) == ["Kept.note"]


def test_a_default_that_reads_the_wall_clock_is_found() -> None:
    assert list(readings("class Table:\n  def __init__(self, wall=time.time): pass\n")) == ["Table.__init__"]


def test_other_clocks_are_not_the_wall_clock() -> None:
    assert not list(readings("time.monotonic()\ntime.clock_gettime(time.CLOCK_BOOTTIME)\nrecord.time.time_text()\n"))
