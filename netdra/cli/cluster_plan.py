"""`netdra plan --cluster`: every node's devices now, and as they would be after some policies. Called by `plan`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from netdra.cli import terminal
from netdra.cli.objects import InputObjects
from netdra.exposure.changes import ClusterNow, DeviceChange, compare
from netdra.exposure.check import check
from netdra.model.core import ClusterNode
from netdra.model.errors import InvalidInputError
from netdra.model.node_network import NodeNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.model.suggestions import listed

KINDS = (ClusterNode, NodeNetwork, DeviceExposurePolicy, ResourceSlice)
"""What is read of the cluster."""
_COLUMNS = ("NODE", "POOL", "DEVICE", "NOW", "AFTER", "IN USE")
_NONE = "-"


def show(read: InputObjects, without: Sequence[str], nodes: Sequence[str], *, diff: bool, output: str) -> None:
    """Print every node's devices, now and after the policies of the files are written.

    Args:
        read: the cluster's objects; the policies that would be written; other objects of files that override.
        without: the names of the policies that would be deleted.
        nodes: the nodes that are inspected; none means all of them.
        diff: whether only changes are printed.
        output: "table", or "json" or "yaml".

    Raises:
        InvalidInputError: no such policy or node exists, or the user has no right to list a required kind.
    """
    written = read.of(DeviceExposurePolicy, read.files)
    for policy in written:
        for finding in check(policy):
            terminal.tell(f'policy "{policy.name}": {finding.text_at_path}')
    now = _now(read)
    policies = {policy.name for policy in now.policies}
    for name in without:
        if name not in policies:
            raise InvalidInputError(
                f"--without {name}: policy not found in the cluster", hint=_listed(policies), code="ND4006"
            )
    lines, notes = compare(now, written, without)
    present = {report.name for report in now.reports} | set(now.labels)
    for node in nodes:
        if node not in present:
            raise InvalidInputError(
                f"--node {node}: node not found in the cluster", hint=_listed(present), code="ND4007"
            )
    for note in notes:
        terminal.tell(note)
    chosen = [line for line in lines if (not nodes or line.node in nodes) and (line.differs or not diff)]
    if output == "table":
        _print(chosen)
    else:
        terminal.print_data({"devices": chosen}, output)


def _print(lines: Sequence[DeviceChange]) -> None:
    rows = (
        (line.node, line.pool, line.device, line.now or _NONE, line.after or _NONE, "yes" if line.allocated else "")
        for line in lines
    )
    terminal.print_table(_COLUMNS, rows)
    differing = [line for line in lines if line.differs]
    hidden = [line for line in differing if not line.after]
    offered = [line for line in differing if not line.now]
    in_use = sum(line.allocated for line in hidden)
    parts = [
        f"{len(hidden)} hidden{f' ({in_use} in use)' if in_use else ''}",
        f"{len(offered)} offered",
        f"{len(differing) - len(hidden) - len(offered)} by another policy",
    ]
    nodes = len({line.node for line in differing})
    click.echo(f"{', '.join(parts)}, on {nodes} node{'s' * (nodes != 1)}" if differing else "nothing changes")


def _listed(choices: Iterable[str]) -> str:
    return listed(sorted(choices)) or "the cluster does not have any"


def _now(read: InputObjects) -> ClusterNow:
    """The cluster as it is, with the Nodes, NodeNetworks and slices of files instead of its own.

    Raises:
        InvalidInputError: one of the kinds could not be read.
    """
    assert read.cluster is not None
    read.cluster.require(KINDS)
    return ClusterNow(
        labels={node.metadata.name: node.metadata.labels for node in read.nodes()},
        reports=read.of(NodeNetwork),
        policies=read.cluster.of(DeviceExposurePolicy),
        slices=read.of(ResourceSlice),
    )
