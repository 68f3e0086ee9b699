"""Requests as the API server sends them to the webhook, of every kind that it asks about; used by `bench.webhook`.

A hundred in a row are as a cluster's could be in a busy moment: most claims are other drivers', some are for one of the
topologies, one of them lacks a step, and administrators write one object of each of netdra's own kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from testbed.api import Object
from testbed.objects import manifest

TOPOLOGIES = 100
NODES = 60
"""How many nodes report; what a policy does to the devices of all of them is told with the verdict on it."""
TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
LACKING = "a claim that lacks a step"
_POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
_SCHEMA = "cni.networking.k8s.io/v1alpha1/CNIPluginSchema"
_CUSTOM_DEVICE = "networking.dra.io/v1alpha1/CustomDevice"
_NODE_NETWORK = "networking.dra.io/v1alpha1/NodeNetwork"
_CLAIM = "resource.k8s.io/v1/ResourceClaim"
_TEMPLATE = "resource.k8s.io/v1/ResourceClaimTemplate"


@dataclass(frozen=True)
class Kind:
    """One kind of request.

    Attributes:
        share: how many of a hundred are of it.
        make: the number-th object as it will be, and as it was.
        allowed: what the webhook must state.
    """

    share: int
    make: Callable[[int], tuple[Object, Object | None]]
    allowed: bool = True


def topology(number: int) -> Object:
    """The number-th topology of the cluster: two VFs and their bond."""
    steps = [{"name": name, "type": "sriov", "selector": {"cel": "true"}} for name in ("vf0", "vf1")]
    links = [{"name": f"{{{{ {name}.interfaceName }}}}"} for name in ("vf0", "vf1")]
    config = {"mode": "active-backup", "links": links}
    bond = {"name": "bond0", "type": "bond", "dependOn": ["vf0", "vf1"], "config": config}
    return manifest(TOPOLOGY, f"net{number % TOPOLOGIES}", spec={"steps": [*steps, bond]})


def node_network(number: int) -> tuple[Object, Object]:
    """The number-th node's report, the object and its status: two PFs, 128 VFs, some NICs and bridges, pods' veths."""
    spread = {"policies": {"vfs": "wins"}, "varying": ["mac", "pciAddress", "vfIndex", "ifName"], "state": "up"}
    groups: list[Object] = [
        {"type": "veth", "count": 200, "reason": "no policy matches it", "varying": ["mac", "ifName"]},
        {"type": "loopback", "count": 1, "attributes": {"ifName": "lo", "mtu": 65536}},
    ]
    for port in range(2):
        facts = {"mtu": 1500, "driver": "mlx5_core", "vendor": "15b3", "numaNode": port, "linkSpeed": 100_000}
        address, mac = f"0000:0{port + 3}:00.0", f"02:00:00:{port:02x}:{number // 256:02x}:{number % 256:02x}"
        own = {**facts, "ifName": f"p{port}", "pciAddress": address, "mac": mac, "numVFs": 64}
        groups.append({"type": "pf", "state": "up", "count": 1, "names": [f"p{port}"], "attributes": own})
        for allocated in (False, True):
            names = [f"p{port}v{index}" for index in range(64) if (index % 8 == number % 8) == allocated]
            devices = [{"policy": "vfs", "allocated": allocated}]
            common = {**facts, "pfName": f"p{port}"}
            more = {"count": len(names), "names": names, "devices": devices, "attributes": common}
            groups.append({"type": "vf", "vfNames": f"p{port}v", **spread, **more})
    for name, kind in (("eno1", "nic"), ("eno2", "nic"), ("br0", "bridge"), ("br-int", "openvswitch")):
        mac = f"06:00:00:00:{number // 256:02x}:{number % 256:02x}"
        groups.append({"type": kind, "count": 1, "names": [name], "attributes": {"ifName": name, "mac": mac}})
    return manifest(_NODE_NETWORK, f"node{number}"), {"interfaces": groups}


def vf_policy() -> Object:
    """The policy that the nodes' VFs are offered by."""
    exposure = {"supportedCNIPlugins": [{"name": "sriov", "exclusive": True}]}
    selector = {"cel": 'device.attributes["dra.networking"].type == "vf"'}
    return manifest(_POLICY, "vfs", spec={"selector": selector, "exposure": exposure})


def _new_topology(number: int) -> tuple[Object, None]:
    made = topology(number)
    return {**made, "metadata": {"name": f"new{number}"}}, None


def _changed_topology(number: int) -> tuple[Object, Object]:
    old, new = topology(number), topology(number)
    new["spec"]["steps"][0]["selector"]["cel"] = f'device.attributes["dra.networking"].numaNode == {number % 8}'
    return new, old


def _policy(number: int) -> tuple[Object, None]:
    """Every second one is for VFs, the others for an interface of a name."""
    if number % 2:
        text = f'device.attributes["dra.networking"].ifName == "p{number % 3}"'
        return manifest(_POLICY, f"policy{number}", spec={"selector": {"cel": text}, "action": "exclude"}), None
    text = f'device.attributes["dra.networking"].type == "vf" && device.attributes["dra.networking"].mtu > {number}'
    exposure = {"supportedCNIPlugins": [{"name": "sriov", "exclusive": True}]}
    return manifest(_POLICY, f"policy{number}", spec={"selector": {"cel": text}, "exposure": exposure}), None


def _schema(number: int) -> tuple[Object, None]:
    parameters = {"optional": [{"name": "mode", "type": "string"}, {"name": "number", "type": "integer"}]}
    return manifest(
        _SCHEMA, f"schema{number}", spec={"cniType": f"plugin{number}", "configParameters": parameters}
    ), None


def _custom_device(number: int) -> tuple[Object, None]:
    spec = {"provider": "example.com", "device": f"eth{number}", "attributes": {"rack": {"string": "r1"}}}
    return manifest(_CUSTOM_DEVICE, f"device{number}", spec=spec), None


def _claim(*steps: str) -> Callable[[int], tuple[Object, None]]:
    return lambda number: (manifest(_CLAIM, "claim", "team", spec={"devices": _devices(number, steps)}), None)


def _template(number: int) -> tuple[Object, None]:
    spec = {"spec": {"devices": _devices(number, ("vf0", "vf1"))}}
    return manifest(_TEMPLATE, "template", "team", spec=spec), None


def _devices(number: int, steps: tuple[str, ...]) -> Object:
    classes = {"gpu": "gpu"} | {step: f"net{number % TOPOLOGIES}-{step}" for step in steps}
    return {"requests": [{"name": name, "exactly": {"deviceClassName": each}} for name, each in classes.items()]}


KINDS: Mapping[str, Kind] = {
    "another driver's claim": Kind(80, _claim()),
    "a topology's claim": Kind(12, _claim("vf0", "vf1")),
    "a template": Kind(2, _template),
    LACKING: Kind(1, _claim("vf0"), allowed=False),
    "a new topology": Kind(1, _new_topology),
    "a changed topology": Kind(1, _changed_topology),
    "a policy": Kind(1, _policy),
    "a schema": Kind(1, _schema),
    "a custom device": Kind(1, _custom_device),
}
_HUNDRED = [name for name, kind in KINDS.items() for _ in range(kind.share)]


def mixed(number: int) -> str:
    """The kind of the number-th request of a busy cluster: each hundred has all of them, none next to one another."""
    return _HUNDRED[number * 37 % len(_HUNDRED)]


def body(name: str, number: int) -> bytes:
    """The number-th AdmissionReview of a kind."""
    new, old = KINDS[name].make(number)
    group, _, version = new["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": new["kind"]}
    request: dict[str, Any] = {
        "uid": str(number),
        "kind": kind,
        "operation": "UPDATE" if old else "CREATE",
        "name": new["metadata"]["name"],
        "object": new,
        "oldObject": old,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
