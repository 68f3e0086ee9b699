"""The charts' values: each is described, no other is taken, and the files for readers follow the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdra.cli.metrics_page import PROCESSES
from netdra.model.topology import BUILTIN_TYPES
from testbed import chart_page, yaml

SCHEMAS = sorted(chart_page.CHARTS.glob("*/values.schema.json"))

charts = pytest.mark.parametrize("chart", [path.parent for path in SCHEMAS], ids=lambda chart: chart.name)


def test_the_policy_of_own_schemas_knows_all_steps_that_are_built_in() -> None:
    policy = (chart_page.CHARTS / "netdra" / "templates" / "own-schemas.yaml").read_text()
    (listed,) = re.findall(r"- name: builtin\n\s+expression: '(\[.*\])'", policy)
    assert json.loads(listed) == sorted(BUILTIN_TYPES)


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
def test_values_yaml_and_readme_are_up_to_date_with_the_schema(chart: Path) -> None:
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


FILES = chart_page.CHARTS / "netdra" / "files"
OF_PROMETHEUS = frozenset({"pod", "namespace", "instance", "job", "le"})
SERVED = {each.name: frozenset(each.labels) for group in PROCESSES.values() for one in group for each in one.families}
SERVED["up"] = frozenset()  # Prometheus' own


def expressions(value: Any) -> Iterator[str]:
    """The expressions for Prometheus, at any place."""
    if isinstance(value, dict):
        for name, found in value.items():
            yield from [found] if name == "expr" else expressions(found)
    elif isinstance(value, list):
        for found in value:
            yield from expressions(found)


@pytest.mark.parametrize("name", ["alerts.yaml", "dashboard.json"])
def test_alerts_and_dashboard_query_only_metrics_and_labels_that_netdra_serves(name: str) -> None:
    asked = list(expressions(yaml.safe_load((FILES / name).read_text())))
    assert len(asked) > 10
    for expression in asked:
        metrics = re.findall(r"(netdra_[a-z_]+|\bup\b)(?:\{([^}]*)\})?", expression)
        assert metrics, expression
        labels: set[str] = set()
        for metric, matchers in metrics:
            family = metric if metric in SERVED else re.sub("_(bucket|count|sum)$", "", metric)
            assert family in SERVED, expression
            labels |= SERVED[family]
            assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= SERVED[family] | OF_PROMETHEUS, expression
        grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
        assert grouped <= labels | OF_PROMETHEUS, expression


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    (group,) = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    page = (chart_page.CHARTS.parent / "docs" / "alerts.md").read_text()
    sections = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert sections == [rule["alert"] for rule in group["rules"]]
    # A section's anchor is its title in lower case, on the site and where the repository is shown.
    assert [f"RUNBOOKS#{title.lower()}" for title in sections] == [
        rule["annotations"]["runbook_url"] for rule in group["rules"]
    ]
    for section in page.split("\n## ")[1:]:
        assert all(f"**{part}:**" in section for part in ("Impact", "Check", "Fix")), section


def test_every_alert_defines_severity_and_annotations_and_uses_only_labels_of_its_expression() -> None:
    (group,) = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "description", "runbook_url"} == rule["annotations"].keys()
        told = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        grouped = {label.strip() for found in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in found.split(",")}
        replaced = {*re.findall(r'label_replace\(.*?\), "(\w+)"', rule["expr"])}
        assert told <= grouped | replaced | {"pod"}, rule["alert"]
