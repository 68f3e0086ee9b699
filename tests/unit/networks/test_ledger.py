"""Which address an interface gets: its own, the requested, the reserved, the next free one; never another's."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.model.pod_address import AddressLease, AddressOwner, PodAddress
from netdra.networks.errors import (
    AddressTakenError,
    NamespaceLimitError,
    NoFreeAddressError,
    NoRangeError,
    WrongAddressError,
)
from netdra.networks.ledger import ChosenAddress, NetworkLedger
from tests.unit.networks.builders import address, network, owner

RACK_A, RACK_B = {"rack": "a"}, {"rack": "b"}


def test_addresses_are_assigned_one_after_the_other_and_a_released_one_last() -> None:
    ledger = NetworkLedger(network("10.0.0.0/29"))
    taken = [ledger.choose("IPv4", owner(f"web-{number}"), {}).text for number in range(3)]
    assert taken == ["10.0.0.1/29", "10.0.0.2/29", "10.0.0.3/29"]

    first = address("10.0.0.1/29", owner("web-0"))
    ledger.put(None, first)
    ledger.put(first, None)

    assert [ledger.choose("IPv4", owner(f"new-{number}"), {}).plain for number in range(4)] == [
        "10.0.0.4",
        "10.0.0.5",
        "10.0.0.6",
        "10.0.0.1",
    ]


def test_a_full_network_names_its_ranges() -> None:
    ledger = NetworkLedger(network("10.0.0.0/30", "10.0.1.0/30"))
    for number in range(4):
        ledger.choose("IPv4", owner(f"web-{number}"), {})

    with pytest.raises(NoFreeAddressError, match=r'PodNetwork "storage" has no free address of 10.0.0.0/30, 10.0.1.0'):
        ledger.choose("IPv4", owner("web-4"), {})
    assert ledger.full == ("10.0.0.0/30", "10.0.1.0/30")


def test_an_owner_gets_the_address_back_that_was_kept_for_it() -> None:
    kept = address("10.0.0.5/29", owner("web-0"), claim="")
    ledger = NetworkLedger(network("10.0.0.0/29"), [kept])

    assert ledger.choose("IPv4", owner("web-0"), {}).plain == "10.0.0.5"
    assert ledger.choose("IPv4", owner("web-1"), {}).plain == "10.0.0.1"


def test_each_rack_has_its_range_and_an_owner_that_moved_gets_another_address() -> None:
    selectors = [{"matchLabels": {"rack": rack}} for rack in "ab"]
    ledger = NetworkLedger(
        network(
            {"cidr": "10.0.0.0/29", "nodeSelector": selectors[0]}, {"cidr": "10.0.1.0/29", "nodeSelector": selectors[1]}
        )
    )
    there = address("10.0.0.1/29", owner())
    ledger.put(None, there)

    assert ledger.choose("IPv4", owner(), RACK_A).plain == "10.0.0.1"
    assert ledger.choose("IPv4", owner(), RACK_B).plain == "10.0.1.1"
    with pytest.raises(NoRangeError, match="no range of IPv4 for the node"):
        ledger.choose("IPv4", owner("web-1"), {})


def test_both_families_are_assigned_apart() -> None:
    ledger = NetworkLedger(network("10.0.0.0/29", "2001:db8::/64"))

    assert ledger.families == ("IPv4", "IPv6")
    assert [ledger.choose(family, owner(), {}).text for family in ledger.families] == ["10.0.0.1/29", "2001:db8::1/64"]


def test_a_reserved_address_goes_to_its_owner_alone() -> None:
    reserved = [{"address": "10.0.0.1", "namespace": "db", "name": "web-7"}]
    ledger = NetworkLedger(network("10.0.0.0/29", reservations=reserved))

    assert ledger.choose("IPv4", owner("web-0"), {}).plain == "10.0.0.2"
    with pytest.raises(WrongAddressError, match=r"address 10.0.0.1 is reserved for db/web-7"):
        ledger.choose("IPv4", owner("web-1"), {}, ["10.0.0.1"])
    assert ledger.choose("IPv4", owner("web-7"), {}).plain == "10.0.0.1"
    assert (ledger.usage[0].used, ledger.usage[0].reserved, ledger.usage[0].total) == (2, 0, 6)


def test_a_requested_address_is_checked() -> None:
    ledger = NetworkLedger(network({"cidr": "10.0.0.0/29", "exclude": ["10.0.0.3"]}), [address("10.0.0.2/29", owner())])

    assert ledger.choose("IPv4", owner("a"), {}, ["10.0.0.6"]).plain == "10.0.0.6"
    assert ledger.choose("IPv4", owner("c"), {}).plain == "10.0.0.1"  # the next one is not behind the requested one
    with pytest.raises(AddressTakenError, match="is assigned to db/web-0"):
        ledger.choose("IPv4", owner("b"), {}, ["10.0.0.2"])
    for wrong, why in {
        "10.0.0.3": "is in subnet 10.0.0.0/29, but not among the addresses that the range assigns",
        "10.0.0.7": "is in subnet 10.0.0.0/29, but not among the addresses that the range assigns",
        "10.9.0.1": "is not in any of the network's ranges for the node",
    }.items():
        with pytest.raises(WrongAddressError, match=why):
            ledger.choose("IPv4", owner("b"), {}, [wrong])


def test_two_workers_never_choose_one_address() -> None:
    ledger = NetworkLedger(network("10.0.0.0/30"))
    chosen = ledger.choose("IPv4", owner("a"), {})
    assert ledger.choose("IPv4", owner("a"), {}) == chosen
    assert ledger.choose("IPv4", owner("b"), {}).plain == "10.0.0.2"

    ledger.forget(chosen)

    assert ledger.choose("IPv4", owner("c"), {}).plain == "10.0.0.1"


def test_an_address_that_another_controller_has_assigned_meanwhile_is_not_chosen_again() -> None:
    ledger = NetworkLedger(network("10.0.0.0/29"))
    chosen = ledger.choose("IPv4", owner("a"), {})
    ledger.put(None, address(chosen.text, owner("b")))

    assert ledger.choose("IPv4", owner("a"), {}).plain == "10.0.0.2"


@pytest.mark.parametrize("first", [0, 1])
def test_an_owner_of_two_addresses_has_the_one_that_was_written_first(first: int) -> None:
    both = [address("10.0.0.1/29", owner("a"), version="99"), address("10.0.0.2/29", owner("a"), version="100")]
    ledger = NetworkLedger(network("10.0.0.0/29"), [both[first], both[1 - first]])
    ledger.choose("IPv4", owner("b"), {})

    assert ledger.of(owner("a"), "IPv4") == both
    assert ledger.choose("IPv4", owner("a"), {}).plain == "10.0.0.1"


def test_addresses_outside_the_ranges_stay_assigned_but_are_not_counted() -> None:
    outside = address("10.9.0.1/24", owner("a"))
    ledger = NetworkLedger(network("10.0.0.0/29"), [outside])

    assert (ledger.users, ledger.usage[0].used) == (1, 0)
    ledger.put(outside, None)
    assert ledger.users == 0


OWNERS = [owner(f"web-{number}") for number in range(9)]
ACTS = st.lists(
    st.tuples(st.sampled_from(["choose", "confirm", "keep", "release", "forget", "rebuild"]), st.sampled_from(OWNERS)),
    max_size=60,
)


@settings(max_examples=200)
@given(acts=ACTS, reserves=st.booleans())
def test_random_acts_give_no_address_two_owners_and_keep_the_usage_figures_exact(
    acts: list[tuple[str, AddressOwner]], *, reserves: bool
) -> None:
    reserved = [{"address": "10.0.0.3", "namespace": "db", "name": "web-3"}] if reserves else []
    spec = network({"cidr": "10.0.0.0/29", "gateway": "10.0.0.1"}, reservations=reserved)
    ledger = NetworkLedger(spec)
    chosen: dict[AddressOwner, ChosenAddress] = {}
    stored: dict[AddressOwner, PodAddress] = {}

    def store(of: AddressOwner, claim: str) -> None:
        new = address(chosen[of].text, of, claim=claim)
        ledger.put(stored.get(of), new)
        stored[of] = new

    for act, of in acts:
        if act == "choose":
            try:
                now = ledger.choose("IPv4", of, {})
            except NoFreeAddressError:
                assert not ledger.usage[0].total - ledger.usage[0].used - ledger.usage[0].reserved
                continue
            assert chosen.setdefault(of, now) == now  # it keeps what it has
        elif act in ("confirm", "keep") and of in chosen:
            store(of, "uid-1" if act == "confirm" else "")
        elif act == "release" and of in stored:
            ledger.put(stored.pop(of), None)
            del chosen[of]
        elif act == "forget" and of in chosen and of not in stored:
            ledger.forget(chosen.pop(of))
        elif act == "rebuild":
            chosen = {key: value for key, value in chosen.items() if key in stored}
            ledger = NetworkLedger(spec, stored.values())
        numbers = [entry.number for entry in chosen.values()]
        assert len(numbers) == len({*numbers})
        kept = sum(entry.spec.claim is None for entry in stored.values())
        unclaimed = reserves and not any(entry.plain == "10.0.0.3" for entry in chosen.values())
        assert ledger.usage[0].used == len(chosen) - kept
        assert ledger.usage[0].reserved == kept + unclaimed


def test_an_address_that_a_pod_has_without_a_podaddress_is_assigned_to_that_pods_claim_alone() -> None:
    ledger = NetworkLedger(network("10.7.0.0/29"))
    ledger.hold(["10.7.0.1", "10.7.0.2", "10.99.0.1"])
    assert ledger.choose("IPv4", owner("new"), {}).text == "10.7.0.3/29"
    with pytest.raises(AddressTakenError, match=r"10\.7\.0\.1 is used by a pod whose address is not assigned"):
        ledger.choose("IPv4", owner("other"), {}, ("10.7.0.1",))
    assert ledger.choose("IPv4", owner("old"), {}, attached=("10.99.0.1", "10.7.0.2")).text == "10.7.0.2/29"

    # The pod of the first one ends; the second one is assigned by now, and stays so.
    ledger.hold([])
    assert ledger.choose("IPv4", owner("other"), {}, ("10.7.0.1",)).text == "10.7.0.1/29"
    with pytest.raises(AddressTakenError, match="is assigned to db/old"):
        ledger.choose("IPv4", owner("third"), {}, ("10.7.0.2",))


def test_an_address_that_is_released_while_a_pod_has_it_is_not_free_until_the_pod_has_ended() -> None:
    present = address("10.7.0.1/30", owner("lost"))
    ledger = NetworkLedger(network("10.7.0.0/30"), [present, address("10.7.0.2/30", owner("b"))])
    ledger.hold(["10.7.0.1"])
    ledger.put(present, None)
    with pytest.raises(NoFreeAddressError):
        ledger.choose("IPv4", owner("new"), {})
    ledger.hold([])
    assert ledger.choose("IPv4", owner("new"), {}).text == "10.7.0.1/30"


def test_the_last_free_address_is_for_the_claim_that_has_waited_longest() -> None:
    ledger = NetworkLedger(network("10.7.0.0/30"))
    with pytest.raises(NoFreeAddressError, match="beside those for claims that have waited longer"):
        ledger.choose("IPv4", owner("new"), {}, others=lambda: 2)
    assert ledger.choose("IPv4", owner("new"), {}, others=lambda: 1).plain == "10.7.0.1"
    # What an owner has already is its own, whoever waits.
    assert ledger.choose("IPv4", owner("new"), {}, others=lambda: 9).plain == "10.7.0.1"


def test_an_address_that_was_withheld_goes_to_its_owner_alone() -> None:
    lost = address("10.7.0.2/29", owner("lost"))
    ledger = NetworkLedger(network("10.7.0.0/29", reservations=[]), [lost])
    ledger.put(lost, None)
    ledger.withhold(lost)
    assert ledger.free == (5,)
    with pytest.raises(AddressTakenError, match="was released just now"):
        ledger.choose("IPv4", owner("thief"), {}, ["10.7.0.2"])
    assert [ledger.choose("IPv4", owner(f"w{at}"), {}).number % 8 for at in range(5)] == [1, 3, 4, 5, 6]
    assert ledger.choose("IPv4", owner("lost"), {}).plain == "10.7.0.2"
    ledger.stop_withholding(lost)
    with pytest.raises(NoFreeAddressError):
        ledger.choose("IPv4", owner("next"), {})


def test_routers_and_name_servers_are_not_assigned() -> None:
    ledger = NetworkLedger(
        network(
            {"cidr": "10.7.0.0/29", "gateway": "10.7.1.2"},
            {"cidr": "10.7.1.0/29", "gateway": "10.7.0.1"},
            routes=[{"destination": "10.0.0.0/8", "gateway": "10.7.0.2"}],
            dns=["10.7.0.3", "2001:db8::1"],
        )
    )
    numbers = [ledger.choose("IPv4", owner(f"w{at}"), {}).plain for at in range(8)]
    assert numbers == ["10.7.0.4", "10.7.0.5", "10.7.0.6", "10.7.1.1", "10.7.1.3", "10.7.1.4", "10.7.1.5", "10.7.1.6"]
    with pytest.raises(WrongAddressError):
        ledger.choose("IPv4", owner("thief"), {}, ["10.7.0.3"])


@pytest.mark.parametrize("text", ["banana", "", "::ffff:10.7.0.1", "fe80::1%eth0", "10.7.0.1/24"])
def test_a_requested_text_that_is_not_an_address_is_rejected(text: str) -> None:
    with pytest.raises(WrongAddressError, match="is not an IP address"):
        NetworkLedger(network("10.7.0.0/29")).choose("IPv4", owner(), {}, [text])


def test_an_address_in_a_claims_status_that_is_reserved_or_withheld_for_another_owner_is_not_assigned() -> None:
    reserved = {"address": "10.7.0.2", "namespace": "bank", "name": "db"}
    lost = address("10.7.0.3/29", owner("lost"))
    ledger = NetworkLedger(network("10.7.0.0/29", reservations=[reserved]), [lost])
    ledger.put(lost, None)
    ledger.withhold(lost)
    attached = ("10.7.0.2", "10.7.0.3")
    assert ledger.choose("IPv4", owner("thief"), {}, attached=attached).plain == "10.7.0.1"
    assert ledger.choose("IPv4", owner("lost"), {}, attached=attached).plain == "10.7.0.3"
    bank = owner(pod="", namespace="bank", claim="db")
    assert ledger.choose("IPv4", bank, {}, attached=attached).plain == "10.7.0.2"


def set_aside(pod: str, last: int) -> PodAddress:
    made = address(f"10.7.0.{last}/26", owner(pod), claim="")
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, conflict_since="2026-11-27T10:00:00Z"))


def test_reports_about_a_claim_and_about_a_namespace_set_a_bounded_number_of_addresses_aside() -> None:
    ledger = NetworkLedger(network("10.7.0.0/26"), [set_aside("web-0", last) for last in range(1, 16)])
    ledger.check_conflict(address("10.7.0.40/26", owner("web-0")))
    ledger.put(None, set_aside("web-0", 16))
    with pytest.raises(AddressTakenError, match=r"16 addresses were replaced for db/web-0 within an hour"):
        ledger.check_conflict(address("10.7.0.40/26", owner("web-0")))
    ledger.check_conflict(address("10.7.0.40/26", owner("web-1")))
    for last in range(17, 32):
        ledger.put(None, set_aside("web-1", last))
    with pytest.raises(AddressTakenError, match='31 addresses were replaced for claims of namespace "db"'):
        ledger.check_conflict(address("10.7.0.40/26", owner("web-2")))
    ledger.check_conflict(address("10.7.0.40/26", owner("web-2", namespace="other")))
    ledger.put(set_aside("web-1", 20), None)
    ledger.check_conflict(address("10.7.0.40/26", owner("web-2")))


LIMITED = network("10.0.0.0/24", "2001:db8::/64", limits={"perNamespace": 2})


def assign(ledger: NetworkLedger, pod: str, namespace: str = "db") -> None:
    """Choose an address of each family for a pod, by the limit."""
    for family in ledger.families:
        ledger.check_limit(family, owner(pod, namespace=namespace))
        ledger.choose(family, owner(pod, namespace=namespace), {})


def test_a_namespace_gets_addresses_up_to_the_limit_and_others_have_their_own() -> None:
    ledger = NetworkLedger(LIMITED)
    assert (ledger.left_for("db"), NetworkLedger(network("10.0.0.0/24")).left_for("db")) == (2, None)
    for pod in ("a", "b"):
        assign(ledger, pod)
    with pytest.raises(NamespaceLimitError, match=r'namespace "db" has addresses for 2 of 2 steps'):
        assign(ledger, "c")
    assign(ledger, "c", "web")
    assign(ledger, "a")  # an interface that has an address does not need another one
    assert (ledger.left_for("db"), ledger.left_for("web"), ledger.left_for("other")) == (0, 1, 2)


def test_kept_addresses_count_for_a_limit_and_imported_and_conflicting_ones_do_not() -> None:
    kept = address("10.0.0.1/24", owner("a"), claim="")
    taken = address("10.0.0.2/24", owner("b"), claim="")
    lease = AddressLease(plugin="whereabouts", pool="p")
    imported = msgspec.structs.replace(taken, spec=msgspec.structs.replace(taken.spec, lease=lease))
    other = address("10.0.0.3/24", owner("c"), claim="")
    since = "2026-11-27T10:00:00Z"
    conflicting = msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, conflict_since=since))
    ledger = NetworkLedger(LIMITED, [kept, imported, conflicting])
    assert ledger.left_for("db") == 1
    ledger.put(kept, None)
    assert ledger.left_for("db") == 2


def test_an_address_that_was_deleted_by_hand_or_is_in_a_pod_comes_back_beyond_the_limit() -> None:
    ledger = NetworkLedger(network("10.0.0.0/24", limits={"perNamespace": 1}))
    own = address("10.0.0.1/24", owner("a"))
    ledger.put(None, own)
    ledger.put(own, None)
    ledger.withhold(own)
    assert ledger.left_for("db") == 0
    with pytest.raises(NamespaceLimitError):
        ledger.check_limit("IPv4", owner("b"))
    ledger.check_limit("IPv4", owner("a"))
    ledger.check_limit("IPv4", owner("b"), ["10.0.0.2"])


def test_claims_of_a_namespace_that_have_waited_longer_come_first() -> None:
    ledger = NetworkLedger(LIMITED)
    assign(ledger, "a")
    ledger.check_limit("IPv4", owner("b"), others=lambda: 0)
    with pytest.raises(NamespaceLimitError, match="1 of 2 steps, and 1 claims have waited longer"):
        ledger.check_limit("IPv4", owner("b"), others=lambda: 1)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["db", "web"]), st.booleans()), max_size=40))
def test_no_sequence_of_assignments_and_releases_exceeds_a_limit(acts: list[tuple[str, str, bool]]) -> None:
    ledger = NetworkLedger(LIMITED)
    held: dict[AddressOwner, list[ChosenAddress]] = {}
    for pod, namespace, ends in acts:
        interface = owner(pod, namespace=namespace)
        if ends:
            for chosen in held.pop(interface, []):
                ledger.forget(chosen)
        elif interface not in held and ledger.left_for(namespace):
            for family in ledger.families:
                ledger.check_limit(family, interface)
                held.setdefault(interface, []).append(ledger.choose(family, interface, {}))
        for name in ("db", "web"):
            steps = sum(interface.namespace == name for interface in held)
            assert (steps <= 2, ledger.left_for(name)) == (True, 2 - steps)
    assert ledger.is_used == bool(held)
