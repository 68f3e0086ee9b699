"""The environment that Neutron and Keystone are installed into, once per machine and lock, and their initial state.

Called by `python -m testbed build` and by `testbed.openstack.cloud`. Everything is from PyPI, by locks with hashes and
from the index that the machine's pip is configured for; netdra's own environment has none of it. Beside it are the
databases that each cloud begins with, since their tables take long to make.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.build import BuildError, cache_root, locked

VERSION = "29.0.0"
"""Neutron's; `requirements.in` has it, too."""
HERE = Path(__file__).parent
LOCKS = (HERE / "build.lock", HERE / "requirements.lock")
"""What packages without a wheel are built with, and all packages."""
SERVE = HERE / "serve.py"
_SHOWN = 4000


def ensure() -> tuple[Path, Path]:
    """Install Neutron and Keystone unless they are installed.

    Returns:
        the environment's folder, and the folder with a cloud's initial state.

    Raises:
        BuildError: pip or one of the programs failed.
    """
    locks = b"".join((*(lock.read_bytes() for lock in LOCKS), sys.version.encode()))
    installed = _once(f"openstack-{VERSION}-{_digest(locks)}", _install)
    state = _once(
        f"{installed.name}-state-{_digest(SERVE.read_bytes())}",
        lambda made: _run("-W", "ignore", str(SERVE), "prepare", str(made), python=python_of(installed)),
    )
    return installed, state


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, made unless it is there: it appears under its name when it is complete."""
    target = cache_root() / name
    if target.is_dir():
        return target
    with locked(name):
        if target.is_dir():
            return target
        started = time.monotonic()
        print(f"testbed: making {name} ...", file=sys.stderr, flush=True)
        for abandoned in cache_root().glob(f".{name}-being-made-*"):  # by a run that was killed; we hold its lock
            shutil.rmtree(abandoned)
        with tempfile.TemporaryDirectory(prefix=f".{name}-being-made-", dir=cache_root()) as folder:
            make(Path(folder) / "made")
            (Path(folder) / "made").rename(target)
        print(f"testbed: {name} made in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return target


def _install(made: Path) -> None:
    _run("-m", "venv", str(made), python=Path(sys.executable))
    for lock in LOCKS:
        # The build requirements of a package without a wheel are in the first lock, too: each download has a hash.
        how = ("-q", "--no-build-isolation", "--use-pep517", "--require-hashes", "-r", str(lock))
        _run("-m", "pip", "install", *how, python=python_of(made))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]


def python_of(environment: Path) -> Path:
    """The environment's interpreter."""
    return environment / "bin" / "python"


def variables() -> Mapping[str, str]:
    """The programs' environment beside this process's: without the variables of a cloud that a user works with."""
    return {name: "" for name in os.environ if name.startswith("OS_")}


def _run(*arguments: str, python: Path) -> None:
    command = (str(python), *arguments)
    variables_of_pip = {**os.environ, **variables(), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables_of_pip)
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-_SHOWN:]
        raise BuildError(f"neutron {VERSION}: '{' '.join(command)}' failed:\n{said}")
