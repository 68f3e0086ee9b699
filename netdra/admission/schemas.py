"""A CNIPluginSchema that is about to be written: whether it contradicts itself, or topologies that are there."""

from __future__ import annotations

from collections.abc import Iterator

from netdra.admission.cluster import Cluster
from netdra.admission.messages import Verdict
from netdra.admission.topologies import listed
from netdra.model.schema import CNIPluginSchema
from netdra.topology import contract, graph, schema_check, shipped


def review(new: CNIPluginSchema, cluster: Cluster) -> Verdict:
    """What stands against a schema, and what its author should know."""
    _, findings = contract.examine(new)
    if findings:
        return Verdict(tuple(finding.text for finding in findings))
    return Verdict((), tuple(_warnings(new, cluster)))


def _warnings(new: CNIPluginSchema, cluster: Cluster) -> Iterator[str]:
    name, plugin = new.metadata.name, new.spec.plugin
    same = [each for each, other in cluster.schemas.items() if each != name and other.spec.plugin == plugin]
    first = min([name, *same])
    if same:
        yield f'CNIPluginSchema "{name}": {listed(sorted(same))} describes plugin "{plugin}" too; "{first}" counts'
    if first == name and (unfit := list(_unfit(new, cluster))):
        yield (
            f'CNIPluginSchema "{name}": the topologies {listed(unfit)} break it; they go on as they are, but cannot '
            "be changed without being mended"
        )


def _unfit(new: CNIPluginSchema, cluster: Cluster) -> Iterator[str]:
    """Topologies that the schema would have refused."""
    contracts = shipped.contracts([new.spec.plugin], [new])
    for name, topology in sorted(cluster.topologies.items()):
        if new.spec.plugin not in schema_check.plugins(topology.spec.steps):
            continue
        compiled, _ = graph.examine(topology)
        if compiled is not None and schema_check.check(compiled, contracts):
            yield name
