"""Which network a NeutronPort is in: looked up by id, name or physical network, and compared with the present ports.

Used by `netdra.controller.neutron.ports`. A name that leads to another network than before is a problem, which a new
port and the bound ones report; the new port is not made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from netdra.model.errors import sentence
from netdra.model.neutron_port import NeutronPort
from netdra.neutron.answers import NeutronNetwork
from netdra.neutron.client import Neutron
from netdra.neutron.errors import NetworkMovedError, NeutronError, UnauthorizedError, UnreachableError
from netdra.neutron.physnets import PhysnetDefault
from netdra.neutron.tenancy import is_id

_HINT = "set the ID of the right network in the topology, or in the controller's map of physical networks"
Lookups = dict[str, NeutronNetwork | NeutronError]
"""What Neutron has answered about networks, by id or name."""


class PortNetworks:
    """The networks of a cluster's ports."""

    def __init__(self, neutron: Neutron, physnets: Mapping[str, PhysnetDefault]) -> None:
        """Ask nothing yet.

        Args:
            physnets: by physical network, the network of ports whose topology names none.
        """
        self._neutron, self._physnets = neutron, physnets

    async def choose(self, port: NeutronPort, others: Iterable[NeutronPort]) -> tuple[NeutronNetwork, str]:
        """The network of a port that is to be made, and the id of its subnet; "" where Neutron chooses that.

        Args:
            others: the cluster's NeutronPorts.

        Raises:
            NetworkMovedError: a port of the same topology is in another network of that name.
            NeutronError: another reason.
        """
        named, spec = self._named(port), port.spec
        network = await (self._neutron.network(named) if named else self._neutron.network_of(spec.physnet))
        if named and not is_id(named):
            _check_same_network(port, network, others)
        subnet = spec.subnet or ("" if spec.network else self._default(port).subnet)
        return network, (await self._neutron.subnet(network, subnet)).id if subnet else ""

    async def problem(self, port: NeutronPort, lookups: Lookups, *, fresh: bool = True) -> str:
        """Why a new port like a bound one would not be in the same network; "" if it would.

        Args:
            lookups: the earlier lookups, to which this one's are added.
            fresh: whether networks that are known are read again.

        Raises:
            UnreachableError, UnauthorizedError: Neutron or Keystone gives no answer just now.
        """
        assert port.status is not None
        for wanted in dict.fromkeys((port.status.network_id, "" if port.spec.port else self._named(port))):
            if wanted and (text := _problem(port, wanted, await self._lookup(wanted, lookups, fresh=fresh))):
                return text
        return ""

    async def _lookup(self, wanted: str, lookups: Lookups, *, fresh: bool) -> NeutronNetwork | NeutronError:
        if wanted not in lookups:
            try:
                lookups[wanted] = await self._neutron.network(wanted, fresh=fresh)
            except (UnreachableError, UnauthorizedError):
                raise
            except NeutronError as problem:
                lookups[wanted] = problem
        return lookups[wanted]

    def _named(self, port: NeutronPort) -> str:
        return port.spec.network or self._default(port).network

    def _default(self, port: NeutronPort) -> PhysnetDefault:
        return self._physnets.get(port.spec.physnet, PhysnetDefault(""))


def _check_same_network(port: NeutronPort, network: NeutronNetwork, others: Iterable[NeutronPort]) -> None:
    for other in others:
        if (
            (other.spec.topology, other.spec.network) == (port.spec.topology, port.spec.network)
            and not other.spec.port
            and other.status is not None
            and other.status.network_name == network.name
            and other.status.network_id != network.id
        ):
            of = f"NeutronPort {other.metadata.namespace}/{other.name}"
            raise NetworkMovedError(_moved(network, other.status.network_id, of), hint=_HINT, code="ND3034")


def _problem(port: NeutronPort, wanted: str, now: NeutronNetwork | NeutronError) -> str:
    assert port.status is not None
    if isinstance(now, NeutronError):
        return str(now)
    if is_id(wanted) or now.id == port.status.network_id or now.name != port.status.network_name:
        return ""
    return sentence(_moved(now, port.status.network_id, "this port"), _HINT)


def _moved(network: NeutronNetwork, former: str, of: str) -> str:
    return (
        f'network "{network.name}" now has the ID {network.id} of project {network.project_id}, but {of} is in {former}'
    )
