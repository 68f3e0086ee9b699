"""Findings: what a check finds wrong with an object, and where. Made by every check of this package.

Callers that must not go on turn findings into one error (`refuse`); `netdra validate` and the webhook show each.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from netdra.model.errors import InvalidInputError
from netdra.model.plan import called
from netdra.topology.values import Path


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong.

    Attributes:
        what: the object, the value and the rule that it breaks.
        hint: the next thing to do, or "".
        path: where it is in the object, from its top (`spec`, `steps`, 2, `config`, `mode`).
    """

    what: str
    hint: str = ""
    path: Path = ()

    @property
    def text(self) -> str:
        """The finding on one line."""
        if not self.hint:
            return self.what
        return f"{self.what} {self.hint}" if self.what.endswith(".") else f"{self.what}; {self.hint}"


def about(topology: str, step: str, what: str, *, hint: str = "", path: Path = ()) -> Finding:
    """A finding about a step, which its text names first."""
    return Finding(what=f"{called(topology, step)}: {what}", hint=hint, path=path)


def refuse(findings: Sequence[Finding]) -> None:
    """Raise the findings as one error, if there are any.

    Raises:
        InvalidInputError: there are findings; the text has all of them.
    """
    if len(findings) == 1:
        raise InvalidInputError(findings[0].what, hint=findings[0].hint)
    if findings:
        raise InvalidInputError("\n".join(finding.text for finding in findings))
