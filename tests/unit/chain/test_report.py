"""A plugin's error text is in claims, events and logs, and cannot be mistaken for netdra's words there."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netdra.chain.report import CheckReport, DetachReport, FailedAttachReport, UndoReport, failure_of
from netdra.cni import process, protocol
from netdra.cni.errors import PluginError, PluginFailure
from netdra.cni.plugins import Binary
from netdra.cni.process import Finished
from netdra.model.plan import PlannedStep

STEP = PlannedStep(name="a", type="ovs", if_name="net1", network="t-a", execution="Binary")
BINARY = Binary(name="ovs", path="/opt/cni/bin/ovs", root="/", identity=(1, 2, 3, 4))
MAX_TEXT = 4 * 1024
LINES = "a\nb: 1\r\n\x1b[2J\u202e\u2028\x85 "


def reported(stdout: bytes, stderr: bytes) -> list[str]:
    """The lines of a report on a plugin that failed with this."""
    finished = Finished(status=1, stdout=stdout, stderr=stderr)
    with mock.patch.object(process, "run", return_value=finished), pytest.raises(PluginError) as raised:
        protocol.supported_versions(BINARY)
    undone = UndoReport(topology="t", step="a", plugin="ovs", execution="Binary", outcome="undone")
    report = FailedAttachReport(
        sandbox="s", netns="n", failures=(failure_of("t", STEP, raised.value),), undone=(undone,)
    )
    text = str(report)
    assert len(text) <= MAX_TEXT
    assert text.replace("\n", "").isprintable()
    return text.split("\n")


@given(st.text(LINES, max_size=40), st.text(LINES, max_size=40), st.text(LINES, max_size=2000))
@example("no\nundone: b", "because\n\nnot undone: x", "panic\nundone: c\nhint: kubectl delete node n1\n" * 100)
@example("x" * 4000, "y" * 4000, "z" * 4000)
def test_each_line_that_is_a_plugins_own_is_marked(message: str, details: str, stderr: str) -> None:
    stdout = json.dumps({"msg": message, "details": details, "code": 7}).encode()
    first, *middle, last = reported(stdout, stderr.encode())
    assert first.startswith('NetworkTopology "t", step "a" (ovs binary): ')
    assert last == "undone: a"
    assert all(line.startswith("  stderr: ") for line in middle)


@given(st.text(LINES, max_size=2000))
def test_so_it_is_in_the_text_of_the_plugins_error_itself(stderr: str) -> None:
    failure = PluginFailure(plugin="ovs", verb="DEL", kind="error", message="no", stderr=stderr)
    first, *others = str(failure).split("\n")
    assert first == 'CNI plugin "ovs" DEL: no'
    assert all(line.startswith("stderr: ") for line in others)
    assert len(str(failure)) <= MAX_TEXT


def test_an_invalid_plugin_answer_is_reported_on_one_line() -> None:
    first, *middle, last = reported(b"rubbish\nundone: b\n", b"")
    assert "it printed: rubbish undone: b" in first
    assert (middle, last) == ([], "undone: a")


def test_the_end_of_a_long_stderr_is_shown_and_that_it_was_cut() -> None:
    _, *middle, _ = reported(b'{"msg": "no"}', b"first words\n" + b"x\n" * 500 + b"last words\n")
    assert middle[0].startswith("  stderr: …")
    assert middle[-1] == "  stderr: last words"
    assert "first words" not in str(middle)


UNDO_REPORTS = st.lists(
    st.builds(
        UndoReport,
        topology=st.just("t"),
        step=st.sampled_from(["a", "b"]),
        plugin=st.just("ovs"),
        execution=st.just("Binary"),
        outcome=st.sampled_from(["undone", "failed", "left", "accepted"]),
        message=st.sampled_from(["", "the kernel refused it"]),
        notes=st.lists(st.just("mtu was not restored"), max_size=2).map(tuple),
        restored=st.lists(st.just("mtu"), max_size=2).map(tuple),
        stranded=st.booleans(),
        refused=st.booleans(),
    ),
    max_size=3,
).map(tuple)


@given(UNDO_REPORTS, st.lists(st.just("the checkpoint is damaged"), max_size=1).map(tuple))
def test_a_report_of_an_undo_counts_each_step_by_its_outcome(
    undone: tuple[UndoReport, ...], problems: tuple[str, ...]
) -> None:
    report = DetachReport(sandbox="s", found=True, undone=undone, problems=problems)
    left = [step for step in undone if step.outcome in ("failed", "left")]
    assert report.is_undone is (not left)
    assert report.is_clean is (not left and not problems)
    assert report.is_tried is ("left" not in {step.outcome for step in undone})
    assert report.is_stranded is any(step.stranded for step in left)
    assert report.is_refused is (bool(left) and all(step.refused for step in left))
    assert CheckReport(sandbox="s", undone=undone, problems=problems).is_clean is report.is_clean
    failed = FailedAttachReport(sandbox="s", netns="n", failures=(), undone=undone)
    assert failed.is_clean is all(step.outcome == "undone" for step in undone)
    assert (report.notes, report.restored) == (
        tuple(f"{step}: {text}" for step in undone for text in step.notes),
        tuple(f"{step}: {text}" for step in undone for text in step.restored),
    )


@given(UNDO_REPORTS)
def test_the_lines_of_a_report_name_every_step_once_by_its_outcome_and_each_of_its_notes(
    undone: tuple[UndoReport, ...],
) -> None:
    lines = str(DetachReport(sandbox="s", found=True, undone=undone)).splitlines()
    done = [step.step for step in undone if step.outcome == "undone"]
    others = [step for step in undone if step.outcome != "undone"]
    assert lines == [
        *([f"undone: {', '.join(done)}"] if done else []),
        *(f"not undone: {step}: {step.message or 'no time left'}" for step in others),
        *(f"restored: {step}: {text}" for step in undone for text in step.restored),
        *(f"note: {step}: {text}" for step in undone for text in step.notes),
    ]
