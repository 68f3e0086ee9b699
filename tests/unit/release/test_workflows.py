"""The definitions of CI: every action is pinned by its commit, and a release is built as the page states."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from release.version import ROOT
from testbed import yaml

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(path: Path) -> list[dict[str, Any]]:
    """The steps of all jobs of a file."""
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_action_is_pinned_by_its_commit_and_names_its_version(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    assert lines
    assert [
        line for line in lines if not re.search(r"uses: actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)
    ] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_job_may_write_but_the_one_that_publishes(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content["permissions"] == {"contents": "read"}
    writing = {name for name, job in content["jobs"].items() if "write" in job.get("permissions", {}).values()}
    assert writing == ({"publish"} if path.name == "release.yml" else set())


def test_the_key_is_given_to_the_step_that_signs_alone() -> None:
    (release,) = (path for path in WORKFLOWS if path.name == "release.yml")
    (signing,) = (step for step in steps(release) if "secrets." in str(step))
    assert 'make release KEY="$key"' in signing["run"]
    others = [path for path in WORKFLOWS if path != release and "secrets." in path.read_text(encoding="utf-8")]
    assert others == []


def test_a_release_is_verified_in_ci_by_the_commands_of_the_page() -> None:
    page = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")
    block = page.partition("## Verify a release")[2].partition("```\n")[2].partition("```")[0]
    (release,) = (path for path in WORKFLOWS if path.name == "release.yml")
    (verifying,) = (step for step in steps(release) if step.get("name") == "Verify as a user does")
    signers, *lines = verifying["run"].strip().splitlines()
    assert signers == "(cd ../.. && python3 -m release signers) >../allowed_signers"
    assert "\n".join(lines) == block.strip().replace("-f allowed_signers", "-f ../allowed_signers")


def test_no_file_names_an_address_of_the_project_but_the_one_of_its_home() -> None:
    """A name below `.example` looks like an address and leads nowhere."""
    tops = (".github", "docs", "netdra", "charts", "release", "pyproject.toml")
    paths = [path for top in tops for path in ([ROOT / top] if (ROOT / top).is_file() else (ROOT / top).rglob("*"))]
    paths += ROOT.glob("*.md")
    suffixes = {".md", ".yml", ".yaml", ".toml", ".py", ".json", ".html"}
    named = [str(path) for path in paths if path.suffix in suffixes and "netdra.example" in path.read_text()]
    assert named == []
