"""A plugin's error text is in claims, events and logs, and cannot be mistaken for netdra's words there."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netdra.chain.report import FailedAttachReport, UndoReport, failure_of
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
