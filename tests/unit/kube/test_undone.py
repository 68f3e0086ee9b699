"""Writes that another client undoes wait longer each time, and others never wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.kube.undone import PACE, UndoneError, UndoneWrites, WrittenObject, digest

MINUTE, MOST_A_MINUTE = 60.0, 5
METHODS = ("POST", "PUT", "PATCH", "DELETE")
SLICES = ("resourceslices", "resource.k8s.io/v1", "ResourceSlice")


def written(method: str = "PUT", name: str = "a") -> WrittenObject:
    path = f"/apis/resource.k8s.io/v1/resourceslices/{name}"
    return WrittenObject(method, path, path, *SLICES, name)


@dataclass
class Writer:
    """A writer of one object, whose write is undone by another client.

    Attributes:
        at: the times of its writes.
    """

    now: float = 0.0
    at: list[float] = field(default_factory=list)
    undone: UndoneWrites = field(init=False)

    def __post_init__(self) -> None:
        self.undone = UndoneWrites(clock=lambda: self.now)

    def write(self, content: bytes = b"content", *, method: str = "PUT", version: str | None = None) -> float:
        """Write if it is due; returns the seconds to wait, 0 if it was written."""
        target = written(method)
        try:
            self.undone.check(target, content)
        except UndoneError as problem:
            return problem.retry_after
        self.at.append(self.now)
        self.undone.note(target, content, str(len(self.at)) if version is None else version)
        return 0.0


@given(st.sampled_from(METHODS), st.lists(st.floats(0.0, 5.0), min_size=50, max_size=150))
def test_an_object_that_is_always_undone_is_written_a_few_times_a_minute(method: str, pauses: list[float]) -> None:
    writer = Writer()
    for pause in pauses:  # the other client undoes it after each pause
        writer.write(method=method)
        writer.now += pause
    for begin in writer.at:
        assert sum(begin <= at < begin + MINUTE for at in writer.at) <= MOST_A_MINUTE


@given(st.floats(0.01, 300.0), st.floats(1.0, 4.0))
def test_a_wait_is_not_much_longer_than_the_time_for_which_another_client_undid_the_writes(
    lasts: float, pause: float
) -> None:
    writer = Writer()
    while writer.now < lasts:
        writer.write()
        writer.now += pause
    assert writer.write() <= min(PACE.most, lasts + PACE.first)


def test_writes_begin_at_once_then_wait_up_to_minutes() -> None:
    writer = Writer()
    while writer.now < 1800.0:
        writer.now += writer.write() or 0.01
    waits = [round(after - before) for before, after in pairwise(writer.at)]
    assert waits[:8] == [0, 0, 10, 20, 40, 80, 160, 240]
    assert set(waits[8:]) == {240}


def test_an_object_is_written_at_once_again_after_the_other_client_stopped() -> None:
    writer = Writer()
    for _ in range(5):
        writer.now += writer.write() or 0.001
    assert writer.undone.seconds_left(written()) > 0.0
    writer.now += writer.undone.seconds_left(written()) + 1.0
    assert writer.undone.seconds_left(written()) == 0.0
    assert [writer.write() for _ in range(PACE.free)] == [0.0] * PACE.free
    assert writer.write() == PACE.first


@given(st.lists(st.integers(0, 3), max_size=200))
def test_a_write_with_another_content_never_waits(contents: list[int]) -> None:
    writer = Writer()
    for before, after in pairwise([-1, *contents]):
        if before != after:
            assert writer.write(b"%d" % after) == 0.0
            writer.now += 0.01


def test_a_write_that_changed_nothing_is_not_counted() -> None:
    writer = Writer()
    assert [writer.write(version="7") for _ in range(100)] == [0.0] * 100


@pytest.mark.parametrize("methods", [("POST", "DELETE"), ("DELETE", "POST")])
def test_an_object_that_netdra_deletes_itself_is_created_again_at_once(methods: tuple[str, str]) -> None:
    writer = Writer()
    for _ in range(50):
        assert [writer.write(method=method) for method in methods] == [0.0, 0.0]


def test_objects_do_not_wait_for_each_other() -> None:
    writer = Writer()
    while not writer.write():
        pass
    other = written(name="b")
    writer.undone.check(other, b"content")


def test_a_wait_is_reported_once() -> None:
    writer, reported = Writer(), list[WrittenObject]()
    with writer.undone.reporting(reported.append):
        for _ in range(50):
            writer.write()
        assert reported == [written()]
        writer.now += PACE.first
        for _ in range(50):
            writer.write()
    assert reported == [written()] * 2
    writer.undone.explain(written(), "client x changes it")
    with pytest.raises(UndoneError, match="client x changes it"):
        writer.undone.check(written(), b"content")


def test_writes_that_are_over_are_forgotten() -> None:
    undone, now = UndoneWrites(clock=lambda: now), 0.0
    for number in range(10_000):
        now += 1.0
        undone.note(written(name=str(number)), b"content")
    assert len(undone) < 3000


BODY = {
    "kind": "DeviceClass",
    "metadata": {"name": "x", "resourceVersion": "1", "generation": 3, "labels": {"a": "b"}, "uid": "u"},
    "spec": {"a": 1},
    "status": {"conditions": [{"type": "Ready", "lastTransitionTime": "2026-11-22T10:00:00Z"}]},
    "data": {"key": "drawn"},
}


@pytest.mark.parametrize(
    ("field_", "value", "same"),
    [
        (("metadata", "resourceVersion"), "2", True),
        (("metadata", "generation"), 4, True),
        (("metadata", "labels"), {}, True),
        (("status", "conditions"), [{"type": "Ready", "lastTransitionTime": "2027-01-02T03:04:05.678901Z"}], True),
        (("data", "key"), "other", True),
        (("metadata", "uid"), "v", False),
        (("metadata", "finalizers"), ["x/y"], False),
        (("spec", "a"), 2, False),
        (("status", "conditions"), [{"type": "Other", "lastTransitionTime": "2026-11-22T10:00:00Z"}], False),
    ],
)
def test_a_content_excludes_versions_times_and_the_labels_of_others(
    field_: tuple[str, str], value: object, same: bool
) -> None:
    part, name = field_
    other = {**BODY, part: {**BODY[part], name: value}}  # type: ignore[dict-item]
    digests = [digest(msgspec.json.encode(body), {"data"}) for body in (BODY, other)]
    assert (digests[0] == digests[1]) == same
