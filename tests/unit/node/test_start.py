"""A node is published before the rest of its daemon is imported, and a failed import then ends the daemon."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netdra.discovery.watch import Watcher
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.model.extras import how_to_install
from netdra.node import daemon
from netdra.node.publishing.service import Publishing
from netdra.node.settings import NodeSettings
from netdra.ops.process import Process

ROOT = Path(__file__).resolve().parents[3]
# What `netdra node` has imported when it begins to publish (`netdra.cli.node`, `netdra.cli.daemons`).
BEGUN = """
import netdra.cli.node, netdra.node.daemon, netdra.node.metrics, netdra.ops.server, netdra.kube.connection
"""
LATER = (
    "hpack",
    "google.protobuf",
    "netdra.chain.attach",
    "netdra.steps",
    "netdra.node.kubelet",
    "netdra.node.nri",
    "netdra.nri",
)
NEVER = (
    *("aiohttp.web", "grpc", "rich", "cryptography", "cel_expr_python.ext"),
    *("netdra.cel.analysis", "netdra.slices.allocator", "netdra.drawing"),
)
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {token: none}}]
contexts: [{name: none, context: {cluster: none, user: nobody}}]
current-context: none
"""
DAEMON = """
import sys
from netdra.cli.main import main
from netdra.node import daemon
daemon.FIRST_SECONDS = 0.1
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split()))
main()
"""


def imported(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_publishing_starts_without_importing_modules_only_pods_need() -> None:
    found = imported(BEGUN)
    assert "netdra.node.publishing.service" in found
    assert not found.intersection({*LATER, *NEVER})
    later = imported(f"{BEGUN}import netdra.node.parts")
    assert later.issuperset(LATER)
    assert not later.intersection(NEVER)


@pytest.mark.parametrize("used", [False, True])
def test_parts_that_cannot_be_imported_end_the_daemon_with_an_error(tmp_path: Path, used: bool) -> None:
    kubeconfig, state = tmp_path / "kubeconfig", tmp_path / "state"
    kubeconfig.write_text(KUBECONFIG)
    (state / "claims").mkdir(parents=True)
    if used:
        (state / "claims" / "uid.json").touch()
    done = subprocess.run(
        [sys.executable, "-c", DAEMON, "hpack", "node", f"--kubeconfig={kubeconfig}", f"--state-dir={state}"],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 3
    assert "keep pods cannot be imported: import of hpack halted" in done.stderr
    assert how_to_install("cluster") in done.stderr
    assert "Traceback" not in done.stderr


def test_it_is_not_ready_before_the_parts_that_keep_pods_have_begun(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)

    async def story() -> str:
        async with Client(connect(find_config(kubeconfig))) as client:
            process, publishing = Process("node"), Publishing(client, "node", Watcher)
            publishing.published.set()
            daemon._add_checks(process, client, publishing)
            return process.health.readiness().trouble

    trouble = asyncio.run(story())
    assert "kubelet: not begun yet" in trouble
    assert "runtime: not begun yet" in trouble
    assert "slices" not in trouble


def test_a_state_folder_is_used_when_something_may_be_held(tmp_path: Path) -> None:
    settings = NodeSettings(node="node", state_dir=tmp_path / "state")
    assert not settings.is_used()
    settings.sandboxes.mkdir(parents=True)
    (settings.sandboxes / ".lock").touch()
    (settings.sandboxes / "devices").mkdir()
    assert not settings.is_used()
    (settings.sandboxes / "one.jsonl").touch()
    assert settings.is_used()
