"""`--cluster`: commands read the objects of a real API server with the user's rights, and write nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from netdra.cli.main import cli
from netdra.model.errors import InvalidInputError
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane

FIRST_POD = Path(__file__).parents[2] / "examples" / "first-pod"
TOPOLOGY: Object = {
    "apiVersion": "networking.dra.io/v1alpha1",
    "kind": "NetworkTopology",
    "metadata": {"name": "from-cluster"},
    "spec": {
        "steps": [
            {
                "name": "stored",
                "type": "macvlan",
                "selector": {"cel": 'device.attributes["dra.networking"].ifName == "eth1"'},
            }
        ]
    },
}


@pytest.fixture
def topology(custom_kinds: None, api: Api) -> Iterator[str]:
    """The name of a topology in the cluster."""
    name = "from-cluster"
    path = api.path("networking.dra.io/v1alpha1/NetworkTopology")
    api.request("POST", path, TOPOLOGY)
    try:
        yield name
    finally:
        api.request("DELETE", f"{path}/{name}")


def call(kubeconfig: Path, *arguments: str) -> Result:
    """A command with the objects of the cluster."""
    return CliRunner().invoke(cli, [*arguments, "--cluster", f"--kubeconfig={kubeconfig}"])


def test_objects_of_the_cluster_are_read_and_those_of_files_override_them(
    control_plane: ControlPlane, topology: str, tmp_path: Path
) -> None:
    admin = control_plane.kubeconfig()
    assert "stored" in call(admin, "graph", "--topology", topology).stdout
    other = {**TOPOLOGY, "spec": {"steps": [{**TOPOLOGY["spec"]["steps"][0], "name": "changed"}]}}
    path = tmp_path / "topology.yaml"
    path.write_text(yaml.safe_dump(other))
    drawn = call(admin, "graph", str(path), "--topology", topology)
    assert "changed" in drawn.stdout
    assert "stored" not in drawn.stdout


def test_validate_checks_files_together_with_the_objects_of_the_cluster(
    control_plane: ControlPlane, topology: str
) -> None:
    checked = call(control_plane.kubeconfig(), "validate", str(FIRST_POD))
    assert (checked.exit_code, checked.exception) == (0, None), checked.output


def test_missing_rights_are_reported_by_kind(control_plane: ControlPlane, topology: str) -> None:
    nobody = control_plane.kubeconfig("nobody", ())
    refused = call(nobody, "graph")
    assert "the cluster does not allow you to list networktopologies" in refused.stderr
    assert isinstance(refused.exception, InvalidInputError)
    validated = call(nobody, "validate")
    assert isinstance(validated.exception, InvalidInputError)
    assert 'request a ClusterRoleBinding to the ClusterRole "netdra-reader"' in str(validated.exception)
    simulated = call(nobody, "simulate", str(FIRST_POD))
    assert "the cluster does not allow you to list deviceclasses" in simulated.stderr
    assert simulated.exit_code == 0, simulated.output
