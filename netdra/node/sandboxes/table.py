"""The sandboxes that netdra knows on this node, each with the phase that its network is in.

One record a sandbox, in which `hooks` and `recover` meet. It is changed by the methods of `Table` alone, and
three rules follow from it:

- A sandbox is acted on by one task at a time: that task has its turn (`Table.act`), until its work has ended.
- A claim's CDI specification is there only while every sandbox of the claim that has begun is attached (decision D12).
  A container that asks for a CDI device whose specification is missing is not created. Pods that share a claim share
  its specification: it is taken away while one of them is being attached, or a crash in that moment would let that
  pod's containers through. After such a crash only the missing specification is left of that moment, so the next
  process does not write it before it has seen which sandboxes have the claim (`Table.withhold`).
- The sandbox's network namespace is held from before the first device is moved in until the last one is out (decision
  D22, `namespaces`).

```
    from                                    by               to
    EXPECTED, ATTACHED (not standing), LEFT  begin_attach     ATTACHING
    ATTACHING; EXPECTED, ATTACHED, LEFT
      (its network is seen to stand)         complete_attach  ATTACHED
    EXPECTED (a former process's network)    take_up          ATTACHED
    all but DETACHING                        begin_detach     DETACHING
    DETACHING                                complete_detach  EXPECTED, or LEFT if something could not be given back
```

A sandbox that has a checkpoint and is not known when the runtime lists its sandboxes is LEFT too: a former process left
it.

Whether a sandbox runs, as the runtime states, is apart from that (`Life`): a sandbox may end while it is being
attached, and a running one may be being detached because it was refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import msgspec

from netdra.model.errors import NetdraError, TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes.namespaces import Namespaces
from netdra.node.sandboxes.status import Outcome
from netdra.node.turns import run_in_turn

T = TypeVar("T")


class Phase(Enum):
    """The phase of a sandbox's network.

    Attributes:
        EXPECTED: nothing of it is there, as far as this process knows; its checkpoint may state otherwise.
        ATTACHING: its chain runs, and no container of its claims can be created.
        ATTACHED: its network is complete.
        DETACHING: its network is being taken down, and no container of its own can be created.
        LEFT: something of it is left that is to be returned: a former process left it, or it could not be undone.
    """

    EXPECTED = "expected"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    LEFT = "left"


class Life(Enum):
    """A sandbox's life, as the runtime states.

    Attributes:
        UNKNOWN: it has reported nothing yet: a former daemon left the sandbox, or another daemon of this node has it.
        RUNNING: it runs.
        UNLISTED: the runtime did not list it, and nothing else reports that it has ended: nothing of it is undone
            (decision D59). A runtime that begins again may list nothing.
        ENDED: it runs no more: it was stopped or refused, its pod or its namespace is gone, its pod has a newer
            sandbox, or the runtime did not list it and its claim is given up.
    """

    UNKNOWN = "unknown"
    RUNNING = "running"
    UNLISTED = "unlisted"
    ENDED = "ended"


_BEFORE: Mapping[Phase, frozenset[Phase]] = {
    Phase.ATTACHING: frozenset({Phase.EXPECTED, Phase.ATTACHED, Phase.LEFT}),
    Phase.ATTACHED: frozenset({Phase.EXPECTED, Phase.ATTACHING, Phase.ATTACHED, Phase.LEFT}),
    Phase.DETACHING: frozenset({Phase.EXPECTED, Phase.ATTACHING, Phase.ATTACHED, Phase.LEFT}),
    Phase.EXPECTED: frozenset({Phase.DETACHING}),
    Phase.LEFT: frozenset({Phase.DETACHING}),
}
"""Phase -> the phases that a sandbox may come from."""


class DetachOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of taking a sandbox down.

    Attributes:
        claims: the claims whose network was run in it, as far as its checkpoint states.
        trouble: what could not be undone yet, "" if all is undone.
        notes: what was undone and could not be returned as it was.
        restored: the changes of devices that plugins had left, and netdra restored.
        is_hopeless: another try would fail in the same way: its namespace is gone for all but us, or its plugins refuse
            to undo all that is left, which they had refused to do.
        is_given_up: the steps not undone are in a renamed file, and are not tried again.
        releases_namespace: its namespace is no longer needed.
        hung: the plugins that did not answer in time.
    """

    claims: tuple[ClaimReference, ...] = ()
    trouble: str = ""
    notes: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    is_hopeless: bool = False
    is_given_up: bool = False
    releases_namespace: bool = False
    hung: tuple[str, ...] = ()


@dataclass
class _Record:
    """A sandbox.

    Attributes:
        sandbox: as the runtime, or its checkpoint, last had it.
        claims: the outcome of each of its claims, by uid; None for a claim whose containers must not be created because
            of this sandbox. In another phase than ATTACHED all count as None.
        trouble: what could not be returned, or is wrong with its network; "" for nothing.
        tries: how often it was taken down without hope.
        plugins: the programs that its plans run.
        turn: held by the task that acts on it.
        interested: how many tasks have the turn or wait for it.
    """

    sandbox: Sandbox
    life: Life = Life.UNKNOWN
    phase: Phase = Phase.EXPECTED
    claims: dict[str, Outcome | None] = field(default_factory=dict)
    trouble: str = ""
    tries: int = 0
    plugins: frozenset[str] = frozenset()
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    interested: int = 0

    @property
    def is_needless(self) -> bool:
        """Whether the record has nothing to remember."""
        return (
            self.life is not Life.RUNNING
            and self.phase is Phase.EXPECTED
            and not (self.claims or self.trouble or self.interested)
        )


class Table:
    """The sandboxes of one node.

    Methods for a sandbox's life and its turn belong to the event loop; methods for its network may be called by any
    thread.
    """

    def __init__(self, files: ClaimFiles, prepared: ClaimStore) -> None:
        """Begin without any.

        Args:
            files: where CDI specifications are written.
            prepared: the claims that are prepared here.
        """
        self.files, self.prepared = files, prepared
        self.namespaces = Namespaces()
        self._records: dict[str, _Record] = {}
        self._users: dict[str, dict[str, _Record]] = {}  # by claim: of each node's hundreds of pods, few have it
        self._withheld: frozenset[str] = frozenset()
        self._released: set[str] = set()
        self._lock = threading.Lock()

    # Reports of the runtime.

    def update_from_list(
        self, listed: Collection[Sandbox], running: Sequence[Sandbox], left: Mapping[str, Sandbox]
    ) -> None:
        """The runtime has listed its sandboxes: of these some run, and the others have ended.

        A sandbox that another process of this node attaches from now on is in none of these, and nothing is known of
        it.

        Args:
            listed: the sandboxes that the runtime has.
            running: those that run.
            left: all sandboxes that have a checkpoint, by id.
        """
        stopped = {sandbox.id for sandbox in listed} - {sandbox.id for sandbox in running}
        for key in {*self._records, *left, *self.namespaces.sandboxes()} - {sandbox.id for sandbox in running}:
            record = self._record(left.get(key, Sandbox(id=key, name="", namespace="", uid="")))
            if record.life is not Life.ENDED:
                record.life = Life.ENDED if key in stopped else Life.UNLISTED
            if record.phase is Phase.EXPECTED and not record.interested and key in left:
                record.phase = Phase.LEFT
        for sandbox in running:
            self.mark_running(sandbox)
        for key in tuple(self._records):
            self._forget(key)

    def mark_running(self, sandbox: Sandbox) -> None:
        """A sandbox runs from now on."""
        record = self._record(sandbox)
        record.sandbox, record.life = sandbox, Life.RUNNING

    def mark_ended(self, sandbox: str) -> None:
        """A sandbox does not run, as the runtime or the kernel states; an unknown sandbox is not an error."""
        record = self._records.get(sandbox)
        if record is not None:
            record.life = Life.ENDED
            self._forget(sandbox)

    def end_unlisted(self, sandbox: str) -> None:
        """A sandbox that the runtime did not list has ended, unless the runtime has listed it again meanwhile."""
        record = self._records.get(sandbox)
        if record is not None and record.life is Life.UNLISTED:
            self.mark_ended(sandbox)

    def running(self, sandbox: str) -> Sandbox | None:
        """A sandbox if it runs, else None."""
        record = self._records.get(sandbox)
        return record.sandbox if record is not None and record.life is Life.RUNNING else None

    def has_ended(self, sandbox: str) -> bool:
        """Whether a sandbox is known to run no more."""
        record = self._records.get(sandbox)
        return record is not None and record.life is Life.ENDED

    @property
    def all_running(self) -> Mapping[str, Sandbox]:
        """The sandboxes that run, by id."""
        return {record.sandbox.id: record.sandbox for record in self._all() if record.life is Life.RUNNING}

    def end_former(self, sandbox: Sandbox) -> bool:
        """Mark the other sandboxes of a sandbox's pod as ended: a pod has one at a time; returns whether any ran."""
        former = [
            record
            for record in self._of_pod_of(sandbox)
            if record.life in (Life.RUNNING, Life.UNLISTED) and record.sandbox.id != sandbox.id
        ]
        for record in former:
            self.mark_ended(record.sandbox.id)
        return bool(former)

    def running_of_pod(self, sandbox: Sandbox) -> tuple[Sandbox, ...]:
        """The sandboxes of a sandbox's pod that run."""
        return tuple(record.sandbox for record in self._of_pod_of(sandbox) if record.life is Life.RUNNING)

    @property
    def unlisted(self) -> tuple[Sandbox, ...]:
        """The sandboxes that the runtime did not list and that have not ended otherwise."""
        return tuple(record.sandbox for record in self._all() if record.life is Life.UNLISTED)

    # Whose turn it is.

    @asynccontextmanager
    async def turn(self, sandbox: Sandbox) -> AsyncIterator[None]:
        """Wait until no other task acts on a sandbox, and keep all others from it as long as the context is open."""
        record = self._record(sandbox)
        record.interested += 1
        try:
            async with record.turn:
                yield
        finally:
            record.interested -= 1
            self._forget(sandbox.id)

    async def act(self, sandbox: Sandbox, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do some work on a sandbox in its turn; a caller that is cancelled leaves work that has begun to its end.

        Raises:
            NetdraError: of the work.
        """
        return await run_in_turn(self.turn(sandbox), work, f"sandbox {sandbox.id}")

    def is_busy(self, sandbox: str) -> bool:
        """Whether a task acts on a sandbox, or waits to."""
        record = self._records.get(sandbox)
        return record is not None and bool(record.interested)

    async def at_rest(self) -> None:
        """Wait until no task acts on any sandbox."""
        while busy := [record.sandbox for record in self._all() if record.interested]:
            async with self.turn(busy[0]):
                pass

    # The phase of its network. A transition that is not in `_BEFORE`, or of a task without the turn, is a defect.

    def begin_attach(self, sandbox: Sandbox, claims: Iterable[ClaimReference]) -> None:
        """A sandbox with these claims is about to be attached: from now on none of their containers is created.

        Raises:
            NetdraError: a specification cannot be removed; the sandbox must not be attached.
        """
        with self._lock:
            record = self._moved(sandbox.id, Phase.ATTACHING)
            self._set_claims(record, record.claims | dict.fromkeys((claim.uid for claim in claims), None))
            for uid in record.claims:
                self.files.remove_spec(uid)

    def complete_attach(self, sandbox: Sandbox, outcomes: Iterable[Outcome]) -> None:
        """A sandbox has its whole network: it was attached, or its network stands.

        Raises:
            NetdraError: a specification cannot be written; the pod's containers cannot be created yet.
        """
        with self._lock:
            former = self._complete(sandbox, outcomes)
            for uid in dict.fromkeys((*self._records[sandbox.id].claims, *former)):
                self._specify(uid)

    def take_up(self, sandbox: Sandbox, outcomes: Iterable[Outcome]) -> None:
        """A sandbox has its whole network from a former process, whose specifications stay as they are.

        `complete_attach` brings them up to date once the runtime has listed the sandbox.
        """
        with self._lock:
            self._complete(sandbox, outcomes)

    def begin_detach(self, sandbox: str) -> None:
        """A sandbox is about to be taken down: it is refused, has ended, or was left by a former process.

        Raises:
            NetdraError: a specification cannot be removed, or written again for the claim's other sandboxes. It is
                tried again when the sandbox is taken down again.
        """
        with self._lock:
            record = self._moved(sandbox, Phase.DETACHING)
            problems: list[NetdraError] = []
            for uid in tuple(record.claims):
                self._set_claims(record, {other: outcome for other, outcome in record.claims.items() if other != uid})
                try:
                    self._specify(uid)
                except NetdraError as problem:
                    problems.append(problem)
                    self._set_claims(record, {**record.claims, uid: None})
            if problems:
                raise problems[0]

    def complete_detach(self, sandbox: str, undone: DetachOutcome) -> None:
        """A sandbox was taken down, except for steps that could not be undone."""
        with self._lock:
            is_left = bool(undone.trouble) and not undone.is_given_up
            record = self._moved(sandbox, Phase.LEFT if is_left else Phase.EXPECTED)
            record.trouble = undone.trouble if is_left else ""
            record.tries = record.tries + undone.is_hopeless if is_left else 0
            if not is_left:
                record.plugins = frozenset()
            if undone.releases_namespace:
                self.namespaces.release(sandbox)

    def claims(self, sandbox: str) -> tuple[ClaimReference, ...]:
        """The claims whose network a sandbox has; none unless it is attached."""
        record = self._records.get(sandbox)
        outcomes = record.claims.values() if record is not None and record.phase is Phase.ATTACHED else ()
        return tuple(outcome.claim for outcome in outcomes if outcome is not None)

    def hold(self, sandbox: Sandbox) -> None:
        """Hold the namespace of a sandbox whose turn the caller has, if it is there."""
        self.namespaces.hold(sandbox.id, sandbox.netns)

    def set_trouble(self, sandbox: str, trouble: str) -> None:
        """Set the trouble of a sandbox's network, or of its rest, again."""
        self._records[sandbox].trouble = trouble

    def set_plugins(self, sandbox: Sandbox, plugins: frozenset[str]) -> None:
        """A sandbox needs these programs, to be attached and to be taken down."""
        self._record(sandbox).plugins = plugins
        self._forget(sandbox.id)

    def plugins(self, sandbox: str) -> frozenset[str]:
        """The programs that taking a sandbox down needs, as far as they are known."""
        record = self._records.get(sandbox)
        return record.plugins if record is not None else frozenset()

    def phase(self, sandbox: str) -> Phase:
        """The phase of a sandbox; `EXPECTED` for one that the table does not know."""
        record = self._records.get(sandbox)
        return record.phase if record is not None else Phase.EXPECTED

    def tries(self, sandbox: str) -> int:
        """How often a sandbox was taken down without hope."""
        record = self._records.get(sandbox)
        return record.tries if record is not None else 0

    @property
    def troubles(self) -> Mapping[str, str]:
        """The troubles by sandbox: devices that could not be returned yet, or wrong states."""
        return {record.sandbox.id: record.trouble for record in self._all() if record.trouble}

    def has_anything(self, sandbox: str) -> bool:
        """Whether a sandbox is known to have anything to undo; its checkpoint may state more."""
        record = self._records.get(sandbox)
        recorded = record is not None and bool(record.claims or record.trouble or record.phase is not Phase.EXPECTED)
        return recorded or self.namespaces.has(sandbox)

    def to_take_down(self) -> tuple[str, ...]:
        """The sandboxes that have ended, or have trouble and do not run."""
        return tuple(
            record.sandbox.id
            for record in self._all()
            if record.life is Life.ENDED or (record.trouble and record.life is Life.UNKNOWN)
        )

    # The claims' CDI specifications.

    def users(self, uid: str) -> tuple[str, ...]:
        """The sandboxes that have a claim, or are just being attached with it."""
        return tuple(record.sandbox.id for record in self._having(uid))

    def is_in_use(self, uid: str) -> bool:
        """Whether a sandbox has a claim, beside those that the runtime did not list."""
        return any(record.life is not Life.UNLISTED for record in self._having(uid))

    def others_with(self, uid: str, sandbox: Sandbox) -> tuple[Sandbox, ...]:
        """The sandboxes of other pods that have a claim now."""
        return tuple(
            record.sandbox
            for record in self._having(uid)
            if record.life is Life.RUNNING and record.sandbox.uid != sandbox.uid
        )

    def withhold(self, uids: Iterable[str]) -> None:
        """Until `stop_withholding`, write no specification of these claims that is not there now.

        A former process died before it wrote the specification, or took it away for another sandbox, which may still
        wait for its network.
        """
        with self._lock:
            self._withheld = frozenset(uids) - frozenset(self.files.specified())

    def withholds(self, uids: Iterable[str]) -> bool:
        """Whether the specification of one of these claims is withheld."""
        return not self._withheld.isdisjoint(uids)

    def stop_withholding(self) -> bool:
        """Withhold no specification any more; returns whether any was: its sandboxes are to be confirmed again."""
        with self._lock:
            withheld, self._withheld = self._withheld, frozenset()
            return bool(withheld)

    def remove_unattached(self, specified: Iterable[str]) -> tuple[str, ...]:
        """Remove the specifications of claims that no known sandbox has; returns the claims' uids.

        Args:
            specified: the claims that had a specification before the checkpoints were read. During a rolling update
                the former driver still attaches pods, and their specifications are newer than these checkpoints.

        Raises:
            NetdraError: a specification cannot be removed.
        """
        with self._lock:
            attached = {uid for record in self._all() if record.phase is Phase.ATTACHED for uid in record.claims}
            return self.files.retain(attached, specified)

    def release_claim(self, uid: str) -> None:
        """A claim is released: its specification is not expected to be there any more, also while sandboxes have it."""
        with self._lock:
            if uid in self._users:
                self._released.add(uid)

    def unspecified(self) -> dict[str, ClaimReference]:
        """The claims, by uid, that lack their specification although each of their sandboxes is attached.

        Raises:
            TemporaryError: the folder of the specifications cannot be read.
        """
        with self._lock:
            attached = {
                uid: outcome.claim
                for uid, users in self._users.items()
                if uid not in self._released and (outcome := self._outcome(uid, tuple(users.values()))) is not None
            }
            specified = self.files.specified() if attached else ()
            return {uid: claim for uid, claim in attached.items() if uid not in specified}

    def specify(self, uid: str) -> None:
        """Have a claim's specification be there exactly if all of its sandboxes are attached.

        Raises:
            NetdraError: it cannot be written or removed.
        """
        with self._lock:
            self._specify(uid)

    def remove_unprepared(self) -> tuple[str, ...]:
        """Remove the specifications of claims that are not prepared here and no pod has; returns the claims' uids.

        A claim of a running pod may have lost its record.

        Raises:
            NetdraError: a specification cannot be removed.
        """
        with self._lock:
            return self.files.retain(self.prepared.uids() | self._users.keys())

    def _specify(self, uid: str) -> None:
        """As `specify`; a specification that is withheld stays as it is."""
        users = self._having(uid)
        outcome = self._outcome(uid, users)
        if outcome is not None:
            self._write(outcome)
        elif not users or any(record.phase is not Phase.ATTACHED for record in users):
            self.files.remove_spec(uid)

    def _outcome(self, uid: str, users: Sequence[_Record]) -> Outcome | None:
        """The outcome that a claim's specification is made of; None if it must not be written."""
        if not users or uid in self._withheld or any(record.phase is not Phase.ATTACHED for record in users):
            return None
        return users[0].claims[uid]

    def _write(self, outcome: Outcome) -> None:
        claim = outcome.claim
        prepared = self.prepared.get(claim.uid)
        if prepared is None:
            raise TemporaryError(
                f'ResourceClaim "{claim.namespace}/{claim.name}" is not prepared on this node',
                hint="see the kubelet's log for the result of NodePrepareResources",
                code="ND2236",
            )
        # Pods that share a claim have the same device files and, but for names of their own, the same interfaces.
        self.files.write_spec(prepared, outcome.devices)

    def _complete(self, sandbox: Sandbox, outcomes: Iterable[Outcome]) -> dict[str, Outcome | None]:
        """Note that a sandbox has its whole network; returns the claims that it had before."""
        record = self._moved(sandbox.id, Phase.ATTACHED)
        former = record.claims
        self._set_claims(record, {outcome.claim.uid: outcome for outcome in outcomes})
        record.trouble, record.tries = "", 0
        return former

    def _set_claims(self, record: _Record, claims: dict[str, Outcome | None]) -> None:
        """Give a record other claims, and note it as the user of these alone."""
        key = record.sandbox.id
        for uid in claims.keys() - record.claims.keys():
            self._users.setdefault(uid, {})[key] = record
            self._released.discard(uid)
        for uid in record.claims.keys() - claims.keys():
            del self._users[uid][key]
            if not self._users[uid]:
                del self._users[uid]
                self._released.discard(uid)
        record.claims = claims

    def _having(self, uid: str) -> tuple[_Record, ...]:
        """The sandboxes that have a claim, or are just being attached with it."""
        return tuple(self._users.get(uid, {}).values())

    def _of_pod_of(self, sandbox: Sandbox) -> list[_Record]:
        """The sandboxes of a sandbox's pod."""
        return [record for record in self._all() if record.sandbox.is_of_pod_of(sandbox)]

    def _moved(self, sandbox: str, phase: Phase) -> _Record:
        """A sandbox's record, in its next phase."""
        record = self._records[sandbox]
        if not record.turn.locked() or record.phase not in _BEFORE[phase]:
            turn = "in" if record.turn.locked() else "out of"
            raise RuntimeError(f"sandbox {sandbox}: {record.phase.value} -> {phase.value}, {turn} turn")
        record.phase = phase
        return record

    def _record(self, sandbox: Sandbox) -> _Record:
        return self._records.setdefault(sandbox.id, _Record(sandbox))

    def _forget(self, sandbox: str) -> None:
        record = self._records.get(sandbox)
        if record is not None and record.is_needless:
            del self._records[sandbox]

    def _all(self) -> tuple[_Record, ...]:
        return tuple(self._records.values())  # at once: another thread may add a record
