"""Allocation by the version of Kubernetes: each rule in which versions of the scheduler differ."""

from __future__ import annotations

import pytest

from netdra.model.errors import InvalidInputError
from netdra.model.scheduler_version import NEWEST_SCHEDULER, OLDEST_SCHEDULER, SchedulerVersion
from netdra.slices.allocator import Allocation, Allocator
from tests.drawn.versions import ROWS, Row, outcome_of
from tests.unit.slices.making import claim, class_of, device, request, shared, slice_of

VERSIONS = ("1.36", "1.37", "1.38", "1.39")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_claims_get_devices_by_the_rules_of_the_version(row: Row, version: str) -> None:
    assert [outcome_of(step) for step in row.case(version).steps] == row.expected(version)


@pytest.mark.parametrize(("version", "fits"), [("1.37", True), ("1.38", False)])
def test_device_with_a_share_in_use_is_not_free_when_it_became_exclusive(version: str, fits: bool) -> None:
    before = Allocator([slice_of(shared("a"))], [class_of()]).allocate(claim("holder", request()))
    assert isinstance(before, Allocation)
    after = Allocator(
        [slice_of(device("a"))], [class_of()], allocated=before.claims, version=SchedulerVersion.parse(version)
    )
    assert isinstance(after.allocate(claim("c", request())), Allocation) is fits


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.38", (1, 38)),
        ("v1.37.2", (1, 37)),
        ("v1.38.0-beta.0", (1, 38)),
        ("1.36+", (1, 36)),
        ("v1.39.0+k3s1", (1, 39)),
    ],
)
def test_version_is_read_from_the_words_of_users_and_servers(text: str, version: tuple[int, int]) -> None:
    assert SchedulerVersion.parse(text) == SchedulerVersion.of_server(text) == version


@pytest.mark.parametrize("text", ["", "1", "newest", "1.38x", "1.35", "v0.38.0", "1.38\n"])
def test_other_words_are_refused_of_users_and_have_a_known_version_of_servers(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"Kubernetes"):
        SchedulerVersion.parse(text)
    assert SchedulerVersion.of_server(text) in (OLDEST_SCHEDULER, NEWEST_SCHEDULER)
