"""All nodes of a cluster, as far as they are followed: their reports in numbers, and devices with taints. Pure.

Followed by `netdra.cluster.live`. Of a NodeNetwork only the counted part is kept, so thousands of nodes take some
megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from netdra.model.core import BareObject
from netdra.model.device import POOLED
from netdra.model.meta import ObjectMeta
from netdra.model.names import DRIVER
from netdra.model.node_network import MissingPlugin, NodeNetwork, NodeNetworkStatus, NodeProblem, UnassignedAddress
from netdra.model.resource import DeviceTaint, Wire

GONE = "gone"


class CountedDevice(msgspec.Struct, frozen=True):
    """Whether a claim has a device."""

    allocated: bool = False


class HostFacts(msgspec.Struct, frozen=True, rename="camel"):
    """Whether the node itself uses interfaces."""

    host_use: bool | int | str = ""
    host_uplink: bool | int | str = ""


class CountedGroup(msgspec.Struct, frozen=True, rename="camel"):
    """Interfaces that are alike, as far as they are counted."""

    count: int = 0
    state: str = ""
    reason: str = ""
    devices: tuple[CountedDevice, ...] = ()
    attributes: HostFacts = HostFacts()

    def states(self) -> Iterator[tuple[str, int]]:
        """How many of its devices or interfaces have each state."""
        for device in self.devices:
            yield (GONE if self.state == GONE else "allocated" if device.allocated else "offered"), self.count
        if not self.devices and self.state == GONE:
            yield GONE, self.count
        elif not self.devices and not self.reason.startswith(POOLED):
            yield ("host" if self.attributes.host_use or self.attributes.host_uplink else "hidden"), self.count


class CountedSummary(msgspec.Struct, frozen=True):
    """The number of a node's problems."""

    problems: int = 0


class CountedStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A node's report, as far as it is counted, or other objects' stories are made of it."""

    summary: CountedSummary = CountedSummary()
    interfaces: tuple[CountedGroup, ...] = ()
    problems: tuple[NodeProblem, ...] = ()
    missing_plugins: tuple[MissingPlugin, ...] = ()
    unassigned_addresses: tuple[UnassignedAddress, ...] = ()
    released_version: int = 0


class CountedNode(msgspec.Struct, frozen=True):
    """A NodeNetwork, as far as it is counted."""

    metadata: ObjectMeta
    status: CountedStatus | None = None

    @property
    def report(self) -> NodeNetwork:
        """The NodeNetwork without its interfaces."""
        status = self.status or CountedStatus()
        return NodeNetwork(
            metadata=self.metadata,
            api_version="networking.dra.io/v1alpha1",
            kind="NodeNetwork",
            status=NodeNetworkStatus(
                problems=status.problems,
                missing_plugins=status.missing_plugins,
                unassigned_addresses=status.unassigned_addresses,
                released_version=status.released_version,
            ),
        )


class TaintedDevice(NamedTuple):
    """A device with a taint that keeps claims off it."""

    node: str
    device: str
    taint: str
    value: str = ""


class TaintableDevice(Wire, frozen=True):
    """A device's name and its taints."""

    name: str
    taints: tuple[DeviceTaint, ...] = ()


class TaintedSpec(Wire, frozen=True):
    """A slice's devices, as far as their taints are read."""

    driver: str = ""
    node_name: str | None = None
    devices: tuple[TaintableDevice, ...] = ()


class TaintedSlice(BareObject, frozen=True):
    """A ResourceSlice with a device that has a taint."""

    spec: TaintedSpec

    def tainted(self) -> Iterator[TaintedDevice]:
        """Its devices of netdra that claims are kept off."""
        for device in self.spec.devices if self.spec.driver == DRIVER else ():
            for taint in device.taints:
                if taint.effect in ("NoSchedule", "NoExecute"):
                    what = f"{taint.key}:{taint.effect}"
                    yield TaintedDevice(self.spec.node_name or "", device.name, what, taint.value)
                    break


class FleetNow(NamedTuple):
    """The nodes' reports as they are followed, and the tainted devices."""

    nodes: Sequence[CountedNode]
    tainted: Sequence[TaintedDevice] = ()
