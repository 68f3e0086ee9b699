"""A node on which pods really run, shared by these tests, and each test's pods.

When a test fails, what the node's programs logged during it is shown with the failure.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import pytest

from testbed.api import Api
from testbed.containerd import Containerd
from testbed.control_plane import ControlPlane
from testbed.kubelet import Kubelet
from testbed.node import Node
from testbed.objects import NODE
from testbed.pods import Pods
from testbed.workspace import Workspace

NUMBERS = itertools.count(1)
RUNNING = pytest.StashKey[list[Node]]()
LOG_SIZES = pytest.StashKey[dict[Node, dict[str, int]]]()


@dataclass(frozen=True)
class Machine:
    """A node with what runs on it, which a test may kill and restart if it waits for its return."""

    node: Node
    containerd: Containerd
    kubelet: Kubelet


@pytest.fixture(scope="module")
def machine(
    request: pytest.FixtureRequest, control_plane: ControlPlane, api: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """A Ready node of the shared control plane, for the tests of a module."""
    running = request.config.stash.setdefault(RUNNING, [])
    name = f"node-{next(NUMBERS)}"
    with Node(name, folder=tmp_path_factory.mktemp("node")) as node:
        running.append(node)
        containerd = Containerd(node)
        try:
            yield Machine(node, containerd, Kubelet(containerd, control_plane))
        finally:
            running.remove(node)
            api.delete(NODE, node.name)


@pytest.fixture
def pods(machine: Machine, workspace: Workspace) -> Iterator[Pods]:
    """The test's pods, which have ended when the next test begins."""
    opened = Pods(workspace.api, workspace.namespace, machine.containerd)
    yield opened
    opened.delete_all()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember how far the logs were when the test began."""
    item.stash[LOG_SIZES] = {node: node.log_sizes() for node in item.config.stash.get(RUNNING, [])}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the logs of the node's programs into the report of a test that failed."""
    report = yield
    if report.failed:
        for node in item.config.stash.get(RUNNING, []):
            tails = node.log_tails(item.stash[LOG_SIZES].get(node, {}))
            report.sections += [(f"{name} ({node.folder})", tail) for name, tail in tails.items() if tail]
    return report
