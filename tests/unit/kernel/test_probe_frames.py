"""Frames that ask for addresses, claim and announce them: made, and read as another machine's."""

from __future__ import annotations

import ipaddress

import pytest

from netdra.kernel import probe

MAC, OTHER = b"\2\0\0\0\0\1", b"\2\0\0\0\0\2"
FOUR, SIX = ipaddress.ip_address("10.6.0.5"), ipaddress.ip_address("2001:db8::1:2:3")


def test_a_question_has_no_sender_and_goes_to_all_or_to_the_group_of_the_address() -> None:
    arp, solicitation = probe.question(MAC, FOUR), probe.question(MAC, SIX)
    assert (arp[:6], arp[6:12], arp[28:32], arp[38:42]) == (b"\xff" * 6, MAC, bytes(4), FOUR.packed)
    assert (solicitation[:6], solicitation[22:38]) == (b"\x33\x33\xff\x02\x00\x03", bytes(16))
    assert ipaddress.IPv6Address(solicitation[38:54]) == ipaddress.IPv6Address("ff02::1:ff02:3")


def test_the_checksum_is_that_of_rfc_4443() -> None:
    frame = probe.announcement(MAC, SIX)
    pseudo = frame[22:54] + len(frame[54:]).to_bytes(4, "big") + (58).to_bytes(4, "big")
    words = pseudo + frame[54:]
    total = sum(int.from_bytes(words[at : at + 2], "big") for at in range(0, len(words), 2))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF


@pytest.mark.parametrize("address", [FOUR, SIX], ids=str)
def test_another_machine_that_asks_or_announces_claims_the_address(address: probe.IPAddress) -> None:
    for frame in (probe.question(OTHER, address), probe.announcement(OTHER, address)):
        assert probe.claimed(frame, MAC) == (address, OTHER.hex(":"))
        assert probe.claimed(frame, OTHER) is None  # one's own frame comes back from a loop


def test_a_neighbour_that_looks_for_the_address_does_not_claim_it() -> None:
    asks = bytearray(probe.question(OTHER, FOUR))
    asks[28:32] = ipaddress.ip_address("10.6.0.9").packed
    assert probe.claimed(bytes(asks), MAC) == (ipaddress.ip_address("10.6.0.9"), OTHER.hex(":"))
    resolves = bytearray(probe.question(OTHER, SIX))
    resolves[22:38] = ipaddress.ip_address("2001:db8::9").packed
    assert probe.claimed(bytes(resolves), MAC) is None


def test_neighbour_discovery_from_behind_a_router_does_not_count() -> None:
    frame = bytearray(probe.announcement(OTHER, SIX))
    frame[21] = 254
    assert probe.claimed(bytes(frame), MAC) is None
