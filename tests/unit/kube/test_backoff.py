"""Waits grow, end at a bound, are spread, and respect what the server asked for."""

from netdra.kube.backoff import MOST_ASKED_SECONDS, Backoff


def test_waits_double_up_to_the_bound() -> None:
    backoff = Backoff(0.2, 3.0, chance=lambda: 1.0)

    assert [round(backoff.next(), 3) for _ in range(7)] == [0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0]


def test_after_a_success_waits_are_short_again() -> None:
    backoff = Backoff(0.2, 3.0, chance=lambda: 1.0)
    for _ in range(50):
        backoff.next()
    backoff.reset()

    assert backoff.next() == 0.2


def test_jitter_takes_at_most_half() -> None:
    assert Backoff(0.2, 3.0, chance=lambda: 0.0).next() == 0.1


def test_the_delay_requested_by_the_server_is_a_minimum_and_jitter_is_added() -> None:
    assert Backoff(0.2, 3.0, chance=lambda: 0.0).next(at_least=2.0) == 2.1


def test_an_absurd_wish_of_the_server_is_bounded() -> None:
    assert Backoff(0.2, 3.0).next(at_least=1e9) <= MOST_ASKED_SECONDS + 0.2


def test_a_thousand_failures_do_not_overflow() -> None:
    backoff = Backoff(0.2, 3.0)
    waits = [backoff.next() for _ in range(5000)]

    assert max(waits) <= 3.0
