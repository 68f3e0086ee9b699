"""The page of fields is that of the CustomResourceDefinitions, and has every field that they have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed import yaml
from testbed.fields_page import CRDS, page

PAGE = Path(__file__).parents[3] / "docs" / "fields.md"


def names(schema: dict[str, Any]) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        yield name
        yield from names(field)
    for key in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(key), dict):
            yield from names(inner)


def test_the_page_is_that_of_the_definitions() -> None:
    """After a change of a kind: `make crds docs`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_field_of_every_kind_has_a_row() -> None:
    sections = {part.partition("\n")[0]: part for part in page().split("\n## ")[1:]}
    for path in CRDS.glob("*.yaml"):
        definition = yaml.safe_load(path.read_text(encoding="utf-8"))
        section = sections[definition["spec"]["names"]["kind"]]
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for top in ("spec", "status"):
            for name in names(schema["properties"].get(top, {})):
                assert f".{name}`" in section, (path.name, name)
