"""A hint is true: after a mistake was corrected by its hint, the error is gone.

`tests/following.py` follows hints on the mistakes of `tests/mistakes`; `test_why_hints_followed` and
`test_command_hints_followed` follow those of `netdra why` and of command lines, which are in `tests/troubles`. The
hints of docs/messages.md that none of them follows are listed in tests/unfollowed.yaml by reason and file; the list may
only become shorter. A hint counts as followed by its text: two places of the code with one text are one. The corrected
file has no other problem than before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from netdra.cli import codes
from netdra.model.errors import code_of, without_code
from testbed import yaml
from testbed.messages import messages
from tests import following, following_commands, following_why, validation, worlds
from tests.following_calls import CALLS

TESTS = Path(__file__).parents[2]
UNFOLLOWED: dict[str, dict[str, list[str]]] = yaml.safe_load((TESTS / "unfollowed.yaml").read_text())
MOST_UNFOLLOWED = 241
"""Lower it with each hint that gets a case."""
FEWEST_FOLLOWED = 560


FILES: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text()) for path in sorted((TESTS / "mistakes").rglob("*.yaml"))
}


class Case(NamedTuple):
    """A line that a mistake causes, and the file after its hint was followed.

    Attributes:
        file: of the mistake.
        line: of validate, or of another world.
        mistake: as it is written in the file.
        text: the corrected file.
    """

    file: str
    line: str
    mistake: dict[str, Any]
    text: str


def _cases() -> Iterator[Case]:
    """The lines whose hint can be followed."""
    for file, written in FILES.items():
        for mistake in written["mistakes"]:
            text = validation.text_of(written, mistake)
            for line in mistake["says"]:
                if (new := following.followed(text, line)) is not None:
                    yield Case(file, line, mistake, new)


CASES = list(_cases())
_VALUE = r"\{[^{}]*\}"
FILE_OF = {code.code: code.file for code in codes.read().codes}


def lines_of(folder: Path, file: str, text: str) -> list[str]:
    """The lines about a text, in the world of its file."""
    written = FILES[file]
    if "world" in written:
        return worlds.lines(folder, text, written["world"])
    return validation.lines(folder, text, written.get("beside", ""))[1]


@pytest.mark.parametrize("case", CASES, ids=[case.file for case in CASES])
def test_an_error_is_gone_after_its_hint_was_followed(tmp_path: Path, case: Case) -> None:
    (error,) = following.hints([case.line])
    said = lines_of(tmp_path, case.file, case.text)
    assert error not in following.hints(said)
    known = {*following.hints(case.mistake["says"]), *case.mistake.get("then", ())}
    # An object with an error is not searched for what is a warning.
    new = [line for line in said if is_warning(case.line) or not is_warning(line)]
    assert sorted({*following.hints(new)} - known) == []


WORLDS = [(file, mistake) for file, written in FILES.items() if "world" in written for mistake in written["mistakes"]]


@pytest.mark.parametrize(("file", "mistake"), WORLDS, ids=[file for file, _ in WORLDS])
def test_mistakes_that_files_alone_do_not_show(tmp_path: Path, file: str, mistake: dict[str, Any]) -> None:
    assert lines_of(tmp_path, file, validation.text_of(FILES[file], mistake)) == mistake["says"]


@pytest.mark.parametrize("file", [file for file, written in FILES.items() if "world" in written])
def test_valid_objects_cause_no_problem_in_other_worlds(tmp_path: Path, file: str) -> None:
    assert [lines_of(tmp_path, file, text) for text in FILES[file]["objects"].values()] == [[]] * len(
        FILES[file]["objects"]
    )


def is_warning(line: str) -> bool:
    """Whether a line of validate is not about an error."""
    return line.partition(": ")[2].startswith("warning: ")


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
    lines = {*(case.line for case in CASES), *(line for call in CALLS.values() for line in call.wrong())}
    lines |= {*following_why.said(), *following_commands.said()}
    clear = {entry: _pattern(entry[1]) for entry in written if any(map(_has_words, re.split(_VALUE, entry[1])))}
    vague = {entry: _pattern(entry[1]) for entry in written - clear.keys()}
    done: set[tuple[str, str]] = set()
    for line in lines:
        (error,) = (without_code(text).partition("\n")[0] for text in following.hints([line]))
        meant = {entry for entry, pattern in clear.items() if pattern.search(error)}
        file = FILE_OF.get(code_of(line), "")
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
