"""`netdra render`: the configuration of each plugin of a claim's topologies, without running any."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec

from netdra.cli import inputs, pod, shared, terminal
from netdra.cni.config import NetworkConfig, request
from netdra.model import documents, names
from netdra.model.claim import (
    MAX_RESULTS,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClass,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
)
from netdra.model.documents import Document
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import DEVICE_FILE
from netdra.model.plan import Binding, Plan, PlannedDevice, PlannedStep
from netdra.model.plan import called as of_plan
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology, NeutronRequest
from netdra.rules.workloads import check, known_objects
from netdra.topology import bind, interfaces, references
from netdra.topology.classes import device_classes, parameters
from netdra.topology.devices import DeviceKey, from_slices

NEWEST_CNI = "1.1.0"
_WITHOUT_INTERFACE = frozenset({"vfio-pci", DEVICE_FILE})
_OF_PORTS = ("mac", "vlan", "mtu", "spoofchk", "trust", "linkState", "minTxRate", "maxTxRate")
_FIRST = ("cniVersion", "name", "type")


class Rendered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One step's call, as it is printed in JSON and YAML.

    Attributes:
        claim: `<namespace>/<name>` of the claim, or "" without a claim.
        interface: CNI_IFNAME.
        execution: `Builtin` or `Binary`.
        device: the allocated device of a root step.
        prev_result_of: the steps whose merged results are the `prevResult`.
        stdin: the plugin's configuration but for `prevResult`; references are resolved when those steps have run.
        pod_claim: the claim's name in the pod that is shown.
        unknown: with a pod that is shown, the references whose values are known only when the steps have run.
        neutron: the request to Neutron for the device's port.
        from_neutron: the settings of that port that the step gets at Prepare, beside `stdin`.
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
    pod_claim: str = ""
    unknown: tuple[str, ...] = ()
    neutron: NeutronRequest | None = None
    from_neutron: tuple[str, ...] = ()


@click.command(name="render")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@shared.option(
    "--claim",
    "PATH",
    "The claims, or claim templates, of one pod in its order; several times for several files.",
    "claim_paths",
    multiple=True,
)
@shared.option(
    "--pod",
    "PATH",
    "A Pod, Deployment, StatefulSet, DaemonSet or Job: show its claims, in its order, with all that is known.",
    "pod_path",
)
@shared.option(
    "--slices",
    "PATH",
    "ResourceSlices: claims that are not allocated are allocated from them, and devices are shown as they are.",
    "slice_paths",
    multiple=True,
)
@shared.output("table", "json", "yaml", "plan")
@click.option("--classes", is_flag=True, help="Show the DeviceClasses that the controller will make, in YAML or JSON.")
def command(
    paths: tuple[str, ...],
    claim_paths: tuple[str, ...],
    pod_path: str | None,
    slice_paths: tuple[str, ...],
    output: str,
    classes: bool,
) -> None:
    """Show the configuration that each step's plugin will read, in the order in which the steps run.

    Without a claim every topology in the files is shown by itself. A claim without an allocation is allocated from the
    slices; without slices too its devices are left open. `--output plan` is what `netdra attach --plan` takes.

    With a pod, references are replaced by their values where these are known before anything runs: interface names and
    static addresses, with slices PCI addresses.
    """
    inputs.check_stdin(pod_path, *slice_paths, *pod.once([*paths, *claim_paths]))
    shown: pod.ShownPod | None = None
    if pod_path is not None:
        shown, objects = pod.read(pod_path, [*paths, *claim_paths])
    else:
        objects = inputs.everything(pod.once([*paths, *claim_paths]))
    topologies = {topology.name: topology for topology in objects if isinstance(topology, NetworkTopology)}
    if not topologies:
        raise inputs.missing(NetworkTopology.__name__, paths, objects)
    if classes:
        _print_classes(topologies.values(), output)
        return
    listed = pod.claims(shown, objects) if shown is not None else []
    if shown is not None and shown.workload is not None:
        for wrong in check(shown.workload, known_objects(objects)):
            terminal.tell(wrong.finding.text)
    if listed:
        claims = list({id(entry.claim): entry.claim for entry in listed}.values())
        bound = _bound(topologies, objects, claims, slice_paths, of_pod=True)
    elif claim_paths:
        bound = _bound(topologies, objects, list(_claims(objects, claim_paths)), slice_paths)
    else:
        bound = Binding(plans=tuple(bind.unbound(topology) for topology in topologies.values()))
    if not bound.plans:
        raise InvalidInputError("no claim requests a device of these topologies", hint="see why: netdra validate")
    _print(bound, listed, output)


def _print(bound: Binding, listed: Sequence[pod.ShownClaim], output: str) -> None:
    """The plans, in one of the forms of `--output`; with a pod, known values are put in place of references."""
    called = {entry.claim.reference: entry.name for entry in reversed(listed)}
    for plan in bound.plans:
        for step in plan.steps:
            if step.device is not None and step.device.is_unchosen:
                terminal.tell(
                    f'{of_plan(plan.topology, step.name)}: device "{step.device.device}" stands for several VFs: the '
                    "node chooses one when it prepares the claim, and its name and PCI address are not known before"
                )
    if output == "plan":
        terminal.print_data(bound.plans, "json")
        return
    rendered = [
        _foreseen(plan, step, called[plan.claim]) if listed else _rendered(plan, step)
        for plan in bound.plans
        for step in plan.steps
    ]
    if output in ("json", "yaml"):
        terminal.print_data(rendered, output, apart=True)
    else:
        if listed:
            _print_claims(listed, bound)
        click.echo("\n\n".join(_lines(entry) for entry in rendered))
        if left := list(dict.fromkeys(text for entry in rendered for text in entry.unknown)):
            click.echo(f"\nKnown only when the steps have run: {', '.join(left)}")


def _print_claims(listed: Sequence[pod.ShownClaim], bound: Binding) -> None:
    rows = []
    for entry in listed:
        steps = [step for plan in bound.plans if plan.claim == entry.claim.reference for step in plan.steps]
        brought = list(dict.fromkeys(step.if_name for step in steps if step.type not in _WITHOUT_INTERFACE))
        idle = [plain.device.device for plain in bound.plain if plain.claim == entry.claim.reference]
        what = [*brought, *(f"{name} (no step)" for name in idle)]
        rows.append((entry.name, entry.origin, ", ".join(what) or "-"))
    terminal.print_table(("CLAIM", "OBJECT", "INTERFACES"), rows)
    click.echo()


def _foreseen(plan: Plan, step: PlannedStep, called: str) -> Rendered:
    """A step's call, with known values in the place of references."""
    config = references.put(step.config, interfaces.foreseen(plan.steps))
    left = dict.fromkeys(str(reference) for _, reference in references.find(config))
    call = _rendered(plan, msgspec.structs.replace(step, config=config))
    return msgspec.structs.replace(call, pod_claim=called, unknown=tuple(left))


def _print_classes(topologies: Iterable[NetworkTopology], output: str) -> None:
    made = [device_class for topology in topologies for device_class in device_classes(topology)]
    terminal.print_objects(made, "json" if output == "json" else "yaml")


def _bound(
    topologies: Mapping[str, NetworkTopology],
    objects: Sequence[Document],
    claims: Sequence[ResourceClaim],
    slice_paths: tuple[str, ...],
    *,
    of_pod: bool = False,
) -> Binding:
    """The plans of claims. A pod's claims may be other drivers', whose classes are not known here."""
    made = (device_class for topology in topologies.values() for device_class in device_classes(topology))
    classes = {entry.metadata.name: entry for entry in made}
    classes |= {
        device_class.metadata.name: device_class for device_class in objects if isinstance(device_class, DeviceClass)
    }
    slices = inputs.objects(slice_paths, ResourceSlice) if slice_paths else []
    devices = from_slices(slices)
    waiting = [claim for claim in claims if claim.status.allocation is None]
    allotted: dict[int, ResourceClaim] = {}
    if slices:
        ours = [claim for claim in waiting if not of_pod or _classes_of(claim) & classes.keys()]
        done = _allocated(ours, claims, list(classes.values()), slices) if ours else ()
        allotted = {id(before): after for before, after in zip(ours, done, strict=True)}
    if of_pod or not slices:
        allotted = {id(claim): _imagined(claim, classes) for claim in waiting} | allotted
    final = [allotted.get(id(claim), claim) for claim in claims]
    if not slices:
        devices = _unknown(final)
    return bind.bind(final, topologies, devices)


def _claims(objects: Sequence[Document], paths: Sequence[str]) -> Iterator[ResourceClaim]:
    claims = [item for item in objects if isinstance(item, ResourceClaim | ResourceClaimTemplate)]
    for item in claims:
        if isinstance(item, ResourceClaim):
            yield item
        else:  # as for the first pod of a StatefulSet
            yield pod.of_template(item, f"{item.metadata.name}-0", item.metadata.name)
    if not claims:
        raise inputs.missing("ResourceClaim and no ResourceClaimTemplate", paths, objects)


def _classes_of(claim: ResourceClaim) -> set[str]:
    wishes = claim.spec.devices.requests
    exact = {wish.exactly.device_class_name for wish in wishes if wish.exactly is not None}
    return exact | {choice.device_class_name for wish in wishes for choice in wish.first_available}


def _allocated(
    waiting: Sequence[ResourceClaim],
    claims: Sequence[ResourceClaim],
    classes: Sequence[DeviceClass],
    slices: Sequence[ResourceSlice],
) -> tuple[ResourceClaim, ...]:
    """The claims as the scheduler would allocate them together.

    Raises:
        InvalidInputError: the claims do not fit.
    """
    from netdra.slices.allocator import Allocation, Allocator

    answer = Allocator(slices, classes, allocated=claims).allocate(*waiting)
    if not isinstance(answer, Allocation):
        raise InvalidInputError(answer.reason, hint="see why: netdra simulate")
    return answer.claims


def _imagined(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> ResourceClaim:
    """The claim as if each request for one of the topologies had its devices, of several choices the first that fits.

    Raises:
        InvalidInputError: the claim asks for more devices than the API allows.
    """
    results: list[DeviceRequestAllocationResult] = []
    configs: list[DeviceAllocationConfiguration] = []
    for wish, choice in _choices(claim):
        device_class = classes.get(choice.device_class_name)
        if device_class is None:
            continue
        meant = [
            config.opaque
            for config in device_class.spec.config
            if parameters(config.opaque, device_class.metadata.name) is not None
        ]
        called = f"{wish.name}/{choice.name}" if isinstance(choice, DeviceSubRequest) else wish.name
        configs += [
            DeviceAllocationConfiguration(source="FromClass", requests=(called,), opaque=entry) for entry in meant
        ]
        results += [
            DeviceRequestAllocationResult(request=called, driver=names.DRIVER, pool="", device=f"{called}-{number}")
            for number in range(_count(choice) if meant else 0)
        ]
    own = claim.spec.devices.config
    configs += [
        DeviceAllocationConfiguration(source="FromClaim", requests=entry.requests, opaque=entry.opaque) for entry in own
    ]
    devices = DeviceAllocationResult(results=tuple(results), config=tuple(configs))
    status = ResourceClaimStatus(allocation=AllocationResult(devices=devices))
    return msgspec.structs.replace(claim, status=status)


def _choices(claim: ResourceClaim) -> Iterator[tuple[DeviceRequest, ExactDeviceRequest | DeviceSubRequest]]:
    """Each request with its choice: the first one that leaves room for the least that the other requests ask for.

    Raises:
        InvalidInputError: the claim asks for more devices than an allocation can hold.
    """
    from netdra.slices.allocator.wishes import claim_key, shown

    wishes = [
        (wish, (wish.exactly,) if wish.exactly is not None else wish.first_available)
        for wish in claim.spec.devices.requests
    ]
    least = 0
    for _, choices in wishes:
        least += min(map(_count, choices), default=0)
        if least > MAX_RESULTS:
            what = f"claim {shown(claim_key(claim))} asks for {least} devices or more, the limit is {MAX_RESULTS}"
            raise InvalidInputError(what, hint="ask for fewer, or divide them among several claims")
    room = MAX_RESULTS - least
    for wish, choices in wishes:
        if choices:
            smallest = min(map(_count, choices))
            choice = next(choice for choice in choices if _count(choice) - smallest <= room)
            room -= _count(choice) - smallest
            yield wish, choice


def _count(choice: ExactDeviceRequest | DeviceSubRequest) -> int:
    """The devices of a request; of "All", whose number is not known, one."""
    return max(choice.count, 1)


def _unknown(claims: Sequence[ResourceClaim]) -> dict[DeviceKey, PlannedDevice]:
    """The claims' devices, whose names alone are known."""
    allocations = (claim.status.allocation for claim in claims)
    results = itertools.chain.from_iterable(
        allocation.devices.results for allocation in allocations if allocation is not None
    )
    return {
        (result.pool, result.device): PlannedDevice(request="", pool=result.pool, device=result.device)
        for result in results
    }


def _rendered(plan: Plan, step: PlannedStep) -> Rendered:
    config = NetworkConfig(
        network=step.network,
        type=step.type,
        config=step.config,
        device_id=step.device.own_pci_address if step.device is not None else "",
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
        neutron=step.neutron,
        from_neutron=_of_port(step.neutron),
    )


def _of_port(asked: NeutronRequest | None) -> tuple[str, ...]:
    """The settings of its device's port that a step gets."""
    if asked is None:
        return ()
    return (*_OF_PORTS, "addresses", "routes") if asked.assign_addresses else _OF_PORTS


def _lines(call: Rendered) -> str:
    device = call.device
    where = f"  # {call.topology}, claim {call.claim}" if call.claim else f"  # {call.topology}"
    lines = [f"{call.step}: {call.type} ({call.execution.lower()}) on {call.interface}{where}"]
    if device is not None:
        addresses = ", ".join(part for part in (device.if_name, device.pci_address) if part)
        if device.is_unchosen:
            addresses = "(one of its VFs, which the node chooses when it prepares the claim)"
        lines.append(
            f"  device {device.device}" + (f" of pool {device.pool}" if device.pool else "") + f" {addresses}".rstrip()
        )
        if device.pooled and not device.pci_address:
            lines.append("  the node chooses one of its VFs at Prepare")
    if call.prev_result_of:
        lines.append(f"  prevResult of {', '.join(call.prev_result_of)}")
    if call.neutron is not None:
        by_physnet = "of the network that the device's physnet leads to"
        asked = documents.plain(call.neutron)
        asked.pop("assignAddresses", None)
        wanted = ", ".join(
            f"{key} {value if isinstance(value, str) else ' '.join(value) or 'none'}" for key, value in asked.items()
        )
        lines.append(f"  port of Neutron: {wanted or by_physnet}")
        lines.append(f"  from the port at Prepare: {', '.join(call.from_neutron)}")
    config = msgspec.json.format(msgspec.json.encode(call.stdin)).decode()
    return "\n".join([*lines, *(f"  {line}" for line in config.splitlines())])
