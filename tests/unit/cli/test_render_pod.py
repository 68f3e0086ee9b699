"""`netdra render --pod`: all that one pod gets, with every reference that is known beforehand in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from netdra.cli.main import cli
from netdra.model import documents
from testbed import yaml
from tests.unit.cli.conftest import SLICES

TOPOLOGIES = """\
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: pair}
spec:
  parameters: [{name: vlan, type: integer, minimum: 1, maximum: 4094}]
  steps:
    - {name: vf0, type: sriov, selector: {cel: "true"}}
    - {name: vf1, type: sriov, selector: {cel: "true"}}
    - name: bond0
      type: bond
      dependOn: [vf0, vf1]
      config: {mode: active-backup, links: [{name: "{{ vf0.interfaceName }}"}, {name: "{{ vf1.interfaceName }}"}]}
    - name: data
      type: vlan
      dependOn: [bond0]
      config: {id: "{{ params.vlan }}", master: "{{ bond0.interfaceName }}", mac: "{{ vf1.mac }}"}
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: single}
spec:
  steps:
    - name: nic
      type: sriov
      selector: {cel: "true"}
      config: {ipam: {type: static, addresses: [{address: 10.7.0.5/24}]}}
    - name: leased
      type: macvlan
      dependOn: [nic]
      config: {master: "{{ nic.interfaceName }}", ipam: {type: host-local, subnet: 10.8.0.0/24}}
    - name: tune
      type: probe
      dependOn: [leased]
      config:
        dev: "{{ nic.interfaceName }}"
        note: "{{ nic.pciAddress }} {{ nic.ips[0].address }} {{ leased.ips[0].address }}"
"""
PAIR = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: pair}
spec:
  spec:
    devices:
      requests:
        - {name: vf0, exactly: {deviceClassName: pair-vf0}}
        - {name: vf1, exactly: {deviceClassName: pair-vf1}}
      config:
        - opaque:
            driver: dra.networking
            parameters: {apiVersion: networking.dra.io/v1alpha1, kind: ParameterValues, values: {vlan: 7}}
"""
SINGLE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: single}
spec: {devices: {requests: [{name: nic, exactly: {deviceClassName: single-nic}}]}}
"""
OTHER = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
"""
POD_SPEC = """\
containers: [{name: c, image: x}]
resourceClaims:
  - {name: second, resourceClaimName: single}
  - {name: gpu, resourceClaimName: gpu}
  - {name: first, resourceClaimTemplateName: pair}
"""
DEVICE = """\
    - name: v%d
      attributes:
        dra.networking/supportedCNIs: {string: ",sriov,"}
        dra.networking/ifName: {string: ens%d}
        dra.networking/pciAddress: {string: "0000:03:00.%d"}
"""


def workload(kind: str, spec: str = POD_SPEC, name: str = "web", **more: Any) -> str:
    """A manifest of a kind, with the pod's specification where that kind has it."""
    inner = yaml.safe_load(spec)
    versions = {"Pod": "v1", "Job": "batch/v1"}
    outer = inner if kind == "Pod" else {"template": {"metadata": {"labels": {"a": "b"}}, "spec": inner}, **more}
    value = {"apiVersion": versions.get(kind, "apps/v1"), "kind": kind, "metadata": {"name": name}, "spec": outer}
    return str(yaml.safe_dump(value))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Paths of the files: the topologies, all claims, the slices, and a Pod among other objects."""
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
    written = {
        "topologies": TOPOLOGIES,
        "claims": "---\n".join([PAIR, SINGLE, OTHER]),
        "slices": SLICES + "".join(DEVICE % (number, number, number) for number in range(1, 5)),
        "pod": f"{service}---\n{workload('Pod')}",
    }
    for name, text in written.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return {name: str(tmp_path / f"{name}.yaml") for name in written}


def render(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["render", *arguments])


def calls(*arguments: str) -> list[dict[str, Any]]:
    done = render(*arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    return list(msgspec.json.decode(done.stdout))


def refused(*arguments: str) -> str:
    done = render(*arguments)
    assert done.exception is not None
    return str(done.exception)


def test_a_pods_claims_are_shown_in_its_order_with_the_interfaces_as_they_will_be(files: dict[str, str]) -> None:
    found = calls(files["topologies"], "--claim", files["claims"], "--pod", files["pod"])
    # Devices of all claims come first, in the pod's order; a derived step does not take a number from one of them.
    assert [(each["podClaim"], each["step"], each["interface"]) for each in found] == [
        ("second", "nic", "net1"),
        ("second", "leased", "net4"),
        ("second", "tune", "net1"),
        ("first", "vf0", "net2"),
        ("first", "vf1", "net3"),
        ("first", "bond0", "bond0"),
        ("first", "data", "net5"),
    ]
    assert [each["claim"] for each in found[::4]] == ["single", "web-first"]


def test_references_known_beforehand_are_filled_in_and_the_rest_are_listed_as_unknown(files: dict[str, str]) -> None:
    found = {
        each["step"]: each for each in calls(files["topologies"], "--claim", files["claims"], "--pod", files["pod"])
    }
    assert found["bond0"]["stdin"]["links"] == [{"name": "net2"}, {"name": "net3"}]
    assert "unknown" not in found["bond0"]
    assert found["data"]["stdin"].items() >= {"id": 7, "master": "bond0", "mac": "{{ vf1.mac }}"}.items()
    assert found["data"]["unknown"] == ["{{ vf1.mac }}"]
    # Without slices nobody knows the device; what an IPAM plugin leases is known to nobody before it runs.
    unknown = ["{{ nic.pciAddress }}", "{{ leased.ips[0].address }}"]
    assert found["tune"]["stdin"]["note"] == f"{unknown[0]} 10.7.0.5/24 {unknown[1]}"
    assert found["tune"]["unknown"] == unknown


def test_the_name_of_a_result_is_that_of_its_last_interface(files: dict[str, str]) -> None:
    topologies = Path(files["topologies"])
    other = (
        'name: probe, type: probe, dependOn: [tuned], config: {note: "{{ tuned.interfaceName }} {{ x.interfaceName }}"}'
    )
    tuned = 'name: tuned, type: tuning, dependOn: [data], config: {dev: "{{ vf0.interfaceName }}", mtu: 1400}'
    unknown = "name: x, type: unknown, dependOn: [vf0]"
    steps = "".join(f"    - {{{each}}}\n" for each in (tuned, unknown, other.replace("[tuned]", "[tuned, x]")))
    topologies.write_text(topologies.read_text().replace("---\n", f"{steps}---\n"))
    found = {each["step"]: each for each in calls(*_all(files))}
    assert found["tuned"]["stdin"]["dev"] == "net2"
    assert found["probe"]["stdin"]["note"] == "net5 {{ x.interfaceName }}"


def test_with_slices_the_devices_are_known(files: dict[str, str]) -> None:
    paths = (files["topologies"], "--claim", files["claims"], "--pod", files["pod"], "--slices", files["slices"])
    found = {each["step"]: each for each in calls(*paths)}
    address = found["nic"]["device"]["pciAddress"]
    assert address.startswith("0000:03:00.")
    assert found["tune"]["stdin"]["note"] == f"{address} 10.7.0.5/24 {{{{ leased.ips[0].address }}}}"
    assert len({found[step]["device"]["pciAddress"] for step in ("nic", "vf0", "vf1")}) == 3


def test_the_table_lists_the_pods_claims_and_references_known_only_after_the_steps(files: dict[str, str]) -> None:
    done = render(files["topologies"], "--claim", files["claims"], "--pod", files["pod"])
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["CLAIM", "OBJECT", "INTERFACES"]
    assert [line.split(maxsplit=3)[0] for line in lines[1:4]] == ["second", "gpu", "first"]
    assert lines[1].endswith("net1, net4")
    assert lines[2].endswith("-")
    assert lines[3].endswith("net2, net3, bond0, net5")
    assert lines[-1] == (
        "Known only after the steps have run: {{ nic.pciAddress }}, {{ leased.ips[0].address }}, {{ vf1.mac }}"
    )
    whole = list(yaml.safe_load_all(render(*_all(files), "-o", "yaml").stdout))
    assert [each["step"] for each in whole][:2] == ["nic", "leased"]


def test_an_rdma_step_after_another_step_has_no_interface_in_the_table(files: dict[str, str]) -> None:
    topologies = Path(files["topologies"])
    derived = "    - {name: verbs, type: rdma, dependOn: [vf0]}\n"
    topologies.write_text(topologies.read_text().replace("---\n", f"{derived}---\n"))
    lines = render(*_all(files)).stdout.splitlines()
    assert any(line.startswith("verbs: rdma (builtin)  # ") for line in lines)
    (first,) = (line for line in lines if line.startswith("first "))
    # As the first step, it brings the netdev of its device.
    assert first.endswith("net2, net3, bond0, net5")
    topologies.write_text(topologies.read_text().replace("name: vf0, type: sriov", "name: vf0, type: rdma"))
    (first,) = (line for line in render(*_all(files)).stdout.splitlines() if line.startswith("first "))
    assert first.endswith("net2, net3, bond0, net5")


def _all(files: dict[str, str]) -> tuple[str, ...]:
    return files["topologies"], "--claim", files["claims"], "--pod", files["pod"]


def test_a_plan_keeps_its_references(files: dict[str, str]) -> None:
    plans = documents.plans(render(*_all(files), "-o", "plan").stdout, "stdout")
    assert [each.claim.name for each in plans] == ["single", "web-first"]
    assert plans[1].steps[2].config["links"][0] == {"name": "{{ vf0.interfaceName }}"}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job"])
def test_the_template_of_a_workload_is_a_pod(files: dict[str, str], kind: str) -> None:
    Path(files["pod"]).write_text(workload(kind))
    found = calls(*_all(files))
    assert [each["podClaim"] for each in found] == ["second"] * 3 + ["first"] * 4


def test_only_a_statefulset_s_pod_has_values_per_pod(files: dict[str, str]) -> None:
    claims = Path(files["claims"])
    claims.write_text(claims.read_text().replace("values: {vlan: 7}", "perPod: {vlan: [7, 8, 9]}"))
    Path(files["pod"]).write_text(workload("StatefulSet", ordinals={"start": 2}))
    assert calls(*_all(files))[-1]["stdin"]["id"] == 9
    Path(files["pod"]).write_text(workload("Pod", name="web-1"))
    assert calls(*_all(files))[-1]["stdin"]["id"] == 8
    Path(files["pod"]).write_text(workload("Deployment"))
    assert "the claim does not belong to a pod of a StatefulSet" in refused(*_all(files))


def test_the_claim_that_was_made_for_a_running_pod_is_taken(files: dict[str, str], tmp_path: Path) -> None:
    pod = yaml.safe_load(workload("Pod"))
    pod["status"] = {"resourceClaimStatuses": [{"name": "first", "resourceClaimName": "web-first-x2x4z"}]}
    made = yaml.safe_load(PAIR)
    made |= {"kind": "ResourceClaim", "metadata": {"name": "web-first-x2x4z"}, "spec": made["spec"]["spec"]}
    Path(files["pod"]).write_text(f"{yaml.safe_dump(pod)}---\n{yaml.safe_dump(made)}")
    assert calls(*_all(files))[-1]["claim"] == "web-first-x2x4z"


def test_a_claim_that_no_file_has_is_named(files: dict[str, str]) -> None:
    pod = Path(files["pod"])
    whole = pod.read_text()
    pod.write_text(whole.replace("resourceClaimTemplateName: pair", "resourceClaimTemplateName: pairs"))
    told = refused(*_all(files))
    assert 'Pod "web", spec.resourceClaims[2] "first": ResourceClaimTemplate "pairs" not found in the files' in told
    assert 'did you mean "pair"?' in told
    pod.write_text(whole.replace("resourceClaimName: single", "resourceClaimName: pair"))
    assert 'spec.resourceClaims[0] "second": ResourceClaim "pair" not found in the files' in refused(*_all(files))
    pod.write_text(whole.replace("metadata:\n  name: web\n", "metadata: {name: web, namespace: a}\n"))
    claims = Path(files["claims"])
    claims.write_text(claims.read_text().replace("{name: single}", "{name: single, namespace: b}"))
    assert 'ResourceClaim "a/single" not found in the files' in refused(*_all(files))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: Service\napiVersion: v1\n", "Pod, Deployment, StatefulSet, DaemonSet or Job not found"),
        (f"{workload('Pod')}---\n{workload('Pod', name='other')}", "the file contains 2"),
        (workload("Pod", "containers: []"), 'Pod "web" does not refer to any claims'),
        (workload("Pod", "resourceClaims: [{name: x}]"), "refers to neither a claim nor a template"),
        (workload("Pod", "resourceClaims: 5"), "Expected `array"),
        ("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}\n", "template"),
        ("[1, 2]", "expected an object"),
    ],
)
def test_a_file_without_a_pod_that_can_be_shown_is_refused(files: dict[str, str], text: str, why: str) -> None:
    Path(files["pod"]).write_text(text)
    assert why in refused(*_all(files))


def test_a_folder_of_manifests_may_contain_pods_and_unrelated_objects(files: dict[str, str], tmp_path: Path) -> None:
    Path(files["slices"]).unlink()
    (tmp_path / "other.yaml").write_text(workload("Deployment", name="other"))
    (tmp_path / "config.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
    assert [each["podClaim"] for each in calls(str(tmp_path), "--pod", files["pod"])] == ["second"] * 3 + ["first"] * 4
    (tmp_path / "config.yaml").write_text("apiVersion: resource.k8s.io/v1\nkind: ResourceClam\nmetadata: {name: c}\n")
    done = render(str(tmp_path), "--pod", files["pod"])
    assert done.exit_code == 0
    assert "kind 'ResourceClam' is not known here; did you mean \"ResourceClaim\"?" in done.stderr


def test_one_file_may_hold_all_and_lists_each_claim_once(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text("---\n".join([TOPOLOGIES, SINGLE, PAIR]))
    assert [each["step"] for each in calls(str(path), "--claim", str(path))] == [
        *("nic", "leased", "tune", "vf0", "vf1", "bond0", "data")
    ]
    spec = "resourceClaims: [{name: a, resourceClaimName: single}, {name: b, resourceClaimName: single}]"
    path.write_text("---\n".join([TOPOLOGIES, SINGLE, PAIR, workload("Pod", spec)]))
    found = calls(str(path), "--pod", str(path))
    assert [(each["podClaim"], each["step"]) for each in found] == [("a", "nic"), ("a", "leased"), ("a", "tune")]


def test_mistakes_in_the_pod_are_reported_on_stderr_without_failing_render(
    files: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(workload("Pod", POD_SPEC.replace("image: x", "resources: {claims: [{name: secnd}]}")))
    done = render(files["topologies"], "--claim", files["claims"], "--pod", str(path))
    assert done.exit_code == 0
    assert (
        'Pod "web", container "c" lists claim "secnd", which is not a claim of the pod; did you mean "second"?'
        in done.stderr
    )
    assert 'no container lists claim "first"' in done.stderr
    assert 'lists claim "gpu"' not in done.stderr
    assert 'claim "gpu": DeviceClass "gpu.example.com" is not in the input' in done.stderr
