"""A hint of `netdra why` is true: after it was followed, the problem is gone, and no other one is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netdra.story.statement import Statement, Story
from tests import following_why
from tests.following_why import TroubledCluster, text_of

ROOT = Path(__file__).parents[3]
CASES = list(following_why.troubles())
_SECTION = re.compile(r'see "(?P<title>[^"]+)" in (?P<page>docs/[a-z-]+\.md)')
_PAGE = re.compile(r"docs/[a-z-]+\.md")
_PLACEHOLDER = re.compile(r"\b(?:NAME|NAMESPACE|NODE|DEVICE|POD|CLAIM)\b")


def problems(found: Story) -> list[Statement]:
    return [statement for statement in found.statements if statement.is_problem]


@pytest.mark.parametrize("trouble", [trouble for _, trouble in CASES], ids=[file for file, _ in CASES])
def test_a_problem_is_gone_after_its_next_step_was_followed(tmp_path: Path, trouble: TroubledCluster) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    following_why.write_bundle(before, trouble.before)
    following_why.write_bundle(after, trouble.after)
    shown = {text_of(statement): statement for statement in problems(following_why.story(before, trouble.why))}
    assert trouble.says in shown, list(shown)
    left = problems(following_why.story(after, trouble.ask or trouble.why))
    others = {statement.code for statement in shown.values()} - {shown[trouble.says].code}
    assert {statement.code for statement in left} <= others | set(trouble.leaves)


NAMING = [trouble for _, trouble in CASES if following_why.subject_named(trouble.says)]


@pytest.mark.parametrize("trouble", NAMING, ids=[trouble.says[-7:-1] for trouble in NAMING])
def test_another_story_that_a_next_step_names_has_a_cause_which_is_gone_afterwards(
    tmp_path: Path, trouble: TroubledCluster
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    following_why.write_bundle(before, trouble.before)
    following_why.write_bundle(after, trouble.after)
    named = following_why.subject_named(trouble.says)
    cause = following_why.story(before, named).cause
    assert cause is not None
    assert cause.next_step
    assert cause not in following_why.story(after, named).statements


def test_next_steps_have_no_placeholder_and_name_existing_pages() -> None:
    says = [trouble.says for _, trouble in CASES]
    assert [line for line in says if _PLACEHOLDER.search(line)] == []
    pages = [match[0] for line in says for match in _PAGE.finditer(line)]
    sections = [match for line in says for match in _SECTION.finditer(line)]
    assert pages
    assert sections
    assert [page for page in pages if not (ROOT / page).is_file()] == []
    assert [match for match in sections if f"# {match['title']}\n" not in (ROOT / match["page"]).read_text()] == []
