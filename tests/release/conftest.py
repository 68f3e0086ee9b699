"""A release's folder as a reader has it, and a cluster of one node for it: `make test-release`.

NETDRA_RELEASE names the folder; pages are read in the site's archive of that folder, and nothing of the checkout's
product is used. NETDRA_RELEASE_BEFORE names the folder of an earlier release, from which is upgraded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.build import program
from testbed.site import PLUGINS, Site
from tests.cluster.conftest import StartControlPlane, start_control_plane
from tests.cluster.install.fresh import fresh_site
from tests.cluster.install.releases import Release, open_registry
from tests.cluster.pods.conftest import pytest_runtest_makereport, pytest_runtest_setup
from tests.confined import PLACES
from tests.release.pages import Pages, unpacked

__all__ = ["pytest_runtest_makereport", "pytest_runtest_setup", "start_control_plane"]

ROOT = Path(__file__).parents[2]
MOST_SECONDS = 900
FOLDER, BEFORE = "NETDRA_RELEASE", "NETDRA_RELEASE_BEFORE"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests more time than all others have: an installation pulls the image, and becomes ready."""
    for item in items:
        item.add_marker(pytest.mark.timeout(MOST_SECONDS))


@pytest.fixture(scope="session")
def release(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A copy of the release, without anything beside it."""
    folder = Path(os.environ.get(FOLDER) or ROOT / "build" / "release")
    return copied(folder, pytestconfig, tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="session")
def before(release: Release, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A copy of the earlier release; the release itself if none is named."""
    named = os.environ.get(BEFORE)
    return copied(Path(named), pytestconfig, tmp_path_factory.mktemp("before")) if named else release


def copied(folder: Path, config: pytest.Config, target: Path) -> Release:
    """A copy of a release's folder."""
    config.stash[PLACES].allow(folder)
    archives = [path.name for path in folder.glob("netdra-*.oci.tar")]
    if len(archives) != 1:
        pytest.fail(f"{folder} is not a release's folder: run 'make release LOCAL=1', or set {FOLDER}", pytrace=False)
    shutil.copytree(folder, target / "folder")
    return Release(target / "folder", archives[0].removeprefix("netdra-").removesuffix(".oci.tar"))


@pytest.fixture(scope="session")
def pages(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """The pages of the release's site."""
    return unpacked(release, tmp_path_factory.mktemp("pages"))


@pytest.fixture
def site(
    request: pytest.FixtureRequest,
    release: Release,
    start_control_plane: StartControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """A cluster of one node, which has the usual CNI plugins in the usual folder; netdra is not installed."""
    folder = tmp_path_factory.mktemp("site")
    with fresh_site(request.config, start_control_plane, folder, release.archive) as (found, node):
        # The folder of the machine's own is not written: the node has another one there.
        node.run("mount", "-t", "tmpfs", "tmpfs", "/opt")
        node.run("mkdir", "-p", "/opt/cni/bin")
        node.run("cp", *(str(program(name)) for name in PLUGINS), "/opt/cni/bin")
        yield found


@pytest.fixture
def registry(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The user's own registry."""
    with open_registry(site, tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture(scope="session")
def environment(release: Release, pages: Pages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of the wheel, installed with exactly the versions of the image, as the page describes it."""
    folder = tmp_path_factory.mktemp("wheel") / "venv"
    pip = f"{folder}/bin/python -m pip --quiet --disable-pip-version-check"
    install = pages.line("releases", "the-python-package", r"pip install '.*\[cluster\]'")
    locked = pages.code("releases", "the-python-package", r"pip install --require-hashes .*")
    assert (install, locked) != ("", "")
    release.run(f"python3 -m venv {folder}")
    for line in (locked, install):
        release.run(line.replace("pip ", f"{pip} ", 1))
    return folder / "bin"
