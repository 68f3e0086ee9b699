"""The values that a pod writes to the files of its device's queues are gone when the device is back.

The commands run where sysfs shows the node's namespace, as on a node: a netdev's files are in its namespace alone.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdra.kernel import netns
from netdra.kernel.netns import Namespace
from testbed.waiting import waiting

TOPOLOGY = """
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: by-hand}
spec:
  steps:
    - {name: nic, type: host-device, selector: {cel: "true"}, config: {device: eth7, name: net1}}
"""
WRITES = {
    "queues/rx-0/rps_cpus": "1",
    "queues/rx-0/rps_flow_cnt": "8",
    "queues/tx-0/xps_cpus": "1",
    "gro_flush_timeout": "5000",
    "napi_defer_hard_irqs": "3",
}


@pytest.fixture
def spaces() -> Iterator[tuple[str, str]]:
    """The names of a node's namespace and of a pod's."""
    names = [f"netdra-test-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    opened = [Namespace.create(name) for name in names]
    try:
        yield names[0], names[1]
    finally:
        for name, space in zip(names, opened, strict=True):
            space.close()
            netns.delete(name)


def inside(space: str, *command: str) -> str:
    with waiting(" ".join(command[:4])):
        done = subprocess.run(("ip", "netns", "exec", space, *command), capture_output=True, text=True, check=True)
    return done.stdout


def files(space: str, name: str) -> dict[str, str]:
    """The files of a netdev's queues, and of its polling, as the shell reads them."""
    folder = f"/sys/class/net/{name}"
    lines = inside(
        space, "sh", "-c", f"cd {folder} && grep -rs . queues gro_flush_timeout napi_defer_hard_irqs threaded"
    )
    return dict(line.split(":", 1) for line in lines.splitlines() if "inflight" not in line and "/limit:" not in line)


def test_files_of_queues_are_as_they_were_when_a_device_is_back(spaces: tuple[str, str], tmp_path: Path) -> None:
    node, pod = spaces
    (tmp_path / "plan.yaml").write_text(TOPOLOGY)
    netdra = (sys.executable, "-m", "netdra")
    state = ("--state", str(tmp_path / "state"), "--timeout", "60")
    inside(node, "ip", "link", "add", "eth7", "up", "type", "veth", "peer", "name", "peer7")
    inside(node, "sh", "-c", "echo 3 >/sys/class/net/eth7/queues/rx-0/rps_cpus")
    before = files(node, "eth7")
    inside(node, *netdra, "attach", "--netns", f"/run/netns/{pod}", "--plan", str(tmp_path / "plan.yaml"), *state)
    for path, value in WRITES.items():
        inside(pod, "sh", "-c", f"echo {value} >/sys/class/net/net1/{path}")
    spoilt = files(pod, "net1")
    assert all(spoilt[path].lstrip("0,") == value for path, value in WRITES.items())
    inside(node, *netdra, "detach", pod, *state)
    assert files(node, "eth7") == before
