"""netdra on a node with real pods: its interfaces, what is offered of them, and claims for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netdra.model import names
from testbed.api import Object
from testbed.driver import Driver
from testbed.objects import CLAIM, SLICE, manifest
from testbed.pods import Pods
from testbed.workspace import Workspace

POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
ATTRIBUTES = f'device.attributes["{names.DRIVER}"]'


@dataclass(frozen=True)
class Offer:
    """A test's interfaces on the node, and policies that offer them; all of it goes with the workspace.

    Attributes:
        workspace: where claims are made.
        driver: what publishes the node.
        pods: the test's pods.
    """

    workspace: Workspace
    driver: Driver
    pods: Pods

    def veth(self, name: str, **options: str) -> str:
        """A cable whose first end is a device of the node; the other end is up and stays."""
        run = self.driver.node.run
        run("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}-far")
        run("ip", "link", "set", f"{name}-far", "up")
        run("ip", "link", "set", name, "up", *(word for pair in options.items() for word in pair))
        return name

    def policy(self, name: str, interface: str, **exposure: Any) -> Object:
        """Offer one interface of this node."""
        selector = {
            "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": self.driver.node.name}},
            "cel": f'{ATTRIBUTES}.ifName == "{interface}"',
        }
        spec = {"selector": selector, "exposure": exposure}
        return self.workspace.create(manifest(POLICY, self.workspace.name(name), spec=spec))

    def device_class(self, plugin: str, **config: Any) -> str:
        """A DeviceClass of devices that a plugin can attach."""
        name = self.workspace.name(plugin)
        expression = f'device.driver == "{names.DRIVER}" && {ATTRIBUTES}.supportedCNIs.contains(",{plugin},")'
        spec = {"selectors": [{"cel": {"expression": expression}}], **config}
        self.workspace.create(manifest("resource.k8s.io/v1/DeviceClass", name, spec=spec))
        return name

    def claim(self, name: str, **requests: str) -> str:
        """A claim with a device of a class for each request: request=class."""
        return self.workspace.add_claim(
            name, *({"name": request, "exactly": {"deviceClassName": each}} for request, each in requests.items())
        )

    def published(self) -> Mapping[str, Object]:
        """The node's published devices by name."""
        slices = self.workspace.api.list(SLICE, fields=f"spec.nodeName={self.driver.node.name}")
        return {
            device["name"]: device
            for each in slices
            if each["spec"]["driver"] == names.DRIVER
            for device in each["spec"].get("devices", [])
        }

    def wait_published(self, device: str) -> None:
        """Wait until the node publishes a device of that name."""

        def there(slices: list[Object]) -> bool:
            return any(device == found["name"] for each in slices for found in each["spec"].get("devices", []))

        self.workspace.api.wait_for_all(SLICE, there, fields=f"spec.nodeName={self.driver.node.name}")

    def allocated(self, claim: str) -> Object:
        """A claim as it is now."""
        return self.workspace.api.get(CLAIM, claim, self.workspace.namespace)
