"""How long the scheduler's search may take: never shorter than a search that visits every device, and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.model.claim import MAX_RESULTS, ResourceClaim
from netdra.model.resource import ResourceSlice
from netdra.slices.allocator import MOST_VISITS, Allocator
from netdra.slices.allocator.pools import Candidate
from netdra.slices.allocator.trial import DeviceVerdict
from netdra.slices.allocator.wishes import Wish
from netdra.slices.allocator.worst_case import Estimate
from tests import draws
from tests.unit.slices.asking import ANY, devices, refused
from tests.unit.slices.making import (
    DRIVER,
    alternatives,
    claim,
    counted,
    device,
    request,
    shared,
    slice_of,
)

MOST = 20_000
"""The oracle stops here, and says so many."""


class _StopError(Exception):
    """Long enough."""


class _TooManyError(Exception):
    """More devices than a claim may get: a shorter alternative is tried, not other devices."""


class Oracle:
    """kube-scheduler's search as it is written: no look ahead, no device left out, each visit counted."""

    def __init__(self, allocator: Allocator, claims: Sequence[ResourceClaim], node: str = "n1") -> None:
        self.tasks = allocator._tasks(claims)
        self.trial = allocator._trial(node, self.tasks)
        self.pools = allocator.pools(node)
        self.visits = 0
        self._candidates = [each for pool in self.pools if pool.state == "usable" for each in pool.candidates]
        self._lengths = [0] * len(self.tasks)
        with suppress(_StopError, _TooManyError):
            self._request(0, 0)

    def _request(self, number: int, at: int) -> bool:
        if number == len(self.tasks):
            return True
        if at == len(self.tasks[number].requests):
            try:
                return self._request(number + 1, 0)
            except _TooManyError:
                return False
        wishes = self.tasks[number].requests[at]
        if len(wishes) == 1 and not self.tasks[number].claim.spec.devices.requests[at].first_available:
            return self._wish(number, at, wishes[0], 0, 0)
        failed = 0
        for wish in wishes:
            taken, lengths = len(self.trial.taken), list(self._lengths)
            try:
                if self._wish(number, at, wish, 0, 0):
                    return True
            except _TooManyError:
                failed += 1
                self.trial.give_back(taken)
                self._lengths = lengths
        if failed == len(wishes):
            raise _TooManyError
        return False

    def _wish(self, number: int, at: int, wish: Wish, index: int, start: int) -> bool:
        everything = [each for each in self._candidates if self.trial.listable(wish, each)] if wish.everything else []
        wanted = len(everything) if wish.everything else wish.count
        if wish.everything and not wanted:
            return False
        if index == wanted:
            return self._request(number, at + 1)
        if wanted - index > MAX_RESULTS - self._lengths[number]:
            raise _TooManyError
        if wish.everything:
            return self._try(number, at, wish, index, everything[index], 0)
        return any(
            self._try(number, at, wish, index, self._candidates[place], place + 1)
            for place in range(start, len(self._candidates))
        )

    def _try(self, number: int, at: int, wish: Wish, index: int, candidate: Candidate, after: int) -> bool:
        self.visits += 1
        if self.visits >= MOST:
            raise _StopError
        if self.trial.take(number, wish, candidate) is not DeviceVerdict.FREE:
            return False
        self._lengths[number] += 1
        if self._wish(number, at, wish, index + 1, after):
            return True
        self.trial.give_back(len(self.trial.taken) - 1)
        self._lengths[number] -= 1
        return False


def estimate(allocator: Allocator, *claims: ResourceClaim, node: str = "n1") -> int:
    tasks = allocator._tasks(claims)
    worst_case = Estimate(tasks, allocator.pools(node), allocator._trial(node, tasks))
    return worst_case.visits(worst_case.requests)


def held(devices: Mapping[tuple[str, str], Mapping[str, str] | None]) -> ResourceClaim:
    """A claim that has devices, by pool and name; of a shared one a share that consumes so much."""
    results = [
        {"request": "r", "driver": DRIVER, "pool": pool, "device": name}
        | ({} if consumed is None else {"shareID": f"{pool}/{name}", "consumedCapacity": consumed})
        for (pool, name), consumed in devices.items()
    ]
    status = {"allocation": {"devices": {"results": results}}}
    return msgspec.structs.replace(claim("other"), status=msgspec.convert(status, type(claim("other").status)))


def rails(count: int, each: int, *, lanes: bool = False, node: str = "n1") -> list[ResourceSlice]:
    """PFs, each with so many VFs, or with so many pooled devices, and the PF itself."""
    made = shared if lanes else device
    return [
        published
        for rail in range(count)
        for published in counted(
            device(f"pf{rail}", draws={"slots": each + 1}, attributes={"pf": rail, "type": "pf"}),
            *(
                made(f"pf{rail}-{number}", draws={"slots": 1}, attributes={"pf": rail, "type": "vf"})
                for number in range(each)
            ),
            counters={"slots": each + 1},
            pool=f"{node}-{rail}",
            node=node,
        )
    ]


def vf(pf: int | None = None) -> str:
    ours = f"device.attributes['{DRIVER}']"
    return f"{ours}.type == 'vf'" + ("" if pf is None else f" && {ours}.pf == {pf}")


def one_of_each(count: int) -> list[dict[str, Any]]:
    return [request(f"r{rail}", vf(rail)) for rail in range(count)]


class TestKnownCases:
    """Clusters whose scheduler was watched (see MOST_VISITS): what it cannot finish is foreseen, and nothing else."""

    @pytest.mark.parametrize(("pfs", "vfs"), [(8, 16), (4, 64), (8, 8)])
    def test_a_vf_of_each_of_many_pfs_takes_too_long(self, pfs: int, vfs: int) -> None:
        allocator = Allocator(rails(pfs, vfs), [ANY])
        asked = claim("c", *one_of_each(pfs))
        foreseen = allocator.foresee(asked)
        assert foreseen.node == "n1"
        assert foreseen.visits == pfs * (vfs + 1) * sum(vfs**before for before in range(pfs)) > MOST_VISITS

    @pytest.mark.parametrize(("pfs", "lanes"), [(8, 1), (8, 2), (8, 4)])
    def test_with_few_lanes_it_does_not(self, pfs: int, lanes: int) -> None:
        allocator = Allocator(rails(pfs, lanes, lanes=True), [ANY])
        assert not allocator.foresee(claim("c", *one_of_each(pfs))).findings("c")

    @pytest.mark.parametrize(
        ("requests", "constraints"),
        [
            ([request("r", vf(), count=8)], []),
            ([request(f"r{number}", vf()) for number in range(7)], []),
            ([request("a", vf(0)), request("b", vf(1))], [{"matchAttribute": f"{DRIVER}/type"}]),
            (one_of_each(3), [{"distinctAttribute": f"{DRIVER}/pf"}]),
            ([request("r", vf(), count=8)], [{"matchAttribute": f"{DRIVER}/{name}"} for name in ("type", "pf")]),
        ],
    )
    def test_usual_claims_for_vfs_are_not_warned_of(self, requests: Any, constraints: Any) -> None:
        allocator = Allocator(rails(4, 63), [ANY])
        assert not allocator.foresee(claim("c", *requests, constraints=constraints)).findings("c")

    def test_distinct_pfs_of_one_class_are_few_ways_if_pooled_and_many_if_not(self) -> None:
        asked = claim(
            "c", *(request(f"r{n}", vf()) for n in range(8)), constraints=[{"distinctAttribute": f"{DRIVER}/pf"}]
        )
        assert not Allocator(rails(8, 1, lanes=True), [ANY]).foresee(asked).node
        assert Allocator(rails(8, 16), [ANY]).foresee(asked).node == "n1"

    @pytest.mark.parametrize(("attribute", "is_long"), [("type", True), ("pf", False)])
    def test_the_values_that_must_match_divide_the_devices(self, attribute: str, is_long: bool) -> None:
        constraints = [{"matchAttribute": f"{DRIVER}/{attribute}"}]
        foreseen = Allocator(rails(4, 63), [ANY]).foresee(claim("c", *one_of_each(4), constraints=constraints))
        assert bool(foreseen.node) is is_long

    def test_a_large_count_that_is_just_not_met_takes_too_long(self) -> None:
        """All subsets of the devices that are left are tried: 2^19."""
        allocator = Allocator(rails(1, 63), [ANY])
        assert allocator.foresee(claim("c", request("r", vf(), count=20))).node
        assert not allocator.foresee(claim("c", request("r", vf(), count=12))).node

    def test_the_scarcest_first_if_that_helps(self) -> None:
        allocator = Allocator(rails(4, 63), [ANY])
        ours = f"device.attributes['{DRIVER}']"
        pf = request("pf", f"{ours}.type == 'pf' && {ours}.pf == 3")
        foreseen = allocator.foresee(claim("c", *one_of_each(3), pf))
        assert foreseen.order == ("pf", "r0", "r1", "r2")
        assert "change the order of the requests to pf, r0, r1, r2, or offer" in foreseen.findings("c")[0].text
        assert not allocator.foresee(claim("c", pf, *one_of_each(3))).findings("c")
        assert allocator.foresee(claim("c", *one_of_each(4))).order == ()

    def test_a_claim_that_is_refused_for_good_has_no_outlook(self) -> None:
        without_class = Allocator(rails(4, 63), [])
        assert without_class.foresee(claim("c", *one_of_each(4))).findings("c") == []

    @pytest.mark.parametrize("admin", [False, True])
    def test_the_search_estimate_covers_counters_consumed_by_another_request(self, admin: bool) -> None:
        """A VF keeps its whole PF out, so two PFs may be one too few although both are free."""
        slices, ours = rails(2, 1), f"device.attributes['{DRIVER}']"
        pf = request("pf", f"{ours}.type == 'pf'")
        single = request("vf", f"{ours}.type == 'vf'", adminAccess=admin)
        asked = claim("c0", pf, single, namespace="admins"), claim("c1", pf, namespace="admins")
        allocator = Allocator(slices, [ANY], admin_namespaces=["admins"])
        assert Oracle(allocator, asked).visits <= estimate(allocator, *asked)

    def test_foresee_names_the_node_with_the_longest_search_even_while_its_devices_are_in_use(self) -> None:
        slices = [*rails(4, 4, node="n1"), *rails(4, 63, node="n2"), *rails(4, 8, node="n3")]
        allocator = Allocator(slices, [ANY], nodes=())
        asked = claim("c", *one_of_each(4))
        assert allocator.foresee(asked).node == "n2"
        devices(allocator, claim("d", *one_of_each(4)), nodes=["n2"])
        assert allocator.foresee(asked).node == "n2"
        assert not allocator.foresee(asked, nodes=["n1", "n3"]).node

    def test_the_requests_of_all_claims_of_a_pod_count(self) -> None:
        allocator = Allocator(rails(8, 16), [ANY])
        apart = [claim(f"c{rail}", asked) for rail, asked in enumerate(one_of_each(8))]
        together = allocator.foresee(claim("c", *one_of_each(8)))
        assert allocator.foresee(*apart) == together
        assert not allocator.foresee(apart[0]).findings("c")

    def test_the_warning_names_object_value_rule_and_next_step(self) -> None:
        (finding,) = Allocator(rails(8, 16), [ANY]).foresee(claim("c", *one_of_each(8))).findings('ResourceClaim "c"')
        assert finding.text == (
            'ResourceClaim "c": if a request cannot be allocated on node n1, kube-scheduler visits up to '
            "38,941,036,808 devices, and about 2,000,000 fit into its timeout of 10 s: the pod stays "
            "Pending although other nodes are free; offer the VFs together (pooledVFs in their "
            "policy), in few lanes (ND1560)"
        )


class TestMoreThanThereAre:
    """A request never gets one shared device twice, so a count above the number of shared devices waits for ever."""

    @pytest.mark.parametrize(("lanes", "count"), [(1, 2), (2, 3), (4, 5)])
    def test_a_count_above_the_shared_devices_is_foreseen_and_refused(self, lanes: int, count: int) -> None:
        slices = [*rails(1, lanes, lanes=True, node="n1"), *rails(1, 1, lanes=True, node="n2")]
        allocator = Allocator(slices, [ANY])
        asked = claim("c", request("net", vf(), count=count))
        (finding,) = allocator.foresee(asked).findings('ResourceClaim "c"')
        matches = "matches" if lanes == 1 else "match"
        assert finding.text == (
            f'ResourceClaim "c", request "net": {count} devices are requested, but only {lanes} {matches} on any node, '
            "and a request cannot get the same shared device twice; divide the pooled VFs into more "
            "lanes, or use several "
            "requests (ND1559)"
        )
        refused(allocator, asked)
        assert len(devices(allocator, claim("d", request("net", vf(), count=count - 1)))) == count - 1

    def test_two_requests_may_share_a_device_and_an_alternative_may_do(self) -> None:
        allocator = Allocator(rails(1, 1, lanes=True), [ANY])
        two = claim("c", request("a", vf()), request("b", vf()))
        assert not allocator.foresee(two).findings("c")
        assert devices(allocator, two) == ["pf0-0", "pf0-0"]
        either = claim("d", alternatives("r", request("two", vf(), count=2), request("one", vf())))
        assert not allocator.foresee(either).findings("d")

    def test_a_count_above_devices_that_are_not_shared_needs_no_such_explanation(self) -> None:
        assert not Allocator(rails(1, 4), [ANY]).foresee(claim("c", request("r", vf(), count=5))).findings("c")


ATTRIBUTES = ("pf", "numa", "type")


@st.composite
def nodes(draw: st.DrawFn) -> list[ResourceSlice]:
    """A node's slices: PFs with VFs that exclude each other by counters, pooled ones, and plain devices."""
    slices: list[ResourceSlice] = []
    for pool in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("plain", "vfs", "pooled", "scarce")))
        there = draw(st.integers(1, 4))
        found = []
        for number in range(there):
            attributes = {"pf": pool, "type": "vf"}
            if draw(st.integers(0, 4)):
                attributes["numa"] = draw(st.integers(0, 1))
            name = f"d{pool}-{number}"
            drawn = {} if kind == "plain" else {"slots": 1}
            if kind == "pooled" or draw(st.integers(0, 5)) == 0:
                room = {f"{DRIVER}/vfs": {"value": str(draw(st.integers(1, 3))), "requestPolicy": {"default": "1"}}}
                found.append(shared(name, room, draws=drawn, attributes=attributes))
            else:
                found.append(device(name, draws=drawn, attributes=attributes))
        if kind == "plain":
            slices.append(slice_of(*found, pool=f"p{pool}"))
            continue
        found.insert(
            0, device(f"pf{pool}", draws={"slots": there + 1}, attributes={"pf": pool, "type": "pf", "numa": 0})
        )
        slots = there + 1 if kind != "scarce" else draw(st.integers(1, there + 1))
        slices += counted(*found, counters={"slots": slots}, pool=f"p{pool}")
    return slices


@st.composite
def claims(draw: st.DrawFn) -> list[ResourceClaim]:
    return [draw(_claim(f"c{number}")) for number in range(draw(st.sampled_from((1, 1, 1, 2))))]


@st.composite
def _claim(draw: st.DrawFn, name: str) -> ResourceClaim:
    count = draw(st.integers(1, 5))
    requests = [draw(_request(f"r{number}")) for number in range(count)]
    constraints = []
    for kind in draw(st.lists(st.sampled_from(("matchAttribute", "matchAttribute", "distinctAttribute")), max_size=2)):
        constraint: dict[str, Any] = {kind: f"{DRIVER}/{draw(st.sampled_from(ATTRIBUTES))}"}
        if draw(st.booleans()):
            constraint["requests"] = draw(
                st.lists(st.sampled_from([each["name"] for each in requests]), min_size=1, unique=True)
            )
        constraints.append(constraint)
    return claim(name, *requests, namespace="admins", constraints=constraints)


@st.composite
def _request(draw: st.DrawFn, name: str) -> dict[str, Any]:
    if draw(st.integers(0, 6)) == 0:
        parts = [draw(_wanted(f"a{number}", admin=False)) for number in range(draw(st.integers(1, 2)))]
        return alternatives(name, *parts)
    return draw(_wanted(name))


@st.composite
def _wanted(draw: st.DrawFn, name: str, *, admin: bool = True) -> dict[str, Any]:
    ours = f"device.attributes['{DRIVER}']"
    which = draw(
        st.sampled_from(
            ("true", f"{ours}.pf == 0", f"{ours}.pf == 1", f"{ours}.type == 'vf'", f"{ours}.type == 'pf'", "false")
        )
    )
    fields: dict[str, Any] = {}
    kind = draw(st.integers(0, 15))
    if kind == 0:
        fields["allocationMode"] = "All"
    elif kind < 5:
        fields["count"] = draw(st.integers(2, 4))
    if admin and draw(st.integers(0, 12)) == 0:
        fields["adminAccess"] = True
    return request(name, which, **fields)


@given(nodes(), claims(), st.data())
@settings(max_examples=draws.count(150, 5_000), deadline=None)
def test_the_estimate_bounds_the_visits_of_a_search_and_ignores_devices_in_use(
    slices: list[ResourceSlice], asked: list[ResourceClaim], data: st.DataObject
) -> None:
    published = [(each.spec.pool.name, found) for each in slices for found in each.spec.devices]
    taken: dict[tuple[str, str], Mapping[str, str] | None] = {
        (pool, found.name): {f"{DRIVER}/vfs": "1"} if found.allow_multiple_allocations else None
        for pool, found in published
        if data.draw(st.booleans())
    }
    allocator = Allocator(slices, [ANY], allocated=[held(taken)], admin_namespaces=["admins"])
    if taken:
        assert Oracle(allocator, asked).visits <= estimate(allocator, *asked)
    empty = Allocator(slices, [ANY], admin_namespaces=["admins"])
    assert Oracle(empty, asked).visits <= estimate(empty, *asked) == estimate(allocator, *asked)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.booleans())
def test_one_device_of_each_of_several_pfs_is_estimated_exactly(sizes: list[int], lanes: bool) -> None:
    slices = [
        slice_of(
            *(
                (shared if lanes else device)(f"d{pf}-{number}", attributes={"pf": pf, "type": "vf"})
                for number in range(each)
            ),
            pool=f"p{pf}",
        )
        for pf, each in enumerate(sizes)
    ]
    last = len(sizes) - 1
    full = {"slots": "64"} if lanes else None
    gone = held({(f"p{last}", f"d{last}-{number}"): full for number in range(sizes[-1])})
    allocator = Allocator(slices, [ANY], allocated=[gone])
    asked = claim("c", *one_of_each(len(sizes)))
    assert Oracle(allocator, [asked]).visits == estimate(allocator, asked)
