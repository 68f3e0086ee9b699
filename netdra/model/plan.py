"""The steps to run for one pod: the topology's steps in order, each with its allocated device.

Made by `netdra.topology.bind` from a claim and a topology, kept whole in the checkpoint, run and undone by
`netdra.chain`. It holds all that undoing needs, so teardown asks no API server (decision D13).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Literal

import msgspec

from netdra.model import names, quantity
from netdra.model.identity import DeviceIdentity
from netdra.model.kept import KEEPING_TYPES, Keep
from netdra.model.neutron_port import PortSettings
from netdra.model.policy import ResetPolicy
from netdra.model.topology import NeutronRequest, described

MIN_RATE_KEYS, MAX_RATE_KEYS = ("minTxRate", "min_tx_rate"), ("maxTxRate", "max_tx_rate")
"""The keys of an sriov step's config with rates in Mbit/s, netdra's and that of the program."""
MIIMON = 100
"""How often a bond without a link monitor in its config checks the links of its members, in milliseconds.

Without one the kernel never uses another member, except in the modes that require one, where it has the same default
(drivers/net/bonding/bond_options.c, bond_option_mode_set).
"""


def has_link_monitor(config: Mapping[str, Any]) -> bool:
    """Whether a bond's config states how links are monitored: `miimon`, also 0 for not at all, or `arpInterval`."""
    return config.get("miimon") is not None or config.get("arpInterval") not in (None, 0, "0")


class ClaimReference(msgspec.Struct, frozen=True, kw_only=True):
    """The claim that a plan carries out."""

    namespace: str
    name: str
    uid: str


class PlannedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The allocated device of a root step, as the scheduler names it and as the kernel knows it.

    `allow_host_use` reports that its policy lets it be taken from the host while the host uses it,
    `allow_host_addresses` that addresses and routes on it do not prevent it, `keep` which of them the pod keeps,
    `reset` when a VF is reset after the pod had it.
    Of a `pooled` device, the facts are those of the VF that the node chose for the claim, which uses the VF
    exclusively. `identity` is None in plans of an older netdra, and where only the slices are known. `policy` names the
    policy that offers the device, "" if unknown.
    """

    request: str
    pool: str
    device: str
    share_id: str = ""
    consumed_capacity: Mapping[str, str] = {}
    if_name: str = ""
    type: str = ""
    mac: str = ""
    pci_address: str = ""
    pf_name: str = ""
    vf_index: int = -1
    mtu: int = 0
    rdma_device: str = ""
    rdma_mode: str = ""
    iommu_group: str = ""
    device_file: str = ""
    driver: str = ""
    identity: DeviceIdentity | None = None
    allow_host_use: bool = False
    allow_host_addresses: bool = False
    keep: tuple[Keep, ...] = ()
    reset: ResetPolicy = "IfChanged"
    pooled: bool = False
    policy: str = ""
    allowed_sysctls: tuple[str, ...] = ()
    supported_cnis: tuple[str, ...] = msgspec.field(default=(), name="supportedCNIs")

    @property
    def is_shared(self) -> bool:
        """Whether other claims may have the device, too: a share of it is not a possession (decision D55).

        The scheduler gives each allocation of a device with `allowMultipleAllocations` a share id (KEP-5075). A pooled
        VF is the claim's alone anyway.
        """
        return bool(self.share_id) and not self.pooled

    @property
    def key(self) -> str:
        """The key of the device's identity, as far as it is known: by it one device belongs to one pod."""
        return self.identity.key if self.identity is not None else self.pci_address

    @property
    def own_pci_address(self) -> str:
        """The PCI address of a device that belongs to its claim alone, else "".

        To plugins, `deviceID` means "move this device into the pod": OVN-Kubernetes' program and ovs-cni take any for
        SR-IOV.
        """
        return "" if self.is_shared else self.pci_address

    @property
    def is_unchosen(self) -> bool:
        """Whether it stands for all VFs that are offered together: the node chooses one when it prepares the claim."""
        return self.pooled and not self.pci_address

    @property
    def bandwidth(self) -> int:
        """How much of its PF's link a pooled VF was allocated, in Mbit/s; 0 for no bound.

        A PF takes whole Mbit/s, and 0 means unlimited to it: less than 1 Mbit/s is rounded up to 1.
        """
        amount = self._amounts.get(names.qualified(names.BANDWIDTH), Decimal(0)) if self.pooled else 0
        return max(int(amount), 1) if amount > 0 else 0

    @property
    def consumed(self) -> dict[str, Decimal]:
        """The claim's consumption of the device's capacities, by qualified name; a pooled VF's bandwidth as set."""
        bandwidth = {names.qualified(names.BANDWIDTH): Decimal(self.bandwidth)} if self.pooled else {}
        return self._amounts | bandwidth

    @property
    def _amounts(self) -> dict[str, Decimal]:
        return {names.qualified(name): quantity.parse(amount) for name, amount in self.consumed_capacity.items()}


class PlannedPort(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The port in Neutron of an allocated VF, as its NeutronPort stated when the claim was prepared.

    Attributes:
        port_id: the port's id in Neutron.
        settings: what the VF gets of it.
        assign_addresses: whether the VF is given the addresses and routes, or only the step's result has them.
    """

    port_id: str = msgspec.field(name="portID")
    network_id: str = msgspec.field(default="", name="networkID")
    network_name: str = ""
    settings: PortSettings
    assign_addresses: bool = True


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One step, complete except for the references in `config`, which are resolved when its ancestors have run.

    `if_name` is CNI_IFNAME; `network` is the `name` in the CNI configuration. With `neutron`, the device's port in
    Neutron states what `config` does not; `port` is that port, which the claim's record has. `pod_network` is the
    PodNetwork of the addresses in `config`: they are in `ipam` since the claim was prepared; `on_duplicate` is that
    network's (`netdra.model.pod_network`), "" without one. `keep` is None where the device's policy defines it.
    """

    name: str
    type: str
    if_name: str
    network: str
    execution: Literal["Builtin", "Binary"]
    depend_on: tuple[str, ...] = ()
    config: Mapping[str, Any] = {}
    device: PlannedDevice | None = None
    neutron: NeutronRequest | None = None
    port: PlannedPort | None = None
    pod_network: str = ""
    on_duplicate: str = ""
    keep: tuple[Keep, ...] | None = None
    default_route: bool = False
    source_routing: bool = False
    sysctls: Mapping[str, str] = {}

    @property
    def kept(self) -> tuple[Keep, ...]:
        """The parts of its configuration that the step's device keeps: as the step, or else its policy, defines.

        A policy describes many steps: where one gives the interface addresses itself, the policy does not count.
        """
        if self.keep is not None:
            return self.keep
        if self.device is None or self.type not in KEEPING_TYPES or self.execution != "Builtin":
            return ()
        return () if self.neutron is not None or self.config.get("ipam") else self.device.keep

    @property
    def assigned(self) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]:
        """The addresses that were assigned from its PodNetwork when the claim was prepared."""
        if not self.on_duplicate:
            return ()
        return tuple(ipaddress.ip_interface(entry["address"]).ip for entry in self.config["ipam"]["addresses"])

    @property
    def is_root(self) -> bool:
        """Whether the step is an allocated device."""
        return not self.depend_on

    @property
    def plugin(self) -> str:
        """The key of its schema."""
        return described(self.type, is_builtin=self.execution == "Builtin")


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A topology bound to a claim: its steps in the order in which they run, every ancestor before its descendants.

    Of a device that no topology describes, `topology` is "" and the one step has the request's name. `parameters` are
    the values that were put into the steps' configs, the claim's and the defaults. `pod` is the pod whose name or
    ordinal is in the configs: no other pod may have the plan.
    """

    topology: str
    claim: ClaimReference
    steps: tuple[PlannedStep, ...]
    parameters: Mapping[str, Any] = {}
    pod: str = ""


class PlainDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An allocated device without a step.

    With `admin_access` it belongs to another owner, who keeps it; without, no configuration states how to attach it.
    """

    claim: ClaimReference
    device: PlannedDevice
    admin_access: bool = False


class Binding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """All that a pod's claims ask of this driver: the plans to run, in order, and the devices without one."""

    plans: tuple[Plan, ...] = ()
    plain: tuple[PlainDevice, ...] = ()


def called(topology: str, step: str) -> str:
    """A step as messages call it."""
    return f'NetworkTopology "{topology}", step "{step}"' if topology else f'request "{step}"'


def programs(plans: Iterable[Plan]) -> frozenset[str]:
    """The plugins that plans run as programs, IPAM plugins included."""
    return frozenset(_programs(plans))


def _programs(plans: Iterable[Plan]) -> Iterator[str]:
    for step in (step for plan in plans for step in plan.steps):
        if step.execution == "Binary":
            yield step.type
        ipam = step.config.get("ipam")
        if isinstance(ipam, dict) and isinstance(ipam.get("type"), str):
            yield ipam["type"]
