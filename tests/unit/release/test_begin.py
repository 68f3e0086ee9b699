"""`python -m release begin`: the next version in sources and charts, and the commit that upgrades start from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from netdra import __version__
from release import __main__ as commands
from release.version import ROOT
from testbed import yaml

RELEASED = f"v{__version__.partition('.dev')[0]}"


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    return subprocess.run(
        ("git", *who, "-C", str(folder), *arguments), check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that `begin` changes, in a repository of their own with one commit."""
    charts = [path.relative_to(ROOT) for path in (ROOT / "charts").glob("*/Chart.yaml")]
    for name in (Path("release/previous"), Path("netdra/__init__.py"), *charts):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=a")
    monkeypatch.setattr(commands, "ROOT", tmp_path)
    return tmp_path


def begin(monkeypatch: pytest.MonkeyPatch, number: str) -> int:
    monkeypatch.setattr("sys.argv", ["release", "begin", number])
    return commands.main()


def test_the_next_version_is_written_and_upgrades_start_from_the_commit_of_the_tag(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(sources, "tag", "--annotate", "--message=a", RELEASED)
    assert begin(monkeypatch, "9.0.0") == 0
    assert (sources / "release" / "previous").read_text() == git(sources, "rev-parse", "HEAD")
    assert '__version__ = "9.0.0.dev0"' in (sources / "netdra" / "__init__.py").read_text()
    for path in sources.glob("charts/*/Chart.yaml"):
        chart = yaml.safe_load(path.read_text())
        assert (chart["version"], chart["appVersion"]) == ("9.0.0-dev.0", "9.0.0.dev0")


def test_without_the_tag_of_the_release_nothing_is_written(
    sources: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert begin(monkeypatch, "9.0.0") == 1
    assert f"tag {RELEASED} not found: tag the commit of the release first" in capsys.readouterr().err
    assert git(sources, "status", "--porcelain") == ""


@pytest.mark.parametrize("wrong", ["9", "9.0.0.dev0", "v9.0.0", "9.0.0-rc.1"])
def test_another_form_of_a_version_is_an_error(
    sources: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    git(sources, "tag", RELEASED)
    assert begin(monkeypatch, wrong) == 1
    assert f'version "{wrong}" must be like 0.3.0' in capsys.readouterr().err
    assert git(sources, "status", "--porcelain") == ""
