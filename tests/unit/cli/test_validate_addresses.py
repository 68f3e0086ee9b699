"""`netdra validate` on correct addresses of topologies: no warning (tests/mistakes/addresses.yaml has the mistakes)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from netdra.cli.validate import command
from testbed import yaml

RIGHT = [
    {
        "type": "static",
        "addresses": [{"address": "10.0.0.5/24", "gateway": "10.0.0.1"}],
        "routes": [{"dst": "10.9.0.0/16"}],
    },
    {"type": "static", "addresses": [{"address": "10.0.0.0/31"}, {"address": "fd00::/64"}, {"address": "10.1.0.0/32"}]},
    {
        "type": "static",
        "addresses": [{"address": "10.0.0.5/24"}, {"address": "10.7.0.5/24"}],
        "routes": [{"dst": "10.9.0.0/16", "gw": "10.7.0.1"}],
    },
    {
        "type": "static",
        "addresses": [{"address": "{{ params.a }}", "gateway": "10.7.0.1"}],
        "routes": [{"dst": "10.9.0.0/16", "gw": "10.7.0.1"}],
    },
    {"type": "host-local", "subnet": "10.0.0.0/24", "gateway": "10.0.0.1", "routes": [{"dst": "10.9.0.0/16"}]},
    {"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64", "gateway": "fd00::1"}]]},
    {"type": "whereabouts", "range": "10.0.0.10-10.0.0.20/24", "gateway": "10.0.0.1", "exclude": ["10.0.0.12/32"]},
    {"type": "whereabouts", "ipRanges": [{"range": "10.0.0.0/24"}]},
    {"type": "dhcp"},
    {"type": "calico-ipam"},
]


def said(folder: Path, ipam: dict[str, Any]) -> list[str]:
    """The warnings for a step with this `config.ipam`."""
    step = {
        "name": "nic",
        "type": "host-device",
        "selector": {"cel": 'device.attributes["dra.networking"].type == "nic"'},
        "config": {"ipam": ipam},
    }
    declared = [{"name": "a", "type": "string", "format": "cidr"}] if "params" in json.dumps(ipam) else []
    topology = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": "t"},
        "spec": {"parameters": declared, "steps": [step]},
    }
    path = folder / "t.yaml"
    path.write_text(yaml.safe_dump(topology))
    result = CliRunner().invoke(command, [str(path)])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


@pytest.mark.parametrize("ipam", RIGHT, ids=json.dumps)
def test_valid_addresses_cause_no_warning(tmp_path: Path, ipam: dict[str, Any]) -> None:
    assert said(tmp_path, ipam) == []
