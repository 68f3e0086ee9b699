"""The table of sandboxes: its phases follow one another as documented, and the CDI specifications of claims follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from netdra.chain.outcome import DeviceOutcome
from netdra.model.errors import TemporaryError
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore, KeptDevice, PreparedClaim, PreparedDevice
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes.status import Outcome
from netdra.node.sandboxes.table import DetachOutcome, Phase, Table

CLAIMS = tuple(ClaimReference(namespace="ns", name=name, uid=f"uid-{name}") for name in ("a", "b"))
BOXES = tuple(Sandbox(id=f"sb-{number}", name=f"p{number}", namespace="ns", uid=f"p-{number}") for number in range(3))


def prepared(claim: ClaimReference) -> PreparedClaim:
    device = PreparedDevice(requests=("nic",), pool="p", device=claim.name)
    facts = PlannedDevice(request="nic", pool="p", device=claim.name)
    return PreparedClaim(boot_id="b", claim=claim, devices=(KeptDevice(told=device, facts=facts),))


def outcome(claim: ClaimReference, box: Sandbox) -> Outcome:
    device = DeviceOutcome(claim=claim, device=PlannedDevice(request="nic", pool="p", device=claim.name))
    return Outcome(claim=claim, sandbox=box, devices=(device,))


def table_in(folder: Path) -> Table:
    store = ClaimStore.of_state(folder)
    for claim in CLAIMS:
        store.put(prepared(claim))
    return Table(ClaimFiles(plugin=folder / "plugin", cdi=folder / "cdi"), store)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    made = table_in(tmp_path)
    yield made
    made.namespaces.close()


def in_turn(table: Table, box: Sandbox, *acts: Callable[[], None]) -> None:
    async def main() -> None:
        async with table.turn(box):
            for act in acts:
                act()

    asyncio.run(main())


def attach(table: Table, box: Sandbox, *claims: ClaimReference) -> None:
    outcomes = [outcome(claim, box) for claim in claims]
    in_turn(table, box, lambda: table.begin_attach(box, claims), lambda: table.complete_attach(box, outcomes))


def test_a_transition_out_of_turn_or_from_another_phase_is_a_defect(table: Table) -> None:
    box = BOXES[0]
    table.mark_running(box)
    with pytest.raises(RuntimeError, match="out of turn"):
        table.begin_attach(box, CLAIMS)
    with pytest.raises(RuntimeError, match="expected -> left, in turn"):
        in_turn(table, box, lambda: table.complete_detach(box.id, DetachOutcome(trouble="x")))
    with pytest.raises(RuntimeError, match="attaching -> attaching"):
        in_turn(table, box, lambda: table.begin_attach(box, CLAIMS), lambda: table.begin_attach(box, CLAIMS))
    assert table.phase(box.id) is Phase.ATTACHING


def test_an_ended_sandbox_without_remains_is_forgotten(table: Table) -> None:
    box = BOXES[0]
    table.mark_running(box)
    attach(table, box, *CLAIMS)
    table.mark_ended(box.id)
    assert table.has_anything(box.id)
    assert table.to_take_down() == (box.id,)
    in_turn(table, box, lambda: table.begin_detach(box.id), lambda: table.complete_detach(box.id, DetachOutcome()))
    assert not table.has_anything(box.id)
    assert table.to_take_down() == ()
    assert table._records == {}


def test_listed_but_stopped_sandboxes_are_ended_and_unlisted_ones_are_not_detached(
    table: Table,
) -> None:
    for box in BOXES:
        table.mark_running(box)
    left = Sandbox(id="sb-on-disk", name="p", namespace="ns", uid="p-9")
    table.update_from_list(BOXES[:2], [BOXES[1]], {left.id: left})
    assert set(table.all_running) == {BOXES[1].id}
    assert table.to_take_down() == ()
    assert table.unlisted == (left,)
    in_turn(table, Sandbox(id="sb-of-another", name="", namespace="", uid=""))
    assert table.unlisted == (left,)
    table.mark_ended(left.id)
    assert table.to_take_down() == (left.id,)
    table.update_from_list(BOXES[:2], [BOXES[1]], {left.id: left})
    assert table.to_take_down() == (left.id,)
    table.mark_running(BOXES[0])
    assert set(table.all_running) == {BOXES[0].id, BOXES[1].id}


def test_an_unlisted_sandbox_ends_once_its_pod_starts_another_sandbox(table: Table) -> None:
    box = BOXES[0]
    table.mark_running(box)
    attach(table, box, *CLAIMS)
    table.update_from_list([], [], {box.id: box})
    assert table.to_take_down() == ()
    newer = msgspec.structs.replace(box, id="sb-newer")
    table.mark_running(newer)
    assert table.end_former(newer)
    assert table.to_take_down() == (box.id,)


def test_a_failed_detach_is_remembered_and_counted_until_it_is_abandoned(table: Table) -> None:
    box = BOXES[0]
    for tries in range(1, 3):
        in_turn(
            table,
            box,
            lambda: table.begin_detach(box.id),
            lambda: table.complete_detach(box.id, DetachOutcome(trouble="busy", is_hopeless=True)),
        )
        assert (table.phase(box.id), table.troubles, table.tries(box.id)) == (Phase.LEFT, {box.id: "busy"}, tries)
        assert table.to_take_down() == (box.id,)
    in_turn(
        table,
        box,
        lambda: table.begin_detach(box.id),
        lambda: table.complete_detach(box.id, DetachOutcome(trouble="busy", is_given_up=True)),
    )
    assert (table.phase(box.id), table.troubles, table.tries(box.id)) == (Phase.EXPECTED, {}, 0)


def test_a_specification_that_cannot_be_removed_keeps_the_claims_containers_from_being_made(
    table: Table, tmp_path: Path
) -> None:
    one, other = BOXES[:2]
    claim = CLAIMS[0]
    for box in (one, other):
        attach(table, box, claim)
    (tmp_path / "claims" / f"{claim.uid}.json").unlink()  # so that it cannot be written for the other one
    with pytest.raises(TemporaryError, match="is not prepared"):
        in_turn(table, one, lambda: table.begin_detach(one.id))
    assert set(table.users(claim.uid)) == {one.id, other.id}


def test_a_sandbox_of_a_former_process_is_attached_and_its_specification_stays_as_it_is(table: Table) -> None:
    box = BOXES[0]
    attach(table, box, CLAIMS[0])
    later = Table(table.files, table.prepared)
    written = table.files.spec_path(CLAIMS[0].uid).stat()
    outcomes = [outcome(claim, box) for claim in CLAIMS]
    in_turn(later, box, lambda: later.take_up(box, outcomes))
    assert later.phase(box.id) is Phase.ATTACHED
    assert later.claims(box.id) == CLAIMS
    assert later.files.specified() == (CLAIMS[0].uid,)
    assert later.files.spec_path(CLAIMS[0].uid).stat() == written
    in_turn(later, box, lambda: later.complete_attach(box, outcomes))
    assert set(later.files.specified()) == {claim.uid for claim in CLAIMS}


def test_a_claim_is_in_use_while_the_runtime_may_have_one_of_its_sandboxes(table: Table) -> None:
    claim = CLAIMS[0]
    assert not table.is_in_use(claim.uid)
    for box in BOXES[:2]:
        table.mark_running(box)
        attach(table, box, claim)
    table.update_from_list((), (), {})
    assert not table.is_in_use(claim.uid)
    table.mark_ended(BOXES[1].id)
    assert table.is_in_use(claim.uid)
    assert not table.is_in_use(CLAIMS[1].uid)


def test_waiting_for_rest_waits_for_the_turns_of_all_sandboxes(table: Table) -> None:
    async def main() -> None:
        ended: list[str] = []

        async def act(box: Sandbox) -> None:
            async with table.turn(box):
                await asyncio.sleep(0.05)
                ended.append(box.id)

        acting = [asyncio.create_task(act(box)) for box in (*BOXES, BOXES[0])]
        await asyncio.sleep(0)
        await table.at_rest()
        assert len(ended) == 4
        await asyncio.gather(*acting)

    asyncio.run(main())


class Sandboxes(RuleBasedStateMachine):
    """Sandboxes that share claims come and go in any order; each step is one that the daemon makes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.table = table_in(Path(self.folder.name))
        self.claims: dict[str, tuple[ClaimReference, ...]] = {}

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(box=st.sampled_from(BOXES), claims=st.lists(st.sampled_from(CLAIMS), min_size=1, unique=True))
    def begins(self, box: Sandbox, claims: list[ClaimReference]) -> None:
        if self.table.phase(box.id) in (Phase.EXPECTED, Phase.LEFT):
            self.table.mark_running(box)
            self.claims[box.id] = tuple(claims)
            in_turn(self.table, box, lambda: self.table.begin_attach(box, claims))

    @rule(box=st.sampled_from(BOXES))
    def is_attached(self, box: Sandbox) -> None:
        if self.table.phase(box.id) is Phase.ATTACHING:
            outcomes = [outcome(claim, box) for claim in self.claims[box.id]]
            in_turn(self.table, box, lambda: self.table.complete_attach(box, outcomes))

    @rule(box=st.sampled_from(BOXES), trouble=st.sampled_from(["", "busy"]))
    def is_taken_down(self, box: Sandbox, trouble: str) -> None:
        if self.table.phase(box.id) is not Phase.DETACHING:
            self.table.mark_ended(box.id)
            in_turn(
                self.table,
                box,
                lambda: self.table.begin_detach(box.id),
                lambda: self.table.complete_detach(box.id, DetachOutcome(trouble=trouble)),
            )

    @rule(box=st.sampled_from(BOXES))
    @precondition(lambda self: any(self.table.phase(box.id) is Phase.ATTACHED for box in BOXES))
    def is_confirmed(self, box: Sandbox) -> None:
        if self.table.phase(box.id) is Phase.ATTACHED:
            outcomes = [outcome(claim, box) for claim in self.claims[box.id]]
            in_turn(self.table, box, lambda: self.table.complete_attach(box, outcomes))

    @invariant()
    def a_claim_is_specified_while_it_has_users_and_all_of_them_are_attached(self) -> None:
        specified = set(self.table.files.specified())
        for claim in CLAIMS:
            users = {box.id: self.table.phase(box.id) for box in BOXES if claim in self.claims.get(box.id, ())}
            users = {box: phase for box, phase in users.items() if phase in (Phase.ATTACHING, Phase.ATTACHED)}
            assert (claim.uid in specified) == (set(users.values()) == {Phase.ATTACHED})
            assert set(self.table.users(claim.uid)) == users.keys()

    @invariant()
    def what_has_ended_is_to_be_taken_down_or_forgotten(self) -> None:
        for box in BOXES:
            left = self.table.has_anything(box.id) and self.table.running(box.id) is None
            assert (box.id in self.table.to_take_down()) == left


TestSandboxes = Sandboxes.TestCase
TestSandboxes.settings = hypothesis_settings(max_examples=30, stateful_step_count=25, deadline=None)
