"""`python3 -m image`: build the image by buildah, on a base of this machine's own distribution packages.

Called by `make image`, `make test` and the tests that start real pods. No container registry is asked. The base and the
image are kept in the test bed's cache, each under what it is made of, so nothing is done where nothing changed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from image.rootfs import SBOM
from release.version import build_version, checkout_of, image_tag, tree_version
from testbed.build import cache_root, locked

ROOT = Path(__file__).parents[1]
INPUTS = (
    "Containerfile",
    ".dockerignore",
    "LICENSE",
    "README.md",
    "image/rootfs.py",
    "netdra",
    "pyproject.toml",
    "release/build_hook.py",
    "release/home.toml",
    "release/metadata_hook.py",
    "release/version.py",
    "requirements-cluster.lock",
)
"""What the image is made of."""
NAME = "localhost/netdra"
OUTPUT = ROOT / "build" / "image"
MAX_COMPRESSED = 55_000_000
"""Bytes: what a node has to fetch."""

ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
"""What images and Debian call an architecture: what the kernel and Python call it."""
MACHINE = next((name for name, kernels in ARCHITECTURES.items() if kernels == platform.machine()), platform.machine())
"""This machine's."""

_PACKAGES = ("base-files", "coreutils", "dash", "libstdc++6", "python3", "python3-venv")
_RECIPE = 1
"""One more whenever the base is made in another way."""
_KEPT = 8
_SYSTEM = "install them by 'python3 -m testbed system'"


class ImageError(Exception):
    """The image cannot be built; the text states the missing part, or has the end of a program's output."""


class Revision(NamedTuple):
    """Where the sources come from: their last commit, and its time; and the version that netdra has of it."""

    commit: str
    epoch: int
    version: str


class Built(NamedTuple):
    """An image.

    Attributes:
        name: what it is called in its archive.
        archive: it, as an OCI archive.
        size: the bytes of its compressed layers.
        identity: the digest of its configuration, which is what an image's id is.
        version: netdra's version in it.
    """

    name: str
    archive: Path
    size: int
    identity: str
    version: str


def main() -> int:
    """Parse the arguments, build, and return the exit code."""
    parser = argparse.ArgumentParser(prog="image", description="Build netdra's image into build/image.")
    parser.add_argument("--prepare", action="store_true", help="only have it in the cache, for the tests")
    parser.add_argument("--architecture", choices=ARCHITECTURES, default=MACHINE, help="this machine's by default")
    arguments = parser.parse_args()
    try:
        built = build(architecture=arguments.architecture)
        if arguments.prepare:
            return 0
        OUTPUT.mkdir(parents=True, exist_ok=True)
        stem = f"netdra-{tree_version()}" + (f"-{arguments.architecture}" if arguments.architecture != MACHINE else "")
        archive = OUTPUT / f"{stem}.oci.tar"
        shutil.copy(built.archive, archive)
        bill = OUTPUT / f"{stem}.cdx.json"
        bill.write_bytes(read(built.archive, SBOM))
    except ImageError as problem:
        print(f"image: {problem}", file=sys.stderr)
        return 1
    print(f"{archive.relative_to(ROOT)}: {built.name}, {built.identity}, netdra {built.version}")
    print(f"{bill.relative_to(ROOT)}: its bill of materials")
    print(f"{built.size / 1e6:.1f} MB compressed (at most {MAX_COMPRESSED / 1e6:.0f})")
    return 0 if built.size <= MAX_COMPRESSED else 1


def build(*, anew: bool = False, architecture: str = MACHINE, revision: Revision | None = None) -> Built:
    """The image of these sources, from the cache if it is there.

    Args:
        again: build it even if it is there.
        architecture: one of `ARCHITECTURES`; none of its programs runs while the image is built.
        revision: what the image reports that it is made of, and its tag is then the version. Without one, it is the
            last commit that changed what the image is made of, so that other commits need no new image, and the tag is
            the version that the sources name, which the chart of the sources asks for.

    Raises:
        ImageError: it cannot be built.
    """
    tag = image_tag(revision.version) if revision else tree_version()
    revision = revision or _revision()
    base = _base_key(architecture)
    key = _digest([base, *revision, tag, *_inputs()])
    archive, name = cache_root() / "image" / f"{key}.oci.tar", f"{NAME}:{tag}"
    if anew or not archive.exists():
        with locked("image"):
            if anew or not archive.exists():  # another run may have built it meanwhile
                _build_into(archive, name, _Base(base, architecture), revision)
    archive.touch()
    manifest = _manifest(archive)
    size = sum(layer["size"] for layer in manifest["layers"])
    return Built(name, archive, size, manifest["config"]["digest"], revision.version)


def read(archive: Path, path: str) -> bytes:
    """The content of a file of an image.

    Raises:
        KeyError: none exists.
    """
    for layer in reversed(_manifest(archive)["layers"]):
        with tarfile.open(archive) as outer, tarfile.open(fileobj=outer.extractfile(_blob(layer))) as inner:
            if path in inner.getnames() and (content := inner.extractfile(path)):
                return content.read()
    raise KeyError(path)


def names(archive: Path) -> Mapping[str, tarfile.TarInfo]:
    """All that is in an image, by its path."""
    found: dict[str, tarfile.TarInfo] = {}
    for layer in _manifest(archive)["layers"]:
        with tarfile.open(archive) as outer, tarfile.open(fileobj=outer.extractfile(_blob(layer))) as inner:
            found |= {member.name.removeprefix("./"): member for member in inner}
    return found


def configuration(archive: Path) -> Mapping[str, Any]:
    """An image's configuration."""
    return _document(archive, _manifest(archive)["config"])


def _manifest(archive: Path) -> Mapping[str, Any]:
    return _document(archive, _document(archive, "index.json")["manifests"][0])


def _document(archive: Path, what: str | Mapping[str, str]) -> Mapping[str, Any]:
    with tarfile.open(archive) as outer, outer.extractfile(what if isinstance(what, str) else _blob(what)) as content:  # type: ignore[union-attr]
        found: Mapping[str, Any] = json.load(content)
    return found


def _blob(descriptor: Mapping[str, str]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


class _Base(NamedTuple):
    """The packages that an image stands on: what they are kept under, and whose machine code they are."""

    key: str
    architecture: str


def _build_into(archive: Path, name: str, base: _Base, revision: Revision) -> None:
    """Build the image into the cache, and remove the oldest ones there."""
    started = time.monotonic()
    _check_programs()
    folder = archive.parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as temporary:
        made = Path(temporary) / "image.tar"
        _build(name, base, revision, made)
        made.rename(archive)
    for old in sorted(folder.glob("*.oci.tar"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        old.unlink()
        old.with_suffix(".reproduced").unlink(missing_ok=True)
    _say(f"built in {time.monotonic() - started:.0f} s")


def _build(name: str, base: _Base, revision: Revision, archive: Path) -> None:
    created = datetime.fromtimestamp(revision.epoch, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    arguments = {
        "BUILD": _base(_Base(_base_key(MACHINE), MACHINE)),
        "BASE": _base(base),
        "BUILDPLATFORM": f"linux/{MACHINE}",
        "BUILDARCH": MACHINE,
        "SOURCE_DATE_EPOCH": str(revision.epoch),
        "VERSION": revision.version,
        "REVISION": revision.commit,
        "CREATED": created,
    }
    with tempfile.TemporaryDirectory() as folder:
        _say("netdra and its packages ...")
        _buildah(
            "bud",
            "--isolation=chroot",
            "--layers=false",
            f"--timestamp={revision.epoch}",
            f"--platform=linux/{base.architecture}",
            *_secrets(Path(folder)),
            *(f"--build-arg={key}={value}" for key, value in arguments.items()),
            f"--file={ROOT / 'Containerfile'}",
            f"--tag={name}",
            str(ROOT),
        )
    _say("packing ...")
    _buildah("push", "--quiet", name, f"oci-archive:{archive}:{name}")
    _buildah("rmi", "--force", name)


def _secrets(folder: Path) -> Iterator[str]:
    """How pip finds its index here, and whom it trusts: nothing of it gets into the image."""
    authorities = os.environ.get("PIP_CERT") or "/etc/ssl/certs/ca-certificates.crt"
    lines = ["[global]"]
    if Path(authorities).exists():
        lines.append("cert = /run/secrets/ca")
        yield f"--secret=id=ca,src={authorities}"
    listed = subprocess.run(
        (sys.executable, "-m", "pip", "config", "list"), capture_output=True, text=True, check=False
    ).stdout
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        option = name.rpartition(".")[2]
        if option in {"index-url", "extra-index-url", "trusted-host", "proxy", "timeout"}:
            lines.append(f"{option} = {value.strip(chr(39))}")
    (folder / "pip.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    yield f"--secret=id=pip,src={folder / 'pip.conf'}"


def _base(base: _Base) -> str:
    """The name of the base in buildah's storage; it is made if it is not there."""
    repository = f"localhost/netdra-base-{base.architecture}"
    name = f"{repository}:{base.key}"
    if _buildah("images", "--quiet", "--filter", f"reference={name}").strip():
        return name
    for old in _buildah("images", "--quiet", "--filter", f"reference={repository}").split():
        _buildah("rmi", "--force", old)
    _say(f"a base of {_release()['PRETTY_NAME']}'s packages for {base.architecture} ...")
    with tempfile.TemporaryDirectory(prefix="netdra-base-") as folder:
        root = Path(folder) / "root"
        _extract(Path(folder), root, base.architecture)
        _write_database(root)
        container = _buildah("from", f"--platform=linux/{base.architecture}", "scratch").strip()
        _buildah("copy", "--quiet", container, str(root), "/")
        _buildah("commit", "--quiet", "--rm", container, name)
    return name


def _extract(folder: Path, root: Path, architecture: str) -> None:
    """Unpack Debian packages and their dependencies, and run none of their scripts."""
    sources = []
    for ending, text in _sources().items():
        if text:
            (folder / f"apt{ending}").write_text(text, encoding="utf-8")
            sources.append(str(folder / f"apt{ending}"))
    _run(
        "mmdebstrap",
        "--quiet",
        "--variant=extract",
        "--format=directory",
        f"--architectures={architecture}",
        "--skip=cleanup/apt",
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        f"--include={','.join(_PACKAGES)}",
        _release()["VERSION_CODENAME"],
        str(root),
        *sources,
    )


def _write_database(root: Path) -> None:
    """Record the unpacked packages as dpkg would, so that files can be traced to packages; remove the downloads."""
    database = root / "var/lib/dpkg"
    (database / "info").mkdir(parents=True, exist_ok=True)
    status = []
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        control = _run("dpkg-deb", "--field", str(package))
        name = _run("dpkg-deb", "--field", str(package), "Package").strip()
        status.append(f"{control.rstrip()}\nStatus: install ok unpacked\n")
        command = ("dpkg-deb", "--fsys-tarfile", str(package))
        content = io.BytesIO(subprocess.run(command, capture_output=True, check=True).stdout)
        with tarfile.open(fileobj=content) as archive:
            paths = [member.name.removeprefix(".") for member in archive]
        (database / "info" / f"{name}.list").write_text("\n".join(paths) + "\n", encoding="utf-8")
    (database / "status").write_text("\n".join(status), encoding="utf-8")
    shutil.rmtree(root / "var/cache/apt")
    shutil.rmtree(root / "var/lib/apt")


def _sources() -> Mapping[str, str]:
    """This machine's apt sources of its distribution's own suites, in either form."""
    suite = _release()["VERSION_CODENAME"]
    suites = {suite, f"{suite}-updates", f"{suite}-security"}
    lines, stanzas = [], []
    folder = Path("/etc/apt/sources.list.d")
    for file in (Path("/etc/apt/sources.list"), *sorted(folder.glob("*.list"))):
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        lines += [line for line in text.splitlines() if line.startswith("deb ") and suites & {*line.split()}]
    for file in sorted(folder.glob("*.sources")):
        for stanza in file.read_text(encoding="utf-8").split("\n\n"):
            named = [line.split()[1:] for line in stanza.splitlines() if line.lower().startswith("suites:")]
            if any(suites & {*words} for words in named):
                stanzas.append(stanza)
    if not lines and not stanzas:
        raise ImageError(f"/etc/apt has no source of {suite}, this machine's distribution: see sources.list(5)")
    return {".list": "".join(f"{line}\n" for line in lines), ".sources": "\n\n".join(stanzas)}


def _base_key(architecture: str) -> str:
    """The content of the base: the packages that apt would install now, if it knows any."""
    try:
        policy = _run("apt-cache", "policy", *_PACKAGES, "libc6", "openssl", "libpython3-stdlib")
    except ImageError:
        policy = ""
    candidates = [line for line in policy.splitlines() if "Candidate:" in line]
    release = _release()
    return _digest([_RECIPE, *_PACKAGES, release.get("VERSION_CODENAME"), architecture, *candidates])[:16]


def _release() -> Mapping[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError as problem:
        raise ImageError(f"this machine's distribution is not known: {problem}") from None


def _revision() -> Revision:
    """The last commit that changed what the image is made of; none where this is not a checkout."""
    command = ("git", "-C", str(ROOT), "log", "-1", "--format=%H %ct", "--", *INPUTS)
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    commit, epoch = told if len(told) == 2 else ("", "0")
    version = build_version(tree_version(), checkout_of(ROOT, commit, INPUTS) if commit else None)
    changed = ("git", "-C", str(ROOT), "status", "--porcelain", "--", *INPUTS)
    if commit and subprocess.run(changed, capture_output=True, text=True, check=False).stdout:
        commit += "-dirty"
    return Revision(commit, int(os.environ.get("SOURCE_DATE_EPOCH") or epoch), version)


def _inputs() -> Iterator[str]:
    """The inputs of the image, name and content, in one order."""
    for name in INPUTS:
        top = ROOT / name
        for file in [top] if top.is_file() else sorted(top.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"{file.relative_to(ROOT)} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def _digest(content: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps([str(each) for each in content]).encode()).hexdigest()[:32]


def _check_programs() -> None:
    missing = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
    if missing:
        raise ImageError(f"{' and '.join(missing)} not installed: {_SYSTEM}")
    if os.geteuid() != 0:
        raise ImageError("making a base of packages needs root; docs/image.md describes the build on a public base")


def _buildah(*arguments: str) -> str:
    """Run buildah with a storage of its own."""
    storage = cache_root() / "image-storage"
    policy = storage / "policy.json"
    if not policy.exists():
        storage.mkdir(parents=True, exist_ok=True)
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}\n', encoding="utf-8")
    options = (f"--root={storage / 'root'}", f"--runroot={storage / 'run'}", "--storage-driver=vfs")
    trusting = (f"--signature-policy={policy}",) if arguments[0] in {"bud", "push", "commit", "from"} else ()
    return _run("buildah", *options, arguments[0], *trusting, *arguments[1:])


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise ImageError(f"'{Path(command[0]).name} {' '.join(command[1:4])} ...' ended with {done.returncode}:\n{end}")
    return done.stdout


def _say(text: str) -> None:
    print(f"image: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
