"""The OpenVEX document of a release: vulnerabilities that scanners report although netdra is not affected.

https://github.com/openvex/spec/blob/main/OPENVEX-SPEC.md, version 0.2.0. The statements are in `release/vex.toml`.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from release.version import ROOT

FILE = Path("release/vex.toml")


class Statement(NamedTuple):
    """Vulnerabilities that do not affect netdra.

    Attributes:
        vulnerabilities: their names.
        justification: one of OpenVEX' words.
        impact: the reason, as a text.
        absent: functions that no module of netdra calls.
        date: the day of the statement.
    """

    vulnerabilities: tuple[str, ...]
    justification: str
    impact: str
    absent: tuple[str, ...]
    date: str


def statements(root: Path = ROOT) -> list[Statement]:
    """The statements of the sources."""
    found = tomllib.loads((root / FILE).read_text(encoding="utf-8"))
    return [Statement(**each) for each in found["statement"]]


def document(version: str, digest: str, epoch: int, root: Path = ROOT) -> str:
    """The document.

    Args:
        version: netdra's.
        digest: of the image's index, `sha256:...`.
        epoch: the time of the commit, in seconds since 1970.
        root: the sources.
    """
    products = [{"@id": f"pkg:oci/netdra@{digest.replace(':', '%3A')}"}, {"@id": f"pkg:pypi/netdra@{version}"}]
    found = [_entry(name, each, products) for each in statements(root) for name in each.vulnerabilities]
    identity = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    return (
        json.dumps(
            {
                "@context": "https://openvex.dev/ns/v0.2.0",
                "@id": f"https://openvex.dev/docs/public/vex-{identity}",
                "author": "The netdra authors",
                "role": "Document Creator",
                "timestamp": f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%dT%H:%M:%SZ}",
                "version": 1,
                "statements": found,
            },
            indent=1,
        )
        + "\n"
    )


def _entry(name: str, statement: Statement, products: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "vulnerability": {"name": name},
        "products": products,
        "timestamp": f"{statement.date}T00:00:00Z",
        "status": "not_affected",
        "justification": statement.justification,
        "impact_statement": statement.impact,
    }
