"""Control planes for the cluster tests: one that all share, others with gates of their own, and each test's workspace.

When a test fails, what the components logged during it is shown with the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing

import pytest

from netdra.cli.crds import text
from netdra.model import crd, kinds
from testbed.api import Api, ApiError, Object
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.openstack.cloud import Cloud
from testbed.waiting import until
from testbed.workspace import Workspace, open_workspace

StartControlPlane = Callable[[Settings], ControlPlane]

DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"

RUNNING = pytest.StashKey[list[ControlPlane]]()
LOG_SIZES = pytest.StashKey[dict[ControlPlane, dict[str, int]]]()


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The control plane that all tests share, with the feature gates of the release."""
    with ControlPlane(folder=tmp_path_factory.mktemp("control-plane")) as plane:
        _running(request.config).append(plane)
        yield plane
        _running(request.config).remove(plane)


@pytest.fixture(scope="module")
def start_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartControlPlane]:
    """Starts further control planes, which run until the module's last test is over."""
    with ExitStack() as undo:

        def start(settings: Settings) -> ControlPlane:
            plane = undo.enter_context(ControlPlane(settings, folder=tmp_path_factory.mktemp("control-plane")))
            _running(request.config).append(plane)
            undo.callback(_running(request.config).remove, plane)
            return plane

        yield start


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Iterator[Api]:
    """The administrator's client of the shared control plane."""
    with closing(control_plane.client()) as client:
        yield client


@pytest.fixture(scope="session")
def custom_kinds(control_plane: ControlPlane, api: Api) -> None:
    """netdra's own kinds are served by the shared control plane."""
    serve_kinds(control_plane, api)
    # What kubectl explains things by follows a moment later and cannot be watched.
    until(lambda: all(_is_documented(api, kind) for kind in kinds.KINDS), "netdra's kinds to be documented")
    # kubectl remembers what it discovered before; this renews it.
    control_plane.kubectl("api-resources")


def serve_kinds(plane: ControlPlane, api: Api) -> None:
    """Have a control plane serve netdra's own kinds."""
    plane.kubectl("apply", "--server-side", "-f", "-", text="---\n".join(map(text, kinds.KINDS)))
    for kind in kinds.KINDS:
        api.wait_for(DEFINITION, kind.name, is_established)
    # Whoever lists a kind first may be told to come again (429) until the server has read what there is of it.
    until(lambda: all(_is_listed(api, kind) for kind in kinds.KINDS), "netdra's kinds to be listed")


def _is_listed(api: Api, kind: crd.CustomKind) -> bool:
    try:
        api.request("GET", f"/apis/{kind.group}/{crd.VERSION}/{kind.plural}")
    except ApiError:
        return False
    return True


def _is_documented(api: Api, kind: crd.CustomKind) -> bool:
    path = f"/apis/{kind.group}/{crd.VERSION}"
    try:
        return f"{path}/{kind.plural}" in api.request("GET", f"/openapi/v3{path}")["paths"]
    except ApiError:
        return False


def is_established(definition: Object | None) -> bool:
    """Whether the API server serves a CustomResourceDefinition's kind."""
    conditions = (definition or {}).get("status", {}).get("conditions") or ()  # at first they are null
    return any(found["type"] == "Established" and found["status"] == "True" for found in conditions)


@pytest.fixture(scope="session")
def _servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Keystone and Neutron, which take longer to start than most tests."""
    with Cloud(tmp_path_factory.mktemp("cloud") / "state") as running:
        yield running


@pytest.fixture(scope="module")
def empty_cloud(_servers: Cloud) -> Cloud:
    """Keystone and Neutron, without what other modules made and set."""
    _servers.restore()
    return _servers


@pytest.fixture
def workspace(control_plane: ControlPlane, api: Api) -> Iterator[Workspace]:
    """The test's own share of the shared control plane."""
    with open_workspace(api, control_plane) as opened:
        yield opened


def _running(config: pytest.Config) -> list[ControlPlane]:
    return config.stash.setdefault(RUNNING, [])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember how far the logs were when the test began."""
    item.stash[LOG_SIZES] = {plane: plane.log_sizes() for plane in _running(item.config)}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the components' logs into the report of a test that failed."""
    report = yield
    if report.failed:
        for plane in _running(item.config):
            tails = plane.log_tails(item.stash[LOG_SIZES].get(plane, {}))
            report.sections += [(f"{name} ({plane.folder})", tail) for name, tail in tails.items() if tail]
    return report
