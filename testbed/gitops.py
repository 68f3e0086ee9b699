"""Argo CD and Flux, with which a chart is installed: Argo CD's packages in a program, and Flux' helm-controller.

Used by `tests/release`. Argo CD is `argo_cd.go`: its renderer, its synchronization and its comparison, without its
servers. Flux' source-controller cannot be built here; the test serves the chart and writes the source's status.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from testbed import yaml
from testbed.api import Api, Object
from testbed.build import file, program
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from testbed.process import Ports, Process, answers
from testbed.waiting import waiting

RELEASE = "helm.toolkit.fluxcd.io/v2/HelmRelease"
SOURCE = "source.toolkit.fluxcd.io/v1/OCIRepository"
_ASKED = "reconcile.fluxcd.io/requestedAt"
_DEFINITIONS = ("helmreleases.yaml", "helmcharts.yaml", "ocirepositories.yaml")


class ArgoError(Exception):
    """Argo CD's program failed; the text has its last lines."""


def argo(plane: ControlPlane, chart: Path, name: str, namespace: str, **fields: Any) -> Mapping[str, Any]:
    """Compare a chart with a cluster as Argo CD does for an application, and synchronize it before if `sync` is true.

    Args:
        plane: the cluster.
        chart: the unpacked chart.
        name: of the application, and so of the release.
        namespace: of the destination.
        fields: further ones of `Application` in argo_cd.go.

    Returns:
        The report of argo_cd.go.

    Raises:
        ArgoError: it failed.
    """
    application = {"kubeconfig": str(plane.kubeconfig()), "chart": str(chart), "name": name, "namespace": namespace}
    environment = {**os.environ, "PATH": f"{program('helm').parent}:{os.environ['PATH']}"}
    with waiting("Argo CD"):
        done = subprocess.run(
            [str(program("argo-cd"))],
            input=json.dumps(application | fields),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise ArgoError(f"argo-cd ended with {done.returncode}:\n{done.stderr[-4000:]}")
    report: Mapping[str, Any] = json.loads(done.stdout)
    return report


@dataclass(frozen=True)
class Flux:
    """Flux' helm-controller at work, and charts that it can install.

    Attributes:
        api: the administrator's client.
        log: what the controller prints.
        address: where the folder of charts is served.
        charts: that folder.
    """

    api: Api
    log: Path
    address: str
    charts: Path

    def add_source(self, name: str, namespace: str, chart: Path) -> None:
        """Make a source with a packed chart, as Flux' source-controller reports one that it has pulled."""
        digest = f"sha256:{hashlib.sha256(chart.read_bytes()).hexdigest()}"
        (self.charts / f"{name}.tgz").write_bytes(chart.read_bytes())
        found = self.api.create(
            manifest(SOURCE, name, namespace, spec={"interval": "1h", "url": "oci://registry.example.com/netdra"})
        )
        now = found["metadata"]["creationTimestamp"]
        ready = {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": now}
        artifact = {
            "digest": digest,
            "lastUpdateTime": now,
            "path": f"{name}.tgz",
            "revision": f"latest@{digest}",
            "url": f"{self.address}/{name}.tgz",
        }
        found["status"] = {"artifact": artifact, "conditions": [ready], "observedGeneration": 1}
        self.api.update(found, subresource="status")

    def reconcile(self, name: str, namespace: str, token: str) -> Object:
        """Have the controller reconcile a release again, and return it after that."""
        self.api.patch(RELEASE, name, {"metadata": {"annotations": {_ASKED: token}}}, namespace=namespace)
        return self.wait(name, namespace, token)

    def wait(self, name: str, namespace: str, token: str = "") -> Object:
        """Wait until a release is ready, and the controller has handled a request, and return it."""

        def is_ready(release: Object | None) -> bool:
            status = (release or {}).get("status", {})
            ready = [each["status"] for each in status.get("conditions", ()) if each["type"] == "Ready"]
            handled = status.get("lastHandledReconcileAt", "") == token
            current = status.get("observedGeneration") == (release or {}).get("metadata", {}).get("generation")
            return ready == ["True"] and handled and current

        found: Object | None = self.api.wait_for(RELEASE, name, is_ready, namespace=namespace, timeout=300)
        return found or {}


@contextmanager
def flux(plane: ControlPlane, api: Api, folder: Path) -> Iterator[Flux]:
    """Run Flux' helm-controller for a control plane, as its administrator.

    Args:
        plane: the cluster; it gets the kinds of Flux.
        api: its administrator's client.
        folder: an empty one.
    """
    for name in _DEFINITIONS:
        plane.kubectl("apply", "--server-side", "-f", str(file("flux", name)))
        for definition in yaml.safe_load_all(file("flux", name).read_text(encoding="utf-8")):
            plane.kubectl("wait", "--for=condition=Established", f"crd/{definition['metadata']['name']}")
    charts = folder / "charts"
    charts.mkdir()
    handler = partial(_Quiet, directory=str(charts))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, name="charts")
    thread.start()
    ports = Ports("127.0.0.1")
    health, metrics = ports.take(), ports.take()
    command = (
        *(str(program("helm-controller")), "--watch-all-namespaces", "--enable-leader-election=false"),
        *(f"--health-addr=127.0.0.1:{health}", f"--metrics-addr=127.0.0.1:{metrics}", "--log-level=info"),
    )
    environment = {"KUBECONFIG": str(plane.kubeconfig()), "RUNTIME_NAMESPACE": "default", "HOME": str(folder)}
    ready = answers(f"http://127.0.0.1:{health}/readyz")
    process = Process("helm-controller", command, folder / "log", ready, environment)
    process.start()
    try:
        process.wait_ready()
        yield Flux(api, folder / "log", f"http://127.0.0.1:{server.server_port}", charts)
    finally:
        process.kill()
        ports.close()
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and prints nothing."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Print nothing."""
