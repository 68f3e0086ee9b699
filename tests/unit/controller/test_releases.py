"""Reports of nodes about addresses that no PodAddress assigns."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import msgspec

from netdra.controller.releases import AddressReleases
from netdra.kube.store import Store
from netdra.model import ip
from netdra.model.node_network import NodeNetworkReport


def test_invalid_addresses_in_reports_are_skipped() -> None:
    entries = [
        {"network": "storage", "address": "not-an-address", "claim": "db/a"},
        {"network": "storage", "address": "10.7.0.2", "claim": "db/a"},
        {"network": "storage", "address": "10.7.0.3", "claim": "db/b"},
        {"network": "other", "address": "10.7.0.4", "claim": "db/a"},
    ]
    nodes: Store[NodeNetworkReport] = Store()
    report = {"metadata": {"name": "node-1"}, "status": {"unassignedAddresses": entries}}
    nodes.put("node-1", msgspec.convert(report, NodeNetworkReport))
    state: Any = SimpleNamespace(nodes=nodes)
    client: Any = None
    releases = AddressReleases(client, state, Store(), Store(), lambda _: (), nullcontext)
    assert releases.of_others("storage", "db/b") == {ip.address("10.7.0.2")}
