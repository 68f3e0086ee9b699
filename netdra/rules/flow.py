"""The flow through the graph: how many interfaces, and whether addresses and devices, reach each step.

Called by `schemas` with the contracts of the steps' plugins. It counts without running anything. Each interface is
counted under the step that added it, so an interface that comes along both ways of a diamond is counted once. A plugin
without a contract may make anything, so no step after it is refused because it lacks something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from netdra.model.findings import Finding, dotted
from netdra.model.inventory import DEVICE_FILE
from netdra.model.topology import Step
from netdra.rules.contract import Contract
from netdra.topology.graph import Graph
from netdra.topology.references import Reference

_OF_INTERFACES = frozenset({"interfaceName", "mac", "sandbox", "interfaces"})


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a step's result, as far as contracts state it.

    Attributes:
        certain: the interfaces that are there in any case, each as its step and a number.
        possible: further interfaces that may be there.
        unknown: whether there may be still more, because a plugin without a contract was involved.
        ips: the addresses that there may be, each as its step and a number.
        more_ips: whether there may be further addresses, in an unknown number.
        routes: whether there may be routes.
        devices: the fields of the step's devices that can be referenced, or None if that is not known.
    """

    certain: frozenset[tuple[str, int]] = frozenset()
    possible: frozenset[tuple[str, int]] = frozenset()
    unknown: bool = False
    ips: frozenset[tuple[str, int]] = frozenset()
    more_ips: bool = False
    routes: bool = False
    devices: frozenset[str] | None = frozenset()

    @property
    def most(self) -> int:
        """How many interfaces contracts allow for."""
        return len(self.certain | self.possible)

    @property
    def has_ips(self) -> bool:
        """Whether there may be addresses."""
        return self.more_ips or bool(self.ips)


def flows(graph: Graph, contracts: Mapping[str, Contract]) -> dict[str, Flow]:
    """The content of each step's result."""
    by_step: dict[str, Flow] = {}
    for step in graph.steps:
        given = together([by_step[name] for name in step.depend_on])
        by_step[step.name] = _after(step, contracts.get(step.plugin), given)
    return by_step


def together(several: Sequence[Flow]) -> Flow:
    """The content of the merged results of several steps (decision D9)."""
    return Flow(
        certain=frozenset().union(*(flow.certain for flow in several)),
        possible=frozenset().union(*(flow.possible for flow in several)),
        unknown=any(flow.unknown for flow in several),
        ips=frozenset().union(*(flow.ips for flow in several)),
        more_ips=any(flow.more_ips for flow in several),
        routes=any(flow.routes for flow in several),
    )


def check_flow(
    graph: Graph, step: Step, contracts: Mapping[str, Contract], by_step: Mapping[str, Flow]
) -> Iterator[Finding]:
    """The inputs that a step needs and does not get from its dependencies or through its references."""
    contract = contracts.get(step.plugin)
    if contract is not None:
        yield from _input(step, contract, graph, by_step)
    for path, reference in graph.references[step.name]:
        problem = _unavailable(reference, by_step[reference.step])
        if problem:
            plugin = next(step.type for step in graph.steps if step.name == reference.step)
            what = f'{dotted(path)}: {reference}: plugin "{plugin}" of step "{reference.step}" {problem}.'
            yield Finding(what, path=("config", *path), code="ND1078")
        elif reference.field == "interfaces" and contract is not None and len(path) == 1:
            yield from _too_short(step, path[0], reference, contract, by_step[reference.step])


def _too_short(step: Step, key: str | int, reference: Reference, contract: Contract, flow: Flow) -> Iterator[Finding]:
    """A reference to all interfaces of a step that has fewer interfaces than the parameter needs."""
    shape = contract.parameters.get(contract.names.get(str(key), ""))
    least = shape.min_items if shape is not None else None
    if least is not None and not flow.unknown and flow.most < least:
        what = f'CNIPluginSchema "{contract.schema}" expects at least {least} items in parameter "{key}", but '
        what += f"{reference} is of {_interfaces(flow.most)}."
        names = ", ".join(f'"{{{{ {name}.interfaceName }}}}"' for name in step.depend_on)
        hint = (
            f"Use a list: [{names}]."
            if len(step.depend_on) >= least
            else "Add another step to dependOn, and list both."
        )
        yield Finding(what, hint, ("config", key), code="ND1079")


def _after(step: Step, contract: Contract | None, given: Flow) -> Flow:
    if contract is None:
        return Flow(
            certain=given.certain, possible=given.possible, unknown=True, more_ips=True, routes=True, devices=None
        )
    output = contract.output
    passed = given if output.interfaces.passthrough else Flow()
    has_port = step.neutron is not None  # Neutron decides how many addresses it has
    conditional = output.interfaces.conditional
    count = max(output.interfaces.appends, 1) if conditional else output.interfaces.appends
    added = frozenset((step.name, number) for number in range(count))
    delegated = bool(step.config.get("ipam"))
    number = _addresses(step, contract)
    own = frozenset((step.name, place) for place in range(number or 0))
    return Flow(
        certain=passed.certain if conditional else passed.certain | added,
        possible=passed.possible | added,
        unknown=passed.unknown,
        ips=own | (given.ips if output.ips.passthrough else frozenset()),
        more_ips=number is None or has_port or (output.ips.passthrough and given.more_ips),
        routes=output.routes.appends or delegated or has_port or (output.routes.passthrough and given.routes),
        devices=frozenset(declared.name for declared in output.devices.properties),
    )


def _addresses(step: Step, contract: Contract) -> int | None:
    """How many addresses a step adds, or None if that is not known before it runs."""
    config = step.config
    if config.get("args") or config.get("runtimeConfig"):
        return None
    own: Any = ()
    if contract.output.ips.appends:
        own = config.get("addresses", ()) if step.type == "tuning" else None
    leased = _leased(config.get("ipam"))
    if leased is None or not isinstance(own, list | tuple):
        return None
    return len(own) + leased


def _leased(ipam: Any) -> int | None:
    """How many addresses an IPAM plugin gives, or None if that is not known."""
    if not ipam:
        return 0
    kind = ipam.get("type") if isinstance(ipam, Mapping) else None
    if kind == "static":
        addresses = ipam.get("addresses")
        return len(addresses) if isinstance(addresses, list | tuple) and addresses else None
    if kind == "host-local":
        ranges = ipam.get("ranges", ())
        return len(ranges) + bool(ipam.get("subnet")) if isinstance(ranges, list | tuple) else None
    return None


def _input(step: Step, contract: Contract, graph: Graph, by_step: Mapping[str, Flow]) -> Iterator[Finding]:
    needs = contract.input.prev_result
    prefix = f'CNIPluginSchema "{contract.schema}"'
    if step.is_root:
        if needs.required:
            hint = "Add the preceding steps to dependOn."
            yield Finding(
                f"{prefix} requires a prevResult, but the step has no dependOn.", hint, ("type",), code="ND1080"
            )
        return
    given = together([by_step[name] for name in step.depend_on])
    limits = needs.interfaces
    produced = f'step "{step.name}" depends on [{", ".join(step.depend_on)}] which produces'
    if not given.unknown and given.most < limits.min_items:
        yield _too_few(step, contract, given, graph, by_step)
    if limits.max_items is not None and len(given.certain) > limits.max_items:
        what = f"{prefix} accepts at most {_interfaces(limits.max_items)} in prevResult, "
        what += f"but {produced} {_interfaces(len(given.certain))}."
        yield Finding(what, "Remove steps from dependOn.", ("dependOn",), code="ND1081")
    for part, needed, there in (
        ("ips", needs.ips.required, given.has_ips),
        ("routes", needs.routes.required, given.routes),
    ):
        if needed and not there and not given.unknown:
            yield Finding(
                f"{prefix} requires {part} in prevResult, but {produced} none.", path=("dependOn",), code="ND1082"
            )


def _too_few(step: Step, contract: Contract, given: Flow, graph: Graph, by_step: Mapping[str, Flow]) -> Finding:
    needed = contract.input.prev_result.interfaces.min_items
    what = f'CNIPluginSchema "{contract.schema}" requires at least {_interfaces(needed)} in prevResult, but '
    types = {step.name: step.type for step in graph.steps}
    empty = next((name for name in step.depend_on if by_step[name].most == 0), None)
    if empty is None:
        what += f'step "{step.name}" depends on [{", ".join(step.depend_on)}] which produces '
        return Finding(
            f"{what}only {_interfaces(given.most)}.", "Add another VF step to dependOn.", ("dependOn",), code="ND1083"
        )
    what += f'dependency "{empty}" uses plugin "{types[empty]}" which produces 0 interfaces.'
    return Finding(what, _why_none(step.type, types[empty]), ("dependOn", step.depend_on.index(empty)), code="ND1084")


def _why_none(consumer: str, producer: str) -> str:
    if producer == DEVICE_FILE:
        return "A device file does not have a network interface."
    if producer != "vfio-pci":
        return "Remove it from dependOn."
    if consumer == "bond":
        return "VFIO devices cannot be bonded — they are userspace-managed."
    return "VFIO devices do not have a network interface — they are userspace-managed."


def _unavailable(reference: Reference, flow: Flow) -> str:
    """Why a referenced field cannot be there, or ""."""
    if flow.unknown:
        return ""
    if reference.field in _OF_INTERFACES:
        return "" if flow.most else "does not produce interfaces"
    if reference.field == "ips":
        if flow.more_ips or reference.index < len(flow.ips):
            return ""
        return _only(len(flow.ips))
    if flow.devices is None or reference.field in flow.devices or (reference.field == "pciAddress" and flow.most):
        return ""
    return f"does not produce devices with {reference.field}"


def _only(count: int) -> str:
    if count < 2:
        return "produces only one address, ips[0]" if count else "does not produce ips"
    return f"produces only {count} addresses, ips[0] to ips[{count - 1}]"


def _interfaces(count: int) -> str:
    return f"{count} interface" if count == 1 else f"{count} interfaces"
