"""Types of the model become structural schemas that state what the types and their docstrings state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import pytest

from netdra.model.meta import ObjectMeta
from netdra.model.openapi import schema_of
from netdra.model.resource import QuantityText


class Inner(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An inner thing.

    Attributes:
        some_size: How big
            it is.
    """

    some_size: QuantityText


class Everything(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that a type may hold.

    Over two
    paragraphs.

    Attributes:
        number: A number.
        name: A name.
        choice: A choice.
        flag: A flag.
        inner: An inner thing, or none.
        inners: Inner things by name.
        words: Words.
        anything: Anything.
        mixed: A flag or words.
        share: A number or a percentage.
    """

    metadata: ObjectMeta
    number: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 100
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=63, pattern="^[a-z]+$")]
    choice: Literal["b", "a"] = "b"
    flag: bool = False
    inner: Inner | None = None
    inners: Annotated[Mapping[str, Inner], msgspec.Meta(max_length=32)] = {}
    words: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=8)] = ("one",)
    anything: Any = None
    mixed: bool | tuple[str, ...] = False
    share: int | str = "10%"


SCHEMA = schema_of(Everything)


def property_of(name: str) -> Any:
    return SCHEMA["properties"][name]


def test_the_schema_contains_bounds_and_meaningful_defaults() -> None:
    assert property_of("number") == {
        "type": "integer",
        "format": "int64",
        "minimum": 0,
        "maximum": 1000,
        "default": 100,
        "description": "A number. Default: `100`.",
    }
    assert property_of("name") == {
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "pattern": "^[a-z]+$",
        "description": "A name.",
    }


def test_a_default_equivalent_to_absence_is_omitted_from_the_schema() -> None:
    assert property_of("flag") == {"type": "boolean", "description": "A flag. Default: `false`."}
    assert "default" not in property_of("inners")
    assert property_of("words")["default"] == ["one"]


def test_fields_without_a_default_are_required() -> None:
    assert SCHEMA["required"] == ["metadata", "name"]


def test_a_literal_is_an_enum() -> None:
    assert property_of("choice")["enum"] == ["a", "b"]


def test_metadata_is_left_to_the_server() -> None:
    assert property_of("metadata") == {"type": "object"}


def test_a_quantity_is_an_integer_or_a_string_with_the_pattern_of_quantities() -> None:
    size = property_of("inner")["properties"]["someSize"]

    assert size["x-kubernetes-int-or-string"] is True
    assert size["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "Gi" in size["pattern"]


def test_the_schema_of_an_int_or_string_other_than_a_quantity_contains_no_pattern() -> None:
    assert property_of("share") == {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "default": "10%",
        "description": "A number or a percentage. Default: `10%`.",
    }


def test_types_that_a_structural_schema_cannot_express_accept_any_value() -> None:
    assert property_of("anything") == {"x-kubernetes-preserve-unknown-fields": True, "description": "Anything."}
    assert property_of("mixed") == {
        "x-kubernetes-preserve-unknown-fields": True,
        "description": "A flag or words. Default: `false`.",
    }


def test_maps_and_lists_have_their_bounds() -> None:
    assert property_of("inners")["maxProperties"] == 32
    assert property_of("inners")["additionalProperties"]["required"] == ["someSize"]
    assert (property_of("words")["minItems"], property_of("words")["maxItems"]) == (1, 8)


def test_descriptions_are_the_docstrings_with_their_lines_joined() -> None:
    assert SCHEMA["description"] == "All that a type may hold.\n\nOver two paragraphs."
    assert property_of("inner")["properties"]["someSize"]["description"] == "How big it is."


def test_a_derived_type_inherits_the_field_descriptions_of_its_base() -> None:
    class Derived(Inner, frozen=True, kw_only=True):
        """Has one more.

        Attributes:
            more: One more.
        """

        more: str = ""

    properties = schema_of(Derived)["properties"]

    assert [properties[name]["description"] for name in ("someSize", "more")] == ["How big it is.", "One more."]


def test_a_field_without_a_description_is_rejected() -> None:
    class Silent(msgspec.Struct):
        """Does not describe its field."""

        field: int

    with pytest.raises(TypeError, match=r"Silent\.field"):
        schema_of(Silent)


def test_a_type_that_has_no_structural_schema_is_refused() -> None:
    class Odd(msgspec.Struct):
        """Has a number with a point.

        Attributes:
            field: A number.
        """

        field: float

    with pytest.raises(TypeError, match="structural schema"):
        schema_of(Odd)
