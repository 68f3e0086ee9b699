"""`netdra render`: the configuration of each plugin of a claim's topologies, without running any."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec

from netdra.cli import inputs, node_slices, objects, pod, shared, terminal
from netdra.cni.config import NetworkConfig, request
from netdra.model import documents, names, suggestions
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
from netdra.model.core import ClusterNode
from netdra.model.errors import InvalidInputError, sentence, with_code
from netdra.model.inventory import DEVICE_FILE
from netdra.model.plan import Binding, Plan, PlannedDevice, PlannedStep
from netdra.model.plan import called as of_plan
from netdra.model.pod_network import PodNetwork
from netdra.model.resource import ResourceSlice
from netdra.model.scheduler_version import SchedulerVersion
from netdra.model.topology import NetworkTopology, NeutronRequest
from netdra.rules import network_requests
from netdra.rules.workloads import check, known_objects
from netdra.topology import bind, interfaces, references
from netdra.topology.classes import class_name, device_classes, parameters
from netdra.topology.devices import DeviceKey, from_slices
from netdra.topology.surroundings import Surroundings

NEWEST_CNI = "1.1.0"
_KINDS = (NetworkTopology, DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice, ClusterNode, PodNetwork)
"""What is read of the cluster."""
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
@objects.options()
@shared.option(
    "--claim",
    "PATH",
    "An additional PATH whose claims and claim templates are rendered, as those of one pod in this order.",
    "claim_paths",
    multiple=True,
)
@shared.option(
    "--pod",
    "PATH",
    "An additional PATH with a Pod, Deployment, StatefulSet, DaemonSet or Job: its claims are rendered in its order.",
    "pod_path",
)
@objects.slices
@objects.kubernetes_version()
@shared.output("table", "json", "yaml", "plan")
@click.option(
    "--classes", is_flag=True, help="Print the DeviceClasses that the controller will create, in YAML or JSON."
)
@click.option(
    "--template",
    is_flag=True,
    help="Print a ResourceClaimTemplate for each topology, with requests for addresses of PodNetworks.",
)
def command(
    given: objects.InputOptions,
    claim_paths: tuple[str, ...],
    pod_path: str | None,
    slice_paths: tuple[str, ...],
    kubernetes: SchedulerVersion | None,
    output: str,
    classes: bool,
    template: bool,
) -> None:
    """Show the configuration for each step's plugin, in the order of the steps.

    PATHs are files, directories, or "-", with any of these objects: NetworkTopologies, DeviceClasses, claims and
    templates, pods, and ResourceSlices, or policies and an inventory from which slices are planned. Other kinds are
    ignored.

    --claim and --pod select the claims. Without them, every topology is shown alone, or, without topologies, every
    claim. A claim without an allocation is allocated from the slices; without slices its devices are not filled in.
    `netdra attach --plan` reads the format `--output plan`.

    With a pod, references are replaced by values that are known before any step runs: interface names, static addresses
    and, with slices, PCI addresses. Facts of devices, nodes and pods are replaced if slices, Nodes and the pod are in
    the input.
    """
    given.check(pod_path, *claim_paths, *slice_paths)
    read = given.read(_KINDS, *slice_paths, *claim_paths, pod_path)
    read.chosen = kubernetes
    if classes:
        _print_classes(read.require(NetworkTopology), output)
        return
    if template:
        made = map(network_requests.template, read.require(NetworkTopology))
        terminal.print_objects(list(made), "json" if output == "json" else "yaml")
        return
    bound, listed = _choose(read, claim_paths, pod_path)
    if not bound.plans:
        of_topologies = suggestions.listed(
            class_name(topology.name, step.name)
            for topology in read.of(NetworkTopology)
            for step in topology.spec.steps
            if step.is_root
        )
        hint = f"request their DeviceClasses as `netdra render --template` prints: {of_topologies}"
        raise InvalidInputError(
            "no claim requests a device of these topologies",
            hint=hint if of_topologies else "add a PATH with the NetworkTopology",
            code="ND4045",
        )
    _print(bound, listed, output)


def _choose(
    read: objects.InputObjects, claim_paths: Sequence[str], pod_path: str | None
) -> tuple[Binding, Sequence[pod.ShownClaim]]:
    """The plans of the claims that options choose, or of all topologies, or of all claims; and the pod's claims."""
    if pod_path is not None:
        shown = pod.read(read, pod_path)
        listed = pod.claims(shown, read.claims())
        if shown.workload is not None:
            known = known_objects([*read.of(NetworkTopology), *node_slices.classes(read), *read.claims()])
            for wrong in check(shown.workload, known):
                terminal.tell(wrong.finding.text)
        claims = list({id(entry.claim): entry.claim for entry in listed}.values())
        return _bound(read, [claims], of_pod=True, pod_name=shown.certain_name), listed
    if claim_paths:
        return _bound(read, [_claims(read, claim_paths)]), ()
    if topologies := read.of(NetworkTopology):
        return Binding(plans=tuple(map(bind.unbound, topologies))), ()
    if not (claims := [_claim_of(item) for item in read.claims()]):
        raise read.missing("NetworkTopology or claim")
    return _bound(read, [[claim] for claim in claims], alone=True), ()


def _print(bound: Binding, listed: Sequence[pod.ShownClaim], output: str) -> None:
    """The plans, in one of the forms of `--output`; with a pod, known values are put in place of references."""
    called = {entry.claim.reference: entry.name for entry in reversed(listed)}
    for text in dict.fromkeys(_unchosen(bound)):
        terminal.tell(text)
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
        _print_unknown(list(dict.fromkeys(text for entry in rendered for text in entry.unknown)))


def _unchosen(bound: Binding) -> Iterator[str]:
    """Remarks on devices of several VFs, of which the node will select one."""
    for plan in bound.plans:
        for step in plan.steps:
            if step.device is not None and step.device.is_unchosen:
                yield (
                    f'{of_plan(plan.topology, step.name)}: device "{step.device.device}" represents several VFs; '
                    "the node selects one of them when it prepares the claim, and its name and PCI address are not "
                    "known before"
                )


def _print_unknown(left: Sequence[str]) -> None:
    of_facts = [text for text in left if any(map(_is_fact, references.parse(text)))]
    if of_results := [text for text in left if text not in of_facts]:
        click.echo(f"\nKnown only after the steps have run: {', '.join(of_results)}")
    if of_facts:
        click.echo(f"\nKnown only when the node prepares the claim: {', '.join(of_facts)}")


def _is_fact(part: str | references.Reference) -> bool:
    return not isinstance(part, str) and part.fact is not None


def _print_claims(listed: Sequence[pod.ShownClaim], bound: Binding) -> None:
    rows = []
    for entry in listed:
        steps = [step for plan in bound.plans if plan.claim == entry.claim.reference for step in plan.steps]
        brought = list(dict.fromkeys(step.if_name for step in steps if _has_interface(step)))
        idle = [plain.device.device for plain in bound.plain if plain.claim == entry.claim.reference]
        what = [*brought, *(f"{name} (no step)" for name in idle)]
        rows.append((entry.name, entry.origin, ", ".join(what) or "-"))
    terminal.print_table(("CLAIM", "OBJECT", "INTERFACES"), rows)
    click.echo()


def _has_interface(step: PlannedStep) -> bool:
    """Whether a step makes or changes an interface; after another step, `rdma` adds an RDMA device alone."""
    return step.type not in _WITHOUT_INTERFACE and (step.is_root or step.type != "rdma")


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
    read: objects.InputObjects,
    pods: Sequence[Sequence[ResourceClaim]],
    *,
    of_pod: bool = False,
    alone: bool = False,
    pod_name: str = "",
) -> Binding:
    """The plans of the claims of pods.

    Args:
        read: the input.
        pods: the claims of each pod.
        of_pod: whether a pod's claims may be other drivers', whose classes are not known here.
        alone: whether each pod is shown as if it were the only one; the devices of one that does not fit are left open.
        pod_name: the name of the pod, "" if it is not known.
    """
    topologies = {topology.name: topology for topology in read.of(NetworkTopology)}
    classes = {name: entry for topology in topologies.values() for name, entry in _made(topology)}
    classes |= {device_class.metadata.name: device_class for device_class in node_slices.classes(read)}
    slices, problems = node_slices.published(read)
    slices += node_slices.of_networks(read, slices) if slices else []
    for text in problems:
        terminal.tell(text)
    _tell_missing_classes([claim for claims in pods for claim in claims], classes)
    bound = []
    for claims in pods:
        allotted = _allotted(read, claims, classes, slices, of_pod=of_pod, alone=alone)
        final = [allotted.get(id(claim), claim) for claim in claims]
        devices = _unknown(final) | (from_slices(slices) if slices else {})
        place = _place(read, final, slices, pod_name)
        bound.append(bind.bind(final, topologies, devices, place=place))
    return Binding(
        plans=tuple(plan for binding in bound for plan in binding.plans),
        plain=tuple(plain for binding in bound for plain in binding.plain),
    )


def _place(
    read: objects.InputObjects, claims: Sequence[ResourceClaim], slices: Sequence[ResourceSlice], pod_name: str
) -> Surroundings:
    """The node that a pod's claims are allocated on, as far as it is known, and the pod."""
    allocations = (claim.status.allocation for claim in claims)
    pools = {result.pool for entry in allocations if entry is not None for result in entry.devices.results}
    node = next((entry.spec.node_name for entry in slices if entry.spec.pool.name in pools), None) or ""
    known = {entry.node.name: entry.node.labels for entry in read.inventories() if entry.node.labels}
    known |= {entry.metadata.name: entry.metadata.labels for entry in read.nodes()}
    reserved = any(claim.status.reserved_for for claim in claims)
    pods = (pod_name,) if pod_name else None if reserved else ()
    return Surroundings(node=node, labels=known.get(node), slices=slices, pods=pods, is_partial=True)


def _made(topology: NetworkTopology) -> Iterator[tuple[str, DeviceClass]]:
    return ((device_class.metadata.name, device_class) for device_class in device_classes(topology))


def _allotted(
    read: objects.InputObjects,
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    slices: Sequence[ResourceSlice],
    *,
    of_pod: bool,
    alone: bool,
) -> dict[int, ResourceClaim]:
    """A pod's claims without an allocation, by their ids, as they would be allocated; without slices left open.

    Raises:
        InvalidInputError: the claims do not fit, and are not shown alone.
    """
    waiting = [claim for claim in claims if claim.status.allocation is None]
    open_ = {id(claim): _imagined(claim, classes) for claim in waiting} if of_pod or alone or not slices else {}
    ours = [claim for claim in waiting if not (of_pod or alone) or _classes_of(claim) & classes.keys()]
    if not (slices and ours):
        return open_
    try:
        done = _allocated(read, ours, claims, list(classes.values()), slices)
    except InvalidInputError as problem:
        if not alone:
            raise
        terminal.tell(with_code(sentence(f"{problem.what}; its devices are not filled in", problem.hint), problem.code))
        return open_
    return open_ | {id(before): after for before, after in zip(ours, done, strict=True)}


def _tell_missing_classes(claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass]) -> None:
    """Report on stderr the classes of requests that are not in the input.

    Raises:
        InvalidInputError: none of the claims' classes is there.
    """
    waiting = [claim for claim in claims if claim.status.allocation is None]
    wanted = {name: claim for claim in waiting for name in _classes_of(claim)}
    texts = [
        f'claim "{_called(claim)}": DeviceClass "{name}" is not in the input'
        for name, claim in sorted(wanted.items())
        if name not in classes
    ]
    hint = "add a PATH with the DeviceClass or its NetworkTopology, or use --cluster"
    if texts and len(texts) == len(wanted) and len(waiting) == len(claims):
        raise InvalidInputError("\n".join(texts), hint=hint, code="ND4046")
    for text in texts:
        terminal.tell(sentence(text, hint))


def _called(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}".lstrip("/")


def _claims(read: objects.InputObjects, paths: Sequence[str]) -> list[ResourceClaim]:
    claims = read.claims(inputs.identities(paths))
    if not claims:
        raise read.missing("ResourceClaim or ResourceClaimTemplate", *paths)
    return [_claim_of(item) for item in claims]


def _claim_of(item: ResourceClaim | ResourceClaimTemplate) -> ResourceClaim:
    """A claim, or that of a template as for the first pod of a StatefulSet."""
    if isinstance(item, ResourceClaim):
        return item
    return pod.of_template(item, f"{item.metadata.name}-0", item.metadata.name)


def _classes_of(claim: ResourceClaim) -> set[str]:
    wishes = claim.spec.devices.requests
    exact = {wish.exactly.device_class_name for wish in wishes if wish.exactly is not None}
    return exact | {choice.device_class_name for wish in wishes for choice in wish.first_available}


def _allocated(
    read: objects.InputObjects,
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

    held = [*claims, *objects.others(read.of(ResourceClaim), claims)]
    nodes = node_slices.scheduler_nodes(read, slices)
    answer = Allocator(slices, classes, allocated=held, nodes=nodes, version=read.scheduler).allocate(*waiting)
    if not isinstance(answer, Allocation):
        raise InvalidInputError(
            answer.reason, hint="find the reason with netdra simulate and the same PATHs", code="ND4047"
        )
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
            what = f"claim {shown(claim_key(claim))} requests at least {least} devices; the limit is {MAX_RESULTS}"
            raise InvalidInputError(
                what, hint="request fewer devices, or divide them among several claims", code="ND4048"
            )
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
    # After another step, `rdma` has a name for its result, but no interface.
    on = "" if call.type == "rdma" and call.prev_result_of else f" on {call.interface}"
    lines = [f"{call.step}: {call.type} ({call.execution.lower()}){on}{where}"]
    if device is not None:
        addresses = ", ".join(part for part in (device.if_name, device.pci_address) if part)
        if device.is_unchosen:
            addresses = "(one of its VFs, selected by the node when it prepares the claim)"
        lines.append(
            f"  device {device.device}" + (f" of pool {device.pool}" if device.pool else "") + f" {addresses}".rstrip()
        )
        if device.pooled and not device.pci_address:
            lines.append("  the node selects one of its VFs at Prepare")
    if call.prev_result_of:
        lines.append(f"  prevResult of {', '.join(call.prev_result_of)}")
    if call.neutron is not None:
        by_physnet = "of the network for the device's physnet"
        asked = documents.plain(call.neutron)
        asked.pop("assignAddresses", None)
        wanted = ", ".join(
            f"{key} {value if isinstance(value, str) else ' '.join(value) or 'none'}" for key, value in asked.items()
        )
        lines.append(f"  Neutron port: {wanted or by_physnet}")
        lines.append(f"  from the port at Prepare: {', '.join(call.from_neutron)}")
    config = msgspec.json.format(msgspec.json.encode(call.stdin)).decode()
    return "\n".join([*lines, *(f"  {line}" for line in config.splitlines())])
