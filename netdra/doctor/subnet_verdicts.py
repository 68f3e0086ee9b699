"""The check of a cloud's subnets beside a cluster's PodNetworks. Pure.

`network_verdicts` compares only subnets in which netdra has ports. Here it is all networks on a physical network that
netdra may use: other machines on their wires have addresses, too. Overlay networks of other projects are not on any
wire of a node. The facts are filled by `neutron_look`; called by `netdra doctor`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from netdra.doctor.cluster_verdicts import NAMED
from netdra.doctor.diagnosis import Diagnosis, diagnose
from netdra.doctor.neutron_verdicts import CloudFacts, Failed
from netdra.model.pod_network import PodNetwork
from netdra.neutron.answers import NeutronNetwork, Subnet
from netdra.rules import taken_ranges
from netdra.rules.taken_ranges import TakenRange

_CHECK = "subnets"
_finding = partial(diagnose, "neutron")


def verdicts(networks: Sequence[PodNetwork], cloud: CloudFacts, known: Sequence[TakenRange]) -> list[Diagnosis]:
    """All findings; none without PodNetworks, or without networks on a physical network.

    Args:
        networks: the cluster's PodNetworks.
        cloud: the cloud.
        known: the ranges that were compared already.
    """
    if not networks or isinstance(cloud.networks, Failed):
        return []
    if isinstance(cloud.subnets, Failed):
        why = f"could not be compared with PodNetworks: {cloud.subnets.what}"
        return [_finding(_CHECK, "warning", why, cloud.subnets.hint, code="ND3176")]
    reported = {(entry.owner, entry.cidr) for entry in known}
    taken = [entry for entry in _taken(cloud.networks, cloud.subnets) if (entry.owner, entry.cidr) not in reported]
    found = [finding for network in networks for finding in taken_ranges.overlaps(network, taken)]
    shown = [_finding(_CHECK, "warning", finding.coded, finding.hint) for finding in found[:NAMED]]
    if len(found) > NAMED:
        shown.append(_finding(_CHECK, "warning", f"{len(found) - NAMED} more overlaps with PodNetworks", code="ND3177"))
    if cloud.subnets and not found:
        shown.append(_finding(_CHECK, "ok", f"{len(cloud.subnets)}; none overlaps with a PodNetwork"))
    return shown


def _taken(networks: Sequence[NeutronNetwork], subnets: Sequence[Subnet]) -> Iterator[TakenRange]:
    by_id = {network.id: network for network in networks}
    for subnet in subnets:
        network = by_id[subnet.network_id]
        yield TakenRange(
            cidr=subnet.cidr,
            use="neutron",
            owner=f'network "{network.name}" of Neutron',
            vlan=network.segment if network.kind == "vlan" else None,
            physnet=network.physnet or "",
        )
