"""Reads PodNetworks and their addresses through the API server. Writes nothing. Called by `netdra doctor`."""

from __future__ import annotations

import asyncio
from itertools import chain

from netdra.doctor.diagnosis import Unseen, attempt
from netdra.doctor.network_verdicts import NetworkFacts
from netdra.kube.client import Client
from netdra.kube.resources import (
    CLAIM_STATES,
    NEUTRON_PORTS,
    NODE_READINESS,
    NODES,
    POD_ADDRESSES,
    POD_NETWORKS,
    SERVICE_CIDRS,
)
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import PodNetwork
from netdra.rules import taken_ranges
from netdra.rules.taken_ranges import TakenRange


async def look(client: Client) -> NetworkFacts:
    """The facts; without a PodNetwork nothing else is read."""
    networks = await attempt(_networks(client))
    if isinstance(networks, Unseen):
        return NetworkFacts(networks=networks)
    addresses = await attempt(_addresses(client))
    if not networks and not addresses:
        return NetworkFacts()
    claims, nodes, taken = await asyncio.gather(
        attempt(_claims(client)), attempt(_nodes(client)), attempt(_read_taken(client))
    )
    return NetworkFacts(networks=networks, addresses=addresses, claims=claims, nodes=nodes, taken=taken)


async def _networks(client: Client) -> tuple[PodNetwork, ...]:
    return (*await client.list(POD_NETWORKS),)


async def _addresses(client: Client) -> tuple[PodAddress, ...]:
    return (*await client.list(POD_ADDRESSES),)


async def _claims(client: Client) -> frozenset[str]:
    return frozenset(await client.gather(CLAIM_STATES, lambda claim: claim.metadata.uid))


async def _nodes(client: Client) -> dict[str, bool]:
    return dict(await client.gather(NODE_READINESS, lambda node: (node.metadata.name, node.may_run_pods)))


async def _read_taken(client: Client) -> tuple[TakenRange, ...]:
    services = await client.gather(SERVICE_CIDRS, lambda entry: (*taken_ranges.of_services(entry),))
    nodes = await client.gather(NODES, lambda node: (*taken_ranges.of_node(node),))
    ports = await client.gather(NEUTRON_PORTS, lambda port: (*taken_ranges.of_port(port),))
    return (*dict.fromkeys(chain(*services, *nodes, *ports)),)
