"""The status of a CNIPluginSchema: whether it contradicts itself, and whether it is the one that counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from netdra.controller.conditions import Said, conditions
from netdra.model.schema import CNIPluginSchema, CNIPluginSchemaStatus
from netdra.topology import contract


def status(schema: CNIPluginSchema, schemas: Mapping[str, CNIPluginSchema], now: datetime) -> CNIPluginSchemaStatus:
    """The status as it should be."""
    before = schema.status or CNIPluginSchemaStatus()
    generation = schema.metadata.generation
    said = (_accepted(schema, schemas),)
    return CNIPluginSchemaStatus(
        observed_generation=generation, conditions=conditions(said, before.conditions, generation, now)
    )


def _accepted(schema: CNIPluginSchema, schemas: Mapping[str, CNIPluginSchema]) -> Said:
    _, findings = contract.examine(schema)
    if findings:
        why = "\n".join(finding.text for finding in findings)
        return Said("Accepted", holds=False, reason="Contradictory", message=why)
    plugin = schema.spec.plugin
    first = min(name for name, each in schemas.items() if each.spec.plugin == plugin)
    if first != schema.metadata.name:
        why = f'"{first}" describes plugin "{plugin}" too and counts, because its name sorts first; delete one of them'
        return Said("Accepted", holds=False, reason="Duplicate", message=why)
    return Said("Accepted", holds=True, reason="Valid", message=f'topologies are held against it for plugin "{plugin}"')
