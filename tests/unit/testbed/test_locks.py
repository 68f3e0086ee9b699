"""The installed packages are the inspected ones: every dependency is pinned, with hashes, and the same everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOCKS = {
    "requirements.lock": ("build",),
    "requirements-cluster.lock": ("build", "cluster"),
    "requirements-dev.lock": ("build", "cluster", "dev"),
}
"""Each lock, and the extras that it is for: the commands, the daemons in a cluster, and the tests."""
_PINNED = re.compile(
    r"^([a-z0-9._-]+)==(\S+)(?: ;[^\\\n]*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)


def pinned(lock: str) -> dict[str, str]:
    return {name: version for name, version, _ in _PINNED.findall((ROOT / lock).read_text())}


@pytest.mark.parametrize("lock", [*LOCKS, "testbed/axe.lock"])
def test_every_line_of_a_lock_is_a_version_with_its_hashes(lock: str) -> None:
    left = _PINNED.sub("", (ROOT / lock).read_text())
    assert [line for line in left.splitlines() if line and not line.lstrip().startswith("#")] == []


@pytest.mark.parametrize(("lock", "extras"), LOCKS.items())
def test_a_lock_has_all_that_it_is_for(lock: str, extras: tuple[str, ...]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    named = {re.split(r"[<>=\[;! ]", each)[0].lower().replace("_", "-") for each in wanted}
    assert named <= set(pinned(lock))


def test_locks_have_one_version_of_each() -> None:
    newest = pinned("requirements-dev.lock")
    for lock in LOCKS:
        assert pinned(lock).items() <= newest.items()
