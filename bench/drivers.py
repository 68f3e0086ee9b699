"""The drivers that are measured side by side: how each is started on a node, and how its devices name an interface.

Called by the benchmarks of the node driver. A driver is a command line and the name in its ResourceSlices: a further
peer is one more function here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from netdra.cli.crds import text
from netdra.model import kinds
from testbed.build import program
from testbed.control_plane import ControlPlane
from testbed.node import Node
from testbed.process import Process

OURS, PEER = "netdra", "dranet"

_ROOT = Path(__file__).parent.parent
_EVERYTHING = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: bench-everything}
spec:
  priority: 1
  selector: {cel: 'device.attributes["dra.networking"].type == "veth"'}
  exposure: {supportedCNIPlugins: [{name: host-device, exclusive: true}]}
"""


@dataclass(frozen=True)
class Driver:
    """A driver.

    Attributes:
        title: what its figures are called.
        name: `spec.driver` of its ResourceSlices.
        command: node name, kubeconfig file -> command line.
    """

    title: str
    name: str
    command: Callable[[str, Path], tuple[str, ...]]

    def start(self, node: Node, plane: ControlPlane) -> Process:
        """Start it on a node, with all rights; returns at once."""
        environment = {"PYTHONPATH": str(_ROOT)}
        return node.start(self.title, self.command(node.name, plane.kubeconfig()), lambda: True, environment)


def _netdra(node: str, kubeconfig: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "netdra", "node", f"--kubeconfig={kubeconfig}", f"--node-name={node}")


def _dranet(node: str, kubeconfig: Path) -> tuple[str, ...]:
    # Its default filter hides veth interfaces, and it would ask for the cloud that it is in.
    options = ("--filter=", "--cloud-provider-hint=NONE", f"--hostname-override={node}")
    return (str(program("dranet")), f"--kubeconfig={kubeconfig}", *options)


DRIVERS = (Driver(OURS, "dra.networking", _netdra), Driver(PEER, "dra.net", _dranet))


def prepare(plane: ControlPlane) -> None:
    """Make netdra's kinds, and a policy that exposes every veth interface, as dranet does without a filter."""
    plane.kubectl("apply", "--server-side", "-f", "-", text="---\n".join(map(text, kinds.KINDS)))
    names = [f"crd/{kind.name}" for kind in kinds.KINDS]
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    plane.kubectl("apply", "--server-side", "-f", "-", text=_EVERYTHING)
