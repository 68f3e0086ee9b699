"""Ranges of PodNetworks: the addresses that can be assigned, without enumerating them."""

from __future__ import annotations

import ipaddress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.pod_address import object_name
from netdra.model.pod_network import AddressRange
from netdra.networks.ranges import exclusion, network_of, usable


def assignable(entry: AddressRange) -> list[str]:
    """Every address of a small range that can be assigned."""
    version = network_of(entry.cidr).version
    kind = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address
    return [str(kind(number)) for span in usable(entry) for number in range(span.first, span.last + 1)]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (AddressRange(cidr="10.0.0.0/29"), [f"10.0.0.{n}" for n in range(1, 7)]),
        (AddressRange(cidr="10.0.0.0/29", gateway="10.0.0.1"), [f"10.0.0.{n}" for n in range(2, 7)]),
        (AddressRange(cidr="10.0.0.0/29", first="10.0.0.3", last="10.0.0.4"), ["10.0.0.3", "10.0.0.4"]),
        (AddressRange(cidr="10.0.0.0/29", exclude=("10.0.0.2-10.0.0.5",)), ["10.0.0.1", "10.0.0.6"]),
        (AddressRange(cidr="10.0.0.0/29", exclude=("10.0.0.4/30", "10.0.0.1")), ["10.0.0.2", "10.0.0.3"]),
        (AddressRange(cidr="10.0.0.0/29", exclude=("10.0.0.0/28",)), []),
        (AddressRange(cidr="10.0.0.0/31"), ["10.0.0.0", "10.0.0.1"]),
        (AddressRange(cidr="10.0.0.7/32"), ["10.0.0.7"]),
        (AddressRange(cidr="2001:db8::/126"), ["2001:db8::1", "2001:db8::2", "2001:db8::3"]),
        (AddressRange(cidr="2001:db8::/127"), ["2001:db8::", "2001:db8::1"]),
    ],
)
def test_neither_the_subnets_own_addresses_nor_excluded_ones_are_assigned(
    entry: AddressRange, expected: list[str]
) -> None:
    assert assignable(entry) == expected


@pytest.mark.parametrize("text", ["10.0.0.5/24", "10.0.0.0", "fe80::%eth0/64", "", "x/24"])
def test_an_invalid_subnet_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        network_of(text)


@pytest.mark.parametrize("text", ["10.0.0.9-10.0.0.2", "::1", "10.0.0.1-::2", "10.0.0.1-", "2001:db8::/64"])
def test_an_invalid_exclusion_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        exclusion(text, ipaddress.ip_network("10.0.0.0/24"))


LAST_BYTES = st.integers(min_value=0, max_value=255)


@given(
    bounds=st.tuples(LAST_BYTES, LAST_BYTES),
    excluded=st.lists(st.tuples(LAST_BYTES, LAST_BYTES).map(lambda pair: tuple(sorted(pair))), max_size=6),
    gateway=st.none() | LAST_BYTES,
)
def test_usable_spans_match_an_enumeration_of_the_addresses(
    bounds: tuple[int, int], excluded: list[tuple[int, int]], gateway: int | None
) -> None:
    first, last = min(bounds), max(bounds)
    entry = AddressRange(
        cidr="10.0.0.0/24",
        first=f"10.0.0.{first}",
        last=f"10.0.0.{last}",
        exclude=tuple(dict.fromkeys(f"10.0.0.{low}-10.0.0.{high}" for low, high in excluded)),
        gateway="" if gateway is None else f"10.0.0.{gateway}",
    )

    left = [
        number
        for number in range(max(first, 1), min(last, 254) + 1)
        if number != gateway and not any(low <= number <= high for low, high in excluded)
    ]

    assert assignable(entry) == [f"10.0.0.{number}" for number in left]
    spans = usable(entry)
    assert all(before.last + 1 < after.first for before, after in pairwise(spans))


def test_all_spellings_of_an_address_map_to_one_object_name() -> None:
    spelled = ["2001:db8::a", "2001:0db8:0:0::000A", "2001:DB8:0000::A"]

    assert {object_name("net", text) for text in spelled} == {"net.2001-db8-0-0-0-0-0-a"}
    assert object_name("net", "::1") == "net.0-0-0-0-0-0-0-1"
    assert object_name("net", "10.77.0.5") == "net.10.77.0.5"
