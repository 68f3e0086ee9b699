"""A node on which pods really run, shared by these tests, and each test's pods.

When a test fails, what the node's programs logged during it is shown with the failure.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.driver import Driver
from testbed.forks import Forks
from testbed.kubelet import Kubelet
from testbed.node import Node
from testbed.objects import NODE
from testbed.pods import Pods
from testbed.runtime import Runtime
from testbed.runtimes import started
from testbed.workspace import Workspace
from tests.cluster.pods.running import publish, running_driver
from tests.cluster.pods.stage import SHARED, Stage, opened

NUMBERS = itertools.count(1)
RUNNING = pytest.StashKey[list[Node]]()
FORKS = pytest.StashKey[Forks]()
LOG_SIZES = pytest.StashKey[dict[Node, dict[str, int]]]()


# A pod may have to wait for the kubelet's second try at its claim (`testbed.pods`), and some tests have several pods.
MOST_SECONDS = 600
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Machine:
    """A node with its processes, which a test may kill and restart if it waits for their return."""

    node: Node
    containerd: Runtime
    kubelet: Kubelet


@contextmanager
def running_machine(config: pytest.Config, plane: ControlPlane, api: Api, folder: Path) -> Iterator[Machine]:
    """A Ready node of a control plane that forks netdra; its logs are shown with tests that fail."""
    with Node(f"node-{next(NUMBERS)}", folder=folder) as node, logs_shown(config, node):
        node.forks = forks_of(config, folder)
        containerd = started(node)
        try:
            yield Machine(node, containerd, Kubelet(containerd, plane))
        finally:
            api.delete(NODE, node.name)


def forks_of(config: pytest.Config, folder: Path) -> Forks:
    """The process that has imported netdra, once for all nodes: tests start a driver again and again."""
    if FORKS not in config.stash:
        config.stash[FORKS] = found = Forks(folder / "forks.log")
        config.add_cleanup(found.close)
    return config.stash[FORKS]


@contextmanager
def logs_shown(config: pytest.Config, node: Node) -> Iterator[None]:
    """Show a node's logs with tests that fail."""
    running = config.stash.setdefault(RUNNING, [])
    running.append(node)
    try:
        yield
    finally:
        running.remove(node)


@pytest.fixture(scope="module")
def machine(
    request: pytest.FixtureRequest, control_plane: ControlPlane, api: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """A Ready node of the shared control plane, for the tests of a module."""
    with running_machine(request.config, control_plane, api, tmp_path_factory.mktemp("node")) as found:
        yield found


@pytest.fixture
def pods(machine: Machine, workspace: Workspace) -> Iterator[Pods]:
    """The test's pods, which have ended when the next test begins."""
    opened = Pods(workspace.api, workspace.namespace, machine.containerd)
    yield opened
    opened.delete_all()


@pytest.fixture(scope="module")
def driver(machine: Machine, control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Driver]:
    """The node's driver, and policies for interfaces whose names begin with `nic` or `mac`."""
    with running_driver(machine.node, control_plane, api) as found:
        yield found


@pytest.fixture(scope="module")
def shares(driver: Driver, api: Api) -> None:
    """An interface of the node that pods share."""
    publish(driver.node, api, SHARED)


@pytest.fixture
def stage(driver: Driver, shares: None, workspace: Workspace, pods: Pods) -> Iterator[Stage]:
    """A driver that runs; at the end it has kept nothing of the test's pods."""
    with opened(driver, workspace, pods) as found:
        yield found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of real pods more time than all others have."""
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.timeout(MOST_SECONDS))


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
