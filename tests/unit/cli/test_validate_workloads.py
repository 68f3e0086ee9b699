"""`netdra validate` on Pods, Deployments and the like (tests/mistakes/workloads.yaml has the mistakes)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from netdra.cli.validate import command
from testbed import yaml

WRITTEN = yaml.safe_load((Path(__file__).parents[2] / "mistakes" / "workloads.yaml").read_text())
OBJECTS, POD = WRITTEN["beside"], WRITTEN["objects"]["pod"]


def said(folder: Path, *texts: str) -> list[str]:
    """The output for some files, without the file and the summary."""
    for number, text in enumerate((OBJECTS, *texts)):
        (folder / f"{number}.yaml").write_text(text)
    result = CliRunner().invoke(command, [str(folder)])
    assert "Traceback" not in result.output
    lines = [line.partition(".yaml:")[2] for line in result.stdout.splitlines()]
    assert result.exit_code == any(": warning: " not in f":{line}" for line in lines), result.output
    return lines


def kind_of(pod_spec: str, kind: str) -> str:
    """The pod as the template of another kind."""
    spec = pod_spec.partition("spec:")[2]
    spec = spec.replace("\n", "\n      ")
    head = f"kind: {kind}\nmetadata: {{name: web, namespace: app}}\nspec:\n"
    if kind == "CronJob":
        deeper = spec.replace("\n", "\n    ")
        return f"apiVersion: batch/v1\n{head}  jobTemplate:\n    spec:\n      template:\n        spec:{deeper}"
    group = {"Job": "batch/v1", "Rollout": "argoproj.io/v1alpha1"}.get(kind, "apps/v1")
    return f"apiVersion: {group}\n{head}  template:\n    spec:{spec}"


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Rollout"])
def test_all_workload_kinds_that_create_pods_are_checked(tmp_path: Path, kind: str) -> None:
    (line,) = said(tmp_path, kind_of(POD.replace("TemplateName: lan", "TemplateName: lam"), kind))
    place = "spec.jobTemplate.spec.template.spec" if kind == "CronJob" else "spec.template.spec"
    assert f'{kind} "web", claim "net": ResourceClaimTemplate "lam" not found' in line
    assert line.endswith(f"[{place}.resourceClaims[0].resourceClaimTemplateName] (ND1224)")


NESTED = {
    "JobSet": ("replicatedJobs", 0, "template", "spec", "template", "spec"),
    "LeaderWorkerSet": ("leaderWorkerTemplate", "workerTemplate", "spec"),
    "RayCluster": ("workerGroupSpecs", 1, "template", "spec"),
    "Job of Volcano": ("tasks", 1, "template", "spec"),
}
"""The place of a pod's spec in the spec of kinds of other projects; entries before it have none."""


@pytest.mark.parametrize("kind", NESTED)
def test_pods_are_found_at_any_place_of_a_kind(tmp_path: Path, kind: str) -> None:
    spec = yaml.safe_load(POD.replace("TemplateName: lan", "TemplateName: lam"))["spec"]
    for part in reversed(NESTED[kind]):
        spec = {part: spec} if isinstance(part, str) else [*[{"name": "first"}, {}][:part], spec]
    text = yaml.safe_dump({"apiVersion": "example.com/v1", "kind": "Made", "metadata": {"name": "web"}, "spec": spec})
    (line,) = said(tmp_path, text)
    assert 'Made "web", claim "net": ResourceClaimTemplate "lam" not found' in line
    assert f"{NESTED[kind][0]}" in line


def test_definitions_of_multus_are_named_once_and_are_no_problem(tmp_path: Path) -> None:
    made = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "data"}}
    (tmp_path / "nads.yaml").write_text(yaml.safe_dump_all([made, made]))
    done = CliRunner().invoke(command, [str(tmp_path / "nads.yaml"), "--strict"])
    assert done.exit_code == 0
    assert done.stderr.count("Multus reads them") == 1
    assert "docs/from-multus.md" in done.stderr


def test_an_object_with_several_pod_templates_counts_once_and_each_is_checked(tmp_path: Path) -> None:
    wrong = yaml.safe_load(POD.replace("TemplateName: lan", "TemplateName: lam"))["spec"]
    spec = {"leaderTemplate": {"spec": wrong}, "workerTemplate": {"spec": wrong}}
    made = {"apiVersion": "example.com/v1", "kind": "Made", "metadata": {"name": "web"}, "spec": spec, "status": spec}
    assert len(said(tmp_path, yaml.safe_dump(made))) == 2
    (tmp_path / "made.yaml").write_text(yaml.safe_dump(made))
    assert "1 object checked" in CliRunner().invoke(command, [str(tmp_path / "made.yaml")]).stderr


def test_the_claims_of_a_virtual_machine_and_of_a_pod_template_are_checked(tmp_path: Path) -> None:
    claims = [{"name": "net", "resourceClaimTemplateName": "lam"}]
    machine = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm", "namespace": "app"}}
    machine["spec"] = {"template": {"spec": {"domain": {"devices": {}}, "resourceClaims": claims}}}
    template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pt", "namespace": "app"}}
    container = {"name": "main", "resources": {"claims": [{"name": "net"}]}}
    template["template"] = {"spec": {"containers": [container], "resourceClaims": claims}}
    (of_machine,) = said(tmp_path, yaml.safe_dump(machine))
    assert 'VirtualMachine "vm", claim "net": ResourceClaimTemplate "lam" not found' in of_machine
    (of_template,) = said(tmp_path, yaml.safe_dump(template))
    assert 'PodTemplate "pt", claim "net": ResourceClaimTemplate "lam" not found' in of_template


def test_two_pods_that_name_a_claim_whose_device_goes_into_one(tmp_path: Path) -> None:
    first = POD.replace("resourceClaimTemplateName: lan", "resourceClaimName: one")
    (line,) = said(tmp_path, first, first.replace("name: web", "name: second"))
    assert line == (
        '5: Pod "second", claim "net": Pod "web" also uses ResourceClaim "one", but step "nic" of '
        'NetworkTopology "lan" '
        "moves the device into one pod; create one claim per pod: resourceClaimTemplateName "
        "[spec.resourceClaims[0].resourceClaimName] (ND1215)"
    )


def test_claims_of_other_drivers_are_ignored(tmp_path: Path) -> None:
    gpu = POD.replace("resourceClaimTemplateName: lan", "resourceClaimName: gpu")
    host = gpu.replace("spec:", "spec:\n  hostNetwork: true")
    assert said(tmp_path, host.replace(", resources: {claims: [{name: net}]}", "")) == []
    assert said(tmp_path, kind_of(gpu, "DaemonSet")) == []


def test_an_inventory_among_the_files_is_one_of_them(tmp_path: Path) -> None:
    inventory = "node: {name: worker-1}\ninterfaces: []\n"
    assert said(tmp_path, inventory) == []
    (line,) = said(tmp_path, inventory.replace("[]", "{}"))
    assert "inventory" in line
