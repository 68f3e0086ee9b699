"""Tests stay inside the checkout: one that touches a path beside it, or in the home folder, fails and names the path.

A pytest plugin, loaded by `tests/conftest.py` for every level. An audit hook (PEP 578) hears of each path that this
process and its forks open, list, make, change or hand to a program. It does not hear of `stat`, which reads no file,
nor of the actions of programs that a test starts.

A path may be touched in the checkout, in the test bed's cache, in temporary folders, and where the operating system,
Python, Go and the programs on PATH are.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from testbed.build import cache_root

_OPERATING_SYSTEM = (
    *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "nix", "opt", "proc", "run", "sbin", "sys", "usr", "var"),
    "disk",  # where the SR-IOV node mounts its own (testbed.vm)
)
# Audit events whose first argument is a path, and those that have paths elsewhere.
_OF_ONE_PATH = (
    *("open", "os.chdir", "os.chmod", "os.chown", "os.exec", "os.listdir", "os.mkdir", "os.posix_spawn", "os.remove"),
    *("os.rmdir", "os.scandir", "os.truncate", "os.utime"),
)
_PATHS: Mapping[str, tuple[int, ...]] = dict.fromkeys(_OF_ONE_PATH, (0,)) | {
    "os.link": (0, 1),
    "os.rename": (0, 1),
    "os.symlink": (1,),
    "socket.connect": (1,),
}
_STARTS_A_PROGRAM = "subprocess.Popen"


class Places:
    """Which paths tests may touch. Of all folders here that a path is in, the innermost decides.

    A folder that is named on both sides is inside: what lies beside /tmp/netdra are temporary folders.
    """

    def __init__(self, inside: Iterable[str | Path], outside: Iterable[str | Path]) -> None:
        self._is_inside = dict.fromkeys(("/", *_spellings(outside)), False)
        self.allow(*inside)

    def allow(self, *folders: str | Path) -> None:
        """Let tests touch these folders, too."""
        self._is_inside |= dict.fromkeys(_spellings(folders), True)
        self._innermost_first = sorted(self._is_inside, key=len, reverse=True)
        outside = [folder for folder, is_inside in self._is_inside.items() if not is_inside]
        # Where nothing below is outside, a look at a path's beginning is enough: so it is for nearly all paths.
        self._wholly_inside = tuple(
            folder
            for folder, is_inside in self._is_inside.items()
            if is_inside and not any(each.startswith(folder) for each in outside)
        )

    @classmethod
    def of(cls, checkout: Path) -> Places:
        """The places of a checkout on this machine; what lies beside it is outside, also in a temporary folder."""
        home = Path(os.path.expanduser("~"))  # noqa: PTH111 -- it stays "~" where there is none
        temporary = (tempfile.gettempdir(), "/tmp")
        inside = (*(f"/{name}" for name in _OPERATING_SYSTEM), *_installed(checkout, home), *temporary)
        return cls((*inside, cache_root(), checkout), (home, checkout.parent))

    def is_outside(self, path: str) -> bool:
        """Whether a path, absolute or relative to the working folder, is out of bounds."""
        # A relative one is below the working folder, or below one that was opened before.
        if ".." not in path and (path.startswith(self._wholly_inside) or not path.startswith("/")):
            return False
        path = "/" + os.path.abspath(path).strip("/")  # noqa: PTH100
        folder = next(folder for folder in self._innermost_first if f"{path}/".startswith(folder))
        if folder == "/":  # where there is not even such a folder, nothing can be read
            return path != "/" and os.path.lexists("/" + path.split("/")[1])
        return not self._is_inside[folder]


PLACES = pytest.StashKey[Places]()
"""Where the places of a test run are, in pytest's configuration."""


class Confined:
    """The plugin: it listens while tests are collected and run, and fails those that touch a path outside.

    Paths go through a file, because a fork of the test's process has no other way to report them.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self._listens = False
        self._told = 0
        descriptor, file = tempfile.mkstemp(prefix="netdra-touched-")
        os.close(descriptor)
        self._file = Path(file)
        sys.addaudithook(self._hook())

    def _hook(self) -> Callable[[str, tuple[object, ...]], None]:
        """Python calls it for each event: hundreds of thousands of times in a run, mostly for others than these."""
        watched = frozenset((*_PATHS, _STARTS_A_PROGRAM))

        def hear(event: str, arguments: tuple[object, ...]) -> None:
            if event in watched and self._listens:
                self._see(event, arguments)

        return hear

    def _see(self, event: str, arguments: tuple[object, ...]) -> None:
        values = _handed_on(*arguments[:3]) if event == _STARTS_A_PROGRAM else map(arguments.__getitem__, _PATHS[event])
        for value in values:
            if isinstance(value, str | bytes | os.PathLike):  # no open file, nor an address of another family
                path = os.fsdecode(value)
                if self.places.is_outside(path):
                    self._note(f"{os.path.abspath(path)} ({event})")  # noqa: PTH100

    def _note(self, line: str) -> None:
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND)
        except OSError:  # a fork that has gone to another root, or has given up its rights
            return
        os.write(descriptor, f"{line}\n".encode(errors="backslashreplace"))
        os.close(descriptor)

    def _touched(self, by: str) -> str:
        """The paths touched since the last time, "" without any."""
        if self._file.stat().st_size == self._told:
            return ""
        with self._file.open("rb") as file:
            file.seek(self._told)
            lines = dict.fromkeys(file.read().decode().splitlines())
            self._told = file.tell()
        return "\n".join((f"{by} touched what is outside the checkout (see tests/confined.py):", *lines))

    def _phase(self, item: pytest.Item) -> Generator[None, object, object]:
        """One phase of a test. A failure of the test's own stays the failure, with a note."""
        self._listens = True
        try:
            result = yield
        except BaseException as problem:
            self._listens = False
            if touched := self._touched(item.nodeid):
                problem.add_note(touched)
                if isinstance(problem, pytest.skip.Exception):
                    pytest.fail(touched, pytrace=False)
            raise
        self._listens = False
        if touched := self._touched(item.nodeid):
            pytest.fail(touched, pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._phase(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._phase(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._phase(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Fail a module that touches a path when it is imported."""
        self._listens = True
        try:
            report = yield
        finally:
            self._listens = False
        if touched := self._touched(collector.nodeid):
            report.outcome, report.longrepr, report.result = "failed", touched, []
        return report

    def pytest_unconfigure(self) -> None:
        self._listens = False
        self._file.unlink()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[PLACES] = places = Places.of(config.rootpath)
    places.allow(*filter(None, (config.getoption("basetemp"), os.environ.get("PYTEST_DEBUG_TEMPROOT"))))
    config.pluginmanager.register(Confined(places))


def _spellings(folders: Iterable[str | Path]) -> Iterator[str]:
    """Each folder as it is named and as it is behind symbolic links, with a slash at the end."""
    for folder in map(os.path.abspath, folders):
        yield f"{folder.rstrip('/')}/"
        yield f"{os.path.realpath(folder).rstrip('/')}/"


def _installed(checkout: Path, home: Path) -> Iterator[str]:
    """Where Python, Go and other programs are, unless that holds the checkout or the home folder."""
    parts = ("bin", "include", "lib", "lib64", "share")
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    go = (os.environ.get("GOPATH") or f"{home}/go", os.environ.get("GOCACHE") or f"{home}/.cache/go-build")
    paths = os.pathsep.join((os.environ.get("PATH", ""), *sys.path, *go)).split(os.pathsep)
    for folder in (*(f"{prefix}/{part}" for prefix in prefixes for part in parts), *paths):
        if folder.startswith("/") and not any(each.is_relative_to(folder) for each in (checkout, home)):
            yield folder


def _handed_on(program: object, arguments: object, folder: object) -> Iterator[object]:
    """The paths of a program's start: where it is, the absolute paths among its arguments, and its working folder."""
    yield program
    yield folder
    for argument in arguments if isinstance(arguments, list | tuple) else ():
        if isinstance(argument, str | bytes | os.PathLike) and os.fsdecode(argument).startswith("/"):
            yield argument
