"""`netdra schemas`: the built-in CNIPluginSchemas, for reading or as a start for one's own."""

from __future__ import annotations

import click

from netdra.cli import shared, terminal
from netdra.model import suggestions
from netdra.model.errors import InvalidInputError
from netdra.rules import shipped

_COLUMNS = ("TYPE", "EXECUTION", "VERSION", "REQUIRED", "OPTIONAL")


@click.command(name="schemas")
@click.argument("types", metavar="[TYPE]...", nargs=-1)
@shared.output("table", "json", "yaml", text="By default table; with a TYPE yaml.")
def command(types: tuple[str, ...], output: str | None) -> None:
    """Print the built-in plugin schemas: all in a table, or complete schemas of TYPEs.

    A CNIPluginSchema in the cluster overrides the built-in schema of its type.
    """
    every = [schema for name in shipped.names() if (schema := shipped.schema(name)) is not None]
    cni_types = sorted({entry.spec.cni_type for entry in every})
    for kind in types:
        if kind not in cni_types:
            hint = suggestions.hint(kind, cni_types, "`netdra schemas` lists all:")
            raise InvalidInputError(f'no built-in schema for plugin "{kind}"', hint=hint, code="ND4049")
    chosen = [entry for entry in every if not types or entry.spec.cni_type in types]
    form = output or ("yaml" if types else "table")
    if form == "table":
        rows = (
            (
                entry.spec.cni_type,
                entry.spec.execution,
                entry.spec.version,
                ", ".join(parameter.name for parameter in entry.spec.config_parameters.required),
                ", ".join(parameter.name for parameter in entry.spec.config_parameters.optional),
            )
            for entry in chosen
        )
        terminal.print_table(_COLUMNS, rows)
    else:
        terminal.print_objects(chosen, form)
