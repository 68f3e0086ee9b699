"""Optional objects of every kind can be filled, written as {}, and removed, by client-side and server-side apply.

The optional objects are those of the definitions' schemas. Those of one depth change together, in the first of the
kind's filled specs that has them.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import yaml

from netdra.model import crd, kinds
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from tests.custom_objects import GOOD, POD_NETWORK, SCHEMA, SLOTS

pytestmark = pytest.mark.usefixtures("custom_kinds")

NODES = {
    "matchLabels": {"rack": "a"},
    "matchExpressions": [{"key": "net", "operator": "In", "values": ["fast"]}],
}
PLUGIN_SCHEMA = GOOD[SCHEMA] | {
    "configParameters": {
        "required": [{"name": "links", "type": "[]object", "properties": {"name": {"type": "string"}}}],
        "optional": [{"name": "options", "type": "object", "properties": {"name": {"type": "string"}}}],
    },
    "input": {
        "prevResult": {
            "required": True,
            "interfaces": {"minItems": 1},
            "ips": {"required": True},
            "routes": {"required": True},
        }
    },
    "output": {
        "interfaces": {"appends": 1},
        "ips": {"passthrough": True},
        "routes": {"passthrough": True},
        "devices": {"properties": [{"name": "bus", "type": "object", "properties": {"name": {"type": "string"}}}]},
    },
}
ALL = {"selector": {"cel": "true"}}
PLUGINS = [{"name": "macvlan"}]
FILLED: Mapping[str, Sequence[Object]] = {
    "DeviceExposurePolicy": [
        ALL
        | {
            "nodeSelector": NODES,
            "exposure": {
                "supportedCNIPlugins": PLUGINS,
                "taints": {"gone": "NoExecute"},
                "additionalAttributes": {"rack": 7},
            },
        },
        ALL | {"exposure": {"supportedCNIPlugins": [{"name": "sriov"}], "pooledVFs": {"lanes": 2}}},
        ALL
        | {
            "exposure": {
                "supportedCNIPlugins": PLUGINS,
                "capacity": {"pods": {"valueFrom": {"nodeAllocatable": "pods"}}, "slots": SLOTS},
            }
        },
        ALL
        | {
            "exposure": {
                "supportedCNIPlugins": [{"name": "macvlan", "consumePerAllocation": {"slots": 1}}],
                "capacity": {"slots": SLOTS},
            }
        },
    ],
    "NetworkTopology": [
        {
            "parameters": [{"name": "mtu", "type": "integer"}],
            "steps": [
                {"name": "vf", "type": "sriov", "neutron": {"network": "blue", "assignAddresses": False}}
                | {"sysctls": {"net.ipv6.conf.IFNAME.accept_ra": "0"}}
                | ALL,
                {"name": "tune", "type": "tuning", "dependOn": ["vf"], "config": {"mtu": 1400}},
            ],
        }
    ],
    "CNIPluginSchema": [PLUGIN_SCHEMA],
    "CustomDevice": [
        {
            "provider": "bctl",
            "device": "enp1s0",
            "addIfNotExist": True,
            "selector": {"nodeSelector": NODES},
            "attributes": {"rdma": {"bool": True}},
            "capacity": {"slots": SLOTS},
        }
    ],
    "CNIPlugin": [
        {
            "image": "registry.example.com/bond:v1",
            "binaryPath": "/opt/cni/bin/bond",
            "schema": PLUGIN_SCHEMA,
            "nodeSelector": {"rack": "a"},
        }
    ],
    "PodNetwork": [
        GOOD[POD_NETWORK] | {"ranges": [{"cidr": "10.78.0.0/24", "nodeSelector": NODES}], "limits": {"perNamespace": 4}}
    ],
}
"""Specs by kind, which together have every optional object of the kind's schema with a field in it."""
OF_NETDRA = (kinds.NEUTRON_PORT, kinds.POD_ADDRESS)
"""Kinds with a spec that netdra alone writes."""


REQUIRED_BY_RULE = ("valueFrom",)
"""Objects that a rule of the definition requires where another field is absent."""


class Optional(NamedTuple):
    """An optional object of a kind.

    Attributes:
        path: its place in the spec; `[]` is a list's items, `*` a map's values.
        may_be_empty: whether it has no required field.
    """

    path: tuple[str, ...]
    may_be_empty: bool


def optional_objects(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[Optional]:
    """The optional objects below a schema."""
    for name, field in schema.get("properties", {}).items():
        if field.get("type") == "object" and name not in (*schema.get("required", ()), *REQUIRED_BY_RULE):
            yield Optional((*path, name), not field.get("required"))
        yield from optional_objects(field, (*path, name))
    for word, mark in (("items", "[]"), ("additionalProperties", "*")):
        if isinstance(schema.get(word), dict):
            yield from optional_objects(schema[word], (*path, mark))


def parents(value: Any, path: tuple[str, ...]) -> list[Object]:
    """The objects of a spec that have the last field of a path."""
    found = [value]
    for part in path[:-1]:
        if part in "[]*":
            found = [entry for each in found for entry in (each if part == "[]" else each.values())]
        else:
            found = [each[part] for each in found if part in each]
    return [each for each in found if path[-1] in each]


def changed(filled: Object, state: str, optionals: Sequence[Optional]) -> Object:
    """A spec whose optional objects are `filled`, `empty` or `removed`."""
    spec = copy.deepcopy(filled)
    for optional in optionals if state != "filled" else ():
        for parent in parents(spec, optional.path):
            del parent[optional.path[-1]]
            if state == "empty" and optional.may_be_empty:
                parent[optional.path[-1]] = {}
    return spec


def specs_of(kind: crd.CustomKind) -> Iterator[tuple[Object, list[Optional]]]:
    """The filled specs of a kind, each with optional objects of one depth; all of them together have every one."""
    (version,) = crd.manifest(kind)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"].get("spec", {})
    groups: dict[tuple[int, int], list[Optional]] = {}
    filled = FILLED.get(kind.type.__name__, ())
    for optional in optional_objects(schema):
        first = next((at for at, spec in enumerate(filled) if parents(spec, optional.path)), None)
        assert first is not None, f"no filled spec of {kind.type.__name__} has {'.'.join(optional.path)}"
        groups.setdefault((first, len(optional.path)), []).append(optional)
    yield from ((filled[at], optionals) for (at, _), optionals in groups.items())


STATES = ("filled", "empty", "empty", "removed", "empty", "filled", "removed")
CLIENT: Sequence[str] = ()
SERVER = ("--server-side", "--force-conflicts")
ORDERS = {"client": (CLIENT,), "server": (SERVER,), "client-first": (CLIENT, SERVER), "server-first": (SERVER, CLIENT)}
MIXED = ("client-first", "server-first")


@pytest.mark.parametrize(
    "order", ["client", "server", *(pytest.param(each, marks=pytest.mark.repeats) for each in MIXED)]
)
def test_every_optional_object_can_be_filled_emptied_and_removed(order: str, control_plane: ControlPlane) -> None:
    applied = [each for each in kinds.KINDS if each not in OF_NETDRA]
    changing = [(_name(kind), *each) for kind in applied for each in specs_of(kind)]
    text = ""
    try:
        for state, ways in zip(STATES, itertools.cycle(ORDERS[order])):
            written = [
                manifest(kind, f"{order}-{at}", spec=changed(filled, state, optionals))
                for at, (kind, filled, optionals) in enumerate(changing)
            ]
            text = yaml.safe_dump_all(written)
            answered = json.loads(control_plane.kubectl("apply", *ways, "-o", "json", "-f", "-", text=text))["items"]
            if len(ORDERS[order]) == 1:  # otherwise a field stays that the other way has written
                for object_, stored, (_, _, optionals) in zip(written, answered, changing, strict=True):
                    assert fillings(stored, optionals) == fillings(object_, optionals)
    finally:
        control_plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", text=text)


def fillings(object_: Object, optionals: Sequence[Optional]) -> list[list[bool]]:
    """Whether each optional object of an object has fields; none where it is absent."""
    return [[bool(parent[path[-1]]) for parent in parents(object_["spec"], path)] for path, _ in optionals]


def _name(kind: crd.CustomKind) -> str:
    return f"{kind.group}/{crd.VERSION}/{kind.type.__name__}"
