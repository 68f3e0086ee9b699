"""The values that stories are: statements in their order, of which the first that is wrong is the cause."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from netdra.model.errors import code_of, with_code, without_code

Severity = Literal["ok", "info", "warning", "error"]


class Statement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One thing that is so.

    Attributes:
        severity: `ok`: a step that is done; `info`: a fact; `warning`: it may be a problem; `error`: the cause, or
            a consequence of it.
        object: the object that it is about, e.g. `ResourceClaim default/db-0-net`.
        text: what is so.
        reason: one word for programs, as a condition's; "" if none exists.
        next_step: what to do about it, "" if nothing.
        code: of a problem, the code of its cause (`netdra.model.errors.NetdraError`).
        time: since when it is so, in RFC 3339, "" if that is unknown.
        details: further lines, e.g. the reason of each device.
    """

    severity: Severity
    object: str
    text: str
    reason: str = ""
    next_step: str = ""
    code: str = ""
    time: str = ""
    details: tuple[str, ...] = ()

    @property
    def is_problem(self) -> bool:
        """Whether it may be the cause."""
        return self.severity in ("warning", "error")

    @property
    def coded(self) -> str:
        """The text with the code."""
        return with_code(self.text, self.code)


class Story(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The story of one object.

    Attributes:
        subject: the object, e.g. `Pod default/db-0`.
        state: its state in some words, e.g. `is not scheduled`.
        cause: the statement that everything else follows from; None if all is well.
        statements: all statements, in the order of the object's way.
        unread: the reasons why something could not be read: the story may lack it.
    """

    subject: str
    state: str
    cause: Statement | None
    statements: tuple[Statement, ...]
    unread: tuple[str, ...] = ()

    @property
    def is_fine(self) -> bool:
        """Whether no problem was found."""
        return self.cause is None or self.cause.severity != "error"


def story_of(subject: str, state: str, statements: Iterable[Statement], unread: Iterable[str] = ()) -> Story:
    """A story of these statements: its cause is the first error, else the first warning."""
    every = tuple(statements)
    problems = sorted((entry for entry in every if entry.is_problem), key=lambda entry: entry.severity != "error")
    return Story(
        subject=subject,
        state=state,
        cause=problems[0] if problems else None,
        statements=every,
        unread=tuple(unread),
    )


def absent(subject: str, unread: str, cause: Statement) -> Story:
    """The story of an object that does not exist, or that cannot be read, which `unread` explains then."""
    return story_of(subject, "cannot be read" if unread else "does not exist", [cause])


def done(of: str, text: str, *, time: str = "", reason: str = "", details: Iterable[str] = ()) -> Statement:
    """A statement with severity "ok": a step that has succeeded."""
    return Statement(severity="ok", object=of, text=text, time=time, reason=reason, details=tuple(details))


def wrong(
    of: str,
    text: str,
    next_step: str = "",
    *,
    code: str = "",
    severity: Severity = "error",
    reason: str = "",
    time: str = "",
    details: Iterable[str] = (),
) -> Statement:
    """The cause of a failure, or a consequence of it; a code in the text, e.g. of an event, is its code."""
    return Statement(
        severity=severity,
        object=of,
        text=without_code(text),
        code=code_of(text) or code,
        reason=reason,
        next_step=next_step,
        time=time,
        details=tuple(details),
    )


def fact(of: str, text: str, *, reason: str = "", time: str = "", details: Iterable[str] = ()) -> Statement:
    """A fact that is neither well nor wrong."""
    return Statement(severity="info", object=of, text=text, reason=reason, time=time, details=tuple(details))
