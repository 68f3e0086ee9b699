"""Without a recorded inventory, `netdra plan` and `netdra explain` inspect the interfaces of their own namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import yaml
from testbed.waiting import waiting

POLICY = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: bridges}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "bridge"'}
  exposure:
    allowMultipleAllocations: true
    capacity:
      ports: {value: "8", requestPolicy: {default: "1"}}
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace with a bridge in it."""
    name = f"netdra-live-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "add", "br7", "type", "bridge"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def netdra(namespace: str, *arguments: str) -> str:
    command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "netdra", *arguments]
    with waiting(f"netdra {arguments[0]}"):
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_plan_offers_the_bridge_of_its_own_namespace(namespace: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICY)
    printed = netdra(namespace, "plan", "--policies", str(tmp_path), "--node", "here")
    (part,) = yaml.safe_load_all(printed)
    assert part["spec"]["pool"]["name"] == "here/bridge-br7"
    assert [device["name"] for device in part["spec"]["devices"]] == ["br7"]


def test_explain_finds_the_bridge_of_its_own_namespace(namespace: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICY)
    assert 'exposed as br7 by "bridges"' in netdra(namespace, "explain", "br7", "--policies", str(tmp_path))
