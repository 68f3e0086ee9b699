"""A hint is true: after a mistake was corrected by its hint, the error is gone.

`tests/following.py` follows hints on the mistakes of `tests/mistakes`. The hints of docs/messages.md that it does not
follow are listed in tests/unfollowed.yaml by reason and file; the list may only become shorter. A hint counts as
followed by its text: two places of the code with one text are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from netdra.cli import codes
from netdra.model.errors import code_of, without_code
from testbed import yaml
from testbed.messages import messages
from tests import following, validation
from tests.following_calls import CALLS

TESTS = Path(__file__).parents[2]
UNFOLLOWED: dict[str, dict[str, list[str]]] = yaml.safe_load((TESTS / "unfollowed.yaml").read_text())
MOST_UNFOLLOWED = 482
"""Lower it with each hint that gets a case."""
FEWEST_FOLLOWED = 360


REVEALED: Mapping[str, frozenset[str]] = {
    code: frozenset(others.split())
    for code, others in {
        "ND1001": "ND1012",
        "ND1130": "ND1139",
        "ND1210": "ND1015",
        "ND1286": "ND1173 ND1175",
        "ND1287": "ND1287",
        "ND1289": "ND1085",
        "ND1313": "ND1287",
        "ND1315": "ND1536",
        "ND1338": "ND1041 ND1078",
        "ND1344": "ND1378",
        "ND1345": "ND1378",
        "ND1445": "ND1467",
        "ND1465": "ND1428 ND1447",
        "ND1501": "ND1504",
        "ND1503": "ND1004 ND1477",
        "ND1516": "ND1536 ND1537",
        "ND1518": "ND1537",
        "ND1536": "ND1461 ND1537",
        "ND1537": "ND1051 ND1107 ND1328 ND1461 ND1537",
        "ND1542": "ND1224 ND1228",
    }.items()
}
"""Code -> the errors of some files that are reported only when that one is gone: a file has several mistakes, and
warnings come after errors."""


def _lines() -> Iterator[tuple[str, str, str, list[str]]]:
    """Each line that a mistake causes: the file, the wrong text, the line, and all of its lines."""
    for path in sorted((TESTS / "mistakes").glob("*.yaml")):
        written = yaml.safe_load(path.read_text())
        for mistake in written["mistakes"] if isinstance(written, dict) else ():
            text = validation.text_of(written, mistake)
            yield from ((path.stem, text, line, mistake["says"]) for line in mistake["says"])


CASES = [
    (file, line, before, new)
    for file, text, line, before in _lines()
    if (new := following.followed(text, line)) is not None
]
"""The lines whose hint can be followed, each with all lines of its mistake, and with the text after that."""
_VALUE = r"\{[^{}]*\}"
FILES = {code.code: code.file for code in codes.read().codes}


@pytest.mark.parametrize(("_file", "line", "before", "text"), CASES, ids=[file for file, *_ in CASES])
def test_an_error_is_gone_after_its_hint_was_followed_and_no_other_one_is_made(
    tmp_path: Path, _file: str, line: str, before: list[str], text: str
) -> None:
    (error,) = following.hints([line])
    _, said = validation.lines(tmp_path, text)
    assert error not in following.hints(said)
    left = set(following.hints(before))
    made = [entry for entry in said if not left.issuperset(following.hints([entry]))]
    assert [entry for entry in made if code_of(entry) not in REVEALED.get(code_of(line), ())] == []


@pytest.mark.parametrize("name", CALLS)
def test_a_function_reports_nothing_after_its_hint_was_followed(name: str) -> None:
    call = CALLS[name]
    assert call.wrong(), "no error with a hint"
    assert call.corrected() == []


def test_hints_of_many_mistakes_can_be_followed() -> None:
    assert len(CASES) >= FEWEST_FOLLOWED


def _followed(written: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Which of the hints, by file and text, are at the end of a line whose hint is followed.

    A hint without words of its own (`use {listed}`) is that of a line with a code of its file, if no other one is.
    """
    lines = {*(line for _, line, *_ in CASES), *(line for call in CALLS.values() for line in call.wrong())}
    clear = {entry: _pattern(entry[1]) for entry in written if any(map(_has_words, re.split(_VALUE, entry[1])))}
    vague = {entry: _pattern(entry[1]) for entry in written - clear.keys()}
    done: set[tuple[str, str]] = set()
    for line in lines:
        (error,) = (without_code(text).partition("\n")[0] for text in following.hints([line]))
        meant = {entry for entry, pattern in clear.items() if pattern.search(error)}
        file = FILES.get(code_of(line), "")
        if file not in {path for path, _ in meant}:
            meant |= {entry for entry, pattern in vague.items() if entry[0] == file and pattern.search(error)}
        done |= meant
    return done


def _pattern(template: str) -> re.Pattern[str]:
    """Finds a hint; a list follows one that ends with `are` or a colon."""
    words = re.split(_VALUE, template.lstrip(",; "))
    return re.compile(
        rf"[;,.?] {'.+'.join(map(re.escape, words))}{'.+' if words[-1].endswith((' are', ':')) else ''}\Z"
    )


def _has_words(text: str) -> bool:
    return len(text.split()) > 1


def test_each_hint_is_followed_or_listed_with_the_reason() -> None:
    written = {(message.path, message.text) for message in messages() if message.kind == "hint"}
    done = _followed(written)
    listed = [(path, text) for files in UNFOLLOWED.values() for path, texts in files.items() for text in texts]
    assert len(listed) == len(set(listed))
    assert sorted(set(listed) & done) == [], "followed by a case: remove it from the list"
    assert sorted(set(listed) - written) == [], "not a hint any more: remove it from the list"
    assert sorted(written - done - set(listed)) == [], (
        "add a mistake whose hint is followed, or list it with the reason"
    )
    assert len(listed) <= MOST_UNFOLLOWED
