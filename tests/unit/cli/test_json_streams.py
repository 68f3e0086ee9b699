"""Several JSON objects one after the other are one input, as for kubectl, and JSON may be longer than YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click import Command
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from netdra.cli.simulate import command as simulate
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


LONG = "x" * yaml_text.MAX_YAML


def test_a_dump_in_json_may_be_longer_than_yaml_and_its_objects_are_checked_without_lines(tmp_path: Path) -> None:
    first, second = policies()
    first["metadata"]["annotations"] = {"long": LONG}
    (tmp_path / "dump.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [first, second, second]})
    )
    done = CliRunner().invoke(validate, [str(tmp_path / "dump.json")])
    assert "3 objects checked" in done.stderr
    assert 'dump.json: DeviceExposurePolicy "b"' in done.stdout
    assert 'DeviceExposurePolicy "b" is already at' in done.stdout
    assert "dump.json:0" not in done.stdout


@pytest.mark.parametrize("command", [validate, simulate])
@pytest.mark.parametrize(
    ("text", "rule", "next_step"),
    [
        (f"a: {LONG}", f"characters of YAML, more than the limit of {yaml_text.MAX_YAML}", "kubectl get -o json"),
        ("{" * (yaml_text.MAX_TEXT + 1), f"longer than the limit of {yaml_text.MAX_TEXT} bytes", "by nodes"),
    ],
    ids=["YAML", "JSON"],
)
def test_a_longer_text_is_refused_with_the_limit_and_the_next_step(
    text: str, rule: str, next_step: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "dump.yaml").write_text(text)
    done = CliRunner().invoke(command, [str(tmp_path / "dump.yaml")])
    told = f"{done.output}{done.exception}"
    assert rule in told
    assert next_step in told
