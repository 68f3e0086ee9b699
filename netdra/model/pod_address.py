"""PodAddress (networking.dra.io/v1alpha1, cluster-scoped): one address of a PodNetwork that a claim has.

Named after the network and the address, so the API server itself refuses a second one (decision D68). Written by
netdra's controller alone, read by the node that the claim was allocated on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Annotated, Literal, TypeVar

import msgspec

from netdra.model import ip
from netdra.model.meta import ObjectMeta, order, time_of
from netdra.model.pod_network import MAX_NETWORK_ROUTES, MAX_SERVERS, OnDuplicate

Family = Literal["IPv4", "IPv6"]
_NOTHING: Mapping[str, str] = MappingProxyType({})


class AddressOwner(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, order=True):
    """The interface that an address belongs to, by names that outlive a claim and its pod.

    Attributes:
        namespace: The namespace of the claim, e.g. `db`.
        pod: The pod for which the claim was created, e.g. `postgres-0`. If absent, the claim was not created for a pod.
        claim: The name of the claim in its pod's spec, or a claim's own name, e.g. `net`. Of an imported lease, the ID
            of the container, or else the interface.
        topology: The NetworkTopology, e.g. `storage-lan`. Empty for an imported lease.
        step: The topology's step, e.g. `lan`. Empty for an imported lease.
        index: The index of the claim's device for which the topology runs, e.g. `1`; 0 for the first.
    """

    namespace: str
    pod: str = ""
    claim: str
    topology: str
    step: str
    index: int = 0

    @property
    def name(self) -> str:
        """The pod's name, or else the claim's: the name that reservations are for."""
        return self.pod or self.claim


class AddressClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The claim that has an address.

    Attributes:
        name: The claim's name, in the owner's namespace, e.g. `postgres-0-net-x7k2p`.
        uid: The claim's uid, e.g. `0b9c1f9e-3c52-4a37-8f0e-5d3f9f3c1c11`.
    """

    name: str
    uid: str


class AddressLease(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The lease of another IPAM plugin that an address was imported from.

    Attributes:
        plugin: The IPAM plugin, e.g. `whereabouts`.
        pool: The IPPool of whereabouts with its namespace, e.g. `kube-system/10.77.0.0-16`, or the folder of
            host-local, e.g. `storage-net`.
        container: The ID of the container, e.g. `4f5ae1`. If absent, the plugin did not store it.
        interface: The pod's interface, e.g. `net1`. If absent, the plugin did not store it.
        node: The node whose disk has the lease, e.g. `node-1`. If absent, the lease is an object of the cluster.
    """

    plugin: Literal["whereabouts", "host-local"]
    pool: str
    container: str = ""
    interface: str = ""
    node: str = ""


class AddressRoute(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A route that the interface gets with the address.

    Attributes:
        destination: The subnet behind the router, e.g. `10.0.0.0/8`.
        gateway: The router, e.g. `10.77.0.1`. If absent, the subnet is on the wire itself.
    """

    destination: str
    gateway: str = ""


class PodAddressSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The owner of the address, and the settings that the interface gets with it.

    Attributes:
        network: The PodNetwork, e.g. `storage`.
        address: The address with the prefix length of its subnet, e.g. `10.77.0.5/16`.
        families: The address families of which the interface gets an address, e.g. `[IPv4, IPv6]`.
        owner: The interface, by names that outlive its pod, e.g. `{namespace: db, pod: postgres-0, claim: net,
            topology: storage-lan, step: lan}`.
        claim: The claim that has the address, e.g. `{name: postgres-0-net-x7k2p, uid: 0b9c}`. If absent, the address is
            reserved for the owner's next claim, or has a lease of another IPAM plugin.
        node_name: The node that the claim was allocated on, e.g. `node-1`. Without a claim, the node of its former pod:
            the address is not assigned until the node reports that the pod no longer has it. If absent, no pod has
            the address.
        kept_since: The time since which the address has no claim, in RFC 3339, e.g. `"2026-11-27T10:00:00Z"`. If
            absent, a claim or another IPAM plugin has it.
        lease: The lease of another IPAM plugin, e.g. `{plugin: whereabouts, pool: kube-system/10.77.0.0-16}`: the
            address is not assigned to claims until the lease is released. If absent, netdra assigned the address.
        conflict_since: The time since which the address is not assigned because another machine on the wire has it, in
            RFC 3339, e.g. `"2026-11-27T10:00:00Z"`. If absent, no such machine was found.
        on_duplicate: The action when another machine on the wire has the address, e.g. `Reassign`. If absent, the wire
            is not asked.
        gateway: The router of the subnet, e.g. `10.77.0.1`. If absent, none.
        routes: The routes that the interface gets, e.g. `[{destination: 10.0.0.0/8, gateway: 10.77.0.1}]`. If absent,
            none.
        dns: The network's name servers, e.g. `[10.77.0.2]`. If absent, none.
        mtu: The network's MTU in bytes, e.g. `9000`. If absent, the plugin's default.
        physnet: The physical network that the device must have, e.g. `storage`. If absent, any.
    """

    network: str
    address: str
    families: Annotated[tuple[Family, ...], msgspec.Meta(min_length=1, max_length=2)]
    owner: AddressOwner
    claim: AddressClaim | None = None
    node_name: str = ""
    kept_since: str = ""
    lease: AddressLease | None = None
    conflict_since: str = ""
    on_duplicate: OnDuplicate | None = None
    gateway: str = ""
    routes: Annotated[tuple[AddressRoute, ...], msgspec.Meta(max_length=MAX_NETWORK_ROUTES)] = ()
    dns: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_SERVERS)] = ()
    mtu: int | None = None
    physnet: str = ""

    def __post_init__(self) -> None:
        """Reject values that are not addresses, subnets or times.

        Raises:
            ValueError: one is not.
        """
        ip.with_prefix(self.address)
        for text in (*filter(None, (self.gateway, *(route.gateway for route in self.routes))), *self.dns):
            ip.address(text)
        for route in self.routes:
            ip.subnet(route.destination)
        for time in filter(None, (self.kept_since, self.conflict_since)):
            time_of(time)


class PodAddress(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An address of a PodNetwork, assigned to a claim or reserved for a later one; netdra creates and deletes it.

    Attributes:
        spec: The owner of the address, and the settings that the interface gets with it.
    """

    metadata: ObjectMeta
    spec: PodAddressSpec
    api_version: Literal["networking.dra.io/v1alpha1"]
    kind: Literal["PodAddress"]

    def __post_init__(self) -> None:
        """Reject an object that is not named after its network and address.

        Raises:
            ValueError: it is not.
        """
        plain = self.spec.address.partition("/")[0]
        # An address of IPv4 has one spelling, and that it is one was checked with the spec.
        name = object_name(self.spec.network, plain) if ":" in plain else f"{self.spec.network}.{plain}"
        if self.metadata.name != name:
            raise ValueError(f'name "{self.metadata.name}" does not follow from the network and the address: "{name}"')

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name

    @property
    def number(self) -> int:
        """The address as an integer, by which ranges and spans are compared."""
        return int(ip.with_prefix(self.spec.address)[0])

    @property
    def family(self) -> Family:
        """The address's family."""
        return family_of(self.spec.address)


_Address = TypeVar("_Address", bound=PodAddress)


def by_age(addresses: Iterable[_Address]) -> list[_Address]:
    """Addresses by the time of their last write, the oldest first.

    An interface uses the first of its addresses of a family. There are two if two controllers worked at the same time.
    The order of resourceVersions is the order of the writes, so a reader that has seen only one of them has seen the
    first.
    """
    return sorted(addresses, key=lambda address: order(address.metadata.resource_version))


class WatchedAddressMeta(ObjectMeta, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A PodAddress's metadata without what a controller of many does not read.

    No field of Kubernetes begins with a dash, so these are never read.
    """

    uid: str = msgspec.field(default="", name="-uid")
    generation: int = msgspec.field(default=0, name="-generation")
    creation_timestamp: str | None = msgspec.field(default=None, name="-creationTimestamp")
    labels: Mapping[str, str] = msgspec.field(default=_NOTHING, name="-labels")
    annotations: Mapping[str, str] = msgspec.field(default=_NOTHING, name="-annotations")


class WatchedPodAddress(PodAddress, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A PodAddress as the controller keeps it: names that many have are in memory once."""

    metadata: WatchedAddressMeta

    def __post_init__(self) -> None:
        """Keep each name once."""
        super().__post_init__()
        spec, owner = self.spec, self.spec.owner
        for part, fields in ((spec, ("network", "node_name")), (owner, ("namespace", "claim", "topology", "step"))):
            for field in fields:
                msgspec.structs.force_setattr(part, field, sys.intern(getattr(part, field)))
        msgspec.structs.force_setattr(spec, "families", _FAMILIES.setdefault(spec.families, spec.families))


_FAMILIES: dict[tuple[Family, ...], tuple[Family, ...]] = {}


def family_of(address: str) -> Family:
    """The family of an address or subnet."""
    return "IPv6" if ":" in address else "IPv4"


def object_name(network: str, address: str) -> str:
    """The name of the PodAddress of an address without prefix length: one for each address, in any spelling.

    The API server takes no colon in names of custom resources, so groups of IPv6 are separated by dashes, all eight of
    them: a name must not begin or end with a dash.

    Raises:
        ValueError: the text is not an address.
    """
    parsed = ip.address(address)
    if parsed.version == 4:
        return f"{network}.{parsed}"
    groups = (int(group, 16) for group in parsed.exploded.split(":"))
    return f"{network}." + "-".join(f"{group:x}" for group in groups)


def address_named(name: str, network: str) -> str:
    """The address of a PodAddress of this name, without prefix length; "" if no address of the network has the name."""
    head, _, rest = name.partition(".")
    with suppress(ValueError):
        text = str(ip.address(rest.replace("-", ":")))
        return text if head == network and object_name(network, text) == name else ""
    return ""
