"""CustomDevice (networking.dra.io/v1alpha1, cluster-scoped): a provider's additions to the kernel's facts of devices.

The same as a call of the node's device registry, but as an object: written by the devices' provider, applied
by the node daemon. Its attributes and capacities are published as `<provider>/<name>`, so they never stand in
for netdra's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from netdra.model.meta import LabelSelector, ObjectMeta
from netdra.model.names import MAX_LABEL, MAX_SUBDOMAIN
from netdra.model.resource import MAX_ATTRIBUTES_AND_CAPACITIES, DeviceAttribute, DeviceCapacity


class CustomDeviceSelector(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Where to search for the device; everything that is given must hold.

    Attributes:
        pool_name: The device's pool in ResourceSlices, e.g. `node-1/enp1s0f0`. If absent, any pool.
        node_name: The node that has the device, e.g. `node-1`. Use it for an object that concerns one node only: other
            nodes do not receive the object. If absent, any node.
        node_selector: The nodes that have the device, by their labels, e.g. `{matchLabels: {example.com/nic: fast}}`.
            If absent, all nodes.
    """

    pool_name: Annotated[str, msgspec.Meta(max_length=MAX_SUBDOMAIN)] = msgspec.field(default="", name="pool.name")
    node_name: Annotated[str, msgspec.Meta(max_length=MAX_SUBDOMAIN)] = ""
    node_selector: LabelSelector | None = None

    def matches(self, node: str, labels: Mapping[str, str]) -> bool:
        """Whether a node of that name, with these labels, is selected."""
        if self.node_name not in ("", node):
            return False
        return self.node_selector is None or self.node_selector.matches(labels)


class CustomDeviceSpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The device, and the attributes and capacity that are added to it.

    Attributes:
        provider: The provider of the facts, e.g. `bctl`. It is the domain of all attributes and capacities below.
        device: The device's name in ResourceSlices, e.g. `enp1s0f0`.
        selector: The nodes or the pool of the device, e.g. `{nodeName: node-1}`. If absent, the object applies to all
            nodes that have a device of that name.
        add_if_not_exist: Whether an interface of that name is offered as a device if no policy exposes it, e.g. `true`
            for an interface that only the provider knows.
        attributes: The attributes to add, by name without a domain, e.g. `{rack: {string: r7}}`. If absent, none.
        capacity: The capacities to add, by name without a domain, e.g. `{queues: {value: 16}}`. If absent, none.
    """

    provider: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_LABEL)]
    device: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_LABEL)]
    selector: CustomDeviceSelector | None = None
    add_if_not_exist: bool = False
    attributes: Annotated[Mapping[str, DeviceAttribute], msgspec.Meta(max_length=MAX_ATTRIBUTES_AND_CAPACITIES)] = {}
    capacity: Annotated[Mapping[str, DeviceCapacity], msgspec.Meta(max_length=MAX_ATTRIBUTES_AND_CAPACITIES)] = {}


class CustomDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Adds a provider's attributes and capacity to a device, or offers an interface that no policy exposes.

    Attributes:
        spec: The device, and the attributes and capacity that are added to it.
    """

    metadata: ObjectMeta
    spec: CustomDeviceSpec
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["CustomDevice"]

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name
