"""The environment of pods with netdra's driver: published interfaces of the node, policies, topologies, its rights.

The interfaces are made by iproute2. The controller's part, a topology's DeviceClasses, is done here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from netdra.model.topology import NetworkTopology
from netdra.topology.classes import device_classes
from testbed.access import Access
from testbed.api import Api, ApiError, Object
from testbed.control_plane import ControlPlane
from testbed.driver import Driver
from testbed.node import Node
from testbed.objects import SLICE, manifest
from testbed.workspace import Workspace
from tests.cluster import identities

POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"


@contextmanager
def running_driver(node: Node, plane: ControlPlane, api: Api) -> Iterator[Driver]:
    """A driver that runs, with a policy for interfaces whose names begin with `nic` and one for those with `mac`."""
    number = uuid.uuid4().hex[:6]
    slots = {"slots": {"value": "8", "requestPolicy": {"default": "1"}}}
    policies = (
        policy(f"whole-{number}", "nic", {"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]}),
        policy(
            f"shared-{number}",
            "mac",
            {"allowMultipleAllocations": True, "supportedCNIPlugins": [{"name": "macvlan"}], "capacity": slots},
        ),
    )
    for each in policies:
        api.create(each)
    driver = Driver(node, account(node, plane, api))
    driver.start()
    try:
        yield driver
    finally:
        driver.process.stop()
        for each in policies:
            api.delete(POLICY, each["metadata"]["name"])


def publish(node: Node, api: Api, *interfaces: str) -> None:
    """Make veth devices of a node, and wait until they are published."""
    for name in interfaces:
        node.run("ip", "link", "add", name, "type", "veth", "peer", "name", f"far-{name}")
        node.run("ip", "link", "set", f"far-{name}", "up")
        node.run("ip", "link", "set", name, "up")
    wanted = set(interfaces)

    def there(found: list[Object]) -> bool:
        devices = (device for each in found for device in each["spec"].get("devices", []))
        return wanted <= {if_name(device) for device in devices}

    api.wait_for_all(SLICE, there, fields=f"spec.nodeName={node.name}")


def if_name(device: Object) -> str:
    """A published device's interface; former versions published the attribute with netdra's domain."""
    attributes = {name.removeprefix("dra.networking/"): value for name, value in device["attributes"].items()}
    found: str = attributes["ifName"]["string"]
    return found


def links(node: Node) -> set[str]:
    """A node's own interfaces."""
    found = node.run("ip", "-o", "link", "show")
    return {line.split(": ")[1].split("@")[0] for line in found.splitlines()}


def policy(name: str, prefix: str, exposure: Mapping[str, Any]) -> Object:
    """A policy for interfaces whose names begin so."""
    cel = f'device.attributes["dra.networking"].ifName.startsWith("{prefix}")'
    return manifest(POLICY, name, spec={"selector": {"cel": cel}, "exposure": dict(exposure)})


def make_topology(workspace: Workspace, base: str, *steps: Object, exact: bool = False) -> str:
    """Make a topology with its DeviceClasses; return its name, which no other test has unless it is to be exact."""
    name = base if exact else workspace.name(base)
    whole = manifest(TOPOLOGY, name, spec={"steps": list(steps)})
    workspace.create(whole)
    for each in device_classes(msgspec.convert(whole, NetworkTopology)):
        try:
            workspace.create(msgspec.to_builtins(each))
        except ApiError as problem:
            if problem.code != HTTPStatus.CONFLICT:  # a controller that runs beside the test was first
                raise
    return name


def step(name: str, kind: str, config: Mapping[str, Any] | None = None, after: str = "", prefix: str = "") -> Object:
    """A step; without a dependency it is a root step for devices whose interfaces' names begin so."""
    cel = f'device.attributes["dra.networking"].ifName.startsWith("{prefix}")'
    place: Object = {"dependOn": [after]} if after else {"selector": {"cel": cel}}
    return {"name": name, "type": kind, **place, **({"config": dict(config)} if config else {})}


def account(node: Node, plane: Access, api: Api) -> Path:
    """The driver's own rights, with a token that is bound to its node."""
    identities.install(api)
    return identities.kubeconfig(plane, api, "netdra-node", node.name)
