"""The codes of errors, and the facts about each; read by `netdra explain-code` and by the site's pages of codes.

The codes of places in the code come from codes.json, which `make docs` writes (`testbed.codes`). Three families are
numbers of others: error codes of CNI plugins, answers of the API server, error numbers of the kernel.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Literal

import msgspec

from netdra.cni.errors import KINDS, MEANINGS
from netdra.cni.errors import Kind as PluginFault
from netdra.kernel.errors import HINTS, errno_name

FILE = Path(__file__).with_name("codes.json")

Family = Literal["1", "2", "3", "4", "5", "7", "8", "9"]
FAMILIES: Mapping[Family, str] = {
    "1": "an object or its values",
    "2": "a node: the driver, its steps, its files",
    "3": "the cluster: controller, addresses, Neutron, webhook",
    "4": "the command line",
    "5": "netdra why",
    "7": "a CNI plugin",
    "8": "an answer of the API server",
    "9": "an error number of the kernel",
}
_SPELLING = re.compile(r"(?:ND)?[-_ ]?(\d{4})\Z", re.IGNORECASE)
_PLUGIN_FAULTS: Mapping[PluginFault, str] = {
    "missing": "the plugin's program does not exist in the CNI path of the node",
    "version": "the plugin and netdra have no CNI version in common",
    "error": "the plugin reports an error with a code of its own",
    "timeout": "the plugin did not answer in time",
    "stopped": "netdra stopped the plugin, because the driver or the command ends",
    "signal": "a signal ended the plugin",
    "rubbish": "the plugin's answer is not what the CNI specification requires",
    "overflow": "the plugin printed too much",
}


class Example(msgspec.Struct, frozen=True):
    """A mistake: `wrong` stands where `right` should be, and `said` is what `netdra validate` reports."""

    right: str
    wrong: str
    said: str


class ErrorCode(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts about a code.

    Attributes:
        code: `ND` and four digits; the first is its family.
        file: where it is in the code, from netdra/; "" in the families of others' numbers.
        texts: what is wrong, with `{name}` where a value is.
        hints: the next steps; () if the text is enough.
        example: an example of a user's mistake.
    """

    code: str
    file: str = ""
    texts: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    example: Example | None = None

    @property
    def family(self) -> str:
        """The subject of the family."""
        return next(title for digit, title in FAMILIES.items() if self.code[2] == digit)


class ErrorCodes(msgspec.Struct, frozen=True):
    """The file: codes of the code in their order, and those that were in former versions."""

    codes: tuple[ErrorCode, ...] = ()
    retired: tuple[str, ...] = ()


def read() -> ErrorCodes:
    """The codes of the code."""
    return msgspec.json.decode(FILE.read_bytes(), type=ErrorCodes)


def find(code: str) -> ErrorCode | None:
    """The facts about a code, also for each error number of the kernel and each status; None for an unknown one."""
    number = int(code[3:])
    if code.startswith("ND9") and errno_name(number) == str(number):
        return ErrorCode(code, texts=(f"error number {number} of the kernel (include/linux/errno.h)",))
    if code.startswith("ND8") and number >= 400 and number not in {status.value for status in HTTPStatus}:
        return ErrorCode(code, texts=(f"status {number} of the API server, or of a proxy before it",))
    return every().get(code)


def every() -> dict[str, ErrorCode]:
    """All codes that can be explained, in their order."""
    return {code.code: code for code in (*read().codes, *_of_plugins(), *_of_api_server(), *_of_kernel())}


def spelled(text: str) -> str:
    """A code as people write it (`nd1042`, `1042`), as it is; "" for another text."""
    found = _SPELLING.match(text.strip().strip("()[]"))
    return f"ND{found[1]}" if found else ""


def _of_plugins() -> list[ErrorCode]:
    own = [ErrorCode(f"ND7{at:03}", texts=(_PLUGIN_FAULTS[kind],)) for at, kind in enumerate(KINDS, 1)]
    shared = [
        ErrorCode(f"ND7{100 + number:03}", texts=(f"code {number}: {text}",)) for number, text in MEANINGS.items()
    ]
    return [*own, *shared]


def _of_api_server() -> list[ErrorCode]:
    said = [
        ErrorCode(f"ND8{status.value}", texts=(f"{status.value} {status.phrase}",))
        for status in HTTPStatus
        if status >= 400
    ]
    return [ErrorCode("ND8000", texts=("the API server did not answer",)), *said]


def _of_kernel() -> list[ErrorCode]:
    return [
        ErrorCode(
            f"ND9{number:03}",
            texts=(f"{errno_name(number)}: {os.strerror(number)}",),
            hints=(HINTS[number],) if number in HINTS else (),
        )
        for number in sorted(errno.errorcode)
    ]
