"""The support bundle of a node has its interfaces and the state of its pods, without names if that is wanted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from netdra.bundle import archive
from netdra.chain import checkpoint
from netdra.cni.plugins import PluginPath
from netdra.model.plan import ClaimReference
from netdra.node.claims.store import PreparedClaim
from tests.builders import read_inventory

SANDBOX = "5f0c1d2e" * 8
"""As long as those of the runtimes."""
HEADER = checkpoint.Header(
    version=1,
    boot_id="b",
    pod=checkpoint.PodIdentity(sandbox=SANDBOX, name="db-0", namespace="qteam", uid="u-1"),
    namespace=checkpoint.NamespaceId(path="/run/netns/x", cookie=1),
    plugins=PluginPath(directories=("/opt/cni/bin",)),
    plans=(),
)
CHECKPOINT = f"{msgspec.json.encode(HEADER).decode()}\n"
RECORD = PreparedClaim(boot_id="b", claim=ClaimReference(namespace="qteam", name="db", uid="c-1"), devices=())


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace with a bridge whose name and alias are the owner's."""
    name = f"netdra-bundle-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "add", "qpayroll", "type", "bridge"], check=True)
        subprocess.run(["ip", "-n", name, "link", "set", "qpayroll", "alias", "qcorp rack 7"], check=True)
        subprocess.run(["ip", "-n", name, "addr", "add", "172.20.5.9/24", "dev", "qpayroll"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.mark.parametrize("options", [(), ("--anonymize",)])
def test_the_bundle_of_a_node_has_its_interfaces_and_names_unreadable_parts(
    namespace: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "sandboxes").mkdir()
    (tmp_path / "sandboxes" / f"{SANDBOX}.jsonl").write_text(CHECKPOINT)
    (tmp_path / "sandboxes" / "5f0c1d2e.jsonl").write_text("{}\n")
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "c-1.json").write_bytes(msgspec.json.encode(RECORD))
    (tmp_path / "claims" / "c-2.json").write_text("{}\n")
    records = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    command = [sys.executable, "-m", "netdra", "support-bundle", "-", "--node", f"--state-dir={tmp_path}", *options]
    done = subprocess.run(["ip", "netns", "exec", namespace, *command], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    (tmp_path / "node.tar.gz").write_bytes(done.stdout)
    bundle = archive.read_file(tmp_path / "node.tar.gz")
    assert {"doctor.json", "inventory.json"} <= bundle.files.keys()
    inventory = read_inventory(bundle.files["inventory.json"].decode())
    (bridge,) = (entry for entry in inventory.interfaces if entry.type == "bridge")
    everything = b"".join(bundle.files.values()) + msgspec.json.encode(bundle.manifest)
    if options:
        assert not any(text in everything for text in (b"qpayroll", b"qcorp", b"172.20.5", b"qteam", SANDBOX.encode()))
        assert bridge.ipv4[0].endswith(".9/24")
    else:
        assert {f"checkpoints/{SANDBOX}.json", "claims/c-1.json"} <= bundle.files.keys()
        assert (bridge.if_name, bridge.alias, bridge.ipv4) == ("qpayroll", "qcorp rack 7", ("172.20.5.9/24",))
    folders = [part.partition("/")[0] for part in bundle.files if part.endswith(".json")]
    assert (folders.count("checkpoints"), folders.count("claims")) == (1, 1)
    left_out = [entry.part.partition("/")[0] for entry in bundle.manifest.left_out]
    assert left_out == ["checkpoints", "claims", "metrics.txt"]
    assert {path: path.read_bytes() for path in tmp_path.glob("*/*")} == records
