"""Addresses that another machine has: the reports of nodes, and the PodAddress afterwards."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from netdra.controller.addresses import conflicts
from netdra.model.claim import NetworkDeviceData, ResourceClaim
from netdra.model.pod_address import AddressClaim, PodAddress
from netdra.model.pod_network import CONFLICT_SECONDS
from netdra.model.watched_claim import WatchedClaim
from netdra.networks.departures import interval
from netdra.networks.errors import AddressTakenError
from netdra.networks.ledger import NetworkLedger
from tests.unit.networks.builders import address, network, owner

NOW = datetime(2026, 11, 27, 10, tzinfo=UTC)
NOT_READY = [{"type": "Ready", "status": "False", "message": "why", "lastTransitionTime": "2026-11-27T10:00:00Z"}]


def claim(data: Any, driver: str = "dra.networking") -> dict[str, Any]:
    device = {"driver": driver, "pool": "n/p", "device": "d", "conditions": NOT_READY, "data": data}
    metadata = {"name": "claim", "namespace": "db", "uid": "uid-1"}
    return {"metadata": metadata, "spec": {}, "status": {"devices": [device]}}


def whole(data: Any, driver: str = "dra.networking") -> ResourceClaim:
    return msgspec.convert(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim(data, driver)}, ResourceClaim
    )


def reassigned(text: str) -> PodAddress:
    made = address(text, owner())
    spec = msgspec.structs.replace(
        made.spec, on_duplicate="Reassign", node_name="node-1", claim=AddressClaim(name="claim", uid="uid-1")
    )
    return msgspec.structs.replace(made, spec=spec)


@pytest.mark.parametrize(
    ("data", "driver", "expected"),
    [
        ({"duplicates": [{"address": "10.7.0.5", "hardwareAddress": "02::"}]}, "dra.networking", {"10.7.0.5"}),
        ({"duplicates": [{"address": "10.7.0.5"}]}, "another.driver", set()),
        ({"duplicates": "10.7.0.5"}, "dra.networking", set()),
        ({"duplicates": ["10.7.0.5", {"address": 5}]}, "dra.networking", set()),
        ({"policy": "vfs"}, "dra.networking", set()),
        (None, "dra.networking", set()),
    ],
)
def test_a_node_reports_addresses_and_others_may_write_anything(data: Any, driver: str, expected: set[str]) -> None:
    assert conflicts.reported(whole(data, driver)) == expected
    assert conflicts.reported(msgspec.convert(claim(data, driver), WatchedClaim)) == expected


def test_only_the_claims_own_address_conflicts_and_only_if_the_network_wants_another_one() -> None:
    told = whole({"duplicates": [{"address": "10.7.0.5"}]})
    assert conflicts.is_conflicting(told, reassigned("10.7.0.5/24"))
    assert not conflicts.is_conflicting(told, reassigned("10.7.0.6/24"))
    assert not conflicts.is_conflicting(told, address("10.7.0.5/24", owner()))
    others = msgspec.structs.replace(reassigned("10.7.0.5/24").spec, claim=AddressClaim(name="claim", uid="uid-2"))
    assert not conflicts.is_conflicting(told, msgspec.structs.replace(reassigned("10.7.0.5/24"), spec=others))


def test_an_address_that_was_set_aside_is_nobodys_for_an_hour() -> None:
    net = network("10.7.0.0/29", keepSeconds=86400)
    present = reassigned("10.7.0.1/29")
    aside = conflicts.set_aside(present, NOW)
    assert interval(aside, net, keeps=True) == CONFLICT_SECONDS

    ledger = NetworkLedger(net, [present])
    ledger.put(present, aside)
    assert ledger.of(owner(), "IPv4") == []
    assert [(entry.used, entry.reserved) for entry in ledger.usage] == [(0, 1)]
    assert ledger.choose("IPv4", owner(), {}).text == "10.7.0.2/29"
    with pytest.raises(AddressTakenError, match=r"10\.7\.0\.1 is used by another machine on the network since 2026-"):
        ledger.choose("IPv4", owner("web-1"), {}, ("10.7.0.1",))
    ledger.put(aside, None)
    assert ledger.choose("IPv4", owner("web-1"), {}, ("10.7.0.1",)).text == "10.7.0.1/29"
    assert [(entry.used, entry.reserved) for entry in ledger.usage] == [(2, 0)]


def test_the_network_gets_an_event_with_the_node_and_the_next_step() -> None:
    event = conflicts.occurrence(network("10.7.0.0/29"), reassigned("10.7.0.1/29"))
    assert (event.reason, event.type, event.regarding.kind) == ("DuplicateAddress", "Warning", "PodNetwork")
    assert event.note.startswith(
        "node node-1 found another machine that uses 10.7.0.1: it is not assigned for 60 minutes"
    )


def test_texts_in_a_claims_status_that_are_not_addresses_are_skipped() -> None:
    found = whole({})
    data = NetworkDeviceData(ips=("10.7.0.5/24", "banana", "::ffff:10.7.0.1/120", "2001:db8::5/64"))
    devices = tuple(msgspec.structs.replace(device, network_data=data) for device in found.status.devices)
    status = msgspec.structs.replace(found.status, devices=devices)
    assert conflicts.attached(msgspec.structs.replace(found, status=status)) == ("10.7.0.5", "2001:db8::5")
