"""A hint of a command is true: after it was followed, the command does its work, or reaches the next thing it lacks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from netdra.cluster.fleet import CountedNode, FleetNow
from netdra.console.examination import of_nodes
from netdra.model.errors import code_of
from tests import following_commands
from tests.following_commands import WrongCommand

CASES = following_commands.commands()


@pytest.mark.parametrize("case", CASES, ids=[code_of(case.says) for case in CASES])
def test_an_error_of_a_command_is_gone_after_its_hint_was_followed(tmp_path: Path, case: WrongCommand) -> None:
    folder = tmp_path / "folder"
    following_commands.prepare(case, folder)
    assert case.says in following_commands.answer(case, folder).lines
    if case.reads:
        assert case.shows in "\n".join(following_commands.run(case.reads, folder).lines)
    following_commands.follow(case, folder)
    after = following_commands.answer_after(case, folder)
    text = "\n".join(after.lines)
    assert (after.code, code_of(case.says) in text, case.prints in text) == (case.exits, False, True), text


def test_a_problem_that_a_node_reports_is_on_the_dashboard_until_the_report_lacks_it() -> None:
    problem, _, next_step = following_commands.OF_A_NODE.partition("; ")
    node = {"metadata": {"name": "worker-1"}, "status": {"problems": [{"message": problem}]}}
    (trouble,) = of_nodes(FleetNow([msgspec.convert(node, CountedNode)]))
    assert (trouble.text, trouble.next_step) == (problem, next_step)
    assert [*of_nodes(FleetNow([msgspec.convert({**node, "status": {}}, CountedNode)]))] == []
