import threading
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.chain import order

DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    names = [f"s{number}" for number in range(draw(st.integers(1, 8)))]
    return {
        name: tuple(draw(st.lists(st.sampled_from(names[:place]), unique=True, max_size=3))) if place else ()
        for place, name in enumerate(names)
    }


class Log:
    """Records the order of acts, and fails those that the test selects."""

    def __init__(self, failing: Sequence[str] = ()) -> None:
        self.failing = set(failing)
        self.acted: list[str] = []

    def __call__(self, key: str) -> None:
        self.acted.append(key)
        if key in self.failing:
            raise ValueError(key)


def kept_order(edges: Mapping[str, Sequence[str]], acted: Sequence[str]) -> bool:
    return all(acted.index(before) < acted.index(key) for key in acted for before in edges[key])


@given(graphs(), st.sets(st.integers(0, 7)))
def test_every_step_runs_once_and_after_those_it_comes_after(
    edges: dict[str, tuple[str, ...]], apart: set[int]
) -> None:
    log = Log()
    failed = order.run(edges, log, beside=lambda key: int(key[1:]) in apart, stop_on_failure=True)
    assert not failed
    assert sorted(log.acted) == sorted(edges)
    assert kept_order(edges, log.acted)


@given(graphs(), st.integers(0, 7), st.sets(st.integers(0, 7)))
def test_nothing_begins_after_a_failure(edges: dict[str, tuple[str, ...]], bad: int, apart: set[int]) -> None:
    name = f"s{bad % len(edges)}"
    log = Log([name])
    failed = order.run(edges, log, beside=lambda key: int(key[1:]) in apart, stop_on_failure=True)
    assert list(failed) == [name]
    descendants = {name}
    for key, after in edges.items():
        if descendants.intersection(after):
            descendants.add(key)
    assert not (descendants - {name}).intersection(log.acted)
    if not apart:
        assert log.acted[-1] == name


@given(graphs(), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_undoing_goes_on_after_failures(edges: dict[str, tuple[str, ...]], bad: set[int], apart: set[int]) -> None:
    backwards = order.reverse(edges)
    log = Log([f"s{number}" for number in bad])
    failed = order.run(backwards, log, beside=lambda key: int(key[1:]) in apart, stop_on_failure=False)
    assert sorted(log.acted) == sorted(edges)
    assert set(failed) == set(log.failing) & set(edges)
    assert kept_order(backwards, log.acted)


def test_without_threads_the_order_is_that_of_the_graph_and_backwards_its_opposite() -> None:
    forwards, backwards = Log(), Log()
    order.run(DIAMOND, forwards, beside=lambda key: False, stop_on_failure=True)
    order.run(order.reverse(DIAMOND), backwards, beside=lambda key: False, stop_on_failure=False)
    assert forwards.acted == ["a", "b", "c", "d"]
    assert backwards.acted == ["d", "c", "b", "a"]


def test_independent_steps_run_at_the_same_time() -> None:
    together = threading.Barrier(3)
    edges = {"a": (), "b": (), "here": (), "end": ("a", "b", "here")}

    def act(key: str) -> None:
        if key != "end":
            together.wait(timeout=60)

    assert not order.run(edges, act, beside=lambda key: key != "here", stop_on_failure=True)


def test_steps_that_may_not_run_beside_others_stay_in_the_callers_thread() -> None:
    threads: dict[str, int] = {}
    edges = {"a": (), "b": (), "c": (), "d": ("a",)}
    order.run(
        edges,
        lambda key: threads.__setitem__(key, threading.get_ident()),
        beside=lambda key: key in {"a", "b"},
        stop_on_failure=True,
    )
    assert threads["c"] == threads["d"] == threading.get_ident()
    assert threading.get_ident() not in {threads["a"], threads["b"]}


def test_a_single_process_needs_no_thread() -> None:
    threads: list[int] = []
    chain = {"a": (), "b": ("a",), "c": ("b",)}
    order.run(chain, lambda key: threads.append(threading.get_ident()), beside=lambda key: True, stop_on_failure=True)
    assert set(threads) == {threading.get_ident()}


def test_a_running_step_is_waited_for_when_another_fails() -> None:
    failed_first = threading.Event()
    ended: list[str] = []

    def act(key: str) -> None:
        if key == "here":
            failed_first.set()
            raise ValueError(key)
        assert failed_first.wait(timeout=60)
        ended.append(key)

    failed = order.run(
        {"apart": (), "here": (), "never": ("apart",)}, act, beside=lambda key: key == "apart", stop_on_failure=True
    )
    assert list(failed) == ["here"]
    assert ended == ["apart"]


def test_an_interrupt_is_not_treated_as_a_step_failure() -> None:
    def act(key: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        order.run({"a": ()}, act, beside=lambda key: False, stop_on_failure=True)
