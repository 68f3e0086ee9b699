"""A node with a real containerd: pods by the CRI alone, restarts, CDI, NRI's socket, and nothing left afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.node import ADDRESS, UPLINK, CommandError, Node
from testbed.runtime import Runtime
from testbed.runtimes import started
from testbed.waiting import until
from tests.cluster.pods.traces import all_namespaces, namespaces_of, traces

CDI_SPEC = {
    "cdiVersion": "0.6.0",
    "kind": "testbed.local/thing",
    "devices": [{"name": "one", "containerEdits": {"env": ["THING=one"]}}],
}


@pytest.fixture(scope="module")
def containerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with Node("runtime", folder=tmp_path_factory.mktemp("node")) as node:
        yield started(node)


def test_a_nodes_interfaces_are_its_own(containerd: Runtime) -> None:
    links = {link["ifname"] for link in json.loads(containerd.node.run("ip", "-j", "link"))}
    assert set(containerd.node.run("ls", "/sys/class/net").split()) == links
    assert {"lo", UPLINK} <= links
    (route,) = json.loads(containerd.node.run("ip", "-j", "route", "get", "198.51.100.1"))
    assert (route["dev"], route["prefsrc"]) == (UPLINK, ADDRESS)


def test_a_pod_has_its_network_until_it_is_stopped(containerd: Runtime) -> None:
    sandbox = containerd.run_pod_sandbox("alone")
    namespace = containerd.netns(sandbox)
    (eth0,) = json.loads(containerd.node.run("nsenter", f"--net={namespace}", "ip", "-j", "address", "show", "eth0"))
    assert eth0["addr_info"][0]["local"].startswith("10.244.")
    assert containerd.node.path(namespace).exists()
    containerd.stop_pod_sandbox(sandbox)
    assert not containerd.node.path(namespace).exists()
    containerd.remove_pod_sandbox(sandbox)
    assert sandbox not in containerd.crictl("pods", "--quiet", "--no-trunc")


def test_containers_outlive_the_runtime(containerd: Runtime) -> None:
    sandbox = containerd.run_pod_sandbox("outliving")
    container = containerd.run_container(sandbox)
    containerd.process.kill()
    containerd.process.start()
    containerd.process.wait_ready()
    assert containerd.crictl("exec", "--sync", container, "hostname") != ""
    containerd.process.restart()
    assert containerd.crictl("ps", "--quiet", "--no-trunc").split() == [container]
    containerd.stop_pod_sandbox(sandbox)
    containerd.remove_pod_sandbox(sandbox)


def test_a_container_gets_the_environment_of_its_cdi_spec_and_fails_without_it(containerd: Runtime) -> None:
    sandbox = containerd.run_pod_sandbox("cdi")
    device = "testbed.local/thing=one"
    with pytest.raises(CommandError, match=f"unresolvable CDI devices {re.escape(device)}"):
        containerd.run_container(sandbox, cdi_devices=[device])
    (containerd.node.folder / "run" / "cdi" / "thing.json").write_text(json.dumps(CDI_SPEC))
    container = containerd.run_container(sandbox, name="second", cdi_devices=[device])
    assert containerd.crictl("exec", "--sync", container, "sh", "-c", "echo $THING").strip() == "one"
    containerd.stop_pod_sandbox(sandbox)
    containerd.remove_pod_sandbox(sandbox)


def test_the_nri_socket_is_reached_from_outside(containerd: Runtime) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(containerd.nri_socket))


def test_two_nodes_share_nothing(containerd: Runtime, tmp_path: Path) -> None:
    with Node("second", folder=tmp_path / "node-two") as second:
        assert started(second).crictl("pods", "--quiet") == ""
        assert second.run("hostname").strip() == "second"
        second.run("ip", "link", "add", "only-here", "type", "veth", "peer", "name", "and-here")
        assert "only-here" not in containerd.node.run("ls", "/sys/class/net")


def test_nothing_is_left_when_a_node_ends_with_pods_running(tmp_path: Path) -> None:
    folder = tmp_path / f"ended{os.getpid()}"  # told from those of other runs on this machine
    before = traces(folder.name)
    with ExitStack() as opened:
        with Node(folder=folder) as node:
            containerd = started(node)
            containerd.run_container(containerd.run_pod_sandbox("forgotten"))
            own = namespaces_of([node.pid])
            for kind in ("net", "mnt"):  # the kernel gives the numbers of those that are open to no others
                opened.enter_context(Path(f"/proc/{node.pid}/ns/{kind}").open("rb"))
            assert traces(folder.name)["processes"]
        assert traces(folder.name) == before
        assert not own & all_namespaces()


def test_processes_and_mounts_end_with_a_test_run_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / f"killed{os.getpid()}"
    script = f"""
from pathlib import Path
from testbed.runtimes import started
from testbed.node import Node
with Node(folder=Path({str(folder)!r})) as node:
    containerd = started(node)
    containerd.run_container(containerd.run_pod_sandbox("forgotten"))
    print("running", flush=True)
    input()
"""
    command = (sys.executable, "-c", script)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "running\n"
        assert len(traces(folder.name)["processes"]) > 3
        os.kill(run.pid, signal.SIGKILL)
    until(lambda: not traces(folder.name)["processes"], "the node's processes to end")
    assert traces(folder.name)["mounts"] == []
    for group in sorted(Path("/sys/fs/cgroup").rglob(f"{folder.name}-*/**"), reverse=True):
        group.rmdir()
