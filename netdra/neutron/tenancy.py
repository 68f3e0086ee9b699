"""Which objects of a cloud netdra uses: those of its own project, those shared with it, and listed ones. Pure.

Neutron does not check this for netdra: users with the role `service`, which binding requires, see and use objects
of all projects (neutron_lib, `Context.is_service_role`). `netdra.neutron.client` compares each object that it reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from netdra.neutron.answers import NeutronNetwork, Port, QosPolicy, SecurityGroup, Subnet
from netdra.neutron.errors import (
    AmbiguousError,
    NeutronError,
    NoNetworkError,
    OtherProjectError,
    UnknownProjectError,
)

Verdict = Literal["present", "refused", "unknown"]
"""Whether an object may be used; `unknown` where Neutron does not answer with its project."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


class Owned(Protocol):
    """An object of Neutron that belongs to a project."""

    @property
    def id(self) -> str:
        """Its UUID in Neutron."""

    @property
    def project_id(self) -> str:
        """The id of its project; "" if Neutron does not answer with it."""


class AllowedIds(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that an administrator allows beside the own project.

    Attributes:
        projects: ids of projects whose networks, ports and further objects may be used.
        networks: ids of networks that may be used, of any project.
        shared_names: whether names and physical networks also lead to networks that other projects share.
    """

    projects: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()
    shared_names: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no object is listed."""
        return not self.projects and not self.networks


NOTHING = AllowedIds()


class Tenancy(msgspec.Struct, frozen=True, kw_only=True):
    """The project that netdra works in, and the objects that it may use beside it.

    Attributes:
        project: the project's id; "" without a login, as with a Neutron without Keystone.
        name: the project's name.
        allowed: the administrator's list.
    """

    project: str
    name: str
    allowed: AllowedIds = NOTHING

    def verdict(self, thing: Owned) -> Verdict:
        """Whether an object may be used. Without a login and without a list no projects are compared."""
        if not self._compares:
            return "present"
        if isinstance(thing, NeutronNetwork | QosPolicy | SecurityGroup) and thing.shared:
            return "present"
        if isinstance(thing, NeutronNetwork) and (thing.external or thing.id in self.allowed.networks):
            return "present"
        if not thing.project_id:
            return "unknown"
        return "present" if self._is_own(thing) else "refused"

    def check(self, thing: Owned, what: str) -> None:
        """Refuse an object that may not be used.

        Args:
            what: the object in words.

        Raises:
            OtherProjectError: another project's.
            UnknownProjectError: Neutron does not answer with its project.
        """
        verdict = self.verdict(thing)
        if verdict != "present":
            hint = (
                "use one of that project, or allow the other project: "
                f"--neutron-allow-project {thing.project_id} (controller.neutron.allowedProjects)"
            )
            raise self._problem(verdict, f"{what} belongs to project {thing.project_id}", what, hint)

    def check_subnet(self, subnet: Subnet, network: NeutronNetwork) -> None:
        """Refuse a subnet that belongs neither to a project that may be used nor to the owner of its network.

        Neutron shows no other ones to the members of a network's project. All subnets of a listed network may be used.

        Args:
            network: the subnet's, which may be used.

        Raises:
            OtherProjectError, UnknownProjectError: as `check`.
        """
        is_owners = bool(subnet.project_id) and subnet.project_id == network.project_id
        if not is_owners and network.id not in self.allowed.networks and (verdict := self.verdict(subnet)) != "present":
            what = f"subnet {subnet.name or subnet.id} of network {network.name or network.id}"
            raise self._problem(verdict, f"{what} belongs to project {subnet.project_id}", what, _allow(network))

    def own(self, ports: Iterable[Port]) -> tuple[Port, ...]:
        """The ports that may be used; another project may have given its ports the same name, owner and description.

        Raises:
            UnknownProjectError: Neutron does not answer with the project of one.
        """
        ports = tuple(ports)
        for port in ports:
            if self.verdict(port) == "unknown":
                self.check(port, f"port {port.id}")
        return tuple(port for port in ports if self.verdict(port) == "present")

    def usable(self, networks: Iterable[NeutronNetwork]) -> tuple[NeutronNetwork, ...]:
        """The networks that may be used."""
        return tuple(network for network in networks if self.verdict(network) == "present")

    def only(self, networks: Sequence[NeutronNetwork], what: str, *, by_id: bool = False) -> NeutronNetwork:
        """The network that may be used; the own project's and the listed ones come before those that are shared.

        Any project may share a network with any other one, under any name. So a shared network must not take the place
        of an own one, nor make its name ambiguous. Unless `allowed.shared_names`, only its id leads to it.

        Args:
            networks: those that Neutron answers with.
            what: the searched name.
            by_id: whether they were searched by an id.

        Raises:
            NoNetworkError: none exists.
            OtherProjectError, UnknownProjectError: there are some, and none of them may be used, or not by this name.
            AmbiguousError: there are several.
        """
        if not networks:
            raise NoNetworkError(f"Neutron: {what} not found, or not visible to the user of clouds.yaml", code="ND3072")
        present = self.usable(networks)
        if not present:
            unknown = [network for network in networks if self.verdict(network) == "unknown"]
            others = ", ".join(sorted(f"{network.id} of project {network.project_id}" for network in networks))
            said = f"{what}: there is only {others}"
            raise self._problem("unknown" if unknown else "refused", said, what, _allow(networks[0]))
        first = tuple(network for network in present if self._is_own(network))
        if not first and self._compares and not by_id and not self.allowed.shared_names:
            others = ", ".join(sorted(f"{network.id} of project {network.project_id}" for network in present))
            raise OtherProjectError(
                f"{what}: there is only {others}, which other projects share; netdra works in project {self._shown}, "
                "and does not search names among networks of other projects",
                hint=f"give the id {present[0].id} in place of the name, or allow the network: --neutron-allow-network "
                f"{present[0].id} (controller.neutron.allowedNetworks)",
                code="ND3073",
            )
        first = first or present
        if len(first) > 1:
            listed = ", ".join(sorted(f"{network.name or 'without a name'} ({network.id})" for network in first))
            raise AmbiguousError(
                f"Neutron: {what}: there are {len(first)}", hint=f"give the id of one: {listed}", code="ND3074"
            )
        return first[0]

    @property
    def _compares(self) -> bool:
        return bool(self.project) or not self.allowed.is_empty

    def _is_own(self, thing: Owned) -> bool:
        is_listed = isinstance(thing, NeutronNetwork) and thing.id in self.allowed.networks
        return is_listed or thing.project_id in {self.project, *self.allowed.projects}

    def _problem(self, verdict: Verdict, refused: str, what: str, hint: str) -> NeutronError:
        if verdict == "unknown":
            return UnknownProjectError(
                f"{what}: Neutron does not answer with its project_id; netdra works in project {self._shown}",
                hint="Neutron's policy must show project_id to the user of clouds.yaml",
                code="ND3075",
            )
        return OtherProjectError(f"{refused}; netdra works in project {self._shown}", hint=hint, code="ND3076")

    @property
    def _shown(self) -> str:
        return f'"{self.name}" ({self.project})' if self.project else "none"


def is_id(text: str) -> bool:
    """Whether a text is an id of Neutron's, and so is not looked up as a name."""
    return _UUID.fullmatch(text) is not None


def _allow(network: NeutronNetwork) -> str:
    return (
        "use a network of that project, have its owner share it (openstack network rbac create), or allow it: "
        f"--neutron-allow-network {network.id} (controller.neutron.allowedNetworks)"
    )
