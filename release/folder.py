"""A release's folder: everything that a user needs, built of one commit, from the sources to the signature.

Called by `python3 -m release build`. Images are built by `image`; the rest is packed here. Of one commit, on one base,
all files but the signature are the same whenever they are built.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from release import home, manifests, provenance, signatures, vex
from release.changelog import ChangelogError, section
from release.layouts import RUNBOOKS, join_images, pack_chart, pack_folder
from release.manifests import IMAGE
from release.version import ROOT, Checkout, chart_version, image_tag, is_release

LOCKS = ("requirements.lock", "requirements-cluster.lock")
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?!https?:)(?P<path>[^)#]+)(?P<anchor>[^)]*)\)")


class ReleaseError(Exception):
    """The release cannot be built; the text names the missing part and the next step."""


class ImageFile(NamedTuple):
    """An image for one architecture: its OCI archive, and its bill of materials."""

    archive: Path
    bill: bytes


def check_sources(version: str, root: Path = ROOT, *, local: bool = False) -> None:
    """Check what the sources of a tagged release must have; other builds need none of it.

    Args:
        version: netdra's.
        root: the sources.
        local: the release is for its builder alone, and needs no home.

    Raises:
        ReleaseError: the changelog has no dated section of the version, or `release/home.toml` lacks values.
    """
    if not is_release(version):
        return
    try:
        section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    except ChangelogError as problem:
        raise ReleaseError(str(problem)) from None
    if not local and (missing := home.read(root).missing):
        raise ReleaseError(
            f"{home.FILE} lacks {', '.join(missing)}: fill in the project's home, or build with LOCAL=1 for yourself"
        )


def assemble(
    folder: Path,
    version: str,
    checkout: Checkout,
    epoch: int,
    images: Mapping[str, ImageFile],
    site: Path | None = None,
) -> None:
    """Write all files of a release but the signatures.

    Args:
        folder: is made again.
        version: netdra's.
        checkout: the commit that is built.
        epoch: its time, in seconds since 1970.
        images: by architecture.
        site: the folder of the documentation's site, which is packed if there is one.

    Raises:
        ReleaseError: a program failed.
    """
    address = home.read()
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
        pack_chart(chart, packed, chart_version(version), version, digest, epoch, address.page(RUNBOOKS))
    definitions = _netdra("crds")
    _write(folder / f"netdra-{version}-crds.yaml", definitions)
    _write(folder / "install.yaml", manifests.install(definitions, version, digest))
    (folder / f"netdra-{version}-json-schemas.tar.gz").write_bytes(manifests.json_schemas(definitions, epoch))
    _write(folder / f"netdra-{version}.openvex.json", vex.document(version, digest, epoch))
    if site is not None:
        pack_folder(site, folder / f"netdra-{version}-site.tar.gz", epoch)
    _write(folder / f"netdra-{version}-schemas.yaml", _schemas())
    shutil.copy(ROOT / "requirements-cluster.lock", folder)
    _write(folder / "NOTES.md", _notes(version, digest))
    subjects = {path.name: provenance.digest_of(path) for path in folder.iterdir()} | {
        IMAGE: digest.removeprefix("sha256:")
    }
    inputs = {name: provenance.digest_of(ROOT / name) for name in LOCKS}
    statement = provenance.statement(subjects, checkout, version, inputs, os.environ, address)
    _write(folder / provenance.FILE, json.dumps(statement, indent=1) + "\n")
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
    address = home.read()
    changes = linked(_changes(version), address)
    contact = f" Report vulnerabilities to {address.security}." if address.security else ""
    return f"""# netdra {version}

The image of this release, for amd64 and arm64, is `{digest}`; the chart runs it by this digest. How to verify and
install these files: docs/releases.md in the sources, and in the site's archive.{contact}

## Changes

{changes}
"""


def linked(text: str, address: home.Home) -> str:
    """A text outside of the sources: links to their files lead to the project's home, or are words without one."""

    def replaced(found: re.Match[str]) -> str:
        page = address.page(found["path"])
        return f"[{found['text']}]({page}{found['anchor']})" if page else found["text"]

    return _LINK.sub(replaced, text)


def _changes(version: str) -> str:
    """The section of a release; that of a build between releases, or of the last release if nothing has changed."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return section(text, version) if is_release(version) else section(text, "") or "None for users."


def _netdra(*arguments: str) -> str:
    return _run(sys.executable, "-m", "netdra", *arguments, environment=os.environ)


def _run(*command: str, environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"'{' '.join(command[1:5])} ...' ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
