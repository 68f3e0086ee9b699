"""`netdra simulate`: the devices that claims would get from ResourceSlices, and why some would get none."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Literal

import click
import msgspec

from netdra.cli import node_slices, objects, shared, terminal
from netdra.cli.node_slices import scheduler_node
from netdra.model import names, quantity
from netdra.model.claim import (
    AllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimTemplate,
    device_claim,
)
from netdra.model.core import ClusterNode
from netdra.model.custom_device import CustomDevice
from netdra.model.errors import InvalidInputError
from netdra.model.meta import ObjectMeta
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice, newest
from netdra.model.scheduler_version import SchedulerVersion
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.slices.allocator import Allocation, Allocator, NodeExplanation, claim_key, named, shown
from netdra.slices.nodes import SchedulerNode
from netdra.slices.written import faults
from netdra.topology.classes import known_classes
from netdra.topology.selectors import choices

_LEFT = ("DEVICE", "POOL", "CAPACITY", "CONSUMED", "LEFT", "OF")
_KINDS = (ResourceSlice, ResourceClaim, DeviceClass, NetworkTopology, ClusterNode, PodNetwork)
"""What is read of the cluster."""
_COLUMNS = ("CLAIM", "RESULT", "NODE", "REQUEST", "DEVICE", "POOL", "CONSUMES")


class ClaimOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The outcome of one claim, as it is printed in JSON and YAML.

    Attributes:
        result: `allocated` now, `held` by its status in the file, or `refused`.
        allocation: the allocation that the scheduler would write into its status.
        reason: why it was refused, in one sentence; `why` in several, with the claims that are in the way.
        nodes: the same as data, node by node.
        warnings: why the scheduler may leave the pod Pending although devices are free.
        errors: why netdra rejects the claim, although the scheduler allocates it: its pod does not start.
    """

    claim: str
    result: Literal["allocated", "held", "refused"]
    node: str = ""
    allocation: AllocationResult | None = None
    reason: str = ""
    why: tuple[str, ...] = ()
    nodes: tuple[NodeExplanation, ...] = ()
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@click.command(name="simulate")
@objects.options()
@objects.slices
@shared.option("--claims", "PATH", "An additional PATH with claims or other objects.", "claim_paths", multiple=True)
@shared.option("--node", "NAME", "Try only this node; repeatable, in this order.", "nodes", multiple=True)
@shared.option(
    "--admin-namespace",
    "NAME",
    "A namespace whose label allows admin access; repeatable.",
    "admin_namespaces",
    multiple=True,
)
@objects.kubernetes_version()
@shared.output("table", "json", "yaml")
@click.pass_context
def command(
    context: click.Context,
    given: objects.InputOptions,
    slice_paths: tuple[str, ...],
    claim_paths: tuple[str, ...],
    nodes: tuple[str, ...],
    admin_namespaces: tuple[str, ...],
    kubernetes: SchedulerVersion | None,
    output: str,
) -> None:
    """Allocate claims from ResourceSlices like the scheduler, and explain failures.

    PATHs are files, directories, or "-", with any of these objects: ResourceSlices, claims and templates,
    DeviceClasses, NetworkTopologies, PodNetworks, Nodes; for a node without slices also its inventory
    (`netdra capture`) and policies, which are planned as in `netdra plan`. Other kinds are ignored.

    Claims are allocated one after the other in the order of the files; a template counts as one claim. Claims with an
    allocation in their status keep their devices. Each claim is allocated on the first suitable node by name: of the
    Nodes, or, without Nodes, of the nodes in slices. For a NetworkTopology, the DeviceClasses of the controller are
    used, and for a PodNetwork its DeviceClass and its addresses. Warnings on stderr list claims for which the scheduler
    may time out, claims that request one shared device twice, slices that the API server would reject, and fields that
    are ignored. Claims that are allocated, but that netdra would reject on the node, are listed with the reason, which
    `netdra validate` shows as well. The exit code is 1 if a claim cannot be allocated or is rejected.

    With --cluster, the claims of the cluster keep their devices, and the claims of the PATHs are allocated; without
    claims in PATHs, those of the cluster.
    """
    given.check(*slice_paths, *claim_paths)
    read = given.read(_KINDS, *slice_paths, *claim_paths)
    read.chosen = kubernetes
    slices, planning = node_slices.published(read)
    if not slices:
        raise read.missing(ResourceSlice.__name__)
    slices += node_slices.of_networks(read, slices)
    claims, holding = _claims(read)
    classes = list(known_classes(read.of(NetworkTopology), node_slices.classes(read)).values())
    known = {node.name: node for node in map(scheduler_node, read.nodes())}
    recorded = {node.name: node for node in map(node_slices.recorded_node, read.inventories())}
    allocator = Allocator(
        slices,
        classes,
        allocated=(*claims, *holding),
        nodes=_nodes(slices, known, recorded, _checked(nodes, slices, known)),
        admin_namespaces=admin_namespaces,
        version=read.scheduler,
    )
    problems = (*read.misread(), *planning, *_refused_slices(slices), *_unlabelled(slices, known or recorded))
    rejections = _rejections(read)
    outcomes = tuple(
        msgspec.structs.replace(outcome, errors=rejections.get(outcome.claim, ()))
        for outcome in _play(allocator, claims, nodes or None)
    )
    refused = sum(outcome.result == "refused" for outcome in outcomes)
    if output == "table":
        _print_table(outcomes, refused)
        _print_left(slices, outcomes)
        for text in (*problems, *(text for outcome in outcomes for text in outcome.warnings)):
            terminal.tell(text)
    else:
        terminal.print_data({"claims": outcomes, "refused": refused, "problems": problems}, output)
    context.exit(1 if refused or any(outcome.errors for outcome in outcomes) else 0)


def _claims(read: objects.InputObjects) -> tuple[list[ResourceClaim], list[ResourceClaim]]:
    """The claims that are allocated, one for each template under the template's name; and others that hold devices.

    Raises:
        InvalidInputError: none exists, or one is there twice.
    """
    written = [claim if isinstance(claim, ResourceClaim) else _claim_of(claim) for claim in read.claims(read.files)]
    _check_once(written)
    there = read.of(ResourceClaim)
    if not written and not there:
        raise read.missing("ResourceClaim or ResourceClaimTemplate")
    keys = set(map(claim_key, written))
    others = [claim for claim in there if claim_key(claim) not in keys]
    return (written, others) if written else (others, [])


def _rejections(read: objects.InputObjects) -> dict[str, tuple[str, ...]]:
    """The errors of the claims and templates of the files, and of their topologies: netdra rejects them on the node."""
    from netdra.review import objects as reviews
    from netdra.review.world import topologies_of_class, world_of

    topologies = {topology.name: topology for topology in read.of(NetworkTopology)}
    written = read.claims(read.files)
    others = (read.of(kind) for kind in (DeviceExposurePolicy, CustomDevice, CNIPluginSchema, PodNetwork, DeviceClass))
    world = world_of(chain(topologies.values(), *others), offline=True)
    found: dict[int, list[str]] = {}
    for value, finding in reviews.errors([*topologies.values(), *written], world):
        found.setdefault(id(value), []).append(finding.text)
    wrong: dict[str, tuple[str, ...]] = {}
    for claim in written:
        wanted = device_claim(claim)[0]
        named = (choice.device_class_name for request in wanted.requests for choice in choices(request))
        classes = (world.classes[name] for name in named if name in world.classes)
        asked = dict.fromkeys(name for each in classes for name in topologies_of_class(each) if name in topologies)
        texts = (text for value in (claim, *map(topologies.__getitem__, asked)) for text in found.get(id(value), ()))
        key = claim_key(claim if isinstance(claim, ResourceClaim) else _claim_of(claim))
        wrong[key] = tuple(dict.fromkeys(texts))
    return wrong


def _check_once(claims: Sequence[ResourceClaim]) -> None:
    seen: set[str] = set()
    for claim in claims:
        if claim_key(claim) in seen:
            raise InvalidInputError(
                f'ResourceClaim "{claim_key(claim)}" occurs twice', hint="use unique names", code="ND4052"
            )
        seen.add(claim_key(claim))


def _claim_of(template: ResourceClaimTemplate) -> ResourceClaim:
    metadata = ObjectMeta(name=template.metadata.name, namespace=template.metadata.namespace)
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def _checked(
    nodes: Sequence[str], slices: Sequence[ResourceSlice], there: Mapping[str, SchedulerNode]
) -> Sequence[str]:
    """The wanted nodes; one that nothing names makes sense only if a slice is not for one node and no Node is there."""
    named_in_slices = {resource_slice.spec.node_name for resource_slice in slices}
    known = there.keys() if there else named_in_slices
    for node in nodes:
        if node not in known and (there or None not in named_in_slices):
            listed = ", ".join(sorted(name for name in known if name)[:20])
            what = f'--node "{node}": {"no Node has this name" if there else "no slice is for it"}'
            raise InvalidInputError(what, hint=f"the nodes are {listed}", code="ND4053")
    return nodes


def _nodes(
    slices: Sequence[ResourceSlice],
    there: Mapping[str, SchedulerNode],
    recorded: Mapping[str, SchedulerNode],
    wanted: Sequence[str],
) -> list[SchedulerNode]:
    """The nodes in the order of their names: the Nodes of the input, or else those that slices and options name.

    Args:
        recorded: the nodes of inventories, whose labels are known.

    Raises:
        InvalidInputError: none exists.
    """
    if there:
        return [there[name] for name in sorted(there)]
    called = sorted({one.spec.node_name for one in slices if one.spec.node_name} | {*wanted})
    if not called:
        what = "the input does not contain a Node, and no ResourceSlice refers to a node"
        raise InvalidInputError(
            what, hint="add the Nodes (kubectl get nodes -o yaml), or specify one with --node", code="ND4054"
        )
    return [recorded.get(name) or named(name) for name in called]


def _unlabelled(slices: Sequence[ResourceSlice], known: Mapping[str, SchedulerNode]) -> Iterator[str]:
    """The slices that select nodes by labels, where no Node is there that has any."""
    for item in () if known else slices:
        if item.spec.node_selector is not None:
            yield (
                f'ResourceSlice "{item.metadata.name}": its nodeSelector is compared only with the '
                "names of nodes; add the Nodes for their labels (kubectl get nodes -o yaml)"
            )


def _refused_slices(slices: Sequence[ResourceSlice]) -> Iterator[str]:
    for one, finding in faults(slices):
        yield f'ResourceSlice "{one.metadata.name}": rejected by the API server: {finding.text_at_path}'


def _play(allocator: Allocator, claims: Sequence[ResourceClaim], nodes: Sequence[str] | None) -> Iterator[ClaimOutcome]:
    for claim in _watched(claims):
        if claim.status.allocation is not None:
            yield ClaimOutcome(claim=claim_key(claim), result="held", allocation=claim.status.allocation)
            continue
        foreseen = allocator.foresee(claim, nodes=nodes).findings(f'claim "{shown(claim_key(claim))}"')
        warnings = tuple(finding.text for finding in foreseen)
        yield msgspec.structs.replace(_outcome(allocator, claim, nodes), warnings=warnings)


def _outcome(allocator: Allocator, claim: ResourceClaim, nodes: Sequence[str] | None) -> ClaimOutcome:
    answer = allocator.allocate(claim, nodes=nodes)
    if isinstance(answer, Allocation):
        allocation = answer.claims[0].status.allocation
        return ClaimOutcome(claim=claim_key(claim), result="allocated", node=answer.node, allocation=allocation)
    explanation = allocator.explain(claim, nodes=nodes)
    return ClaimOutcome(
        claim=claim_key(claim),
        result="refused",
        reason=answer.reason,
        why=tuple(explanation.lines()),
        nodes=explanation.nodes,
    )


def _watched(claims: Sequence[ResourceClaim]) -> Iterator[ResourceClaim]:
    if not sys.stderr.isatty():
        yield from claims
        return
    with click.progressbar(claims, label="Allocating", file=sys.stderr) as progress:
        yield from progress


def _print_table(outcomes: Sequence[ClaimOutcome], refused: int) -> None:
    terminal.print_table(_COLUMNS, itertools.chain.from_iterable(map(_rows, outcomes)))
    for outcome in outcomes:
        if outcome.result == "refused":
            lines = (f"\n{shown(outcome.claim)} cannot be allocated:", *(f"  {line}" for line in outcome.why))
            click.echo(terminal.printable("\n".join(lines)))
    for outcome in outcomes:
        if outcome.errors and outcome.result != "refused":
            lines = (f"\n{shown(outcome.claim)} is allocated, but rejected on the node:", *outcome.errors)
            click.echo(terminal.printable("\n  ".join(lines)))
    if refused:
        click.echo(f"\n{refused} claim{'s' * (refused != 1)} rejected")


def _print_left(slices: Sequence[ResourceSlice], outcomes: Sequence[ClaimOutcome]) -> None:
    """Print the remaining capacity of shared devices that claims use a part of."""
    consumed: dict[tuple[str, str], dict[str, Decimal]] = {}
    for outcome in outcomes:
        for result in outcome.allocation.devices.results if outcome.allocation else ():
            if result.consumed_capacity and result.driver == names.DRIVER:
                amounts = consumed.setdefault((result.pool, result.device), {})
                for name, amount in result.consumed_capacity.items():
                    key = names.qualified(name)
                    amounts[key] = amounts.get(key, Decimal(0)) + quantity.parse(amount)
    if not consumed:
        return
    ours = newest(one for one in slices if one.spec.driver == names.DRIVER)
    devices = {
        (pool, device.name): device for pool, parts in ours.items() for one in parts for device in one.spec.devices
    }
    rows = []
    for (pool, name), amounts in sorted(consumed.items()):
        device = devices.get((pool, name))
        for capacity, whole in device.capacity.items() if device is not None else ():
            key = names.qualified(capacity)
            if key in amounts:
                total, used = quantity.parse(whole.value), amounts[key]
                texts = map(quantity.render, (used, total - used, total))
                rows.append((name, pool, key.removeprefix(f"{names.DRIVER}/"), *texts))
    click.echo()
    terminal.print_table(_LEFT, rows)


def _rows(outcome: ClaimOutcome) -> Iterator[tuple[str, ...]]:
    """A claim's lines: one a device, its name on the first."""
    for number, result in enumerate(outcome.allocation.devices.results if outcome.allocation else (None,)):
        head = (shown(outcome.claim), outcome.result, outcome.node) if number == 0 else ("", "", "")
        yield (*head, *(_cells(result) if result else ()))


def _cells(result: DeviceRequestAllocationResult) -> tuple[str, str, str, str]:
    consumed = ", ".join(f"{name} {amount}" for name, amount in sorted(result.consumed_capacity.items()))
    return result.request, result.device, result.pool, consumed
