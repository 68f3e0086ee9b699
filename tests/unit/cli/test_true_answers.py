"""plan, explain, simulate and validate state what they do not know, and nothing that is not so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from netdra.cli import cluster_objects, forecasts, inputs
from netdra.cli.cluster_objects import ClusterObjects
from netdra.cli.main import cli
from netdra.model import documents
from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.errors import InvalidInputError
from netdra.model.pod_network import PodNetwork
from netdra.networks import shares
from testbed import yaml

WORKER = Path(__file__).parents[3] / "examples" / "worker-1"
POLICY = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: %s}
spec:
  %s
  selector: {cel: 'device.attributes["dra.networking"].%s'}
  exposure: {supportedCNIPlugins: [{name: host-device}]}
"""
TOPOLOGY = """
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: t}
spec:
  parameters: [{name: mtu, type: integer, minimum: 100, maximum: 9000}]
  steps:
  - {name: vf1, type: sriov, selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}}
  - {name: v, type: vlan, dependOn: [vf1], config: {id: 5, name: %s, mtu: "{{ params.mtu }}"}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec:
  devices:
    requests: [{name: vf1, exactly: {deviceClassName: t-vf1}}]
    %s
"""
VALUES = (
    "config: [{opaque: {driver: dra.networking, parameters: "
    "{apiVersion: networking.dra.io/v1alpha1, kind: ParameterValues, values: {mtu: 1400}}}}]"
)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def written(folder: Path, text: str) -> Path:
    path = folder / "x.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("spec", "selector", "why"),
    [
        ("", 'type == "macvlan"', "it does not match any of the 18 interfaces"),
        ("nodeSelector: {matchLabels: {zone: other}}", 'type == "vf"', "its nodeSelector does not match the node"),
        ("priority: 0", 'type == "vf"', "has a higher rank"),
    ],
)
def test_plan_names_a_policy_without_devices_although_others_have_some(
    tmp_path: Path, spec: str, selector: str, why: str
) -> None:
    planned = run("plan", WORKER, written(tmp_path, POLICY % ("empty", spec, selector)))
    (line,) = [line for line in planned.stderr.splitlines() if 'policy "empty"' in line]
    assert line.startswith('netdra: policy "empty": no devices: ')
    assert why in line


def test_plan_is_silent_about_policies_that_have_devices() -> None:
    assert "no devices" not in run("plan", WORKER).stderr


def test_plan_states_that_it_uses_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = documents.inventory_of(json.loads((WORKER / "inventory.json").read_text()), "x")
    monkeypatch.setattr(inputs, "_scanned", lambda: inventory)
    path = written(tmp_path, POLICY % ("p", "", 'type == "vf"'))
    assert "the interfaces of this machine are used" in run("plan", path).stderr
    assert "this machine" not in run("plan", path, WORKER / "inventory.json").stderr


def test_explain_names_no_policy_that_does_not_exist(tmp_path: Path) -> None:
    path = written(tmp_path, POLICY % ("all", "", 'type != "none"'))
    explained = run("explain", "eno1", "--policies", path, "--inventory", WORKER / "inventory.json").stdout
    assert "matches, but does not apply" in explained
    assert "another policy" not in explained


@pytest.mark.parametrize(("config", "code"), [("", 1), (VALUES, 0)])
def test_simulate_lists_allocated_claims_that_the_node_rejects(tmp_path: Path, config: str, code: int) -> None:
    simulated = run("simulate", WORKER / "slices.yaml", written(tmp_path, TOPOLOGY % ("v5", config)))
    assert simulated.exit_code == code, simulated.output
    assert ("c is allocated, but rejected on the node" in simulated.stdout) == bool(code)
    assert ("needs a value for its parameter mtu" in simulated.stdout) == bool(code)


@pytest.mark.parametrize("name", ["v23456789012345678", '"a b"', "eth0", '".."', '"{{ params.mtu }}"'])
def test_a_claim_with_values_for_a_topology_with_a_wrong_name_is_validated(tmp_path: Path, name: str) -> None:
    validated = run("validate", written(tmp_path, TOPOLOGY % (name, VALUES)))
    assert validated.exit_code == 1
    assert f"{tmp_path}/x.yaml:" in validated.stdout


NETWORK = documents.convert(
    yaml.safe_load("""
apiVersion: networking.dra.io/v1alpha1
kind: PodNetwork
metadata: {name: storage}
spec: {ranges: [{cidr: 10.0.0.0/24}]}
"""),
    PodNetwork,
    "x",
)


def of_cluster(monkeypatch: pytest.MonkeyPatch, found: ClusterObjects, *arguments: str) -> Result:
    """`netdra validate --cluster` with these objects of a cluster."""
    monkeypatch.setattr(cluster_objects, "read", lambda *_: found)
    monkeypatch.setattr(cluster_objects, "taken", lambda *_: ())
    monkeypatch.setattr(forecasts, "of_cluster", lambda *_: ([], []))
    return run("validate", "--cluster", *arguments)


def test_validate_lists_the_kinds_of_a_cluster_that_it_could_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: dict[type, str] = {ResourceClaim: "the cluster does not allow you to list resourceclaims"}
    validated = of_cluster(monkeypatch, ClusterObjects({PodNetwork: [NETWORK]}, refusals, "default"))
    assert validated.exit_code == 3
    assert "1 object checked, no problems; could not be read, and not checked: resourceclaims" in validated.stderr


def test_files_are_validated_without_the_kinds_that_could_not_be_read_unless_strict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusals: dict[type, str] = {ResourceClaim: "the cluster does not allow you to list resourceclaims"}
    found = ClusterObjects({PodNetwork: []}, refusals, "default")
    network = str(written(tmp_path, documents.to_yaml(NETWORK)))
    assert of_cluster(monkeypatch, found, network).exit_code == 0
    assert of_cluster(monkeypatch, found, network, "--strict").exit_code == 3


def test_without_rights_to_read_any_kind_of_netdra_nothing_is_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: dict[type, str] = {PodNetwork: "the cluster does not allow you to list podnetworks"}
    validated = of_cluster(monkeypatch, ClusterObjects({ResourceClaim: []}, refusals, "default"))
    assert isinstance(validated.exception, InvalidInputError)


def test_the_classes_that_netdra_made_of_a_network_cause_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = list(shares.device_classes([NETWORK]))
    validated = of_cluster(monkeypatch, ClusterObjects({PodNetwork: [NETWORK], DeviceClass: classes}, {}, "default"))
    assert (validated.exit_code, validated.stdout) == (0, "")


def test_many_files_have_progress(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"{number}.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
    assert "1000 of 1000 files" in run("validate", tmp_path).stderr
