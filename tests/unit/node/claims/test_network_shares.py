"""Nothing is prepared for a share of a PodNetwork's addresses, and a claim has it only with a step on the network."""

from __future__ import annotations

import msgspec
import pytest

from netdra.model.claim import ResourceClaim
from netdra.model.errors import InvalidInputError
from netdra.model.names import network_pool
from netdra.model.plan import ClaimReference, Plan, PlannedStep
from netdra.node.claims import checks
from netdra.node.sandboxes.tracker import needed


def claim(*pools: str) -> ResourceClaim:
    results = [{"request": pool, "driver": "dra.networking", "pool": pool, "device": "a"} for pool in pools]
    status = {"allocation": {"devices": {"results": results}}}
    value = {"metadata": {"name": "c", "namespace": "db", "uid": "1"}, "spec": {}, "status": status}
    return needed(msgspec.convert(value, ResourceClaim))  # as the node keeps it


def plan(network: str) -> Plan:
    step = PlannedStep(
        name="lan",
        type="macvlan",
        if_name="net1",
        network="lan",
        execution="Binary",
        depend_on=(),
        config={},
        pod_network=network,
    )
    return Plan(topology="lan", claim=ClaimReference(namespace="db", name="c", uid="1"), steps=(step,))


def test_only_devices_of_nodes_are_prepared() -> None:
    found = checks.ours(claim("node-1/nic", network_pool("storage"), network_pool("storage", "0a1b2c3d")))
    assert [result.pool for result in found] == ["node-1/nic"]


def test_a_share_without_a_step_on_the_network_is_rejected() -> None:
    shared = claim("node-1/nic", network_pool("storage", "0a1b2c3d"))
    checks.check_network_shares(shared, [plan("storage")])
    checks.check_network_shares(claim("node-1/nic"), [plan("storage")])
    with pytest.raises(InvalidInputError, match='addresses of PodNetwork "storage", but no step of the claim'):
        checks.check_network_shares(shared, [plan("other")])
    with pytest.raises(InvalidInputError, match="no step of the claim"):
        checks.check_network_shares(claim(network_pool("storage")), [])
