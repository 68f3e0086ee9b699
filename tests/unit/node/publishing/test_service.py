"""A node's publishing half where the API server is slow to answer at its start."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from netdra.kube import features as gates
from netdra.kube.client import Client
from netdra.kube.errors import RefusedError, Status, UnavailableError
from netdra.model.device import DEFAULT_FEATURES, Features
from netdra.node.publishing import service
from netdra.node.publishing.service import Publishing


def publishing(monkeypatch: pytest.MonkeyPatch, *problems: Exception) -> Publishing:
    """One whose first questions about features meet these problems."""
    left = list(problems)

    async def probe(client: Client, node: str) -> Features:
        if left:
            raise left.pop(0)
        return DEFAULT_FEATURES

    monkeypatch.setattr(gates, "probe", probe)
    monkeypatch.setattr(service, "FIRST_PROBE_SECONDS", 0.01)
    return Publishing(cast(Client, None), "n1", lambda: pytest.fail("the kernel is not asked"))


def test_an_api_server_that_does_not_answer_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = publishing(monkeypatch, *(UnavailableError("API server: ConnectTimeout", Status()) for _ in range(3)))
    assert asyncio.run(begun._probed()) == DEFAULT_FEATURES


def test_a_refusal_ends_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = publishing(monkeypatch, RefusedError("API server: forbidden", Status(code=403)))
    with pytest.raises(RefusedError):
        asyncio.run(begun._probed())
