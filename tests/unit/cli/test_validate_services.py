"""`netdra validate` on Services: those that name a PodNetwork, and mistakes in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from netdra.cli.validate import command

EXAMPLE = Path(__file__).parents[3] / "examples" / "services"
LABEL, ANNOTATION = "networking.dra.io/pod-network", "networking.dra.io/pod-selector"
NETWORK = {
    "apiVersion": "networking.dra.io/v1alpha1",
    "kind": "PodNetwork",
    "metadata": {"name": "storage"},
    "spec": {"ranges": [{"cidr": "10.77.0.0/24"}]},
}


def service(labels: dict[str, str], annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    """A Service."""
    metadata = {"name": "web", "namespace": "db", "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}], **spec}}


def said(folder: Path, *objects: dict[str, Any]) -> tuple[int, list[str]]:
    """The exit code, and the problems."""
    path = folder / "web.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    result = CliRunner().invoke(command, [str(path)])
    return result.exit_code, [line.partition(": ")[2] for line in result.stdout.splitlines() if "web.yaml:" in line]


RIGHT = ({LABEL: "storage"}, {ANNOTATION: "app=web"})


def test_the_example_is_right() -> None:
    result = CliRunner().invoke(command, [str(EXAMPLE), "--strict"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "spec", [{}, {"clusterIP": "None"}, {"type": "LoadBalancer"}, {"selector": {}}, {"selector": None}]
)
def test_a_service_with_the_label_the_annotation_and_no_selector_is_right(tmp_path: Path, spec: dict[str, Any]) -> None:
    assert said(tmp_path, NETWORK, service(*RIGHT, **spec)) == (0, [])


def test_a_service_of_the_clusters_own_network_is_not_netdras_business(tmp_path: Path) -> None:
    assert said(tmp_path, NETWORK, service({"app": "web"}, {}, selector={"app": "web"})) == (0, [])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (service(*RIGHT, selector={"app": "web"}), "has spec.selector, so Kubernetes publishes"),
        (service(*RIGHT, type="ExternalName", externalName="a.example"), "is of type ExternalName"),
        (service({LABEL: "storage"}, {}), f"has the label {LABEL} without the annotation {ANNOTATION}"),
        (service({LABEL: "storage"}, {ANNOTATION: "app in web"}), '"app in web" is not a valid requirement'),
        (service({LABEL: ""}, {ANNOTATION: "app=web"}), f'label {LABEL}: "" is not the name of a PodNetwork'),
        (service({LABEL: "a/b"}, {ANNOTATION: "app=web"}), f'label {LABEL}: "a/b" is not the name of a PodNetwork'),
    ],
)
def test_a_service_without_slices_is_an_error(tmp_path: Path, wrong: dict[str, Any], text: str) -> None:
    code, every = said(tmp_path, NETWORK, wrong)
    problems = [problem for problem in every if "warning:" not in problem]
    assert code == 1
    assert [problem for problem in problems if 'Service "web"' in problem and text in problem] == problems != []


def test_an_unknown_network_is_a_warning(tmp_path: Path) -> None:
    other = service({LABEL: "storrage"}, {ANNOTATION: "app=web"})
    code, problems = said(tmp_path, NETWORK, other)
    assert code == 0
    (problem,) = problems
    assert 'warning: Service "web": PodNetwork "storrage" is not in these files; did you mean "storage"?' in problem


def test_a_network_with_link_local_addresses_is_a_warning(tmp_path: Path) -> None:
    ranges = [{"cidr": "10.77.0.0/24"}, {"cidr": "fe80:0:0:1::/64"}]
    _, problems = said(tmp_path, {**NETWORK, "spec": {"ranges": ranges}}, service(*RIGHT))
    (problem,) = [text for text in problems if "warning:" in text]
    assert 'Service "web": range fe80:0:0:1::/64 of PodNetwork "storage" is link-local' in problem
    assert "Kubernetes rejects link-local addresses in EndpointSlices" in problem
