"""PodNetwork (networking.dra.io/v1alpha1, cluster-scoped): the addresses of a network, for all nodes.

Written by administrators. A topology's step uses it with `network: <name>` and `ipam: {type: network}`; netdra's
controller assigns the addresses (`netdra.model.pod_address`). Read by `netdra.networks`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from netdra.model.meta import Condition, LabelSelector, ObjectMeta

IPAM_TYPE = "network"
"""The `type` in a step's `ipam` by which its addresses come from the PodNetwork of its `network`."""
SLAAC_TYPE = "slaac"
"""The `type` in a built-in step's `ipam` by which its addresses are those that routers advertise."""
READY, AVAILABLE, NEARLY_FULL = "Ready", "AddressesAvailable", "NearlyFull"
"""The conditions of a PodNetwork: whether its spec can be used, whether every range has a free address, and whether a
range has few."""
MAX_RANGES = 64
MAX_EXCLUSIONS = 256
MAX_NETWORK_ROUTES = 64
MAX_SERVERS = 16
MAX_NAMESPACES = 256
MAX_RESERVATIONS = 1024
KEEP_SECONDS = 300
"""For how long an address is kept if the PodNetwork does not say."""
MOST_KEEP_SECONDS = 31_536_000
QUARANTINE_SECONDS = 5
"""For how long a released address is not assigned to another owner if the PodNetwork does not say."""
MOST_QUARANTINE_SECONDS = 86_400
NEARLY_FULL_PERCENT = 90
"""The part of a range's addresses that makes it nearly full if the PodNetwork does not say."""
OnDuplicate = Literal["Ignore", "Report", "Reassign"]
IGNORE: OnDuplicate = "Ignore"
REPORT: OnDuplicate = "Report"
REASSIGN: OnDuplicate = "Reassign"
Requests = Literal["Optional", "Required"]
REQUIRED: Requests = "Required"
MOST_PER_NAMESPACE = 1_000_000_000
CONFLICT_SECONDS = 3600
"""For how long an address is not assigned that another machine on the wire was found to have."""


class AddressRange(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Addresses of one subnet that pods can get.

    Attributes:
        cidr: The subnet, of IPv4 or IPv6, e.g. `10.77.0.0/16`. Its network address, and for IPv4 its broadcast address,
            are never assigned.
        first: The first address that is assigned, e.g. `10.77.1.0`. If absent, the first of the subnet.
        last: The last address that is assigned, e.g. `10.77.1.255`. If absent, the last of the subnet.
        exclude: Addresses that are never assigned: single addresses, spans and subnets, e.g. `[10.77.1.9, 10.77.2.0/24,
            10.77.3.1-10.77.3.9]`. If absent, only the gateway is excluded.
        gateway: The router of the subnet, e.g. `10.77.0.1`; it is never assigned. Routes without a gateway of their own
            use it. If absent, the subnet has no router.
        node_selector: The nodes on which the range is used, by their labels, e.g. `{matchLabels: {example.com/rack:
            a}}`. If absent, all nodes.
    """

    cidr: str
    first: str = ""
    last: str = ""
    exclude: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_EXCLUSIONS)] = ()
    gateway: str = ""
    node_selector: LabelSelector | None = None


class NetworkRoute(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """A route that pods on the network get.

    Attributes:
        destination: The subnet behind the router, e.g. `10.0.0.0/8`.
        gateway: The router, e.g. `10.77.0.1`. If absent, the gateway of the address's range.
    """

    destination: str
    gateway: str = ""


class Reservation(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """An address that only one pod or claim gets.

    Attributes:
        address: The address, within a range, e.g. `10.77.1.5`.
        namespace: The namespace of the pod or claim, e.g. `db`.
        name: The name of the pod, or of a claim that was not created for a pod, e.g. `postgres-0`.
    """

    address: str
    namespace: str
    name: str


class NetworkLimits(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The limits of a network.

    Attributes:
        per_namespace: The number of steps of one namespace's claims that can have addresses, e.g. `20`. Each step has
            an address of each family. Addresses that are kept or in quarantine for the namespace count, too. If absent,
            the number is not limited.
    """

    per_namespace: Annotated[int, msgspec.Meta(ge=1, le=MOST_PER_NAMESPACE)] | None = None


class PodNetworkSpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The addresses of a network, and the settings that pods get with them.

    Attributes:
        ranges: The subnets, e.g. `[{cidr: 10.77.0.0/16}]`. With subnets of IPv4 and IPv6, each step gets an address of
            both.
        routes: The routes that pods on the network get, e.g. `[{destination: 10.0.0.0/8}]`. If absent, only the route
            to the subnet.
        dns: Name servers, e.g. `[10.77.0.2]`, that the step's result reports. If absent, none.
        mtu: The MTU of the network in bytes, e.g. `9000`, for steps whose config has none. If absent, the plugin's
            default.
        physnet: The physical network that the devices of the steps must have as their attribute `physnet`, e.g.
            `storage`. If absent, any physical network.
        vlan: The VLAN that the steps must use, e.g. `100`. If absent, any VLAN.
        namespaces: The namespaces whose claims get addresses, e.g. `[db, web]`. If absent, all.
        requests: Whether a claim must request its addresses by the DeviceClass `podnetwork.<name>`, e.g. `Required`: a
            claim without the request, or for fewer steps than it has on the network, gets no address. So a
            ResourceQuota of that class applies to all claims. If absent, `Optional`.
        limits: The limits of the network, e.g. `{perNamespace: 20}`. If absent, none.
        keep_seconds: The time in seconds for which the address of a StatefulSet's replica, or of a claim that was not
            created for a pod, stays reserved after the claim was deleted, e.g. `3600`. The next claim of the same owner
            gets it. `0` releases it at once, as addresses of other claims are. If absent, 300.
        quarantine_seconds: The time in seconds for which a released address is not assigned to another owner, e.g.
            `60`: neighbours forget it meanwhile. If absent, 5.
        on_duplicate: The action when another machine on the wire has an address of a pod, e.g. `Reassign`. `Report`:
            the pod keeps it, and gets the event DuplicateAddress; the node asks the wire once the pod has its network.
            `Reassign`: the node asks the wire for 0.3 seconds before the pod starts; if another machine answers, the
            pod does not start, its claim gets another address, and this one is not assigned for an hour. `Ignore`: the
            wire is not asked. If absent, `Report`.
        nearly_full_percent: The part of a range's addresses, in percent, that are assigned or reserved when the
            condition `NearlyFull` becomes True, e.g. `80`. It becomes False again when a twentieth of the addresses is
            free beyond that. `100` reports only full ranges. If absent, 90.
        reservations: Addresses that are reserved for certain pods or claims, e.g. `[{address: 10.77.1.5, namespace: db,
            name: postgres-0}]`. If absent, none.
    """

    ranges: Annotated[tuple[AddressRange, ...], msgspec.Meta(min_length=1, max_length=MAX_RANGES)]
    routes: Annotated[tuple[NetworkRoute, ...], msgspec.Meta(max_length=MAX_NETWORK_ROUTES)] = ()
    dns: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_SERVERS)] = ()
    mtu: Annotated[int, msgspec.Meta(ge=68, le=65535)] | None = None
    physnet: Annotated[str, msgspec.Meta(max_length=64)] = ""
    vlan: Annotated[int, msgspec.Meta(ge=1, le=4094)] | None = None
    namespaces: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_NAMESPACES)] = ()
    requests: Requests | None = None
    limits: NetworkLimits | None = None
    keep_seconds: Annotated[int, msgspec.Meta(ge=0, le=MOST_KEEP_SECONDS)] | None = None
    quarantine_seconds: Annotated[int, msgspec.Meta(ge=0, le=MOST_QUARANTINE_SECONDS)] | None = None
    on_duplicate: OnDuplicate | None = None
    nearly_full_percent: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    reservations: Annotated[tuple[Reservation, ...], msgspec.Meta(max_length=MAX_RESERVATIONS)] = ()

    @property
    def per_namespace(self) -> int | None:
        """How many steps of a namespace can have addresses; None without a limit."""
        return self.limits.per_namespace if self.limits is not None else None

    def allows(self, namespace: str) -> bool:
        """Whether claims of a namespace get addresses."""
        return not self.namespaces or namespace in self.namespaces

    @property
    def keep(self) -> int:
        """For how many seconds an address is kept after its claim."""
        return KEEP_SECONDS if self.keep_seconds is None else self.keep_seconds

    @property
    def quarantine(self) -> int:
        """For how many seconds a released address is not assigned to another owner."""
        return QUARANTINE_SECONDS if self.quarantine_seconds is None else self.quarantine_seconds

    @property
    def nearly_full(self) -> int:
        """The part of a range's addresses, in percent, that makes it nearly full."""
        return NEARLY_FULL_PERCENT if self.nearly_full_percent is None else self.nearly_full_percent


class RangeUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of assigned addresses of a range. Numbers beyond 9223372036854775807 are shown as that.

    Attributes:
        cidr: The range's subnet, e.g. `10.77.0.0/16`.
        total: The number of addresses that can be assigned, reserved ones included, e.g. `65533`.
        used: The number of addresses that claims have, e.g. `12`.
        reserved: The number of addresses that are not assigned to a claim, but reserved for one, e.g. `3`.
        nearly_full: Whether the range has few free addresses, e.g. `true`: see the spec's `nearlyFullPercent`.
    """

    cidr: str
    total: int
    used: int
    reserved: int
    nearly_full: bool = False


class PodNetworkStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The assigned and free addresses of a network.

    Attributes:
        observed_generation: The generation of the network that this status describes, e.g. `3`.
        conditions: The network's state, e.g. `[{type: Ready, status: "True"}]`. `Ready`: the spec is valid.
            `AddressesAvailable`, if False: a range has no free address. `NearlyFull`, if True: a range has few free
            addresses. If absent, the controller has not checked the network yet.
        ranges: The numbers of assigned and free addresses of each range, e.g. `[{cidr: 10.77.0.0/16, total: 65533,
            used: 12, reserved: 3}]`, in the order of the spec. If absent, the controller has not counted yet.
        users: The number of claims that have addresses of the network, e.g. `12`.
        total: The number of addresses of all ranges that can be assigned, e.g. `65533`.
        used: The number of addresses that claims have, e.g. `12`.
        reserved: The number of addresses that are not assigned to a claim, but reserved for one, e.g. `3`.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    ranges: tuple[RangeUsage, ...] = ()
    users: int = 0
    total: int = 0
    used: int = 0
    reserved: int = 0


def is_problem(condition: Condition) -> bool:
    """Whether a condition of a PodNetwork reports a problem."""
    return condition.status == ("True" if condition.type == NEARLY_FULL else "False")


class PodNetwork(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The addresses of a network for steps of NetworkTopologies; each address is assigned once in the whole cluster.

    Attributes:
        spec: The address ranges, and the settings that pods get with an address.
        status: The state of the network and the number of assigned addresses; written by netdra.
    """

    metadata: ObjectMeta
    spec: PodNetworkSpec
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["PodNetwork"]
    status: PodNetworkStatus | None = None

    @property
    def name(self) -> str:
        """The network's name, as steps write it."""
        return self.metadata.name
