"""Steps whose MTU is not that of their PodNetwork, or cannot be. Pure.

Called by the webhook and by `netdra validate`, for warnings: a step may have a smaller MTU on purpose. The MTU of
devices is not known before the claim is allocated; the node compares it before the first step runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netdra.model.findings import Finding, about
from netdra.model.pod_network import PodNetwork
from netdra.model.topology import NetworkTopology
from netdra.rules.pod import check_network_mtus
from netdra.topology import bind, graph, interfaces
from netdra.topology.addresses import gets_mtu


def check(topology: NetworkTopology, networks: Mapping[str, PodNetwork]) -> Iterator[Finding]:
    """The warnings for a topology without errors.

    Args:
        topology: as administrators wrote it.
        networks: the PodNetworks by name.
    """
    mtus = {name: network.spec.mtu for name, network in networks.items() if network.spec.mtu}
    if any(step.pod_network in mtus for step in topology.spec.steps):
        yield from _other(topology, mtus)
        yield from _too_large(topology, mtus)


def _other(topology: NetworkTopology, mtus: Mapping[str, int]) -> Iterator[Finding]:
    """Steps that set another MTU; references are skipped."""
    for at, step in enumerate(topology.spec.steps):
        network, mtu = step.pod_network, step.config.get("mtu")
        if network in mtus and isinstance(mtu, int) and mtu != mtus[network]:
            what = f'the step sets mtu {mtu}, but PodNetwork "{network}" has mtu {mtus[network]}'
            hint = "remove mtu from the step, or correct spec.mtu of the PodNetwork"
            yield about(
                topology.name, step.name, what, hint=hint, path=("spec", "steps", at, "config", "mtu"), code="ND1092"
            )


def _too_large(topology: NetworkTopology, mtus: Mapping[str, int]) -> Iterator[Finding]:
    """Steps on an interface, or bonds with a member, that an earlier step gives a smaller MTU."""
    compiled, _ = graph.examine(topology)
    if compiled is None or interfaces.examine([compiled])[1]:
        return
    plan = bind.unbound(topology)
    given = {step.name: mtus[step.pod_network] for step in plan.steps if step.pod_network in mtus and gets_mtu(step)}
    for step, finding in check_network_mtus(plan, given):
        yield compiled.about(step, finding.what, hint=finding.hint, path=("network",), code=finding.code)
