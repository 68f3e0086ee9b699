"""A real containerd on a node, with NRI and CDI, of the version that the environment names.

Started by `testbed.runtimes`. Its configuration is its version's: users of 1.7 have to switch NRI and CDI on.
"""

from __future__ import annotations

import json
from pathlib import Path

from testbed.build import component_of, program
from testbed.image import NAME, write_image
from testbed.node import Node
from testbed.runtime import CDI_FOLDER, CNI_FOLDER, NRI_SOCKET, Runtime, cni_plugins

_CONFIGURATION = "/run/containerd/config.toml"
_FIRST_OF_2, _SINCE_BIN_DIRS = (2, 0), (2, 1)
# Of snapshotters and the like that nothing here uses, and that take their time to find out that they cannot work.
_UNUSED = tuple(
    f"io.containerd.{plugin}"
    for plugin in (
        "snapshotter.v1.blockfile",
        "snapshotter.v1.btrfs",
        "snapshotter.v1.devmapper",
        "snapshotter.v1.erofs",
        "snapshotter.v1.zfs",
        "tracing.processor.v1.otlp",
        "internal.v1.tracing",
    )
)


class Containerd(Runtime):
    """The containerd of a node."""

    name = "containerd"
    socket = "/run/containerd/containerd.sock"

    def __init__(self, node: Node, *, hook_seconds: float = 0.0) -> None:
        """Start it, with the image imported.

        Args:
            node: where.
            hook_seconds: how long it waits for an NRI plugin, 0 for its default.

        Raises:
            ProcessError: it did not become ready.
            BuildError: it is not built.
        """
        super().__init__(node)
        own = node.folder / "run" / "containerd"
        own.mkdir(exist_ok=True)
        (own / "config.toml").write_text(_configuration(hook_seconds, overlay=_can_overlay(own)))
        # It finds its shim, and the shim finds runc, by the PATH.
        path = f"{program('containerd').parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        command = (str(program("containerd")), f"--config={_CONFIGURATION}")
        self.process = node.start("runtime", command, self.answers(), {"PATH": path})
        archive = node.folder / "image.tar"
        write_image(archive)
        self.ctr("--namespace=k8s.io", "images", "import", "--local", str(archive))

    def ctr(self, *arguments: str) -> str:
        """Run ctr, and return what it printed.

        Raises:
            CommandError: it failed.
        """
        return self.node.run(str(program("ctr")), f"--address={self.socket}", *arguments)


def _version() -> tuple[int, int]:
    first, second = component_of("containerd").minor.split(".")
    return int(first), int(second)


def _can_overlay(folder: Path) -> bool:
    """Whether a folder is on no overlay itself, on which the kernel puts no other."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    over = [(place, kind) for _, place, kind, *_ in mounts if folder.is_relative_to(place)]
    return max(over, key=lambda mount: len(mount[0]))[1] != "overlay"


def _configuration(hook_seconds: float, *, overlay: bool) -> str:
    """The configuration file: what differs from the defaults."""
    timeout = f'plugin_request_timeout = "{hook_seconds:g}s"' if hook_seconds else ""
    snapshotter = "overlayfs" if overlay else "native"
    return f"""{_cri_of_2(snapshotter) if _version() >= _FIRST_OF_2 else _cri_of_1(snapshotter)}

[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = "{NRI_SOCKET}"
plugin_path = "/run/nri/plugins"
plugin_config_path = "/run/nri/conf.d"
{timeout}
"""


def _cri_of_2(snapshotter: str) -> str:
    bin_dirs = f'bin_dirs = ["{cni_plugins()}"]' if _version() >= _SINCE_BIN_DIRS else f'bin_dir = "{cni_plugins()}"'
    return f"""version = 3
disabled_plugins = {json.dumps(_UNUSED)}

[plugins."io.containerd.cri.v1.images"]
# native copies an image for each container instead of mounting it: 270 files of busybox, and more of others.
snapshotter = "{snapshotter}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{NAME}"

[plugins."io.containerd.cri.v1.runtime"]
cdi_spec_dirs = ["{CDI_FOLDER}"]
# Where lowering the score is not allowed, runc ends without a reason.
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
{bin_dirs}
conf_dir = "{CNI_FOLDER}"
"""


def _cri_of_1(snapshotter: str) -> str:
    return f"""version = 2
disabled_plugins = {json.dumps(_UNUSED)}

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{NAME}"
enable_cdi = true
cdi_spec_dirs = ["{CDI_FOLDER}"]
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni_plugins()}"
conf_dir = "{CNI_FOLDER}"
"""
