"""`netdra schemas`: the CNIPluginSchemas that netdra brings along, to read or to write one's own from."""

from __future__ import annotations

import click
import msgspec

from netdra.cli import terminal
from netdra.model import documents, suggestions
from netdra.model.errors import InvalidInputError
from netdra.topology import shipped

_COLUMNS = ("TYPE", "EXECUTION", "VERSION", "REQUIRED", "OPTIONAL")


@click.command(name="schemas")
@click.argument("types", metavar="[TYPE]...", nargs=-1)
@click.option("--output", "-o", type=click.Choice(["table", "json", "yaml"]), help="By default table, of a TYPE yaml.")
def command(types: tuple[str, ...], output: str | None) -> None:
    """Print the plugin schemas that netdra brings along: all in a table, or those of some TYPEs whole.

    A CNIPluginSchema of the cluster's own stands above the one that is brought along for its type.
    """
    every = [schema for name in shipped.names() if (schema := shipped.schema(name)) is not None]
    known = sorted({each.spec.cni_type for each in every})
    for kind in types:
        if kind not in known:
            hint = suggestions.hint(kind, known, "`netdra schemas` lists all:")
            raise InvalidInputError(f'no schema is brought along for plugin "{kind}"', hint=hint)
    found = [each for each in every if not types or each.spec.cni_type in types]
    form = output or ("yaml" if types else "table")
    if form == "table":
        rows = (
            (
                each.spec.cni_type,
                each.spec.execution,
                each.spec.version,
                ", ".join(parameter.name for parameter in each.spec.config_parameters.required),
                ", ".join(parameter.name for parameter in each.spec.config_parameters.optional),
            )
            for each in found
        )
        terminal.print_table(_COLUMNS, rows)
    elif form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode([documents.plain(each) for each in found])))
    else:
        click.echo("---\n".join(documents.to_yaml(documents.plain(each)) for each in found), nl=False)
