"""A hint is true: after a mistake was corrected by its hint, the error is gone.

`tests/following.py` follows hints on the mistakes of `tests/mistakes`; `test_why_hints_followed` and
`test_command_hints_followed` follow those of `netdra why` and of command lines, which are in `tests/troubles`. The
hints of docs/messages.md that none of them follows are listed in tests/unfollowed.yaml by reason and file; the list may
only become shorter. A hint counts as followed by its text: two places of the code with one text are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import yaml
from testbed.messages import messages
from tests import following, following_commands, following_why, validation

TESTS = Path(__file__).parents[2]
UNFOLLOWED: dict[str, dict[str, list[str]]] = yaml.safe_load((TESTS / "unfollowed.yaml").read_text())
MOST_UNFOLLOWED = 475
"""Lower it with each hint that gets a case."""
FEWEST_FOLLOWED = 260


def _lines() -> Iterator[tuple[str, str, str]]:
    """Each line that a mistake causes: the file, the wrong text, and the line."""
    for path in sorted((TESTS / "mistakes").glob("*.yaml")):
        written = yaml.safe_load(path.read_text())
        for mistake in written["mistakes"] if isinstance(written, dict) else ():
            text = validation.text_of(written, mistake)
            yield from ((path.stem, text, line) for line in mistake["says"])


CASES = [(file, line, new) for file, text, line in _lines() if (new := following.followed(text, line)) is not None]
"""The lines whose hint can be followed, each with the text after that."""


@pytest.mark.parametrize(("_file", "line", "text"), CASES, ids=[file for file, _, _ in CASES])
def test_an_error_is_gone_after_its_hint_was_followed(tmp_path: Path, _file: str, line: str, text: str) -> None:
    (error,) = following.hints([line])
    _, said = validation.lines(tmp_path, text)
    assert error not in following.hints(said)


def test_hints_of_many_mistakes_can_be_followed() -> None:
    assert len(CASES) >= FEWEST_FOLLOWED


def _is_hint(template: str, line: str) -> bool:
    """Whether a line ends with a hint of a template; a template without words of its own is that of no line."""
    words = re.split(r"\{[^{}]*\}", template)
    pattern = ".+".join(map(re.escape, words))
    return any(len(word.split()) > 1 for word in words) and re.search(rf"[;.] {pattern}\Z", line) is not None


def test_each_hint_is_followed_or_listed_with_the_reason() -> None:
    shown = [*(line for _, line, _ in CASES), *following_why.said(), *following_commands.said()]
    lines = [*following.hints(shown)]
    written = {(message.path, message.text) for message in messages() if message.kind == "hint"}
    done = {(path, text) for path, text in written if any(_is_hint(text, line) for line in lines)}
    listed = [(path, text) for files in UNFOLLOWED.values() for path, texts in files.items() for text in texts]
    assert len(listed) == len(set(listed))
    assert sorted(set(listed) & done) == [], "followed by a case: remove it from the list"
    assert sorted(set(listed) - written) == [], "not a hint any more: remove it from the list"
    assert sorted(written - done - set(listed)) == [], (
        "add a mistake whose hint is followed, or list it with the reason"
    )
    assert len(listed) <= MOST_UNFOLLOWED
