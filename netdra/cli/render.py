"""`netdra render`: what each plugin of a claim's topologies will be given, without running any."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec

from netdra.cli import inputs
from netdra.cni.config import NetworkConfig, request
from netdra.model import documents, names
from netdra.model.claim import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
)
from netdra.model.documents import Document
from netdra.model.errors import InvalidInputError
from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.plan import Plan, PlannedDevice, PlannedStep
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.topology import bind
from netdra.topology.classes import device_classes, parameters
from netdra.topology.devices import DeviceKey, from_slices

NEWEST_CNI = "1.1.0"
_FIRST = ("cniVersion", "name", "type")


class Rendered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One step's call, as it is printed in JSON and YAML.

    Attributes:
        claim: `<namespace>/<name>` of the claim, or "" where there is none.
        interface: CNI_IFNAME.
        execution: `Builtin` or `Binary`.
        device: the allocated device of a root step.
        prev_result_of: the steps whose merged results are the `prevResult`.
        stdin: the plugin's configuration but for `prevResult`; references are resolved when those steps have run.
    """

    topology: str
    claim: str = ""
    step: str
    type: str
    execution: str
    interface: str
    device: PlannedDevice | None = None
    prev_result_of: tuple[str, ...] = ()
    stdin: Mapping[str, Any] = {}


@click.command(name="render")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--claim",
    "claim_paths",
    metavar="PATH",
    multiple=True,
    help="The claims, or claim templates, of one pod in its order; several times for several files.",
)
@click.option(
    "--slices",
    "slice_paths",
    metavar="PATH",
    multiple=True,
    help="ResourceSlices: claims that are not allocated are allocated from them, and devices are shown as they are.",
)
@click.option(
    "--output", "-o", type=click.Choice(["table", "json", "yaml", "plan"]), default="table", show_default=True
)
@click.option("--classes", is_flag=True, help="Show the DeviceClasses that the controller will make, in YAML or JSON.")
def command(
    paths: tuple[str, ...], claim_paths: tuple[str, ...], slice_paths: tuple[str, ...], output: str, classes: bool
) -> None:
    """Show the configuration that each step's plugin will read, in the order in which the steps run.

    Without a claim every topology in the files is shown by itself. A claim without an allocation is allocated from the
    slices; without slices too its devices are left open. `--output plan` is what `netdra attach --plan` takes.
    """
    objects = inputs.everything(paths)
    topologies = {each.name: each for each in objects if isinstance(each, NetworkTopology)}
    if not topologies:
        raise InvalidInputError(f"{inputs.sources(paths)}: no NetworkTopology", hint=inputs.holding(objects))
    if classes:
        _print_classes(topologies.values(), output)
        return
    if claim_paths:
        plans = _bound(topologies, [*objects, *inputs.everything(claim_paths)], claim_paths, slice_paths)
    else:
        plans = tuple(bind.unbound(topology) for topology in topologies.values())
    if not plans:
        raise InvalidInputError("no claim requests a device of these topologies", hint="see why: netdra validate")
    if output == "plan":
        click.echo(msgspec.json.format(msgspec.json.encode(plans)))
        return
    rendered = [_rendered(plan, step) for plan in plans for step in plan.steps]
    if output == "table":
        click.echo("\n\n".join(_lines(each) for each in rendered))
    elif output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(rendered)))
    else:
        click.echo(documents.to_yaml(rendered), nl=False)


def _print_classes(topologies: Iterable[NetworkTopology], output: str) -> None:
    made = [documents.plain(each) for topology in topologies for each in device_classes(topology)]
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(made)))
    else:
        click.echo("---\n".join(map(documents.to_yaml, made)), nl=False)


def _bound(
    topologies: Mapping[str, NetworkTopology],
    objects: Sequence[Document],
    claim_paths: tuple[str, ...],
    slice_paths: tuple[str, ...],
) -> tuple[Plan, ...]:
    """The plans of the claims among the objects."""
    claims = list(_claims(objects, claim_paths))
    made = (each for topology in topologies.values() for each in device_classes(topology))
    classes = {each.metadata.name: each for each in made}
    classes |= {each.metadata.name: each for each in objects if isinstance(each, DeviceClass)}
    slices = inputs.objects(slice_paths, ResourceSlice) if slice_paths else []
    devices = from_slices(slices)
    waiting = [claim for claim in claims if claim.status.allocation is None]
    allotted: dict[int, ResourceClaim] = {}
    if waiting and slices:
        done = _allocated(waiting, claims, list(classes.values()), slices)
        allotted = {id(before): after for before, after in zip(waiting, done, strict=True)}
    elif waiting:
        allotted = {id(claim): _imagined(claim, classes) for claim in waiting}
    final = [allotted.get(id(claim), claim) for claim in claims]
    if not slices:
        devices = _unknown(final)
    return bind.bind(final, topologies, devices).plans


def _claims(objects: Sequence[Document], paths: Sequence[str]) -> Iterator[ResourceClaim]:
    found = False
    for each in objects:
        if isinstance(each, ResourceClaim):
            found = True
            yield each
        elif isinstance(each, ResourceClaimTemplate):
            found = True
            # Of a StatefulSet's pods the first one's is shown.
            pod = OwnerReference(api_version="v1", kind="Pod", name=f"{each.metadata.name}-0", uid="", controller=True)
            metadata = ObjectMeta(name=each.metadata.name, namespace=each.metadata.namespace, owner_references=(pod,))
            yield ResourceClaim(metadata=metadata, spec=each.spec.spec)
    if not found:
        what = f"{inputs.sources(paths)}: no ResourceClaim and no ResourceClaimTemplate"
        raise InvalidInputError(what, hint=inputs.holding(objects))


def _allocated(
    waiting: Sequence[ResourceClaim],
    claims: Sequence[ResourceClaim],
    classes: Sequence[DeviceClass],
    slices: Sequence[ResourceSlice],
) -> tuple[ResourceClaim, ...]:
    """The claims with what the scheduler would give them together.

    Raises:
        InvalidInputError: they do not fit.
    """
    from netdra.slices.allocator import Allocation, Allocator

    answer = Allocator(slices, classes, allocated=claims).allocate(*waiting)
    if not isinstance(answer, Allocation):
        raise InvalidInputError(answer.reason, hint="see why: netdra simulate")
    return answer.claims


def _imagined(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> ResourceClaim:
    """The claim as if each request for one of the topologies had got what it asks for, the first choice of several."""
    results: list[DeviceRequestAllocationResult] = []
    configs: list[DeviceAllocationConfiguration] = []
    for wish in claim.spec.devices.requests:
        choice = wish.exactly or next(iter(wish.first_available), None)
        found = classes.get(choice.device_class_name) if choice is not None else None
        if choice is None or found is None:
            continue
        meant = [each.opaque for each in found.spec.config if parameters(each.opaque, found.metadata.name) is not None]
        called = wish.name if wish.exactly is not None else f"{wish.name}/{wish.first_available[0].name}"
        configs += [
            DeviceAllocationConfiguration(source="FromClass", requests=(called,), opaque=each) for each in meant
        ]
        results += [
            DeviceRequestAllocationResult(request=called, driver=names.DRIVER, pool="", device=f"{called}-{number}")
            for number in range(max(choice.count, 1) if meant else 0)
        ]
    own = claim.spec.devices.config
    configs += [
        DeviceAllocationConfiguration(source="FromClaim", requests=each.requests, opaque=each.opaque) for each in own
    ]
    devices = DeviceAllocationResult(results=tuple(results), config=tuple(configs))
    status = ResourceClaimStatus(allocation=AllocationResult(devices=devices))
    return msgspec.structs.replace(claim, status=status)


def _unknown(claims: Sequence[ResourceClaim]) -> dict[DeviceKey, PlannedDevice]:
    """The claims' devices, of which nothing but the names is known."""
    allocations = (claim.status.allocation for claim in claims)
    results = itertools.chain.from_iterable(each.devices.results for each in allocations if each is not None)
    return {(each.pool, each.device): PlannedDevice(request="", pool=each.pool, device=each.device) for each in results}


def _rendered(plan: Plan, step: PlannedStep) -> Rendered:
    config = NetworkConfig(
        network=step.network,
        type=step.type,
        config=step.config,
        device_id=step.device.pci_address if step.device is not None else "",
    )
    whole = request(config, NEWEST_CNI, None)
    return Rendered(
        topology=plan.topology,
        claim=f"{plan.claim.namespace}/{plan.claim.name}".strip("/"),
        step=step.name,
        type=step.type,
        execution=step.execution,
        interface=step.if_name,
        device=step.device,
        prev_result_of=step.depend_on,
        stdin={key: whole[key] for key in _FIRST} | whole,
    )


def _lines(call: Rendered) -> str:
    device = call.device
    where = f"  # {call.topology}, claim {call.claim}" if call.claim else f"  # {call.topology}"
    lines = [f"{call.step}: {call.type} ({call.execution.lower()}) on {call.interface}{where}"]
    if device is not None:
        known = ", ".join(part for part in (device.if_name, device.pci_address) if part)
        lines.append(
            f"  device {device.device}" + (f" of pool {device.pool}" if device.pool else "") + f" {known}".rstrip()
        )
    if call.prev_result_of:
        lines.append(f"  prevResult of {', '.join(call.prev_result_of)}")
    config = msgspec.json.format(msgspec.json.encode(call.stdin)).decode()
    return "\n".join([*lines, *(f"  {line}" for line in config.splitlines())])
