"""Claims wait for addresses in the order of their arrival, and no two pods wait for each other."""

from __future__ import annotations

from collections.abc import Mapping

from netdra.networks.waiting import WaitingClaims, limit_queue


def anything(_: Mapping[str, str]) -> bool:
    return True


def test_the_first_claim_that_waits_is_the_first_in_each_network() -> None:
    waiting = WaitingClaims()
    for claim, networks in (("a", ["x"]), ("b", ["x", "y"]), ("c", ["y"])):
        waiting.wait(claim, networks, {})
    waiting.wait("a", ["y"], {})

    assert waiting.of("x") == ["a", "b"]
    assert waiting.of("y") == ["a", "b", "c"]  # its place is that of its arrival, in each network
    assert [waiting.before(claim, "y", anything) for claim in ("a", "b", "c", "new")] == [0, 1, 2, 3]
    waiting.leave("a")
    assert (waiting.of("x"), waiting.before("new", "y", anything)) == (["b"], 2)


def test_claims_on_nodes_with_other_ranges_do_not_count() -> None:
    waiting = WaitingClaims()
    waiting.wait("a", ["x"], {"rack": "1"})
    waiting.wait("b", ["x"], {"rack": "2"})

    assert waiting.before("new", "x", lambda labels: labels["rack"] == "2") == 1


def test_if_two_pods_hold_an_address_that_the_other_needs_the_later_one_gives_back() -> None:
    waiting = WaitingClaims()
    for claim, pod in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        waiting.note_pod(claim, pod)
    waiting.wait("a2", ["y"], {})  # a1 has an address of x, b2 one of y
    assert not waiting.must_give_back("b2", "y")  # a pod that does not wait keeps what it has
    waiting.wait("b1", ["x"], {})

    assert waiting.must_give_back("b2", "y")
    assert not waiting.must_give_back("a1", "x")
    assert [*waiting.later("a2")] == ["b1", "b2"]
    assert [*waiting.later("b1")] == []
    waiting.leave("a2")
    assert not waiting.must_give_back("b2", "y")


def test_claims_of_one_pod_do_not_wait_for_each_other() -> None:
    waiting = WaitingClaims()
    for claim in ("a1", "a2"):
        waiting.note_pod(claim, "a")
    waiting.wait("a1", ["x"], {})

    assert waiting.before("a2", "x", anything) == 0
    assert waiting.before("other", "x", anything) == 1
    waiting.forget("a1")
    assert waiting.before("other", "x", anything) == 0


def test_a_claim_that_waits_for_the_limit_of_its_namespace_keeps_its_place_and_others_do_not_wait_for_it() -> None:
    waiting = WaitingClaims()
    waiting.wait("db/a", ["x"], {})
    waiting.wait("web/b", ["x"], {})
    waiting.wait("db/a", [limit_queue("x", "db")], {})
    assert waiting.withdraw("db/a", "x")
    assert not waiting.withdraw("db/a", "x")

    assert (waiting.of("x"), waiting.of(limit_queue("x", "db"))) == (["web/b"], ["db/a"])
    assert waiting.before("web/new", "x", anything) == 1
    assert waiting.before("db/new", limit_queue("x", "db"), anything) == 1
    assert waiting.before("web/new", limit_queue("x", "web"), anything) == 0
    assert (waiting.of_limits("x"), waiting.of_limits("y")) == (["db/a"], [])
    waiting.leave("db/a")
    assert waiting.of_limits("x") == []
