"""Hints that only a node gives, when it binds a claim to a topology: the mistake, and the binding after it.

As `tests.following_calls`, whose `CALLS` include these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from netdra.model import documents, names
from netdra.model.claim import ResourceClaim
from netdra.model.meta import ObjectMeta
from netdra.model.neutron_port import PortSettings
from netdra.model.plan import Binding, PlannedDevice, PlannedPort
from netdra.model.pod_address import PodAddress
from netdra.model.resource import Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from netdra.model.result import CNIAddress, CNIInterface, StepResult
from netdra.model.topology import DeclaredParameter, NetworkTopology
from netdra.topology import address_request, parameters, ports, references
from netdra.topology.addresses import StepKey, with_addresses
from netdra.topology.bind import bind, unbound
from netdra.topology.merge import merge
from netdra.topology.surroundings import Surroundings
from tests.builders import topology

POOL = "n1/nic"
NIC = PlannedDevice(request="", pool=POOL, device="eth1", if_name="eth1", pci_address="0000:03:00.0")
LAN = topology("- {name: nic, type: macvlan, config: {mode: bridge}}", name="lan")


def claim(request: str = "nic", *, config: Any = None, reserved: Sequence[str] = (), results: int = 1) -> ResourceClaim:
    """A claim that was allocated a device for a request.

    Args:
        request: its name.
        config: the parameters of its DeviceClass; without them, those of the topology "lan".
        reserved: the pods that have it.
        results: how many devices it was allocated; 0 if it is not allocated.
    """
    given = [{"networkTopologyRef": {"name": "lan"}, "step": "nic"}] if config is None else config
    result = {"request": request, "driver": names.DRIVER, "pool": POOL, "device": "eth1"}
    configs = [{"source": "FromClass", "opaque": {"driver": names.DRIVER, "parameters": each}} for each in given]
    allocation = {"devices": {"results": [result], "config": configs}}
    value = {
        "metadata": {"name": "c", "namespace": "app", "uid": "1"},
        "spec": {},
        "status": {
            "reservedFor": [{"resource": "pods", "name": name, "uid": name} for name in reserved],
            **({"allocation": allocation} if results else {}),
        },
    }
    return documents.convert(value, ResourceClaim, "test")


def published(**attributes: DeviceAttribute) -> ResourceSlice:
    """The slice of the device, with attributes."""
    pool = ResourcePool(name=POOL, generation=1, resource_slice_count=1)
    devices = (Device(name="eth1", attributes=attributes),)
    spec = ResourceSliceSpec(driver=names.DRIVER, pool=pool, node_name="n1", devices=devices)
    return ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec)


HERE = Surroundings(
    node="n1",
    labels={"rack": "7"},
    slices=(
        published(
            rail=DeviceAttribute(int_=3),
            colours=DeviceAttribute(strings=("red", "blue")),
            path=DeviceAttribute(string="a"),
        ),
    ),
    pods=("app-0",),
)


def bound(
    given: ResourceClaim | None = None,
    of: NetworkTopology | None = LAN,
    devices: Iterable[PlannedDevice] = (NIC,),
    place: Surroundings = HERE,
) -> Binding:
    """The binding of a claim to a topology, with the devices of a node."""
    known = {(device.pool, device.device): device for device in devices}
    return bind([claim() if given is None else given], {} if of is None else {of.name: of}, known, place=place)


def referring(text: str) -> NetworkTopology:
    """The topology whose step's config has a text."""
    step = msgspec.json.encode({"name": "nic", "type": "far", "config": {"note": text}}).decode()
    return topology(f"- {step}", name="lan")


def fact(text: str, **place: Any) -> Callable[[], object]:
    """Binds a topology that refers to a fact, at another place than HERE."""
    return partial(bound, None, referring(text), place=replace(HERE, **place))


def _alone(*plugins: str) -> Binding:
    """The binding of a device without a topology, whose policy lists plugins."""
    step = {"type": "macvlan", "config": {"mode": "bridge"}}
    config = {"apiVersion": names.GROUP_VERSION, "kind": "DeviceParameters", "step": step}
    return bound(claim(config=[config]), None, [replace(NIC, supported_cnis=plugins)])


def _requested(address: str) -> object:
    step = topology(
        f"- {{name: nic, type: macvlan, network: lan, config: {{ipam: {{type: network, addresses: [{address}]}}}}}}"
    ).spec.steps[0]
    return address_request.requested(step)


def _addressed(physnet: str) -> object:
    """The plan of a step on a PodNetwork of physical network "blue", with a device on another one."""
    lan = topology("- {name: nic, type: macvlan, network: lan, config: {ipam: {type: network}}}", name="lan")
    spec = {
        "network": "lan",
        "address": "10.7.0.5/24",
        "physnet": "blue",
        "families": ["IPv4"],
        "owner": {"namespace": "app", "pod": "app-0", "claim": "c", "topology": "lan", "step": "nic"},
    }
    named = {"apiVersion": names.GROUP_VERSION, "kind": "PodAddress", "metadata": {"name": "lan.10.7.0.5"}}
    address = msgspec.convert({**named, "spec": spec}, PodAddress)
    return with_addresses(bound(of=lan).plans, {StepKey("lan", "nic", 0): (address,)}, {(POOL, "eth1"): physnet})


def _ported(device: PlannedDevice, *, has_port: bool = True) -> object:
    """The plan of a step with a port of Neutron."""
    blue = topology("- {name: nic, type: sriov, neutron: {network: blue}}", name="lan")
    port = PlannedPort(port_id="p", settings=PortSettings(mac="fa:16:3e:00:00:01"))
    return ports.with_ports(bound(of=blue, devices=[device]).plans, lambda *_: port if has_port else None)


def _resolved(text: str) -> object:
    """A config in a pod's start, after the values of parameters and facts were put in."""
    return references.resolve({"note": text}, {})


def _choice(value: Any) -> object:
    return parameters.checked(DeclaredParameter(name="mode", enum=("0", "1")), value)


def _merged(place: int) -> object:
    """The result of two plugins, with an address on an interface by its place."""
    interfaces = (CNIInterface(name="net1", sandbox="/run/netns/a"),)
    first = StepResult(interfaces=interfaces, ips=(CNIAddress(address="10.7.0.5/24", interface=place),))
    return merge([first, StepResult()])


def _roots(count: int) -> object:
    steps = "".join(f"- {{name: vf{number}, type: sriov}}\n" for number in range(count))
    return unbound(topology(steps))


ONE = {"networkTopologyRef": {"name": "lan"}, "step": "nic"}
OTHER = {"networkTopologyRef": {"name": "wan"}, "step": "nic"}

BINDINGS: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "a claim that is not allocated": (partial(bound, claim(results=0)), bound),
    "a request of another name": (partial(bound, claim("port")), bound),
    "a topology that does not exist": (partial(bound, of=None), bound),
    "a class of two topologies": (partial(bound, claim(config=[ONE, OTHER])), partial(bound, claim(config=[ONE]))),
    "a device of a pool that is not offered": (partial(bound, devices=()), bound),
    "a device that is not offered any more": (partial(bound, devices=[replace(NIC, device="eth1-macvlan")]), bound),
    "another interface than the allocated one": (
        partial(bound, of=topology("- {name: nic, type: macvlan, config: {master: eth0}}", name="lan")),
        bound,
    ),
    "a plugin that the device's policy does not list": (
        partial(_alone, "ipvlan"),
        partial(_alone, "ipvlan", "macvlan"),
    ),
    "a list of a fact": (fact("{{ device.attributes.colours }}"), fact("{{ device.attributes.path }}")),
    "attributes that are not published": (
        fact("{{ device.attributes.rail }}", slices=()),
        fact("{{ device.attributes.rail }}"),
    ),
    "labels that are not known": (fact("{{ node.labels['rack'] }}", labels=None), fact("{{ node.labels['rack'] }}")),
    "a pod without an ordinal": (fact("{{ pod.ordinal }}", pods=("app-x7k",)), fact("{{ pod.ordinal }}")),
    "a claim of two pods": (fact("{{ pod.name }}", pods=("app-0", "app-1")), fact("{{ pod.name }}")),
    "a claim without a pod": (
        fact("{{ pod.name }}", pods=None),
        partial(bound, claim(reserved=["app-0"]), referring("{{ pod.name }}"), place=replace(HERE, pods=None)),
    ),
    "an address that is not one": (partial(_requested, "10.7.0.5/24"), partial(_requested, "10.7.0.5")),
    "a device on another physical network": (partial(_addressed, "red"), partial(_addressed, "blue")),
    "a port for a device that is not a VF": (partial(_ported, replace(NIC, pci_address="")), partial(_ported, NIC)),
    "a claim that was prepared without its port": (partial(_ported, NIC, has_port=False), partial(_ported, NIC)),
    "a parameter without a value": (partial(_resolved, "{{ params.vlan }}"), partial(_resolved, "100")),
    "a fact without a value": (partial(_resolved, "{{ node.name }}"), partial(_resolved, "n1")),
    "a number for a text": (partial(_choice, 1), partial(_choice, "1")),
    "an address on an interface that a result does not have": (partial(_merged, 1), partial(_merged, 0)),
    "a topology of 33 devices": (partial(_roots, 33), partial(_roots, 32)),
}
"""By name: the call with a mistake, and the call after its author followed the hint."""
