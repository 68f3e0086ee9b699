"""A real kubelet on a node, joined to a control plane: pods of the API server run, and DRA plugins are called.

Used by the tests of real pods and by the benchmarks. Its root directory is the default one, in the node's own /var/lib:
a driver's sockets go to /var/lib/kubelet/plugins and plugins_registry.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from testbed.access import Access
from testbed.api import Object
from testbed.build import program
from testbed.node import Node
from testbed.objects import NODE
from testbed.process import Process
from testbed.runtime import Runtime

ROOT = "/var/lib/kubelet"

_HEALTH_PORT = 10248
_PODS = 250
SYNC_SECONDS = 10
"""When the kubelet comes back to a pod whose claim it could not prepare, or up to half later; by default a minute."""
_PACKAGE_PARENT = Path(__file__).parent.parent


class Kubelet:
    """The kubelet of a node; it ends with the node, and its Node object is the test's to delete.

    Attributes:
        process: to be paused, killed, restarted; pods stay.
        relay: the node's way to the API server; a node that is alone needs none.
    """

    process: Process
    relay: Process | None = None

    def __init__(
        self,
        runtime: Runtime,
        plane: Access,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        administrator: bool = False,
    ) -> None:
        """Start it, and wait until its node is Ready.

        Args:
            runtime: the node's.
            plane: where it registers.
            feature_gates: on top of those of the control plane.
            administrator: it has an administrator's credentials. With a node's own, the API server now and then refuses
                its first read of a claim, and the kubelet asks again only after `SYNC_SECONDS`, which is not a
                driver's fault.

        Raises:
            ProcessError: it did not become ready.
            TimeoutError: its node did not.
        """
        self.node = node = runtime.node
        self._plane, self._administrator = plane, administrator
        if not node.alone:
            self.relay = join(node, plane)
        gates = {**plane.feature_gates, **(feature_gates or {})}
        configuration = node.folder / "kubelet.json"
        configuration.write_text(json.dumps(_configuration(plane.authority.own.certificate, gates, runtime.socket)))
        command = (
            str(program("kubelet")),
            f"--config={configuration}",
            f"--kubeconfig={self.kubeconfig}",
            f"--root-dir={ROOT}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            "--v=2",
        )
        self.process = node.start("kubelet", command, lambda: node.listens(_HEALTH_PORT))
        self.wait_ready()

    @property
    def kubeconfig(self) -> Path:
        """The kubelet's own credentials."""
        if self._administrator:
            return self._plane.kubeconfig()
        return self._plane.kubeconfig(f"system:node:{self.node.name}", ["system:nodes"])

    def wait_ready(self) -> None:
        """Wait until the node is Ready and takes pods.

        Raises:
            TimeoutError: it is not.
        """
        with closing(self._plane.client()) as api:
            api.wait_for(NODE, self.node.name, _is_ready)


def join(node: Node, plane: Access) -> Process:
    """Give a node's programs the control plane's API server, under the URL that it has outside.

    Raises:
        ProcessError: its port is taken on the node.
    """
    port = urlsplit(plane.server).port
    assert port is not None
    log = node.folder / "relay.log"
    command = (sys.executable, "-m", "testbed.relay", str(node.pid), str(port))
    environment = {"PYTHONPATH": str(_PACKAGE_PARENT)}
    relay = Process("relay", command, log, lambda: node.listens(port), environment)
    node.processes["relay"] = relay
    relay.start()
    relay.wait_ready()
    return relay


def answered_claims(node: Node) -> set[tuple[str, str]]:
    """Namespace and name of the claims whose driver's devices the kubelet has, by its checkpoint."""
    checkpoint = json.loads((node.folder / "lib/kubelet/dra_manager_state").read_bytes())
    return {
        (claim["Namespace"], claim["ClaimName"])
        for claim in json.loads(checkpoint["Data"])["ClaimInfoStateList"] or ()
        if any(state["Devices"] for state in claim["DriverState"].values())
    }


def _is_ready(node: Object | None) -> bool:
    conditions = (node or {}).get("status", {}).get("conditions", [])
    ready = any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)
    return node is not None and ready and not node["spec"].get("taints")


def _configuration(authority: Path, gates: Mapping[str, bool], socket: str) -> dict[str, Any]:
    """The kubelet's configuration file: for cgroups of version 1 too, and without the right to give out resources."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "featureGates": dict(gates),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        # The machine's disk is not the node's: neither its fill level nor its images are any business of a test.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "maxPods": _PODS,
        "resolvConf": "",
        "syncFrequency": f"{SYNC_SECONDS}s",
        "volumePluginDir": f"{ROOT}/volume-plugins",
        # The defaults throttle status updates, which tests wait for.
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 1000,
        "eventRecordQPS": 500,
        "eventBurst": 1000,
    }
