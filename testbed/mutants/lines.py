"""The lines of the mutated packages that each unit test executes: for a mutant, only these tests are run.

Called by `python -m testbed.mutants`. `Recorder` is a plugin of the pytest that runs all tests once. Its record of a
file of tests stays in build/ until this file or a module that it imports changes. It does not see programs that a test
starts, nor the lines that are executed by imports.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import coverage
import pytest

from testbed.mutants.mistakes import Place

RECORDS = Path("build/mutants/lines")
_FIXTURE = "fixture "
_FUNCTION = "function"
_SLOW_SECONDS = (0.1, 1.0)
_IMPORTED_SECONDS = 0.5
"""Of the tests for a line of a function that no test executes: only if imports execute it can they notice a mistake."""


class Recorder:
    """A plugin of pytest: it records the seconds of each test that passes, and the lines that it executes."""

    def __init__(self, packages: Iterable[str], keys: Mapping[str, str], target: Path, root: Path) -> None:
        """Prepare the recording.

        Args:
            packages: the folders of the modules whose lines are recorded.
            keys: files of tests -> the key of the record.
            target: the folder of the records.
            root: the checkout in which the tests run.
        """
        self._keys = keys
        self._target = target
        self._root = root
        include = [f"{self._root}/{package}/*" for package in packages]
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=include)
        self._context = ""
        self._caches: list[Any] = []
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._users: dict[str, list[str]] = defaultdict(list)
        """Test or fixture -> the tests that execute it."""

    def pytest_sessionstart(self) -> None:
        """Start: the lines that imports execute are those of no test."""
        self._coverage.start()

    def pytest_collection_finish(self) -> None:
        """Find the functions with a cache."""
        functions = [found for found in gc.get_objects() if isinstance(found, type(functools.cache(len)))]
        self._caches = [found for found in functions if str(found.__module__).startswith("netdra.")]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record a test, without the results that former tests left in caches."""
        for function in self._caches:
            function.cache_clear()
        for name in (item.nodeid, *(f"{_FIXTURE}{name}" for name in getattr(item, "fixturenames", ()))):
            self._users[name].append(item.nodeid)
        self._switch(item.nodeid)
        started = time.monotonic()
        result = yield
        self._seconds[item.nodeid] = time.monotonic() - started
        self._switch("")
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Record a fixture of several tests separately: its lines are those of each of them."""
        before = self._context
        if fixturedef.scope != _FUNCTION:
            self._switch(f"{_FIXTURE}{fixturedef.argname}")
        try:
            return (yield)
        finally:
            self._switch(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Exclude a test that fails: it would notice each mutant."""
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the records."""
        self._coverage.stop()
        tests: dict[str, dict[str, int]] = defaultdict(dict)
        for test in self._seconds.keys() - self._failed:
            tests[_file(test)][test] = len(tests[_file(test)])
        lines = self._lines()
        for file, key in self._keys.items():
            modules = {
                module: {line: [tests[file][test] for test in found if test in tests[file]] for line, found in each}
                for module, each in lines[file].items()
            }
            seconds = {test: round(self._seconds[test], 4) for test in tests[file]}
            path = _path(self._target, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"key": key, "tests": seconds, "lines": modules}))

    def _lines(self) -> Mapping[str, Mapping[str, list[tuple[int, set[str]]]]]:
        """File of tests -> module -> each line, and the tests of this file that execute it."""
        result: dict[str, dict[str, list[tuple[int, set[str]]]]] = defaultdict(lambda: defaultdict(list))
        data = self._coverage.get_data()
        for path in data.measured_files():
            module = str(Path(path).relative_to(self._root))
            for line, contexts in data.contexts_by_lineno(path).items():
                files: dict[str, set[str]] = defaultdict(set)
                for test in {test for context in contexts for test in self._users.get(context, ())}:
                    files[_file(test)].add(test)
                for file, tests in files.items():
                    result[file][module].append((line, tests))
        return result

    def _switch(self, context: str) -> None:
        if context != self._context:
            self._context = context
            self._coverage.switch_context(context)


class Lines:
    """The records of all files of tests."""

    def __init__(self, folder: Path, keys: Mapping[str, str]) -> None:
        """Read them.

        Args:
            folder: where they are.
            keys: files of tests -> the key that a record must have.
        """
        self._records: dict[str, Any] = {}
        for file, key in keys.items():
            path = _path(folder, file)
            record = json.loads(path.read_text()) if path.exists() else {}
            if record.get("key") == key:
                self._records[file] = record
        self.missing = {file: key for file, key in keys.items() if file not in self._records}
        """The files without a record, with the key."""

    def tests(self, module: str, place: Place, nearest: Sequence[str], limit: float) -> list[str]:
        """The tests that execute one of the lines of a statement, else any line of the module.

        Those of a file are together, but slow tests are after all others.

        Args:
            module: of the statement.
            place: the statement.
            nearest: the files that come first.
            limit: of the sum of their seconds; only the first ones are within it.
        """
        wanted, any_line = set(map(str, place.lines)), False
        found: dict[str, list[str]] = {}
        for any_line in (False, True):
            for file, record in self._records.items():
                executed = record["lines"].get(module, {})
                numbers = {each for line in (executed if any_line else wanted) for each in executed.get(line, ())}
                names = list(record["tests"])
                found[file] = [names[number] for number in numbers]
            if any(found.values()):
                break
        ranks = {file: rank for rank, file in enumerate(nearest)}
        seconds = {test: self._records[file]["tests"][test] for file, tests in found.items() for test in tests}
        ordered = sorted(seconds, key=lambda test: _order(test, seconds[test], ranks.get(_file(test), len(ranks))))
        sums = accumulate(seconds[test] for test in ordered)
        most = min(limit, _IMPORTED_SECONDS) if any_line and place.in_function else limit
        return [test for test, total in zip(ordered, sums, strict=True) if total <= most] or ordered[:1]


def keys(tests: Iterable[str], dependents: Mapping[str, set[str]]) -> dict[str, str]:
    """File of tests -> the key of its record: a hash of the file and of all modules that it imports.

    Args:
        tests: the files.
        dependents: file -> the files that import it.
    """
    imports: dict[str, set[str]] = defaultdict(set)
    for name, importing in dependents.items():
        for file in importing:
            imports[file].add(name)
    hashes = functools.cache(lambda name: hashlib.sha256(Path(name).read_bytes()).hexdigest())
    return {test: _digest(f"{name} {hashes(name)}" for name in sorted(_closure(test, imports))) for test in tests}


def _order(test: str, seconds: float, rank: int) -> tuple[object, ...]:
    return sum(seconds > limit for limit in _SLOW_SECONDS), rank, _file(test), seconds


def _closure(name: str, imports: Mapping[str, set[str]]) -> set[str]:
    found, left = {name}, [name]
    while left:
        new = imports.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _file(test: str) -> str:
    return test.partition("::")[0]


def _path(folder: Path, file: str) -> Path:
    return folder / f"{file.replace('/', '.')}.json"
