"""The daemons as they are operated: scraped, probed and stopping, each as a process on a real API server."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from netdra.cli.crds import text
from netdra.model import kinds
from testbed import objects
from testbed.api import Api
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.process import Ports
from testbed.waiting import PATIENCE, until, waiting
from tests.cluster import identities
from tests.cluster.conftest import DEFINITION, StartControlPlane, is_established

LEASE = "coordination.k8s.io/v1/Lease"
NODE = "operated"


@pytest.fixture(scope="module")
def plane(start_control_plane: StartControlPlane) -> ControlPlane:
    """A control plane of this module's own, since it is taken away."""
    return start_control_plane(Settings(scheduler=False))


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[Api]:
    """The administrator's client, with netdra installed and one node."""
    with closing(plane.client()) as api:
        plane.kubectl("apply", "--server-side", "-f", "-", text="---\n".join(map(text, kinds.KINDS)))
        for kind in kinds.KINDS:
            api.wait_for(DEFINITION, kind.name, is_established)
        identities.install(api)
        objects.add_node(api, NODE)
        yield api


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with so short a path that sockets can be in it (unix(7): 107 bytes)."""
    with tempfile.TemporaryDirectory(prefix="netdra-") as name:
        yield Path(name)


@dataclass
class Daemon:
    """A running `netdra COMMAND`."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; 0 without an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def checks(self) -> dict[str, dict[str, Any]]:
        """The checks of /readyz by name."""
        return {each["name"]: each for each in json.loads(self.get("/readyz?verbose")[1])["checks"]}

    @property
    def name(self) -> str:
        """Its name."""
        return f"netdra {self.log.stem}"

    def until(self, does: str, met: Callable[[], bool]) -> None:
        """Wait until it does something that cannot be watched."""

        def done() -> bool:
            assert self.process.poll() is None, f"ended: {self.process.returncode}\n{self.log.read_text()}"
            return met()

        until(done, f"{self.name} {does}", detail=lambda: f"{self.get('/readyz?verbose')}\n{self.log.read_text()}")

    def until_ready(self, status: int = 200) -> None:
        self.until("to be ready" if status == 200 else "not to be ready", lambda: self.get("/readyz")[0] == status)

    def until_well(self, check: str) -> None:
        """Wait until a check is there and well."""
        self.until(
            f"to say that all is well with its {check}",
            lambda: self.get("/readyz")[0] != 0 and self.checks().get(check, {}).get("ok", False),
        )

    def scrape(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Every sample: name and labels -> value."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }

    def sample(self, name: str, **labels: str) -> float:
        """One sample; 0 if it is not there."""
        return self.scrape().get((name, tuple(sorted(labels.items()))), 0.0)

    def ended(self) -> int:
        """The exit code, once it has ended."""
        with waiting(f"{self.name} to end"):
            return self.process.wait(PATIENCE)


@contextmanager
def running(folder: Path, command: str, account: Path, *more: str) -> Iterator[Daemon]:
    """A daemon with health on a port of its own; killed at the end if it still runs."""
    with ExitStack() as undo:
        port = undo.enter_context(closing(Ports("127.0.0.1"))).take()
        log = folder / f"{command}.log"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "netdra", command, f"--kubeconfig={account}"),
                *(f"--health-address=127.0.0.1:{port}", "--log-format=json", *more),
            ],
            stderr=undo.enter_context(log.open("wb")),
        )
        undo.callback(process.wait)
        undo.callback(process.kill)
        yield Daemon(process, port, log)


def test_a_controller_is_ready_when_it_leads_and_has_read_the_cluster(
    plane: ControlPlane, admin: Api, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    account = identities.kubeconfig(plane, admin, "netdra-controller")
    spec = {"steps": [{"name": "vf0", "type": "sriov", "selector": {"cel": "true"}}]}
    admin.create(objects.manifest("networking.dra.io/v1alpha1/NetworkTopology", "measured", spec=spec))
    with running(tmp_path, "controller", account, "--identity=one") as daemon:
        daemon.until_ready()
        checks = daemon.checks()
        assert checks["leadership"]["detail"] == "leads netdra/netdra-controller"
        assert checks["caches"]["ok"]
        assert checks["caches"]["detail"].endswith(" caches")
        assert json.loads(daemon.get("/healthz?verbose")[1])["checks"][0]["name"] == "event-loop"
        written = "netdra_controller_class_writes_total"
        daemon.until("to write a class", lambda: daemon.sample(written, verb="create", outcome="ok") == 1)
        assert daemon.sample("netdra_leader", lease="netdra-controller") == 1
        assert daemon.sample("netdra_reflector_objects", resource="networktopologies") == 1
        assert daemon.sample("netdra_reflector_lists_total", resource="networktopologies") == 1
        assert daemon.sample("netdra_api_requests_total", verb="create", resource="deviceclasses", code="201") == 1
        assert daemon.sample("netdra_api_request_duration_seconds_count", verb="list") >= 6
        looks = "netdra_controller_reconcile_duration_seconds_count"
        assert daemon.sample(looks, kind="NetworkTopology", outcome="ok") >= 1
        assert daemon.sample("process_resident_memory_bytes") > 1e6

        with running(tmp_path_factory.mktemp("two"), "controller", account, "--identity=two") as second:
            second.until_ready()
            assert second.checks()["leadership"]["detail"] == "waits for netdra/netdra-controller, which is held by one"
            assert second.sample("netdra_leader", lease="netdra-controller") == 0
            # Told to stop, the first gives the lease away at once instead of when it runs out.
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.ended() == 0
            (lease,) = admin.list(LEASE, "netdra", fields="metadata.name=netdra-controller")
            assert lease["spec"].get("holderIdentity", "") in ("", "two")
            second.until("to lead", lambda: second.sample("netdra_leader", lease="netdra-controller") == 1)
        lines = [json.loads(line) for line in daemon.log.read_text().splitlines()]
        assert {"time", "level", "logger", "message"} <= set(lines[0])
        assert lines[-1]["message"] == "ended"


def test_a_daemon_is_not_ready_while_the_api_server_is_away(
    plane: ControlPlane, admin: Api, tmp_path: Path, short: Path
) -> None:
    account = identities.kubeconfig(plane, admin, "netdra-node", NODE)
    begun = (f"--node-name={NODE}", *places(short))
    plane.apiserver.kill()
    try:
        with (
            running(tmp_path, "controller", plane.kubeconfig()) as controller,
            running(tmp_path, "node", account, *begun) as node,
        ):
            controller.until_ready(503)
            assert controller.get("/healthz") == (200, "ok")
            assert "cannot be read or renewed" in controller.checks()["leadership"]["detail"]
            # Without its slices too, a node serves the kubelet and the runtime as soon as they are there.
            node.until("to look for the kubelet", lambda: "plugins_registry" in node.get("/readyz")[1])
            assert node.get("/healthz") == (200, "ok")
            plane.apiserver.start()
            plane.apiserver.wait_ready()
            controller.until_ready()
            node.until_well("slices")
    finally:
        if plane.apiserver.pid is None:
            plane.apiserver.start()
            plane.apiserver.wait_ready()
    with running(tmp_path, "node", account, *begun) as node:
        node.until_well("slices")
        assert node.checks()["api-server"]["ok"]
        plane.apiserver.kill()
        try:
            node.until("to miss the API server", lambda: not node.checks()["api-server"]["ok"])
            assert node.get("/readyz")[0] == 503
            assert node.get("/healthz") == (200, "ok")
        finally:
            plane.apiserver.start()
            plane.apiserver.wait_ready()
        node.until_well("api-server")


def test_a_node_reports_its_published_slices_and_its_missing_connections(
    plane: ControlPlane, admin: Api, tmp_path: Path, short: Path
) -> None:
    account = identities.kubeconfig(plane, admin, "netdra-node", NODE)
    with running(tmp_path, "node", account, f"--node-name={NODE}", *places(short)) as node:
        node.until_well("slices")
        assert node.get("/readyz")[0] == 503
        assert not node.checks()["kubelet"]["ok"]
        assert not node.checks()["runtime"]["ok"]
        assert node.sample("netdra_nri_connected") == 0
        assert node.sample("netdra_kubelet_registered") == 0
        assert node.sample("netdra_discovery_scans_total") >= 1
        assert any(name == "netdra_discovery_interfaces" and value for (name, _), value in node.scrape().items())
        slices = admin.list(objects.SLICE, fields=f"spec.nodeName={NODE}")
        assert node.sample("netdra_published_slices") == len(slices)
        node.process.send_signal(signal.SIGTERM)
        assert node.ended() == 0
        assert len(admin.list(objects.SLICE, fields=f"spec.nodeName={NODE}")) == len(slices)


def test_a_webhook_that_drains_is_not_ready_and_still_answers_and_a_second_signal_ends_it(
    plane: ControlPlane, admin: Api, tmp_path: Path
) -> None:
    account = identities.kubeconfig(plane, admin, "netdra-webhook")
    for configuration in identities.template("webhook-rules.yaml"):
        for each in configuration["webhooks"]:
            each["failurePolicy"] = "Ignore"
        admin.create(configuration)
    with closing(Ports("127.0.0.1")) as ports:
        port = ports.take()
        where = ("--host=127.0.0.1", "--address=127.0.0.1", f"--port={port}")
        with running(tmp_path, "webhook", account, *where, "--drain-seconds=300") as webhook:
            webhook.until_ready()
            assert webhook.checks()["certificate"]["detail"].startswith("valid until ")
            assert webhook.sample("netdra_webhook_certificate_not_after_timestamp_seconds") > time.time()
            webhook.process.send_signal(signal.SIGTERM)
            webhook.until_ready(503)
            assert webhook.get("/readyz") == (503, "stopping: stopping")
            assert webhook.get("/healthz") == (200, "ok")
            asked = http.client.HTTPSConnection(
                "127.0.0.1", port, context=ssl._create_unverified_context(), timeout=PATIENCE
            )
            with closing(asked):
                asked.request("POST", "/validate", body="no review")
                assert asked.getresponse().status == 400
            assert webhook.sample("netdra_webhook_requests_total", kind="", operation="", verdict="malformed") == 1
            webhook.process.send_signal(signal.SIGTERM)
            assert webhook.ended() == -signal.SIGTERM


def test_an_address_that_is_taken_is_an_error_and_no_traceback(plane: ControlPlane, admin: Api, tmp_path: Path) -> None:
    account = identities.kubeconfig(plane, admin, "netdra-controller")
    with running(tmp_path, "controller", account) as first:
        first.until_ready()
        again = [sys.executable, "-m", "netdra", "controller", f"--kubeconfig={account}"]
        done = subprocess.run(
            [*again, f"--health-address=127.0.0.1:{first.port}"], capture_output=True, text=True, timeout=PATIENCE
        )
    assert done.returncode == 3
    assert "address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def places(folder: Path) -> tuple[str, ...]:
    """Where a node's driver keeps things, apart from this machine's own."""
    return (
        *(f"--state-dir={folder}/state", f"--kubelet-root={folder}/kubelet", f"--cdi-dir={folder}/cdi"),
        f"--nri-socket={folder}/nri.sock",
    )
