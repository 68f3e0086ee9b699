"""The charts' values: each is described, no other is taken, and the files for readers follow the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import chart_page

SCHEMAS = sorted(chart_page.CHARTS.glob("*/values.schema.json"))

charts = pytest.mark.parametrize("chart", [path.parent for path in SCHEMAS], ids=lambda chart: chart.name)


def below(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every object of a schema that has named properties, and those of its types."""
    if "properties" in schema:
        yield path, schema
        for name, found in schema["properties"].items():
            yield from below(found, f"{path}.{name}")
    for name, found in schema.get("$defs", {}).items():
        yield from below(found, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from below(schema["items"], f"{path}[]")


@charts
def test_values_and_readme_are_what_the_schema_says(chart: Path) -> None:
    """After a change of the schema: `make docs`."""
    assert (chart / "values.yaml").read_text() == chart_page.values(chart)
    assert (chart / "README.md").read_text() == chart_page.readme(chart)


@charts
def test_every_value_is_described_and_nothing_else_is_taken(chart: Path) -> None:
    found = dict(below(chart_page.schema(chart)))
    assert [path for path, schema in found.items() if schema["additionalProperties"] is not False] == []
    silent = [
        f"{path}.{name}"
        for path, schema in found.items()
        for name, value in schema["properties"].items()
        if not value.get("description", "").endswith(".")
    ]
    assert silent == []


@charts
def test_the_file_of_values_has_every_default(chart: Path) -> None:
    def plain(schema: Any) -> Any:
        return {
            name: value["default"] if "default" in value else plain(value)
            for name, value in schema["properties"].items()
        }

    assert yaml.safe_load((chart / "values.yaml").read_text()) == plain(
        json.loads((chart / "values.schema.json").read_text())
    )
