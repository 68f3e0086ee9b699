"""The project's home is one file; without it nothing names an address, and the list of missing values is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from release.home import FILE, Home, HomeError, Key, Person, read
from release.insights import FILE as INSIGHTS
from release.insights import insights
from release.version import ROOT
from testbed import yaml

FILLED = """
source = "https://git.example.org/netdra"
browse = "https://git.example.org/netdra/blob/main/{path}"
edit = ""
docs = "https://netdra.example.org"
issues = "https://git.example.org/netdra/issues"
security = "security@example.org"
conduct = "conduct@example.org"
maintainers = [{name = "Ada", email = "ada@example.org"}, {name = "Bob", email = "bob@example.org"}]
former = []
keys = ["ssh-ed25519 AAAA ada", {key = "ssh-ed25519 BBBB", until = "2026-12-31"}]
"""
EMPTY = re.sub(r"= (\[.*\]|\".*\")", lambda found: f"= {found[1][0]}{found[1][-1]}", FILLED)
"""The same file with no value filled in."""


def filled(folder: Path, text: str = FILLED) -> Home:
    """The home of a folder with this file."""
    (folder / FILE).parent.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(text, encoding="utf-8")
    return read(folder)


def test_the_home_of_the_sources_is_valid() -> None:
    found = read()
    assert set(found.missing) <= set(Home._fields) - {"edit", "former"}


def test_a_home_has_people_keys_and_pages(tmp_path: Path) -> None:
    found = filled(tmp_path)
    assert found.missing == []
    assert found.maintainers[0] == Person("Ada", "ada@example.org")
    assert found.keys[1] == Key("ssh-ed25519 BBBB", "2026-12-31")
    assert found.page("docs/why.md") == "https://git.example.org/netdra/blob/main/docs/why.md"
    assert found.signers("ssh-ed25519 CCCC\n").splitlines() == [
        'netdra namespaces="netdra-release" ssh-ed25519 AAAA ada',
        'netdra namespaces="netdra-release",valid-before="20261231" ssh-ed25519 BBBB',
        'netdra namespaces="netdra-release" ssh-ed25519 CCCC',
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('docs = "https', 'docs = "http', "docs: .* must be an address with https"),
        ('netdra.example.org"', 'netdra.example.org/"', "docs: .* without a slash at the end"),
        ("security@example.org", "security", "security: .* must be a mail address"),
        ("{path}", "page", "browse: .* must contain {path}"),
        ("ssh-ed25519 AAAA ada", "-----BEGIN", "keys: .* must be a public key"),
        ("2026-12-31", "soon", "until as YYYY-MM-DD"),
        ("former = []", "", "former: must be exactly"),
        ('{name = "Ada",', '{nick = "Ada",', "maintainers: an entry must be"),
        ("former = []", "former = [", FILE.name),
        ("former = []", "former = 5", "former: 5 must be a list"),
        ("former = []", "former = [5]", "former: an entry must be"),
        ("former = []", 'former = [{name = "Ada", email = 5}]', "former: an entry must be"),
        ('"ssh-ed25519 AAAA ada"', "5", "keys: 5 must be a public key"),
        ('"ssh-ed25519 AAAA ada"', "{key = 5}", "keys: .* must be a public key"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in FILLED
    with pytest.raises(HomeError, match=problem):
        filled(tmp_path, FILLED.replace(old, new))


def test_the_file_for_security_programs_follows_the_home() -> None:
    """After a change of the home or of release/insights.py: `python3 -m release insights`."""
    assert (ROOT / INSIGHTS).read_text(encoding="utf-8") == insights(read())


def test_with_a_home_the_file_for_security_programs_has_all_that_the_format_requires(tmp_path: Path) -> None:
    found = yaml.safe_load(insights(filled(tmp_path)))
    assert {"schema-version", "last-updated", "last-reviewed", "url"} <= found["header"].keys()
    assert {"name", "administrators", "repositories", "vulnerability-reporting"} <= found["project"].keys()
    assert [each["primary"] for each in found["project"]["administrators"]] == [True, False]
    assert found["project"]["vulnerability-reporting"]["contact"]["email"] == "security@example.org"
    required = {"url", "status", "accepts-change-request", "accepts-automated-change-request", "core-team", "license"}
    assert required | {"security"} <= found["repository"].keys()
    assert found["repository"]["release"]["distribution-points"]


def test_the_file_for_security_programs_names_pages_that_exist(tmp_path: Path) -> None:
    start = "https://git.example.org/netdra/blob/main/"
    words = insights(filled(tmp_path)).split()
    paths = {word.removeprefix(start) for word in words if word.startswith(start)}
    assert len(paths) > 8
    assert [path for path in paths if not (ROOT / path).is_file()] == []
