"""Whether a VF may have a port: Neutron binds several ports to one VF without a word.

Used by `netdra.controller.neutron.ports`. Ports of the cluster are judged by its NeutronPorts, all others by the ports
that Neutron has on the host. These are known for a while; a port that would refuse the VF is searched for again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from netdra.controller.neutron import desired
from netdra.model.neutron_port import NeutronPort
from netdra.neutron.answers import Port
from netdra.neutron.client import Neutron
from netdra.neutron.errors import SlotTakenError
from netdra.neutron.marks import OWNER, Mark


async def check(neutron: Neutron, port: NeutronPort, mark: Mark, every: Collection[NeutronPort]) -> bool:
    """Refuse a second port of one VF.

    Args:
        port: the NeutronPort that is to have a port.
        mark: its mark in Neutron.
        every: the cluster's NeutronPorts.

    Returns:
        Whether the VF has a port that was made for this NeutronPort.

    Raises:
        SlotTakenError: the VF has one for another.
        NeutronError: Neutron does not answer.
    """
    host, slot = port.spec.host, port.pci_address
    for own in every:
        if (own.spec.host, own.pci_address) == (host, slot) and _keeps_it(own, port):
            assert own.status is not None
            raise _taken(port, own.status.port_id, own.spec.claim.uid, OWNER)
    there = await neutron.users_of(host, slot)
    if _others(port, mark, there, every):
        there = await neutron.users_of(host, slot, fresh=True)
        for other in _others(port, mark, there, every):
            raise _taken(port, other.id, other.device_id, other.device_owner)
    return any(other.mark == mark for other in there)


def _others(port: NeutronPort, mark: Mark, there: Sequence[Port], every: Collection[NeutronPort]) -> list[Port]:
    """Those of a VF's ports that keep it: not those of claims which have given it back, or have another one."""
    if not there:
        return []
    going = {
        Mark(mark.cluster, own.name)
        for own in every
        if own.metadata.deletion_timestamp or own.pci_address not in ("", port.pci_address)
    }
    return [other for other in there if other.mark not in {mark, *going} and other.id != port.spec.port]


def _keeps_it(own: NeutronPort, port: NeutronPort) -> bool:
    """Whether another NeutronPort of a VF has its port, and keeps it."""
    is_other = own.name != port.name and not (port.spec.port and own.spec.port == port.spec.port)
    return is_other and desired.is_bound(own) and not own.metadata.deletion_timestamp


def _taken(port: NeutronPort, other: str, device: str, owner: str) -> SlotTakenError:
    return SlotTakenError(
        f"VF {port.pci_address} of host {port.spec.host} already has port {other}, for device_id "
        f"{device} of {owner or 'nobody'}",
        hint="delete that port if it is no longer used; openstack port show prints its description",
        code="ND3036",
    )
