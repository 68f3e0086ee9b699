"""Packed charts, and an image of all architectures: the same bytes whenever they are built of the same commit.

Called by `release.folder`. Nothing is run: a chart is a folder in a compressed tar, and an image for several
architectures is an index beside the images (https://github.com/opencontainers/image-spec/blob/main/image-index.md).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DIGEST_ANNOTATION = "networking.dra.io/image-digest"
"""What the chart of a release says of the image that it runs."""

RUNBOOKS = "docs/alerts.md"
"""The page of the alerts' runbooks, and the chart's default for its address."""

_INDEX = "application/vnd.oci.image.index.v1+json"
_NAME = "org.opencontainers.image.ref.name"
_CONTAINERD_NAME = "io.containerd.image.name"


def pack_chart(
    folder: Path, target: Path, version: str, app_version: str, digest: str, epoch: int, runbooks: str = ""
) -> None:
    """Pack a chart as `helm package` does, with the versions of the build and the image that it runs.

    Args:
        folder: the chart.
        target: the file that is written.
        version: the chart's, as semantic versioning has it.
        app_version: netdra's.
        digest: the image's, `sha256:...`.
        epoch: the time of all files, in seconds since 1970.
        runbooks: the address of the alerts' runbooks, if the project has one.
    """
    files = {file.relative_to(folder): file.read_bytes() for file in _files(folder) if file.name != ".helmignore"}
    chart = Path("Chart.yaml")
    files[chart] = _chart_of_release(files[chart].decode(), version, app_version, digest).encode()
    if runbooks:
        for name in {Path("values.yaml"), Path("values.schema.json"), Path("README.md")} & files.keys():
            files[name] = files[name].replace(RUNBOOKS.encode(), runbooks.encode())
    _pack(files, folder.name, target, epoch)


def pack_folder(folder: Path, target: Path, epoch: int) -> None:
    """Pack a folder with all of its files but hidden ones, under the archive's own name."""
    paths = {file.relative_to(folder) for file in _files(folder)}
    files = {path: (folder / path).read_bytes() for path in paths if not path.parts[0].startswith(".")}
    _pack(files, target.name.removesuffix(".tar.gz"), target, epoch)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _pack(files: Mapping[Path, bytes], top: str, target: Path, epoch: int) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted(files.items()):
            member = tarfile.TarInfo(f"{top}/{path}")
            member.size, member.mtime, member.mode = len(content), epoch, 0o644
            archive.addfile(member, io.BytesIO(content))
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


def _chart_of_release(text: str, version: str, app_version: str, digest: str) -> str:
    for key, value in (("version", version), ("appVersion", app_version)):
        text, count = re.subn(rf"^{key}: .*$", f'{key}: "{value}"', text, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f'Chart.yaml: "{key}:" must be there once, but is there {count} times')
    return f"{text}annotations:\n  {DIGEST_ANNOTATION}: {digest}\n"


def join_images(images: Mapping[str, Path], target: Path, name: str, annotations: Mapping[str, str]) -> str:
    """Write one OCI archive with an index of images, and return the digest of the index.

    Args:
        images: an OCI archive with one image for each architecture.
        target: the archive that is written.
        name: the image's name and tag, `localhost/netdra:0.2.0`.
        annotations: of the index.
    """
    blobs: dict[str, bytes] = {}
    manifests = []
    for architecture, path in sorted(images.items()):
        files = _read(path)
        (descriptor,) = json.loads(files["index.json"])["manifests"]
        platform = {"architecture": architecture, "os": "linux"}
        manifests.append({key: descriptor[key] for key in ("mediaType", "digest", "size")} | {"platform": platform})
        blobs |= {where: content for where, content in files.items() if where.startswith("blobs/")}
    index = _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests, "annotations": dict(annotations)})
    digest = hashlib.sha256(index).hexdigest()
    blobs[f"blobs/sha256/{digest}"] = index
    names = {_NAME: name.rpartition(":")[2], _CONTAINERD_NAME: name}
    top = {"mediaType": _INDEX, "digest": f"sha256:{digest}", "size": len(index), "annotations": names}
    layout = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"})}
    layout["index.json"] = _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [top]})
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for where, content in (layout | dict(sorted(blobs.items()))).items():
            member = tarfile.TarInfo(where)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return f"sha256:{digest}"


def _read(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as layout:
        opened = {member.name.removeprefix("./"): layout.extractfile(member) for member in layout if member.isfile()}
        return {name: file.read() for name, file in opened.items() if file is not None}


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
