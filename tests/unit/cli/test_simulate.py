"""`netdra simulate` on the reference node: the claims that fit, those that do not and why, and bad input."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from netdra.cli import objects
from netdra.cli.main import main
from netdra.model import yaml_text
from netdra.model.resource import ResourceSlice
from testbed import yaml
from tests.unit.slices.test_written import device, written

SLICES = Path(__file__).parents[3] / "examples" / "worker-1" / "slices.yaml"
TYPE = 'device.driver == "dra.networking" && device.attributes["dra.networking"].type'


def device_class(name: str, expression: str) -> dict[str, Any]:
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def claim(name: str, of: str, kind: str = "ResourceClaim", **fields: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"devices": {"requests": [{"name": "net", "exactly": {"deviceClassName": of, **fields}}]}}
    if kind == "ResourceClaimTemplate":
        spec = {"spec": spec}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


CLASSES = [
    device_class("vf", f'{TYPE} == "vf"'),
    device_class("passthrough", f'{TYPE} == "pf" && !device.allowMultipleAllocations'),
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command on documents, and returns the exit code, stdout and stderr."""

    def run(
        *documents: dict[str, Any], arguments: tuple[str, ...] = (), claims: str = "", slices: Path = SLICES
    ) -> tuple[int, str, str]:
        path = tmp_path / "claims.yaml"
        path.write_text(yaml_text.dump(documents))
        command = ["netdra", "simulate", "--slices", str(slices), "--claims", claims or str(path), *arguments]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return run


def as_json_list(path: Path, *more: dict[str, Any]) -> Path:
    """The slices of the reference node and more objects as `kubectl get -o json` prints them."""
    items = [*yaml.safe_load_all(SLICES.read_text()), *more]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


def test_many_slices_are_allocated_and_explained_as_few_slices_are(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = (*CLASSES, claim("x", "vf"), claim("y", "passthrough", count=2))
    expected = run(*wanted)
    monkeypatch.setattr(yaml_text, "_LARGE", 0)
    monkeypatch.setattr(objects, "_MOST_CHECKED", 0)
    assert run(*wanted, slices=as_json_list(tmp_path / "slices.json")) == expected


def test_one_of_many_slices_that_is_not_valid_is_an_error(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "wrong"}, "spec": {}}
    slices = as_json_list(tmp_path / "slices.json", wrong)
    expected = run(*CLASSES, claim("x", "vf"), slices=slices)
    assert (expected[0], expected[1]) == (2, "")
    assert 'ResourceSlice "wrong": the field "driver" is missing' in expected[2]
    monkeypatch.setattr(objects, "_MOST_CHECKED", 0)
    assert run(*CLASSES, claim("x", "vf"), slices=slices) == expected


def test_of_many_slices_plain_values_are_not_kept_and_equal_attributes_are_one_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = as_json_list(tmp_path / "slices.json")
    expected = objects.read([str(slices)], "slices").of(ResourceSlice)
    monkeypatch.setattr(objects, "_MOST_CHECKED", 1)
    read = objects.read([str(slices)], "slices")
    first, *others = read.entries(ResourceSlice)
    assert "spec" in first.value
    assert not [entry for entry in others if "spec" in entry.value]
    assert others
    assert read.of(ResourceSlice) == expected
    devices = [found for published in read.of(ResourceSlice)[1:] for found in published.spec.devices]
    types = {id(found.attributes["type"]): found.attributes["type"].string for found in devices}
    assert len(types) == len({*types.values()}) < len(devices)


def test_claims_that_fit_are_shown_with_their_devices(run: Any) -> None:
    code, out, _ = run(*CLASSES, claim("x", "vf"), claim("y", "vf", "ResourceClaimTemplate"))
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert rows[1:] == [
        ["x", "allocated", "worker-1", "net", "enp3s0f0v0", "worker-1/sriov-enp3s0f0"],
        ["y", "allocated", "worker-1", "net", "enp3s0f0v1", "worker-1/sriov-enp3s0f0"],
    ]


def test_a_claim_that_does_not_fit_is_explained_and_gives_exit_code_1(run: Any) -> None:
    code, out, _ = run(*CLASSES, claim("x", "vf"), claim("y", "passthrough", count=2))
    assert code == 1
    assert "y      refused" in out
    assert "PF enp3s0f0-passthrough: requires exclusion-slots 9, 8 available: VF enp3s0f0v0 is held by claim x" in out
    assert out.endswith("\n1 claim rejected\n")


def test_json_and_yaml_hold_the_allocation_and_the_reasons(run: Any) -> None:
    documents = (*CLASSES, claim("x", "vf"), claim("y", "passthrough", count=2))
    code, out, _ = run(*documents, arguments=("--output", "json"))
    data = json.loads(out)
    fits, refused = data["claims"]
    assert (code, data["refused"], fits["claim"], fits["result"], fits["node"]) == (
        1, 1, "default/x", "allocated", "worker-1",
    )  # fmt: skip
    assert fits["allocation"]["devices"]["results"][0]["device"] == "enp3s0f0v0"
    assert refused["result"] == "refused"
    assert "\n".join(refused["why"]).startswith("worker-1:")
    kinds = {each["kind"]: each["devices"] for each in refused["nodes"][0]["requests"][0]["obstacles"]}
    assert kinds["counters"] == ["PF enp3s0f0-passthrough"]
    _, out, _ = run(*documents, arguments=("--output", "yaml"))
    assert yaml.safe_load(out) == data


def test_claims_that_are_allocated_in_the_file_hold_their_devices(run: Any) -> None:
    _, out, _ = run(*CLASSES, claim("x", "vf"), arguments=("--output", "json"))
    held = claim("x", "vf") | {"status": {"allocation": json.loads(out)["claims"][0]["allocation"]}}
    code, out, _ = run(*CLASSES, claim("y", "vf"), held)
    rows = [line.split()[:2] + line.split()[-2:-1] for line in out.splitlines()[1:]]
    assert (code, rows) == (0, [["y", "allocated", "enp3s0f0v1"], ["x", "held", "enp3s0f0v0"]])


def test_claims_are_read_from_standard_input_and_further_files(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = json.dumps({"kind": "List", "items": [*CLASSES, claim("in", "vf")]})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
    more = tmp_path / "more.json"
    more.write_text(json.dumps(claim("more", "vf")))
    code, out, _ = run(claims="-", arguments=(str(more),))
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, ["CLAIM", "in", "more"])


def test_admin_access_needs_its_namespace_to_be_named(run: Any) -> None:
    look = claim("look", "vf", adminAccess=True)
    code, out, _ = run(*CLASSES, look)
    assert code == 1
    assert "adminAccess requires the label" in out
    assert run(*CLASSES, look, arguments=("--admin-namespace", "default"))[0] == 0


@pytest.mark.parametrize(
    ("documents", "arguments", "message"),
    [
        (CLASSES, (), "ResourceClaim or ResourceClaimTemplate not found"),
        ([claim("x", "vf"), claim("x", "vf")], (), '"default/x" occurs twice'),
        ([claim("x", "vf")], ("--node", "worker-2"), "no slice is for it; the nodes are worker-1"),
        ([claim("x", "vf", count="two")], (), "count"),
        ([*CLASSES, claim("x", "vf", count=-1)], (), 'request "net": count -1 is not above 0'),
        ([{"kind": "Pod"}], (), "kind 'Pod' is not known here"),
    ],
)
def test_bad_input_exits_with_code_2_and_a_message(run: Any, documents: Any, arguments: Any, message: str) -> None:
    code, out, err = run(*documents, arguments=arguments)
    assert (code, out) == (2, "")
    assert message in err


def topology(kind: str) -> dict[str, Any]:
    step = {"name": "nic", "type": kind, "selector": {"cel": 'device.attributes["dra.networking"].type == "vf"'}}
    version = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "NetworkTopology"}
    return {**version, "metadata": {"name": "net"}, "spec": {"steps": [step]}}


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"x": [1]}}


def test_simulate_uses_the_nodes_in_the_files_as_the_only_nodes(run: Any, tmp_path: Path) -> None:
    """A slice for the nodes of a rack is for those that have its label; a node that is not there gets nothing."""
    racks = written("racks", devices=[device()], nodeSelector=selector("rack", "a7"))
    file = tmp_path / "slices.yaml"
    file.write_text(yaml_text.dump([racks, written("gone", devices=[device()], nodeName="gone")]))
    classes = [device_class("any", 'device.driver == "dra.networking"')]
    code, out, _ = run(*classes, claim("x", "any"), node("b1", rack="b1"), node("a1", rack="a7"), slices=file)
    assert code == 0
    assert out.splitlines()[1].split()[:3] == ["x", "allocated", "a1"]
    code, out, _ = run(*classes, claim("x", "any"), node("b1", rack="b1"), slices=file)
    assert (code, "gone" in out) == (1, False)
    code, _, err = run(*classes, claim("x", "any"), node("b1"), slices=file, arguments=("--node", "a1"))
    assert code == 2
    assert '--node "a1": no Node has this name; the nodes are b1' in err


def selector(label: str, value: str) -> dict[str, Any]:
    wanted = {"key": label, "operator": "In", "values": [value]}
    return {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}


def test_slices_of_another_layout_are_reported_with_the_reason_they_are_skipped(run: Any, tmp_path: Path) -> None:
    counters = {"name": "pf0", "counters": {"slots": {"value": "2"}}}
    former = {"name": "v0", "basic": {"attributes": {"type": {"string": "vf"}}}}
    file = tmp_path / "slices.yaml"
    file.write_text(yaml_text.dump([written("both", sharedCounters=[counters], devices=[former])]))
    code, out, err = run(*CLASSES, claim("x", "vf"), slices=file)
    assert code == 1
    assert 'pool worker-1/pf0: 1 device is skipped: slice "both" has sharedCounters' in out
    assert err.count('unknown field "basic"') == 1
    assert 'ResourceSlice "both": rejected by the API server: it has devices and sharedCounters' in err
    _, out, _ = run(*CLASSES, claim("x", "vf"), slices=file, arguments=("-o", "json"))
    assert len(json.loads(out)["problems"]) == 2


def test_classes_of_topologies_exist_and_a_written_class_overrides_them(run: Any) -> None:
    wanted = claim("x", "net-nic")
    wanted["spec"]["devices"]["requests"][0]["name"] = "nic"
    code, out, _ = run(topology("sriov"), wanted)
    assert code == 0
    assert "enp3s0f0v0" in out
    code, out, _ = run(topology("macvlan"), wanted)
    assert code == 1
    code, out, _ = run(topology("macvlan"), device_class("net-nic", f'{TYPE} == "vf"'), wanted)
    assert code == 0


def slices(pfs: int, each: int, *, lanes: bool) -> list[dict[str, Any]]:
    """ResourceSlices of a node with so many PFs, each with so many VFs or lanes."""
    room = {"dra.networking/vfs": {"value": "8", "requestPolicy": {"default": "1"}}}
    shared = {"allowMultipleAllocations": True, "capacity": room} if lanes else {}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"n1-{pf}"},
            "spec": {
                "driver": "dra.networking",
                "nodeName": "n1",
                "pool": {"name": f"n1/{pf}", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {
                        "name": f"pf{pf}-{number}",
                        "attributes": {"type": {"string": "vf"}, "pfName": {"string": f"pf{pf}"}},
                        **shared,
                    }
                    for number in range(each)
                ],
            },
        }
        for pf in range(pfs)
    ]


def rails(count: int) -> dict[str, Any]:
    """A claim for a device of each of so many PFs."""
    asked = claim("rails", "vf")
    asked["spec"]["devices"]["requests"] = [
        {
            "name": f"r{pf}",
            "exactly": {
                "deviceClassName": "vf",
                "selectors": [{"cel": {"expression": f'device.attributes["dra.networking"].pfName == "pf{pf}"'}}],
            },
        }
        for pf in range(count)
    ]
    return asked


def test_a_claim_that_fits_and_that_the_scheduler_may_not_get_to_the_end_with_is_warned_of(
    run: Any, tmp_path: Path
) -> None:
    def of(*documents: dict[str, Any], there: list[dict[str, Any]], output: str = "table") -> tuple[int, str, str]:
        path = tmp_path / "slices.yaml"
        path.write_text(yaml_text.dump(there))
        return run(*documents, slices=path, arguments=("--output", output))  # type: ignore[no-any-return]

    there = slices(8, 16, lanes=False)
    code, out, err = of(*CLASSES, rails(8), there=there)
    assert (code, out.splitlines()[1].split()[:3]) == (0, ["rails", "allocated", "n1"])
    assert 'claim "rails": if a request cannot be allocated on node n1, kube-scheduler visits up to' in err
    assert "offer the VFs together (pooledVFs in their policy), in few lanes" in err
    _, out, err = of(*CLASSES, rails(8), there=there, output="json")
    assert err == ""
    assert [len(each["warnings"]) for each in json.loads(out)["claims"]] == [1]
    assert of(*CLASSES, rails(8), there=slices(8, 4, lanes=True))[2] == ""
    code, out, err = of(*CLASSES, claim("two", "vf", count=2), there=slices(1, 1, lanes=True))
    assert (code, "1 claim rejected" in out) == (1, True)
    assert 'claim "two", request "net": 2 devices are requested, but only 1 matches on any node' in err
    assert "a request cannot get the same shared device twice" in err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((), 1, "does not have the capacity slots"),
        (("--kubernetes-version=1.38",), 0, "slots"),
        (("--kubernetes-version=v1.37.2",), 1, "does not have the capacity slots"),
        (("--kubernetes-version=1.20",), 2, "Kubernetes 1.20 is not supported; use 1.36 or a newer version"),
        (("--kubernetes-version=new",), 2, '"new" is not a version of Kubernetes; use 1.36 or a newer version'),
    ],
)
def test_claims_are_allocated_by_the_rules_of_the_specified_version(
    run: Any, tmp_path: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    amount = {"value": "4", "requestPolicy": {"default": "1"}}
    published = device("a", allowMultipleAllocations=True, capacity={"dra.networking/slots": amount})
    path = tmp_path / "slices.yaml"
    path.write_text(yaml_text.dump([written(devices=[published])]))
    wanted = claim("c", "any", capacity={"requests": {"slots": "2"}})
    ended, out, err = run(device_class("any", "true"), wanted, arguments=arguments, slices=path)
    assert (ended, text in out + err) == (code, True)
