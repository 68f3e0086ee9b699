"""Findings: what a check finds wrong with an object, and where. Made by every check of users' objects.

Callers that must not continue turn findings into one error (`refuse`); `netdra validate` and the webhook show each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from netdra.model.errors import InvalidInputError, sentence, with_code
from netdra.model.plan import called

Path = tuple[str | int, ...]
"""A place in an object, from its top."""


def dotted(path: Path, top: str = "config") -> str:
    """A path as people write it: `config.links[0].name`."""
    return top + "".join(
        f"[{key}]" if isinstance(key, int) else f".{key}" if key.isprintable() else f"[{quoted(key)}]" for key in path
    )


def quoted(text: str, limit: int = 80) -> str:
    """A text for an error: in quotes, on one line, cut, with unprintable characters as escapes."""
    cut = text if len(text) <= limit else text[:limit] + "…"
    return '"' + "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in cut) + '"'


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong.

    Attributes:
        what: the object, the value and the rule that it breaks.
        hint: the next thing to do, or "".
        path: where it is in the object, from its top (`spec`, `steps`, 2, `config`, `mode`).
        rule: the name of the rule, for programs; "" for most rules.
        code: the code of the cause (`NetdraError.code`).
    """

    what: str
    hint: str = ""
    path: Path = ()
    rule: str = ""
    code: str = ""

    @property
    def text(self) -> str:
        """The finding on one line, with its code."""
        return with_code(sentence(self.what, self.hint), self.code)

    @property
    def coded(self) -> str:
        """The cause with its code, for readers that show the next step apart."""
        return with_code(self.what, self.code)

    @property
    def place(self) -> str:
        """The path as people write it: `spec.steps[2].config.mode`."""
        return dotted(self.path, "").removeprefix(".")

    @property
    def text_at_path(self) -> str:
        """The finding with its place at the end of its first line, and its code; most have one line."""
        first, *rest = sentence(self.what, self.hint).splitlines() or [""]
        place = f" [{self.place}]" if self.path else ""
        return with_code("\n".join([f"{first}{place}", *rest]), self.code)


def about(topology: str, step: str, what: str, *, hint: str = "", path: Path = (), code: str = "") -> Finding:
    """A finding about a step, which its text names first."""
    return Finding(what=f"{called(topology, step)}: {what}", hint=hint, path=path, code=code)


def about_object(kind: str, name: str, finding: Finding) -> Finding:
    """A finding about an object, which its text names first."""
    return Finding(f'{kind} "{name}": {finding.what}', finding.hint, finding.path, code=finding.code)


def of_rule(rule: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Findings with the name of their rule."""
    return (msgspec.structs.replace(finding, rule=rule) for finding in findings)


def within(findings: Iterable[Finding], *path: str | int) -> Iterator[Finding]:
    """Findings about a part of an object as findings about the object; `path` is the place of the part."""
    return (Finding(finding.what, finding.hint, (*path, *finding.path), code=finding.code) for finding in findings)


def of_step(findings: Iterable[Finding], topology: str, step: str, *path: str | int) -> Iterator[Finding]:
    """Findings about a part of a step as findings about its topology; `path` is the place of the step."""
    return (
        about(topology, step, entry.what, hint=entry.hint, path=(*path, *entry.path), code=entry.code)
        for entry in findings
    )


def refuse(findings: Sequence[Finding]) -> None:
    """Raise the findings as one error, if there are any.

    Raises:
        InvalidInputError: there are findings; the text has all of them.
    """
    if len(findings) == 1:
        raise InvalidInputError(findings[0].what, hint=findings[0].hint, code=findings[0].code)
    if findings:
        raise InvalidInputError("\n".join(finding.text for finding in findings), code=findings[0].code)
