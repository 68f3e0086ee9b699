"""netdra's requests to Neutron: ports, which it makes, binds and deletes, and agents; `networks` reads networks.

A request that gets no answer may have been carried out: before a port is made, Neutron is asked whether it is there. A
port that others may change too is changed only as it was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

import msgspec

from netdra.neutron import records
from netdra.neutron.answers import (
    Agent,
    NeutronNetwork,
    Port,
    PortRequest,
    VfSettings,
    check_bound,
)
from netdra.neutron.cached import Cached
from netdra.neutron.errors import (
    ChangedError,
    LostError,
    NeutronRefusedError,
    NoNetworkError,
    NoPortError,
)
from netdra.neutron.marks import OWNER, Mark, is_own_tag
from netdra.neutron.networks import JUST_NOW_SECONDS, Networks
from netdra.neutron.records import OwnershipRecord
from netdra.neutron.session import BEGINNINGS, Session, read
from netdra.neutron.tenancy import NOTHING, AllowedIds

T = TypeVar("T")
EXTENSION_SECONDS = 3600.0
"""How long it is known which extensions Neutron has, which an upgrade changes."""
HOST_SECONDS = 2.0
"""How long the ports of a host are known, among which a VF's other port is looked for: claims that come together."""
_SLOT_FIELDS = ("id", "network_id", "name", "description", "device_owner", "device_id", "project_id")
IDS_AT_ONCE = 50
"""How many objects are asked for by their ids in one request: servers bound the length of a URL."""
FORMER_TYPE = "netdra_vnic_type"
"""The field of a used port's profile with the vnic_type that it had before, and has again when it is given back."""
TAGS_AT_ONCE = "tag-ports-during-bulk-creation"
"""The extension by which a port is made with its tags; without it, they are set by a second request."""


class _Revision(msgspec.Struct, frozen=True):
    id: str
    revision_number: int = 0


class _Extension(msgspec.Struct, frozen=True):
    alias: str


class Neutron(Networks):
    """One cloud's Neutron: its networks, and its ports."""

    def __init__(self, session: Session, allowed: AllowedIds = NOTHING) -> None:
        """Begin with a session, which is closed with this.

        Args:
            allowed: what may be used beside the session's own project.
        """
        super().__init__(session, allowed)
        self._hosts: Cached[str, Sequence[Port]] = Cached(HOST_SECONDS)
        self._extensions: Cached[str, frozenset[str]] = Cached(EXTENSION_SECONDS)
        self._port_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def __aenter__(self) -> Self:
        """Begin; nothing is asked yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self.session.aclose()

    def forget(self) -> bool:
        """Read networks and the ports of hosts again from now on.

        Returns:
            Whether what was known may have been out of date.
        """
        had_older = self._hosts.has_older(JUST_NOW_SECONDS)
        self._hosts.forget()
        return super().forget() or had_older

    async def users_of(self, host: str, pci_slot: str, *, fresh: bool = False) -> tuple[Port, ...]:
        """The ports that a VF of a host has, of any project, as far as the user may see; Neutron does not compare.

        Args:
            fresh: whether they are read again, though they may be known.

        Raises:
            NeutronError: Neutron does not answer.
        """

        async def read_anew() -> Sequence[Port]:
            fields = (*_SLOT_FIELDS, "binding:host_id", "binding:profile")
            return await self.session.list_all("ports", Port, **{"binding:host_id": host, "fields": fields})

        ports = await self._hosts.get(host, read_anew, fresh=fresh)
        return tuple(port for port in ports if port.host == host and port.profile.get("pci_slot") == pci_slot)

    async def find(self, mark: Mark, claim: str) -> tuple[Port, ...]:
        """The ports that a cluster's netdra has made for a NeutronPort of a claim; the one that counts is the first.

        Raises:
            NeutronError: Neutron does not answer.
        """
        ports = await self.session.list_all("ports", Port, device_id=claim, device_owner=OWNER)
        made = (await self.tenancy()).own(port for port in ports if port.mark == mark)
        return tuple(sorted(made, key=lambda port: port.id))

    async def adopt(
        self, wanted: PortRequest, port_id: str, used: Callable[[str, str], bool]
    ) -> tuple[Port, NeutronNetwork, VfSettings]:
        """A port that netdra did not make, bound to a VF, its network, and the VF's settings.

        Args:
            wanted: the port as it is to be bound.
            used: whether another VF of the claim has the port still: the VF of that host and PCI address.

        Raises:
            NoPortError: none exists.
            OtherProjectError, UnknownProjectError: netdra may not use it, or its network.
            RefusedError: another user or VF has it.
            NeutronError: another reason.
        """
        return await self._in_turn(port_id, lambda: self._adopt(wanted, port_id, used))

    async def _adopt(
        self, wanted: PortRequest, port_id: str, used: Callable[[str, str], bool]
    ) -> tuple[Port, NeutronNetwork, VfSettings]:
        try:
            port = await self.port(port_id)
        except LostError:
            raise NoPortError(
                f"Neutron: port {port_id} not found, or not visible to the user of clouds.yaml",
                hint="openstack port list: give the id of one of the user's project",
                code="ND3048",
            ) from None
        if port.device_id not in ("", wanted.claim):
            raise NeutronRefusedError(
                f"port {port.id} is used already: its device_id is {port.device_id}, its owner {port.device_owner}",
                hint="name a port that nothing uses, or none",
                code="ND3049",
            )
        is_own = port.device_id == wanted.claim and port.is_of(wanted.host, wanted.pci_slot)
        if port.device_id and not is_own and used(port.host, port.pci_slot):
            raise NeutronRefusedError(
                f"port {port.id} is used already: VF {port.pci_slot} of host {port.host} has it, for the same claim",
                hint="a port is for one VF: ask for one with it, or name a port for each of them",
                code="ND3050",
            )
        network = await self._network("id", port.network_id)
        if not is_own or not port.is_bound or (port.host, port.pci_slot) != (wanted.host, wanted.pci_slot):
            fields = ("device_id", "device_owner", "binding:vnic_type", "binding:host_id", "binding:profile")
            changes = {name: wanted.sent["port"][name] for name in fields}
            former = port.profile.get(FORMER_TYPE) or port.vnic_type
            if former not in ("", changes["binding:vnic_type"]):
                changes["binding:profile"] = {**changes["binding:profile"], FORMER_TYPE: former}
            port = await self._change(port, changes)
        check_bound(port, wanted, network)
        return port, network, await self.describe(port, network)

    async def give_back(self, port_id: str, claim: str, host: str, used: Callable[[str, str], bool]) -> None:
        """Release a port that netdra did not make.

        A port that is gone, or belongs to another claim or VF by now, is not an error. A port that netdra may no longer
        use is released as well if it is bound to the host, which a project cannot pretend.

        Args:
            claim: the uid of the claim that had it.
            host: the host of the VF that had it.
            used: whether another VF of the claim has the port: the VF of that host and PCI address.

        Raises:
            NeutronError: it cannot be changed.
        """
        await self._in_turn(port_id, lambda: self._give_back(port_id, claim, host, used))

    async def _give_back(self, port_id: str, claim: str, host: str, used: Callable[[str, str], bool]) -> None:
        try:
            port = await self._read_port(port_id)
            hosts = {"", host} if (await self.tenancy()).verdict(port) == "present" else {host}
            if port.device_id == claim and port.host in hosts and not used(port.host, port.pci_slot):
                kept = {name: value for name, value in port.profile.items() if name == FORMER_TYPE}
                free = {"device_id": "", "device_owner": "", "binding:host_id": "", "binding:profile": kept}
                port = await self._change(port, free)
            if (former := port.profile.get(FORMER_TYPE)) and not port.device_id and not port.host:
                # Neutron changes the vnic_type of a port that nothing uses, and not in the request that gives it back.
                await self._change(port, {"binding:vnic_type": former, "binding:profile": {}})
        except (LostError, NoNetworkError):
            return

    async def _in_turn(self, port_id: str, act: Callable[[], Awaitable[T]]) -> T:
        """Do something with a port that netdra did not make: one at a time, and again if it was changed meanwhile."""
        turn = self._port_turns.setdefault(port_id, asyncio.Lock())
        async with turn:
            for _ in range(BEGINNINGS - 1):
                with suppress(ChangedError):
                    return await act()
            return await act()

    async def _change(self, port: Port, fields: Mapping[str, Any]) -> Port:
        """Change a port if it still is as it was read.

        Raises:
            ChangedError: it is not.
            NeutronError: another reason.
        """
        answer = await self.session.ask("PUT", f"ports/{port.id}", {"port": fields}, revision=port.revision_number)
        return read(answer, "port", Port)

    async def ensure(
        self, wanted: PortRequest, network: NeutronNetwork | None = None, *, is_new: bool = False
    ) -> tuple[Port, NeutronNetwork, VfSettings]:
        """The desired port, bound, its network, and the VF's settings; an existing one is used.

        Args:
            network: its network, where it is known already, as `network` has returned it.
            is_new: whether the port cannot exist yet, so that it is not searched for.

        Raises:
            OtherProjectError, UnknownProjectError: the network or a security group may not be used.
            NeutronError: why not. A port that is made and cannot be bound stays, and is bound by the next call.
        """
        port = None if is_new else next(iter(await self.find(wanted.mark, wanted.claim)), None)
        # An existing port keeps its network, even if the request has changed since.
        network_id = wanted.network if port is None else port.network_id
        if network is None or network.id != network_id:
            network = await self._network("id", network_id)
        policy = None
        if port is None:
            # Neutron itself puts any project's QoS policy on a port, and any security group for the role admin.
            policy = await self.policy(wanted.qos_policy) if wanted.qos_policy else None
            await self.check_groups(wanted.security_groups or ())
            port = await self.session.one("POST", "ports", "port", Port, await self._body(wanted))
        elif not port.is_bound or (port.host, port.pci_slot) != (wanted.host, wanted.pci_slot):
            # With the same host, Neutron searches an agent again; with another VF of it, the port is bound again.
            body = {"port": {name: wanted.sent["port"][name] for name in ("binding:host_id", "binding:profile")}}
            port = await self.session.one("PUT", f"ports/{port.id}", "port", Port, body)
        check_bound(port, wanted, network)
        return port, network, await self.describe(port, network, policy)

    async def _body(self, wanted: PortRequest) -> dict[str, Any]:
        """The body that makes a port, with its tags if this Neutron takes them there."""
        tags = {"tags": list(wanted.label.tags)} if await self._has(TAGS_AT_ONCE) and wanted.label.tags else {}
        return {"port": {**wanted.sent["port"], **tags}}

    async def _has(self, extension: str) -> bool:
        return extension in await self._extensions.get("", self.extensions)

    async def records(self, cluster: str) -> tuple[OwnershipRecord, ...]:
        """The records of the owner of a cluster's ports, in the own project; one, or none yet.

        Raises:
            NeutronError: Neutron does not answer.
        """
        found = await self.session.list_all("security-groups", OwnershipRecord, name=records.name(cluster))
        project = (await self.tenancy()).project
        return tuple(record for record in found if not project or record.project_id == project)

    async def write_record(self, cluster: str, there: Sequence[OwnershipRecord], word: str) -> None:
        """Write a word into a cluster's record, which is made if none exists.

        Args:
            there: the records, as `records` returned them.

        Raises:
            ChangedError: another writer has written meanwhile.
            NeutronError: it cannot be written.
        """
        text = {"description": records.described(word)}
        for record in there:
            body = {"security_group": text}
            await self.session.ask("PUT", f"security-groups/{record.id}", body, revision=record.revision_number)
        if not there:
            body = {"security_group": {"name": records.name(cluster), **text}}
            await self.session.ask("POST", "security-groups", body)

    async def label(self, port: Port, wanted: PortRequest) -> bool:
        """Have a port of netdra's show what people search for; a Neutron without tags shows the rest.

        Returns:
            Whether anything was changed.

        Raises:
            NeutronError: it cannot be changed.
        """
        fields, tags = wanted.named, wanted.label.tags
        has_fields = fields == {"name": port.name, "description": port.description or ""}
        has_tags = port.tags is None or set(tags) <= set(port.tags)
        if not has_fields:
            await self.session.ask("PUT", f"ports/{port.id}", {"port": fields})
        if not has_tags:
            # Tags of others stay; netdra's tags with other values are removed.
            kept = [tag for tag in port.tags or () if not is_own_tag(tag)]
            await self.session.ask("PUT", f"ports/{port.id}/tags", {"tags": [*kept, *tags]})
        return not (has_fields and has_tags)

    async def port(self, port: str) -> Port:
        """A port that is known by its id, if netdra may use it.

        Raises:
            LostError: it is gone.
            OtherProjectError, UnknownProjectError: it may not be used.
            NeutronError: Neutron does not answer.
        """
        found = await self._read_port(port)
        (await self.tenancy()).check(found, f"port {port}")
        return found

    async def _read_port(self, port: str) -> Port:
        try:
            return await self.session.one("GET", f"ports/{port}", "port", Port)
        except NoNetworkError as problem:
            raise LostError(
                f"port {port} is gone from Neutron", hint="a pod with a new claim gets another port", code="ND3051"
            ) from problem

    async def ports(self, cluster: str = "") -> tuple[Port, ...]:
        """The ports that a cluster's netdra has made, or that of any cluster.

        Raises:
            NeutronError: Neutron does not answer.
        """
        ports = await self.session.list_all("ports", Port, device_owner=OWNER)
        made = (port for port in ports if not cluster or (port.mark is not None and port.mark.cluster == cluster))
        return (await self.tenancy()).own(made)

    async def revisions(self, kind: str, **query: str | Sequence[str]) -> dict[str, int]:
        """The revision numbers of some objects by their ids: a changed object has another one.

        Neutron 29 refuses `changed_since`, its other way to ask for changes, as an unknown filter.

        Args:
            kind: as in `Session.list_all`: `ports`, `networks`, `subnets`, `qos/policies`.
            **query: what they must have; of several values, one.

        Raises:
            NeutronError: Neutron does not answer.
        """
        # Without the fields that its rules compare, Neutron leaves out shared QoS policies of other projects.
        fields = ("id", "revision_number", "project_id", "shared")
        items = await self.session.list_all(kind, _Revision, **query, fields=fields)
        return {item.id: item.revision_number for item in items}

    async def ports_by_id(self, ports: Sequence[str]) -> tuple[Port, ...]:
        """The ports of these ids that exist and may be used.

        Raises:
            NeutronError: Neutron does not answer.
        """
        found: list[Port] = []
        for first in range(0, len(ports), IDS_AT_ONCE):
            found += await self.session.list_all("ports", Port, id=ports[first : first + IDS_AT_ONCE])
        return (await self.tenancy()).own(found)

    async def delete(self, port: str) -> None:
        """Delete a port; one that is gone is not an error.

        Raises:
            NeutronError: it cannot be deleted.
        """
        await self.session.ask("DELETE", f"ports/{port}", None, missing_ok=True)

    async def agents(self, host: str = "") -> tuple[Agent, ...]:
        """The NIC switch agents that the user may see, of one host or all.

        Raises:
            NeutronError: Neutron does not answer.
        """
        query = {"agent_type": "NIC Switch agent", **({"host": host} if host else {})}
        return tuple(await self.session.list_all("agents", Agent, **query))

    async def sees_agents(self) -> bool:
        """Whether the user sees any agent, of any kind; without the permission, Neutron lists none.

        Raises:
            NeutronError: Neutron does not answer.
        """
        return bool(read(await self.session.ask("GET", "agents?limit=1"), "agents", list[Agent]))

    async def extensions(self) -> frozenset[str]:
        """The aliases of the API's extensions that Neutron has.

        Raises:
            NeutronError: Neutron does not answer.
        """
        extensions = read(await self.session.ask("GET", "extensions"), "extensions", list[_Extension])
        return frozenset(extension.alias for extension in extensions)
