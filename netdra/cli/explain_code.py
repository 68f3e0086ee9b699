"""`netdra explain-code`: the meaning of a code at the end of an error, an event or a condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
from click.shell_completion import CompletionItem

from netdra.cli import codes, shared, terminal
from netdra.model.errors import InvalidInputError


def _completed(_context: click.Context, _argument: click.Parameter, begun: str) -> list[CompletionItem]:
    return [
        CompletionItem(code.code, help=code.texts[0] if code.texts else None)
        for code in codes.every().values()
        if code.code.startswith(begun.upper())
    ]


@click.command(name="explain-code")
@click.argument("wanted", metavar="[CODE]...", nargs=-1, shell_complete=_completed)
@shared.output("text", "json", "yaml")
def command(wanted: tuple[str, ...], output: str) -> None:
    r"""Explain CODEs: the cause, the next step, and an example if there is one. Without CODE, list all.

    Errors, events and conditions of netdra have a code at the end of their first line. It stays the same if the text
    changes.

    \b
    Examples:
      netdra explain-code ND1024
      netdra explain-code ND8403 ND9016
      netdra explain-code --output json
    """
    chosen = [_found(text) for text in wanted] or list(codes.every().values())
    if output != "text":
        terminal.print_data(chosen, output)
    elif wanted:
        click.echo("\n\n".join("\n".join(_explained(code)) for code in chosen))
    else:
        terminal.print_table(("CODE", "CAUSE"), [(code.code, code.texts[0] if code.texts else "") for code in chosen])


def _found(text: str) -> codes.ErrorCode:
    """The code that a text names.

    Raises:
        InvalidInputError: it is not a code, or one that is not in use.
    """
    code = codes.spelled(text)
    if code and (found := codes.find(code)) is not None:
        return found
    if code in codes.read().retired:
        what, hint = f"code {code} is not in use any more", "the netdra of its version explains it"
    elif code:
        what, hint = f"code {code} does not exist", "`netdra explain-code` lists all"
    else:
        what, hint = f"{text!r} is not a code", "a code is ND and four digits, as in ND1024"
    raise InvalidInputError(what, hint=hint, code="ND4099")


def _explained(code: codes.ErrorCode) -> Iterator[str]:
    yield f"{code.code}: {code.family}"
    yield from _section("Cause", code.texts or ("it is in the text before the code",))
    yield from _section("Next step", code.hints)
    if (example := code.example) is not None:
        yield from _section("Example", tuple(_lines(example)))
    if code.file:
        yield from _section("In the code", (f"netdra/{code.file}",))


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from ("", f"{title}:", *(f"  {line}" for line in lines))


def _lines(example: codes.Example) -> Iterator[str]:
    yield from ("wrong:", *(f"  {line}" for line in example.wrong.splitlines() or ["(nothing)"]))
    yield from ("right:", *(f"  {line}" for line in example.right.splitlines()))
    yield f"netdra validate: {example.said}"
