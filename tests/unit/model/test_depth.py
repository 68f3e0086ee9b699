"""Values nested too deeply are cut, and all else stays as it is."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.kube.answers import Page
from netdra.model.depth import MOST, decode, shallow

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\[]{}\n'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='k"[\\'), inner, max_size=3),
    max_leaves=20,
)


def cut(value: object, most: int) -> object:
    if isinstance(value, list | dict) and most == 0:
        return None
    if isinstance(value, list):
        return [cut(each, most - 1) for each in value]
    if isinstance(value, dict):
        return {name: cut(each, most - 1) for name, each in value.items()}
    return value


@given(VALUES, st.integers(1, 5))
def test_values_below_the_depth_limit_are_replaced_by_null(value: object, most: int) -> None:
    assert json.loads(shallow(json.dumps(value).encode(), most)) == cut(value, most)


def test_one_deep_object_does_not_keep_a_list_from_being_read() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    text = b'{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":%s},{"c":3}]}' % deep
    found = decode(msgspec.json.Decoder(Page), text)
    first, second, third = found.items or ()
    assert (bytes(first), bytes(third)) == (b'{"a":1}', b'{"c":3}')
    assert len(bytes(second)) < 3 * MOST


@pytest.mark.parametrize("text", [b"[" * 5000, b"]" * 3 + b"[" * 5000 + b"]"])
def test_malformed_deeply_nested_json_raises_a_decode_error(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(msgspec.json.Decoder(), text)
