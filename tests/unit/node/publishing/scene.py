"""A node that publishes, whose kernel and holders are set by the test."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from netdra.discovery.overrides import with_physnets
from netdra.exposure.registered import Registered
from netdra.model.device import DEFAULT_FEATURES, Features
from netdra.model.inventory import Interface
from netdra.model.node_network import NodeNetworkStatus
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import DeviceFile, Registration
from netdra.model.resource import Device
from netdra.node.publishing.offering import Offered, Offering, Slices
from netdra.node.view import HeldDevice
from netdra.topology.devices import DeviceKey
from tests.builders import OURS, exclusive, inventory, shared

NODE = "worker-1"
POOL = f"{NODE}/sriov-p0"
ETH = Interface(if_name="eth7", type="veth", mac="02:00:00:00:00:07", mtu=1500, oper_state="up")
ETH_KEY = (f"{NODE}/veth-eth7", "eth7")
POLICIES = (exclusive("pfs", f'{OURS}.type == "pf"'), exclusive("vfs", f'{OURS}.type == "vf"', "sriov"))
ALL = (*POLICIES, exclusive("veths", f'{OURS}.type == "veth"'))


class Scene:
    """A node, whose kernel and holders are set by the test."""

    def __init__(
        self,
        *policies: DeviceExposurePolicy,
        published: dict[str, Slices] | None = None,
        features: Features = DEFAULT_FEATURES,
        reported: NodeNetworkStatus | None = None,
    ) -> None:
        self.offering = Offering(NODE, published or {}, reported)
        self.offering.follow(policies or ALL, features)
        self.left_names: set[str] = set()
        self.on_bus = {"0000:03:00.0"}
        self.holding: list[HeldDevice] = []
        self.slices: dict[str, Slices] = dict(published or {})
        self.labels: dict[str, str] = {}
        self.physnets: dict[str, tuple[str, ...]] = {}
        self.last: Offered | None = None
        self.now = 0.0
        self.registered: tuple[Registration, ...] = ()
        self.files: dict[str, DeviceFile] = {}

    def left(self, interface: Interface) -> bool:
        return interface.if_name in self.left_names

    def on_the_bus(self, address: str, bus: str = "pci") -> bool:
        return address in self.on_bus

    def device_file(self, path: str) -> DeviceFile:
        return self.files.get(path, DeviceFile(problem=f"device file {path} does not exist", missing=True))

    def hold(self, *keys: DeviceKey, trouble: str = "") -> None:
        self.holding = [HeldDevice(key=key, claim="c", trouble=trouble) for key in keys]

    def see(self, *interfaces: Interface) -> set[str]:
        """A pass; the pools that have to be written."""
        here = with_physnets(inventory(*interfaces), self.physnets)
        found = self.offering.update(here, self.labels, self.holding, self, self.now, Registered(self.registered))
        changed = {pool for pool, slices in found.slices.items() if self.slices.get(pool, ()) != slices}
        self.slices |= found.slices
        self.last = found
        return changed

    def devices(self, pool: str = POOL) -> dict[str, Device]:
        return {device.name: device for one in self.slices[pool] for device in one.spec.devices}

    def taints(self, pool: str = POOL) -> dict[str, list[str]]:
        return {name: [taint.key for taint in device.taints] for name, device in self.devices(pool).items()}


def moved_to_a_pod(interfaces: Sequence[Interface]) -> tuple[Interface, ...]:
    """A PF's VFs as discovery sees them when the PF's netdev is elsewhere."""
    return tuple(msgspec.structs.replace(each, pf_name="") for each in interfaces if each.type == "vf")


def without_netdev(interface: Interface) -> Interface:
    """A VF in a pod, as sysfs shows it."""
    return msgspec.structs.replace(interface, if_name="", mac="", mtu=0, oper_state="")


SOFT = shared("soft", f'{OURS}.type == "veth"', deviceNameSuffix="-soft")
HARD = shared("hard", f'{OURS}.type == "veth"', deviceNameSuffix="-hard", taints={"gone": "NoExecute"})
