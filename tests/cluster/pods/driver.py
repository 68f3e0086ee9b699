"""netdra on a node with real pods: its interfaces, the offered devices, and claims for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from netdra.model import names
from testbed.api import Object
from testbed.driver import Driver
from testbed.node import CommandError
from testbed.objects import CLAIM, CLASS, POD, SLICE, manifest
from testbed.pods import Pods
from testbed.workspace import Workspace

POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
TEMPLATE = "resource.k8s.io/v1/ResourceClaimTemplate"
TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
ATTRIBUTES = f'device.attributes["{names.DRIVER}"]'
WITHIN = 180.0


@dataclass(frozen=True)
class Offer:
    """A test's interfaces on the node, and policies that offer them; all of it goes with the workspace.

    Attributes:
        workspace: where claims are made.
        driver: what publishes the node.
        pods: the test's pods.
        made: the interfaces that `close` removes.
    """

    workspace: Workspace
    driver: Driver
    pods: Pods
    made: list[str] = field(default_factory=list)

    def veth(self, name: str, **options: str) -> str:
        """A cable whose first end is a device of the node; the other end is up and stays."""
        run = self.driver.node.run
        run("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}-far")
        run("ip", "link", "set", f"{name}-far", "up")
        run("ip", "link", "set", name, "up", *(word for pair in options.items() for word in pair))
        self.made.append(f"{name}-far")
        return name

    def bridge(self, name: str) -> str:
        """A bridge of the node."""
        self.driver.node.run("ip", "link", "add", name, "up", "type", "bridge")
        self.made.append(name)
        return name

    def policy(self, name: str, interface: str, **exposure: Any) -> Object:
        """Offer one interface of this node."""
        spec = {
            "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": self.driver.node.name}},
            "selector": {"cel": f'{ATTRIBUTES}.ifName == "{interface}"'},
            "exposure": exposure,
        }
        return self.workspace.create(manifest(POLICY, self.workspace.name(name), spec=spec))

    def whole(self, *interfaces: str) -> None:
        """Make interfaces that are moved into the pod that has them, and wait until they are published."""
        for name in interfaces:
            self.veth(name)
            self.policy(name, name, supportedCNIPlugins=[{"name": "host-device", "exclusive": True}])
        for name in interfaces:
            self.wait_published(name)

    def shared(self, interface: str, shares: int, plugin: str = "macvlan", **exposure: Any) -> None:
        """Offer shares of an interface, and wait until they are published."""
        exposure["capacity"] = {"shares": {"value": str(shares), "requestPolicy": {"default": "1"}}}
        exposure["supportedCNIPlugins"] = [{"name": plugin}]
        self.policy(interface, interface, allowMultipleAllocations=True, **exposure)
        self.wait_published(interface)

    def device_class(self, plugin: str, interface: str = "", base: str = "", **spec: Any) -> str:
        """A DeviceClass of devices that a plugin can attach, of one interface if it is named."""
        name = self.workspace.name(base or (f"{plugin}-{interface}" if interface else plugin))
        expression = f'device.driver == "{names.DRIVER}" && {ATTRIBUTES}.supportedCNIs.contains(",{plugin},")'
        if interface:
            expression += f' && {ATTRIBUTES}.ifName == "{interface}"'
        spec = {"selectors": [{"cel": {"expression": expression}}], **spec}
        self.workspace.create(manifest(CLASS, name, spec=spec))
        return name

    def step_class(self, name: str, interface: str, kind: str, **config: Any) -> str:
        """A DeviceClass of one interface's devices that states by which step they are attached."""
        step = {"type": kind, "config": config}
        parameters = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "DeviceParameters", "step": step}
        opaque = {"driver": names.DRIVER, "parameters": parameters}
        return self.device_class(kind, interface, base=name, config=[{"opaque": opaque}])

    def claim(self, name: str, **requests: str) -> str:
        """A claim with a device of a class for each request: request=class."""
        return self.workspace.add_claim(
            name, *({"name": request, "exactly": {"deviceClassName": each}} for request, each in requests.items())
        )

    def template(self, name: str, **requests: str) -> str:
        """The same as a template, of which each pod gets a claim of its own."""
        wanted = [{"name": request, "exactly": {"deviceClassName": each}} for request, each in requests.items()]
        spec = {"spec": {"devices": {"requests": wanted}}}
        self.workspace.api.create(manifest(TEMPLATE, name, self.workspace.namespace, spec=spec))
        return name

    def published(self) -> Mapping[str, Object]:
        """The node's published devices by name."""
        slices = self.workspace.api.list(SLICE, fields=f"spec.nodeName={self.driver.node.name}")
        return {
            device["name"]: device
            for each in slices
            if each["spec"]["driver"] == names.DRIVER
            for device in each["spec"].get("devices", [])
        }

    def pool(self, device: str) -> str:
        """The pool of a published device."""
        slices = self.workspace.api.list(SLICE, fields=f"spec.nodeName={self.driver.node.name}")
        (found,) = {
            each["spec"]["pool"]["name"]
            for each in slices
            for known in each["spec"].get("devices", [])
            if known["name"] == device
        }
        return str(found)

    def wait_published(self, device: str) -> None:
        """Wait until the node publishes a device of that name."""
        self.wait_devices(lambda devices: any(published["name"] == device for published in devices))

    def wait_devices(self, met: Callable[[list[Object]], bool]) -> None:
        """Wait until the devices in the node's slices meet a condition."""

        def devices_meet(slices: list[Object]) -> bool:
            devices = [device for resource_slice in slices for device in resource_slice["spec"].get("devices", [])]
            return met(devices)

        self.workspace.api.wait_for_all(SLICE, devices_meet, fields=f"spec.nodeName={self.driver.node.name}")

    def allocated(self, claim: str) -> Object:
        """A claim as it is now."""
        return self.workspace.api.get(CLAIM, claim, self.workspace.namespace)

    def status(self, claim: str, devices: int = 1) -> list[Object]:
        """The entries for devices in the claim's status, once it has that many."""

        def told(found: Object | None) -> bool:
            return len((found or {}).get("status", {}).get("devices", [])) == devices

        found = self.workspace.api.wait_for(CLAIM, claim, told, namespace=self.workspace.namespace) or {}
        entries: list[Object] = found["status"].get("devices", [])
        return entries

    def inside(self, pod: str) -> dict[str, Object]:
        """A pod's interfaces by name, as `ip -d address` has them."""
        return {link["ifname"]: link for link in self.pods.ip(pod, "address")}

    def unschedulable(self, pod: str, text: str) -> str:
        """Wait until the scheduler has stated a text of a pod that it cannot place, and return all that it stated."""

        def said(found: Object | None) -> bool:
            return text in why(found)

        return why(self.workspace.api.wait_for(POD, pod, said, namespace=self.workspace.namespace))

    def links(self) -> set[str]:
        """The node's own interfaces."""
        return {link["ifname"] for link in json.loads(self.driver.node.run("ip", "-j", "link"))}

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        families = text_string_to_metric_families(self.driver.metrics())
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def close(self) -> None:
        """Remove the interfaces."""
        for name in self.made:
            try:
                self.driver.node.run("ip", "link", "delete", name)
            except CommandError:  # it may have gone with its other end, and with a namespace that ends just now
                if name in self.links():
                    raise


@contextmanager
def opened(driver: Driver, workspace: Workspace, pods: Pods) -> Iterator[Offer]:
    """The devices that a test offers on the node; afterwards nothing of its pods is left."""
    offer = Offer(workspace, driver, pods)
    yield offer
    pods.delete_all()
    driver.until_nothing_is_left()
    offer.close()


def why(pod: Object | None) -> str:
    """Why the scheduler has not placed a pod."""
    conditions = (pod or {}).get("status", {}).get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def addresses(link: Object) -> set[str]:
    """An interface's addresses with prefix length, but for the link-local ones."""
    return {f"{each['local']}/{each['prefixlen']}" for each in link["addr_info"] if each["scope"] != "link"}


def texts(events: Sequence[Object]) -> list[str]:
    """The messages of events, each on one line."""
    return [" ".join(each["message"].split()) for each in events]
