"""`netdra node` on a node of the test bed, as its own process: killed, paused, restarted, two side by side.

Used by the tests of real pods, which also ask it what it has kept of pods that are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed.build import program
from testbed.forks import COMMAND
from testbed.node import CommandError, Node
from testbed.process import Process, body
from testbed.recorder import Recorder
from testbed.waiting import until

HEALTH_PORT = 8490
CNI_PROGRAMS = ("bridge", "macvlan", "static", "host-local", "tuning", "vlan", "ipvlan", "ptp", "loopback")
ANY_PLUGIN = ("--allow-plugin=*",)
"""Recording plugins have no CNIPluginSchema."""
FAULT_VARIABLE = "NETDRA_FAULT"
"""Names a point at which the driver dies or hangs: `NAME=kill`, `NAME=hang`."""
_WITHIN = 180.0
_PACKAGE_PARENT = Path(__file__).parent.parent
# The leases of the network "pods" are those of eth0.
_KEPT = (
    "lib/netdra/sandboxes/*.jsonl*",
    "lib/netdra/sandboxes/devices/*",
    "lib/netdra/claims/*.json*",
    "lib/kubelet/plugins/dra.networking/dra-device-metadata/*",
    "run/cdi/dra.networking-*",
    "lib/cni/networks/*/*",
)


class Driver:
    """The node's driver; it ends with the node.

    Attributes:
        node: where it runs.
        plugins: its CNI path.
        process: to be paused, killed, restarted, once it was started.
    """

    process: Process

    def __init__(
        self,
        node: Node,
        kubeconfig: Path,
        *,
        instance: str = "",
        port: int = HEALTH_PORT,
        options: Sequence[str] = ANY_PLUGIN,
        capabilities: Sequence[str] = (),
        programs: Sequence[str] = CNI_PROGRAMS,
    ) -> None:
        """Prepare, start nothing.

        Args:
            node: where; its kubelet and containerd are there already.
            kubeconfig: the API server, and as whom it is talked to.
            instance: distinguishes it from another one of the node.
            port: where it serves its metrics on the node.
            options: further ones of `netdra node`.
            programs: what is in its CNI path; it runs each one at its start.
            capabilities: the only ones of it and its children, as in a container's list; all of them if it is empty.
        """
        self.node = node
        self._kubeconfig = kubeconfig
        self._instance = instance
        self._port = port
        self._options = tuple(options)
        self._capabilities = tuple(capabilities)
        self._programs = tuple(programs)
        self._fault = ""
        self.plugins = node.folder / "plugins"
        self.plugins.mkdir(exist_ok=True)
        for name in programs:
            if not (self.plugins / name).exists():
                (self.plugins / name).symlink_to(program(name))

    def start(self, fault: str = "") -> None:
        """Start it, perhaps with a fault point, and wait until it is ready.

        Raises:
            ProcessError: it did not become ready, or it runs.
        """
        command = (
            *(*COMMAND, "node", f"--kubeconfig={self._kubeconfig}"),
            *(f"--node-name={self.node.name}", f"--instance={self._instance}", f"--cni-path={self.plugins}"),
            *(f"--health-address=127.0.0.1:{self._port}", "--verbose", "--traffic-interfaces=1000"),
            *self._options,
        )
        variables = {
            "PYTHONPATH": str(_PACKAGE_PARENT),
            "PYTHONFAULTHANDLER": "1",  # a crash of the interpreter prints its place, in the log
            FAULT_VARIABLE: fault,
        }
        self._fault = fault
        self.process = self.node.start(
            f"netdra{self._instance}", command, self.is_ready, variables, capabilities=self._capabilities
        )

    def beside(self, instance: str) -> Driver:
        """A second one for the same node, not started, as in a rolling update."""
        port = self._port + 1
        return Driver(
            *(self.node, self._kubeconfig),
            instance=instance,
            port=port,
            options=self._options,
            capabilities=self._capabilities,
            programs=self._programs,
        )

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self.process.kill()

    def restart(self, fault: str = "") -> None:
        """Kill it and start it again, perhaps with a fault point."""
        self.kill()
        self.start(fault)

    def recover(self) -> None:
        """Make it run without a fault point, from every state that a test can leave."""
        if self.process.pid is None:
            self.start()
        elif self._fault or self.process.is_stopped():
            self.restart()

    def wait_end(self) -> None:
        """Wait until it has died by itself."""
        until(lambda: self.process.pid is None, "the driver to reach its fault point", seconds=_WITHIN)

    def wait_stop(self) -> None:
        """Wait until it hangs by itself; `process.resume` lets it continue."""
        until(self.process.is_stopped, "the driver to reach its fault point", seconds=_WITHIN)

    def is_ready(self) -> bool:
        """Whether it reports that it is ready."""
        return self._get("/readyz?verbose") is not None

    def metrics(self) -> str:
        """Its metrics, as Prometheus reads them."""
        return self._get("/metrics") or ""

    def left(self) -> list[str]:
        """The remains of pods and claims on the node: files and leases, by their paths."""
        return left(self.node)

    def until_nothing_is_left(self) -> None:
        """Wait until nothing of any pod or claim is left on the node."""
        until_nothing_is_left(self.node)

    def recorder(self, name: str) -> Recorder:
        """A CNI plugin that behaves as the test configures it."""
        return Recorder(self.plugins, name)

    def _get(self, path: str) -> str | None:
        """The body of an answer, None if none exists or it is an error."""
        url = f"http://127.0.0.1:{self._port}{path}"
        if self.node.alone:  # it has this process's network
            return body(url, seconds=_WITHIN)
        try:
            return self.node.run("busybox", "wget", "-q", "-O", "-", url)
        except CommandError:
            return None


def left(node: Node) -> list[str]:
    """The remains of pods and claims on a node: files and leases, by their paths."""
    return sorted(
        str(path.relative_to(node.folder))
        for pattern in _KEPT
        for path in node.folder.glob(pattern)
        if path.parent.name != "pods" and not path.name.startswith(("last_reserved_ip", "lock"))
    )


def until_nothing_is_left(node: Node) -> None:
    """Wait until nothing of any pod or claim is left on a node."""
    until(lambda: not left(node), "nothing to be left on the node", seconds=_WITHIN, detail=lambda: left(node))
