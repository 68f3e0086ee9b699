"""Random single edits of correct objects: the examples, objects generated from them, and an object of each kind.

Drawn by the unit tests of `netdra validate`, and by those that compare it with a cluster.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from netdra.model import documents
from netdra.model.topology import NetworkTopology
from netdra.topology.classes import device_classes
from testbed import yaml
from testbed.api import Object
from testbed.objects import manifest
from tests.custom_objects import GOOD

ROOT = Path(__file__).parents[1]
FILES = sorted(path for path in (ROOT / "examples").rglob("*.yaml") if path.name not in {"wrong.yaml", "slices.yaml"})
NAMESPACED = {"ResourceClaim", "ResourceClaimTemplate", "Pod", "StatefulSet", "Deployment", "Service"}
OF_OTHERS = ("ResourceSlice", "StatefulSet", "Job", "Service", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
"""Kinds that validate reads no more of than what concerns claims."""
READ_OF_PODS = {"resourceClaims", "claims"}
"""The fields of a pod that validate reads in full; others are the business of the API server alone."""
RICH: Object = {
    "requests": [
        {
            "name": "nic",
            "exactly": {
                "deviceClassName": "any-nic",
                "selectors": [{"cel": {"expression": 'device.driver == "dra.networking"'}}],
                "allocationMode": "ExactCount",
                "count": 2,
                "adminAccess": False,
                "tolerations": [
                    {"key": "dra.networking/link-down", "operator": "Exists", "effect": "NoSchedule"},
                    {"key": "example.com/spare", "operator": "Equal", "value": "yes", "tolerationSeconds": 30},
                ],
                "capacity": {"requests": {"dra.networking/bandwidth": "10"}},
            },
        },
        {
            "name": "gpu",
            "firstAvailable": [
                {"name": "big", "deviceClassName": "gpu.example.com", "count": 1},
                {"name": "small", "deviceClassName": "gpu.example.com", "allocationMode": "All"},
            ],
        },
    ],
    "constraints": [
        {"requests": ["nic", "gpu"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
        {"requests": ["gpu/big"], "distinctAttribute": "gpu.example.com/model"},
    ],
    "config": [{"requests": ["gpu"], "opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}],
}


def drawn(draw: random.Random, count: int, known: Sequence[Object] = ()) -> Iterator[tuple[str, Object]]:
    """Edits, each with a description; every kind is drawn as often as another.

    Args:
        draw: where they are drawn from.
        count: how many.
        known: the objects that are edited; all if none exist.
    """
    by_kind: dict[str, list[Object]] = {}
    for each in known or objects():
        by_kind.setdefault(each["kind"], []).append(each)
    for _ in range(count):
        yield edited(draw, draw.choice(by_kind[draw.choice(sorted(by_kind))]))


def namespace_of(value: Object) -> str:
    """The namespace in which an object is written; "" if its kind is in none."""
    return "default" if value["kind"] in NAMESPACED else ""


def objects() -> list[Object]:
    """The objects of the examples, the classes of their topologies, and claims and a class with every field."""
    found: list[Object] = []
    for path in FILES:
        found += [
            each
            for each in yaml.safe_load_all(path.read_text())
            if each and each.get("kind", OF_OTHERS[0]) not in OF_OTHERS
        ]
    for topology in [each for each in found if each["kind"] == "NetworkTopology"]:
        read = documents.decode(topology, "example")
        assert isinstance(read, NetworkTopology)
        found += [documents.plain(each) for each in device_classes(read)]
    metadata = {"name": "rich", "labels": {"app": "web"}, "annotations": {"example.com/note": "x"}}
    rich: Object = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
    found.append({**rich, "spec": {"devices": RICH}})
    found.append({**rich, "kind": "ResourceClaimTemplate", "spec": {"metadata": {}, "spec": {"devices": RICH}}})
    spec = {
        "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}],
        "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}],
        "extendedResourceName": "example.com/gpu",
    }
    found.append({**rich, "kind": "DeviceClass", "spec": spec})
    claims = [{"name": "net", "request": "a"}, {"name": "net", "request": "b"}, {"name": "own"}]
    pod = {
        "containers": [{"name": "main", "image": "web", "resources": {"claims": claims}}],
        "resourceClaims": [
            {"name": "net", "resourceClaimName": "shared"},
            {"name": "own", "resourceClaimTemplateName": "each"},
        ],
    }
    found.append({**rich, "apiVersion": "v1", "kind": "Pod", "spec": pod})
    present = {each["kind"] for each in found}
    for kind, spec in GOOD.items():
        if kind.rpartition("/")[2] not in present:
            found.append(manifest(kind, "good", spec=copy.deepcopy(spec)))
    for each in found:
        place = {"namespace": namespace_of(each)} if namespace_of(each) else {}
        each["metadata"] = {key: inner for key, inner in each["metadata"].items() if key != "namespace"} | place
    return [each for each in found if editable(each)]


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """All places in an object, apart from its kind and its namespace."""
    if path and path not in {("kind",), ("apiVersion",), ("metadata",), ("metadata", "namespace")}:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from places(inner, (*path, at))


def editable(value: Object) -> list[tuple[str | int, ...]]:
    """The places in an object that are edited."""
    if value["kind"] != "Pod":
        return list(places(value))
    return [path for path in places(value) if READ_OF_PODS & set(path[:-1])]


def other_values(draw: random.Random, value: Any) -> Any:
    """A value of another type, or out of a value's range."""
    texts = ["", "x" * 300, "A b_", "-", "a/b/c", "0", "true"]
    numbers: list[Any] = [-1, 0, 33, 10**6, 2**63, 1.5]
    if isinstance(value, bool):
        return draw.choice(["yes", 1, [value], None])
    if isinstance(value, int):
        return draw.choice([*numbers, str(value), f"{value}x", [value], None])
    if isinstance(value, str):
        return draw.choice([*texts, *texts, f"{value}.", value.upper(), value[:-1], 7, True, [value], {"a": value}])
    if isinstance(value, list):
        return draw.choice([{}, "x", [[]], value * 33, {str(at): each for at, each in enumerate(value)}])
    return draw.choice(["x", [], [value], 5])


def edited(draw: random.Random, value: Object) -> tuple[str, Object]:
    """An object with one edit, and the edit in words."""
    new = copy.deepcopy(value)
    path = draw.choice(editable(new))
    *way, last = path
    parent: Any = new
    for part in way:
        parent = parent[part]
    action = draw.choice(["remove", "rename", "change", "change", "change", "repeat"])
    if isinstance(parent, list) and action in {"rename", "repeat"}:
        parent.append(copy.deepcopy(parent[int(last)]))
        action = "repeat"
    elif action == "rename":
        wrong = draw.choice([f"{last}s", str(last)[:-1], str(last).capitalize(), "unknown"])
        parent[wrong] = parent.pop(last)
        action = f"rename to {wrong}"
    elif action == "remove":
        del parent[last]
    else:
        parent[last] = other_values(draw, parent[last])
        action = f"change to {str(parent[last])[:60]}"
    return f"{value['kind']} {value['metadata']['name']}: {'.'.join(map(str, path))}: {action}", new
