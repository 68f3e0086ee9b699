"""Builds of any two commits can be distinguished, and a package knows its version without git."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from netdra.model.extras import how_to_install
from release.version import (
    MODULE,
    ROOT,
    VARIABLE,
    Checkout,
    VersionError,
    build_version,
    chart_version,
    checkout_of,
    image_tag,
    is_release,
    tree_version,
    version,
)
from testbed import yaml
from testbed.archives import unpack

COMMIT = "1a2b3c4d5e6f"
NEXT = tree_version().partition(".dev")[0]
"""The release that the sources are before."""


@pytest.mark.parametrize(
    ("tag", "distance", "dirty", "built", "chart"),
    [
        ("", 5, False, "0.2.0.dev5+g1a2b3c4", "0.2.0-dev.5+g1a2b3c4"),
        ("v0.1.0", 5, False, "0.2.0.dev5+g1a2b3c4", "0.2.0-dev.5+g1a2b3c4"),
        ("v0.1.0", 5, True, "0.2.0.dev5+g1a2b3c4.dirty", "0.2.0-dev.5+g1a2b3c4.dirty"),
        ("v0.2.0", 0, False, "0.2.0", "0.2.0"),
        ("v0.2.0", 0, True, "0.2.1.dev0+g1a2b3c4.dirty", "0.2.1-dev.0+g1a2b3c4.dirty"),
        ("v0.2.0", 1, False, "0.2.1.dev1+g1a2b3c4", "0.2.1-dev.1+g1a2b3c4"),
        ("v0.2.0-rc.1", 0, False, "0.2.0rc1", "0.2.0-rc.1"),
        ("v0.2.0-rc.1", 3, False, "0.2.0.dev3+g1a2b3c4", "0.2.0-dev.3+g1a2b3c4"),
    ],
)
def test_a_build_has_the_version_of_its_commit(tag: str, distance: int, dirty: bool, built: str, chart: str) -> None:
    assert build_version("0.2.0.dev0", Checkout(COMMIT, tag, distance, dirty)) == built
    assert chart_version(built) == chart
    assert is_release(built) == ("dev" not in built)
    assert image_tag(built) == built.replace("+", "_")


def test_a_tag_of_another_version_is_rejected() -> None:
    with pytest.raises(VersionError, match=r'tag "v0.3.0" does not match __version__ "0.2.0.dev0"'):
        build_version("0.2.0.dev0", Checkout(COMMIT, "v0.3.0", 0, False))


@pytest.mark.parametrize("tree", ["0.2", "v0.2.0", "0.2.0.dev0 ", "0.2.0+x-y"])
def test_a_version_of_another_form_is_rejected(tree: str) -> None:
    with pytest.raises(VersionError, match=r"must be like 0\.2\.0\.dev0"):
        build_version(tree, None)


def test_without_git_a_build_has_the_version_that_its_sources_name() -> None:
    assert build_version("0.2.0.dev0", None) == "0.2.0.dev0"
    assert build_version("0.2.0.dev5+g1a2b3c4", Checkout(COMMIT, "v0.1.0", 9, False)) == "0.2.0.dev5+g1a2b3c4"


def test_the_environment_variable_sets_the_version_and_must_be_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0.2.0.dev7+g7777777")
    assert version() == "0.2.0.dev7+g7777777"
    monkeypatch.setenv(VARIABLE, "latest")
    with pytest.raises(VersionError, match=r'NETDRA_VERSION "latest" must be like 0\.2\.0'):
        version()


def test_the_charts_have_the_version_of_the_sources() -> None:
    for path in (ROOT / "charts").glob("*/Chart.yaml"):
        chart = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert (chart["version"], chart["appVersion"]) == (chart_version(tree_version()), tree_version())


BUILDING = tuple(f"release/{name}" for name in ("version.py", "build_hook.py", "metadata_hook.py", "home.toml"))
"""The files of `release` that a build of the package needs."""


def git(folder: Path, *arguments: str) -> None:
    environment = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    person = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
    subprocess.run(("git", *person, *arguments), cwd=folder, env=environment, capture_output=True, check=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the files that a build of the package needs, and one commit."""
    folder = tmp_path / "checkout"
    for name in ("pyproject.toml", "README.md", "LICENSE", str(MODULE), *BUILDING):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=one")
    return folder


def test_commits_since_the_last_release_are_counted(checkout: Path) -> None:
    known = checkout_of(checkout)
    assert known is not None
    assert (known.tag, known.distance, known.dirty) == ("", 1, False)
    git(checkout, "tag", "v0.1.0")
    git(checkout, "commit", "--quiet", "--allow-empty", "--message=two")
    assert version(checkout).startswith(f"{NEXT}.dev1+g")
    (checkout / "README.md").write_text("changed\n")
    assert version(checkout).endswith(".dirty")
    git(checkout, "checkout", "README.md")
    git(checkout, "tag", f"v{NEXT}")
    assert version(checkout) == NEXT


def test_an_unpacked_sdist_is_not_of_the_checkout_around_it(checkout: Path) -> None:
    inner = checkout / "vendor" / "netdra-0.2.0"
    (inner / MODULE).parent.mkdir(parents=True)
    (inner / MODULE).write_text('__version__ = "0.2.0.dev0"\n')
    assert checkout_of(inner) is None
    assert version(inner) == "0.2.0.dev0"


def build(folder: Path, kind: str, output: Path) -> Path:
    """The files that hatchling builds from a folder."""
    command = (sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(output))
    environment = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
    (built,) = output.iterdir()
    return built


def test_a_wheel_and_an_sdist_know_their_version_and_the_sources_stay(checkout: Path, tmp_path: Path) -> None:
    expected = version(checkout)
    assert expected.startswith(f"{NEXT}.dev1+g")
    wheel = build(checkout, "wheel", tmp_path / "wheel")
    sdist = build(checkout, "sdist", tmp_path / "sdist")
    assert tree_version(checkout) == f"{NEXT}.dev0"
    with zipfile.ZipFile(wheel) as archive:
        assert f'__version__ = "{expected}"\n' in archive.read(str(MODULE)).decode()
        assert f"\nVersion: {expected}\n" in archive.read(f"netdra-{expected}.dist-info/METADATA").decode()
    with tarfile.open(sdist) as archive:
        unpack(archive, tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    again = build(unpacked, "wheel", tmp_path / "again")
    assert (again.name, again.read_bytes()) == (wheel.name, wheel.read_bytes())


def test_installation_hints_name_the_wheel_or_the_source_folder() -> None:
    assert "pip install './netdra-0.2.0-py3-none-any.whl[cluster]'" in how_to_install("cluster", "0.2.0")
    assert "in the folder of netdra's sources: pip install --editable '.[cluster]'" in how_to_install(
        "cluster", "0.2.0.dev0"
    )
