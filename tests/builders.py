"""Inputs that several levels of tests share: interfaces, policies, topologies, and sets of them that reach the API's
limits.

Plain functions without any state. The unit tests pack what these make; the cluster tests hand the same to the API
server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from netdra.model import documents, yaml_text
from netdra.model.inventory import Interface, Inventory, InventoryNode
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.topology import NetworkTopology
from testbed import yaml

OURS = 'device.attributes["dra.networking"]'


def read_inventory(text: str) -> Inventory:
    """A node's inventory as `netdra capture` writes it, in JSON or YAML."""
    (value,) = yaml_text.load(text, "inventory")
    return documents.inventory_of(value, "inventory")


def pf(name: str, *, vfs: int = 0, speed: int = 100_000, bus: int = 3, function: int = 0, **facts: Any) -> Interface:
    """A physical function with some VFs; bus and function make its PCI address."""
    found: dict[str, Any] = {
        "if_name": name,
        "type": "pf",
        "mac": f"04:3f:72:b0:{bus:02x}:{function:02x}",
        "mtu": 1500,
        "link_speed": speed,
        "oper_state": "up",
        "pci_address": f"0000:{bus:02x}:00.{function}",
        "numa_node": 0,
        "vendor": "15b3",
        "product": "101d",
        "driver": "mlx5_core",
        "rdma": True,
        "sriov_capable": True,
        "num_vfs": vfs,
        "total_vfs": max(vfs, 16),
        "pcie_root": "pci0000:00",
    }
    return Interface(**found | facts)


def vf(parent: Interface, index: int, **facts: Any) -> Interface:
    """A VF of a PF, named as the kernel names it by default."""
    address = f"{parent.pci_address[:8]}{1 + index // 8:02x}.{index % 8}"
    found: dict[str, Any] = {
        "if_name": f"{parent.if_name}v{index}",
        "type": "vf",
        "mac": f"02:00:00:00:{index // 256:02x}:{index % 256:02x}",
        "mtu": 1500,
        "oper_state": "down",
        "pci_address": address,
        "numa_node": parent.numa_node,
        "vendor": "15b3",
        "product": "101e",
        "driver": "mlx5_core",
        "rdma": parent.rdma,
        "pf_name": parent.if_name,
        "pf_pci_address": parent.pci_address,
        "vf_index": index,
        "pcie_root": parent.pcie_root,
    }
    return Interface(**found | facts)


def sriov(name: str, vfs: int, **facts: Any) -> tuple[Interface, ...]:
    """A PF and its VFs."""
    parent = pf(name, vfs=vfs, **facts)
    return (parent, *(vf(parent, index) for index in range(vfs)))


def inventory(*interfaces: Interface, node: str = "worker-1", labels: dict[str, str] | None = None) -> Inventory:
    """The interfaces as a node's."""
    return Inventory(node=InventoryNode(name=node, labels=labels or {}), interfaces=interfaces)


def policy(name: str, cel: str, *, spec: dict[str, Any] | None = None, **exposure: Any) -> DeviceExposurePolicy:
    """A policy; exposure's fields under their names in YAML, the rest of the spec in `spec`."""
    return msgspec.convert(
        {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "DeviceExposurePolicy",
            "metadata": {"name": name},
            "spec": {"selector": {"cel": cel}, **(spec or {}), **({"exposure": exposure} if exposure else {})},
        },
        DeviceExposurePolicy,
    )


def exclude(name: str, cel: str, **spec: Any) -> DeviceExposurePolicy:
    """An exclude policy."""
    return policy(name, cel, spec={"action": "exclude", **spec})


def named(name: str) -> str:
    """The expression for the interface of that name."""
    return f'{OURS}.ifName == "{name}"'


def shared(
    name: str,
    cel: str,
    *,
    capacity: str = "ports",
    value: int = 64,
    spec: dict[str, Any] | None = None,
    **exposure: Any,
) -> DeviceExposurePolicy:
    """A policy that shares what it matches."""
    counter = {"value": str(value), "requestPolicy": {"default": "1"}}
    return policy(name, cel, spec=spec, allowMultipleAllocations=True, capacity={capacity: counter}, **exposure)


def exclusive(name: str, cel: str, *plugins: str, **exposure: Any) -> DeviceExposurePolicy:
    """A policy that gives what it matches to one claim at a time."""
    listed = [{"name": plugin, "exclusive": True} for plugin in plugins or ("host-device",)]
    return policy(name, cel, supportedCNIPlugins=listed, **exposure)


def many_vfs(count: int = 200) -> tuple[Inventory, list[DeviceExposurePolicy]]:
    """A PF with as many VFs, each in two exclusive personas of its own, and the PF shared and whole."""
    policies = [
        exclusive("vf-sriov", f'{OURS}.type == "vf"', "sriov"),
        exclusive("vf-vfio", f'{OURS}.type == "vf"', "vfio-pci", deviceNameSuffix="-vfio"),
        exclusive("pf-whole", f'{OURS}.type == "pf"', deviceNameSuffix="-whole"),
        shared("pf-macvlan", f'{OURS}.type == "pf"', capacity="macvlans", deviceNameSuffix="-macvlan"),
    ]
    return inventory(*sriov("enp3s0f0", count)), policies


def many_personas(count: int = 40) -> tuple[Inventory, list[DeviceExposurePolicy]]:
    """An interface that is offered in as many ways, some of them exclusive, some in a group."""
    cel = f'{OURS}.type == "pf"'
    policies = [
        exclusive(f"way-{index:02}", cel, deviceNameSuffix=f"-w{index}")
        if index % 10 == 0
        else shared(f"way-{index:02}", cel, deviceNameSuffix=f"-w{index}", exclusionGroup="g" if index % 3 else "")
        for index in range(count)
    ]
    return inventory(*sriov("enp3s0f0", 2)), [*policies, exclusive("vfs", f'{OURS}.type == "vf"')]


def many_standalone(count: int = 300) -> tuple[Inventory, list[DeviceExposurePolicy]]:
    """As many bridges, each a pool by itself."""
    bridges = (Interface(if_name=f"br{index}", type="bridge", bridge_type="linux") for index in range(count))
    return inventory(*bridges), [shared("bridges", "true")]


def long_names() -> tuple[Inventory, list[DeviceExposurePolicy]]:
    """The longest names and strings that there can be, and names that are not DNS labels."""
    parent = pf("Abcdefghij_k.15", vfs=2, alias="a" * 300, ipv4=tuple(f"192.0.2.{index}/32" for index in range(20)))
    policies = [
        shared(
            "all",
            "true",
            capacity="c" * 32,
            deviceNameSuffix="-" + "s" * 31,
            additionalAttributes={f"{'d' * 59}.org/{'b' * 32}": "é" * 32, "a" * 32: ["n" * 30, "m" * 30]},
            supportedCNIPlugins=[{"name": f"{'p' * 20}-{index}"} for index in range(16)],
        ),
        exclusive("whole", f'{OURS}.type == "pf"', "p" * 61, deviceNameSuffix="-whole"),
    ]
    return inventory(parent, vf(parent, 0), vf(parent, 1), node="n" * 242), policies  # a pool is <node>/<name>


def topology(steps: str, name: str = "net", **metadata: Any) -> NetworkTopology:
    """A topology from its steps in YAML; a root step gets a selector unless it has one, or states `selector: null`."""
    written = yaml.safe_load(steps)
    for step in written:
        if not step.get("dependOn") and step.setdefault("selector", {"cel": "true"}) is None:
            del step["selector"]
    value = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": name, **metadata},
        "spec": {"steps": written},
    }
    return documents.convert(value, NetworkTopology, "test")


LIMITS = {
    "200 VFs in two personas each": many_vfs,
    "40 personas of one interface": many_personas,
    "300 standalone devices": many_standalone,
    "the longest strings": long_names,
}
"""Inputs at the API's limits, by what they are; the API server must take all that they give."""


def with_config(found: NetworkTopology, config: Mapping[str, Any]) -> NetworkTopology:
    """The topology with this config in its last step."""
    *others, last = found.spec.steps
    steps = (*others, msgspec.structs.replace(last, config=config))
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, steps=steps))
