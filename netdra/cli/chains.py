"""Shared by `netdra attach`, `detach`, `check` and `gc`: how chains are run here, and how results are printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from netdra.chain.site import DEFAULT_STATE, Settings
from netdra.cli import inputs, shared, terminal
from netdra.cni.plugins import DEFAULT_DIRECTORIES, PluginPath
from netdra.model import documents
from netdra.model.errors import InvalidInputError
from netdra.model.plan import Plan
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology

F = TypeVar("F", bound=Callable[..., Any])

output_option = click.option(
    "--output", "-o", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True
)
MAX_TIMEOUT = 24 * 3600.0


_STATE = click.option(
    "--state",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_STATE,
    show_default=True,
    help="Where the checkpoints are.",
)
_CNI_PATH = click.option(
    "--cni-path",
    metavar="DIR[:DIR]",
    envvar="CNI_PATH",
    default=":".join(DEFAULT_DIRECTORIES),
    show_default=True,
    help="Where plugin binaries are.",
)
_ROOT = click.option(
    "--host-root",
    metavar="DIR",
    default="/",
    show_default=True,
    help="The root in which plugin binaries run; /proc/1/root from inside a container.",
)
_TIMEOUT = click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1, max=MAX_TIMEOUT),
    callback=shared.seconds,
    default=30.0,
    show_default=True,
    help="How long all of it may take, undoing included.",
)


def settings_options(command: F) -> F:
    """The options that `settings` makes Settings of."""
    for option in (_TIMEOUT, _ROOT, _CNI_PATH, _STATE):
        command = option(command)
    return command


def settings(state: Path, cni_path: str, host_root: str, timeout: float) -> Settings:
    """How chains are run, from the options."""
    directories = tuple(directory for directory in cni_path.split(":") if directory)
    return Settings(
        state=state, plugins=PluginPath(directories=directories, root=host_root), budget=timeout, step_timeout=timeout
    )


def plans(path: str) -> list[Plan]:
    """The plans in a file, or those of the topologies in it as they are written.

    Raises:
        InvalidInputError: the file holds neither, or a topology needs values that only a claim gives.
    """
    return planned(path)[0]


def planned(path: str) -> tuple[list[Plan], list[CNIPluginSchema]]:
    """As `plans`, with the plugin schemas that stand beside the topologies.

    Raises:
        InvalidInputError: the file holds no plan and no topology.
    """
    text = inputs.text(path)
    if "NetworkTopology" not in text:
        return documents.plans(text, inputs.name(path)), []
    from netdra.topology.bind import unbound
    from netdra.topology.parameters import complete

    objects = list(documents.read(text, inputs.name(path)))
    schemas = [schema for schema in objects if isinstance(schema, CNIPluginSchema)]
    topologies = [topology for topology in objects if isinstance(topology, NetworkTopology)]
    return [
        unbound(topology, complete(topology.name, topology.spec.parameters, {})) for topology in topologies
    ], schemas


def sandbox_of(netns: str) -> str:
    """The id of a sandbox without a given one: the last part of its namespace's path.

    Raises:
        InvalidInputError: the path has no such part.
    """
    if not Path(netns).name:
        raise InvalidInputError(
            f'--netns "{netns}" gives the sandbox no name',
            hint="give it one: netdra attach --sandbox, netdra detach SANDBOX",
        )
    return Path(netns).name


def show(report: msgspec.Struct, output: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a report: as a table of these rows, or whole as JSON or YAML."""
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report)))
    elif output == "yaml":
        click.echo(documents.to_yaml(report), nl=False)
    elif rows:
        terminal.print_table(columns, rows)
