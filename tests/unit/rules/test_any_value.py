"""No value in any place of an object ends a rule with an error of Python: each place with a value of each JSON type.

The API server cannot check what is in a step's `config`, in the parameters of a class or of a claim, or in a default of
a schema. A webhook's worker, `netdra validate`, `netdra doctor` and `netdra why` apply the rules to any of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from netdra.admission.messages import AdmissionRequest, Kind
from netdra.admission.requests import verdict_on
from netdra.cli.validate import command as validate
from netdra.controller import worker
from netdra.model import documents
from netdra.model.errors import InvalidInputError
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.topology import NetworkTopology
from netdra.review.world import World
from netdra.rules import bonds, runnable
from testbed import yaml
from tests.documents import HERE as DOCUMENTS

ROOT = Path(__file__).parents[3]
MAPS = ("attributes", "capacity", "counters")
"""Fields whose keys are names of the author's."""
VALUES = (None, 7, "text", [1], {"a": [1]})
BOND = """
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: bond}
spec:
  steps:
    - {name: vf0, type: sriov, selector: {cel: "true"}, config: {spoofchk: "on", vlan: 3}}
    - {name: vf1, type: sriov, selector: {cel: "true"}}
    - name: bond0
      type: bond
      dependOn: [vf0, vf1]
      config:
        mode: active-backup
        failOverMac: active
        primary: "{{ vf0.interfaceName }}"
        links: [{name: "{{ vf0.interfaceName }}"}, {name: "{{ vf1.interfaceName }}"}]
        ipam: {type: static, addresses: [{address: 10.0.0.2/24, gateway: 10.0.0.1}], routes: [{dst: 0.0.0.0/0}]}
"""


def sound() -> dict[str, list[Any]]:
    """Objects by kind: those of `tests/mistakes`, of the documents, and of the examples."""
    texts = [BOND]
    for path in sorted((ROOT / "tests" / "mistakes").glob("*.yaml")):
        written = yaml.safe_load(path.read_text())
        texts += [str(text) for text in written.get("objects", {}).values()]
    for folder in (DOCUMENTS, ROOT / "examples"):
        texts += [path.read_text() for path in sorted(folder.rglob("*.yaml"))]
    found: dict[str, list[Any]] = {}
    for text in texts:
        for each in yaml.safe_load_all(text):
            if isinstance(each, dict) and each.get("kind") in documents.KINDS and "apiVersion" in each:
                found.setdefault(each["kind"], []).append(each)
    return found


SOUND = sound()


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all values in an object, but for its kind, version and metadata."""
    entries: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        if path or key not in ("kind", "apiVersion", "metadata"):
            yield (*path, key)
            yield from places(entry, (*path, key))


def with_value(whole: Any, path: tuple[str | int, ...], value: Any) -> Any:
    changed = deepcopy(whole)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


def shapes(kind: str) -> Iterator[Any]:
    """Objects of a kind with one value replaced; each place by its names is tried once."""
    tried: set[tuple[Any, ...]] = set()
    for whole in SOUND[kind]:
        for path in places(whole):
            steps = whole.get("spec", {}).get("steps", [])
            plugin = steps[path[2]].get("type") if path[:2] == ("spec", "steps") and len(path) > 2 else ""
            shape = (
                plugin,
                *(key if isinstance(key, str) and before not in MAPS else 0 for before, key in pairwise(("", *path))),
            )
            if shape not in tried:
                tried.add(shape)
                yield from (with_value(whole, path, value) for value in VALUES)


def reviewed(value: Any) -> None:
    group, _, version = value["apiVersion"].rpartition("/")
    name = value["metadata"]["name"]
    request = AdmissionRequest(
        uid="1",
        kind=Kind(group, version, value["kind"]),
        operation="CREATE",
        name=name,
        object=msgspec.Raw(msgspec.json.encode(value)),
    )
    verdict_on(request, World())


def ruled(value: Any) -> None:
    """The rules that `doctor`, `why` and the controller apply to stored objects."""
    try:
        document = documents.convert(value, documents.KINDS[value["kind"]], "test")
    except InvalidInputError:
        return
    if isinstance(document, NetworkTopology):
        list(bonds.one_mac(document))
        list(runnable.check_topology(document, [], frozenset(), frozenset()))
        worker.answer(msgspec.json.encode(worker.TopologyTask(document, World())))
    if isinstance(document, DeviceExposurePolicy):
        worker.answer(msgspec.json.encode(worker.PolicyTask(document, World())))


@pytest.mark.parametrize("kind", sorted(SOUND))
def test_a_value_of_any_type_in_any_place_is_a_finding_or_none(kind: str, tmp_path: Path) -> None:
    files = []
    for number, value in enumerate(shapes(kind)):
        value["metadata"] = value["metadata"] | {"name": f"{value['metadata']['name'][:40]}-{number}"}
        try:
            reviewed(value)
            ruled(value)
        except Exception as error:
            raise AssertionError(yaml.safe_dump(value)) from error
        files.append(value)
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(files))
    done = CliRunner().invoke(validate, [str(tmp_path)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception


TAKES_A_VALUE = """
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: rails}
spec:
  parameters: [{name: vlan, type: integer, minimum: 1, maximum: 4094}]
  steps:
    - {name: vf0, type: sriov, selector: {cel: "true"}}
    - {name: data0, type: vlan, dependOn: [vf0], config: {name: data0, vlanId: "{{ params.vlan }}"}}
"""
GIVES_A_VALUE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: rails, namespace: default}
spec:
  spec:
    devices:
      requests: [{name: vf0, exactly: {deviceClassName: rails-vf0}}]
      config:
        - opaque:
            driver: dra.networking
            parameters: {apiVersion: networking.dra.io/v1alpha1, kind: ParameterValues, values: {vlan: 12}}
"""


def test_a_claim_that_gives_values_to_a_wrong_topology_is_checked_with_the_rest(tmp_path: Path) -> None:
    given, asked = yaml.safe_load(TAKES_A_VALUE), yaml.safe_load(GIVES_A_VALUE)
    wrong = 0
    for path in places(given):
        for value in (None, [1], "a/b", "{{ vf1.interfaceName }}"):
            (tmp_path / "all.yaml").write_text(yaml.safe_dump_all((with_value(given, path, value), asked)))
            done = CliRunner().invoke(validate, [str(tmp_path)])
            assert done.exception is None or isinstance(done.exception, SystemExit), (path, value, done.exception)
            wrong += done.exit_code
    assert wrong > 30


@pytest.mark.parametrize("name", ["storage.rack1", "10.0.0.1", "n" * 64])
def test_the_name_of_a_pod_network_is_checked_as_the_api_server_does(name: str, tmp_path: Path) -> None:
    network = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "PodNetwork", "metadata": {"name": name}}
    (tmp_path / "network.yaml").write_text(yaml.safe_dump(network | {"spec": {"ranges": [{"cidr": "10.0.0.0/24"}]}}))
    done = CliRunner().invoke(validate, [str(tmp_path)])
    assert done.exit_code == 1
    assert f'"{name}" is not a valid name of a PodNetwork; the object' in done.output
