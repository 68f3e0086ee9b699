"""A container image without a registry: busybox as an OCI image layout in one tar file.

Called by `testbed.containerd`, which imports it under `NAME`, for pods and for their sandboxes.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
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
    layer = _layer(Path(busybox))
    platform_of = {"architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux"}
    configuration = _json(
        {
            **platform_of,
            "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh", "-c", _SLEEP]},
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
    named = {"annotations": {"io.containerd.image.name": NAME}, "platform": platform_of}
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
