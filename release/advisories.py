"""Known vulnerabilities of pinned packages, in a database that the user brings.

Called by `python3 -m release advisories DATABASE`. The database is a folder or a zip of files in OSV's format
(https://ossf.github.io/osv-schema/), such as the export of osv.dev for PyPI. Nothing is fetched.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_ECOSYSTEM = "PyPI"


class AdvisoryError(Exception):
    """The database cannot be read; the text names the file and the error."""


class Finding(NamedTuple):
    """An advisory that affects a pinned version."""

    package: str
    version: str
    advisory: str
    aliases: tuple[str, ...]
    summary: str
    fixed: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join((self.advisory, *self.aliases))
        fixed = f"; fixed in {', '.join(self.fixed)}" if self.fixed else "; no fixed version"
        return f"{self.package} {self.version}: {names}: {self.summary}{fixed}"


class Result(NamedTuple):
    """The number of advisories that were read, and those that affect a version."""

    read: int
    findings: list[Finding]


def check(database: Path, versions: Mapping[str, str]) -> Result:
    """Compare versions with a database.

    Args:
        database: a folder or a zip file with JSON files, at any depth.
        versions: of each package, by its normalised name.

    Raises:
        AdvisoryError: a file or an advisory is invalid, or the database has none.
    """
    number = 0
    findings: list[Finding] = []
    for advisory in _advisories(database):
        number += 1
        try:
            findings += [] if advisory.get("withdrawn") else _findings(advisory, versions)
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise AdvisoryError(f"advisory {advisory['id']} does not have OSV's format: {problem}") from None
    if number == 0:
        raise AdvisoryError(
            f"{database}: no advisory found; the database must be a folder or a zip of JSON files of OSV"
        )
    return Result(number, sorted(findings))


def _advisories(database: Path) -> Iterator[dict[str, Any]]:
    try:
        for name, content in _files(database):
            advisory = json.loads(content)
            if not isinstance(advisory, dict) or not isinstance(advisory.get("id"), str):
                raise AdvisoryError(f'{name}: is not an advisory of OSV: "id" not found')
            yield advisory
    except (OSError, ValueError, zipfile.BadZipFile) as problem:
        raise AdvisoryError(f"{database}: {problem}") from None


def _files(database: Path) -> Iterator[tuple[str, bytes]]:
    if database.is_dir():
        yield from ((str(path), path.read_bytes()) for path in sorted(database.rglob("*.json")))
        return
    with zipfile.ZipFile(database) as archive:
        yield from ((name, archive.read(name)) for name in sorted(archive.namelist()) if name.endswith(".json"))


def _findings(advisory: Mapping[str, Any], versions: Mapping[str, str]) -> Iterator[Finding]:
    for affected in advisory.get("affected", ()):
        package = affected.get("package", {})
        name = re.sub(r"[-_.]+", "-", package.get("name", "")).lower()
        if package.get("ecosystem") == _ECOSYSTEM and name in versions and is_affected(affected, versions[name]):
            fixed = tuple(event["fixed"] for events in _ranges(affected) for event in events if "fixed" in event)
            summary = advisory.get("summary") or advisory.get("details", "").strip().partition("\n")[0]
            yield Finding(name, versions[name], advisory["id"], tuple(advisory.get("aliases", ())), summary, fixed)


def is_affected(affected: Mapping[str, Any], version: str) -> bool:
    """Whether an entry of `affected` covers a version: it is listed, or within a range."""
    return version in affected.get("versions", ()) or any(_within(events, version) for events in _ranges(affected))


def _ranges(affected: Mapping[str, Any]) -> Iterator[list[dict[str, str]]]:
    return (each["events"] for each in affected.get("ranges", ()) if each.get("type") == "ECOSYSTEM")


def _within(events: list[dict[str, str]], version: str) -> bool:
    """OSV's algorithm: the last event at or before the version decides; the last affected version is included."""
    from packaging.version import Version

    wanted, inside = Version(version), False
    for kind, at in sorted(((kind, at) for event in events for kind, at in event.items()), key=_order):
        bound = Version(at)
        if kind == "introduced" and wanted >= bound:
            inside = True
        elif (kind == "fixed" and wanted >= bound) or (kind == "last_affected" and wanted > bound):
            inside = False
    return inside


def _order(event: tuple[str, str]) -> Any:
    from packaging.version import Version

    return Version(event[1]), event[0] == "introduced"
