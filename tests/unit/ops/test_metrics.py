"""Metrics follow the conventions, measurements report how they ended, and the page lists the declared metrics."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from netdra.cli.metrics_page import PROCESSES, page
from netdra.model.errors import InvalidInputError, PermanentError, TemporaryError
from netdra.ops.metrics import (
    OUTCOME,
    OUTCOMES,
    Catalogue,
    Family,
    SeriesCatalogue,
    Values,
    counted,
    exposition,
    measured,
)

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
CATALOGUES = dict.fromkeys(each for catalogues in PROCESSES.values() for each in catalogues)
FAMILIES = [family for catalogue in CATALOGUES for family in catalogue.families]
OF_PODS = {family for found in CATALOGUES if isinstance(found, SeriesCatalogue) for family in found.families}
UNBOUNDED = {"pod", "claim", "sandbox", "device", "pool", "interface", "name", "namespace", "uid", "node"}


def test_the_metrics_page_lists_exactly_the_declared_metrics() -> None:
    assert PAGE.read_text(encoding="utf-8") == page().rstrip("\n") + "\n", "run `make docs`"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_keep_the_conventions(family: Family) -> None:
    assert re.fullmatch(r"netdra_[a-z0-9]+(_[a-z0-9]+)*", family.name)
    assert family.name.endswith("_total") == (family.type == "counter")
    assert family.name.endswith("_seconds") or family.type != "histogram"
    assert family.help.endswith(".")
    assert not UNBOUNDED & set(family.labels) or family in OF_PODS
    assert OUTCOME not in family.labels[:-1]


def test_no_name_is_declared_twice() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("process", PROCESSES)
def test_scraped_metrics_are_parseable_and_contain_all_declared_families(process: str) -> None:
    catalogues = PROCESSES[process]
    found = {each.name: each for each in text_string_to_metric_families(exposition(catalogues).decode())}
    for family in (family for catalogue in catalogues for family in catalogue.families):
        assert found[family.name.removesuffix("_total")].type == family.type
    assert "process_resident_memory_bytes" in found
    assert "process_cpu_seconds" in found


@pytest.mark.parametrize(
    ("problem", "outcome"),
    [
        (InvalidInputError("x"), "invalid"),
        (PermanentError("x"), "permanent"),
        (TemporaryError("x"), "temporary"),
        (TimeoutError(), "timeout"),
        (asyncio.CancelledError(), "cancelled"),
        (KeyError("x"), "defect"),
    ],
)
def test_how_something_ended_is_a_label(problem: BaseException, outcome: str) -> None:
    catalogue = Catalogue("test")
    took = catalogue.histogram("netdra_test_seconds", "Test.", "kind", OUTCOME)
    count = catalogue.counter("netdra_test_total", "Test.", OUTCOME)
    with measured(took, "a"), counted(count):
        pass
    with pytest.raises(type(problem)), measured(took, "a"), counted(count):
        raise problem
    for each in ("ok", outcome):
        assert catalogue.registry.get_sample_value("netdra_test_seconds_count", {"kind": "a", OUTCOME: each}) == 1
        assert catalogue.registry.get_sample_value("netdra_test_total", {OUTCOME: each}) == 1
    assert outcome in OUTCOMES


def test_a_label_takes_a_limited_number_of_values_and_replaces_further_ones_by_other() -> None:
    values = Values(most=2)
    assert [values(each) for each in ("a", "b", "c", "a", "d")] == ["a", "b", "other", "a", "other"]
