"""A problem is reported once, again before its event expires, and at once if it is another one."""

from __future__ import annotations

from netdra.controller.addresses.reminders import REPEAT_SECONDS, Reminders

EVENT_SECONDS = 3600.0
"""How long the API server keeps an event by default (--event-ttl)."""


def test_a_problem_is_reported_again_before_its_event_expires() -> None:
    times = [0.0]
    reminders = Reminders(lambda: times[0])

    assert reminders.is_due("ns/a", "full")
    reminders.note("ns/a", "full")
    times[0] = REPEAT_SECONDS - 1.0
    assert not reminders.is_due("ns/a", "full")
    assert reminders.is_due("ns/b", "full")
    times[0] = REPEAT_SECONDS
    assert reminders.is_due("ns/a", "full")
    assert REPEAT_SECONDS + 600.0 < EVENT_SECONDS


def test_another_problem_and_one_that_comes_back_are_reported_at_once() -> None:
    reminders = Reminders(lambda: 0.0)
    for claim in ("ns/a", "ns/b"):
        reminders.note(claim, "full")

    assert reminders.is_due("ns/a", "taken")
    reminders.forget("ns/a")
    assert reminders.is_due("ns/a", "full")
    reminders.note("ns/a", "full")
    reminders.keep({"ns/b"})
    assert [reminders.is_due(claim, "full") for claim in ("ns/a", "ns/b")] == [True, False]
