"""Shared by `netdra attach`, `detach`, `check` and `gc`: how chains are run here, and how results are printed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from netdra.chain.site import DEFAULT_STATE, ChainSettings
from netdra.cli import inputs, shared, terminal
from netdra.cni.plugins import DEFAULT_DIRECTORIES, PluginPath
from netdra.model import documents, names
from netdra.model.errors import InvalidInputError
from netdra.model.plan import Plan
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology

if TYPE_CHECKING:
    from netdra.chain.report import UndoReport

MAX_TIMEOUT = 24 * 3600.0


def _settings(state: Path, cni_path: str, host_root: str, timeout: float, unknown_differences: str) -> ChainSettings:
    directories = tuple(directory for directory in cni_path.split(":") if directory)
    return ChainSettings(
        state=state,
        plugins=PluginPath(directories=directories, root=host_root),
        budget=timeout,
        step_timeout=timeout,
        hold_unknown=unknown_differences == "Hold",
    )


settings_options = shared.group(
    "settings",
    _settings,
    shared.option(
        "--state",
        "DIR",
        "The directory of the checkpoints.",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="NETDRA_CHECKPOINT_DIR",
        default=DEFAULT_STATE,
    ),
    shared.option(
        "--cni-path",
        "DIR[:DIR]",
        "The directories of plugin binaries.",
        envvar=["CNI_PATH", "NETDRA_CNI_PATH"],
        default=":".join(DEFAULT_DIRECTORIES),
    ),
    shared.option(
        "--host-root",
        "DIR",
        "The root in which plugin binaries run; /proc/1/root from inside a container.",
        default="/",
    ),
    shared.seconds("--timeout", "The timeout for the whole command, including undo.", 0.1, MAX_TIMEOUT, 30.0),
    shared.unknown_differences,
)
"""How chains are run, as the command's argument `settings`."""


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
            f'--netns "{netns}" does not determine the name of the sandbox',
            hint="set the name: netdra attach --sandbox, netdra detach SANDBOX",
            code="ND4003",
        )
    return Path(netns).name


def pod_of(text: str) -> tuple[str, str]:
    """A pod's namespace and name, of NAMESPACE/NAME; both "" of "".

    Raises:
        InvalidInputError: one of the two is not a name that an object of Kubernetes may have.
    """
    namespace, _, name = text.partition("/")
    if text and not (names.is_label(namespace) and names.is_subdomain(name)):
        raise InvalidInputError(
            f'--pod "{text}" is not NAMESPACE/NAME', hint="an example is --pod default/web-0", code="ND4004"
        )
    return namespace, name


def show(report: msgspec.Struct, output: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a report: as a table of these rows if it has any, or whole as JSON or YAML."""
    if rows or output != "table":
        terminal.print_report(report, output, columns, rows)


def detail(step: UndoReport) -> str:
    """The outcome of undoing a step, in words."""
    restored = (f"restored: {text}" for text in step.restored)
    return "; ".join(filter(None, (step.message, *restored, *step.notes)))
