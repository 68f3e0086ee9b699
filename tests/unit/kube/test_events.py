"""Equal occurrences become one event with a count, and no flood reaches the server."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.kube import events
from netdra.kube.events import MAX_NOTE, Book, ObjectReference, Occurrence, Recorder

POLICY = ObjectReference(api_version="networking.dra.io/v1alpha1", kind="DeviceExposurePolicy", name="p")
FAILED = Occurrence(regarding=POLICY, type="Warning", reason="SelectorFailed", action="Expose", note="no such key")


def note(book: Book, *occurrences: Occurrence, now: float = 0.0) -> None:
    for occurrence in occurrences:
        book.note(occurrence, now, f"t{now}")


def with_note(text: str, regarding: ObjectReference = POLICY) -> Occurrence:
    return msgspec.structs.replace(FAILED, note=text, regarding=regarding)


def test_equal_occurrences_are_counted() -> None:
    book = Book()
    note(book, FAILED, FAILED)
    note(book, FAILED, now=5.0)

    (entry,) = book.unwritten()
    assert (entry.count, entry.first, entry.last) == (3, "t0.0", "t5.0")


def test_the_first_is_due_at_once_and_the_next_only_after_a_while() -> None:
    book = Book()
    note(book, FAILED)
    (entry,) = book.unwritten()
    assert entry.due_in(100.0) == 0.0
    entry.tried_at, entry.written = 100.0, 1
    assert book.unwritten() == []
    note(book, FAILED, now=101.0)
    assert book.unwritten() == [entry]
    assert entry.due_in(101.0) == events.WRITE_AGAIN_SECONDS - 1.0
    assert entry.due_in(200.0) == 0.0


def test_a_series_ends_when_nothing_happened_for_minutes() -> None:
    book = Book()
    note(book, FAILED)
    book.unwritten()[0].written = 1
    note(book, with_note("other"), now=events.SERIES_SECONDS)
    note(book, FAILED, now=events.SERIES_SECONDS)

    assert [entry.count for entry in book.unwritten()] == [1, 1]
    assert book.dropped == 0


def of_claim(name: str, namespace: str, text: str = "no address") -> Occurrence:
    claim = ObjectReference(api_version="resource.k8s.io/v1", kind="ResourceClaim", name=name, namespace=namespace)
    return with_note(text, claim)


def test_events_of_one_object_are_limited_without_affecting_other_objects_and_the_newest_count() -> None:
    book = Book()
    other = ObjectReference(api_version="v1", kind="Node", name="n")
    note(book, with_note("x", other), *(with_note(str(number)) for number in range(100)))

    notes = [entry.occurrence.note for entry in book.unwritten()]
    assert notes == ["x", *(str(number) for number in range(100 - events.MAX_OF_AN_OBJECT, 100))]
    assert book.dropped == 100 - events.MAX_OF_AN_OBJECT


def test_a_thousand_objects_do_not_fill_the_memory() -> None:
    book = Book()
    for number in range(2000):
        note(book, with_note("x", ObjectReference(api_version="v1", kind="Node", name=f"n{number}")))

    assert len(book.unwritten()) == events.MAX_OPEN
    assert book.dropped == 2000 - events.MAX_OPEN


def test_a_namespace_with_thousands_of_failing_claims_does_not_silence_another_namespace() -> None:
    book = Book()
    quiet = [of_claim("early", "quiet"), of_claim("late", "quiet")]
    note(book, quiet[0], *(of_claim(f"c{number}", "noisy") for number in range(2000)), quiet[1])

    kept = [entry.occurrence for entry in book.unwritten()]
    assert [occurrence for occurrence in kept if occurrence in quiet] == quiet
    newest = [of_claim(f"c{number}", "noisy") for number in range(2002 - events.MAX_OPEN, 2000)]
    assert [occurrence for occurrence in kept if occurrence not in quiet] == newest


def test_new_events_are_paced_for_each_object_and_each_namespace() -> None:
    book = Book()
    claim, elsewhere = of_claim("a", "one").regarding, of_claim("a", "two").regarding
    for _ in range(events.MAX_OF_AN_OBJECT):
        assert book.new_in(claim, 10.0) == 0.0
        book.take_new(claim, 10.0)
    assert book.new_in(claim, 10.0) == events.SERIES_SECONDS / events.MAX_OF_AN_OBJECT
    assert book.new_in(claim, 10.0 + events.SERIES_SECONDS / events.MAX_OF_AN_OBJECT) == 0.0
    for number in range(events.MAX_OF_AN_OBJECT, events.MAX_OF_A_NAMESPACE):
        other = of_claim(f"c{number}", "one").regarding
        assert book.new_in(other, 10.0) == 0.0
        book.take_new(other, 10.0)
    fresh = of_claim("fresh", "one").regarding
    assert book.new_in(fresh, 10.0) == events.SERIES_SECONDS / events.MAX_OF_A_NAMESPACE
    assert book.new_in(elsewhere, 10.0) == 0.0


def test_events_that_stay_unwritten_for_minutes_count_as_dropped() -> None:
    book = Book()
    note(book, FAILED, FAILED)
    note(book, with_note("later"), now=events.SERIES_SECONDS)

    assert book.dropped == 2


def emitted(text: str) -> str:
    """The note of an event as it is written."""

    async def emit() -> str:
        nobody: Any = None
        recorder = Recorder(nobody, "dra.networking/node", "n")
        recorder.emit(with_note(text))
        (entry,) = recorder.book.unwritten()
        return entry.occurrence.note

    return asyncio.run(emit())


@pytest.mark.parametrize("length", range(MAX_NOTE // 2 - 12, MAX_NOTE // 2 + 4))
def test_a_cut_note_keeps_its_code(length: int) -> None:
    whole = f"{'é' * length} (ND2104)"
    written = emitted(f"{whole}\nundone: a")
    assert len(written.encode()) <= MAX_NOTE
    assert written.count("(ND2104)") == 1
    assert written.startswith("é" * (MAX_NOTE // 2 - 12))


@given(st.text(st.characters(codec=None), min_size=1), st.integers(1, 2 * MAX_NOTE))
def test_a_note_has_as_many_bytes_as_the_api_server_takes(text: str, times: int) -> None:
    written = emitted(text * times)
    whole = (text * times).encode(errors="replace").decode()
    assert len(written.encode()) <= MAX_NOTE
    if len(whole.encode()) <= MAX_NOTE:
        assert written == whole
    else:
        assert whole.startswith(written.removesuffix("…"))
        assert written.endswith("…")
        assert len(written.encode()) > MAX_NOTE - 4
