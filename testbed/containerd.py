"""A real containerd on a node, with NRI and CDI, a network for eth0, and pods without a kubelet.

Used by `testbed.kubelet` and by tests of an NRI plugin. Everything is where containerd has it by default, but in the
node's own folders: the NRI socket is /run/nri/nri.sock, CDI specs are read in /var/run/cdi.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.build import component, component_of, program, programs_of
from testbed.image import NAME, write_image
from testbed.node import CommandError, Node
from testbed.process import Process

SOCKET = "/run/containerd/containerd.sock"
NRI_SOCKET = "/run/nri/nri.sock"
"""Inside the node; `Containerd.nri_socket` is where it is reached from outside."""
CDI_FOLDER = "/run/cdi"
CNI_FOLDER = "/run/cni/net.d"
# Each node has its own: nothing is routed between them.
POD_RANGE = "10.244.0.0/16"

_CONFIGURATION = "/run/containerd/config.toml"
_CRICTL_TIMEOUT = "60s"
_FIRST_OF_2 = (2, 0)
_SINCE_BIN_DIRS = (2, 1)
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


class Containerd:
    """The containerd of a node, of the version that the environment names; it ends with the node.

    Attributes:
        process: to be paused, killed, restarted. Containers stay, as they do on any node.
    """

    process: Process

    def __init__(self, node: Node, *, nri: Mapping[str, str] | None = None) -> None:
        """Start it, with the image imported.

        Args:
            node: where.
            nri: further settings of its NRI (`plugin_request_timeout`: "2s"), in TOML's notation.

        Raises:
            ProcessError: it did not become ready.
            BuildError: it is not built.
        """
        self.node = node
        run = node.folder / "run"
        for folder in ("containerd", "nri", "cdi", "cni/net.d"):
            (run / folder).mkdir(parents=True, exist_ok=True)
        (run / "containerd" / "config.toml").write_text(_configuration(nri or {}))
        (run / "cni" / "net.d" / "10-pods.conflist").write_text(json.dumps(_network()))
        # It finds its shim, and the shim finds runc, by the PATH.
        path = f"{program('containerd').parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        command = (str(program("containerd")), f"--config={_CONFIGURATION}")
        self.process = node.start(
            "containerd", command, _answers(run / "containerd" / "containerd.sock", node), {"PATH": path}
        )
        archive = node.folder / "image.tar"
        write_image(archive)
        self.ctr("--namespace=k8s.io", "images", "import", "--local", str(archive))

    @property
    def nri_socket(self) -> Path:
        """Where an NRI plugin connects that runs outside the node."""
        return self.node.folder / NRI_SOCKET.removeprefix("/")

    def ctr(self, *arguments: str) -> str:
        """Run ctr, and return what it printed.

        Raises:
            CommandError: it failed.
        """
        return self.node.run(str(program("ctr")), f"--address={SOCKET}", *arguments)

    def crictl(self, *arguments: str, text: str = "") -> str:
        """Run crictl, and return what it printed.

        Raises:
            CommandError: it failed; the text has the runtime's reason.
        """
        return self.node.run(*_crictl(), *arguments, text=text)

    def run_pod_sandbox(
        self, name: str, *, uid: str = "", namespace: str = "default", annotations: Mapping[str, str] | None = None
    ) -> str:
        """Make a pod's sandbox with its network (RunPodSandbox of the CRI), and return its id.

        Raises:
            CommandError: it was refused, by containerd, the CNI plugin or an NRI plugin.
        """
        configuration = _sandbox(name, uid, namespace, annotations or {})
        return self.crictl("runp", "/dev/stdin", text=json.dumps(configuration)).strip()

    def run_container(self, sandbox: str, *, name: str = "main", cdi_devices: Sequence[str] = ()) -> str:
        """Create and start a container in a sandbox, with devices of CDI, and return its id; it sleeps.

        Raises:
            CommandError: it was refused.
        """
        metadata = json.loads(self.crictl("inspectp", sandbox))["status"]["metadata"]
        pod = self.node.folder / "run" / f"{sandbox}.json"
        pod.write_text(json.dumps(_sandbox(metadata["name"], metadata["uid"], metadata["namespace"], {})))
        configuration = {
            "metadata": {"name": name},
            "image": {"image": NAME},
            "log_path": f"{name}.log",
            "CDI_devices": [{"name": device} for device in cdi_devices],
        }
        arguments = ("create", "--no-pull", sandbox, "/dev/stdin", f"/run/{pod.name}")
        container = self.crictl(*arguments, text=json.dumps(configuration)).strip()
        self.crictl("start", container)
        return container

    def netns(self, sandbox: str) -> str:
        """The path of a sandbox's network namespace on the node: what an NRI plugin is told; `node.path` opens it."""
        spec = json.loads(self.crictl("inspectp", sandbox))["info"]["runtimeSpec"]
        (path,) = (each["path"] for each in spec["linux"]["namespaces"] if each["type"] == "network")
        return str(path)

    def stop_pod_sandbox(self, sandbox: str) -> None:
        """Stop a sandbox and its containers, and undo its network (StopPodSandbox)."""
        self.crictl("stopp", sandbox)

    def remove_pod_sandbox(self, sandbox: str) -> None:
        """Remove a stopped sandbox (RemovePodSandbox)."""
        self.crictl("rmp", sandbox)

    def remove_all(self) -> None:
        """Stop and remove all sandboxes."""
        self.crictl("rmp", "--all", "--force")


def _answers(socket_path: Path, node: Node) -> Callable[[], bool]:
    """A readiness check: whether the CRI answers."""

    def ready() -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            if client.connect_ex(str(socket_path)) != 0:
                return False
        try:
            node.run(*_crictl(), "version")
        except CommandError:
            return False
        return True

    return ready


def _crictl() -> tuple[str, ...]:
    endpoint = f"unix://{SOCKET}"
    options = (f"--runtime-endpoint={endpoint}", f"--image-endpoint={endpoint}", f"--timeout={_CRICTL_TIMEOUT}")
    return (str(program("crictl")), *options)


def _sandbox(name: str, uid: str, namespace: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    """A PodSandboxConfig of the CRI."""
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-of-{name}", "attempt": 0},
        "annotations": dict(annotations),
        "log_directory": f"/var/log/pods/{name}",
        "linux": {},
    }


def version() -> tuple[int, int]:
    """The minor version of the containerd that is started."""
    first, second = component_of("containerd").minor.split(".")
    return int(first), int(second)


def _configuration(nri: Mapping[str, str]) -> str:
    """The configuration file: what differs from the defaults, and on 1.7 what its users must switch on too."""
    settings = "".join(f"{name} = {json.dumps(value)}\n" for name, value in nri.items())
    return f"""{_cri_of_2() if version() >= _FIRST_OF_2 else _cri_of_1()}

[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = "{NRI_SOCKET}"
plugin_path = "/run/nri/plugins"
plugin_config_path = "/run/nri/conf.d"
{settings}"""


def _cri_of_2() -> str:
    plugins = programs_of(component("cni-plugins"))
    bin_dirs = f'bin_dirs = ["{plugins}"]' if version() >= _SINCE_BIN_DIRS else f'bin_dir = "{plugins}"'
    return f"""version = 3
disabled_plugins = [{_disabled()}]

[plugins."io.containerd.cri.v1.images"]
# Copies instead of mounts: the node's folder may itself be on an overlay.
snapshotter = "native"
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


def _cri_of_1() -> str:
    return f"""version = 2
disabled_plugins = [{_disabled()}]

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{NAME}"
enable_cdi = true
cdi_spec_dirs = ["{CDI_FOLDER}"]
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{programs_of(component("cni-plugins"))}"
conf_dir = "{CNI_FOLDER}"
"""


def _disabled() -> str:
    return ", ".join(f'"{plugin}"' for plugin in _UNUSED)


def _network() -> dict[str, Any]:
    """The CNI network that gives each pod its eth0."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": POD_RANGE}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ipam}]}
