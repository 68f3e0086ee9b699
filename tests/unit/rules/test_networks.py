"""Steps of one network share their leases; networks that hand out one address twice are reported to the author."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.topology import NetworkTopology
from netdra.rules.networks import Range, _clashes, overlaps
from netdra.rules.topologies import check_topology
from netdra.topology.bind import unbound
from testbed import yaml
from tests import builders
from tests.effort import calls

LOCAL = "{type: host-local, subnet: 10.77.0.0/24}"


def topology(name: str, ipam: str, step: str = "nic", network: str = "", config: str = "") -> NetworkTopology:
    more = f", {config}" if config else ""
    named = f", network: {network}" if network else ""
    return builders.topology(f"- {{name: {step}, type: sriov{named}, config: {{ipam: {ipam}{more}}}}}", name=name)


def told(*topologies: NetworkTopology) -> list[tuple[str, str]]:
    return [(name, finding.text) for name, finding in overlaps(topologies)]


def test_steps_naming_one_network_share_it_across_topologies() -> None:
    named = [unbound(topology(name, LOCAL, network="storage")).steps[0].network for name in ("one", "two")]
    assert len(set(named)) == 1
    # No topology and step come to that name, and no other user of the node's plugins is likely to.
    assert "_" in named[0]
    assert [unbound(topology(name, LOCAL)).steps[0].network for name in ("one", "two")] == ["one-nic", "two-nic"]


@pytest.mark.parametrize("name", ["../../etc", "a/b", "A", "a_b", "x" * 64, "-a"])
def test_a_network_s_name_is_a_label(name: str) -> None:
    (finding,) = check_topology(topology("t", LOCAL, network=f"'{name}'"))
    assert finding.path == ("spec", "steps", 0, "network")


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (LOCAL, LOCAL, "addresses 10.77.0.1 to 10.77.0.254 are"),
        (LOCAL, "{type: host-local, ranges: [[{subnet: 10.77.0.128/25}]]}", "addresses 10.77.0.129 to 10.77.0.254 are"),
        (LOCAL, "{type: static, addresses: [{address: 10.77.0.9/24}]}", "address 10.77.0.9 is"),
        (LOCAL, "{type: whereabouts, range: 10.77.0.0/16}", "addresses 10.77.0.1 to 10.77.0.254 are"),
        ("{type: host-local, subnet: fd00::/64}", "{type: host-local, subnet: fd00::/126}", "addresses fd00::1 to"),
    ],
)
def test_overlapping_ranges_of_two_networks_are_reported_with_the_shared_addresses(
    one: str, other: str, shared: str
) -> None:
    ((name, text),) = told(topology("one", one), topology("two", other))
    assert name == "two"
    assert shared in text
    assert 'also assigned by step "nic" of "one"' in text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LOCAL, "{type: host-local, subnet: 10.78.0.0/24}"),
        (LOCAL, "{type: host-local, subnet: 'fd00::/64'}"),
        (LOCAL, "{type: host-local, subnet: '{{ params.subnet }}'}"),
        (LOCAL, "{type: host-local, subnet: 7}"),
        (LOCAL, "{type: dhcp}"),
        (LOCAL.replace("}", ", rangeEnd: 10.77.0.99}"), LOCAL.replace("}", ", rangeStart: 10.77.0.100}")),
        ("{type: whereabouts, range: 10.77.0.0/24}", "{type: whereabouts, range: 10.77.0.0/24}"),
    ],
)
def test_ranges_that_do_not_overlap_or_share_their_leases_are_let_pass(one: str, other: str) -> None:
    assert told(topology("one", one), topology("two", other)) == []


def test_one_shared_network_and_different_vlans_do_not_conflict() -> None:
    assert told(topology("one", LOCAL, network="n"), topology("two", LOCAL, network="n")) == []
    vlans = [topology(f"v{tag}", LOCAL, config=f"vlan: {tag}") for tag in (10, 20, 10)]
    assert told(vlans[0], vlans[1]) == []
    assert len(told(vlans[0], topology("again", LOCAL, config="vlan: 10"))) == 1
    assert len(told(vlans[0], topology("any", LOCAL, config="vlan: '{{ params.vlan }}'"))) == 1


def test_each_conflicting_step_of_one_topology_is_reported_once() -> None:
    steps = yaml.safe_dump(
        [{"name": name, "type": "host-device", "config": {"ipam": yaml.safe_load(LOCAL)}} for name in ("a", "b", "c")]
    )
    assert [text.split(":")[0] for _, text in told(builders.topology(steps))] == [
        'NetworkTopology "net", step "b"',
        'NetworkTopology "net", step "c"',
    ]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 40),
            st.integers(0, 12),
            st.sampled_from([(), (7,), (8,), (None,), (7, 8), (None, 8)]),
        ),
        max_size=12,
    )
)
def test_a_range_is_found_to_clash_exactly_if_it_clashes_with_one_before(
    drawn: list[tuple[int, int, int, tuple[int | None, ...]]],
) -> None:
    every = [
        a_range(number, str(store), first, length, wire) for number, (store, first, length, wire) in enumerate(drawn)
    ]
    found = {later.topology: earlier for earlier, later in _clashes(every)}
    for number, later in enumerate(every):
        before = [earlier for earlier in every[:number] if earlier.clashes(later)]
        assert (later.topology in found) == bool(before)
        assert not before or found[later.topology] in before


def a_range(number: int, store: str, first: int, length: int, wire: tuple[int | None, ...]) -> Range:
    return Range(
        topology=str(number),
        step="a",
        at=0,
        path=(),
        store=("host-local", store, ""),
        version=4,
        first=first,
        last=first + length,
        wire=wire,
    )


def apart(number: int, _: int) -> Range:
    return a_range(number, str(number), 256 * number, 255, (7,))


def equal(number: int, _: int) -> Range:
    return a_range(number, str(number), 0, 255, (7,))


def of_one_store_and_nested(number: int, count: int) -> Range:
    """First many small ranges, then as many that contain all of these."""
    return a_range(number, "one", *((256 * number, 255) if number < count // 2 else (0, 256 * count)), (7,))


def on_wires_with_an_unknown_tag(number: int, _: int) -> Range:
    return a_range(number, str(number), 256 * number, 255, (None, number))


def half_on_a_wire_of_any_tag(number: int, _: int) -> Range:
    return a_range(number, str(number), 256 * number, 255, (number if number % 2 else None,))


@pytest.mark.parametrize(
    "lie", [apart, equal, of_one_store_and_nested, on_wires_with_an_unknown_tag, half_on_a_wire_of_any_tag]
)
def test_ten_times_as_many_ranges_are_compared_in_little_more_than_ten_times_the_calls(
    lie: Callable[[int, int], Range],
) -> None:
    def effort(count: int) -> int:
        every = [lie(number, count) for number in range(count)]
        return calls(lambda: [*_clashes(every)])

    assert effort(1000) < 20 * effort(100)
