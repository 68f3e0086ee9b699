"""CHANGELOG.md: the unreleased changes become the section of a version, and a section becomes a release's notes."""

from __future__ import annotations

import re

UNRELEASED = "## Unreleased\n"


class ChangelogError(Exception):
    """The changelog does not have the requested section; the text names it and the next step."""


def dated(text: str, version: str, date: str) -> str:
    """The changelog with its unreleased entries as a version of that date (`2026-11-27`), and a new empty section.

    Raises:
        ChangelogError: nothing is unreleased, or the version is there.
    """
    if re.search(rf"^## {re.escape(version)}\b", text, re.MULTILINE):
        raise ChangelogError(f'CHANGELOG.md: section "## {version}" already exists')
    if not section(text, ""):
        raise ChangelogError("CHANGELOG.md: nothing is unreleased")
    return text.replace(UNRELEASED, f"{UNRELEASED}\n## {version} ({date})\n", 1)


def section(text: str, version: str) -> str:
    """The entries of a version, or with "" the unreleased ones.

    Raises:
        ChangelogError: no such section exists, or it has no date.
    """
    head = rf"## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)" if version else "## Unreleased"
    found = re.search(rf"^{head}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        told = f'"## {version} (YYYY-MM-DD)"; python3 -m release date writes it' if version else '"## Unreleased"'
        raise ChangelogError(f"CHANGELOG.md: section not found: {told}")
    return found[1].strip()
