"""Policies of one rank: the index states what comparing all of them states, and a change concerns few."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netdra.exposure.ranks import FEW, RankIndex, Rivals, rank
from netdra.model.policy import DeviceExposurePolicy
from tests.builders import exclude, exclusive
from tests.effort import calls

NAMES = [f"p{number:02}" for number in range(FEW + 5)]
EDITS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(("x", "x", "x", "y", "hide", ""))), min_size=10, max_size=60
)


def rivals(policy: DeviceExposurePolicy, present: dict[str, DeviceExposurePolicy]) -> Rivals:
    """The result of comparing a policy with all others."""
    mine = rank(policy)
    others = sorted(n for n, each in present.items() if n != policy.name and mine is not None and rank(each) == mine)
    if len(others) <= FEW:
        return Rivals(tuple(others))
    before = [name for name in others if name < policy.name]
    return Rivals((before[-1] if before else others[0],), more=True)


@given(EDITS)
def test_after_any_edits_the_rank_index_matches_a_comparison_of_all_policies(edits: list[tuple[str, str]]) -> None:
    index, present, known = RankIndex(), dict[str, DeviceExposurePolicy](), dict[str, Rivals]()
    for name, what in edits:
        new = None if not what else exclude(name, "x") if what == "hide" else exclusive(name, what)
        concerned = index.update(name, present.pop(name, None), new)
        known.pop(name, None)
        if new is not None:
            present[name] = new
            known[name] = index.of(new)
        # As the controller does it: what it knows of a policy is renewed only if the policy is concerned.
        known |= {other: index.of(present[other]) for other in concerned}
        assert known == {other: rivals(policy, present) for other, policy in present.items()}
        assert len(concerned) <= 2 * (FEW + 1)
    for name, policy in present.items():
        index.update(name, policy, None)
    assert vars(index) == vars(RankIndex()), "nothing is kept of former ranks"


def test_a_change_among_thousands_of_one_rank_concerns_two_others() -> None:
    index = RankIndex()
    for number in range(3000):
        index.update(f"p{number:04}", None, exclusive(f"p{number:04}", "true"))
    for name in ("p", "p1234x", "q"):
        new = exclusive(name, "true")
        assert len(index.update(name, None, new)) <= 2
        assert len(index.of(new).names) == 1
        assert len(index.update(name, new, None)) <= 2


def test_the_cost_per_policy_of_one_rank_does_not_grow_with_their_number() -> None:
    def effort(number: int) -> int:
        policies = [exclusive(f"p{at:04}", "true") for at in range(number)]

        def take() -> None:
            index = RankIndex()
            for policy in policies:
                index.update(policy.name, None, policy)
            for policy in policies:
                index.of(policy)

        return calls(take)

    assert effort(2000) <= 4.2 * effort(500)
