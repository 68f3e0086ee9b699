"""NetworkTopology (networking.dra.io/v1alpha1, cluster-scoped): a pod's whole network as a graph of steps.

Written by the platform team. A root step (no `dependOn`) is a device that the scheduler allocates; a derived step is
configuration on top of others. Read by `netdra.topology`; docs/topologies.md explains the fields.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from netdra.model.inventory import DEVICE_FILE
from netdra.model.kept import KeepList
from netdra.model.meta import Condition, ObjectMeta
from netdra.model.pod_network import IPAM_TYPE, SLAAC_TYPE
from netdra.model.policy import PolicySelector

MAX_STEPS = 64
MAX_ROOTS = 32
"""The requests that a claim may have (`DeviceRequestsMaxSize` of resource.k8s.io/v1), and each root step needs one."""
MAX_PARAMETERS = 32
MAX_CHOICES = 32
MAX_PODS = 512
MAX_NEUTRON_ITEMS = 16
VALUES_KIND = "ParameterValues"
Execution = Literal["Auto", "Binary"]
BUILTIN_TYPES = frozenset({"sriov", "host-device", "bond", "vlan", "tuning", "vrf", "vfio-pci", "rdma", DEVICE_FILE})
"""The types that netdra itself carries out (decision D7); every other type is a CNI plugin's binary."""
WITHOUT_NETDEV = frozenset({DEVICE_FILE, "vfio-pci"})
"""Types whose device has no interface in the pod; a derived `rdma` has none, too."""
MOVING_TYPES = frozenset({"sriov", "host-device", "vfio-pci", "rdma", "ib-sriov"})
"""Steps after which the host no longer has the device: it is in one pod, or bound to a driver for one."""


def described(kind: str, *, is_builtin: bool) -> str:
    """The key of a plugin's schema: its type; the program of a built-in type is another plugin."""
    return kind if is_builtin or kind not in BUILTIN_TYPES else f"{kind} (Binary)"


def is_addressed(config: Mapping[str, Any]) -> bool:
    """Whether a step's addresses come from the PodNetwork of its network."""
    return _ipam_type(config) == IPAM_TYPE


def is_autoconfigured(config: Mapping[str, Any]) -> bool:
    """Whether a step's addresses are those that routers advertise."""
    return _ipam_type(config) == SLAAC_TYPE


def _ipam_type(config: Mapping[str, Any]) -> object:
    ipam = config.get("ipam")
    return ipam.get("type") if isinstance(ipam, Mapping) else None


class NeutronRequest(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The port in OpenStack's Neutron for a root step's VF. Neutron and netdra choose the values of absent fields.

    A text may be the value of a parameter, `{{ params.<name> }}`, so that claims give it within the author's bounds.

    Attributes:
        network: The network's id or name, e.g. `blue`. If absent, the network that netdra's controller is configured
            with for the VF's physical network, or the only network of that physical network.
        subnet: The id or name of the subnet from which the port gets its addresses, e.g. `blue-4`. If absent, Neutron
            chooses one.
        security_groups: The ids of security groups, e.g. `[5b6d2a4e-7c1f-4f0b-9d3e-2a1c8e7f6b50]`; `[]` for none. If
            absent, Neutron's default applies.
        qos_policy: The id of a QoS policy, e.g. `0c7e41d2-93ab-4b1e-8f65-d4a2b7c9e310`. If absent, the network's.
        fixed_ips: The addresses of the port, without prefix lengths, e.g. `[10.77.0.5]`. If absent, Neutron chooses.
        port: The id of an existing port that is used in place of a new one, e.g.
            `f2a9d7c4-1e3b-46d8-a5c0-7b8e9d6f4a21`; other fields are rejected then. If absent, a new port is created.
        assign_addresses: Whether the VF gets the port's addresses and routes, e.g. `false` if they belong on an
            interface on top of the VF, such as a bond, whose step refers to them as `{{ <step>.ips[0].address }}`.
    """

    network: str = ""
    subnet: str = ""
    security_groups: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_NEUTRON_ITEMS)] | None = None
    qos_policy: str = ""
    fixed_ips: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_NEUTRON_ITEMS)] = msgspec.field(
        default=(), name="fixedIPs"
    )
    port: str = ""
    assign_addresses: bool = True


class Step(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """One node of the graph: a device to allocate and attach, or a CNI plugin that uses the results of earlier steps.

    Attributes:
        name: The step's name, e.g. `vf0`: a DNS label, unique in the topology.
        type: The CNI plugin of the step, e.g. `sriov`, `bond`, `vlan`, `tuning`.
        depend_on: The steps that must run before this step, e.g. `[vf0, vf1]`; the plugin gets their results. If
            absent, the step is a root step: a device that the scheduler allocates.
        selector: The devices that the step accepts, e.g. `{cel: 'device.attributes["dra.networking"].type == "vf"'}`;
            required in a root step, and only there. If absent, the step must have `dependOn`.
        config: The plugin's configuration, e.g. `{mode: bridge}`. Values can refer to the results of earlier steps, as
            `{{ vf0.interfaceName }}`, and to facts of the device, the node and the pod, as `{{ device.ifName }}`. If
            absent, the plugin's defaults apply.
        execution: How the step runs, e.g. `Binary`: as the plugin's program even if netdra has the type built in.
            `Auto` runs the built-in type, and the program of every other type.
        network: The name of the step's network, which the author chooses, e.g. `storage`. All steps with the same
            network, also in other topologies, share the leases of their IPAM plugins. With `ipam: {type: network}`, it
            is the name of the PodNetwork that the step's addresses are assigned from. If absent, the step has a network
            of its own.
        default_route: Whether the step may add a default route with the same priority as the route of `eth0`, e.g.
            `true` for a pod whose traffic leaves through this interface. With `false`, such a route from `ipam`, a
            router or a plugin is rejected or not added, because the pod could no longer reach the cluster's Services;
            one among the step's own `routes` is accepted with a warning.
        source_routing: Whether traffic from an address of the step's interface leaves by that interface, e.g. `true`
            for each rail of a pod: the interface gets a routing table of its own, and answers ARP requests for its own
            addresses alone. With `false`, the destination decides, and of two interfaces in one network only one sends.
        sysctls: The kernel settings of the step's interface and of the pod's network namespace that are set before the
            step runs, and so before the interface is up, e.g. `{net.ipv6.conf.IFNAME.accept_ra: "0"}`; `IFNAME` is the
            interface. Settings other than those of the interface for addresses and ARP require `allowedSysctls` in the
            policy of the device. If absent, none.
        keep: The parts of the device's configuration on the node that it keeps in the pod, e.g. `[addresses, routes]`;
            only in root steps of type `host-device`, `sriov` and `rdma`. `[]` keeps nothing. If absent, the `keep` of
            the device's policy applies, unless the step has `ipam` or `neutron`.
        extended_resource_name: The name of an extended resource, e.g. `example.com/vf`, with which containers can
            request the root step's device in their limits, without a claim. If absent, a claim is required.
        neutron: The port in OpenStack's Neutron that defines the VF's MAC address, VLAN, rates and addresses, e.g.
            `{network: blue}`; only in root steps of type `sriov`. If absent, the VF has no port.
    """

    name: str
    type: str
    depend_on: tuple[str, ...] = ()
    selector: PolicySelector | None = None
    config: Mapping[str, Any] = {}
    execution: Execution = "Auto"
    network: str = ""
    default_route: bool = False
    source_routing: bool = False
    sysctls: Annotated[Mapping[str, Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=32)] = {}
    keep: KeepList | None = None
    extended_resource_name: str = ""
    neutron: NeutronRequest | None = None

    @property
    def is_builtin(self) -> bool:
        """Whether netdra itself carries the step out."""
        return self.execution == "Auto" and self.type in BUILTIN_TYPES

    @property
    def pod_network(self) -> str:
        """The PodNetwork that the step's addresses come from; "" if they do not come from one."""
        return self.network if is_addressed(self.config) else ""

    @property
    def is_root(self) -> bool:
        """Whether the step is an allocated device."""
        return not self.depend_on

    @property
    def plugin(self) -> str:
        """The key of its schema."""
        return described(self.type, is_builtin=self.is_builtin)


class DeclaredParameter(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """A value that a claim gives, within bounds that the topology's author sets (decision D32).

    Attributes:
        name: The name of the value in claims and in the references of steps, `{{ params.<name> }}`, e.g. `address`:
            letters and digits.
        type: The type of the value, e.g. `[]string`. The format applies to each string of a list.
        format: The syntax of a string, e.g. `cidr` (an address with its prefix length); `ip` (an address), `subnet` (a
            network), `mac` (the MAC address of one interface). If absent, a string requires an `enum`.
        enum: All valid values of a string, e.g. `[fast, slow]`. If absent, every value of the format.
        within: The networks in which an address, with its prefix, or a subnet must lie, e.g. `[10.77.0.0/16]`. If
            absent, any network.
        minimum: The minimum of an integer, e.g. `1`. If absent, an integer is rejected, because it requires bounds.
        maximum: The maximum of an integer, e.g. `4094`. If absent, an integer is rejected, because it requires bounds.
        min_items: The minimum length of a list, e.g. `1`. If absent, a list may be empty.
        max_items: The maximum length of a list, e.g. `4`. If absent, no maximum.
        default: The value for claims that do not set it, e.g. `10.77.0.5/24`. If absent, every claim must set the
            value.
        description: The purpose of the value, for people, e.g. `the pod's address in the storage network`. If absent,
            none.
    """

    name: str
    type: Literal["string", "integer", "boolean", "[]string"] = "string"
    format: Literal["", "cidr", "ip", "subnet", "mac"] = ""
    enum: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_CHOICES)] = ()
    within: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_CHOICES)] = ()
    minimum: int | None = None
    maximum: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    default: Any = None
    description: str = ""


class NetworkTopologySpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The graph's steps, and the parameters that claims may set.

    Attributes:
        steps: The steps, e.g. `[{name: lan, type: macvlan, selector: {cel: 'true'}}]`, in any order. `dependOn`
            determines the order in which they run.
        parameters: The values that claims can set, e.g. `[{name: address, format: cidr}]`. Other values are rejected.
            If absent, claims cannot set values.
    """

    steps: Annotated[tuple[Step, ...], msgspec.Meta(min_length=1, max_length=MAX_STEPS)]
    parameters: Annotated[tuple[DeclaredParameter, ...], msgspec.Meta(max_length=MAX_PARAMETERS)] = ()


class NetworkTopologyStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of compiling a topology. The claims that use it are in its NetworkTopologyUsage.

    Attributes:
        observed_generation: The generation of the topology that this status describes, e.g. `3`.
        conditions: The topology's state, e.g. `[{type: Ready, status: "True"}]`. `Compiled`: the graph is valid.
            `Ready`: all DeviceClasses are up to date, and nodes run the topology's plugins. If absent, the controller
            has not checked the topology yet.
        device_classes: The DeviceClasses of the root steps, e.g. `[net-vf0, net-vf1]`. If absent, they do not exist
            yet.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    device_classes: tuple[str, ...] = ()


class NetworkTopology(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod's whole network as a graph of steps: devices that the scheduler allocates, and interfaces on top of them.

    For each root step, netdra creates the DeviceClass `<topology>-<step>`, which claims request.

    Attributes:
        spec: The steps of the graph, and the parameters that claims can set.
        status: The state of the topology and its DeviceClasses; written by netdra.
    """

    metadata: ObjectMeta
    spec: NetworkTopologySpec
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["NetworkTopology"]
    status: NetworkTopologyStatus | None = None

    @property
    def name(self) -> str:
        """The topology's name: the prefix of its DeviceClasses and of its networks' names."""
        return self.metadata.name

    @property
    def asks_neutron(self) -> bool:
        """Whether it has steps whose devices get ports of Neutron."""
        return any(step.neutron is not None for step in self.spec.steps)

    @property
    def asks_addresses(self) -> bool:
        """Whether it has steps whose addresses come from PodNetworks."""
        return any(step.pod_network for step in self.spec.steps)


class NetworkTopologyReference(msgspec.Struct, frozen=True, kw_only=True):
    """The topology of the class."""

    name: str


class TopologyParameters(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The parameters of a generated DeviceClass, and of every device allocated through it: its topology and step."""

    network_topology_ref: NetworkTopologyReference
    step: str


class ParameterValues(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A claim's values for the topologies that it uses: opaque configuration of the claim, never an object.

    The one thing of a claim's own configuration that counts (decision D32).

    Attributes:
        values: by the parameters' names.
        per_pod: by the parameters' names, the value of each pod of a StatefulSet, by its ordinal.
    """

    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["ParameterValues"]
    values: Mapping[str, Any] = {}
    per_pod: Mapping[str, Annotated[tuple[Any, ...], msgspec.Meta(max_length=MAX_PODS)]] = {}
