"""A release's folder: everything that a user needs, built of one commit, from the sources to the signature.

Called by `python3 -m release build`. Images are built by `image`; the rest is packed here. Of one commit, on one base,
all files but the signature are the same whenever they are built.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from release import provenance, signatures
from release.changelog import ChangelogError, section
from release.layouts import join_images, pack_chart
from release.version import ROOT, Checkout, chart_version, image_tag, is_release

IMAGE = "localhost/netdra"
PLACEHOLDER = "netdra.example"
"""The project's address as long as it has none."""
LOCKS = ("requirements.lock", "requirements-cluster.lock")
SIGNERS = ROOT / "release" / "allowed_signers"
ADDRESSED = (
    "pyproject.toml",
    "SECURITY.md",
    "release/provenance.py",
    ".github/ISSUE_TEMPLATE/config.yml",
    "charts/netdra/README.md",
    "charts/netdra/values.schema.json",
    "charts/netdra/values.yaml",
)
"""The files with the project's addresses."""


class ReleaseError(Exception):
    """The release cannot be built; the text names the missing part and the next step."""


class ImageFile(NamedTuple):
    """An image for one architecture: its OCI archive, and its bill of materials."""

    archive: Path
    bill: bytes


def check_sources(version: str, root: Path = ROOT) -> None:
    """Check what the sources of a tagged release must have; other builds need none of it.

    Raises:
        ReleaseError: the changelog has no dated section of the version, an address is a placeholder, or no
            key is known.
    """
    if not is_release(version):
        return
    try:
        section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    except ChangelogError as problem:
        raise ReleaseError(str(problem)) from None
    for name in ADDRESSED:
        if PLACEHOLDER in (root / name).read_text(encoding="utf-8"):
            raise ReleaseError(f"{name}: {PLACEHOLDER} is a placeholder; write the project's own address")
    keys = (root / SIGNERS.relative_to(ROOT)).read_text(encoding="utf-8").splitlines()
    if all(not line.strip() or line.startswith("#") for line in keys):
        raise ReleaseError(f"{SIGNERS.relative_to(ROOT)}: no key; write the public key that signs releases")


def assemble(folder: Path, version: str, checkout: Checkout, epoch: int, images: Mapping[str, ImageFile]) -> None:
    """Write all files of a release but the signature.

    Args:
        folder: is made again.
        version: netdra's.
        checkout: the commit that is built.
        epoch: its time, in seconds since 1970.
        images: by architecture.

    Raises:
        ReleaseError: a program failed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _build_packages(folder, version, epoch)
    archives = {architecture: image.archive for architecture, image in images.items()}
    labels = {"org.opencontainers.image.version": version, "org.opencontainers.image.revision": checkout.commit}
    digest = join_images(archives, folder / f"netdra-{version}.oci.tar", f"{IMAGE}:{image_tag(version)}", labels)
    for architecture, image in images.items():
        (folder / f"netdra-{version}-{architecture}.cdx.json").write_bytes(image.bill)
    for chart in sorted(path.parent for path in (ROOT / "charts").glob("*/Chart.yaml")):
        packed = folder / f"{chart.name}-{chart_version(version)}.tgz"
        pack_chart(chart, packed, chart_version(version), version, digest, epoch)
    _write(folder / f"netdra-{version}-crds.yaml", _netdra("crds"))
    _write(folder / f"netdra-{version}-schemas.yaml", _schemas())
    shutil.copy(ROOT / "requirements-cluster.lock", folder)
    _write(folder / "NOTES.md", _notes(version, digest))
    subjects = {path.name: _sha256(path) for path in folder.iterdir()} | {IMAGE: digest.removeprefix("sha256:")}
    inputs = {name: _sha256(ROOT / name) for name in LOCKS}
    statement = provenance.statement(subjects, checkout, version, inputs, os.environ)
    _write(folder / "provenance.json", json.dumps(statement, indent=1) + "\n")
    signatures.write_sums(folder)


def _build_packages(folder: Path, version: str, epoch: int) -> None:
    """The wheel and the sdist, of the same version as everything else."""
    environment = os.environ | {"NETDRA_VERSION": version, "SOURCE_DATE_EPOCH": str(epoch)}
    _run(sys.executable, "-m", "hatchling", "build", "--directory", str(folder), environment=environment)


def _schemas() -> str:
    """Netdra's own plugin schemas, as objects that a cluster may have in other forms."""
    types = [entry["spec"]["cniType"] for entry in json.loads(_netdra("schemas", "--output=json"))["items"]]
    return _netdra("schemas", "--output=yaml", *types)


def _notes(version: str, digest: str) -> str:
    """The release notes: the changes, and the image's name by its content."""
    changes = section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version if is_release(version) else "")
    return f"""# netdra {version}

The image of this release, for amd64 and arm64, is `{digest}`; the chart runs it by this digest. How to verify and
install these files: docs/releases.md in the sources.

## Changes

{changes}
"""


def _netdra(*arguments: str) -> str:
    return _run(sys.executable, "-m", "netdra", *arguments, environment=os.environ)


def _run(*command: str, environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"'{' '.join(command[1:5])} ...' ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
