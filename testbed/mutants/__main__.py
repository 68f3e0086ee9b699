"""`python -m testbed.mutants`: make small random mistakes in the code, and see how many the unit tests notice."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.mutants import forked
from testbed.mutants.lines import RECORDS, Lines, Recorder, keys
from testbed.mutants.mistakes import PACKAGES, Mutant, importing_tests, mutants, nearest_tests, place, sample
from testbed.promises.trial import Copy
from testbed.suite.changed import dependents
from testbed.suite.screen import Screen, clock

COPIES = Path("build/mutants")
KILLED, SURVIVED, TIMEOUT = "killed", "survived", "timeout"
_LIMIT_SECONDS = 600.0
_RECORD_SECONDS = 7200.0
_UNIT = "tests/unit"
_TIMEOUT = "from pytest-timeout"
_SUMMARY = "short test summary info"
_TAIL = 4000
_FIRST = 3
"""Files of tests that run alone before the others: most mutants are noticed by them."""
_NO_TESTS = int(pytest.ExitCode.NO_TESTS_COLLECTED)
_INTERRUPTED = 130


@dataclass(frozen=True)
class Result:
    """The result of a mutant.

    Attributes:
        mutant: the mistake.
        verdict: `KILLED`, `SURVIVED` or `TIMEOUT`.
        test: the test that failed.
        seconds: how long it took.
        tests: the number of tests, or of files where it is not known which tests execute the line.
        diff: the lines that differ.
    """

    mutant: Mutant
    verdict: str
    test: str
    seconds: float
    tests: int
    diff: str


class UnfitTestError(Exception):
    """A test that noticed a mutant fails without it, too; the text is the end of its output."""


def main() -> int:
    """Parse the arguments, try the mutants, and return the exit code: 0 also if mutants survive."""
    parser = argparse.ArgumentParser(prog="testbed.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="the size of the sample (default: 300)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000), help="default: random")
    parser.add_argument("--skip", type=int, default=0, help="mutants of the sample that an interrupted run has tried")
    parser.add_argument("--module", default="", metavar="PATH[:LINE]", help="only this folder, module or line")
    parser.add_argument("--tests", default="tests/unit", metavar="FOLDER", help="of the level (default: tests/unit)")
    parser.add_argument("--test-seconds", type=int, default=60, help="the limit of a test (default: 60)")
    parser.add_argument("--seconds", type=float, default=40, help="of the tests of a mutant, as recorded (default: 40)")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="the form of the results")
    given = parser.parse_args()
    screen = Screen(sys.stderr if given.output == "json" else sys.stdout)
    sources = _sources(given.module)
    line = given.module.partition(":")[2]
    found = [each for name, text in sources.items() for each in mutants(name, text) if line in ("", str(each.line))]
    wanted = sample(found, given.count, given.seed)[given.skip :]
    if not wanted:
        screen.say(f"testbed: {given.module!r} does not contain code that can be mutated")
        return 2
    screen.say(f"{len(wanted)} of {len(found)} mutants, --seed {given.seed}")
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.default_int_handler)
    COPIES.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=COPIES.absolute(), prefix="m"))
    results: list[Result] = []
    try:
        trial = Trial(folder, given.seed, given.test_seconds, screen)
        _try(wanted, sources, given, trial, screen, results)
    except UnfitTestError as error:
        screen.say(f"testbed: tests fail without a mistake, too, so the results are not valid:\n{error}")
        return 1
    except KeyboardInterrupt:
        screen.say("testbed: interrupted; the results so far:")
        return _INTERRUPTED
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _report(results, screen, as_json=given.output == "json")
    return 0


def _sources(module: str) -> Mapping[str, str]:
    """File -> its text, of a folder or a module; of `PACKAGES` if it is empty."""
    paths = [Path(name) for name in ([module.partition(":")[0]] if module else PACKAGES)]
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return {str(file): file.read_text(encoding="utf-8") for file in files if file.exists()}


def _try(
    wanted: Sequence[Mutant],
    sources: Mapping[str, str],
    given: argparse.Namespace,
    trial: Trial,
    screen: Screen,
    results: list[Result],
) -> None:
    """Try each mutant, and add its result; then run the tests that failed without a mutant.

    Raises:
        UnfitTestError: one of them fails.
    """
    forked.load_libraries()
    importing = dependents()
    lines = _lines(sources, importing, trial) if given.tests == _UNIT else None
    for number, mutant in enumerate(wanted, 1):
        trial.progress = f"{number} of {len(wanted)}  {mutant.module}:{mutant.line}"
        started = time.monotonic()
        source = sources[mutant.module]
        tests = nearest_tests(mutant, importing, given.tests)
        if lines:
            tests = lines.tests(mutant.module, place(mutant, source), tests, given.seconds) or tests
        verdict, test = trial.verdict(mutant, source, tests)
        results.append(Result(mutant, verdict, test, time.monotonic() - started, len(tests), mutant.diff(source)))
        _say(results[-1], screen)
    trial.check(sorted({result.test for result in results if result.test}))


def _lines(sources: Mapping[str, str], importing: Mapping[str, set[str]], trial: Trial) -> Lines:
    """The records of the unit tests that import a module; those that are missing are made.

    Raises:
        UnfitTestError: they cannot be made.
    """
    wanted = keys(importing_tests(sources, importing, _UNIT), importing)
    lines = Lines(RECORDS, wanted)
    if lines.missing:
        trial.record(lines.missing)
    return Lines(RECORDS, wanted)


class Chosen:
    """A plugin of pytest, which runs only these tests, in their order."""

    def __init__(self, tests: Sequence[str]) -> None:
        """Choose the tests."""
        self._ranks = {test: rank for rank, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remove the other tests."""
        items[:] = [item for item in items if item.nodeid in self._ranks]
        items.sort(key=lambda item: self._ranks[item.nodeid])


class Trial:
    """A copy of the checkout, in which mutants are tried one after the other."""

    def __init__(self, folder: Path, seed: int, test_seconds: int, screen: Screen) -> None:
        """Make the copy.

        Args:
            folder: for the copy, and for the output of pytest.
            seed: of tests that draw.
            test_seconds: the limit of a test.
            screen: shows the progress.
        """
        self.progress = ""
        self._copy = Copy(Path().absolute(), folder / "c")
        self._log = folder / "pytest.log"
        self._variables = {"PYTHONPATH": str(self._copy.folder), "NETDRA_SEED": str(seed)}
        self._timeout = f"--timeout={test_seconds}"
        self._screen = screen

    def record(self, missing: Mapping[str, str]) -> None:
        """Run files of tests without a mutant, and record the lines that each test executes.

        Args:
            missing: file -> the key of its record.

        Raises:
            UnfitTestError: pytest could not run them. Tests that fail are not recorded.
        """
        self.progress = f"recording which lines are executed by the tests of {len(missing)} files"
        self._screen.say(self.progress)
        recorder = Recorder(PACKAGES, missing, RECORDS.absolute(), self._copy.folder)
        code = self._run(sorted(missing), recorder, limit=_RECORD_SECONDS)
        if code not in (0, int(pytest.ExitCode.TESTS_FAILED)):
            raise UnfitTestError(self._output()[-_TAIL:])
        self._screen.say(self._output().rstrip().rpartition("\n")[2])

    def verdict(self, mutant: Mutant, source: str, tests: Sequence[str]) -> tuple[str, str]:
        """Run the tests with a mutant, the first ones alone, until one fails; the verdict, and the test that failed."""
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        chosen = Chosen(tests) if any("::" in test for test in tests) else None
        with self._copy.changed({mutant.module: mutant.apply(source)}):
            for part in filter(None, (files[:_FIRST], files[_FIRST:])):
                code = self._run(part, chosen, "-x")
                if code not in (0, _NO_TESTS):
                    output = self._output()
                    verdict = TIMEOUT if code is None or _TIMEOUT in output else KILLED
                    return verdict, _failed(output)
        return SURVIVED, ""

    def check(self, tests: Sequence[str]) -> None:
        """Run tests without a mutant.

        Raises:
            UnfitTestError: one of them fails.
        """
        self.progress = f"{len(tests)} tests without a mistake"
        if tests and self._run(tests) != 0:
            raise UnfitTestError(self._output()[-_TAIL:])

    def _output(self) -> str:
        return self._log.read_text(errors="replace")

    def _run(
        self, tests: Sequence[str], plugin: object = None, *options: str, limit: float = _LIMIT_SECONDS
    ) -> int | None:
        """The exit code of pytest; None if it took too long and was ended."""
        return forked.run(
            ("-q", "-rfE", "-p", "no:cacheprovider", self._timeout, *options, *tests),
            [plugin] if plugin else [],
            self._copy.folder,
            self._log,
            self._variables,
            limit,
            lambda seconds: self._screen.show([f"{self.progress}  {clock(seconds)}"]),
        )


def _failed(output: str) -> str:
    """The first test that failed, or the file that could not be collected: all cases of a test are one."""
    summary = output.rpartition(_SUMMARY)[2]  # before it are also records of logs, which begin with ERROR, too
    names = (line.split(maxsplit=1)[1] for line in summary.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    return next((name.partition(" - ")[0].partition("[")[0] for name in names), "")


def _say(result: Result, screen: Screen) -> None:
    mutant = result.mutant
    screen.say(
        f"{result.verdict:8}  {clock(result.seconds)}  {mutant.module}:{mutant.line}  {mutant.kind}  {result.test}"
    )
    if result.verdict == SURVIVED:
        screen.say("\n".join(f"    {line}" for line in result.diff.splitlines()))


def _report(results: Sequence[Result], screen: Screen, *, as_json: bool) -> None:
    """Print the share of killed mutants of each package and of all, and the results as JSON."""
    tried = Counter(result.mutant.package for result in results)
    killed = Counter(result.mutant.package for result in results if result.verdict != SURVIVED)
    for package, count in sorted(tried.items()):
        screen.say(f"{package:20}  {killed[package]:4} of {count:4} killed")
    if results:
        share = killed.total() / len(results)
        screen.say(f"{'all':20}  {killed.total():4} of {len(results):4} killed ({share:.0%})")
    if as_json:
        print(json.dumps([_entry(result) for result in results], indent=1))


def _entry(result: Result) -> dict[str, object]:
    return {
        "module": result.mutant.module,
        "line": result.mutant.line,
        "kind": result.mutant.kind,
        "verdict": result.verdict,
        "test": result.test,
        "seconds": round(result.seconds, 1),
        "tests": result.tests,
        "diff": result.diff,
    }


if __name__ == "__main__":
    sys.exit(main())
