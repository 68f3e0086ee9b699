"""A real container runtime on a node: pods without a kubelet, by the CRI alone, on any runtime.

The common part of `testbed.containerd` and `testbed.crio`; `testbed.runtimes` starts the selected one. All
is where a runtime has it by default, but in the node's own folders: the NRI socket is /run/nri/nri.sock, CDI
specifications are read in /var/run/cdi.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.build import component, program, programs_of
from testbed.image import NAME
from testbed.node import CommandError, Node
from testbed.process import Process

NRI_SOCKET = "/run/nri/nri.sock"
"""Inside the node; `Runtime.nri_socket` is where it is reached from outside."""
CDI_FOLDER = "/run/cdi"
CNI_FOLDER = "/run/cni/net.d"
# Each node has its own: nothing is routed between them.
POD_RANGE = "10.244.0.0/16"

_CRICTL_TIMEOUT = "60s"


class Runtime:
    """The container runtime of a node; it ends with the node.

    Attributes:
        name: what it calls itself.
        socket: its CRI's, on the node.
        node: where it runs.
        process: to be paused, killed, restarted. Containers stay, as they do on any node.
    """

    name: str
    socket: str
    process: Process

    def __init__(self, node: Node) -> None:
        """Make the folders that it has, and the network that gives pods their eth0; start nothing."""
        self.node = node
        run = node.folder / "run"
        for folder in ("nri", "cdi", "cni/net.d"):
            (run / folder).mkdir(parents=True, exist_ok=True)
        (run / "cni" / "net.d" / "10-pods.conflist").write_text(json.dumps(_network()))

    @property
    def nri_socket(self) -> Path:
        """Where an NRI plugin connects that runs outside the node; short, as a socket's name has to be."""
        return self.node.path(NRI_SOCKET)

    def crictl(self, *arguments: str, text: str = "") -> str:
        """Run crictl, and return what it printed.

        Raises:
            CommandError: it failed; the text has the runtime's reason.
        """
        endpoint = f"unix://{self.socket}"
        options = (f"--runtime-endpoint={endpoint}", f"--image-endpoint={endpoint}", f"--timeout={_CRICTL_TIMEOUT}")
        return self.node.run(str(program("crictl")), *options, *arguments, text=text)

    def run_pod_sandbox(
        self, name: str, *, uid: str = "", namespace: str = "default", annotations: Mapping[str, str] | None = None
    ) -> str:
        """Make a pod's sandbox with its network (RunPodSandbox of the CRI), and return its id.

        Raises:
            CommandError: it was refused, by the runtime, the CNI plugin or an NRI plugin.
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
        """The path of a sandbox's network namespace on the node, as an NRI plugin gets it; `node.path` opens it."""
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

    def answers(self) -> Callable[[], bool]:
        """A readiness check: whether the CRI answers."""
        path = self.node.path(self.socket)

        def ready() -> bool:
            with socket.socket(socket.AF_UNIX) as client:
                if client.connect_ex(str(path)) != 0:
                    return False
            try:
                self.crictl("version")
            except CommandError:
                return False
            return True

        return ready


def cni_plugins() -> Path:
    """The folder of the plugins that give pods their eth0."""
    return programs_of(component("cni-plugins"))


def _sandbox(name: str, uid: str, namespace: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    """A PodSandboxConfig of the CRI."""
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-of-{name}", "attempt": 0},
        "annotations": dict(annotations),
        "log_directory": f"/var/log/pods/{name}",
        "linux": {},
    }


def _network() -> dict[str, Any]:
    """The CNI network that gives each pod its eth0."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": POD_RANGE}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ipam}]}
