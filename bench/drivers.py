"""The drivers that are measured side by side: how each is started on a node, and how its devices name an interface.

Called by the benchmarks of the node driver. A driver is a command line and the name in its ResourceSlices: a further
peer is one more function here.
"""

from __future__ import annotations

import compileall
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdra.cli.crds import text
from netdra.model import kinds
from testbed.build import program
from testbed.control_plane import ControlPlane
from testbed.node import Node
from testbed.process import Process

OURS, PEER = "netdra", "dranet"
PREPARE, UNPREPARE, RUN, STOP = "Prepare", "Unprepare", "RunPodSandbox", "StopPodSandbox"
"""What a driver is called for, by the kubelet and by the runtime."""

_HEALTH_PORT = 8490

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


Histogram = tuple[str, tuple[str, str]]


@dataclass(frozen=True)
class Driver:
    """A driver.

    Attributes:
        title: what its figures are called.
        name: `spec.driver` of its ResourceSlices.
        command: node name, kubeconfig file -> command line.
        port: where it serves its metrics on the node.
        histograms: by call, the metric of the seconds that it took, and one of its labels.
        parameters: its devices' class parameters, so that all drivers do the same: in the pod a device is called net1.
    """

    title: str
    name: str
    command: Callable[[str, Path], tuple[str, ...]]
    port: int
    histograms: Mapping[str, Histogram]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def start(self, node: Node, plane: ControlPlane) -> Process:
        """Start it on a node, with all rights; returns at once."""
        environment = {"PYTHONPATH": str(_ROOT)}
        return node.start(self.title, self.command(node.name, plane.kubeconfig()), lambda: True, environment)


def _netdra(node: str, kubeconfig: Path) -> tuple[str, ...]:
    options = (f"--node-name={node}", f"--health-address=127.0.0.1:{_HEALTH_PORT}")
    return (sys.executable, "-m", "netdra", "node", f"--kubeconfig={kubeconfig}", *options)


def _dranet(node: str, kubeconfig: Path) -> tuple[str, ...]:
    # Its default filter hides veth interfaces, and it would ask for the cloud that it is in.
    options = ("--filter=", "--cloud-provider-hint=NONE", f"--hostname-override={node}")
    return (str(program("dranet")), f"--kubeconfig={kubeconfig}", *options)


_OUR_HOOKS = "netdra_nri_hook_duration_seconds"
_PEER_CALLS = "dranet_driver_dra_plugin_requests_latency_seconds"
_PEER_HOOKS = "dranet_driver_nri_plugin_requests_latency_seconds"

DRIVERS = (
    Driver(
        OURS,
        "dra.networking",
        _netdra,
        _HEALTH_PORT,
        {
            PREPARE: ("netdra_claim_prepare_duration_seconds", ("outcome", "ok")),
            UNPREPARE: ("netdra_claim_unprepare_duration_seconds", ("outcome", "ok")),
            RUN: (_OUR_HOOKS, ("hook", "run")),
            STOP: (_OUR_HOOKS, ("hook", "stop")),
        },
    ),
    Driver(
        PEER,
        "dra.net",
        _dranet,
        9177,
        {
            PREPARE: (_PEER_CALLS, ("method", "PrepareResourceClaims")),
            UNPREPARE: (_PEER_CALLS, ("method", "UnprepareResourceClaims")),
            RUN: (_PEER_HOOKS, ("method", "RunPodSandbox")),
            STOP: (_PEER_HOOKS, ("method", "StopPodSandbox")),
        },
        {"interface": {"name": "net1"}},
    ),
)


def prepare(plane: ControlPlane) -> None:
    """Make netdra's kinds, and a policy that exposes every veth interface, as dranet does without a filter.

    netdra's modules and all that they import are compiled as those of an installed package are: else each start would
    be one of compiling, which leaves 1 to 2 MiB behind.
    """
    for folder in (_ROOT / "netdra", Path(sysconfig.get_path("purelib"))):
        compileall.compile_dir(folder, quiet=1)
    plane.kubectl("apply", "--server-side", "-f", "-", text="---\n".join(map(text, kinds.KINDS)))
    names = [f"crd/{kind.name}" for kind in kinds.KINDS]
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    plane.kubectl("apply", "--server-side", "-f", "-", text=_EVERYTHING)
