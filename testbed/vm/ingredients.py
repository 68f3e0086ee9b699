"""The parts of the machine: QEMU with the emulated SR-IOV NIC, a distribution kernel, and a few programs.

Installed here or unpacked into the cache, once; used by `testbed.vm.machine`. Debian 12 has a QEMU without that NIC and
an older kernel, so both come from its backports, on the mirror that the machine's own package sources name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.build import cache_root, locked
from testbed.system import APT

QEMU = "qemu-system-x86_64"
# Programs that only the guest has: unpacked, not installed, so that nothing of them ever runs on the host.
GUEST_PACKAGES = ("openvswitch-switch",)
_KERNEL_PACKAGE = re.compile(r"linux-image-(6\.12\.\d[\w.+]*-amd64)\Z")
_SOURCES = Path("/etc/apt/sources.list.d/netdra-backports.sources")
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class IngredientError(Exception):
    """A part of the machine is not available; the text names it, the command and the end of its output."""


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel: its release (`uname -r`), and the folder that it is unpacked in."""

    release: str
    root: Path

    @property
    def image(self) -> Path:
        """The kernel image that QEMU boots."""
        return self.root / "boot" / f"vmlinuz-{self.release}"

    @property
    def modules(self) -> Path:
        """The folder that is to be /lib/modules/RELEASE."""
        return self.root / "lib" / "modules" / self.release


@dataclass(frozen=True)
class Ingredients:
    """All that a boot needs from the machine that it runs on. `extras` is a root with programs for the guest alone."""

    qemu: Path
    busybox: Path
    modprobe: Path
    kernel: Kernel
    extras: Path


def ensure() -> Ingredients:
    """Install the missing parts, and return where everything is.

    Raises:
        IngredientError: a package is not available (not root, no mirror, no network), or is not the expected one.
    """
    extras = cache_root() / "vm-extras"
    if _missing() or _cached_kernel() is None or not extras.is_dir():
        with locked(APT):
            return _get(extras)
    return _get(extras)


def _missing() -> list[str]:
    present = {"qemu-system-x86": _has_nic(), "busybox-static": _program("busybox"), "kmod": _program("modprobe")}
    return [package for package, found in present.items() if not found]


def _get(extras: Path) -> Ingredients:
    missing, kernel = _missing(), _cached_kernel()
    if missing or kernel is None or not extras.is_dir():
        _add_backports()
    if missing:
        print(f"testbed: installing {' '.join(missing)} ...", file=sys.stderr, flush=True)
        _apt("install", "--no-install-recommends", "-t", f"{_codename()}-backports", *missing)
    if not _has_nic():
        raise IngredientError(f"{QEMU} has no device 'igb' (it came with QEMU 8.0): install a newer qemu-system-x86")
    return Ingredients(
        qemu=need(QEMU),
        busybox=need("busybox"),
        modprobe=need("modprobe"),
        kernel=kernel or _unpack_kernel(),
        extras=extras if extras.is_dir() else _unpack_extras(extras),
    )


def _cached_kernel() -> Kernel | None:
    """The newest kernel in the cache."""
    found = [folder.name.removeprefix("vm-linux-") for folder in cache_root().glob("vm-linux-*")]
    return _kernel(max(found, key=_version)) if found else None


def _kernel(release: str) -> Kernel:
    return Kernel(release, cache_root() / f"vm-linux-{release}")


def _unpack_kernel() -> Kernel:
    """Download the newest kernel of the series and unpack it into the cache, without installing it."""
    listed = run("apt-cache", "search", "--names-only", "^linux-image-6\\.12\\.").splitlines()
    releases = [match.group(1) for line in listed if (match := _KERNEL_PACKAGE.match(line.split(" ")[0]))]
    if not releases:
        raise IngredientError("the package sources have no linux-image-6.12.*-amd64")
    release = max(releases, key=_version)
    print(f"testbed: unpacking linux-image-{release} ...", file=sys.stderr, flush=True)
    with _unfinished() as folder:
        run("apt-get", "-q", "download", f"linux-image-{release}", cwd=folder)
        root = _unpack(folder)
        run("depmod", "--basedir", str(root), release)
        root.rename(cache_root() / f"vm-linux-{release}")
    return _kernel(release)


def _unpack_extras(target: Path) -> Path:
    """Download the guest's packages, with the dependencies that this system lacks, and unpack their programs."""
    print(f"testbed: unpacking {' '.join(GUEST_PACKAGES)} ...", file=sys.stderr, flush=True)
    with _unfinished() as folder:
        (folder / "partial").mkdir()
        archives = ("-o", f"Dir::Cache::archives={folder}")
        _apt("install", "--download-only", "--reinstall", "--no-install-recommends", *archives, *GUEST_PACKAGES)
        root = _unpack(folder)
        # In the guest this lies over the host's root, where /lib is a link: nothing but /usr may be there.
        for other in root.iterdir():
            if other.name != "usr":
                shutil.rmtree(other)
        root.rename(target)
    return target


@contextmanager
def _unfinished() -> Iterator[Path]:
    """A folder in the cache for unfinished files; it is always removed."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".vm-", dir=cache_root()) as folder:
        yield Path(folder)


def _unpack(folder: Path) -> Path:
    root = folder / "root"
    for package in folder.glob("*.deb"):
        run("dpkg-deb", "--extract", str(package), str(root))
    return root


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))


def _add_backports() -> None:
    """Name the backports beside the machine's own sources, on the mirror that these use, and read the lists again.

    Backports are never preferred by apt: what is there stays as it is until something asks for them by name.
    """
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise IngredientError("the SR-IOV machine needs packages that only root can install, on a system with apt")
    codename = _codename()
    targets = run("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages")
    mirrors = dict(line.split(" ", 1) for line in targets.splitlines())
    if f"{codename}-backports" not in mirrors:
        if codename not in mirrors:
            raise IngredientError(f"no package source of this machine has the release {codename!r}")
        signed = f"Signed-By: {_KEYRING}\n" if _KEYRING.exists() else ""
        text = f"Types: deb\nURIs: {mirrors[codename]}\nSuites: {codename}-backports\nComponents: main\n{signed}"
        _SOURCES.write_text(text)
    _apt("update")


def _codename() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    raise IngredientError("/etc/os-release names no release: the SR-IOV machine needs Debian 12 or newer")


def _has_nic() -> bool:
    qemu = _program(QEMU)
    return (
        qemu is not None
        and subprocess.run((qemu, "-device", "igb,help"), capture_output=True, check=False).returncode == 0
    )


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def need(name: str) -> Path:
    """The path of a program of this system.

    Raises:
        IngredientError: it is not installed.
    """
    path = _program(name)
    if path is None:
        raise IngredientError(f"{name} is not there, though its package is installed")
    return Path(path)


def _apt(verb: str, *arguments: str) -> None:
    run("apt-get", "-qy", verb, *arguments)


def run(*command: str, cwd: Path | None = None) -> str:
    """A command's output.

    Raises:
        IngredientError: it failed.
    """
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise IngredientError(f"'{' '.join(command)}' failed:\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout
