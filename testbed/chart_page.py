"""Writes a chart's values.yaml and README.md from its values.schema.json, which has each value's default and meaning.

Called by `make docs`; tests hold both files against it. A schema's `$defs` state what values of other projects' types
look like; a value that refers to one has its own default and description.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

CHARTS = Path(__file__).parents[1] / "charts"
_WIDTH = 100
_BEGIN = "<!-- Written by `make docs` from values.schema.json. Do not edit from here on. -->"
_HEAD = "# Written by `make docs` from values.schema.json, which has these texts and defaults. Do not edit.\n"

Schema = Mapping[str, Any]


def schema(chart: Path) -> Schema:
    """A chart's schema of values."""
    found: Schema = json.loads((chart / "values.schema.json").read_text())
    return found


def values(chart: Path) -> str:
    """The text of values.yaml: every value with its default and its purpose."""
    return _HEAD + "\n".join(_block(schema(chart), 0)) + "\n"


def readme(chart: Path) -> str:
    """The text of README.md: its handwritten part, and the table of the chart's values."""
    written = (chart / "README.md").read_text().partition(_BEGIN)[0]
    rows = [f"| `{path}` | {_cell(default)} | {text} |" for path, default, text in leaves(schema(chart))]
    table = "\n".join(("| value | default | what |", "| --- | --- | --- |", *rows))
    return f"{written}{_BEGIN}\n\n{table}\n"


def leaves(found: Schema, path: str = "") -> Iterator[tuple[str, Any, str]]:
    """Each value that has a default, as its path, default and description."""
    for name, below in found["properties"].items():
        here = f"{path}.{name}" if path else name
        if "default" in below:
            yield here, below["default"], below["description"]
        else:
            yield from leaves(below, here)


def _block(found: Schema, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, below in found["properties"].items():
        text = below["description"]
        yield from (f"{indent}# {line}" for line in textwrap.wrap(text, _WIDTH - len(indent), break_on_hyphens=False))
        if "default" in below:
            yield f"{indent}{name}: {_flow(below['default'])}"
        else:
            yield f"{indent}{name}:"
            yield from _block(below, depth + 1)


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).removesuffix("...\n").strip()


def _cell(value: Any) -> str:
    return f"`{_flow(value)}`" if value not in ("", [], {}) else ""


def write(chart: Path) -> None:
    """Write both files of a chart."""
    (chart / "values.yaml").write_text(values(chart))
    (chart / "README.md").write_text(readme(chart))


if __name__ == "__main__":
    for found in map(Path, sys.argv[1:]):
        write(found)
