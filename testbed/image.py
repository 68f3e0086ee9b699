"""Container images without a registry, as OCI image layouts in one tar file: busybox, and images that only hold files.

Called by `testbed.containerd`, which imports busybox under `NAME`, for pods and for their sandboxes; and by tests, for
images that CNI plugins come in.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

NAME = "testbed.local/busybox:1"

_MEDIA = "application/vnd.oci.image"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Sleeps until it is asked to end. The first process of a container gets no signal that it has no handler for.
_SLEEP = "trap exit TERM; sleep 1000000 & wait"


def write_image(path: Path) -> None:
    """Write the image as `ctr images import` takes it.

    Raises:
        FileNotFoundError: busybox is not installed.
    """
    busybox = shutil.which("busybox")
    if busybox is None:
        raise FileNotFoundError("busybox (Debian's busybox-static) is not installed: run 'python3 -m testbed system'")
    configuration = {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh", "-c", _SLEEP]}
    _write(path, NAME, _layer(Path(busybox)), configuration)


def write_files_image(path: Path, name: str, files: Mapping[str, bytes]) -> None:
    """Write an image that holds files and nothing else, as one that is built FROM scratch: no shell, no libraries.

    Args:
        path: where to write it.
        name: the image's name.
        files: what it holds, by absolute path; all of it may be executed.
    """
    members = [(_file(place.removeprefix("/"), len(content), 0o755), content) for place, content in files.items()]
    _write(path, name, _tar(members), {})


def _write(path: Path, name: str, layer: bytes, configured: Mapping[str, Any]) -> None:
    platform_of = {"architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux"}
    configuration = _json(
        {
            **platform_of,
            "config": dict(configured),
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": _descriptor("config.v1+json", configuration),
            "layers": [_descriptor("layer.v1.tar", layer)],
        }
    )
    named = {"annotations": {"io.containerd.image.name": name}, "platform": platform_of}
    index = _json({"schemaVersion": 2, "manifests": [_descriptor("manifest.v1+json", manifest) | named]})
    blobs = {f"blobs/sha256/{_digest(blob).partition(':')[2]}": blob for blob in (layer, configuration, manifest)}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": index, **blobs}
    path.write_bytes(_tar((_file(name, len(content)), content) for name, content in files.items()))


def _layer(busybox: Path) -> bytes:
    program = busybox.read_bytes()
    applets = subprocess.run((str(busybox), "--list"), capture_output=True, text=True, check=True).stdout.split()
    links = [(_link(f"bin/{applet}", "busybox"), b"") for applet in applets if applet != "busybox"]
    folders = [(_folder(name), b"") for name in ("bin", "dev", "etc", "proc", "sys", "tmp")]
    return _tar([*folders, (_file("bin/busybox", len(program), 0o755), program), *links])


def _tar(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for member, content in members:
            archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


def _file(name: str, size: int, mode: int = 0o644) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, mode
    return member


def _folder(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, 0o755
    return member


def _link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


def _descriptor(media: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": f"{_MEDIA}.{media}", "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()
