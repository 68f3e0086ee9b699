"""The age of each dependency: `requirements-cluster.dates`, beside the lock, which a person updates after `make lock`.

A line is `NAME VERSION YYYY-MM [REASON]`: the month in which the version was released, and why it stays if it is older
than a year. No test asks a package index.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from release.version import ROOT

LOCK, DATES = "requirements-cluster.lock", "requirements-cluster.dates"
MOST_MONTHS = 12
_PINNED = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)
_REVIEWED = re.compile(r"^# Reviewed: (\d{4}-\d\d)$", re.MULTILINE)


class Dated(NamedTuple):
    """A version of a package, the month of its release, and the reason if it is old."""

    name: str
    version: str
    month: str
    reason: str


def pinned(lock: str) -> dict[str, str]:
    """The version of each package in the text of a lock."""
    return dict(_PINNED.findall(lock))


def problems(root: Path = ROOT) -> list[str]:
    """Everything that is wrong with the dates: missing, of another version, old without a reason, or in the future."""
    locked = pinned((root / LOCK).read_text(encoding="utf-8"))
    text = (root / DATES).read_text(encoding="utf-8")
    reviewed = _REVIEWED.search(text)
    if reviewed is None:
        return [f'{DATES}: "# Reviewed: YYYY-MM" not found']
    dated = {line.split()[0]: _dated(line) for line in text.splitlines() if line and not line.startswith("#")}
    found = [f"{name} {locked[name]}: no line in {DATES}" for name in sorted(locked.keys() - dated.keys())]
    found += [f"{name}: is not in {LOCK}" for name in sorted(dated.keys() - locked.keys())]
    for name in sorted(locked.keys() & dated.keys()):
        found += _problems(dated[name], locked[name], reviewed[1])
    return found


def _problems(dated: Dated, locked: str, reviewed: str) -> list[str]:
    if dated.version != locked:
        return [f"{dated.name}: {DATES} has {dated.version}, {LOCK} has {locked}"]
    months = _months(reviewed) - _months(dated.month)
    if months < 0:
        return [f"{dated.name} {dated.version}: {dated.month} is after the review, {reviewed}"]
    if months > MOST_MONTHS and not dated.reason:
        return [f"{dated.name} {dated.version}: {months} months old; update it, or write a reason"]
    return []


def _dated(line: str) -> Dated:
    name, version, month, *reason = line.split(maxsplit=3)
    return Dated(name, version, month, " ".join(reason))


def _months(month: str) -> int:
    year, _, number = month.partition("-")
    return int(year) * 12 + int(number)
