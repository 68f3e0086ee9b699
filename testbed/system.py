"""Debian packages that the tests need and a bare machine may lack; nothing is done where they are there."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.build import locked

# program -> the Debian package that has it
PROGRAMS = {
    "ip": "iproute2",
    "bridge": "iproute2",
    "ethtool": "ethtool",
    "openssl": "openssl",
    "iptables": "iptables",
    "busybox": "busybox-static",
    "runc": "runc",
}
# What other runtimes than containerd need; the C compiler only to be built.
PROGRAMS_OF_RUNTIMES = {"conmon": "conmon", "cc": "gcc"}
_C_LIBRARY = Path("/usr/include/stdlib.h")
APT = "apt"
"""The lock of those who install packages: apt itself does not wait for others that read its lists anew."""
# What Go checks the module proxy's certificate with.
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


class MissingPackagesError(Exception):
    """Packages are missing and cannot be installed here; the text names them."""


def ensure_packages(*, runtimes: bool = False) -> list[str]:
    """Install what is missing, and return the names of what was installed.

    Args:
        runtimes: also what runtimes need that are not started by `make test`.

    Raises:
        MissingPackagesError: something is missing, and this is not root on a machine with apt.
    """
    if not _missing(runtimes=runtimes):
        return []
    with locked(APT):
        return _install(_missing(runtimes=runtimes))


def _install(missing: Sequence[str]) -> list[str]:
    if not missing:
        return []
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MissingPackagesError(
            f"these packages are missing: {' '.join(missing)}; install them (as root: apt-get install)"
        )
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "-q", "update"], ["apt-get", "-qy", "install", "--no-install-recommends", *missing]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingPackagesError(f"'{' '.join(command)}' failed:\n{done.stderr[-2000:]}")
    print(f"testbed: installed {' '.join(missing)}", file=sys.stderr)
    return [*missing]


def _missing(*, runtimes: bool) -> list[str]:
    # Debian keeps some of them where only root's PATH goes.
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    programs = PROGRAMS | (PROGRAMS_OF_RUNTIMES if runtimes else {})
    missing = {package for program, package in programs.items() if shutil.which(program, path=path) is None}
    if runtimes and not _C_LIBRARY.exists():
        missing.add("libc6-dev")
    if importlib.util.find_spec("ensurepip") is None:
        missing.add("python3-venv")
    if not AUTHORITIES.exists():
        missing.add("ca-certificates")
    return sorted(missing)
