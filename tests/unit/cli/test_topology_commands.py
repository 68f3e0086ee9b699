"""`netdra validate` and `netdra graph`: what they print, where it goes, and how they exit."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from testbed import yaml
from tests.documents import CLAIMS, DEVICES, SCHEMAS, TOPOLOGIES
from tests.unit.cli.conftest import CLAIM, Run

BONDED = str(TOPOLOGIES / "bonded-vlan-topology.yaml")
LOCALNET = str(DEVICES / "5.9.yaml")
TUNED = str(TOPOLOGIES / "ovnk-localnet-tuned.yaml")

BAD = """\
# a comment before it
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: bad-config}
spec:
  steps:
    - name: vf0
      type: sriov
      selector:
        cel: device.attributes["dra.networking"].pfName ==
    - name: vlan100
      type: vlan
      dependOn: [vf0]
      config:
        id: 1
        master: "{{ vf0.interfaceName }}"
        vlanID: 100
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: misspelled}
spec:
  steps:
    - name: vf0
      typ: sriov
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: p}
spec:
  priority: 5
  selector:
    cel: device.foo == 1
---
kind: Pod
---
apiVersion: v1
kind: Pod
---
kind: List
items:
  - apiVersion: resource.k8s.io/v1
    kind: ResourceClaimTemplate
    metadata: {name: half}
    spec:
      spec:
        devices:
          requests:
            - name: vf0
              exactly:
                deviceClassName: bonded-vlan-topology-vf0
                selectors: [{cel: {expression: "1 +"}}]
"""


def test_validate_reports_valid_objects_as_free_of_problems(run: Run) -> None:
    sound = (str(TOPOLOGIES), str(CLAIMS), str(SCHEMAS), LOCALNET)
    code, out, err = run("validate", *sound)
    told = (
        'no CNIPluginSchema describes plugin "ovn-k8s-cni-overlay"',
        "allows more than netdra's built-in schema",
        "the default route comes before that of eth0",
        "mode 802.3ad requires that the switch receives LACP frames",
    )
    assert all(any(text in line for text in told) for line in out.splitlines())
    assert code == 0
    assert err.startswith("netdra: 16 objects checked, no problems")


def test_warnings_are_those_of_the_webhook_and_errors_if_strict(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(Path(BONDED).read_text().replace("type: tuning", "type: tunning"))
    code, out, err = run("validate", str(file))
    assert (
        f'{file}:56: warning: NetworkTopology "bonded-vlan-topology", step "tune-vlan100": no CNIPluginSchema '
        'describes plugin "tunning"; its config is not validated; did you mean "tuning"? [spec.steps[5].type] (ND1257)'
    ) in out.splitlines()
    assert (code, err) == (0, "netdra: 1 object checked, no problems, 4 warnings\n")
    code, out, err = run("validate", str(file), "--strict")
    assert "warning:" not in out
    assert (code, err) == (1, "netdra: 1 object checked, 4 problems\n")


def test_a_policys_misspelt_plugin_is_a_warning_unless_a_schema_describes_it(run: Run, tmp_path: Path) -> None:
    group = "apiVersion: networking.dra.io/v1alpha1\nkind: DeviceExposurePolicy\nmetadata: {name: p}\n"
    spec = "spec: {selector: {cel: 'true'}, exposure: {supportedCNIPlugins: [{name: maclvan}]}}\n"
    (tmp_path / "p.yaml").write_text(group + spec)
    code, out, _ = run("validate", str(tmp_path / "p.yaml"))
    assert ': warning: DeviceExposurePolicy "p": no CNIPluginSchema describes plugin "maclvan"; did you mean' in out
    assert code == 0
    schema = "apiVersion: cni.networking.k8s.io/v1alpha1\nkind: CNIPluginSchema\nmetadata: {name: m}\n"
    (tmp_path / "s.yaml").write_text(schema + "spec: {cniType: maclvan}\n")
    assert run("validate", str(tmp_path))[:2] == (0, "")


def test_an_unknown_class_and_api_version_are_reported_with_a_suggestion(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CLAIM.replace("bonded-vlan-topology-vf", "bonded-vlan-toplogy-vf"))
    _, out, _ = run("validate", str(file), BONDED)
    assert 'DeviceClass "bonded-vlan-toplogy-vf1" not found; did you mean "bonded-vlan-topology-vf1"?' in out
    file.write_text(Path(BONDED).read_text().replace("networking.dra.io/v1alpha1", "network.dra.io/v1alpha1"))
    code, out, _ = run("validate", str(file))
    assert code == 1
    assert out == (
        f'{file}:1: NetworkTopology does not exist in apiVersion "network.dra.io/v1alpha1"; '
        'did you mean "networking.dra.io/v1alpha1"? [apiVersion] (ND4037)\n'
    )


def test_a_name_that_no_policy_among_the_files_adds_is_a_warning(run: Run) -> None:
    code, out, err = run("validate", TUNED)
    assert f'{TUNED}:10: warning: NetworkTopology "ovnk-localnet-tuned", step "localnet-port": selector' in out
    assert 'attribute "physicalNetworkName" of domain dra.networking is not set on any device yet' in out
    assert code == 0
    assert err.startswith("netdra: 1 object checked, no problems, ")


MISTAKEN = """\
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: p}
spec:
  action: exclude
  selector:
    cel: device.attributes["dra.networking"].ifNmae == "eno1"
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: t}
spec:
  steps:
    - name: vf0
      type: sriov
      selector:
        cel: device.attributes["dra.networking"].numaNode == "0"
"""


def test_names_and_types_in_selectors_are_checked(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mistaken.yaml"
    file.write_text(MISTAKEN)
    code, out, err = run("validate", str(file))
    first, second = (line for line in out.splitlines() if not line.startswith(" "))
    assert first == (
        f'{file}:7: DeviceExposurePolicy "p": CEL expression is wrong at line 1, column 37: interfaces do not have an '
        'attribute "ifNmae" of domain dra.networking; did you mean "ifName"? [spec.selector.cel] (ND1248)'
    )
    assert second.startswith(f'{file}:17: NetworkTopology "t", step "vf0": selector.cel: CEL expression is wrong at')
    assert second.endswith("write 0 without quotes [spec.steps[0].selector.cel] (ND1170)")
    assert (code, err) == (1, "netdra: 2 objects checked, 2 problems\n")


def test_each_problem_is_reported_with_its_file_and_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    code, out, err = run("validate", str(file), str(TOPOLOGIES), LOCALNET)
    told = [line for line in out.splitlines() if line.startswith(f"{file}:")]
    begins = [
        '10: NetworkTopology "bad-config", step "vf0": selector.cel: CEL expression does not compile at line 1',
        '17: NetworkTopology "bad-config", step "vlan100": CNIPluginSchema "vlan" does not accept parameter "vlanID".',
        '24: NetworkTopology "misspelled", step "vf0": a step without dependOn is an allocated device and needs a',
        '25: NetworkTopology "misspelled", step "vf0": unknown field "typ"; did you mean "type"? [spec.steps[0].typ]',
        '33: DeviceExposurePolicy "p": CEL expression does not compile',
        "35: kind 'Pod' is not known here",
        '48: NetworkTopology "bonded-vlan-topology" requires root step requests [vf0, vf1], but',
        '52: ResourceClaimTemplate "half": CEL expression does not compile',
    ]
    assert told[1].endswith(' Did you mean "vlanId"? [spec.steps[1].config.vlanID] (ND1035)')
    assert told[6].endswith(" provides requests [vf0]. Missing: [vf1] [spec.spec.devices.requests] (ND1024)")
    assert [line.startswith(f"{file}:{begin}") for line, begin in zip(told, begins, strict=True)] == [True] * 8
    assert code == 1
    assert err.startswith("netdra: 11 objects checked, 8 problems")


def test_an_invalid_class_parameter_is_reported_at_its_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "class.yaml"
    file.write_text(
        """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nics}
spec:
  config:
    - opaque:
        driver: dra.networking
        parameters: {networkTopologyRef: net}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: nic, exactly: {deviceClassName: nics}}]}}
"""
    )
    code, out, err = run("validate", str(file))
    assert code == 1
    assert out.startswith(
        f'{file}:8: DeviceClass "nics": opaque parameters, networkTopologyRef: expected an object, found text'
    )
    assert err == "netdra: 2 objects checked, 1 problem\n"


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_problems_are_data_too(run: Run, tmp_path: Path, output: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    code, out, _ = run("validate", str(file), "-o", output)
    data = msgspec.json.decode(out) if output == "json" else yaml.safe_load(out)
    assert code == 1
    assert data["objects"] == 4
    assert data["problems"][1] == {
        "file": str(file),
        "line": 17,
        "message": 'NetworkTopology "bad-config", step "vlan100": CNIPluginSchema "vlan" does not accept '
        'parameter "vlanID".',
        "hint": 'Did you mean "vlanId"?',
        "path": "spec.steps[1].config.vlanID",
        "code": "ND1035",
    }


def test_a_schema_in_the_files_overrides_the_shipped_schema(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(Path(BONDED).read_text().replace("id: 100", "vlanId: 100"))
    assert run("validate", str(file))[0] == 0
    code, out, _ = run("validate", str(file), str(SCHEMAS / "vlan.yaml"))
    assert code == 1
    assert 'CNIPluginSchema "vlan" does not accept parameter "vlanId". Did you mean "id"?' in out


def test_a_schema_of_a_former_version_of_netdra_counts_for_nothing_among_the_files(run: Run, tmp_path: Path) -> None:
    file, shown = tmp_path / "t.yaml", tmp_path / "shown.yaml"
    file.write_text(Path(BONDED).read_text().replace("id: 100", "vlanId: 100"))
    label = "metadata:\n  labels: {networking.dra.io/shipped: vlan}\n"
    shown.write_text((SCHEMAS / "vlan.yaml").read_text().replace("metadata:\n", label))
    code, out, _ = run("validate", str(file), str(shown))
    assert code == 0
    assert 'CNIPluginSchema "vlan": the label networking.dra.io/shipped marks' in out


def test_objects_that_clash_are_found_across_files(run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy.yaml"
    copy.write_text(Path(BONDED).read_text())
    code, out, _ = run("validate", BONDED, str(copy))
    assert code == 1
    assert f'{copy}:4: NetworkTopology "bonded-vlan-topology" is already at {BONDED}:1' in out
    steps = "{steps: [{name: %s, type: sriov, selector: {cel: 'true'}, extendedResourceName: x.org/vf}]}"
    kind = "{apiVersion: networking.dra.io/v1alpha1, kind: NetworkTopology, metadata: {name: %s}, spec: %s}\n"
    copy.write_text("---\n".join([kind % ("a-b", steps % "c"), kind % ("a", steps % "b-c")]))
    _, out, _ = run("validate", str(copy))
    first, second = out.splitlines()
    assert first.startswith(
        f'{copy}:3: NetworkTopology "a", step "b-c": its DeviceClass "a-b-c" has the same name as that of step "c"'
    )
    assert 'extendedResourceName "x.org/vf" is also used by step "c" of NetworkTopology "a-b"' in second


def test_a_plugin_schema_that_contradicts_itself_is_found_and_not_used(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "schema.yaml"
    file.write_text((SCHEMAS / "vlan.yaml").read_text().replace("type: integer", "type: intger"))
    code, out, _ = run("validate", str(file), BONDED)
    assert code == 1
    assert out.startswith(f'{file}:10: CNIPluginSchema "vlan": id: type "intger" is unknown')
    lacp, route = out.splitlines()[1:]
    assert "mode 802.3ad requires" in lacp
    assert "the default route comes before that of eth0" in route


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", 2),
        ("a: 1\nb: ]\n", 2),
        ("kind: NetworkTopology\nspec: [" + "[" * 100_000, 1),
        ("a: 1\na:\tb: c", 2),
        ("- 1", 1),
    ],
)
def test_input_that_is_not_a_yaml_object_is_a_problem_with_a_line(
    run: Run, tmp_path: Path, text: str, line: int
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    code, out, _ = run("validate", str(file))
    assert code == 1
    assert out.startswith(f"{file}:{line}: ")


def test_a_file_that_cannot_be_read_is_bad_usage(run: Run, tmp_path: Path) -> None:
    hint = 'specify an existing file, or "-" for standard input'
    for command in ("validate", "graph", "render"):
        code, out, err = run(command, str(tmp_path / "none.yaml"))
        assert (code, out) == (2, "")
        assert err == f"netdra: {tmp_path / 'none.yaml'}: No such file or directory; {hint} (ND4025)\n"


def test_graph_draws_each_topology_under_its_name(run: Run) -> None:
    code, out, _ = run("graph", str(TOPOLOGIES))
    assert code == 0
    assert out.startswith("ai-bonded-rdma\n\n┏━━━━━━━━━━━━━━┓ ")
    assert [line for line in out.splitlines() if line.startswith(("ai", "bonded", "ovnk"))] == [
        "ai-bonded-rdma",
        "bonded-vlan-topology",
        "ovnk-localnet-tuned",
        "ovnk-localnet",
        "ovnk-udn-accelerated",
    ]


def test_graph_makes_pictures_for_documents(run: Run) -> None:
    assert run("graph", TUNED, "-o", "mermaid")[1].startswith("flowchart LR\n")
    assert run("graph", str(TOPOLOGIES), "--topology", "ovnk-localnet", "-o", "svg")[1].startswith("<svg xmlns=")


def test_graph_rejects_input_that_it_cannot_draw(run: Run, tmp_path: Path) -> None:
    code, _, err = run("graph", str(TOPOLOGIES), "-o", "svg")
    assert (code, "select one with --topology: ai-bonded-rdma, bonded" in err) == (2, True)
    code, _, err = run("graph", TUNED, "--topology", "other")
    assert (code, 'NetworkTopology "other" not found' in err) == (2, True)
    unsound = tmp_path / "t.yaml"
    unsound.write_text(Path(TUNED).read_text().replace("[localnet-port]", "[port]"))
    code, out, err = run("graph", str(unsound))
    assert (code, out) == (2, "")
    assert 'dependOn names "port", which is not a step of this topology' in err


def test_more_devices_than_a_claim_can_have_are_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    for count, code in ((32, 0), (33, 1)):
        file.write_text(CLAIM.replace("bonded-vlan-topology-vf1}", f"others, count: {count - 1}}}"))
        found, out, _ = run("validate", str(file))
        assert found == code
    assert 'ResourceClaim "mine": its requests are for 33 devices, and no claim is allocated more than 32' in out
