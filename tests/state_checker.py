"""A small explicit-state checker: every state that a model can reach, breadth first, and the way to a fault."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Step(NamedTuple, Generic[S]):
    """An act of a model.

    Attributes:
        label: the act in words.
        state: the state after it, in its canonical form.
        problem: what is wrong with the act itself; "" if nothing.
        helps: whether the system and its environment do it in the end, without further disturbances.
    """

    label: str
    state: S
    problem: str = ""
    helps: bool = True


class Verdict(NamedTuple, Generic[S]):
    """The result of a search.

    Attributes:
        states: how many were visited.
        problem: the first thing that is wrong; "" if nothing.
        way: the states that lead to it.
        last: the act that is wrong; "" if the last state is.
    """

    states: int
    problem: str = ""
    way: tuple[S, ...] = ()
    last: str = ""


class Search(Generic[S]):
    """Every state that a model can reach."""

    def __init__(self, first: S, steps: Callable[[S], Iterable[Step[S]]], most: int = 500_000) -> None:
        """Begin with one state.

        Args:
            first: the state in which everything begins.
            steps: the acts in a state.
            most: how many states are visited at most; more are a problem.
        """
        self._steps, self._most = steps, most
        self._came: dict[S, S | None] = {first: None}
        self._before: dict[S, list[S]] = {}

    @property
    def states(self) -> Iterable[S]:
        """Those that were visited."""
        return self._came.keys()

    def check(self, wrong: Callable[[S], str], is_goal: Callable[[S], bool]) -> Verdict[S]:
        """Check that no state is wrong, and that a goal can be reached from each by acts that help.

        Args:
            wrong: what is wrong with a state; "" if nothing.
            is_goal: whether everything is as it should be in the end.
        """
        queue = deque(self._came)
        while queue:
            state = queue.popleft()
            for label, after, problem, helps in self._steps(state):
                if problem:
                    return self._found(problem, state, label)
                if helps:
                    self._before.setdefault(after, []).append(state)
                if after not in self._came:
                    self._came[after] = state
                    if problem := wrong(after) or ("too many states" if len(self._came) > self._most else ""):
                        return self._found(problem, after)
                    queue.append(after)
        fine = self._ways_to(filter(is_goal, self._came))
        stuck = next((state for state in self._came if state not in fine), None)
        return Verdict(len(self._came)) if stuck is None else self._found("no way leads to the goal from here", stuck)

    def _ways_to(self, goals: Iterable[S]) -> set[S]:
        """The states from which one of the goals can be reached by acts that help."""
        fine = {*goals}
        ends = [*fine]
        while ends:
            for state in self._before.get(ends.pop(), ()):
                if state not in fine:
                    fine.add(state)
                    ends.append(state)
        return fine

    def _found(self, problem: str, last: S, label: str = "") -> Verdict[S]:
        way, state = [last], self._came[last]
        while state is not None:
            way.append(state)
            state = self._came[state]
        return Verdict(len(self._came), problem, tuple(reversed(way)), label)
