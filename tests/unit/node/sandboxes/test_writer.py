"""The outcomes that the writer notes: those of a sandbox end with it, and nothing is left of pods that are gone."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec

from netdra.kube.client import Client
from netdra.model.meta import ObjectMeta
from netdra.model.plan import ClaimReference
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes.status import Outcome
from netdra.node.sandboxes.writer import MOST_READ, StatusWriter, StoredClaim


def new_writer() -> StatusWriter:
    """A writer that writes nothing."""
    return StatusWriter(cast("Client", None), lambda _: "")


def outcome(claim: str, sandbox: str, pod: str, reason: str = "Attached") -> Outcome:
    reference = ClaimReference(namespace="ns", name=claim, uid=f"uid-of-{claim}")
    of_pod = Sandbox(id=sandbox, name=pod, namespace="ns", uid=f"uid-of-{pod}")
    return Outcome(claim=reference, sandbox=of_pod, devices=(), reason=reason)


def noted(writer: StatusWriter, pod: str) -> set[tuple[str, str]]:
    return {(each.claim.name, each.sandbox.id) for each in writer.of_pod(f"uid-of-{pod}")}


def assert_empty(writer: StatusWriter) -> None:
    assert not writer._outcomes
    assert not writer._claims
    assert not writer._written


def test_a_sandboxs_outcomes_end_with_it_and_those_of_others_stay() -> None:
    async def story() -> None:
        writer = new_writer()
        writer.update([outcome("a", "1", "p"), outcome("b", "1", "p"), outcome("a", "2", "q"), outcome("c", "3", "r")])
        writer.forget("1")
        assert (noted(writer, "p"), noted(writer, "q"), noted(writer, "r")) == (set(), {("a", "2")}, {("c", "3")})
        writer.forget("1")
        writer.forget("2")
        writer.forget("3")
        assert_empty(writer)

    asyncio.run(story())


def test_a_refusal_stays_until_the_pod_has_another_sandbox_or_is_gone() -> None:
    async def story() -> None:
        writer = new_writer()
        refused = outcome("a", "1", "p", "Refused")
        writer.update([refused])
        writer.forget("1")
        assert noted(writer, "p") == {("a", "1")}
        writer.update([outcome("a", "2", "p")])
        writer.forget("1")
        assert noted(writer, "p") == {("a", "2")}
        writer.forget("2")
        assert_empty(writer)
        writer.update([refused])
        writer.forget_pod("uid-of-p")
        assert_empty(writer)

    asyncio.run(story())


def test_many_tries_of_a_pod_leave_one_outcome() -> None:
    async def story() -> None:
        writer = new_writer()
        for number in range(100):
            writer.update([outcome("a", str(number), "p", "Refused")])
        assert noted(writer, "p") == {("a", "99")}
        assert writer._claims.keys() == {"99"}

    asyncio.run(story())


def test_nothing_is_left_of_a_claim_that_is_gone() -> None:
    async def story() -> None:
        writer = new_writer()
        mine, other = outcome("a", "1", "p"), outcome("b", "1", "p")
        writer.update([mine, other, msgspec.structs.replace(mine, sandbox=outcome("a", "2", "q").sandbox)])
        writer._forget_claim(mine.claim)
        assert noted(writer, "p") == {("b", "1")}
        writer.forget("1")
        assert_empty(writer)

    asyncio.run(story())


def test_a_pod_that_was_deleted_by_force_has_its_network_until_its_sandbox_is_gone() -> None:
    async def story() -> None:
        writer = new_writer()
        writer.update([outcome("a", "1", "p")])
        writer.forget_pod("uid-of-p")
        assert noted(writer, "p") == {("a", "1")}
        writer.forget("1")
        assert_empty(writer)

    asyncio.run(story())


def test_of_claims_that_are_read_and_never_attached_the_last_ones_are_kept() -> None:
    async def story() -> None:
        writer = new_writer()
        for number in [*range(MOST_READ + 10), 0]:
            writer.note_read(StoredClaim(metadata=ObjectMeta(name="c", namespace="ns", uid=str(number))))
        assert list(writer._read) == [*map(str, range(11, MOST_READ + 10)), "0"]

    asyncio.run(story())
