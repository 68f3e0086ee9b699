"""`netdra explain`: why an interface is offered or not, policy by policy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
import msgspec

from netdra.cli import devices, inputs, objects, shared, terminal
from netdra.model import names
from netdra.model.core import ClusterNode
from netdra.model.custom_device import CustomDevice
from netdra.model.device import Decision, ExposedCounterSet, ExposedDevice, ExposureResult, PolicyVerdict, Problem
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Interface, Inventory, attributes
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import DeviceFile, Registration, RegistrationOutcome
from netdra.model.suggestions import listed

_VFS = 8
"""How many VFs of a device are named."""

OUTCOMES = {
    "wins": "matches and is used",
    "excludes": "matches and excludes it",
    "outranked": "matches, but another policy has a higher rank",
    "overruled": "matches, but does not apply",
    "no-match": "does not match",
    "other-node": "selects other nodes",
    "failed": "fails on it",
    "invalid": "is invalid",
}


class InterfaceExplanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """All decisions on one interface, as they are printed in JSON and YAML."""

    decision: Decision
    devices: tuple[ExposedDevice, ...] = ()
    counter_sets: tuple[ExposedCounterSet, ...] = ()
    problems: tuple[Problem, ...] = ()
    registered: tuple[RegistrationOutcome, ...] = ()


@click.command(name="explain")
@click.argument("interface")
@objects.options()
@inputs.policies_option
@inputs.inventory_options
@inputs.feature_option
@shared.option(
    "--registry-socket",
    "PATH",
    "Also read the registrations of programs from this node's device registry.",
    type=shared.PATH,
)
@shared.output("text", "json", "yaml")
def command(
    interface: str,
    given: objects.InputOptions,
    policy_paths: tuple[str, ...],
    recorded: inputs.RecordedInventory,
    gates: tuple[str, ...],
    registry_socket: Path | None,
    output: str,
) -> None:
    """Explain why INTERFACE is offered as devices or not: each policy, its verdict with the reason, and the result.

    INTERFACE is a name in the kernel, a PCI address, or the name of a device, including devices that are only files.

    PATHs are files, directories, or "-": policies, CustomDevices, an inventory (`netdra capture`), and Nodes, whose
    labels policies select. Other kinds are ignored. Without an inventory, this machine's interfaces are used.
    """
    from netdra.exposure import expose
    from netdra.exposure.registered import Registered

    features = inputs.features(gates)
    given.check(*policy_paths)
    kinds = (DeviceExposurePolicy, CustomDevice, ClusterNode)
    read = given.read(kinds, *policy_paths, recorded.inventory_path)
    policies = read.require(DeviceExposurePolicy)
    inventory = _only(recorded.choose(read.inventories(recorded.inventory_path)))
    registrations = read.registrations(inventory.node)
    files: dict[str, DeviceFile] = {}
    if registry_socket is not None:
        registrations = (*registrations, *_read_registrations(registry_socket, files))
    registered = Registered(registrations)
    devices_of_files = registered.file_devices(inventory.interfaces, lambda path: files[path])
    inventory = msgspec.structs.replace(inventory, interfaces=(*inventory.interfaces, *devices_of_files))
    result = expose(inventory, policies, features=features, registered=registered)
    decisions = _with_reasons(_decisions(interface, inventory, result), inventory, policies)
    explanations = [_explanation(decision, result) for decision in decisions]
    if output != "text":
        terminal.print_data(explanations, output, apart=True)
    else:
        click.echo(terminal.printable("\n\n".join("\n".join(_lines(explanation)) for explanation in explanations)))


def _only(inventories: Sequence[Inventory]) -> Inventory:
    """The one inventory.

    Raises:
        InvalidInputError: there are several.
    """
    if len(inventories) > 1:
        called = listed(inventory.node.name for inventory in inventories)
        raise InvalidInputError(
            f"the input contains {len(inventories)} inventories",
            hint=f"select one with --node: {called}",
            code="ND4018",
        )
    return inventories[0]


def _read_registrations(path: Path, files: dict[str, DeviceFile]) -> Iterator[Registration]:
    """The registrations of the node's device registry; CustomDevices are read from the files.

    The registry's verdicts on device files are put into `files`: only the driver knows which are allowed.

    Raises:
        TemporaryError: the registry does not answer.
    """
    from netdra.node.registry.messages import from_request
    from netdra.registry_client import RegistryClient

    with RegistryClient(path=str(path)) as client:
        for entry in client.registrations():
            if not entry.custom_device:
                files[entry.device_file] = DeviceFile(problem=entry.device_file_problem)
                yield from_request(entry, adds=entry.adds, device_file=entry.device_file)


def _decisions(wanted: str, inventory: Inventory, result: ExposureResult) -> list[Decision]:
    """The decisions on the interface of that name; several ports of one card may share a PCI address.

    Raises:
        InvalidInputError: the node has no such interface.
    """
    named = {_key(interface): {*_names(interface), interface.device_name} for interface in inventory.interfaces}
    decisions = [
        decision
        for decision in result.decisions
        if wanted in named.get((decision.interface, decision.device_name), {decision.device_name})
        or wanted in decision.exposed
    ]
    if not decisions:
        interface_names = sorted({name for entry in named.values() for name in entry})
        what = f'node "{inventory.node.name}" does not have an interface "{wanted}"'
        raise InvalidInputError(
            what,
            hint=_meant(wanted, interface_names, [interface.device_name for interface in inventory.interfaces]),
            code="ND4019",
        )
    return decisions


def _with_reasons(
    decisions: Iterable[Decision], inventory: Inventory, policies: Iterable[DeviceExposurePolicy]
) -> Iterator[Decision]:
    """The decisions, in which each policy that does not match names the part of its selector that is false."""
    from netdra.cel.reasons import why_false

    interfaces = {_key(interface): attributes(interface) for interface in inventory.interfaces}
    selectors = {policy.name: policy.spec.selector.cel for policy in policies}
    for decision in decisions:
        facts = interfaces.get((decision.interface, decision.device_name), {})
        verdicts = tuple(
            msgspec.structs.replace(verdict, detail=f"false: {why}")
            if verdict.outcome == "no-match"
            and not verdict.detail
            and (why := why_false(selectors.get(verdict.policy, ""), names.DRIVER, facts))
            else verdict
            for verdict in decision.verdicts
        )
        yield msgspec.structs.replace(decision, verdicts=verdicts)


def _meant(wanted: str, interface_names: Sequence[str], there: Sequence[str]) -> str:
    """The likeliest names for an unknown one, as a hint."""
    close = difflib.get_close_matches(wanted, interface_names, n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"the interfaces are {listed(there)}" if there else "the inventory is empty"


def _key(interface: Interface) -> tuple[str, str]:
    return interface.identity, interface.device_name


def _names(interface: Interface) -> Iterator[str]:
    yield from (
        name for name in (interface.if_name, interface.pci_address, interface.device_file, *interface.alt_names) if name
    )


def _explanation(decision: Decision, result: ExposureResult) -> InterfaceExplanation:
    made = tuple(
        device
        for device in result.devices
        if (device.name in decision.exposed and device.interface == decision.interface)
        or (device.name in decision.pooled and device.lane is not None and decision.interface in device.lane.vfs)
    )
    drawn = {(device.pool, name) for device in made for name in device.consumes}
    return InterfaceExplanation(
        decision=decision,
        devices=made,
        counter_sets=tuple(
            counter_set for counter_set in result.counter_sets if (counter_set.pool, counter_set.name) in drawn
        ),
        problems=tuple(_problems(decision, result)),
        registered=tuple(
            outcome
            for outcome in result.outcomes
            if outcome.device in (decision.exposed or (decision.if_name, decision.device_name))
        ),
    )


def _problems(decision: Decision, result: ExposureResult) -> Iterator[Problem]:
    """The problems of an interface, of policies that cannot be used for it, and of the VFs that it is pooled with."""
    blamed = {verdict.policy for verdict in decision.verdicts if verdict.outcome == "invalid"}
    winning = {verdict.policy for verdict in decision.verdicts if verdict.outcome == "wins"}
    lanes = f"{decision.device_name.rpartition('v')[0]}-vfs"
    for problem in result.problems:
        is_of_policy = not problem.interface and problem.policy in blamed
        if (
            problem.interface == decision.interface
            or is_of_policy
            or (problem.policy in winning and problem.interface.startswith(lanes))
        ):
            yield problem


def _lines(explanation: InterfaceExplanation) -> Iterator[str]:
    decision = explanation.decision
    name = decision.if_name or decision.device_name
    yield f"{name} ({decision.interface})" if decision.interface != name else name
    yield f"  {decision.reason}"
    if decision.hidden in devices.UNKNOWN_HINTS:
        yield f"  {devices.UNKNOWN_HINTS[decision.hidden][1]}"
    if decision.verdicts:
        yield ""
        yield "Policies"
    width = max((len(verdict.policy) for verdict in decision.verdicts), default=0)
    for verdict in decision.verdicts:
        yield from _verdict_lines(verdict, width)
    for device in explanation.devices:
        yield ""
        yield from _device_lines(device)
    for counters in explanation.counter_sets:
        yield ""
        yield f"Counter set {counters.name}: {devices.amounts(counters.counters)}"
    if explanation.registered:
        yield ""
        yield "Provided by others"
        yield from map(_outcome_line, explanation.registered)
    # A policy's failure on the interface is in its verdict, and a registration's problem in its outcome.
    registered = tuple(outcome.problem for outcome in explanation.registered if outcome.problem)
    problems = [
        problem
        for problem in explanation.problems
        if problem.interface
        and problem.left_out != "policy-failed"
        and not (registered and problem.message.endswith(registered))
    ]
    if problems:
        yield ""
        yield "Problems"
        yield from (f"  {devices.problem_text(problem)}" for problem in problems)


def _outcome_line(outcome: RegistrationOutcome) -> str:
    names = ", ".join((*outcome.attributes, *outcome.capacity))
    text = "; ".join(filter(None, (names, outcome.problem))) or "a new device"
    source = f'CustomDevice "{outcome.custom_device}"' if outcome.custom_device else "the registry's socket"
    return f"  {outcome.device}, by {outcome.provider} ({source}): {text}"


def _verdict_lines(verdict: PolicyVerdict, width: int) -> Iterator[str]:
    yield f"  {verdict.policy:{width}}  {verdict.action}, priority {verdict.priority}: {OUTCOMES[verdict.outcome]}"
    yield from (f"  {'':{width}}    {line}" for line in verdict.detail.splitlines())


def _device_lines(device: ExposedDevice) -> Iterator[str]:
    yield f'Device {device.name} of pool {device.pool}, {devices.kind(device)}, by policy "{device.policy}"'
    if device.lane is not None:
        yield f"  VFs: {listed(device.lane.vfs, _VFS)}"
    for title, text in (
        ("CNI plugins", devices.plugins(device)),
        ("capacity", devices.capacity(device)),
        ("takes", devices.taken(device)),
        ("slots", devices.slots(device)),
    ):
        if text:
            yield f"  {title}: {text}"
