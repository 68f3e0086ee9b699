"""The index of reports follows the slices, keeps nothing of what is gone, and knows what changed."""

from __future__ import annotations

from typing import Any

from netdra.controller.features import candidates
from netdra.controller.reported import Reported
from netdra.kube.store import Change
from netdra.model import documents, report
from netdra.model.report import PolicyReport, ReportedSlice

ONE, TWO = PolicyReport(devices=1), PolicyReport(devices=2)


def slice_of(node: str, text: str = "", name: str = "s", **reports: PolicyReport) -> ReportedSlice:
    annotations: dict[str, Any] = {report.ANNOTATION: text or report.to_text(reports)}
    value = {"metadata": {"name": name, "annotations": annotations}, "spec": {"driver": "d", "nodeName": node}}
    return documents.convert(value, ReportedSlice, "test")


def test_it_follows_a_slice_from_its_making_to_its_end() -> None:
    index = Reported(report.of_slice)
    first, second = slice_of("n", a=ONE, b=ONE), slice_of("n", a=TWO, c=ONE)
    assert set(index.changed(Change("s", None, first))) == {"a", "b"}
    assert list(index.of("a")) == [("n", ONE)]
    assert set(index.changed(Change("s", first, second))) == {"a", "b", "c"}
    assert (list(index.of("a")), list(index.of("b"))) == ([("n", TWO)], [])
    assert set(index.changed(Change("s", second, second))) == set()
    assert set(index.changed(Change("s", second, None))) == {"a", "c"}
    assert index._reports == {}


def test_a_report_that_cannot_be_read_counts_for_nothing() -> None:
    index = Reported(report.of_slice)
    good, bad = slice_of("n", a=ONE), slice_of("n", "{")
    list(index.changed(Change("s", None, good)))
    assert list(index.changed(Change("s", good, bad))) == ["a"]
    assert list(index.of("a")) == []


def test_slices_that_report_devices_are_looked_at_first_and_counter_sets_last() -> None:
    slices = [slice_of("n", name="00000-x"), slice_of("n", name="00001-x"), slice_of("n", name="00000-y", a=ONE)]
    assert candidates(slices) == ["00000-y", "00001-x", "00000-x"]
