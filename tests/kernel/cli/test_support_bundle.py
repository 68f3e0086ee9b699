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
from netdra.model import documents


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
    (tmp_path / "sandboxes" / "5f0c1d2e.jsonl").write_text("{}\n")
    (tmp_path / "sandboxes" / "5f0c1d2e.json").write_text("{}\n")
    command = [sys.executable, "-m", "netdra", "support-bundle", "-", "--node", f"--state-dir={tmp_path}", *options]
    done = subprocess.run(["ip", "netns", "exec", namespace, *command], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    (tmp_path / "node.tar.gz").write_bytes(done.stdout)
    bundle = archive.read_file(tmp_path / "node.tar.gz")
    assert {"doctor.json", "inventory.json"} <= bundle.files.keys()
    inventory = documents.inventory(bundle.files["inventory.json"].decode(), "inventory.json")
    (bridge,) = (entry for entry in inventory.interfaces if entry.type == "bridge")
    everything = b"".join(bundle.files.values()) + msgspec.json.encode(bundle.manifest)
    if options:
        assert not any(text in everything for text in (b"qpayroll", b"qcorp", b"172.20.5"))
        assert bridge.ipv4[0].endswith(".9/24")
    else:
        assert (bridge.if_name, bridge.alias, bridge.ipv4) == ("qpayroll", "qcorp rack 7", ("172.20.5.9/24",))
    assert any(entry.part.startswith("checkpoints/") for entry in bundle.manifest.left_out)
