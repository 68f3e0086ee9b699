"""A hint is true: after a mistake was corrected by its hint, the error is gone.

`tests/following.py` follows hints on the mistakes of `tests/mistakes`. The hints of docs/messages.md that it does not
follow are listed in tests/unfollowed.yaml by reason and file; the list may only become shorter. A hint counts as
followed by its text: two places of the code with one text are one. The corrected file has no other problem than before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed import yaml
from testbed.messages import ROOT, messages
from tests import following, validation, worlds

TESTS = Path(__file__).parents[2]
UNFOLLOWED: dict[str, dict[str, list[str]]] = yaml.safe_load((TESTS / "unfollowed.yaml").read_text())
MOST_UNFOLLOWED = 445
"""Lower it with each hint that gets a case."""
FEWEST_FOLLOWED = 475


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


def test_hints_of_many_mistakes_can_be_followed() -> None:
    assert len(CASES) >= FEWEST_FOLLOWED


def _hints_by_code() -> dict[str, list[str]]:
    codes = json.loads((ROOT / "netdra" / "cli" / "codes.json").read_text())["codes"]
    return {entry["code"]: entry.get("hints", []) for entry in codes}


HINTS = _hints_by_code()
"""Those that are written beside a code."""


def _is_hint(template: str, line: str) -> bool:
    """Whether a line ends with a hint of a template; one without words of its own must be written beside its code."""
    parts = following.LINE.match(line)
    assert parts is not None, line
    words = re.split(r"\{[^{}]*\}", template)
    pattern = ".+".join(map(re.escape, words))
    pattern += " .+" if template.endswith((" are", ":")) else ""  # the beginning of a list
    is_clear = any(len(word.split()) > 1 for word in words) or template in HINTS.get(parts["code"], ())
    start = "" if template.startswith(", ") else "[;.] "  # the end of another hint
    return is_clear and re.search(rf"{start}{pattern}\Z", parts["text"]) is not None


def test_each_hint_is_followed_or_listed_with_the_reason() -> None:
    lines = [case.line for case in CASES]
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
