"""A CNIPluginSchema that is about to be written: whether it contradicts itself, or present topologies."""

from __future__ import annotations

from collections.abc import Iterator

from netdra.admission.cluster import Cluster
from netdra.admission.messages import Verdict
from netdra.admission.topologies import SHOWN
from netdra.model.findings import Finding
from netdra.model.names import SHIPPED_LABEL
from netdra.model.schema import CNIPluginSchema
from netdra.model.suggestions import listed
from netdra.rules import contract, shipped
from netdra.rules.schemas import check_graph, plugins
from netdra.topology import graph


def review(new: CNIPluginSchema, cluster: Cluster) -> Verdict:
    """The errors of a schema, or the warnings for its author."""
    _, findings = contract.examine(new)
    if findings:
        return Verdict(tuple(finding.text for finding in findings))
    return Verdict((), tuple(finding.text for finding in warnings(new, cluster)))


def warnings(new: CNIPluginSchema, cluster: Cluster) -> Iterator[Finding]:
    """The warnings for the author of a schema without errors."""
    name, plugin = new.metadata.name, new.spec.plugin
    if new.is_shipped:
        yield from _not_shipped(new)
        return
    others = {
        schema.metadata.name for schema in shipped.own_of(cluster.schemas.values()) if schema.spec.plugin == plugin
    }
    same = others - {name}
    first = min([name, *same])
    if same:
        what = f'CNIPluginSchema "{name}": {listed(sorted(same), SHOWN)} describes plugin "{plugin}" too'
        yield Finding(what=what, hint=f'"{first}" counts', path=("spec", "cniType"))
    if first == name and (unfit := list(_unfit(new, cluster))):
        yield Finding(
            what=f'CNIPluginSchema "{name}": the topologies {listed(unfit, SHOWN)} break it',
            hint="they go on as they are, but cannot be changed without being mended",
            path=("spec",),
        )


def _not_shipped(new: CNIPluginSchema) -> Iterator[Finding]:
    """A warning for an object that differs from the schema that is shipped under its name."""
    name = new.metadata.name
    own = shipped.objects().get(name)
    if own is not None and own.spec == new.spec:
        return
    next_ = "deletes it" if own is None else "puts it right"
    yield Finding(
        what=f'CNIPluginSchema "{name}": by its label {SHIPPED_LABEL} it only shows what netdra ships, so it counts '
        f"for nothing, and the controller {next_}",
        hint="leave the label out to have it count",
        path=("metadata", "labels"),
    )


def _unfit(new: CNIPluginSchema, cluster: Cluster) -> Iterator[str]:
    """Topologies that the schema would have refused."""
    contracts = shipped.contracts([new.spec.plugin], [new])
    for name, topology in sorted(cluster.topologies.items()):
        if new.spec.plugin not in plugins(topology.spec.steps):
            continue
        compiled, _ = graph.examine(topology)
        if compiled is not None and check_graph(compiled, contracts):
            yield name
