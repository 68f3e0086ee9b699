"""NeutronPort (networking.dra.io/v1alpha1, namespaced): the port of OpenStack's Neutron that an allocated VF has.

Made by netdra's controller for each device of a claim whose topology step has `neutron`, and kept in step with Neutron
by it alone (decision D50). Read by the node that has the VF: what stands in the status is needed before a pod begins.
Of pooled VFs the node chooses one when it prepares the claim, and writes it into `chosenVF`: no other process knows it.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec

from netdra.model.meta import Condition, ObjectMeta

BOUND = "Bound"
"""The condition of a port that Neutron has bound to the VF; its reasons are those of `netdra.neutron.errors`."""
CURRENT = "Current"
"""The condition, False, of a port that was changed in Neutron after its VF was given its settings."""
ENFORCED = "Enforced"
"""The condition, False, of a port with something that no VF can be set up for, such as a security group."""
FINALIZER = "networking.dra.io/neutron-port"
HOST_ANNOTATION = "networking.dra.io/neutron-host"
"""The annotation of a Node that says what its NIC switch agent calls it, where that is not the Node's name."""
MAX_ADDRESSES = 16
MAX_ROUTES = 64


class PortOwner(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The claim that the port is for.

    Attributes:
        name: The claim's name, in the port's namespace, e.g. `db-0-net`.
        uid: The claim's uid, e.g. `0b9c…`, which Neutron keeps as the port's device_id.
    """

    name: str
    uid: str


class NeutronPortSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The VF that gets the port, and the settings of the port; written once, and not changed.

    Attributes:
        claim: The claim that was allocated the VF, e.g. `{name: db-0-net, uid: 0b9c…}`.
        request: The claim's request in the allocation, e.g. `vf`.
        pool: The VF's pool in ResourceSlices, e.g. `node-1-sriov-enp3s0f0`.
        device: The VF's device in ResourceSlices, e.g. `enp3s0f0v2`.
        share_id: The ID of the claim's share, if the device pools several VFs, e.g. `5f2d…`. If absent, the device is
            one VF.
        node_name: The node of the VF, e.g. `node-1`.
        topology: The NetworkTopology that the VF was allocated for, e.g. `net`.
        step: The topology's root step, e.g. `vf0`.
        physnet: The physical network of the VF, e.g. `physnet2`.
        pci_address: The VF's PCI address, e.g. `0000:03:00.2`; empty for pooled VFs: `chosenVF` has the address then.
        host: The node's name in its NIC switch agent, e.g. `node-1.example.com`.
        network: The network's id or name, e.g. `blue`. If absent, the network that the controller is configured with
            for the physical network.
        subnet: The subnet's id or name, e.g. `blue-4`. If absent, Neutron chooses one of the network.
        security_groups: The ids of the port's security groups, e.g. `[5b6d2a4e-7c1f-4f0b-9d3e-2a1c8e7f6b50]`. If
            absent, the project's default.
        qos_policy: The id of the port's QoS policy, e.g. `0c7e41d2-93ab-4b1e-8f65-d4a2b7c9e310`. If absent, the
            network's.
        fixed_ips: The addresses of the port, e.g. `[10.77.0.5]`. If absent, Neutron chooses.
        port: The id of an existing port that is used unchanged, e.g. `f2a9d7c4-1e3b-46d8-a5c0-7b8e9d6f4a21`. If absent,
            a new port is created.
    """

    claim: PortOwner
    request: str
    pool: str
    device: str
    share_id: str = msgspec.field(default="", name="shareID")
    node_name: str
    topology: str
    step: str
    physnet: str
    pci_address: str
    host: str
    network: str = ""
    subnet: str = ""
    security_groups: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ADDRESSES)] | None = None
    qos_policy: str = ""
    fixed_ips: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ADDRESSES)] = msgspec.field(
        default=(), name="fixedIPs"
    )
    port: str = ""


class ChosenVF(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One of pooled VFs.

    Attributes:
        pci_address: The VF's PCI address, e.g. `0000:03:00.2`.
    """

    pci_address: str


class PortRoute(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A route that the port's subnet gives to its members.

    Attributes:
        destination: The network, with its prefix length, e.g. `10.0.0.0/8`.
        gateway: The router for that network, e.g. `10.77.0.1`.
    """

    destination: str
    gateway: str


class PortSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The settings of the VF from the port.

    Attributes:
        mac: The MAC address, e.g. `fa:16:3e:00:00:01`.
        vlan: The VLAN that the NIC sets for the VF, e.g. `1017`; 0 for none.
        mtu: The network's MTU in bytes, e.g. `1500`; 0 if Neutron reports none.
        addresses: The addresses, with prefix lengths, e.g. `[10.77.0.5/24]`. If absent, none.
        gateways: The gateways of the subnets that have one, e.g. `[10.77.0.1]`. If absent, none.
        routes: Further routes of the subnets, e.g. `[{destination: 10.0.0.0/8, gateway: 10.77.0.1}]`. If absent, none.
        dns: Name servers of the subnets, e.g. `[10.77.0.2]`. If absent, none.
        spoofchk: Whether the NIC drops frames that do not come from the VF's MAC address, e.g. `false` if the port has
            no port security.
        trust: Whether the VF may change its MAC address, e.g. `true` if the port's binding profile allows it.
        link_state: The state of the VF's link, e.g. `auto`; `disable` if the port's administrative state is down.
        min_tx_rate: The guaranteed rate of the VF, in Mbit/s, e.g. `1000`; 0 for none.
        max_tx_rate: The maximum rate of the VF, in Mbit/s, e.g. `10000`; 0 for no limit.
    """

    mac: str
    vlan: int = 0
    mtu: int = 0
    addresses: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ADDRESSES)] = ()
    gateways: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ADDRESSES)] = ()
    routes: Annotated[tuple[PortRoute, ...], msgspec.Meta(max_length=MAX_ROUTES)] = ()
    dns: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ADDRESSES)] = ()
    spoofchk: bool = True
    trust: bool = False
    link_state: Literal["auto", "enable", "disable"] = "auto"
    min_tx_rate: int = 0
    max_tx_rate: int = 0


class NeutronPortStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The port as Neutron returned it.

    Attributes:
        port_id: The port's id in Neutron, e.g. `f2a9d7c4-1e3b-46d8-a5c0-7b8e9d6f4a21`. If
            absent, the port does not exist yet.
        network_id: The id of its network, e.g. `3c1d0b6e-8f2a-4d57-9b4c-6e0a1f2d3c4b`. If
            absent, the port does not exist yet.
        network_name: The name of its network, e.g. `blue`. If absent, the port does not exist yet.
        settings: The settings that the VF gets from the port, e.g. `{mac: "fa:16:3e:00:00:01", vlan: 1017}`. If absent,
            the port was never bound.
        conditions: The port's state, e.g. `[{type: Bound, status: "True"}]`. `Bound`: Neutron has bound the port to the
            VF. `Current`, if False: the port was changed in Neutron after the VF got its settings. `Enforced`, if
            False: the VF cannot be configured as the port requires. If absent, the controller has not requested the
            port yet.
        next_step: The next step if the port is not bound, e.g. `openstack quota set --ports …`. If absent, the port is
            bound, or the condition `Bound` states all that is known.
    """

    port_id: str = msgspec.field(default="", name="portID")
    network_id: str = msgspec.field(default="", name="networkID")
    network_name: str = ""
    settings: PortSettings | None = None
    conditions: tuple[Condition, ...] = ()
    next_step: str = ""


class NeutronPort(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The port of an allocated VF in OpenStack's Neutron; netdra creates it, and deletes it with the VF's claim.

    Attributes:
        spec: The VF that gets the port, and the settings of the port.
        chosen_vf: The VF that the claim has of pooled VFs, e.g. `{pciAddress: "0000:03:00.2"}`; written by the driver
            of its node. If absent, the device is one VF, or the node has not chosen yet.
        status: The port in Neutron, and the settings that the VF gets from it; written by netdra.
    """

    metadata: ObjectMeta
    spec: NeutronPortSpec
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["NeutronPort"]
    chosen_vf: ChosenVF | None = msgspec.field(default=None, name="chosenVF")
    status: NeutronPortStatus | None = None

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name

    @property
    def pci_address(self) -> str:
        """The PCI address of its VF; "" as long as the node has not chosen one of pooled VFs."""
        return self.chosen_vf.pci_address if self.chosen_vf is not None else self.spec.pci_address

    @property
    def next_step(self) -> str:
        """The next step if it is not bound, "" if that is not known."""
        return self.status.next_step if self.status is not None else ""

    @property
    def bound(self) -> Condition | None:
        """Whether Neutron has bound it to its VF, and why not; None if it was not checked since the VF was chosen."""
        condition = self._condition(BOUND)
        if condition is None or self.chosen_vf is None:
            return condition
        # A choice is a change of the object, which gets a generation of its own.
        return condition if condition.observed_generation >= self.metadata.generation else None

    @property
    def current(self) -> Condition | None:
        """The changes in Neutron since the VF got its settings; None without any."""
        return self._condition(CURRENT)

    @property
    def enforced(self) -> Condition | None:
        """The settings of the port that no VF can enforce; None without any."""
        return self._condition(ENFORCED)

    def _condition(self, kind: str) -> Condition | None:
        conditions = self.status.conditions if self.status is not None else ()
        return next((condition for condition in conditions if condition.type == kind), None)


def name_of(claim_uid: str, pool: str, device: str, share_id: str = "") -> str:
    """The name of the NeutronPort of a claim's device, or of its share of one.

    A device is once in an allocation, or once for each share. The uid of the claim, so that one that is made again has
    others, and a digest of the parts that could be too long.
    """
    named = f"{pool}/{device}/{share_id}" if share_id else f"{pool}/{device}"
    digest = hashlib.sha256(named.encode()).hexdigest()[:8]
    return f"{claim_uid}-{digest}"
