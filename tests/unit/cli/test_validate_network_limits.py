"""`netdra validate` on claims and templates against the limits of their PodNetworks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from netdra.cli.render import command as render
from netdra.cli.validate import command
from testbed import yaml

GROUP = "networking.dra.io/v1alpha1"
STEP = {
    "name": "nic",
    "type": "macvlan",
    "network": "storage",
    "selector": {"cel": 'device.attributes["dra.networking"].type == "nic"'},
    "config": {"mode": "bridge", "ipam": {"type": "network"}},
}
TOPOLOGY = {"apiVersion": GROUP, "kind": "NetworkTopology", "metadata": {"name": "lan"}, "spec": {"steps": [STEP]}}
NIC = {"name": "nic", "exactly": {"deviceClassName": "lan-nic"}}
TOLERATION = {"key": "dra.networking/addresses", "operator": "Exists"}
SHARE = {"name": "share", "exactly": {"deviceClassName": "podnetwork.storage", "tolerations": [TOLERATION]}}


def network(**spec: Any) -> dict[str, Any]:
    """A PodNetwork."""
    ranges = [{"cidr": "10.77.0.0/24"}]
    return {
        "apiVersion": GROUP,
        "kind": "PodNetwork",
        "metadata": {"name": "storage"},
        "spec": {"ranges": ranges} | spec,
    }


def said(folder: Path, made: dict[str, Any], namespace: str, *requests: dict[str, Any]) -> tuple[int, str]:
    """The exit code and the output for a template of a namespace."""
    spec = {"spec": {"devices": {"requests": requests}}}
    metadata = {"name": "net", "namespace": namespace}
    template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}
    path = folder / "all.yaml"
    path.write_text(yaml.safe_dump_all([TOPOLOGY, made, template]))
    result = CliRunner().invoke(command, [str(path)])
    return result.exit_code, result.stdout


@pytest.mark.parametrize(
    ("spec", "requests", "text"),
    [
        ({"namespaces": ["db"]}, [NIC, SHARE], 'which is not for namespace "web"'),
        ({"requests": "Required"}, [NIC], "for 0 of its 1 steps on this network, which requires the request"),
    ],
)
def test_a_request_that_gets_no_address_is_an_error(
    tmp_path: Path, spec: dict[str, Any], requests: list[Any], text: str
) -> None:
    code, output = said(tmp_path, network(**spec), "web", *requests)
    assert code == 1
    assert text in output
    assert "warning: " not in output


def test_steps_on_a_network_that_is_not_for_the_namespace_are_a_warning(tmp_path: Path) -> None:
    code, output = said(tmp_path, network(namespaces=["db"]), "web", NIC)
    assert code == 0
    assert 'has steps on PodNetwork "storage", which is not for namespace "web"' in output


@pytest.mark.parametrize("spec", [{"namespaces": ["web"]}, {"requests": "Required"}, {"limits": {"perNamespace": 1}}])
def test_a_template_within_the_limits_is_right(tmp_path: Path, spec: dict[str, Any]) -> None:
    assert said(tmp_path, network(**spec), "web", NIC, SHARE)[0] == 0


def test_the_printed_template_has_the_request_that_a_network_requires(tmp_path: Path) -> None:
    path = tmp_path / "lan.yaml"
    path.write_text(yaml.safe_dump(TOPOLOGY))
    made = yaml.safe_load(CliRunner().invoke(render, ["--template", str(path)]).stdout)
    requests = made["spec"]["spec"]["devices"]["requests"]
    assert said(tmp_path, network(requests="Required"), "web", *requests)[0] == 0
