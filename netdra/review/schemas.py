"""The errors and warnings of a CNIPluginSchema: by itself, beside other schemas, and for present topologies. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from netdra.model.findings import Finding
from netdra.model.names import SHIPPED_LABEL
from netdra.model.schema import CNIPluginSchema
from netdra.model.suggestions import listed
from netdra.review.topologies import SHOWN
from netdra.review.world import World
from netdra.rules import contract, shipped
from netdra.rules.config import mistyped
from netdra.rules.loosened import loosened
from netdra.rules.schemas import check_graph, plugins
from netdra.topology import graph


def errors(new: CNIPluginSchema) -> Iterator[Finding]:
    """The errors of a schema by itself."""
    _, wrong = contract.examine(new)
    yield from wrong or mistyped(new)


def warnings(new: CNIPluginSchema, world: World) -> Iterator[Finding]:
    """The warnings for the author of a schema without errors."""
    name, plugin = new.metadata.name, new.spec.plugin
    if new.is_shipped:
        yield Finding(
            what=f'CNIPluginSchema "{name}": the label {SHIPPED_LABEL} marks a schema of an older netdra; '
            "the schema is ignored, and the controller deletes it",
            hint="remove the label",
            path=("metadata", "labels"),
            code="ND1249",
        )
        return
    looser = loosened(contract.compile_schema(new))
    if looser:
        yield Finding(
            what=f'CNIPluginSchema "{name}" allows more than netdra\'s built-in schema for plugin "{plugin}": {looser}',
            hint="ignore this warning if the plugin supports these fields",
            path=("spec",),
            code="ND1250",
        )
    others = {schema.metadata.name for schema in shipped.own_of(world.schemas.values()) if schema.spec.plugin == plugin}
    same = others - {name}
    first = min([name, *same])
    if same:
        what = f'CNIPluginSchema "{name}": {listed(sorted(same), SHOWN)} also describes plugin "{plugin}"'
        yield Finding(what=what, hint=f'"{first}" counts', path=("spec", "cniType"), code="ND1251")
    if first == name and (unfit := list(_unfit(new, world))):
        yield Finding(
            what=f'CNIPluginSchema "{name}": the stored topologies {listed(unfit, SHOWN)} do not match it',
            hint="they keep working; fix them before the next change of their steps",
            path=("spec",),
            code="ND1252",
        )


def _unfit(new: CNIPluginSchema, world: World) -> Iterator[str]:
    """Topologies that the schema would have refused."""
    contracts = shipped.contracts([new.spec.plugin], [new])
    for name, topology in sorted(world.topologies.items()):
        if new.spec.plugin not in plugins(topology.spec.steps):
            continue
        compiled, _ = graph.examine(topology)
        if compiled is not None and check_graph(compiled, contracts):
            yield name
