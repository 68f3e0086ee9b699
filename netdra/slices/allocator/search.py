"""First fit with backtracking: devices of one node for all requests of all claims of a pod.

Called by `allocator` with an empty trial; what it has taken when the search succeeds is the answer. Follows
k8s.io/dynamic-resource-allocation v0.37 (structured/internal/incubating, `allocateOne`): every request tries the
devices in their order, those of one request in rising order only, alternatives one after the other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from netdra.model.claim import MAX_RESULTS
from netdra.model.scheduler_version import NEWEST_SCHEDULER, SchedulerVersion
from netdra.slices.allocator.pools import Candidate, Pool
from netdra.slices.allocator.trial import DeviceVerdict, Trial
from netdra.slices.allocator.wishes import ClaimTask, UnallocatableError, Wish, shown
from netdra.slices.capacity import UnusableRequestError

MAX_STEPS = 500_000
# A search that is this long is worth a look whether it can succeed at all.
HARD = 5_000


class _TooManyError(Exception):
    """The claim's result would get longer than it may be: try a shorter alternative, not other devices."""


class _ImpossibleError(Exception):
    """No combination can do: a request cannot be met even alone, or not as long as a pool of the node is broken."""


def find(
    pools: Sequence[Pool],
    tasks: Sequence[ClaimTask],
    trial: Trial,
    bare: Trial,
    max_steps: int = MAX_STEPS,
    version: SchedulerVersion = NEWEST_SCHEDULER,
) -> bool:
    """Take devices for all tasks, or none.

    Args:
        pools: the node's pools in their order.
        tasks: the claims, in the pod's order.
        trial: an attempt on this node that has taken nothing yet.
        bare: a second attempt, which stays empty.
        max_steps: how many devices are tried at most (the scheduler stops after ten seconds).
        version: that of the scheduler.

    Raises:
        UnallocatableError: the claims can be allocated on no node: a selector has no answer for a device, a claim wants
            more than 32 devices, the search takes too long or, in some versions, a pool is not in order and all devices
            are wanted.
    """
    search = _Search(pools, tasks, trial, bare, max_steps, version)
    try:
        return search.run()
    except UnusableRequestError as problem:
        raise UnallocatableError(f"claim {search.claim_name}: {problem}") from None


class _Search:
    def __init__(
        self,
        pools: Sequence[Pool],
        tasks: Sequence[ClaimTask],
        trial: Trial,
        bare: Trial,
        max_steps: int,
        version: SchedulerVersion,
    ) -> None:
        self._pools = pools
        self._tasks = tasks
        self._trial = trial
        self._bare = bare
        self._steps = 0
        self._max_steps = max_steps
        self._version = version
        self._candidates = [candidate for pool in pools if pool.state == "usable" for candidate in pool.candidates]
        self._everything: dict[Wish, list[Candidate]] = {}
        self._possible: dict[Wish, list[int]] = {}
        self._looked: dict[Wish, int] = {}
        self._lengths = [0] * len(tasks)
        self.claim_name = ""

    def run(self) -> bool:
        try:
            self._check_sizes()
            return self._request(0, 0)
        except _ImpossibleError:
            return False
        except _TooManyError:
            raise UnallocatableError(f"claim {self.claim_name} would get more than {MAX_RESULTS} devices") from None

    def _check_sizes(self) -> None:
        for task in self._tasks:
            self.claim_name = shown(task.key)
            least = 0
            for wishes in task.requests:
                least += min(self._size(wish) for wish in wishes)
                if least > MAX_RESULTS:
                    raise UnallocatableError(
                        f"claim {self.claim_name} requests at least {least} devices; the limit is {MAX_RESULTS}"
                    )

    def _size(self, wish: Wish) -> int:
        if wish.everything and wish not in self._everything:
            self._everything[wish] = self._list_everything(wish)
        return len(self._everything[wish]) if wish.everything else wish.count

    def _list_everything(self, wish: Wish) -> list[Candidate]:
        found: list[Candidate] = []
        for pool in self._pools:
            if pool.state != "usable":
                if self._version.skips_nodes_with_broken_pools:
                    raise _ImpossibleError
                name = "/".join(pool.key)
                raise UnallocatableError(
                    f'claim {self.claim_name}, request "{wish.name}" requests all devices, but pool '
                    f"{name} is {pool.state}: {pool.problem}"
                )
            found += (candidate for candidate in pool.candidates if self._trial.listable(wish, candidate))
        return found

    def _request(self, claim: int, request: int) -> bool:
        """Meet all requests from this one on."""
        if claim == len(self._tasks):
            return True
        task = self._tasks[claim]
        self.claim_name = shown(task.key)
        if request == len(task.requests):
            taken = len(self._trial.taken)
            try:
                return self._request(claim + 1, 0)
            except _TooManyError:
                self._give_back(taken)
                return False
        wishes = task.requests[request]
        if task.claim.spec.devices.requests[request].first_available:
            return self._alternatives(claim, request, wishes)
        return self._devices(claim, request, wishes[0], 0, 0)

    def _alternatives(self, claim: int, request: int, wishes: Sequence[Wish]) -> bool:
        all_too_many = True
        taken = len(self._trial.taken)
        for wish in wishes:
            try:
                if self._devices(claim, request, wish, 0, 0):
                    return True
                all_too_many = False
            except _TooManyError:
                self._give_back(taken)
        if all_too_many:
            raise _TooManyError
        return False

    def _devices(self, claim: int, request: int, wish: Wish, index: int, start: int) -> bool:
        """Take the wish's devices from number `index` on, looking from candidate `start` on; then what follows."""
        size = self._size(wish)
        if wish.everything and size == 0:
            return False
        if index >= size:
            return self._request(claim, request + 1)
        if size - index > MAX_RESULTS - self._lengths[claim]:
            raise _TooManyError
        if wish.everything:
            return self._all(claim, request, wish, index)
        for position in self._positions(wish, start):
            if self._take(claim, wish, self._candidates[position]) is DeviceVerdict.FREE:
                if self._devices(claim, request, wish, index + 1, position + 1):
                    return True
                self._give_back(len(self._trial.taken) - 1)
        return False

    def _positions(self, wish: Wish, start: int) -> Iterator[int]:
        """The candidates from `start` on that the wish could have if the attempt had taken nothing, inspected once.

        An attempt only ever takes away, so the others need not be tried again with each combination. One on which an
        expression fails stays in: it is an error if it is reached, and the attempt may have taken the device before.
        """
        possible = self._possible.setdefault(wish, [])
        index = bisect_left(possible, start)
        while True:
            while index < len(possible):
                yield possible[index]
                index += 1
            looked = self._looked.get(wish, 0)
            if looked == len(self._candidates):
                return
            self._looked[wish] = looked + 1
            if self._could_have(wish, self._candidates[looked]):
                possible.append(looked)

    def _could_have(self, wish: Wish, candidate: Candidate) -> bool:
        try:
            return self._is_free(0, wish, candidate)
        except UnusableRequestError:
            return True

    def _all(self, claim: int, request: int, wish: Wish, index: int) -> bool:
        candidate = self._everything[wish][index]
        verdict = self._take(claim, wish, candidate)
        if verdict is DeviceVerdict.CONSTRAINED:
            raise UnallocatableError(
                f'claim {self.claim_name}, request "{wish.name}" requests all devices, but a '
                f"constraint excludes {candidate.key[2]}"
            )
        if verdict is not DeviceVerdict.FREE:
            return False
        if self._devices(claim, request, wish, index + 1, 0):
            return True
        self._give_back(len(self._trial.taken) - 1)
        return False

    def _take(self, claim: int, wish: Wish, candidate: Candidate) -> DeviceVerdict:
        self._steps += 1
        if self._steps == HARD and self._is_impossible():
            raise _ImpossibleError
        if self._steps > self._max_steps:
            raise UnallocatableError(f"claim {self.claim_name}: too many combinations of devices")
        verdict = self._trial.take(claim, wish, candidate)
        if verdict is DeviceVerdict.FREE:
            self._lengths[claim] += 1
        return verdict

    def _is_impossible(self) -> bool:
        """Whether some request cannot be met even alone, and the search would not end with an error before it fails."""
        wishes = [
            (number, wish) for number, task in enumerate(self._tasks) for request in task.requests for wish in request
        ]
        for task in self._tasks:
            everything = any(wish.everything for request in task.requests for wish in request)
            alternatives = any(request.first_available for request in task.claim.spec.devices.requests)
            if alternatives or (everything and task.claim.spec.devices.constraints):
                return False
        try:
            free = [
                sum(self._is_free(number, wish, candidate) for candidate in self._candidates) for number, wish in wishes
            ]
        except UnusableRequestError:
            return False
        if any(count < wish.count for count, (_, wish) in zip(free, wishes, strict=True)):
            return True
        return any(wish.everything and not self._fits_alone(number, wish) for number, wish in wishes)

    def _is_free(self, claim: int, wish: Wish, candidate: Candidate) -> bool:
        return self._bare.judge(claim, wish, candidate) is DeviceVerdict.FREE

    def _fits_alone(self, claim: int, wish: Wish) -> bool:
        fits = all(self._bare.take(claim, wish, entry) is DeviceVerdict.FREE for entry in self._everything[wish])
        self._bare.give_back(0)
        return fits

    def _give_back(self, length: int) -> None:
        for taken in self._trial.taken[length:]:
            self._lengths[taken.claim] -= 1
        self._trial.give_back(length)
