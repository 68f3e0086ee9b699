"""`python -m testbed.matrix [NAME ...]`: tests of pods on every container runtime and every version of Kubernetes.

Called by `make test-runtimes`. The results of each are kept in `build/runtimes.json`, and the table in docs/nri.md is
written from it; with names only those are run, and the others' results stay as they are.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from testbed.build import component, locked
from testbed.components import COMPONENTS, KUBERNETES, RUNTIME, Component
from testbed.suite.jobs import Command
from testbed.suite.results import Outcome, Report

KEPT = Path("build/runtimes.json")
LOGS = Path("build/runtimes")
PAGE = Path("docs/nri.md")
BEGIN, END = "<!-- The results of `make test-runtimes`; written by it. -->", "<!-- The end of the results. -->"

_PODS, _SANDBOXES = "tests/cluster/pods", "tests/cluster/sandboxes"
GROUPS: Mapping[str, Sequence[str]] = {
    "pods": (
        *(f"{_PODS}/test_{name}.py" for name in ("containerd", "pods", "driver", "device_files", "pods_wires")),
        *(
            f"{_PODS}/networks/test_{name}.py"
            for name in ("devices", "topologies", "containers", "refusals", "tutorial", "workloads", "preset")
        ),
    ),
    "NRI": (f"{_PODS}/test_nri.py", f"{_PODS}/test_hanging_hooks.py", f"{_SANDBOXES}/test_containerd.py"),
    "CDI": (f"{_PODS}/test_cdi.py",),
    "faults": (f"{_PODS}/test_faults.py", f"{_PODS}/test_outages.py"),
    "restarts": (f"{_PODS}/networks/test_restarts.py", f"{_PODS}/networks/test_runtimes.py"),
}
"""What is run, under the table's headings."""
_MOST_AGAIN = 3
_LOOK_SECONDS = 0.5


@dataclass
class Found:
    """The results of one group of tests.

    Attributes:
        passed: how many.
        failed: which ones did not, the ones of `known` apart.
        flaky: which of those that passed did so only when they were run once more.
        known: which ones failed as it is known that they do, and why.
    """

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The group's cell in the table."""
        total = self.passed + len(self.failed) + len(self.known)
        return f"{self.passed} of {total}" if self.failed or self.known else str(self.passed) if total else "-"


@dataclass
class Place:
    """A runtime with a version of Kubernetes.

    Attributes:
        name: by which it is asked for: that of the component that is not the usual one.
        runtime: what it is called, with its version.
        kubernetes: the version.
        found: by group.
        seconds: how long it took.
    """

    name: str
    runtime: str
    kubernetes: str
    found: dict[str, Found] = field(default_factory=dict)
    seconds: float = 0.0


def places() -> list[Place]:
    """All of them: every runtime with the newest Kubernetes, and the newest runtime with every other Kubernetes."""
    runtimes = [each for each in COMPONENTS if each.variable == RUNTIME]
    versions = [each for each in COMPONENTS if each.variable == KUBERNETES]
    return [
        *(_place(each.name, each, versions[0]) for each in runtimes),
        *(_place(each.name, runtimes[0], each) for each in versions[1:]),
    ]


def _place(name: str, runtime: Component, kubernetes: Component) -> Place:
    kind = re.sub(r"-[0-9.]+$", "", runtime.name)
    shown = {"cri-o": "CRI-O"}.get(kind, kind)
    return Place(name, f"{shown} {runtime.version.removeprefix('v')}", kubernetes.version.removeprefix("v"))


def table(found: Iterable[Place]) -> str:
    """The results, as the page shows them."""
    lines = [
        f"| runtime | Kubernetes | {' | '.join(GROUPS)} |",
        f"| --- | --- |{' --- |' * len(GROUPS)}",
    ]
    notes: dict[str, str] = {}
    for place in found:
        marks = []
        for group in GROUPS:
            cell = place.found.get(group, Found())
            for why in cell.known.values():
                notes.setdefault(why, str(len(notes) + 1))
            numbers = sorted({notes[why] for why in cell.known.values()})
            marks.append(str(cell) + "".join(f" ({number})" for number in numbers))
        lines.append(f"| {place.runtime} | {place.kubernetes} | {' | '.join(marks)} |")
    lines += ["", *(f"({number}) {why}." for why, number in notes.items())] if notes else []
    return "\n".join(lines)


def written(page: str, text: str) -> str:
    """The page with another table in it.

    Raises:
        ValueError: the page has no place for it.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no '{BEGIN}' with '{END}' after it")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def judged(outcomes: Sequence[Outcome]) -> dict[str, Found]:
    """The results of each group."""
    found = {group: Found() for group in GROUPS}
    for each in outcomes:
        group = next(name for name, files in GROUPS.items() if each.test.startswith(tuple(files)))
        match each.outcome:
            case "passed":
                found[group].passed += 1
            case "flaky":
                found[group].passed += 1
                found[group].flaky.append(each.test)
            case "skipped" if each.text:
                found[group].known[each.test] = each.text
            case _:
                found[group].failed.append(each.test)
    return found


def run(place: Place) -> None:
    """Run all tests there, and those that fail once more.

    Raises:
        RuntimeError: not all of them came to their end.
    """
    started = time.monotonic()
    outcomes = _run(place, [file for files in GROUPS.values() for file in files], "")
    failed = [each.test for each in outcomes if each.outcome == "failed"]
    if 0 < len(failed) <= _MOST_AGAIN:
        again = {each.test: each.outcome for each in _run(place, failed, "-again")}
        outcomes = [_flaky(each) if again.get(each.test) == "passed" else each for each in outcomes]
    place.found, place.seconds = judged(outcomes), round(time.monotonic() - started, 1)


def _flaky(outcome: Outcome) -> Outcome:
    return Outcome(outcome.level, outcome.test, "flaky", outcome.seconds, outcome.waits, outcome.text)


def _run(place: Place, tests: Sequence[str], suffix: str) -> list[Outcome]:
    LOGS.mkdir(parents=True, exist_ok=True)
    lines, log = LOGS / f"{place.name}{suffix}.jsonl", LOGS / f"{place.name}{suffix}.log"
    lines.unlink(missing_ok=True)
    variable = component(place.name).variable
    environment = {variable: place.name, "NETDRA_REPORT": str(lines.absolute())}
    command = Command((sys.executable, "-m", "pytest", *tests), log, environment)
    try:
        while command.code() is None:
            time.sleep(_LOOK_SECONDS)
    finally:
        command.interrupt()
        command.end()
    report = Report(place.name, lines)
    report.refresh()
    if not report.collected or len(report.outcomes) < report.collected:
        raise RuntimeError(f"{place.name}: {len(report.outcomes)} of {report.collected} tests came to their end: {log}")
    return report.outcomes


def _kept(known: Sequence[Place]) -> list[Place]:
    """The same places with their earlier results, where the versions are the same."""
    read = json.loads(KEPT.read_text()) if KEPT.exists() else []
    before = {
        each["name"]: Place(**{**each, "found": {name: Found(**found) for name, found in each["found"].items()}})
        for each in read
    }
    return [
        former
        if (former := before.get(each.name)) and (former.runtime, former.kubernetes) == (each.runtime, each.kubernetes)
        else each
        for each in known
    ]


def _keep(place: Place) -> None:
    """Keep the results of one place beside those of others, and write the page once all are complete."""
    with locked("matrix"):
        kept = [place if each.name == place.name else each for each in _kept(places())]
        KEPT.write_text(json.dumps([asdict(each) for each in kept], indent=1) + "\n")
        if all(each.found for each in kept):
            PAGE.write_text(written(PAGE.read_text(), table(kept)))


def main(names: Sequence[str]) -> int:
    """Run the named places, or all, write the results, and return the exit code."""
    known = places()
    unknown = set(names) - {each.name for each in known}
    if unknown:
        print(f"testbed: no {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in known)}")
        return 2
    well = True
    for place in known:
        if names and place.name not in names:
            continue
        run(place)
        _keep(place)
        failed = [test for found in place.found.values() for test in found.failed]
        well = well and not failed
        print(f"{place.runtime}, Kubernetes {place.kubernetes}: {_told(place)}", flush=True)
        for test in failed:
            print(f"    failed: {test}: {LOGS / place.name}.log", flush=True)
    return 0 if well else 1


def _told(place: Place) -> str:
    cells = ", ".join(f"{group} {found}" for group, found in place.found.items())
    flaky = [test for found in place.found.values() for test in found.flaky]
    return f"{cells}; {place.seconds:.0f} s{f'; flaky: {chr(32).join(flaky)}' if flaky else ''}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
