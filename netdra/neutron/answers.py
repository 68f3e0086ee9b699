"""The requests to Neutron and the meaning of its answers: ports, networks, subnets, QoS, refusals. Pure.

Follows Neutron's API reference (network v2) and the behaviour of Neutron 29: a port whose binding failed is answered
with 201 like any other, the VLAN of a binding is a text, and fields without permission are absent.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from netdra.model.errors import UNREADABLE
from netdra.neutron.errors import (
    ChangedError,
    ForbiddenError,
    NeutronError,
    NeutronRefusedError,
    NoAddressError,
    NoAgentError,
    NoNetworkError,
    QuotaError,
    UnreachableError,
    WrongPhysnetError,
)
from netdra.neutron.marks import OWNER, Label, Mark, description, mark_of

ROLE = "service"
"""The role that may bind ports and say which VF they are of (Neutron's default policies)."""
MAX_TEXT = 512
HARDWARE_SWITCH = "hw_veb"
_UNBOUND = {"binding_failed", "unbound"}
_KBIT = 1000
_VLAN_DIGITS = 4
_RATES = {"bandwidth_limit", "minimum_bandwidth"}
"""The types of QoS rules that a VF can be set up for, of direction egress."""


class FixedIP(msgspec.Struct, frozen=True):
    """An address of a port, and the subnet that it is of."""

    ip_address: str
    subnet_id: str = ""


class AddressPair(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses that a port may send from beside its own; without a MAC address, from the port's."""

    ip_address: str = ""
    mac_address: str = ""


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A port, as far as it is read."""

    id: str
    network_id: str
    project_id: str = ""
    mac_address: str = ""
    name: str = ""
    status: str = ""
    admin_state_up: bool = True
    device_id: str = ""
    device_owner: str = ""
    description: str | None = ""
    port_security_enabled: bool = True
    fixed_ips: tuple[FixedIP, ...] = ()
    qos_policy_id: str | None = None
    qos_network_policy_id: str | None = None
    security_groups: tuple[str, ...] = ()
    allowed_address_pairs: tuple[AddressPair, ...] = ()
    revision_number: int | None = None
    tags: tuple[str, ...] | None = None
    vnic_type: str = msgspec.field(default="", name="binding:vnic_type")
    host: str = msgspec.field(default="", name="binding:host_id")
    vif_type: str = msgspec.field(default="", name="binding:vif_type")
    vif_details: Mapping[str, Any] = msgspec.field(default_factory=dict, name="binding:vif_details")
    profile: Mapping[str, Any] = msgspec.field(default_factory=dict, name="binding:profile")

    @property
    def mark(self) -> Mark | None:
        """Which cluster's netdra made it, for which NeutronPort; None if none did."""
        return mark_of(self.device_owner, self.description or "", self.name)

    @property
    def vlan(self) -> int:
        """The VLAN that its binding is in; 0 for none, as on a flat network."""
        vlan_text = str(self.vif_details.get("vlan") or "0")
        return int(vlan_text) if vlan_text.isdecimal() and len(vlan_text) <= _VLAN_DIGITS else 0

    @property
    def is_bound(self) -> bool:
        """Whether a mechanism driver took it."""
        return bool(self.vif_type) and self.vif_type not in _UNBOUND

    @property
    def pci_slot(self) -> str:
        """The PCI address of the VF that it is of; "" if none is named."""
        return str(self.profile.get("pci_slot") or "")

    def is_of(self, host: str, pci_slot: str) -> bool:
        """Whether it is of that VF of that host, or of none."""
        return self.host in ("", host) and self.pci_slot in ("", pci_slot)


class NeutronNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """A network; `physnet`, `kind` and `segment` are None where the user may not see them.

    `shared` is as the user's project sees it; `segment` is the VLAN of a network whose `kind` is `vlan`.
    """

    id: str
    name: str = ""
    project_id: str = ""
    shared: bool = False
    mtu: int = 0
    subnets: tuple[str, ...] = ()
    external: bool = msgspec.field(default=False, name="router:external")
    physnet: str | None = msgspec.field(default=None, name="provider:physical_network")
    kind: str | None = msgspec.field(default=None, name="provider:network_type")
    segment: int | None = msgspec.field(default=None, name="provider:segmentation_id")


class HostRoute(msgspec.Struct, frozen=True):
    """A route that a subnet gives its hosts."""

    destination: str
    nexthop: str


class Subnet(msgspec.Struct, frozen=True, kw_only=True):
    """A subnet in an answer of Neutron's API v2.0; `gateway_ip` is None if it has no gateway."""

    id: str
    network_id: str
    cidr: str
    name: str = ""
    project_id: str = ""
    gateway_ip: str | None = None
    dns_nameservers: tuple[str, ...] = ()
    host_routes: tuple[HostRoute, ...] = ()


class QosRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of a QoS policy; rates are in kbit/s."""

    type: str = ""
    direction: str = "egress"
    max_kbps: int = 0
    min_kbps: int = 0


class QosPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A QoS policy; `shared` is as the user's project sees it."""

    id: str
    name: str = ""
    project_id: str = ""
    shared: bool = False
    rules: tuple[QosRule, ...] = ()


class SecurityGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A security group; `shared` is as the user's project sees it."""

    id: str
    project_id: str = ""
    shared: bool = False


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of Neutron's on a host."""

    host: str
    agent_type: str
    alive: bool = False
    admin_state_up: bool = True
    configurations: Mapping[str, Any] = {}

    @property
    def devices(self) -> Mapping[str, Sequence[str]]:
        """By physical network, the devices that a NIC switch agent has; what is of another form is left out."""
        mappings = self.configurations.get("device_mappings")
        return {
            physnet: tuple(device for device in devices if isinstance(device, str))
            for physnet, devices in (mappings.items() if isinstance(mappings, dict) else ())
            if isinstance(devices, list)
        }


class PortRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A port that a VF is to have.

    Attributes:
        name: the NeutronPort's; no other port of the cluster is for it.
        claim: the uid of the claim, by which the port is known again.
        cluster: the uid of the cluster, so that two clusters in one project leave each other's ports alone.
        host: the node, as its NIC switch agent calls itself.
        network: the network's id.
        physnet: the physical network that the VF is of.
        pci_slot: the VF's PCI address.
        subnet: of which subnet its address is to be; Neutron chooses without it.
        addresses: its fixed addresses, instead of any.
        security_groups: their ids; None for the project's default.
        qos_policy: its id.
        label: what people read of it.
    """

    name: str
    claim: str
    cluster: str
    host: str
    network: str
    physnet: str
    pci_slot: str
    subnet: str = ""
    addresses: tuple[str, ...] = ()
    security_groups: tuple[str, ...] | None = None
    qos_policy: str = ""
    label: Label = Label()

    @property
    def mark(self) -> Mark:
        """By which it is known again."""
        return Mark(self.cluster, self.name)

    @property
    def sent(self) -> dict[str, Any]:
        """The body of the request that makes and binds it at once, without its tags."""
        fixed = [{"ip_address": address, **self._in_subnet} for address in self.addresses] or [self._in_subnet]
        port: dict[str, Any] = {
            **self.named,
            "network_id": self.network,
            "device_id": self.claim,
            "device_owner": OWNER,
            "binding:vnic_type": "direct",
            "binding:host_id": self.host,
            "binding:profile": {"pci_slot": self.pci_slot, "physical_network": self.physnet},
        }
        if any(fixed):
            port["fixed_ips"] = fixed
        if self.security_groups is not None:
            port["security_groups"] = list(self.security_groups)
        if self.qos_policy:
            port["qos_policy_id"] = self.qos_policy
        return {"port": port}

    @property
    def named(self) -> dict[str, str]:
        """The fields that people know it by, of which the description's beginning is its mark."""
        return {"name": self.label.name or self.name, "description": description(self.mark, self.label.text)}

    @property
    def _in_subnet(self) -> dict[str, str]:
        return {"subnet_id": self.subnet} if self.subnet else {}


class VfSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a VF gets from its port.

    Attributes:
        vlan: the VLAN that the NIC puts it in; 0 for none.
        mtu: the network's, in bytes; 0 if Neutron does not report it.
        addresses: with prefix lengths.
        gateways: of the subnets that have one.
        routes: of the subnets: destination and next hop.
        dns: name servers.
        spoofchk: whether the NIC drops frames from other MAC addresses.
        trust: whether it may change that address.
        link_state: `auto`, or `disable` where the port is down by an administrator.
        min_tx_rate, max_tx_rate: in Mbit/s; 0 for no bound.
        unenforced: what the port or its QoS policy has and no VF can be set up for, in words.
    """

    mac: str
    vlan: int
    mtu: int
    addresses: tuple[str, ...]
    gateways: tuple[str, ...]
    routes: tuple[HostRoute, ...]
    dns: tuple[str, ...]
    spoofchk: bool
    trust: bool
    link_state: str
    min_tx_rate: int = 0
    max_tx_rate: int = 0
    unenforced: tuple[str, ...] = ()


def settings(port: Port, network: NeutronNetwork, subnets: Sequence[Subnet], policy: QosPolicy | None) -> VfSettings:
    """The settings of a VF with a bound port.

    Args:
        subnets: the subnets of the port's addresses.
        policy: the QoS policy of the port, if there is one.

    Raises:
        UnreachableError: an address or a subnet in Neutron's answer is not valid.
    """
    by_id = {subnet.id: subnet for subnet in subnets}
    used = [by_id[fixed_ip.subnet_id] for fixed_ip in port.fixed_ips if fixed_ip.subnet_id in by_id]
    egress = [rule for rule in policy.rules if rule.direction == "egress"] if policy is not None else []
    return VfSettings(
        mac=port.mac_address,
        vlan=port.vlan,
        mtu=network.mtu,
        addresses=tuple(
            _address(port, fixed_ip, by_id[fixed_ip.subnet_id])
            for fixed_ip in port.fixed_ips
            if fixed_ip.subnet_id in by_id
        ),
        gateways=tuple(dict.fromkeys(subnet.gateway_ip for subnet in used if subnet.gateway_ip)),
        routes=tuple(dict.fromkeys(route for subnet in used for route in subnet.host_routes)),
        dns=tuple(dict.fromkeys(server for subnet in used for server in subnet.dns_nameservers)),
        spoofchk=port.port_security_enabled,
        trust=str(port.profile.get("trusted", "")).lower() == "true",
        link_state="auto" if port.admin_state_up else "disable",
        min_tx_rate=_mbit(rule.min_kbps for rule in egress if rule.type == "minimum_bandwidth"),
        max_tx_rate=_mbit(rule.max_kbps for rule in egress if rule.type == "bandwidth_limit"),
        unenforced=tuple(_unenforced(port, policy)),
    )


def _address(port: Port, fixed_ip: FixedIP, subnet: Subnet) -> str:
    try:
        address = f"{fixed_ip.ip_address}/{ipaddress.ip_network(subnet.cidr).prefixlen}"
        ipaddress.ip_interface(address)
    except ValueError as problem:
        raise UnreachableError(
            f"Neutron: port {port.id[:MAX_TEXT]}: {str(problem)[:MAX_TEXT]}", code="ND3037"
        ) from None
    return address


def _unenforced(port: Port, policy: QosPolicy | None) -> Iterator[str]:
    """Settings that no VF can enforce. A NIC limits only the traffic that a VF sends, and compares MAC addresses."""
    for rule in policy.rules if policy is not None else ():
        if rule.type not in _RATES or rule.direction != "egress":
            assert policy is not None
            direction = f" of direction {rule.direction}" if rule.type in _RATES else ""
            yield f"rule {rule.type}{direction} of QoS policy {policy.name or policy.id}"
    for pair in port.allowed_address_pairs:
        if port.port_security_enabled and pair.mac_address.lower() not in ("", port.mac_address.lower()):
            yield f"allowed address pair {pair.mac_address}: the VF can send from MAC address {port.mac_address} alone"


def check_bound(port: Port, wanted: PortRequest, network: NeutronNetwork) -> None:
    """Whether a port is bound as it is wanted; Neutron compares neither physical networks nor VFs itself.

    Raises:
        WrongPhysnetError: the network is of another physical network.
        NoAgentError: no agent took it.
        RefusedError: something else than a hardware switch took it.
    """
    if network.physnet is not None and network.physnet != wanted.physnet:
        raise WrongPhysnetError(
            f'network {network.name or network.id} belongs to physical network "{network.physnet or "none"}", '
            f'but VF {wanted.pci_slot} belongs to "{wanted.physnet}"',
            hint="choose a network of the VF's physical network, or VFs of the network's",
            code="ND3038",
        )
    if not port.is_bound or port.host != wanted.host:
        raise NoAgentError(
            f"port {port.id}: no NIC switch agent is alive on host {wanted.host} for {wanted.physnet}",
            hint=f"openstack network agent list --host {wanted.host}: it has to run there, with {wanted.physnet} in "
            "physical_device_mappings; and the network has to be a VLAN or flat one of a physical network",
            code="ND3039",
        )
    if port.vif_type != HARDWARE_SWITCH:
        raise NeutronRefusedError(
            f'port {port.id} is bound as "{port.vif_type}", and a VF needs "{HARDWARE_SWITCH}"',
            hint="sriovnicswitch must be one of Neutron's mechanism drivers",
            code="ND3040",
        )


def refusal(what: str, status: int, body: bytes, who: str) -> NeutronError:
    """The error for an answer without success.

    Args:
        what: the request, e.g. `create port`.
        status: of HTTP.
        body: what came.
        who: the user, as an administrator knows him.
    """
    kind, text = _words(body)
    said = f"Neutron: {what}: {status}{f' {kind}' if kind else ''}{f': {text}' if text else ''}"
    if status == HTTPStatus.FORBIDDEN:
        return ForbiddenError(
            said,
            hint=f"{who} needs the roles member and {ROLE} in its project: openstack role add --user … {ROLE}",
            code="ND3041",
        )
    if status == HTTPStatus.NOT_FOUND:
        return NoNetworkError(
            said, hint=f"{who} must be able to see it: it is of another project, or not shared", code="ND3042"
        )
    if status == HTTPStatus.PRECONDITION_FAILED:
        return ChangedError(said, code="ND3043")
    if status == HTTPStatus.CONFLICT and kind == "OverQuota":
        return QuotaError(said, hint="openstack quota set --ports …, or delete unused ports", code="ND3044")
    if kind in _NO_ADDRESS:
        return NoAddressError(
            said, hint="openstack subnet show …: add an allocation pool, or choose another subnet", code="ND3045"
        )
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _LATER:
        return UnreachableError(said, hint="see Neutron's own log for the reason", code="ND3046")
    return NeutronRefusedError(said, code="ND3047")


_LATER = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_NO_ADDRESS = {
    "IpAddressGenerationFailure",
    "IpAddressAlreadyAllocated",
    "IpAddressInUse",
    "InvalidIpForSubnet",
    "InvalidIpForNetwork",
}


def _words(body: bytes) -> tuple[str, str]:
    """Neutron's name of the error, and its text."""
    try:
        error = msgspec.json.decode(body)["NeutronError"]
        return str(error["type"])[:MAX_TEXT], " ".join(str(error["message"]).split())[:MAX_TEXT]
    except (*UNREADABLE, KeyError, TypeError):
        return "", " ".join(body.decode(errors="replace").split())[:MAX_TEXT]


def _mbit(rates: Iterable[int]) -> int:
    """The smallest of some rates in kbit/s as whole Mbit/s, rounded up; 0 if none exists."""
    positive = [rate for rate in rates if rate > 0]
    return -(-min(positive) // _KBIT) if positive else 0
