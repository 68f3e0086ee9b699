"""`netdra node` on a node of the test bed, as its own process: killed, paused and restarted like any other.

Used by the tests of real pods and by the benchmarks, which run the peer's driver in the same place.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.access import Access
from testbed.build import program
from testbed.node import CommandError, Node
from testbed.process import Process

HEALTH_PORT = 8490
CNI_PROGRAMS = ("bridge", "macvlan", "static", "host-local", "tuning", "vlan", "ipvlan", "ptp", "loopback")
_PACKAGE_PARENT = Path(__file__).parent.parent
_STATE = "/var/lib/netdra"


class Driver:
    """The node's driver; it ends with the node.

    Attributes:
        process: to be paused, killed, restarted.
        state: its state folder, as it is opened from outside the node.
    """

    process: Process

    def __init__(
        self,
        node: Node,
        plane: Access,
        *,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        user: tuple[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Start it, and wait until it is ready.

        Args:
            node: where; its kubelet and containerd are there already.
            plane: the API server's.
            environment: further variables.
            arguments: further arguments of `netdra node`.
            user: as whom it talks to the API server, with its groups; the administrator if not given.

        Raises:
            ProcessError: it did not become ready.
        """
        self.node = node
        self.state = node.folder / "lib" / "netdra"
        kubeconfig = plane.kubeconfig(*user) if user is not None else plane.kubeconfig()
        plugins = node.folder / "plugins"
        plugins.mkdir(exist_ok=True)
        for name in CNI_PROGRAMS:
            if not (plugins / name).exists():
                (plugins / name).symlink_to(program(name))
        command = (
            *(sys.executable, "-m", "netdra.cli.main", "node"),
            f"--kubeconfig={kubeconfig}",
            f"--node-name={node.name}",
            f"--cni-path={plugins}",
            f"--health-address=127.0.0.1:{HEALTH_PORT}",
            "--verbose",
            *arguments,
        )
        variables = {"PYTHONPATH": str(_PACKAGE_PARENT), **(environment or {})}
        self.process = node.start("netdra", command, self.is_ready, variables)

    def is_ready(self) -> bool:
        """Whether it says that it is ready."""
        return self._get("/readyz?verbose") is not None

    def metrics(self) -> str:
        """What it measures, as Prometheus reads it."""
        return self._get("/metrics") or ""

    def left(self) -> dict[str, Any]:
        """What it keeps of pods: names of checkpoints, prepared claims and CDI specifications."""
        folders = {
            "checkpoints": (self.state / "sandboxes").glob("*.jsonl"),
            "claims": (self.state / "claims").glob("*.json"),
            "specifications": (self.node.folder / "run" / "cdi").glob("dra.networking*"),
        }
        return {name: sorted(path.name for path in found) for name, found in folders.items()}

    def _get(self, path: str) -> str | None:
        """The body of an answer, None if there is none or it is an error."""
        try:
            return self.node.run("busybox", "wget", "-q", "-O", "-", f"http://127.0.0.1:{HEALTH_PORT}{path}")
        except CommandError:
            return None
