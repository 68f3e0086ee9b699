"""Wrong usage of a command (an unknown option, a missing argument) as it is printed, with its code.

Called by `main`. click has a class for each kind of error, and one message for surplus arguments.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import NamedTuple

import click

from netdra.model.errors import with_code

_ERROR = "\nError: "


class UsageKind(NamedTuple):
    """A kind of wrong usage: its cause and the next step, as `netdra explain-code` shows them, and its code."""

    cause: str
    fix: str
    code: str


_UNKNOWN_COMMAND = UsageKind(
    "netdra, or the command with subcommands, does not have a command of this name",
    "`netdra --help` lists the commands; the message names similar ones",
    code="ND4120",
)
_KINDS: Mapping[str, UsageKind] = {
    "NoSuchCommandError": _UNKNOWN_COMMAND,
    "NoSuchCommand": _UNKNOWN_COMMAND,
    "NoSuchOption": UsageKind(
        "the command does not have an option of this name",
        "`netdra COMMAND --help` lists the options; options of other commands are not accepted",
        code="ND4121",
    ),
    "MissingParameter": UsageKind(
        "an argument or an option that the command requires is missing",
        "add it: the line that begins with Usage shows the arguments, and --help all options",
        code="ND4122",
    ),
    "BadParameter": UsageKind(
        "the value of an option, an argument or a variable of the environment is not valid",
        "use a value that the message allows; --help names the variable of an option, if it has one",
        code="ND4123",
    ),
    "BadOptionUsage": UsageKind(
        "an option lacks its value, or has a value although it does not take one",
        "write --option VALUE, or the option alone if it is a flag; --help shows which options have a value",
        code="ND4124",
    ),
    "BadArgumentUsage": UsageKind(
        "an argument has too few or too many values",
        "the line that begins with Usage shows the arguments",
        code="ND4125",
    ),
    "UsageError": UsageKind(
        "options or arguments do not fit together, or one that the others require is missing",
        "add, omit or replace the options that the message names",
        code="ND4126",
    ),
}
"""By the name of the error's class, or of one that it is made from: not every version of click has all classes."""
_BY_MESSAGE: Mapping[str, UsageKind] = {
    "Missing argument": _KINDS["MissingParameter"],
    "Got unexpected extra argument": UsageKind(
        "the command takes fewer arguments",
        "remove the argument that the message names, or put a value that contains spaces into quotes",
        code="ND4127",
    ),
}
"""By the beginning of its message, the kind of an error without a class of its own."""


def text(problem: click.ClickException) -> str:
    """The lines of an error: the usage of the command, and the message with its code."""
    printed = io.StringIO()
    problem.show(printed)
    usage, mark, message = f"\n{printed.getvalue()}".partition(_ERROR)
    coded = with_code(message.rstrip(), code_of_usage(problem)) + "\n" if mark else ""
    return f"{usage}{mark}{coded}".removeprefix("\n")


def code_of_usage(problem: click.ClickException) -> str:
    """The code of an error; "" where click prints the help instead."""
    names = [kind.__name__ for kind in type(problem).__mro__]
    if "NoArgsIsHelpError" in names:
        return ""
    kind = next((_KINDS[name] for name in names if name in _KINDS), None)
    if kind is _KINDS["UsageError"]:
        kind = next((_BY_MESSAGE[begin] for begin in _BY_MESSAGE if problem.message.startswith(begin)), kind)
    return kind.code if kind is not None else ""
