"""Which routes of a step take a pod's traffic from `eth0`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from netdra.model import documents
from netdra.model.topology import NetworkTopology
from netdra.rules.addresses import default_routes, unreached, unwise
from netdra.rules.topologies import check_topology
from tests.builders import with_config
from tests.documents import TOPOLOGIES

ALLOWED: list[dict[str, Any]] = [
    {"routes": [{"destination": "10.0.0.0/8", "gateway": "10.1.0.1"}]},
    {"routes": [{"destination": "0.0.0.0/0", "gateway": "10.1.0.1", "metric": 100}]},
    {"routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1", "table": 100}]},
    {"routes": [{"dst": "{{ params.net }}"}]},
    {"ipam": {"type": "static", "routes": [{"dst": "0.0.0.0/0", "priority": 200}]}},
    {"ipam": {"type": "dhcp"}},
    {"isDefaultGateway": False},
    {"routes": "none", "ipam": []},
]
REJECTED: list[tuple[dict[str, Any], tuple[str | int, ...]]] = [
    ({"ipam": {"type": "dhcp", "routes": [{"dst": "0.0.0.0/0", "priority": 0}]}}, ("ipam", "routes", 0, "dst")),
    ({"ipam": {"type": "static", "routes": [{"dst": "10.9.0.0/16"}, {"dst": "::/0"}]}}, ("ipam", "routes", 1, "dst")),
    ({"isDefaultGateway": True}, ("isDefaultGateway",)),
]


@pytest.mark.parametrize("config", ALLOWED, ids=str)
def test_other_routes_are_allowed(topology: Callable[..., NetworkTopology], config: dict[str, Any]) -> None:
    chosen = with_config(topology("- {name: nic, type: bridge}"), config)
    assert not [*default_routes(chosen)]
    assert not [finding for finding in unwise(chosen) if "default route" in finding.what]


@pytest.mark.parametrize(("config", "place"), REJECTED, ids=str)
def test_a_default_route_is_rejected_unless_it_is_requested(
    topology: Callable[..., NetworkTopology], config: dict[str, Any], place: tuple[str | int, ...]
) -> None:
    (found,) = default_routes(with_config(topology("- {name: nic, type: bridge}"), config))
    assert found.path == ("spec", "steps", 0, "config", *place)
    requested = topology("- {name: nic, type: bridge, defaultRoute: true}")
    assert not [*default_routes(with_config(requested, config))]


@pytest.mark.parametrize(
    "route",
    [
        {"destination": "default", "gateway": "10.1.0.1"},
        {"destination": "0.0.0.0/0", "gateway": "10.1.0.1"},
        {"destination": "::/0", "gateway": "fd00::1"},
        {"dst": "0.0.0.0/0", "metric": 0},
    ],
    ids=str,
)
def test_a_default_route_among_a_step_s_own_routes_is_accepted_with_a_warning(
    topology: Callable[..., NetworkTopology], route: dict[str, Any]
) -> None:
    config = {"routes": [route]}
    chosen = with_config(topology("- {name: nic, type: tuning}"), config)
    assert not [*default_routes(chosen)]
    (found,) = unwise(chosen)
    assert found.path == ("spec", "steps", 0, "config", "routes", 0, next(iter(route)))
    assert "before that of eth0" in found.what
    assert "metric" in found.hint
    requested = topology("- {name: nic, type: tuning, defaultRoute: true}")
    assert not [*unwise(with_config(requested, config))]


@pytest.mark.parametrize("name", ["ai-bonded-rdma", "bonded-vlan-topology"])
def test_the_topologies_of_the_chaining_document_are_accepted_as_they_are_written(name: str) -> None:
    text = (TOPOLOGIES / f"{name}.yaml").read_text()
    (document,) = documents.read(text, name)
    assert isinstance(document, NetworkTopology)
    assert not [*check_topology(document, ()), *default_routes(document)]
    (found,) = [finding for finding in unwise(document) if "eth0" in finding.what]
    assert "comes before that of eth0" in found.what


TUNED = "{name: tune, type: tuning, dependOn: [%s], config: {addresses: [10.0.0.5/24], routes: [%s]}}"
OUTSIDE = "{destination: 10.9.0.0/16, gateway: 10.7.0.1}"
BOND = """
- {name: a, type: sriov}
- {name: b, type: sriov}
- {name: both, type: bond, dependOn: [a, b]}
"""


@pytest.mark.parametrize(
    ("steps", "may_keep", "warned"),
    [
        ("- {name: nic, type: sriov}\n- " + TUNED % ("nic", OUTSIDE), False, True),
        ("- {name: nic, type: sriov}\n- " + TUNED % ("nic", OUTSIDE), True, False),
        (BOND + "- " + TUNED % ("both", OUTSIDE), True, True),
        ("- {name: nic, type: sriov, keep: [addresses]}\n- " + TUNED % ("nic", OUTSIDE), False, False),
        ("- {name: nic, type: sriov, config: {ipam: {type: dhcp}}}\n- " + TUNED % ("nic", OUTSIDE), False, False),
        ("- {name: nic, type: sriov}\n- " + TUNED % ("nic", "{dst: 10.9.0.0/16, gw: 10.0.0.1}"), False, False),
        ("- {name: nic, type: sriov}\n- " + TUNED % ("nic", OUTSIDE.replace("}", ", onlink: true}")), False, False),
        ("- {name: nic, type: sriov}\n- " + TUNED % ("nic", "{dst: 10.7.0.0/24}, " + OUTSIDE), False, False),
    ],
    ids=["outside", "kept-perhaps", "bond", "kept", "lease", "inside", "onlink", "on-the-link"],
)
def test_a_route_by_a_gateway_that_no_address_reaches_is_warned_of_if_no_other_address_is_possible(
    topology: Callable[..., NetworkTopology], steps: str, may_keep: bool, warned: bool
) -> None:
    found = [finding.what for finding in unreached(topology(steps), may_keep=may_keep)]
    assert (
        found
        == ['NetworkTopology "net", step "tune": gateway 10.7.0.1 is not in 10.0.0.0/24, so it cannot be reached']
        * warned
    )
