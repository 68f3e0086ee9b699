"""Inspects a cluster's ports in Neutron: finds orphans, and changes from outside netdra.

Run by `netdra.controller.neutron.ports`. `look_through` reads every port, `look_for_changes` compares revision numbers
and reads the ports alone whose number, network or QoS policy is another one. Both write the statuses of bound
NeutronPorts. `difference` compares a bound port with the settings of its VF.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from netdra.controller import metrics
from netdra.controller.neutron import desired
from netdra.controller.neutron.networks import Lookups, PortNetworks
from netdra.kube.errors import ConflictError, NotFoundError
from netdra.kube.store import key_of
from netdra.model.errors import NetdraError
from netdra.model.neutron_port import NeutronPort, NeutronPortStatus, PortSettings
from netdra.neutron.answers import Port, VfSettings
from netdra.neutron.client import IDS_AT_ONCE, Neutron
from netdra.neutron.errors import LostError, NoNetworkError, OtherProjectError, UnknownProjectError
from netdra.neutron.marks import OWNER
from netdra.ops.metrics import counted

log = logging.getLogger(__name__)

Revisions = dict[str, Any]
"""By id, what is another one after a change: a revision number, or the object itself."""


class ClusterView(NamedTuple):
    """The controller's data and actions for an inspection.

    Attributes:
        ports: its NeutronPorts by key, as they are now.
        claims: the uids of its claims, as they are now.
        uid: the cluster's.
        write: writes a status.
        label: writes the labels that operators search for to a port.
        confirm: raises a NetdraError unless the ports are this cluster's.
    """

    ports: Callable[[], Mapping[str, NeutronPort]]
    claims: Callable[[], set[str]]
    uid: Callable[[], Awaitable[str]]
    write: Callable[[NeutronPort, NeutronPortStatus], Awaitable[None]]
    label: Callable[[NeutronPort, Port], Awaitable[None]]
    confirm: Callable[[], Awaitable[None]]


class Inspection:
    """The state of a cluster's ports in Neutron from the last inspections."""

    def __init__(self, neutron: Neutron, networks: PortNetworks, cluster: ClusterView) -> None:
        """Know nothing yet."""
        self._neutron, self._networks, self._cluster = neutron, networks, cluster
        self._suspects: frozenset[str] = frozenset()
        self._revisions: dict[str, Revisions] = {}
        self._policies: dict[str, str] = {}

    async def look_through(self) -> list[NetdraError]:
        """Delete the ports of claims that are gone, and write the statuses of ports that are gone or changed.

        A port is deleted if it had no object in two looks: the object may have come between them. The problem of one
        port keeps no other from its look.

        Returns:
            The problems of single ports.

        Raises:
            NetdraError: Neutron does not list its ports, or the API server does not reports which cluster it is.
        """
        problems: list[NetdraError] = []
        there = {port.id: port for port in await self._neutron.ports(await self._cluster.uid())}
        by_name = {port.name: port for port in self._cluster.ports().values()}
        by_id = {port.id: by_name.get(port.mark.port) for port in there.values() if port.mark is not None}
        claims = self._cluster.claims()
        suspects = frozenset(port.id for port in there.values() if _is_orphan(port, by_id.get(port.id), claims))
        for port_id in sorted(suspects & self._suspects):
            try:
                await self._cluster.confirm()
                with counted(metrics.NEUTRON_ORPHANS):
                    await self._neutron.delete(port_id)
            except NetdraError as problem:
                problems.append(problem)
            else:
                log.info("deleted port %s from Neutron: its claim no longer exists", port_id)
        self._suspects = suspects
        for port_id, known in by_id.items():
            if known is not None and _is_compared(known) and port_id not in suspects:
                await self._cluster.label(known, there[port_id])
        return [*problems, *await self._compare(filter(_is_compared, by_name.values()), there, fresh=True)]

    async def look_for_changes(self) -> list[NetdraError]:
        """Write the statuses of bound ports that were changed in Neutron since the last look, or are gone.

        Returns:
            The problems of single ports.

        Raises:
            NetdraError: Neutron does not answer.
        """
        bound = [port for port in self._cluster.ports().values() if _is_compared(port)]
        if not bound:
            return []
        networks = {port.status.network_id for port in bound if port.status is not None}
        now = {
            "ports": await self._neutron.revisions("ports", device_owner=OWNER),
            "networks": await self._revisions_of("networks", "id", networks),
            "subnets": await self._subnets_of(networks),
            "qos/policies": await self._revisions_of("qos/policies", "id", set(self._policies.values())),
        }
        changed = {kind: _changed(self._revisions.get(kind, {}), revisions) for kind, revisions in now.items()}
        # A subnet's network is not known here: all of them are read again, which is rare.
        stale = networks if changed["subnets"] else networks & changed["networks"]
        self._neutron.drop(stale, changed["qos/policies"])
        concerned = [
            port for port in bound if self._is_concerned(port, changed["ports"], stale, changed["qos/policies"])
        ]
        ids = sorted({port.status.port_id for port in concerned if port.status is not None} & now["ports"].keys())
        there = {port.id: port for port in await self._neutron.ports_by_id(ids)}
        problems = await self._compare(concerned, there)
        self._policies = {port_id: policy for port_id, policy in self._policies.items() if port_id in now["ports"]}
        if not problems:  # else the next look compares the same once more
            self._revisions = now
        return problems

    async def _revisions_of(self, kind: str, field: str, ids: Iterable[str]) -> Revisions:
        revisions: Revisions = {}
        wanted = sorted(ids)
        for first in range(0, len(wanted), IDS_AT_ONCE):
            revisions |= await self._neutron.revisions(kind, **{field: wanted[first : first + IDS_AT_ONCE]})
        return revisions

    async def _subnets_of(self, networks: Iterable[str]) -> Revisions:
        """The subnets themselves: Neutron 29 gives a subnet no other number when its name servers change."""
        wanted, subnets = sorted(networks), dict[str, Any]()
        for first in range(0, len(wanted), IDS_AT_ONCE):
            subnets |= await self._neutron.subnets_of(wanted[first : first + IDS_AT_ONCE])
        return subnets

    def _is_concerned(self, port: NeutronPort, ports: set[str], networks: set[str], policies: set[str]) -> bool:
        """Whether a bound port is another than it was, or gone, or is of another network or policy than it was."""
        assert port.status is not None
        port_id = port.status.port_id
        return port_id in ports or port.status.network_id in networks or self._policies.get(port_id) in policies

    async def _compare(
        self, ports: Iterable[NeutronPort], there: Mapping[str, Port], *, fresh: bool = False
    ) -> list[NetdraError]:
        """Compare bound ports with Neutron as it is now; the problem of one keeps no other from it."""
        problems: list[NetdraError] = []
        lookups: Lookups = {}
        for port in ports:
            try:
                await self._check(port, there, lookups, fresh=fresh)
            except NetdraError as problem:
                problems.append(problem)
        return problems

    async def _check(self, port: NeutronPort, there: Mapping[str, Port], lookups: Lookups, *, fresh: bool) -> None:
        """Compare a bound port, and the network of its network's name, with Neutron as it is now.

        Args:
            there: the cluster's ports by id.
            lookups: networks that were looked up already, by id or name.
            fresh: whether networks that are known are read again.

        Raises:
            NetdraError: Neutron gives no answer, or the status cannot be written just now.
        """
        assert port.status is not None
        now = datetime.now(UTC)
        try:
            answer = there.get(port.status.port_id) or await self._neutron.port(port.status.port_id)
            self._note_policy(answer)
            elsewhere = await self._networks.problem(port, lookups, fresh=fresh)
            vf_settings = None
            if not elsewhere:
                try:
                    network = await self._neutron.network(answer.network_id)
                    vf_settings = await self._neutron.describe(answer, network)
                except (NoNetworkError, OtherProjectError, UnknownProjectError) as problem:
                    elsewhere = str(problem)
            what = difference(port, answer, vf_settings)
            status = desired.changed(port, what, now, elsewhere, vf_settings)
        except LostError as problem:
            status = desired.failed(port, problem, now)
        except OtherProjectError as problem:
            status = desired.changed(port, "", now, str(problem))
        if self._cluster.ports().get(key_of(port.metadata.namespace, port.name)) is not port:
            return  # its node has chosen another VF meanwhile
        with suppress(ConflictError, NotFoundError):
            await self._cluster.write(port, status)

    def _note_policy(self, port: Port) -> None:
        policy = port.qos_policy_id or port.qos_network_policy_id
        if policy:
            self._policies[port.id] = policy
        else:
            self._policies.pop(port.id, None)


def _changed(before: Revisions, now: Revisions) -> set[str]:
    """The ids that are new, gone or of another revision."""
    return {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}


def _is_compared(port: NeutronPort) -> bool:
    return desired.is_bound(port) and not port.metadata.deletion_timestamp


def _is_orphan(port: Port, neutron_port: NeutronPort | None, claims: set[str]) -> bool:
    """Whether no object of the cluster has a port: its claim is gone, or its NeutronPort has another port."""
    if neutron_port is None:
        return port.device_id not in claims
    return desired.is_bound(neutron_port) and neutron_port.status is not None and neutron_port.status.port_id != port.id


def difference(port: NeutronPort, now: Port, vf_settings: VfSettings | None = None) -> str:
    """The differences between a port in Neutron and the settings of its VF; "" without any.

    Args:
        port: a NeutronPort that was bound.
        now: its port as Neutron has it now.
        vf_settings: the settings that a VF would get from it now, if they could be read.
    """
    assert port.status is not None
    assert port.status.settings is not None
    given, spec = port.status.settings, port.spec
    addresses = {address.partition("/")[0] for address in given.addresses}
    there = {address.ip_address for address in now.fixed_ips}
    rows = [
        ("MAC", given.mac, now.mac_address),
        ("VLAN", str(given.vlan), str(now.vlan)),
        ("addresses", _texts(sorted(addresses)), _texts(sorted(there))),
        ("host", spec.host, now.host),
        # A user that removes the host also removes the profile, and one report is enough.
        ("PCI address", port.pci_address, now.pci_slot or port.pci_address),
        ("device_id", spec.claim.uid, now.device_id),
        ("admin state", _up(is_up=given.link_state != "disable"), _up(is_up=now.admin_state_up)),
        ("port security", _on(is_on=given.spoofchk), _on(is_on=now.port_security_enabled)),
    ]
    if vf_settings is not None:
        rows += _described(given, desired.port_settings(vf_settings), is_bound=bool(now.host))
    return "; ".join(f"{what} {then} changed to {this or 'none'}" for what, then, this in rows if then != this)


def _described(given: PortSettings, now: PortSettings, *, is_bound: bool) -> Iterator[tuple[str, str, str]]:
    """The settings from the network, its subnets and the QoS policy."""
    yield "MTU", str(given.mtu), str(now.mtu)
    yield "gateways", _texts(given.gateways), _texts(now.gateways)
    then, this = ([f"{route.destination} by {route.gateway}" for route in settings.routes] for settings in (given, now))
    yield "routes", _texts(then), _texts(this)
    yield "name servers", _texts(given.dns), _texts(now.dns)
    if is_bound:  # trust stands in the profile, which goes with the host
        yield "trust", _on(is_on=given.trust), _on(is_on=now.trust)
    yield "minimum rate", _rate(given.min_tx_rate), _rate(now.min_tx_rate)
    yield "maximum rate", _rate(given.max_tx_rate), _rate(now.max_tx_rate)


def _texts(texts: Sequence[str]) -> str:
    return ", ".join(texts) or "none"


def _rate(mbit: int) -> str:
    return f"{mbit} Mbit/s" if mbit else "none"


def _up(*, is_up: bool) -> str:
    return "up" if is_up else "down"


def _on(*, is_on: bool) -> str:
    return "on" if is_on else "off"
