"""The access to the console: a one-time token in a printed URL, a session in a cookie, and the names of its host.

A token is spent when a browser shows it, and the next one is made. A cookie is sent to every port of a host, so it has
the port in its name, and a session ends after some hours. Used by `netdra.console.server`; does no I/O.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from http.cookies import CookieError, SimpleCookie

MAX_SESSIONS = 32
SESSION_SECONDS = 12 * 3600
MAX_FAILURES = 100
"""Wrong tokens after which the token is made anew: guessing does not add up."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::([0-9]{1,5}))?\Z")


class ConsoleAccess:
    """The token and the sessions of one console."""

    def __init__(self, announce: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """Make the first token, and announce it.

        Args:
            announce: called with each new token.
            clock: in seconds.
        """
        self._announce, self._clock = announce, clock
        self._sessions: dict[bytes, float] = {}
        self._renew()

    def exchange(self, token: str) -> str | None:
        """A session for the token, which is spent then; None if it is not the token."""
        if not hmac.compare_digest(_digest(token), self._token):
            self._failures += 1
            if self._failures >= MAX_FAILURES:
                self._renew()
            return None
        session = secrets.token_urlsafe(32)
        self._forget()
        self._sessions[_digest(session)] = self._clock() + SESSION_SECONDS
        self._renew()
        return session

    def knows(self, session: str) -> bool:
        """Whether a session is open."""
        return self._sessions.get(_digest(session), 0.0) > self._clock()

    def _renew(self) -> None:
        token = secrets.token_urlsafe(32)
        self._token, self._failures = _digest(token), 0
        self._announce(token)

    def _forget(self) -> None:
        """Forget sessions that are over, and the oldest ones of too many."""
        now = self._clock()
        still = sorted((end, session) for session, end in self._sessions.items() if end > now)
        self._sessions = {session: end for end, session in still[-(MAX_SESSIONS - 1) :]}


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()


def is_own_host(host: str, names: Collection[str] = LOOPBACK) -> bool:
    """Whether a Host header names the console: a foreign name that leads here is another site's (DNS rebinding).

    Any port is accepted, since `kubectl port-forward` may listen on another one.
    """
    parts = _HOST.match(host.lower())
    return parts is not None and parts[1] in names


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Whether a request comes from a page of the console itself, as far as the browser reports."""
    origin = headers.get("Origin", "")
    return headers.get("Sec-Fetch-Site", "same-origin") == "same-origin" and origin in (
        "",
        f"http://{headers.get('Host', '')}",
    )


def cookie_name(host: str) -> str:
    """The name of the session's cookie, by the port of the Host header."""
    parts = _HOST.match(host.lower())
    return f"netdra-console-{parts[2] or '80'}" if parts is not None else "netdra-console"


def session_of(headers: Mapping[str, str]) -> str:
    """The session of a request's cookie, "" if none exists."""
    try:
        cookies = SimpleCookie(headers.get("Cookie", ""))
    except CookieError:
        return ""
    found = cookies.get(cookie_name(headers.get("Host", "")))
    return found.value if found is not None else ""


def set_cookie(host: str, session: str) -> str:
    """The header that gives a browser its session."""
    return f"{cookie_name(host)}={session}; HttpOnly; SameSite=Strict; Path=/; Max-Age={SESSION_SECONDS}"
