"""A log line is one line, names its object, contains no secret, and does not repeat itself."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from netdra.ops.logs import Repeats, about, clean, fields, set_up

log = logging.getLogger("netdra.test")


@pytest.fixture
def told() -> Iterator[io.StringIO]:
    """The log's text; the root logger is as it was afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], level = before
    root.setLevel(level)


def test_text_is_one_line_with_the_fields_behind(told: io.StringIO) -> None:
    set_up("text", "info", told)
    log.info("attached\nall of it", extra=fields(pod="ns/name", step="bond0", topology='a "b"'))
    line = told.getvalue()
    assert line.endswith('Z INFO netdra.test: attached; all of it pod=ns/name step=bond0 topology="a \\"b\\""\n')
    assert line.count("\n") == 1


def test_json_has_the_same_fields(told: io.StringIO) -> None:
    set_up("json", "info", told)
    with about(sandbox="abc", pod="ns/name"):
        log.warning("step %s failed", "vf0", extra=fields(step="vf0", seconds=0.5))
    found = json.loads(told.getvalue())
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "warning",
        "logger": "netdra.test",
        "message": "step vf0 failed",
        "sandbox": "abc",
        "pod": "ns/name",
        "step": "vf0",
        "seconds": 0.5,
    }


def test_log_fields_follow_work_into_threads_and_end_with_it(told: io.StringIO) -> None:
    set_up("text", "info", told)

    async def run() -> None:
        with about(claim="c1"), about(step="vf0"):
            await asyncio.to_thread(log.info, "in a thread")
        log.info("after")

    asyncio.run(run())
    first, second = told.getvalue().splitlines()
    assert first.endswith("in a thread claim=c1 step=vf0")
    assert second.endswith("after")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_is_logged_with_its_secret_removed(told: io.StringIO, form: str) -> None:
    set_up("json" if form == "json" else "text", "info", told)
    log.error("failed", exc_info=ValueError("Bearer abcdefghijkl"))
    assert "ValueError: Bearer [secret]" in told.getvalue()


@pytest.mark.parametrize(
    "secret",
    [
        "Authorization: Bearer abcDEF123456",
        "token=abcdef123456",
        'the "password": "hunter2222"',
        "https://admin:hunter2222@registry/x",
        "eyJhbGciOiJSUzI1NiIsImtpZCI6Ij.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl",
        "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIhunter2222\n-----END EC PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nhunter2222 cut off",
    ],
)
def test_secrets_are_blotted_out(told: io.StringIO, secret: str) -> None:
    set_up("json", "info", told)
    log.info("it said %s", secret, extra=fields(name=secret))
    for part in ("abcDEF123456", "abcdef123456", "hunter2222", "c2lnbmF0dXJl"):
        assert part not in told.getvalue()


@pytest.mark.parametrize(
    "plain", ["secret netdra/netdra-webhook does not contain a valid certificate", "pod kube-system/token-x"]
)
def test_text_without_a_secret_is_logged_unchanged(plain: str) -> None:
    assert clean(plain) == plain


def test_a_line_has_an_end() -> None:
    assert len(clean("x" * 100_000)) < 9000


def test_a_repeated_warning_is_logged_once_a_minute_with_its_count(told: io.StringIO) -> None:
    now = [0.0]
    set_up("text", "info", told)
    handler = logging.getLogger().handlers[0]
    handler.filters[:] = [Repeats(60.0, lambda: now[0])]
    for second in range(0, 121, 10):
        now[0] = second
        log.warning("the server is away")
        log.info("still here")
    log.warning("another")
    log.warning("the server is away", extra=fields(pod="another"))
    warnings = [line.partition("netdra.test: ")[2] for line in told.getvalue().splitlines() if "WARNING" in line]
    assert warnings == [
        "the server is away",
        "the server is away (and 5 times more before)",
        "the server is away (and 5 times more before)",
        "another",
        "the server is away pod=another",
    ]
    assert told.getvalue().count("still here") == 13


def test_every_log_line_is_counted_even_if_suppressed(told: io.StringIO) -> None:
    counted: list[str] = []
    set_up("text", "info", told, count=counted.append)
    log.warning("again")
    log.warning("again")
    log.info("once")
    assert counted == ["warning", "warning", "info"]


def test_debug_level_logs_each_request_but_not_the_header_details_of_libraries(
    told: io.StringIO,
) -> None:
    levels = {name: logging.getLogger(name).level for name in ("hpack", "aiohttp", "asyncio")}
    try:
        logging.getLogger("aiohttp").setLevel(logging.NOTSET)  # as in a process that sets up its log once
        set_up("text", "debug", told)
        logging.getLogger("hpack.hpack").debug("Encoding 63 with 7 bits")
        logging.getLogger("aiohttp.server").info("told")
        log.debug("of netdra's own")
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    assert [line.split(" ", 3)[2] for line in told.getvalue().splitlines()] == ["aiohttp.server:", "netdra.test:"]
