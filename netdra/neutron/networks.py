"""Networks, subnets, QoS policies and security groups, read before a port is made, and cached for a while.

Each object's project is compared (`netdra.neutron.tenancy`) whenever it is used, also if it was known.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from netdra.neutron.answers import NeutronNetwork, Port, QosPolicy, SecurityGroup, Subnet, VfSettings, settings
from netdra.neutron.cached import Cached
from netdra.neutron.errors import AmbiguousError, ForbiddenError, NoNetworkError
from netdra.neutron.session import Session
from netdra.neutron.tenancy import NOTHING, AllowedIds, Tenancy, is_id

NETWORK_SECONDS = 60.0
"""How long networks, subnets and QoS policies are known that were read; changes and refusals end it earlier."""
JUST_NOW_SECONDS = 1.0
"""How long what was read is not out of date."""


class Networks:
    """The networks of a cloud.

    Attributes:
        session: logs in when it is first asked.
    """

    def __init__(self, session: Session, allowed: AllowedIds = NOTHING) -> None:
        """Begin with a session.

        Args:
            allowed: what may be used beside the session's own project.
        """
        self.session = session
        self._allowed = allowed
        self._checked_groups: set[str] = set()
        self._networks: Cached[tuple[str, str], Sequence[NeutronNetwork]] = Cached(NETWORK_SECONDS)
        self._subnets: Cached[str, Sequence[Subnet]] = Cached(NETWORK_SECONDS)
        self._policies: Cached[str, QosPolicy] = Cached(NETWORK_SECONDS)

    async def tenancy(self) -> Tenancy:
        """The project of the login, and the objects that may be used beside it.

        Raises:
            CloudsError, NeutronError: the login failed.
        """
        login = await self.session.login()
        return Tenancy(project=login.project_id, name=login.project, allowed=self._allowed)

    def forget(self) -> bool:
        """Read all again from now on.

        Returns:
            Whether what was known may have been out of date.
        """
        had_older = any(known.has_older(JUST_NOW_SECONDS) for known in (self._networks, self._subnets, self._policies))
        self._networks.forget()
        self._subnets.forget()
        self._policies.forget()
        self._checked_groups.clear()
        return had_older

    def drop(self, networks: Collection[str], policies: Collection[str]) -> None:
        """Read networks, with their subnets, and QoS policies again from now on, by their ids."""
        if networks:
            self._networks.forget()
        for network in networks:
            self._subnets.forget(network)
        for policy in policies:
            self._policies.forget(policy)

    async def network(self, wanted: str, *, fresh: bool = False) -> NeutronNetwork:
        """The network of that id or name, if netdra may use it.

        Names are looked up among the networks of the own project and the listed ones alone, unless names of shared
        networks are allowed. Neutron's ids are UUIDs; a UUID is not a name.

        Args:
            fresh: whether it is read again, though it may be known.

        Raises:
            NoNetworkError: none exists.
            OtherProjectError, UnknownProjectError: there is, and it may not be used.
            AmbiguousError: several have the name.
            NeutronError: another reason.
        """
        return await self._network("id" if is_id(wanted) else "name", wanted, fresh=fresh)

    async def _network(self, by: str, wanted: str, *, fresh: bool = False) -> NeutronNetwork:
        async def read_anew() -> Sequence[NeutronNetwork]:
            return await self.session.list_all("networks", NeutronNetwork, **{by: wanted})

        networks = await self._networks.get((by, wanted), read_anew, fresh=fresh)
        return (await self.tenancy()).only(networks, f'network "{wanted}"', by_id=by == "id")

    async def network_of(self, physnet: str) -> NeutronNetwork:
        """The only network of a physical network that netdra may use.

        Raises:
            ForbiddenError: the user may not see which networks are of it.
            NoNetworkError, OtherProjectError, UnknownProjectError, AmbiguousError: as `network`.
            NeutronError: another reason.
        """
        every = await self.session.list_all("networks", NeutronNetwork)
        if every and all(entry.physnet is None for entry in every):
            login = await self.session.login()
            raise ForbiddenError(
                f'Neutron: list networks: {login.who} may not see which of them are of physical network "{physnet}"',
                hint="name the network; only an administrator sees provider:physical_network",
                code="ND3059",
            )
        of_physnet = [entry for entry in every if entry.physnet == physnet]
        return (await self.tenancy()).only(of_physnet, f'network of physical network "{physnet}"')

    async def networks(self) -> tuple[NeutronNetwork, ...]:
        """All networks that netdra may use.

        Raises:
            NeutronError: Neutron does not answer.
        """
        return (await self.tenancy()).usable(await self.session.list_all("networks", NeutronNetwork))

    async def subnets(self, network: NeutronNetwork) -> tuple[Subnet, ...]:
        """A network's subnets.

        Raises:
            NeutronError: Neutron does not answer.
        """

        async def read_anew() -> Sequence[Subnet]:
            return await self.session.list_all("subnets", Subnet, network_id=network.id)

        return tuple(await self._subnets.get(network.id, read_anew))

    async def subnets_of(self, networks: Sequence[str]) -> dict[str, Subnet]:
        """The subnets of some networks by their ids, as they are now.

        Raises:
            NeutronError: Neutron does not answer.
        """
        subnets = await self.session.list_all("subnets", Subnet, network_id=networks)
        return {subnet.id: subnet for subnet in subnets}

    async def subnet(self, network: NeutronNetwork, wanted: str) -> Subnet:
        """The subnet of a network that has that id or name.

        Raises:
            NoNetworkError, AmbiguousError: none exists, or there are several.
            OtherProjectError, UnknownProjectError: netdra may not use it.
            NeutronError: another reason.
        """
        subnets = await self.subnets(network)
        matching = [subnet for subnet in subnets if subnet.id == wanted] or [
            subnet for subnet in subnets if subnet.name == wanted
        ]
        if len(matching) == 1:
            (await self.tenancy()).check_subnet(matching[0], network)
            return matching[0]
        there = ", ".join(sorted(f"{subnet.name or 'without a name'} ({subnet.id})" for subnet in subnets)) or "none"
        what = f'Neutron: network {network.name or network.id}: {len(matching) or "no"} subnets "{wanted}"'
        kind = AmbiguousError if matching else NoNetworkError
        raise kind(what, hint=f"give the id of one: {there}")

    async def describe(self, port: Port, network: NeutronNetwork, policy: QosPolicy | None = None) -> VfSettings:
        """The settings of a VF with a port.

        Args:
            policy: the port's own QoS policy, where it is known already.

        Raises:
            OtherProjectError, UnknownProjectError: a subnet or QoS policy may not be used.
            NeutronError: Neutron does not answer.
        """
        used = {fixed_ip.subnet_id for fixed_ip in port.fixed_ips}
        tenancy = await self.tenancy()
        subnets = [subnet for subnet in await self.subnets(network) if subnet.id in used] if used else []
        for subnet in subnets:
            tenancy.check_subnet(subnet, network)
        if policy is None and port.qos_policy_id:
            policy = await self.policy(port.qos_policy_id)
        elif policy is None and port.qos_network_policy_id:  # the network's owner has chosen it
            policy = await self._read_policy(port.qos_network_policy_id)
        return settings(port, network, subnets, policy)

    async def policy(self, policy_id: str) -> QosPolicy:
        """A QoS policy, if netdra may use it.

        Raises:
            OtherProjectError, UnknownProjectError: it may not.
            NeutronError: Neutron does not answer.
        """
        policy = await self._read_policy(policy_id)
        (await self.tenancy()).check(policy, f"QoS policy {policy_id}")
        return policy

    async def _read_policy(self, policy_id: str) -> QosPolicy:
        async def read_anew() -> QosPolicy:
            return await self.session.one("GET", f"qos/policies/{policy_id}", "policy", QosPolicy)

        return await self._policies.get(policy_id, read_anew)

    async def check_groups(self, groups: Sequence[str]) -> None:
        """Reject security groups that may not be used.

        Raises:
            OtherProjectError, UnknownProjectError: one may not.
            NeutronError: Neutron does not answer.
        """
        tenancy = await self.tenancy()
        for group in groups:
            if group not in self._checked_groups:
                found = await self.session.one("GET", f"security-groups/{group}", "security_group", SecurityGroup)
                tenancy.check(found, f"security group {group}")
                self._checked_groups.add(group)
