"""The errors that netdra raises, each naming the object, the value, the rule and the next thing to do.

One place (`netdra.cli.main` here, the daemons' edges later) turns them into an exit code, an event, a gRPC status or an
admission message. Anything else that escapes is a defect of netdra.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import msgspec

    UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
    """What msgspec raises for bytes that are no value of a kind. For bytes that are not UTF-8, and for values that are
    nested too deeply, the errors are Python's own."""

MAX_FOREIGN = 1024
"""Characters of another program's text that are shown."""


def __getattr__(name: str) -> object:
    """UNREADABLE, when a module imports it: `netdra --help` does not, and msgspec would be a sixth of its time."""
    if name != "UNREADABLE":
        raise AttributeError(name)
    import msgspec

    return msgspec.DecodeError, UnicodeDecodeError, RecursionError


_CODE = r" \(ND\d{4}\)(?=[\s;,:.…]|\Z)"
"""Not in quotes: a value of a user that ends like this does not have a code."""


def with_code(text: str, code: str) -> str:
    """A text with its code at the end of the first line; one that has a code, that of its cause, stays as it is."""
    if not code or re.search(_CODE, text):
        return text
    first, line_end, others = text.partition("\n")
    return f"{first} ({code}){line_end}{others}"


def without_code(text: str) -> str:
    """A text without its code."""
    return re.sub(_CODE, "", text, count=1)


def code_of(text: str) -> str:
    """The first code in a text of netdra, e.g. of an event or a condition: `ND1042`; "" without one."""
    found = re.search(_CODE, text)
    return found[0][2:-1] if found else ""


def cut_mark(text: str, kept: str) -> str:
    """The mark at the end of the part of a text that is kept; with the code if that part lacks it."""
    code = code_of(text)
    return f"… ({code})" if code and not code_of(kept) else "…"


def shortened(text: str, limit: int) -> str:
    """A text of at most `limit` characters, with a mark where it was cut; a cut text keeps its code."""
    if len(text) <= limit:
        return text
    mark = cut_mark(text, text[: limit - 1])
    return f"{text[: limit - len(mark)]}{mark}"


def sentence(what: str, hint: str) -> str:
    """A cause and the next thing to do as one text, with punctuation between them; the cause alone without a hint."""
    if not hint:
        return what
    return f"{what} {hint}" if what.endswith((".", "!", "?")) else f"{what.rstrip(';:,')}; {hint}"


def without_hint(text: str, hint: str) -> str:
    """A text without the hint that `sentence` put at its end, for readers that show the hint apart; with its code."""
    uncoded = without_code(text)
    cause = uncoded.removesuffix(hint) if hint else uncoded
    return text if cause == uncoded else with_code(cause.rstrip("; "), code_of(text))


class NetdraError(Exception):
    """An error of an object, and the next step.

    Attributes:
        what: the object and the errors in it, e.g. `NetworkTopology "x", step "bond0": mode "7" is unknown`.
        hint: the next thing to do, or "" where `what` is sufficient.
        code: the code of the cause, e.g. `ND1042` (docs/codes); if `what` quotes a text with a code, that one.
            "" for errors that people do not see.
    """

    def __init__(self, what: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(with_code(sentence(what, hint), code))
        self.what = what
        self.hint = hint
        self.code = code_of(what) or code

    @property
    def text(self) -> str:
        """The cause, the next step and the code as one text."""
        return with_code(sentence(self.what, self.hint), self.code)


class InvalidInputError(NetdraError):
    """Something that a user or an administrator wrote breaks a rule; trying again changes nothing.

    Attributes:
        path: the place in the value that was read, from its top; () where it is not known.
    """

    def __init__(self, what: str, *, hint: str = "", path: tuple[str | int, ...] = (), code: str = "") -> None:
        super().__init__(what, hint=hint, code=code)
        self.path = path


class PermanentError(NetdraError):
    """The machine or the cluster cannot do it; trying again changes nothing."""


class TemporaryError(NetdraError):
    """It may work when tried again: a busy device, a server that is away, an interface that is just vanishing."""


def printable(text: str, limit: int = MAX_FOREIGN) -> str:
    """A foreign program's text fit for a log, an event or a terminal: control characters replaced, cut to `limit`."""
    clean = "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)
    return clean.strip() if len(clean) <= limit else f"{clean[:limit].strip()}…"
