"""SECURITY-INSIGHTS.yml: the project's facts for security reviewers' programs.

https://github.com/ossf/security-insights, version 2. Written by `python3 -m release insights`; without a home in
`release/home.toml` the addresses and people, which the format requires, are missing.
"""

from __future__ import annotations

from typing import Any

from release.home import Home

FILE = "SECURITY-INSIGHTS.yml"
REVIEWED = "2026-11-30"
"""The day on which a person compared this module with the project."""
_HEAD = "# Written by `python3 -m release insights` from release/home.toml and release/insights.py. Do not edit.\n"
_TOOLS = (
    ("ruff", "SAST", "rules of flake8-bandit among others"),
    ("mypy", "other", "strict types"),
    (
        "fuzzing of all parsers of foreign bytes",
        "fuzzing",
        "tests/unit/test_foreign_bytes.py; longer in `make explore`",
    ),
    ("advisories", "SCA", "python3 -m release advisories, against a database of OSV that the user brings"),
)


def insights(home: Home) -> str:
    """The text of the file."""
    import yaml

    found = {"header": _header(home), "project": _project(home), "repository": _repository(home)}
    return _HEAD + yaml.safe_dump(found, sort_keys=False, width=120, allow_unicode=True)


def _header(home: Home) -> dict[str, Any]:
    header = {"schema-version": "2.0.0", "last-updated": REVIEWED, "last-reviewed": REVIEWED}
    if not home.source:
        return header | {
            "comment": "Addresses and people are missing: release/home.toml of this copy is not filled in."
        }
    return header | {"url": home.page(FILE)}


def _project(home: Home) -> dict[str, Any]:
    repository = {"name": "netdra", "comment": "All of netdra: code, chart, documentation, tests."}
    reporting = {"reports-accepted": True, "bug-bounty-available": False, "comment": "SECURITY.md states the times."}
    contact = {"contact": {"name": "netdra security", "email": home.security, "primary": True}} if home.security else {}
    policy = _pages(home, {"policy": "SECURITY.md"})
    return {
        "name": "netdra",
        **({"homepage": home.docs} if home.docs else {}),
        **_pages(home, {"roadmap": "ROADMAP.md"}),
        "administrators": _people(home),
        "repositories": [repository | ({"url": home.source} if home.source else {})],
        "vulnerability-reporting": reporting | contact | policy,
        "documentation": _pages(
            home,
            {
                "detailed-guide": "docs/README.md",
                "code-of-conduct": "CODE_OF_CONDUCT.md",
                "quickstart-guide": "docs/tutorial.md",
                "release-process": "docs/releases.md",
                "signature-verification": "docs/releases.md",
            },
        ),
    }


def _repository(home: Home) -> dict[str, Any]:
    documents = {
        "contributing-guide": "CONTRIBUTING.md",
        "governance": "GOVERNANCE.md",
        "security-policy": "SECURITY.md",
    }
    documents["dependency-management-policy"] = "docs/dependencies.md"
    license_ = {"expression": "Apache-2.0"} | _pages(home, {"url": "LICENSE"})
    points = [{"uri": home.source, "comment": "Releases of the repository."}] if home.source else []
    evidence = _pages(home, {"evidence": "docs/threat-model.md"})
    comment = "Trust model, attacks and the test of each: docs/security.md."
    return {
        **({"url": home.source} if home.source else {}),
        "status": "active",
        "accepts-change-request": True,
        "accepts-automated-change-request": True,
        "no-third-party-packages": False,
        "core-team": _people(home),
        "documentation": _pages(home, documents),
        "license": license_,
        "release": {
            "automated-pipeline": True,
            "distribution-points": points,
            **_pages(home, {"changelog": "CHANGELOG.md"}),
        },
        "security": {
            "assessments": {"self": {"comment": comment, "date": REVIEWED} | evidence},
            "tools": [_tool(*each) for each in _TOOLS],
        },
    }


def _tool(name: str, kind: str, comment: str) -> dict[str, Any]:
    by_hand = kind == "SCA"
    runs = {"adhoc": by_hand, "ci": not by_hand, "release": by_hand}
    return {"name": name, "type": kind, "comment": comment, "rulesets": ["default"], "integration": runs, "results": {}}


def _people(home: Home) -> list[dict[str, Any]]:
    return [{"name": name, "email": mail, "primary": not at} for at, (name, mail) in enumerate(home.maintainers)]


def _pages(home: Home, paths: dict[str, str]) -> dict[str, str]:
    return {name: home.page(path) for name, path in paths.items()} if home.browse else {}
