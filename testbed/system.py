"""The requirements of the tests on a machine: Debian packages, and room for watches; present ones are kept."""

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
    "iperf3": "iperf3",
    "openssl": "openssl",
    "iptables": "iptables",
    "nft": "nftables",
    "busybox": "busybox-static",
    "runc": "runc",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "skopeo": "skopeo",
    "ssh-keygen": "openssh-client",
    "qemu-aarch64-static": "qemu-user-static",
    "cc": "gcc",
}
# Needed by other runtimes than containerd.
PROGRAMS_OF_RUNTIMES = {"conmon": "conmon"}
# The browser of the cluster tests for the console.
PROGRAMS_OF_BROWSER = {"chromium": "chromium"}
_C_LIBRARY = Path("/usr/include/stdlib.h")
APT = "apt"
"""The lock of those who install packages: apt itself does not wait for others that read its lists anew."""
# The authorities with which Go checks the module proxy's certificate.
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH_INSTANCES = 1024
"""A kernel gives a user 128. A control plane takes 8 of them, a kubelet 6, a runtime 2, and a run has several nodes."""


class MissingPackagesError(Exception):
    """Packages are missing and cannot be installed here; the text names them."""


def ensure_packages(*, runtimes: bool = False, browser: bool = False) -> list[str]:
    """Install missing packages, and return the names of the installed ones.

    Args:
        runtimes: also what runtimes need that are not started by `make test`.
        browser: also Chromium.

    Raises:
        MissingPackagesError: something is missing, and this is not root on a machine with apt.
    """
    if not _missing(runtimes=runtimes, browser=browser):
        return []
    with locked(APT):
        return _install(_missing(runtimes=runtimes, browser=browser))


def ensure_watches() -> None:
    """Let root have as many inotify instances as several nodes take, until the machine is started again."""
    has = int(_INSTANCES.read_text(encoding="ascii"))
    if os.geteuid() != 0 or has >= _ENOUGH_INSTANCES:
        return
    try:
        _INSTANCES.write_text(str(_ENOUGH_INSTANCES), encoding="ascii")
    except OSError as problem:  # in a container, its host decides
        print(
            f"testbed: {_INSTANCES} is {has} and cannot be set here ({problem.strerror}); kubelets and runtimes of the "
            f"cluster tests may find 'too many open files': on the host, set fs.inotify.max_user_instances to "
            f"{_ENOUGH_INSTANCES}",
            file=sys.stderr,
        )


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


def _missing(*, runtimes: bool, browser: bool) -> list[str]:
    # Debian keeps some of them where only root's PATH goes.
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    programs = PROGRAMS | (PROGRAMS_OF_RUNTIMES if runtimes else {}) | (PROGRAMS_OF_BROWSER if browser else {})
    missing = {package for program, package in programs.items() if shutil.which(program, path=path) is None}
    if not _C_LIBRARY.exists():
        missing.add("libc6-dev")
    if importlib.util.find_spec("ensurepip") is None:
        missing.add("python3-venv")
    if not AUTHORITIES.exists():
        missing.add("ca-certificates")
    return sorted(missing)
