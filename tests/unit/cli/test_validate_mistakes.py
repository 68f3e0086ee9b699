"""`netdra validate` on the mistakes of tests/mistakes: each is reported at its line and place, in the same words."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from netdra.model.errors import without_code
from testbed import yaml
from tests import draws, edits, validation

FOLDER = Path(__file__).parents[2] / "mistakes"
WRITTEN = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))}
MISTAKES = [(name, written, mistake) for name, written in WRITTEN.items() for mistake in written["mistakes"]]
OBJECTS = [(name, each) for name, written in WRITTEN.items() for each in written.get("objects", {})]
PLACE = re.compile(r"\d+: (warning: )?.+ \(ND\d{4}\)", re.DOTALL)


@pytest.mark.parametrize(("name", "of"), OBJECTS)
def test_valid_objects_cause_no_problem(tmp_path: Path, name: str, of: str) -> None:
    written = WRITTEN[name]
    assert validation.lines(tmp_path, written["objects"][of], written.get("beside", "")) == (0, [])


@pytest.mark.parametrize("name", [name for name, written in WRITTEN.items() if "beside" in written])
def test_valid_objects_beside_mistakes_cause_no_problem(tmp_path: Path, name: str) -> None:
    assert validation.lines(tmp_path, WRITTEN[name]["beside"]) == (0, [])


@pytest.mark.parametrize(("name", "written", "mistake"), MISTAKES, ids=[name for name, _, _ in MISTAKES])
def test_mistakes(tmp_path: Path, name: str, written: dict[str, Any], mistake: dict[str, Any]) -> None:
    code, said = validation.lines(tmp_path, validation.text_of(written, mistake), written.get("beside", ""))
    assert said == mistake["says"]
    assert code == any(not re.match(r"\d+: warning: ", line) for line in said)


def test_every_mistake_is_reported_at_a_line_and_names_its_reporter() -> None:
    for name, _, mistake in MISTAKES:
        assert mistake["by"] in {"apiserver", "webhook", "prepare", "validate"}, mistake
        assert mistake["says"], mistake
        assert all(PLACE.fullmatch(line) for line in mistake["says"]), mistake
        # Only a text that is not YAML, or no object, has no place in one.
        placed = all(without_code(line).endswith("]") for line in mistake["says"])
        assert placed or "text" in mistake or "not YAML" in mistake["says"][0], (name, mistake)


WRONG = "apiVersion: networking.dra.io/v1alpha1\nkind: NetworkTopology\nmetadata: {name: w}\nspec: {steps: []}\n"


def test_an_object_does_not_keep_others_from_being_checked(tmp_path: Path) -> None:
    """After any error of the first of two objects, the second one's problem is reported at its line."""
    for what, new in edits.drawn(random.Random(draws.seed()), draws.count(200, 5000)):
        text = yaml.safe_dump(new, sort_keys=False)
        code, said = validation.lines(tmp_path, f"{text}---\n{WRONG}")
        line = text.count("\n") + 5
        assert code == 1, what
        assert f'{line}: NetworkTopology "w": expected at least 1 entry, found 0 [spec.steps] (ND1537)' in said, (
            what,
            said,
        )


BROKEN = ["a: [1\n", 'a: "b\n', "a: 1\na: 2\n", "\ta: 1\n", "a: {{ b }}\n", "{a: 1\n", "- 1\n b: c\n"]


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("before", ["", f"{WRONG}---\n", "# a comment\n---\n"])
def test_a_document_that_is_not_yaml_does_not_keep_others_from_being_checked(
    tmp_path: Path, broken: str, before: str
) -> None:
    text = f"{before}{broken}---\n{WRONG}---\n{broken}---\n# the last one\n{WRONG}"
    _, said = validation.lines(tmp_path, text)
    wrong = {at for at, line in enumerate(text.splitlines(), 1) if line.startswith("spec: ")}
    assert len(said) == len(wrong) + 2
    assert wrong <= {int(line.partition(":")[0]) for line in said}


def test_the_mistake_files_contain_at_least_400_mistakes() -> None:
    assert len(MISTAKES) >= 400
