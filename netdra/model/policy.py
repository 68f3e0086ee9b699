"""DeviceExposurePolicy (networking.dra.io/v1alpha1, cluster-scoped): which devices a node offers, and how.

Written by administrators, read by `netdra.exposure`; docs/policies.md explains the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from netdra.model.kept import KeepList
from netdra.model.meta import Condition, LabelSelector, ObjectMeta
from netdra.model.resource import MAX_ATTRIBUTES_AND_CAPACITIES, CapacityRequestPolicy, QuantityText

Priority = Annotated[int, msgspec.Meta(ge=0, le=1000)]
MAX_EXPRESSION = 10 * 1024
MAX_PLUGINS = 16
MAX_SUFFIX = 32
MAX_LANES = 128
TaintEffect = Literal["NoSchedule", "NoExecute"]


class CapacityValueFrom(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Where a capacity's value is read.

    Attributes:
        node_allocatable: The name of one of the node's allocatable resources, e.g. `pods`.
    """

    node_allocatable: Annotated[str, msgspec.Meta(min_length=1, max_length=316)]


class CapacityCounter(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """How much of something a shared device has, and how a claim may ask for it.

    Attributes:
        value: The whole amount of the device, shared among the claims that have the device at one time, e.g. `8` or
            `10G`. If absent, `valueFrom` is required.
        value_from: Where the amount is read on each node, in place of `value`, e.g. `{nodeAllocatable: pods}`. If
            absent, `value` is required.
        request_policy: The amount that a claim consumes if it names none, and the amounts that it may name, e.g.
            `{default: "1"}`. If absent, a claim that names no amount consumes the whole, and may name any amount.
    """

    value: QuantityText = ""
    value_from: CapacityValueFrom | None = None
    request_policy: CapacityRequestPolicy | None = None


class SupportedCNIPlugin(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """A CNI plugin that the device may be attached with.

    Attributes:
        name: The plugin's type, e.g. `macvlan`: the `type` of a NetworkTopology's root step.
        exclusive: Whether the plugin takes the whole device, e.g. `true` for host-device: meanwhile no other claim can
            have any persona of the interface.
        consume_per_allocation: The amount of each capacity that one allocation through this plugin consumes, e.g.
            `{shares: "1"}`. If absent, the default of the capacity's `requestPolicy`.
    """

    name: str
    exclusive: bool = False
    consume_per_allocation: Mapping[str, QuantityText] = {}


class PooledVFs(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """How the VFs of a PF are offered together.

    Attributes:
        lanes: The number of devices as which the VFs of each PF are offered, e.g. `4`. Each has its part of the VFs and
            of the bandwidth. A request with `count` gets every device once at most, so it can have no more VFs of a PF
            than there are lanes; the more lanes, the longer the scheduler may search.
    """

    lanes: Annotated[int, msgspec.Meta(ge=1, le=MAX_LANES)] = 1


class Taints(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """What a taint of the policy's devices does beyond keeping further claims off.

    Attributes:
        gone: The effect of the taint `dra.networking/gone`, which a device in use gets when its interface or its
            hardware was removed, e.g. `NoExecute`. `NoSchedule` does not affect the pods that have the device;
            with `NoExecute` Kubernetes evicts them, unless their claim tolerates the taint.
    """

    gone: TaintEffect = "NoSchedule"


class Exposure(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """How a device that the policy matches is offered.

    Attributes:
        device_name_suffix: Appended to the interface's name to form the device's name, e.g. `-shared`, so that several
            policies can each publish a persona of one interface. If absent, the device has the interface's name.
        allow_multiple_allocations: Whether several claims may have the device at the same time, each consuming some of
            its capacity, e.g. `true` for the parent of macvlan interfaces.
        capacity: The capacities of the device, by name, e.g. `{shares: {value: "8"}}`. If absent, those that netdra
            publishes by itself.
        supported_cni_plugins: The CNI plugins that may attach the device, e.g. `[{name: macvlan}]`; published as the
            attribute supportedCNIs. If absent, none: no topology's DeviceClass selects the device.
        exclusion_group: Shared personas of one interface that name the same group, e.g. `mode`, exclude each other:
            while one is in use, the others cannot be allocated. If absent, the persona excludes no shared persona.
        additional_attributes: Attributes that are published beside the interface's own, e.g. `{example.com/rack: r7}`.
            A value is a boolean, an integer, a string, or a list of strings. If absent, none.
        additional_facts: Facts that devices carry only if a policy asks for them, e.g. `[ipv4]`. If absent, none; the
            attributes are empty then.
        facts: The facts of the interface that devices carry, of those that they carry by default, e.g. `[vendor,
            numaNode, rdma]`; type, ifName, pfName, vfIndex, pciAddress and supportedCNIs are always among them. If
            absent, all.
        empty_facts: Whether a fact that does not apply to a device is published as an empty text, 0 or false, e.g.
            `false` to make slices smaller. The device then does not carry it, and a selector asks for it first:
            `"vendor" in device.attributes["dra.networking"]`.
        allow_bandwidth_overcommit: Whether claims may have more bandwidth of the devices than the link has, e.g. `true`
            for best-effort traffic. Without it, a device takes its capacity `bandwidth` from its NIC's link, so that
            all devices together never lend more.
        allow_host_uplink: Whether the interface is offered even if the node's own traffic depends on it, e.g. `true`
            for macvlan on the only NIC. Without it, an uplink and the interfaces below and above it are hidden,
            even if other policies match them.
        allow_host_use: Whether the interface is offered whole even if the host itself uses it, e.g. `true` for a NIC
            whose address nobody needs: it is a port of a bridge or a bond, or has an address, a route or a VLAN.
            Without it, only shares of it are offered meanwhile.
        allow_host_addresses: Whether the interface is offered whole even if the host has addresses and routes on it,
            and uses it for nothing else, e.g. `true` for a NIC of a GPU's rail that gets its address from DHCP. Without
            it, only shares of it are offered meanwhile. The node's uplink stays hidden.
        keep: The configuration of the device on the node that it keeps in the pod, e.g. `[addresses, routes]`. It
            counts for steps of type `host-device`, `sriov` and `rdma` without a `keep` of their own, and without
            `ipam` or `neutron`. If absent, only the MTU; the pod's interface has no address then, unless a step gives
            it one.
        pooled_vfs: Offers the VFs of each PF that the policy selects as one device, or a few, with the capacities `vfs`
            and `bandwidth`, e.g. `{lanes: 2}`. A claim gets one VF, which the node chooses, and as much bandwidth as it
            requests. If absent, each VF is a device.
        taints: The effect of the devices' taints on pods that have the devices, e.g. `{gone: NoExecute}`. If absent,
            the defaults of its fields.
    """

    device_name_suffix: str = ""
    allow_multiple_allocations: bool = False
    capacity: Mapping[str, CapacityCounter] = {}
    supported_cni_plugins: tuple[SupportedCNIPlugin, ...] = msgspec.field(default=(), name="supportedCNIPlugins")
    exclusion_group: str = ""
    additional_attributes: Mapping[str, bool | int | str | tuple[str, ...]] = {}
    additional_facts: Annotated[tuple[str, ...], msgspec.Meta(max_length=4)] = ()
    facts: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ATTRIBUTES_AND_CAPACITIES)] | None = None
    empty_facts: bool = True
    allow_bandwidth_overcommit: bool = False
    allow_host_uplink: bool = False
    allow_host_use: bool = False
    allow_host_addresses: bool = False
    keep: KeepList = ()
    pooled_vfs: PooledVFs | None = msgspec.field(default=None, name="pooledVFs")
    taints: Taints = Taints()


class PolicySelector(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which devices are meant.

    Attributes:
        cel: A CEL expression over `device.attributes`, as in a DeviceClass; true for the devices that are meant, e.g.
            `device.attributes["dra.networking"].type == "vf"`.
    """

    cel: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_EXPRESSION)]


class DeviceExposurePolicySpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The devices that the policy selects, and how it offers them.

    Attributes:
        selector: The interfaces of a node that the policy applies to, e.g. `{cel:
            'device.attributes["dra.networking"].type == "vf"'}`.
        node_selector: The nodes that the policy applies to, by their labels, e.g. `{matchLabels: {example.com/nic:
            fast}}`. If absent, all nodes.
        priority: The rank of the policy, e.g. `200`: if several expose policies with the same deviceNameSuffix match an
            interface, the one with the highest priority applies; of equal ones, the one whose name sorts first.
        action: The effect on the selected interfaces, e.g. `exclude`. `expose` offers them; `exclude` hides them and
            wins over every expose.
        exposure: How the devices are offered, e.g. `{supportedCNIPlugins: [{name: sriov}]}`; only with `action:
            expose`. If absent, each interface is one device, for one claim at a time.
    """

    selector: PolicySelector
    node_selector: LabelSelector | None = None
    priority: Priority = 100
    action: Literal["expose", "exclude"] = "expose"
    exposure: Exposure | None = None


class DeviceExposurePolicyStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Whether a policy can be used. Its result on the nodes is in its DeviceExposurePolicyRollout.

    Attributes:
        observed_generation: The generation of the policy that this status describes, e.g. `3`.
        conditions: The policy's state, e.g. `[{type: Accepted, status: "True"}]`. `Accepted`: the policy can be used at
            all. `Conflicting`: another policy of the same rank conflicts with it. If absent, the controller has not
            checked the policy yet.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class DeviceExposurePolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Says which network interfaces of a node become devices that claims can be given, and how.

    `action: exclude` always wins over `expose`; what no policy matches is hidden.

    Attributes:
        spec: The devices that the policy selects, and how it offers them.
        status: Whether the policy can be used; written by netdra.
    """

    metadata: ObjectMeta
    spec: DeviceExposurePolicySpec
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["DeviceExposurePolicy"]
    status: DeviceExposurePolicyStatus | None = None

    @property
    def name(self) -> str:
        """The policy's name, which also breaks ties between equal priorities."""
        return self.metadata.name
