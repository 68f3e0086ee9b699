"""pytest in a fork of this process, which has imported the libraries of the tests but none of the checkout's modules.

Called by `python -m testbed.mutants`, which runs pytest a thousand times: most of a run would be imports.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

_LIBRARIES = (
    *("aiohttp", "cel_expr_python", "click", "cryptography.x509", "google.protobuf.message", "grpclib.client"),
    *("grpclib.server", "msgspec", "prometheus_client", "re2", "trustme", "yaml"),
)
_ROOTS = ("bench", "image", "netdra", "release", "testbed", "tests")
_HYPOTHESIS = "hypothesispytest"
_PR_SET_PDEATHSIG = 1
_BYTES = 4 << 30
"""Limit of the memory: a mutant may loop and allocate."""
_LOOK_SECONDS = 0.02
_FAILED = 70


def load_libraries() -> None:
    """Import the libraries, so that the forks need not do it."""
    for name in _LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)


def run(
    arguments: Sequence[str],
    plugins: Sequence[object],
    folder: Path,
    log: Path,
    variables: Mapping[str, str],
    limit: float,
    tick: Callable[[float], None],
) -> int | None:
    """Run pytest, and return its exit code (negative: the signal that ended it); None if it was ended by the limit.

    Args:
        arguments: of pytest.
        plugins: of pytest, beside the usual ones.
        folder: the checkout, in which it runs.
        log: the file that it prints to.
        variables: of the environment, on top of the present ones.
        limit: in seconds.
        tick: called often, with the seconds so far.
    """
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _become_pytest(arguments, plugins, folder, log, variables)
    try:
        while (seconds := time.monotonic() - started) < limit:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                child = 0
                return os.waitstatus_to_exitcode(status)
            tick(seconds)
            time.sleep(_LOOK_SECONDS)
        return None
    finally:
        if child:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)


class _FirstExample:
    """A plugin of pytest: hypothesis stops at the first example that fails, and does not search a shorter one."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Change the profile that the tests' own configuration has chosen."""
        if not config.pluginmanager.has_plugin(_HYPOTHESIS):
            return
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        first = settings(settings.default, phases=phases, database=None, report_multiple_bugs=False)
        settings.register_profile("first example", first)
        settings.load_profile("first example")


def _become_pytest(
    arguments: Sequence[str], plugins: Sequence[object], folder: Path, log: Path, variables: Mapping[str, str]
) -> NoReturn:
    code = _FAILED
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
            os.dup2(descriptor, target)
        resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
        os.environ.update(variables)
        _enter(folder)
        code = int(pytest.main(list(arguments), [*plugins, _FirstExample()]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _enter(folder: Path) -> None:
    """Work in a checkout, and import its modules alone."""
    before = Path().absolute()
    os.chdir(folder)
    sys.path[:] = [str(folder), *(path for path in sys.path if Path(path).absolute() not in (before, folder))]
    for name in list(sys.modules):
        if name.partition(".")[0] in _ROOTS:
            del sys.modules[name]
