"""The cost of ports: netdra's controller and the real Neutron, with every request counted between the two.

One port after the other, many at once, and few from a cloud that takes its time for each request. Beside the many, a
bare client makes as many ports and nothing else, in the same Neutron: the difference is netdra's.
"""

from __future__ import annotations

import http.client
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.bed import cloud as cloud_of
from bench.bed import control_plane
from bench.figures import Figure
from testbed.api import Object, Objects
from testbed.objects import NODE, manifest
from testbed.openstack.cloud import Cloud
from testbed.process import Process
from testbed.workspace import Workspace, open_workspace
from tests.cluster.conftest import serve_kinds
from tests.cluster.daemons import running_controller

ONE_BY_ONE, AT_ONCE, SLOW = 10, 200, 3
DELAY_SECONDS = 10.0
"""What each request takes to the slow cloud."""
LEAST_TIMEOUT = 15.0
"""Seconds; a busy machine's cloud that is asked again and again is never done."""
CONNECTIONS = 2
"""Of the bare client: Neutron is one process here, and with more connections some of them starve."""
MOST_REQUESTS = 2.5
"""For a new port, once its network is known: two, and its part of the looks for changes that come between."""
MOST_RATIO = 3.0
MOST_MEMORY = 150.0
"""MiB."""
PATIENCE = 600.0
QUICK = {"ONE_BY_ONE": 1, "AT_ONCE": 3, "SLOW": 1, "DELAY_SECONDS": 1.0}

_HOST = "node-1"
_PHYSNET = "physnet2"
_PORT = "networking.dra.io/v1alpha1/NeutronPort"
_TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
_IN_A_SLICE = 100
_PAGE = 1000


class Gate:
    """A proxy in front of Neutron: it counts requests, and takes its time for each.

    Attributes:
        delay: how many seconds a request waits.
        counts: how many there were, by method and kind of object.
    """

    def __init__(self, server: str) -> None:
        self.delay = 0.0
        self.counts: Counter[str] = Counter()
        target = urlsplit(server).netloc
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                self.upstream = http.client.HTTPConnection(target, timeout=PATIENCE)
                try:
                    super().handle()
                except ConnectionError:
                    pass  # the client went
                finally:
                    self.upstream.close()

            def forward(self) -> None:
                gate.counts[f"{self.command} {urlsplit(self.path).path.split('/')[2]}"] += 1
                time.sleep(gate.delay)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.upstream.request(self.command, self.path, body or None, dict(self.headers.items()))
                answer = self.upstream.getresponse()
                data = answer.read()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = forward  # noqa: N815 - the names that http.server calls

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def total(self) -> int:
        """How many requests there were."""
        return self.counts.total()

    @contextmanager
    def serving(self) -> Iterator[Gate]:
        """Serve until the end of the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()


class Scene:
    """A node with VFs on a control plane, and the claims that ask for them."""

    def __init__(self, workspace: Workspace, vfs: int) -> None:
        self._workspace = workspace
        self._node = workspace.add_node()
        patch = {"metadata": {"annotations": {"networking.dra.io/neutron-host": _HOST}}}
        workspace.api.patch(NODE, self._node, patch)
        workspace.publish(self._node, *_slices(self._node, vfs))
        selector = {"cel": f'device.attributes["dra.networking"].physnet == "{_PHYSNET}"'}
        step = {"name": "vf", "type": "sriov", "selector": selector, "neutron": {"network": "data"}}
        name = workspace.name("vf")
        workspace.create(manifest(_TOPOLOGY, name, spec={"steps": [step]}))
        self._class = f"{name}-vf"
        workspace.api.wait_for("resource.k8s.io/v1/DeviceClass", self._class, lambda found: found is not None)
        self._claims = 0

    def ask(self, count: int) -> float:
        """Have claims allocated and bound; returns the seconds from the first pod to the last bound port."""
        workspace, began = self._workspace, time.monotonic()
        for _ in range(count):
            self._claims += 1
            request = {"name": "vf", "exactly": {"deviceClassName": self._class}}
            name = f"c{self._claims}"
            workspace.add_pod(name, workspace.add_claim(name, request), node=self._node)

        def all_bound(ports: Objects) -> bool:
            return sum(map(_is_bound, ports)) >= self._claims

        workspace.api.wait_for_all(_PORT, all_bound, namespace=workspace.namespace, timeout=PATIENCE)
        return time.monotonic() - began


def run() -> list[Figure]:
    """Requests for a port, and seconds and memory for many."""
    with (
        control_plane() as plane,
        closing(plane.client()) as api,
        cloud_of(page=_PAGE) as cloud,
        Gate(cloud.url("neutron")).serving() as gate,
    ):
        serve_kinds(plane, api)
        cloud.beat(_HOST, **{_PHYSNET: ["enp1s0f0"]})
        network = cloud.network("data", _PHYSNET, ["10.20.0.0/20"])
        cloud.limit(-1)
        folder = Path(tempfile.mkdtemp(prefix="netdra-bench-"))
        try:
            timeout = f"--neutron-timeout={max(DELAY_SECONDS * 1.5, LEAST_TIMEOUT):g}"
            arguments = (f"--neutron-clouds={_clouds(cloud, gate, folder)}", timeout)
            with running_controller(plane, api, *arguments) as controller, open_workspace(api) as workspace:
                return _measured(workspace, controller, cloud, gate, network["id"])
        finally:
            shutil.rmtree(folder)


def _measured(workspace: Workspace, controller: Process, cloud: Cloud, gate: Gate, network: str) -> list[Figure]:
    scene = Scene(workspace, 1 + ONE_BY_ONE + AT_ONCE + SLOW)
    scene.ask(1)  # the network is known from here on
    gate.counts.clear()
    seconds = [scene.ask(1) for _ in range(ONE_BY_ONE)]
    each = gate.total / ONE_BY_ONE
    one = _said(gate)

    gate.counts.clear()
    before = controller.memory() / 2**20
    many = scene.ask(AT_ONCE)
    for_many, of_many, memory = gate.total / AT_ONCE, _said(gate), controller.memory() / 2**20
    bare = _bare(cloud, network, AT_ONCE)

    gate.counts.clear()
    gate.delay = DELAY_SECONDS
    slow = scene.ask(SLOW)
    gate.delay = 0.0
    made = sum(not port["name"].startswith("bare-") for port in cloud.ports() if port["network_id"] == network)
    asked = 1 + ONE_BY_ONE + AT_ONCE + SLOW
    return [
        Figure("requests for a port, one after the other", each, "", MOST_REQUESTS, note=one),
        Figure("from a pod to its port, median", 1000 * statistics.median(seconds), "ms"),
        Figure(f"requests for a port, {AT_ONCE} at once", for_many, "", MOST_REQUESTS, note=of_many),
        Figure(f"{AT_ONCE} ports at once", many, "s", note=f"a bare client {bare:.1f} s"),
        Figure(f"{AT_ONCE} ports at once, beside a bare client", many / bare, "x", MOST_RATIO),
        Figure("memory of the controller then", memory, "MiB", MOST_MEMORY, note=f"{before:.1f} before"),
        Figure(f"{SLOW} ports, {DELAY_SECONDS:g} s for each request", slow, "s", note=_said(gate)),
        Figure("ports in Neutron for one claim", made / asked, "", 1.0, note=f"{made} for {asked}"),
    ]


def _said(gate: Gate) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(gate.counts.items()))


def _bare(cloud: Cloud, network: str, count: int) -> float:
    """Have a client make ports bound to unused VFs; the seconds that it takes."""
    token = cloud.token()

    def make(number: int) -> None:
        slot = f"0000:fe:{number // 8:02x}.{number % 8}"
        port = {
            "name": f"bare-{number}",
            "network_id": network,
            "binding:vnic_type": "direct",
            "binding:host_id": _HOST,
            "binding:profile": {"pci_slot": slot, "physical_network": _PHYSNET},
        }
        said = cloud.ask("neutron", "POST", "/v2.0/ports", {"port": port}, token)
        assert said.status == http.client.CREATED, said

    began = time.monotonic()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(make, range(count)))
    return time.monotonic() - began


def _slices(node: str, vfs: int) -> Iterator[Object]:
    devices = [
        {
            "name": f"vf-{number}",
            "attributes": {
                "physnet": {"string": _PHYSNET},
                "pciAddress": {"string": f"0000:05:{number // 8:02x}.{number % 8}"},
                "type": {"string": "sriov-vf"},
                "supportedCNIs": {"string": ",sriov,"},
            },
        }
        for number in range(vfs)
    ]
    parts = [devices[start : start + _IN_A_SLICE] for start in range(0, vfs, _IN_A_SLICE)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": len(parts)}
    for number, part in enumerate(parts):
        spec = {"driver": "dra.networking", "nodeName": node, "pool": pool, "devices": part}
        yield manifest("resource.k8s.io/v1/ResourceSlice", f"{node}-{number}", spec=spec)


def _clouds(cloud: Cloud, gate: Gate, folder: Path) -> Path:
    """A clouds.yaml that leads to Neutron by the gate."""
    path = cloud.clouds(folder / "clouds.yaml")
    found = json.loads(path.read_text())
    found["clouds"]["openstack"]["network_endpoint_override"] = gate.url
    path.write_text(json.dumps(found))
    return path


def _is_bound(port: Object) -> bool:
    conditions: Sequence[Object] = port.get("status", {}).get("conditions", ())
    return any(one["type"] == "Bound" and one["status"] == "True" for one in conditions)
