"""The value of a scalar without quotes: the same as kubectl's, which `tests/cluster/test_kubectl_yaml.py` checks."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model import documents, yaml_text
from netdra.model.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("52:54:00:00:00:01", "52:54:00:00:00:01"),
        ("12:30:45", "12:30:45"),
        ("2026-11-22", "2026-11-22"),
        ("2026-11-22T10:00:00Z", "2026-11-22T10:00:00Z"),
        ("010", 8),
        ("08", 8),
        ("0o17", 15),
        ("-0x1f", -31),
        ("1_000", 1000),
        ("1e3", 1000),
        ("1.0", 1),
        ("0.5", 0.5),
        (".4_49", 0.449),
        (".5e1_0", 5000000000),
        ("._5", "._5"),
        (".5_", ".5_"),
        (".5__5", ".5__5"),
        ("0._5", 0.5),
        ("1e400", "1e400"),
        pytest.param("9" * 400, "9" * 400, id="more than a float"),
        pytest.param("-0x" + "f" * 400, "-0x" + "f" * 400, id="more than a float in base 16"),
        ("0x_", "0x_"),
        ("123456789012345678901234567890", 123456789012345678901234567890.0),
        ("y", True),
        ("Off", False),
        ("yEs", "yEs"),
        ("=", "="),
        ("~", None),
        ("", None),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_a_yaml_scalar_is_read_as_kubectl_reads_it(text: str, value: object) -> None:
    (found,) = yaml_text.load(f"a: {text}\n", "f")
    assert (found["a"], type(found["a"])) == (value, type(value))


@pytest.mark.parametrize(
    "tagged",
    [
        "!!int ''",
        "!!int _",
        "!!int 1.5",
        "!!int [1]",
        "!!float .",
        "!!bool maybe",
        "!!special x",
        "!!timestamp abc",
        "!!timestamp 2026-11-22",
        "!!set {a: b}",
        "!!omap [a: b]",
        "!!pairs [a: b]",
        "!!binary aGk=",
    ],
)
def test_a_tag_that_does_not_fit_its_value_or_that_json_has_no_kind_for_is_refused(tagged: str) -> None:
    with pytest.raises(InvalidInputError, match="not YAML"):
        list(yaml_text.load(f"a: {tagged}", "text"))
    with pytest.raises(InvalidInputError, match="not YAML"):
        yaml_text.load_secret(f"a: {tagged}".encode())


def test_keys_are_texts_as_in_json() -> None:
    (found,) = yaml_text.load("1: a\non: b\n1.5: c\n", "f")
    assert found == {"1": "a", "true": "b", "1.5": "c"}


@pytest.mark.parametrize(
    "text", ["y", "off", "1e3", "52:54:00:00:00:01", "2026-11-22", "0o17", "~", "", "12:30", "=", ".4_4"]
)
def test_strings_that_would_be_read_as_another_type_are_quoted(text: str) -> None:
    assert yaml_text.dump([{"a": text}]) == f"{{a: '{text}'}}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb:\n  id: 5\n  id: 6\n", 'f: line 4: the key "id" is already on line 3'),
        ("a: {id: 5, id: 6}\n", 'f: line 1: the key "id" is already on line 1'),
        ("---\na: 1\n---\nb: 1\n\nb: 2\n", 'f: line 6: the key "b" is already on line 4'),
        ("on: 1\n'true': 2\n", 'f: line 2: the key "true" is already on line 1'),
        ("a: &x {c: 1, c: 2}\nb: {<<: *x}\n", 'f: line 1: the key "c" is already on line 1'),
        ('{"a": [{"id": 5,\n\t"id": 6}]}', 'f: line 2: the key "id" is already on line 1'),
        ('{"\\ud83d\\ude00": {}, "a": 1, "a": 2}', 'f: the key "a" occurs twice in an object'),
        ("a: {null: 1}\n", "f: line 1: a key is null, and every key is a text"),
    ],
)
def test_duplicate_and_non_string_keys_in_a_mapping_are_rejected_in_strict_mode(text: str, told: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        list(yaml_text.load(text, "f"))
    assert refused.value.what == told
    assert refused.value.hint
    list(yaml_text.load(text, "f", strict=False))


def test_a_mapping_can_override_merged_keys() -> None:
    (found,) = yaml_text.load("a: &x {c: 1, d: 1}\nb: &y {<<: *x, c: 2}\ne: {<<: [*x, *y], d: 3}\n", "f")
    assert (found["b"], found["e"]) == ({"c": 2, "d": 1}, {"c": 1, "d": 3})


class Pairs(list[tuple[str, Any]]):
    """An object as it is written, maybe with a key twice."""


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", 'a":', '"', "[[", "}", "{{", "\u0022", "k"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(st.tuples(st.sampled_from(["k", "l", 'k":', "[", '"', "é"]), inner), max_size=4).map(Pairs)
    ),
    max_leaves=12,
)


def as_json(value: Any, colon: str, *, by_number: bool) -> str:
    """A JSON text in one of several spellings."""
    if isinstance(value, Pairs):
        pairs = (
            f"{as_json(key, colon, by_number=by_number)}{colon}{as_json(each, colon, by_number=by_number)}"
            for key, each in value
        )
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(as_json(each, colon, by_number=by_number) for each in value)}]"
    text = json.dumps(value, ensure_ascii=by_number)
    return text.replace('\\"', "\\u0022") if by_number else text


@given(PLAIN, st.sampled_from([":", ": ", " :", "\n: "]), st.booleans())
def test_a_text_that_is_certain_to_have_no_key_twice_has_none(value: Any, colon: str, by_number: bool) -> None:
    text = as_json(value, colon, by_number=by_number)
    if yaml_text._has_each_once(text, msgspec.json.decode(text)):
        assert yaml_text._repeated(text) is None


def test_json_printed_by_kubectl_is_recognized_as_free_of_duplicate_keys() -> None:
    value = {"kind": "List", "items": [{"a": {"b": 'x":y', "c": [{"d": "<&>"}]}}] * 3}
    for indent in (None, 4):
        text = json.dumps(value, indent=indent)
        assert yaml_text._has_each_once(text, msgspec.json.decode(text))


@given(st.text("[]{}a", max_size=60))
def test_a_text_that_is_certain_to_be_shallow_is(text: str) -> None:
    depth = deepest = 0
    for letter in text:
        depth = depth + 1 if letter in "[{" else max(0, depth - (letter in "]}"))
        deepest = max(deepest, depth)
    for most in (0, 1, 2, 5):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yaml_text, "MAX_NESTING", most)
            if yaml_text._is_shallow(text):
                assert deepest <= most
            assert yaml_text.nests_too_deeply(text) == (deepest > most)


def listed(*items: Any, **more: Any) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", **more, "items": items}, indent=1)


def items_of(text: str) -> tuple[list[Any], str]:
    """The objects of a text, and the error that ends it."""
    read: list[Any] = []
    try:
        for item, place in documents.values(text, "list.json"):
            assert place == "list.json, document 1"
            read.append(item)
    except InvalidInputError as problem:
        return read, str(problem)
    return read, ""


@pytest.mark.parametrize(
    "text",
    [
        listed(
            {"kind": "A", "text": 'a ": b'}, {"kind": "B", "inner": [{"x": 1}, {"x": 1.5}]}, metadata={"a": {"b": 1}}
        ),
        listed({"kind": "A", "number": 0}).replace("0", "1e999"),
        listed({"kind": "A", "first": 1, "second": 2}).replace("second", "first"),
        listed({"kind": "A"}, first=1, second=2).replace("second", "first"),
        listed({"kind": "A", "text": 'a":b', "other": 1}).replace("other", "text"),
        listed({"kind": "A", "text": "x"}).replace('"text":', '"text" :').replace('"x"', '"x", "text" : "y"'),
        listed({"kind": "A"}).replace('"items"', '"other"'),
        listed({"kind": "A"}).replace('"List"', '"Listed"'),
        listed({"kind": "A"}).replace('"List"', "3"),
        listed({"kind": "A"})[:-1],
        json.dumps({"kind": "List", "items": {"a": 1}}),
        "kind: List\nitems: [{kind: A}]\n",
    ],
)
def test_a_large_list_is_read_item_by_item_as_whole(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = items_of(text)
    monkeypatch.setattr(yaml_text, "_LARGE", 0)
    read, error = items_of(text)
    assert error == whole[1]
    assert error or read == whole[0]


def test_items_of_a_large_list_are_read_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "_LARGE", 0)
    text = listed({"kind": "A"}, {"kind": "B", "first": 1, "second": 2}).replace("second", "first")
    values = documents.values(text, "list.json")
    assert next(values)[0] == {"kind": "A"}
    with pytest.raises(InvalidInputError, match='line 11: the key "first" is already on line 10'):
        next(values)
