"""A cluster of one node in which netdra's own pods run: a control plane and a kubelet with the rest of a real cluster.

Used by the tests of `tests/cluster/install`. Added to the processes of `testbed.control_plane`, `testbed.containerd`
and `testbed.kubelet` are: the API server's Service address on the node, for pods with a service account; a way
from the API server to pods and to the kubelet, for webhooks, `kubectl exec` and `kubectl logs`; mounts of the node that
containers see come and go; netdra's image; and a folder of CNI plugins that is the node's own.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.api import Api
from testbed.build import program
from testbed.commands import Settings
from testbed.containerd import Containerd
from testbed.control_plane import ControlPlane
from testbed.helm import CHARTS, helm
from testbed.kubelet import Kubelet
from testbed.node import Node
from testbed.objects import NODE
from testbed.pods import Pods
from testbed.process import Process

SERVICE = "10.0.0.1"
"""The first address of `testbed.commands.SERVICE_RANGE`, which the Service `kubernetes` has."""
CNI_PATH = "/var/lib/cni-plugins"
"""The node's folder of CNI plugins."""
PLUGINS = ("bridge", "macvlan", "static", "host-local", "tuning", "vlan", "ipvlan", "ptp", "loopback")
IMAGE = "localhost/netdra"
TAG = "TEST"
IMAGE_VALUES = {"repository": IMAGE, "tag": TAG, "pullPolicy": "Never"}
"""The chart's values for the image that is on the node."""
VALUES: Mapping[str, Any] = {
    "image": IMAGE_VALUES,
    "node": {"cniPath": [CNI_PATH]},
    "controller": {"replicas": 1},
    "webhook": {"replicas": 1},
}
"""The chart's values for such a cluster."""
_READY_SECONDS = 120
# The runtime waits so long for a hook. With several sites on one machine two seconds are soon over, and how long hooks
# take is measured elsewhere.
_HOOK_SECONDS = 20.0
_PACKAGE_PARENT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Site:
    """A cluster of one node that is ready for netdra's chart.

    Attributes:
        plane, api: the control plane, and its administrator's client.
        node, containerd, kubelet: the node.
    """

    plane: ControlPlane
    api: Api
    node: Node
    containerd: Containerd
    kubelet: Kubelet

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run helm as the administrator, and return what it printed.

        Raises:
            HelmError: it ended with another code than 0.
        """
        return helm(*arguments, kubeconfig=self.plane.kubeconfig(), values=values)

    def install(self, values: Mapping[str, Any] | None = None, *options: str) -> None:
        """Install netdra, or upgrade it to other values, and wait until all of its pods are ready.

        Args:
            values: on top of `VALUES`; a component's are merged with those there.
            options: further ones of `helm upgrade`.

        Raises:
            HelmError: it cannot be installed, or its pods do not become ready.
        """
        merged = {**VALUES, **(values or {})}
        for name in merged.keys() & VALUES.keys():
            merged[name] = {**VALUES[name], **merged[name]}
        where = ("--namespace=netdra", "--create-namespace", "--wait", f"--timeout={_READY_SECONDS}s")
        self.helm("upgrade", "--install", "netdra", str(CHARTS / "netdra"), *where, *options, values=merged)

    def pods(self, namespace: str) -> Pods:
        """The pods of a namespace."""
        return Pods(self.api, namespace, self.containerd)


def settings(socket: Path) -> Settings:
    """A control plane whose API server reaches a node's pods by a proxy on a socket, and is trusted by its Service."""
    selection = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [
            {
                "name": "cluster",
                "connection": {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(socket)}}},
            }
        ],
    }
    file = socket.with_suffix(".json")
    file.write_text(json.dumps(selection), encoding="utf-8")
    server = (
        f"--egress-selector-config-file={file}",
        "--enable-aggregator-routing=true",
        "--kubelet-preferred-address-types=InternalIP",  # the node's name cannot be resolved
    )
    return Settings(hosts=(SERVICE,), arguments={"kube-apiserver": server})


@contextmanager
def opened(plane: ControlPlane, api: Api, node: Node, socket: Path, image: Path) -> Iterator[Site]:
    """Make a node of a control plane that was started with `settings` ready for netdra's pods.

    Args:
        plane: the control plane.
        api: its administrator's client.
        node: nothing runs on it yet.
        socket: what `settings` was given.
        image: netdra's image, as an OCI archive.

    Raises:
        ProcessError: something did not become ready.
    """
    with ExitStack() as undo:
        # A mount of a runtime on the node must be visible in containers that started before it (HostToContainer).
        node.run("mount", "--make-rshared", "/")
        node.run("ip", "address", "add", f"{SERVICE}/32", "dev", "lo")
        containerd = Containerd(node, hook_seconds=_HOOK_SECONDS)
        plugins = node.folder / CNI_PATH.removeprefix("/var/")
        plugins.mkdir()
        for name in PLUGINS:
            shutil.copy(program(name), plugins / name)
        containerd.ctr("--namespace=k8s.io", "images", "import", "--local", str(image))
        (name,) = (name for name in containerd.crictl("images").splitlines() if name.startswith(f"{IMAGE} "))
        containerd.ctr("--namespace=k8s.io", "images", "tag", f"{IMAGE}:{name.split()[1]}", f"{IMAGE}:{TAG}")
        port = plane.server.rpartition(":")[2]
        relay(node, "service", port, f"{SERVICE}:443", ready=lambda: node.listens(443))
        relay(node, "proxy", str(socket), ready=socket.exists)
        undo.callback(socket.unlink, missing_ok=True)
        # With a node's own rights its first read of a claim is refused now and then, and the pod waits.
        kubelet = Kubelet(containerd, plane, administrator=True)
        undo.callback(api.delete, NODE, node.name)
        yield Site(plane, api, node, containerd, kubelet)


def relay(node: Node, name: str, *arguments: str, ready: Callable[[], bool]) -> None:
    """Start `testbed.relay` for a node, with these arguments, and wait until it is ready."""
    command = (sys.executable, "-m", "testbed.relay", str(node.pid), *arguments)
    process = Process(name, command, node.folder / f"{name}.log", ready, {"PYTHONPATH": str(_PACKAGE_PARENT)})
    node.processes[name] = process
    process.start()
    process.wait_ready()
