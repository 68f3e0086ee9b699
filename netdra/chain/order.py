"""Run the steps of a graph in an order that its edges allow: forwards to set up, backwards to undo.

Knows nothing of steps but their keys. Steps that may run beside others (those that are processes of their own) get a
thread when there is something to run beside them; all others run one after the other in the caller's thread, which
alone uses its sockets. Called by `netdra.chain.attach` and `netdra.chain.detach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

Act = Callable[[str], None]


def reverse(edges: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The edges the other way round, and the steps in the opposite order: for each, the steps to be undone before it.

    Args:
        edges: step -> the steps that it comes after, every step before its dependents.
    """
    turned: dict[str, list[str]] = {key: [] for key in reversed(list(edges))}
    for key, after in edges.items():
        for before in after:
            turned[before].insert(0, key)
    return {key: tuple(after) for key, after in turned.items()}


def run(
    edges: Mapping[str, Sequence[str]],
    act: Act,
    *,
    beside: Callable[[str], bool],
    stop_on_failure: bool,
    interrupt: Callable[[], None] = lambda: None,
    workers: int = 8,
) -> dict[str, Exception]:
    """Act on each step once all steps that it comes after have been acted on, and return the failures.

    Args:
        edges: step -> the steps that it comes after, every step before its dependents.
        act: the act; an exception is the step's failure.
        beside: whether a step may run in a thread of its own.
        stop_on_failure: begin nothing more once a step has failed. Otherwise a failed step counts as acted on.
        interrupt: called when this thread is interrupted (KeyboardInterrupt): steps that run in other threads are to
            end soon. They are waited for, and nothing more begins.
        workers: how many threads there may be.
    """
    if not any(map(beside, edges)):
        return _run_in_turn(edges, act, stop_on_failure)  # as most chains
    # Threads are made by the executor as they are needed, from this thread and so in its network namespace.
    with ThreadPoolExecutor(workers, thread_name_prefix="netdra-step") as threads:
        try:
            return _Run(edges, act, beside, stop_on_failure, threads).to_the_end()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            interrupt()
            raise


def _run_in_turn(edges: Iterable[str], act: Act, stop_on_failure: bool) -> dict[str, Exception]:
    """Act on steps that all run in this thread: in the order in which they are given, which the edges allow."""
    failed: dict[str, Exception] = {}
    for key in edges:
        try:
            act(key)
        except Exception as problem:  # noqa: BLE001 (the caller reports it, after undoing)
            failed[key] = problem
            if stop_on_failure:
                break
    return failed


class _Run:
    def __init__(
        self,
        edges: Mapping[str, Sequence[str]],
        act: Act,
        beside: Callable[[str], bool],
        stop_on_failure: bool,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._edges, self._act, self._beside, self._stop = edges, act, beside, stop_on_failure
        self._threads = threads
        self._waiting = list(edges)
        self._over: set[str] = set()
        self._running: dict[Future[None], str] = {}
        self._failed: dict[str, Exception] = {}

    def to_the_end(self) -> dict[str, Exception]:
        while not self._is_over():
            self._begin_some()
            if self._running:
                self._await_one()
        return self._failed

    def _is_over(self) -> bool:
        stopped = self._stop and self._failed
        return not self._running and (not self._waiting or bool(stopped))

    def _begin_some(self) -> None:
        """Begin the steps that can run beside others, then do one of the rest here."""
        if self._stop and self._failed:
            return
        ready = [key for key in self._waiting if self._over.issuperset(self._edges[key])]
        apart = [key for key in ready if self._beside(key)]
        here = [key for key in ready if key not in apart]
        if not here and not self._running:
            here = [apart.pop()] if apart else []
        for key in apart:
            self._waiting.remove(key)
            self._running[self._threads.submit(self._act, key)] = key
        if here:
            self._waiting.remove(here[0])
            self._do(here[0])

    def _do(self, key: str) -> None:
        try:
            self._act(key)
        except Exception as problem:  # noqa: BLE001 (the caller reports it, after undoing)
            self._failed[key] = problem
        self._over.add(key)

    def _await_one(self) -> None:
        # While a step is ready to be done here, those that run apart are only looked at, not waited for.
        ready = not (self._stop and self._failed) and any(
            self._over.issuperset(self._edges[key]) for key in self._waiting
        )
        finished, _ = wait(self._running, timeout=0 if ready else None, return_when=FIRST_COMPLETED)
        for future in finished:
            key = self._running.pop(future)
            problem = future.exception()
            if isinstance(problem, Exception):
                self._failed[key] = problem
            elif problem is not None:
                raise problem
            self._over.add(key)
