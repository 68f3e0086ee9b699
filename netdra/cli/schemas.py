"""`netdra schemas`: the CNIPluginSchemas that netdra brings along, to read or to write one's own from."""

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
    """Print the plugin schemas that netdra brings along: all in a table, or those of some TYPEs whole.

    A CNIPluginSchema of the cluster's own stands above the one that is brought along for its type.
    """
    every = [schema for name in shipped.names() if (schema := shipped.schema(name)) is not None]
    cni_types = sorted({entry.spec.cni_type for entry in every})
    for kind in types:
        if kind not in cni_types:
            hint = suggestions.hint(kind, cni_types, "`netdra schemas` lists all:")
            raise InvalidInputError(f'no built-in schema for plugin "{kind}"', hint=hint)
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
