"""Writes docs/messages.md, the messages of netdra's code: `python -m testbed.messages_page` prints it.

Called by `make docs`; a test compares the page with the code.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

from testbed.messages import Message, messages

_HEAD = """\
# Messages

<!-- Written by `make docs` from the code. Do not edit. -->

This page lists the texts that netdra's processes and commands report, by source file. Use it to search for an event, a
condition, an error or a log line. `{name}` is a value. Longer messages consist of several texts: netdra joins the cause
and the next step with a semicolon.

The kind of a text is `error`, `hint` (the next step), `event`, `condition`, `log`, or `text` if several kinds contain
it. The help of commands is on [commands](cli.md), and the texts about metrics are on [metrics](metrics.md).
"""
_ELSEWHERE = ("help", "metric")
_FEWEST_WORDS = 4
_WITHOUT_MESSAGES = ("cli/main.py", "cli/metrics_page.py")


def page() -> str:
    """The page."""
    listed = [message for message in messages() if _is_listed(message)]
    groups = itertools.groupby(listed, key=lambda message: message.path)
    return "\n".join([_HEAD, *(line for path, found in groups for line in _table(path, found))])


def _is_listed(message: Message) -> bool:
    is_here = message.kind not in _ELSEWHERE and message.path not in _WITHOUT_MESSAGES
    return is_here and (message.kind != "text" or len(message.text.split()) >= _FEWEST_WORDS)


def _table(path: str, found: Iterator[Message]) -> Iterator[str]:
    yield from (f"## netdra/{path}", "", "| message | kind | function |", "| --- | --- | --- |")
    for message in found:
        yield f"| {_cell(message.text)} | {message.kind} | {_code(message.function)} |"
    yield ""


def _cell(text: str) -> str:
    return f"`` {text} ``".replace("|", "\\|") if "`" in text else _code(text)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


if __name__ == "__main__":
    sys.stdout.write(page())
