"""What a scalar without quotes is: as kubectl has it, which `tests/cluster/test_kubectl_yaml.py` asks."""

from __future__ import annotations

import pytest

from netdra.model import yaml_text


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
def test_a_scalar_is_what_kubectl_takes_it_for(text: str, value: object) -> None:
    (found,) = yaml_text.load(f"a: {text}\n", "f")
    assert (found["a"], type(found["a"])) == (value, type(value))


def test_keys_are_texts_as_in_json() -> None:
    (found,) = yaml_text.load("1: a\non: b\n1.5: c\n", "f")
    assert found == {"1": "a", "true": "b", "1.5": "c"}


@pytest.mark.parametrize(
    "text", ["y", "off", "1e3", "52:54:00:00:00:01", "2026-11-22", "0o17", "~", "", "12:30", "=", ".4_4"]
)
def test_what_would_be_read_as_something_else_is_quoted(text: str) -> None:
    assert yaml_text.dump([{"a": text}]) == f"{{a: '{text}'}}\n"
