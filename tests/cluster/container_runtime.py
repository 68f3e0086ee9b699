"""A real containerd without a kubelet, whose sandboxes a test begins, stops and removes as a kubelet would, by CRI.

It runs in a network namespace of its own, so that the pods' first interfaces leave nothing on the machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.build import program
from testbed.process import Process

IMAGE = "test.invalid/sleeper:1"
_SLEEPER = {"Entrypoint": ["/bin/busybox", "sleep", "2147483647"]}
_CONFIG = """
version = 4
root = "{folder}/root"
state = "{folder}/state"
[plugins.'io.containerd.server.v1.grpc']
  address = "{folder}/cri.sock"
[plugins.'io.containerd.server.v1.ttrpc']
  address = "{folder}/ttrpc.sock"
[plugins.'io.containerd.nri.v1.nri']
  socket_path = "{folder}/nri.sock"
  plugin_path = "{folder}/plugins"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "native"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{image}"
[plugins.'io.containerd.cri.v1.runtime']
  # runc could not lower it on a machine without CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "{folder}/net.d"
"""


class ContainerRuntime:
    """A containerd.

    Attributes:
        process: to stop, start and pause it.
        nri_socket: where plugins connect.
        launched: the folder of the plugins that it starts itself, when it starts.
    """

    def __init__(self, folder: Path) -> None:
        """Write its configuration; `open_runtime` starts it."""
        self._folder = folder
        self.nri_socket = folder / "nri.sock"
        self.launched = folder / "plugins"
        self.launched.mkdir()
        (folder / "net.d").mkdir()
        network = {"type": "ptp", "ipam": {"type": "host-local", "subnet": "192.0.2.0/24", "dataDir": f"{folder}/ipam"}}
        conflist = {"cniVersion": "1.0.0", "name": "first", "plugins": [network]}
        (folder / "net.d" / "10-first.conflist").write_text(json.dumps(conflist))
        (folder / "config.toml").write_text(
            _CONFIG.format(folder=folder, image=IMAGE, plugins=program("ptp").parent), encoding="ascii"
        )
        containerd = program("containerd")
        self.process = Process(
            "containerd",
            ["unshare", "--net", str(containerd), "--config", str(folder / "config.toml")],
            folder / "containerd.log",
            self._serves,
            {"PATH": f"{containerd.parent}:/usr/sbin:/usr/bin:/sbin:/bin"},
        )

    def begin(self, pod: str, *, host_network: bool = False, namespace: str = "ns", uid: str = "") -> str:
        """Run a pod's sandbox; returns its id.

        Raises:
            RefusedSandboxError: it was refused.
        """
        options = {"network": 2 if host_network else 0}
        metadata = {"name": pod, "namespace": namespace, "uid": uid or f"uid-{pod}", "attempt": 0}
        config = {"metadata": metadata, "linux": {"security_context": {"namespace_options": options}}}
        file = self._folder / f"{pod}.json"
        file.write_text(json.dumps(config))
        done = self._crictl("runp", str(file))
        if done.returncode:
            raise RefusedSandboxError(done.stderr)
        return done.stdout.strip()

    def stop(self, sandbox: str) -> None:
        """Stop a sandbox's containers and take down its network."""
        self._crictl("stopp", sandbox).check_returncode()

    def remove(self, sandbox: str) -> None:
        """Remove a sandbox that has stopped."""
        self._crictl("rmp", sandbox).check_returncode()

    def remove_all(self) -> None:
        """Stop and remove all sandboxes."""
        self._crictl("rmp", "--all", "--force").check_returncode()

    def log(self) -> str:
        """What it has logged."""
        return (self._folder / "containerd.log").read_text(errors="replace")

    def import_image(self) -> None:
        """Give it the one image that all sandboxes are made of."""
        tar = self._folder / "image.tar"
        _write_image(tar)
        self._ctr(
            "--namespace=k8s.io", "images", "import", "--local", "--snapshotter=native", str(tar)
        ).check_returncode()

    def _serves(self) -> bool:
        return self._crictl("version").returncode == 0 and self.nri_socket.exists()

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(program("ctr")), f"--address={self._folder}/cri.sock", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _crictl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [
            str(program("crictl")),
            f"--runtime-endpoint=unix://{self._folder}/cri.sock",
            "--timeout=60s",
            *arguments,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False)


class RefusedSandboxError(Exception):
    """The runtime refused a sandbox; the text is what it told the kubelet."""


@contextmanager
def open_runtime() -> Iterator[ContainerRuntime]:
    """A containerd that runs and has its image; its sandboxes go with it."""
    # The names of sockets have 107 bytes at most, which pytest's folders use up.
    folder = Path(tempfile.mkdtemp(prefix="netdra-cri-"))
    runtime = ContainerRuntime(folder)
    try:
        runtime.process.start()
        runtime.process.wait_ready()
        runtime.import_image()
        yield runtime
    finally:
        if runtime.process.pid is None:
            runtime.process.start()
            runtime.process.wait_ready()
        runtime.remove_all()
        runtime.process.stop()
        shutil.rmtree(folder)


def _write_image(path: Path) -> None:
    """An OCI image of busybox that sleeps."""
    layer = io.BytesIO()
    busybox = shutil.which("busybox")
    assert busybox is not None
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(busybox, "bin/busybox")
    blobs: dict[str, bytes] = {}

    def keep(kind: str, content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

    files = keep("layer.v1.tar", layer.getvalue())
    system = {"architecture": "amd64", "os": "linux", "config": _SLEEPER}
    config = keep(
        "config.v1+json",
        json.dumps({**system, "rootfs": {"type": "layers", "diff_ids": [files["digest"]]}}).encode(),
    )
    manifest = keep("manifest.v1+json", json.dumps({"schemaVersion": 2, "config": config, "layers": [files]}).encode())
    named = {**manifest, "annotations": {"io.containerd.image.name": IMAGE}}
    blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [named]}).encode()
    blobs["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    with tarfile.open(path, "w") as tar:
        for name, content in blobs.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
