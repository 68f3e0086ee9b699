"""Several JSON objects one after the other are one input, as for kubectl: `kubectl get -o json | jq -c '.items[]'`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from netdra.cli.validate import command as validate
from netdra.model import documents, yaml_text
from tests import builders

FORMS = {
    "a line each": lambda values: "".join(json.dumps(value) + "\n" for value in values),
    "without a space": lambda values: "".join(json.dumps(value) for value in values),
    "with indentation": lambda values: "\n".join(json.dumps(value, indent=4) for value in values),
    "with blank lines": lambda values: "\n\n" + "\n\n\n".join(json.dumps(value) for value in values) + "\n ",
}
_JSON = st.dictionaries(
    st.text(max_size=3), st.recursive(st.text() | st.integers() | st.none(), st.lists, max_leaves=3)
)


def policies() -> list[dict[str, Any]]:
    return [documents.plain(builders.exclusive(name, cel)) for name, cel in (("a", "true"), ("b", "true &&"))]


@pytest.mark.parametrize("form", FORMS)
def test_each_object_is_checked_once_and_findings_have_its_lines(form: str, tmp_path: Path) -> None:
    text = FORMS[form](policies())
    (tmp_path / "stream.json").write_text(text)
    done = CliRunner().invoke(validate, [str(tmp_path / "stream.json")])
    (line,) = [line for line in done.stdout.splitlines() if "stream.json:" in line]
    place = text.index('"true &&"')
    assert f":{1 + text.count(chr(10), 0, place)}: DeviceExposurePolicy" in line
    assert "netdra: 2 objects checked, 1 problem" in done.output


@given(st.lists(_JSON, min_size=1, max_size=4), st.sampled_from(sorted(FORMS)))
def test_all_objects_of_a_stream_are_read_in_their_order(values: list[Any], form: str) -> None:
    assert list(yaml_text.load(FORMS[form](values), "stream")) == values


@pytest.mark.parametrize("text", ["{a: 1}\n{b: 2}", "{", '{"a": 1} x', "", "{}", '{"a": 1}\n---\n{"b": 2}'])
def test_other_texts_are_not_streams(text: str) -> None:
    assert yaml_text.json_stream(text) == []


def test_an_object_that_cannot_be_read_is_reported_once_at_its_line_and_those_before_it_are_checked(
    tmp_path: Path,
) -> None:
    first, second = (json.dumps(policy) for policy in policies())
    (tmp_path / "cut.json").write_text(f"{first}\n{second[:-9]}\n")
    done = CliRunner().invoke(validate, [str(tmp_path / "cut.json")])
    (line,) = [line for line in done.stdout.splitlines() if "cut.json:" in line]
    assert "cut.json:2: not YAML" in line or "cut.json:3: not YAML" in line
    assert "netdra: 1 object checked, 1 problem" in done.output
