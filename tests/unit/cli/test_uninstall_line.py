"""The list of a refused uninstall is one readable line, because Helm prints a job's log as one."""

from __future__ import annotations

import json

import pytest

from netdra.cli.uninstall import line_of
from netdra.controller.uninstall import ClaimInUse, Holders

LEFT = Holders(
    count=3,
    claims=(
        ClaimInUse(claim="apps/data", pods=("first", "second"), devices=("node-1/veth-data0/data0",)),
        ClaimInUse(claim="apps/idle", devices=("node-1/nic/eth1", "node-2/nic/eth1")),
    ),
    plugins=("ovs",),
    neutron_ports=("apps/data-vf0",),
)
LISTED = (
    "netdra is still needed by ResourceClaim apps/data (pods: first, second; devices: node-1/veth-data0/data0); "
    "ResourceClaim apps/idle (pods: none; devices: node-1/nic/eth1, node-2/nic/eth1); 1 more ResourceClaims; "
    "CNIPlugin ovs; NeutronPort apps/data-vf0. "
)


@pytest.mark.parametrize(
    ("force", "then"), [(False, "Delete the pods that use the claims"), (True, "Forced: netdra is removed")]
)
def test_the_line_has_each_object_and_the_next_step(*, force: bool, then: str) -> None:
    line = line_of(LEFT, force=force)
    assert line.startswith(LISTED + then)
    assert json.dumps(line) == f'"{line}"', "nothing has to be escaped"
