"""The access to the console: a one-time token in a printed URL, a session in a cookie, and the names of its host.

In a cluster with single sign-on, a proxy names the user in place of them. A token is spent when a browser shows it, and
the next one is made. A cookie is sent to every port of a host, so it has the port in its name, and a session ends after
some hours. Used by `netdra.console.server`; does no I/O.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple

MAX_SESSIONS = 32
SESSION_SECONDS = 12 * 3600
MAX_GROUPS = 256
"""Groups of a user that is signed on."""
MAX_FAILURES = 100
"""Wrong tokens after which the token is made anew: guessing does not add up."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_NAME = re.compile(r"[!-~]{1,256}\Z")
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


def is_own_host(host: str) -> bool:
    """Whether a Host header names the console: a foreign name that leads here is another site's (DNS rebinding).

    Any port is accepted, since `kubectl port-forward` may listen on another one.
    """
    parts = _HOST.match(host.lower())
    return parts is not None and parts[1] in LOOPBACK


def is_same_origin(headers: Mapping[str, str], own: str = "") -> bool:
    """Whether a request comes from a page of the console itself, as far as the browser reports.

    Args:
        headers: the request's.
        own: the origin behind a proxy, e.g. `https://console.example.com`; "" for the request's host.
    """
    origin = headers.get("Origin", "")
    expected = own or f"http://{headers.get('Host', '')}"
    return headers.get("Sec-Fetch-Site", "same-origin") == "same-origin" and origin in ("", expected)


class SignedOnUser(NamedTuple):
    """A user whom a proxy has signed on, with the groups that it names."""

    name: str
    groups: tuple[str, ...] = ()


class SignOn(NamedTuple):
    """A proxy that signs users on. It proves itself by a password, which no other client of the port knows.

    Attributes:
        password: as the proxy sends it with each user's name (HTTP Basic).
        origin: where browsers open the console, e.g. `https://console.example.com`.
    """

    password: str
    origin: str

    def user(self, headers: Mapping[str, str]) -> SignedOnUser | None:
        """The user of a request; None if it is not the proxy's, or if Kubernetes itself uses a name of it."""
        scheme, _, coded = headers.get("Authorization", "").partition(" ")
        try:
            name, _, password = base64.b64decode(coded, validate=True).decode().partition(":")
        except ValueError:
            return None
        is_proxy = scheme.lower() == "basic" and hmac.compare_digest(_digest(password), _digest(self.password))
        groups = tuple(filter(None, (part.strip() for part in headers.get("X-Forwarded-Groups", "").split(","))))
        if not is_proxy or len(groups) > MAX_GROUPS or not all(map(_is_usable, (name, *groups))):
            return None
        return SignedOnUser(name, groups)


def _is_usable(name: str) -> bool:
    """Whether a user or a group of it is impersonated: `system:masters` would have all rights."""
    return bool(_NAME.match(name)) and not name.startswith("system:")


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
