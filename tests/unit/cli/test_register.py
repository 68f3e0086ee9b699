"""`netdra register` and `netdra registrations`, against a registry on a real socket."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from netdra.model import documents
from netdra.model.inventory import Interface
from tests.builders import exclusive, inventory
from tests.unit.node.kubelet.caller import run
from tests.unit.node.registry.scene import serving


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with TemporaryDirectory(prefix="registry-") as path:
        yield Path(path)


def netdra(folder: Path, *arguments: str) -> tuple[int, str, str]:
    command = (sys.executable, "-m", "netdra", *arguments, f"--socket={folder}/registry.sock")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def explain(folder: Path) -> str:
    """The output of `netdra explain` for the interface, asking the registry."""
    node = inventory(Interface(if_name="eth7", type="veth", mac="02:00:00:00:00:07"))
    (folder / "inventory.yaml").write_text(documents.to_yaml(node))
    (folder / "policy.yaml").write_text(documents.to_yaml(exclusive("all", "true")))
    files = ("--policies", f"{folder}/policy.yaml", "--inventory", f"{folder}/inventory.yaml")
    command = (sys.executable, "-m", "netdra", "explain", "eth7", *files, f"--registry-socket={folder}/registry.sock")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_registration_is_listed_explained_and_removed(folder: Path) -> None:
    said = ("--attribute", "rdma=true", "--attribute", "n=3", "--attribute", 's="3"', "--capacity", "bandwidth=4096")

    async def story() -> None:
        async with serving(folder) as scene:
            done = await asyncio.to_thread(
                netdra, folder, "register", "eth7", "--provider", "bctl", "--ttl", "10m", *said
            )
            assert done == (0, "", "")
            (entry,) = scene.table.grants
            assert entry.ttl == 600
            code, text, _ = await asyncio.to_thread(netdra, folder, "registrations", "-o", "json")
            (listed,) = json.loads(text)
            assert (code, listed["attributes"]) == (
                0,
                {"rdma": {"bool": True}, "n": {"int": "3"}, "s": {"string": "3"}},
            )
            _, text, _ = await asyncio.to_thread(netdra, folder, "registrations")
            assert "bandwidth=4096" in text
            explained = await asyncio.to_thread(explain, folder)
            assert "eth7, by bctl (the registry's socket): bctl/n, bctl/rdma, bctl/s, bctl/bandwidth" in explained
            await asyncio.to_thread(netdra, folder, "register", "wire1", "--provider", "bctl", "--add")
            assert len(scene.table.registrations) == 2
            await asyncio.to_thread(netdra, folder, "register", "--provider", "bctl", "--remove")
            assert not [*scene.table.registrations]
            code, _, error = await asyncio.to_thread(netdra, folder, "register", "eth7", "--provider", "k8s.io", *said)
            assert (code, "is reserved" in error) == (2, True)

    run(story)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("register", "eth7", "--provider", "b", "--attribute", "rdma"), 2, "use NAME=VALUE"),
        (("register", "eth7", "--provider", "b", "--attribute", "a=1", "--ttl", "soon"), 2, "write 90s, 10m"),
        (("register", "eth7", "--provider", "b", "--attribute", f"a={2**63}"), 2, "not a 64-bit integer"),
        (("register", "--provider", "b"), 2, "Missing argument"),
        (("register", "f", "--provider", "b", "--file", "/dev/f"), 2, "--file registers a new device"),
        (("register", "f", "--provider", "b", "--remove", "--file", "/dev/f"), 2, "--remove removes all attributes"),
        (("register", "eth7", "--provider", "b", "--remove", "--add"), 2, "--remove removes all attributes"),
        (("register", "eth7", "--provider", "b", "--attribute", "a=1"), 4, "is netdra node --registry-socket there?"),
        (("registrations", "--token-file", "/nowhere"), 2, "use the file of a projected token"),
    ],
)
def test_a_failing_registry_command_reports_a_hint(
    folder: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    found, _, error = netdra(folder, *arguments)
    assert (found, message in error) == (code, True), error
    assert "Traceback" not in error
