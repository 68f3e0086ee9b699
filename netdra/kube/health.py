"""Checks of a process's health by its reflectors, for `netdra.ops.health`.

Used by the daemons. They ask all reflectors that run on a client.
"""

from __future__ import annotations

from netdra.kube.client import Client
from netdra.ops.health import Check, CheckResult


def synced(client: Client) -> Check:
    """Every copy has been equal to the API server once."""

    def check() -> CheckResult:
        missing = sorted({following.plural for following in client.following if not following.synced})
        if missing:
            return CheckResult(ok=False, detail=f"not yet listed: {', '.join(missing)}")
        return CheckResult(bool(client.following), detail=f"{len(client.following)} caches")

    return check


def reachable(client: Client) -> Check:
    """No copy has trouble being kept current."""

    def check() -> CheckResult:
        troubles = sorted({following.problem for following in client.following if following.problem})
        return CheckResult(not troubles, detail="; ".join(troubles) or "answers")

    return check
