"""A failure of a CNI plugin, as one record and the two errors that carry it.

Raised by `netdra.cni.protocol` and `netdra.cni.plugins`; `netdra.chain` puts the record into its reports.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

import msgspec

from netdra.model.errors import NetdraError, PermanentError, TemporaryError

TRY_AGAIN_LATER = 11
MAX_STDERR = 4096
_SHOWN_LINES, _SHOWN_TEXT = 8, 512
"""How much of a plugin's stderr is shown to people, in lines and characters; reports in JSON have `MAX_STDERR`."""
HUNG_SECONDS = 0.25
"""A plugin that had less time than this and did not answer may just have been called too late."""

_BAD_VERSION, _BAD_ENVIRONMENT = 1, 4
MEANINGS = {
    1: "it does not support this CNI version",
    2: "it does not support a field of its configuration",
    3: "it does not recognize the container",
    4: "a required environment variable is missing or invalid",
    5: "a read or write failed",
    6: "it could not decode its configuration",
    7: "its configuration is invalid",
    11: "it requests a retry later",
    50: "it is not available at the moment",
    51: "it is not available, and existing containers may have lost their network",
}
"""What the error codes mean that every plugin shares (CNI specification 1.1, "Error")."""
_UNIMPLEMENTED = re.compile(
    r"\b(check|method|command|verb|operation)\b.{0,40}"
    r"\b(not (yet )?(implemented|supported)|unimplemented|unsupported)\b"
    r"|^\W*(not (yet )?implemented|unimplemented)\W*$",
    re.IGNORECASE,
)

Kind = Literal["missing", "version", "error", "timeout", "stopped", "signal", "rubbish", "overflow"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In the order of their codes, from ND7001 on. An error code that all plugins share has ND7100 and its number."""


class PluginFailure(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One failed plugin call.

    Attributes:
        plugin: the plugin's name.
        verb: the CNI command (`ADD`, `DEL` ...), or "" where none was reached.
        kind: `missing` (no such binary), `version` (no common protocol version), `error` (it stated so itself),
            `timeout`, `stopped` (we were interrupted), `signal`, `rubbish` (it broke the protocol), `overflow` (it
            printed without end).
        message: what happened, in words; the plugin's own `msg` where it gave one.
        code: the CNI error code, 0 where none exists.
        details: the plugin's `details`.
        stderr: the end of its output there.
        waited: of a `timeout`, the seconds that it had.
    """

    plugin: str
    verb: str
    kind: Kind
    message: str
    code: int = 0
    details: str = ""
    stderr: str = ""
    waited: float = 0.0

    @property
    def hung(self) -> str:
        """The plugin, if it had time enough and did not answer; "" if not."""
        return self.plugin if self.kind == "timeout" and self.waited >= HUNG_SECONDS else ""

    @property
    def is_unimplemented(self) -> bool:
        """Whether the plugin only reports that it does not have the verb.

        No code exists for that: libcni's skeleton returns 1 for a protocol version without the verb and 4 for a verb
        that the plugin does not know (pkg/skel/skel.go), others state it in words.
        """
        if self.kind != "error":
            return False
        text = f"{self.message} {self.details}"
        unknown = self.code == _BAD_ENVIRONMENT and "CNI_COMMAND" in text
        return self.code == _BAD_VERSION or unknown or _UNIMPLEMENTED.search(text) is not None

    def __str__(self) -> str:
        """The failure in one line, with the end of stderr on lines of its own."""
        what = f'CNI plugin "{self.plugin}"' + (f" {self.verb}" if self.verb else "")
        details = f": {self.details}" if self.details else ""
        first = f"{what}: {self.message}{coded(self.code)}{details}"
        return "\n".join((first, *(f"stderr: {line}" for line in stderr_lines(self.stderr))))


def stderr_lines(stderr: str) -> list[str]:
    """The last lines of a plugin's stderr, each to be shown with a mark: it may write lines that look like netdra's."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    text = "\n".join(lines[-_SHOWN_LINES:])
    if len(lines) > _SHOWN_LINES or len(text) > _SHOWN_TEXT:
        text = f"…{text[-_SHOWN_TEXT:]}"
    return text.splitlines()


def coded(code: int) -> str:
    """An error code behind a message, with its meaning where all plugins share it; "" for 0."""
    meaning = MEANINGS.get(code, "")
    return f" (code {code}{': ' if meaning else ''}{meaning})" if code else ""


class PluginError(NetdraError):
    """A plugin call went wrong; `failure` states how. Raised as one of its two kinds."""

    def __init__(self, failure: PluginFailure, *, hint: str = "") -> None:
        number = 100 + failure.code if failure.code in MEANINGS else KINDS.index(failure.kind) + 1
        super().__init__(str(failure), hint=hint, code=f"ND7{number:03}")
        self.failure = failure


class PluginPermanentError(PluginError, PermanentError):
    """The same call would fail again."""


class PluginTemporaryError(PluginError, TemporaryError):
    """The call ran out of time, or the plugin asked to be called again later (code 11)."""


def plugin_error(failure: PluginFailure, *, hint: str = "") -> PluginError:
    """The error of the kind that the failure is."""
    if failure.kind in {"timeout", "stopped"} or failure.code == TRY_AGAIN_LATER:
        return PluginTemporaryError(failure, hint=hint)
    return PluginPermanentError(failure, hint=hint)
