"""A daemon's log on stderr: one line an event, as text for people or as JSON for a collector.

Set up by `netdra.cli.daemons`. All modules log by the standard library: `log.info("what", extra=fields(pod=...))`,
or `with about(sandbox=...):` around work whose every line, in any module, has the same subject. Secrets in the text of
an error or a library are removed. A repeated warning is logged once a minute, with the number of repetitions.
"""

from __future__ import annotations

import contextvars
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, TextIO, TypedDict, Unpack

import msgspec

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
REPEAT_SECONDS = 60.0
MAX_TEXT = 8192

_KEY = "netdra_fields"
# These log every header and every byte, which is useless for each request.
_INNARDS = ("hpack",)
_QUIET = ("aiohttp", "asyncio")
_SECRETS = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), "[key]"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), "[token]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), r"\1 [secret]"),
    (re.compile(r"(?i)((?:password|passwd|secret|token|api-?key)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;]{4,}"), r"\1[secret]"),
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{1,15}://[^/\s:@]{1,256}:)[^@\s/]+@"), r"\1[secret]@"),
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Fields(TypedDict, total=False):
    """The subjects of a line: the same name for the same thing in every process."""

    pod: str
    claim: str
    sandbox: str
    topology: str
    step: str
    device: str
    pool: str
    policy: str
    interface: str
    kind: str
    name: str
    seconds: float
    hint: str
    code: str


_about: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar("about", default=MappingProxyType({}))


def fields(**given: Unpack[Fields]) -> dict[str, Any]:
    """The subject of one line, to be given as `extra`."""
    return {_KEY: dict(given)}


@contextmanager
def about(**given: Unpack[Fields]) -> Iterator[None]:
    """Set the subject of every line logged in the body, and in tasks and `asyncio.to_thread` begun there."""
    token = _about.set({**_about.get(), **given})
    try:
        yield
    finally:
        _about.reset(token)


def set_up(
    form: Literal["text", "json"],
    level: str,
    stream: TextIO | None = None,
    *,
    count: Callable[[str], object] = lambda _: None,
) -> None:
    """Log to stderr from now on.

    Args:
        form: one of `FORMATS`.
        level: one of `LEVELS`.
        stream: another place than stderr.
        count: called with the level of each line, also of lines that are not printed.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Json() if form == "json" else Text())
    handler.addFilter(lambda record: (count(record.levelname.lower()), True)[1])
    handler.addFilter(Repeats())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _INNARDS:
        logging.getLogger(name).setLevel(logging.WARNING)
    if level != "debug":
        for name in _QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)


class Text(logging.Formatter):
    """`2026-11-21T12:00:00.000Z WARNING netdra.node.x: what happened pod=ns/name step=bond0`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and below it a traceback where there is one."""
        parts = [f"{_when(record)} {record.levelname} {record.name}: {_one_line(_message(record))}"]
        parts += [f"{name}={_value(value)}" for name, value in _fields_of(record).items()]
        line = " ".join(parts)
        return f"{line}\n{clean(self.formatException(record.exc_info))}" if record.exc_info else line


class Json(logging.Formatter):
    """The same as an object: time, level, logger, message, the fields, and exception."""

    def format(self, record: logging.LogRecord) -> str:
        """A JSON object on one line, without secrets of a known form."""
        cleaned = {
            name: clean(value) if isinstance(value, str) else value for name, value in _fields_of(record).items()
        }
        record_fields: dict[str, Any] = {
            "time": _when(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **cleaned,
        }
        if record.exc_info:
            record_fields["exception"] = clean(self.formatException(record.exc_info))
        return msgspec.json.encode(record_fields, enc_hook=str).decode()


class Repeats(logging.Filter):
    """Lets a warning or error through once a minute, and states with the next how many like it came between."""

    def __init__(self, seconds: float = REPEAT_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged; a repeated warning or error within `seconds` is counted instead."""
        if record.levelno < logging.WARNING:
            return True
        now, key = self._clock(), (record.name, record.levelno, f"{record.getMessage()} {_fields_of(record)}")
        since, kept_back = self._seen.get(key, (-self._seconds, 0))
        if now - since < self._seconds:
            self._seen[key] = since, kept_back + 1
            return False
        self._seen = {entry: last for entry, last in self._seen.items() if now - last[0] < 10 * self._seconds}
        self._seen[key] = now, 0
        if kept_back:
            record.msg, record.args = f"{record.getMessage()} (and {kept_back} times more before)", ()
        return True


def clean(text: str) -> str:
    """The text without secrets of a known form, and not longer than a line may be."""
    cleaned = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} … ({len(text)} characters)"
    for pattern, instead in _SECRETS:
        cleaned = pattern.sub(instead, cleaned)
    return cleaned


def _message(record: logging.LogRecord) -> str:
    return clean(record.getMessage())


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    values = {**_about.get(), **getattr(record, _KEY, {})}
    return {name: value for name, value in values.items() if value not in (None, "")}


def _when(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _one_line(text: str) -> str:
    """An error of several lines, or a name with a line break, as one line."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode-escape").decode(), text.replace("\n", "; "))


def _value(value: object) -> str:
    text = _one_line(clean(str(value)))
    return msgspec.json.encode(text).decode() if not text or re.search(r"[\s\"=]", text) else text
