"""DeviceExposurePolicy (networking.dra.io/v1alpha1, cluster-scoped): which devices a node offers, and how.

Written by administrators, read by `netdra.exposure`; docs/policies.md explains the fields.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from netdra.model.health import MAX_RULES, HealthRule
from netdra.model.kept import KeepList
from netdra.model.meta import Condition, LabelSelector, ObjectMeta
from netdra.model.resource import MAX_ATTRIBUTES_AND_CAPACITIES, CapacityRequestPolicy, QuantityText

Priority = Annotated[int, msgspec.Meta(ge=0, le=1000)]
MAX_EXPRESSION = 10 * 1024
MAX_PLUGINS = 16
MAX_SUFFIX = 32
MAX_LANES = 128
TaintEffect = Literal["NoSchedule", "NoExecute"]
ResetPolicy = Literal["Always", "IfChanged", "Never"]


class CapacityValueFrom(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The source of a capacity's value.

    Attributes:
        node_allocatable: The name of one of the node's allocatable resources, e.g. `pods`.
    """

    node_allocatable: Annotated[str, msgspec.Meta(min_length=1, max_length=316)]


class CapacityCounter(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """How much of something a shared device has, and how a claim may ask for it.

    Attributes:
        value: The total amount of the device, which the claims that have the device at the same time share, e.g. `8` or
            `10000`, which is 10 Gbit/s of `bandwidth`. If absent, `valueFrom` is required.
        value_from: The source of the amount on each node, in place of `value`, e.g. `{nodeAllocatable: pods}`. If
            absent, `value` is required.
        request_policy: The amounts that a claim can request, and the default for claims that do not request an amount,
            e.g. `{default: "1"}`. If absent, a claim can request any amount, and the default is the whole capacity.
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
        exclusive: Whether the plugin needs the whole device, e.g. `true` for host-device. While a claim has the device
            for this plugin, no other claim can get any persona of the interface.
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
        lanes: The number of devices into which the VFs of each PF are divided, e.g. `4`. Each device has a part of the
            VFs and of the bandwidth. A request with `count` gets each device at most once, so the number of lanes
            limits the VFs of one PF that a request can get. With more lanes, the scheduler may search longer.
    """

    lanes: Annotated[int, msgspec.Meta(ge=1, le=MAX_LANES)] = 1


class Taints(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The effect of the taints of the policy's devices on pods that already have a device.

    Attributes:
        gone: The effect of the taint `dra.networking/gone`, which a device in use gets when its interface or its
            hardware was removed, e.g. `NoExecute`. `NoSchedule` does not affect the pods that have the device; with
            `NoExecute`, Kubernetes evicts them unless their claim tolerates the taint.
    """

    gone: TaintEffect = "NoSchedule"


class Exposure(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """How a device that the policy matches is offered.

    Attributes:
        device_name_suffix: The suffix that is appended to the interface's name to form the device's name, e.g.
            `-shared`. With different suffixes, several policies can offer the same interface, each as a device
            (persona) of its own. If absent, the device has the interface's name.
        allow_multiple_allocations: Whether several claims may have the device at the same time, each consuming some of
            its capacity, e.g. `true` for the parent of macvlan interfaces.
        capacity: The capacities of the device, by name, e.g. `{shares: {value: "8"}}`. If absent, only the capacities
            that netdra publishes by itself.
        supported_cni_plugins: The CNI plugins that may attach the device, e.g. `[{name: macvlan}]`. They are published
            as the attribute `supportedCNIs`. If absent, none: no topology's DeviceClass selects the device.
        exclusion_group: The name of a group of shared personas of one interface, e.g. `mode`. The personas of a group
            exclude each other: while one is allocated, the others cannot be allocated. If absent, the persona excludes
            no shared persona.
        additional_attributes: Attributes that are published in addition to those of the interface, e.g.
            `{example.com/rack: r7}`. A value is a boolean, an integer, a string, or a list of strings. If absent, none.
        additional_facts: Facts that devices carry only if a policy requests them, e.g. `[ipv4]`. If absent, none: the
            attributes of these facts are empty.
        facts: The default facts of the interface that devices carry, e.g. `[vendor, numaNode, rdma]`; other default
            facts are omitted, except `type`, `ifName`, `pfName`, `vfIndex`, `pciAddress` and `supportedCNIs`, which are
            always published. If absent, all default facts.
        empty_facts: Whether a fact that does not apply to a device is published as an empty string, 0 or false, e.g.
            `false` to make slices smaller. With `false`, the device does not carry the fact, and a selector must test
            for it first: `"vendor" in device.attributes["dra.networking"]`.
        allow_bandwidth_overcommit: Whether claims can get more bandwidth of the devices than the link has, e.g. `true`
            for best-effort traffic. With `false`, the bandwidth of all devices of a NIC together is limited to that of
            its link.
        allow_host_uplink: Whether the interface is offered even if the node's own traffic depends on it, e.g. `true`
            for macvlan on the only NIC. With `false`, the node's uplink and the interfaces below and above it are
            hidden, even if policies match them.
        allow_host_use: Whether the interface is offered whole even if the host itself uses it, e.g. `true` for a NIC
            whose address is not needed. The host uses an interface that is a port of a bridge or a bond, or has an
            address, a route or a VLAN. With `false`, such an interface is only offered in shares.
        allow_host_addresses: Whether the interface is offered whole even if the host has addresses and routes on it,
            but does not use it otherwise, e.g. `true` for a NIC of a GPU's rail that gets its address from DHCP. With
            `false`, such an interface is only offered in shares. The node's uplink stays hidden.
        keep: The parts of the device's configuration on the node that it keeps in the pod, e.g. `[addresses, routes]`.
            It applies to steps of type `host-device`, `sriov` and `rdma` that have no `keep` of their own, no `ipam`
            and no `neutron`. If absent, only the MTU is kept, and the pod's interface gets an address only from a step.
        reset: When a VF that comes back from a pod is reset, e.g. `Always`. `Always`: each time. `IfChanged`: if
            something on the VF was changed that netdra's own steps do not change. `Never`: the VF's settings are
            restored without a reset. A reset takes the VF from its driver, resets the function (FLR), and gives it to
            its driver again. Devices that are not VFs are never reset.
        allowed_sysctls: The kernel settings of a pod's network namespace that steps with the devices may set, in
            addition to those of the step's interface for addresses and ARP, e.g. `[net.core.somaxconn,
            net.ipv4.tcp_*]`; `*` at the end stands for any rest. If absent, no others.
        pooled_vfs: Whether and how the VFs of each selected PF are offered together, as one device or a few (lanes)
            with the capacities `vfs` and `bandwidth`, e.g. `{lanes: 2}`. A claim gets one VF, which the node chooses,
            and the bandwidth that it requests. If absent, each VF is a device.
        taints: The effect of the devices' taints on pods that have the devices, e.g. `{gone: NoExecute}`. If absent,
            the defaults of its fields apply.
        health: Thresholds over counters of the devices' interfaces, from which a device counts as faulty, e.g.
            `[{name: crc-errors, counter: rx_crc_errors, atLeast: 100, effect: NoSchedule}]`. If absent, counters are
            not read for the devices of the policy.
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
    reset: ResetPolicy = "IfChanged"
    allowed_sysctls: Annotated[tuple[str, ...], msgspec.Meta(max_length=32)] = ()
    pooled_vfs: PooledVFs | None = msgspec.field(default=None, name="pooledVFs")
    taints: Taints = Taints()
    health: Annotated[tuple[HealthRule, ...], msgspec.Meta(max_length=MAX_RULES)] = ()


class PolicySelector(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The selected devices.

    Attributes:
        cel: A CEL expression over `device.attributes`, as in a DeviceClass, that is true for the selected devices, e.g.
            `device.attributes["dra.networking"].type == "vf"`.
    """

    cel: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_EXPRESSION)]


class DeviceExposurePolicySpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The interfaces that the policy selects, and how they are offered.

    Attributes:
        selector: The interfaces of a node that the policy applies to, e.g. `{cel:
            'device.attributes["dra.networking"].type == "vf"'}`.
        node_selector: The nodes that the policy applies to, by their labels, e.g. `{matchLabels: {example.com/nic:
            fast}}`. If absent, all nodes.
        priority: The rank of the policy, e.g. `200`. If several `expose` policies with the same `deviceNameSuffix`
            match an interface, the policy with the highest priority applies. If priorities are equal, the policy whose
            name sorts first applies.
        action: The effect on the selected interfaces, e.g. `exclude`. `expose` offers them; `exclude` hides them, and
            takes precedence over all `expose` policies.
        exposure: How the devices are offered, e.g. `{supportedCNIPlugins: [{name: sriov}]}`; only with `action:
            expose`. If absent, each interface is one device, which one claim at a time can get.
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
        conditions: The policy's state, e.g. `[{type: Accepted, status: "True"}]`. `Accepted`: the policy is valid.
            `Conflicting`: another policy of the same priority conflicts with it. If absent, the controller has not
            checked the policy yet.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class DeviceExposurePolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Selects network interfaces of nodes, and offers them as devices that claims can request, or hides them.

    `action: exclude` always takes precedence over `expose`. Interfaces that no policy matches are hidden.

    Attributes:
        spec: The interfaces that the policy selects, and how they are offered.
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
