"""A token is spent by its first use, a session ends, and foreign names of the host are known."""

from __future__ import annotations

import pytest

from netdra.console import access
from netdra.console.access import MAX_FAILURES, MAX_SESSIONS, SESSION_SECONDS, ConsoleAccess


def test_a_token_opens_one_session_and_the_next_token_is_announced() -> None:
    tokens: list[str] = []
    here = ConsoleAccess(tokens.append)
    session = here.exchange(tokens[0])
    assert session is not None
    assert here.knows(session)
    assert here.exchange(tokens[0]) is None
    assert len(tokens) == 2
    assert tokens[0] != tokens[1]
    assert not here.knows(tokens[1])
    assert not here.knows("")


def test_a_session_ends_and_the_oldest_of_too_many_is_closed() -> None:
    tokens: list[str] = []
    now = [0.0]
    here = ConsoleAccess(tokens.append, lambda: now[0])
    sessions = []
    for _ in range(MAX_SESSIONS + 1):
        now[0] += 1
        sessions.append(here.exchange(tokens[-1]) or "")
    assert [here.knows(session) for session in sessions] == [False, *[True] * MAX_SESSIONS]
    now[0] += SESSION_SECONDS
    assert not any(map(here.knows, sessions))


def test_a_token_that_is_guessed_at_is_made_anew() -> None:
    tokens: list[str] = []
    here = ConsoleAccess(tokens.append)
    for _ in range(MAX_FAILURES):
        assert here.exchange("guess") is None
    assert len(tokens) == 2
    assert here.exchange(tokens[0]) is None
    assert here.exchange(tokens[1]) is not None


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:99"])
def test_a_loopback_name_is_its_own_host(host: str) -> None:
    assert access.is_own_host(host)


@pytest.mark.parametrize("host", ["", "evil.example:80", "127.0.0.1.evil.example", "localhost@evil", "10.0.0.1", "::1"])
def test_another_name_is_not(host: str) -> None:
    assert not access.is_own_host(host)


def test_the_cookie_is_of_the_port_and_kept_from_scripts_and_sites() -> None:
    written = access.set_cookie("localhost:8080", "abc")
    assert written.startswith("netdra-console-8080=abc; HttpOnly; SameSite=Strict; Path=/; Max-Age=")
    headers = {"Host": "localhost:8080", "Cookie": "netdra-console-9=x; netdra-console-8080=abc"}
    assert access.session_of(headers) == "abc"
    assert access.session_of({"Host": "localhost:8081", "Cookie": headers["Cookie"]}) == ""
