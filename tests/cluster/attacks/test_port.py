"""Hostile clients at the real webhook's port: held bodies, floods, garbage. The API server is answered meanwhile."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest

from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.pace import within
from testbed.waiting import until
from tests.cluster.daemons import DENIED, WRONG_POLICY, Webhook, refusal, running_webhook

HEAD = b"POST /validate HTTP/1.1\r\nHost: webhook\r\nContent-Length: 8000000\r\n\r\n"
HELD = 150
EACH = 6 * 1024 * 1024
MORE = 160 * 1024 * 1024
"""What 900 MB that are sent may come to: 32 MiB of requests, each perhaps twice, and TLS."""
ANSWER_SECONDS = 5.0


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Webhook]:
    """The webhook, installed and asked by the API server."""
    with running_webhook(control_plane, api) as running:
        yield running


@pytest.fixture
def address(webhook: Webhook) -> tuple[str, int]:
    url = urlsplit(webhook.configurations[0]["webhooks"][0]["clientConfig"]["url"])
    assert url.hostname is not None
    assert url.port is not None
    return url.hostname, url.port


def connect(address: tuple[str, int], stack: ExitStack) -> ssl.SSLSocket:
    """A connection of another client than the API server."""
    raw = stack.enter_context(socket.create_connection(address, timeout=10.0, source_address=("127.0.0.66", 0)))
    return stack.enter_context(ssl._create_unverified_context().wrap_socket(raw))


def still_refuses(api: Api) -> None:
    with within(ANSWER_SECONDS, "the API server's question"):
        assert refusal(lambda: api.create(WRONG_POLICY, dry_run=True)).startswith(DENIED)


def test_held_bodies_use_bounded_memory_and_do_not_block_reviews(
    webhook: Webhook, address: tuple[str, int], api: Api
) -> None:
    before = webhook.process.memory()
    most = before
    body = b" " * EACH
    with ExitStack() as stack:
        for _ in range(HELD):
            with suppress(OSError):
                held = connect(address, stack)
                held.sendall(HEAD + body)
            most = max(most, webhook.process.memory())
        still_refuses(api)
    assert most - before < MORE, f"{(most - before) >> 20} MiB"


def test_a_flood_of_connections_does_not_block_reviews(address: tuple[str, int], api: Api) -> None:
    with ExitStack() as stack:
        for number in range(600):
            with suppress(OSError):
                raw = socket.create_connection(address, timeout=10.0, source_address=("127.0.0.66", 0))
                stack.callback(raw.close)
                raw.sendall(bytes([22, 3, 1, number % 256]))
            if number % 100 == 99:
                still_refuses(api)


def test_garbage_requests_cause_no_error_in_the_webhook_log(
    webhook: Webhook, address: tuple[str, int], api: Api
) -> None:
    before = len(webhook.process.log.read_text())
    for sent in (b"\0" * 1000, b"GET / HTTP/9\r\n\r\n", b"POST /validate HTTP/1.1\r\n\r\n{", HEAD):
        with ExitStack() as stack:
            connection = connect(address, stack)
            connection.sendall(sent)
            if sent != HEAD:
                with suppress(OSError):
                    connection.recv(1000)
    still_refuses(api)
    told = webhook.process.log.read_text()[before:]
    assert '"level":"error"' not in told.lower().replace(" ", "")
    assert "Traceback" not in told


def test_a_connection_that_holds_its_request_is_closed(address: tuple[str, int]) -> None:
    with ExitStack() as stack:
        connection = connect(address, stack)
        connection.settimeout(0.2)
        connection.sendall(HEAD)

        def ended() -> bool:
            try:
                return connection.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        until(ended, "the connection to be broken off")
