"""Which routes of a step take a pod's traffic from `eth0`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from netdra.model.topology import NetworkTopology
from netdra.rules.addresses import default_routes
from tests.builders import with_config

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
    ({"routes": [{"destination": "default", "gateway": "10.1.0.1"}]}, ("routes", 0, "destination")),
    ({"routes": [{"dst": "0.0.0.0/0", "metric": 0}]}, ("routes", 0, "dst")),
    ({"ipam": {"type": "static", "routes": [{"dst": "10.9.0.0/16"}, {"dst": "::/0"}]}}, ("ipam", "routes", 1, "dst")),
    ({"isDefaultGateway": True}, ("isDefaultGateway",)),
]


@pytest.mark.parametrize("config", ALLOWED, ids=str)
def test_other_routes_are_allowed(topology: Callable[..., NetworkTopology], config: dict[str, Any]) -> None:
    assert not [*default_routes(with_config(topology("- {name: nic, type: bridge}"), config))]


@pytest.mark.parametrize(("config", "place"), REJECTED, ids=str)
def test_a_default_route_is_rejected_unless_it_is_requested(
    topology: Callable[..., NetworkTopology], config: dict[str, Any], place: tuple[str | int, ...]
) -> None:
    (found,) = default_routes(with_config(topology("- {name: nic, type: bridge}"), config))
    assert found.path == ("spec", "steps", 0, "config", *place)
    requested = topology("- {name: nic, type: bridge, defaultRoute: true}")
    assert not [*default_routes(with_config(requested, config))]
