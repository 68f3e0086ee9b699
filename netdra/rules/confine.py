"""The names of the node that a step may use: its allocated device, interfaces of its own sandbox, and nothing else.

Decision D31. Called with a topology's plan by the checks at admission, with a claim's plans by the node before it
prepares and attaches, and by `netdra.chain` before anything runs. Plugins' schemas reports which keys name what
(`format`); the schemas that netdra ships count also where a user's own schema stands above them. Pure but for `allows`.

Most plugins are Go programs, which read `DataDir` as `dataDir`: a key that only differs so from one that counts is
refused, or it would evade these checks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from netdra.model.findings import Finding, Path, dotted, of_step, quoted, within
from netdra.model.plan import Plan, PlannedDevice, PlannedStep
from netdra.model.pod_network import IPAM_TYPE
from netdra.model.schema import NAMING, CNIPluginSchema, Format
from netdra.model.topology import MOVING_TYPES, is_autoconfigured
from netdra.rules import runnable
from netdra.rules.config import COMMON
from netdra.rules.contract import Contract, Shape
from netdra.rules.runnable import Contracts
from netdra.topology import needed, references, values
from netdra.topology.attachment import IN_POD_PARAMETERS
from netdra.topology.binaries import UNIX
from netdra.topology.references import Reference
from netdra.topology.step_check import RESERVED_KEYS, is_plugin_name, plugin_name_hint
from netdra.topology.values import ConfigError

Steps = Mapping[str, PlannedStep]
"""A plan's steps by name."""


class Permits(msgspec.Struct, frozen=True, kw_only=True):
    """The plugins and paths of a node that topologies may use.

    Attributes:
        plugins: the node's list of plugins that may be run (`netdra.rules.runnable`); if empty, the default list.
        named: the plugins that policies name.
        folders: the folders of the node that a step may be given, by which `allows` decides.
        allows: why a step may not be given a path of the node, or "".
        run_plugins: whether plugins may be run at all.
    """

    plugins: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    folders: tuple[str, ...] = ()
    allows: Callable[[str], str] = lambda _: ""
    run_plugins: bool = True


class _Given(msgspec.Struct, frozen=True):
    """A value of a config for which a schema has a format: its place, and the named object.

    A key that only differs in case from one of the schema has no format, but the key that is `meant`.
    """

    path: Path
    value: Any
    format: Format
    meant: str = ""


_RUNTIME = "runtimeConfig"
# Keys that runtimes give to any plugin (CNI's CONVENTIONS.md) and that name something of the node.
_ANY_PLUGINS: tuple[tuple[tuple[str, ...], Format], ...] = (
    (("deviceID",), "pciAddress"),
    ((_RUNTIME, "deviceID"), "pciAddress"),
    ((_RUNTIME, "CNIDeviceInfoFile"), "hostPath"),
    ((_RUNTIME, "cgroupPath"), "hostPath"),
)
_EVERYWHERE = frozenset({*COMMON, *RESERVED_KEYS})
_IN_RUNTIME = frozenset(path[1] for path, _ in _ANY_PLUGINS if len(path) > 1)

_OF_DEVICE: Mapping[Format, Callable[[PlannedDevice], str]] = {
    "interface": lambda device: device.if_name,
    "hostInterface": lambda device: device.if_name,
    "pciAddress": lambda device: device.pci_address,
    "hostMac": lambda device: device.mac,
    "rdmaDevice": lambda device: device.rdma_device,
    "devicePath": lambda _: "",
}
_REFERRED: Mapping[Format, str] = {"pciAddress": "pciAddress", "rdmaDevice": "rdmaDevice"}
_DERIVED = "a step with dependOn only uses the results of earlier steps, not the node's interfaces"


def contracts_of(plans: Iterable[Plan], own: Iterable[CNIPluginSchema] = ()) -> dict[str, tuple[Contract, ...]]:
    """The contracts of all plugins of some plans, IPAM plugins included; a schema with errors is left out."""
    wanted = {kind for plan in plans for step in plan.steps for kind in (step.type, _ipam_type(step)) if kind}
    wanted |= {needed.STATIC} if IPAM_TYPE in wanted else set()
    return runnable.contracts_of_types(wanted, own)


def check(
    plans: Sequence[Plan], contracts: Contracts, permits: Permits | None = None, *, allocated: bool = False
) -> tuple[Finding, ...]:
    """All that steps name and may not have. Paths begin with `steps` and the step's place.

    Args:
        plans: the plans to be run.
        contracts: as `contracts_of` finds them.
        permits: what the node permits; None where that is not known, or all plans are an administrator's own.
        allocated: whether every root step is to have a device, also if the plan does not reports which.
    """
    return tuple(
        finding
        for plan in plans
        for steps in ({step.name: step for step in plan.steps},)
        for at, step in enumerate(plan.steps)
        for finding in of_step(_step(step, steps, contracts, permits, allocated), plan.topology, step.name, "steps", at)
    )


def _step(
    step: PlannedStep, steps: Steps, contracts: Contracts, permits: Permits | None, allocated: bool
) -> Iterator[Finding]:
    own = contracts.get(step.type, ())
    if step.execution == "Binary":
        yield from _plugin(step.type, ("type",), contracts, permits)
    yield from within(_misspelt((), step.config, own, _EVERYWHERE), "config")
    runtime = step.config.get(_RUNTIME)
    if isinstance(runtime, Mapping):
        yield from within(_misspelt((_RUNTIME,), runtime, (), _IN_RUNTIME), "config")
    yield from _in_pod(step, allocated)
    given = [*_common(step.config), *(part for contract in own for part in _given(step.config, contract))]
    ipam = step.config.get("ipam")
    if isinstance(ipam, Mapping) and ipam:
        kind = _ipam_type(step)
        if ipam.get("type") and not is_autoconfigured(step.config):
            program = needed.STATIC if kind == IPAM_TYPE else kind
            yield from _plugin(program or ipam["type"], ("config", "ipam", "type"), contracts, permits)
        delegated = contracts.get(kind, ())
        yield from within(_misspelt(("ipam",), ipam, delegated, {"type"}), "config")
        inner = (part for contract in delegated for part in _given(ipam, contract))
        given += [msgspec.structs.replace(part, path=("ipam", *part.path)) for part in inner]
    # A value that two schemas give the same format is complained of once.
    for part in {(part.path, part.format): part for part in given}.values():
        yield from within(_value(step, part, permits, steps), "config")
    yield from _of_shared(step, steps, {part.path for part in given} if step.depend_on else set())


def _ipam_type(step: PlannedStep) -> str:
    """The plugin that a step's addresses come from; "" if the config does not name it in plain words."""
    ipam = step.config.get("ipam")
    kind = ipam.get("type") if isinstance(ipam, Mapping) else None
    return kind if isinstance(kind, str) and is_plugin_name(kind) else ""


def _plugin(kind: Any, path: Path, contracts: Contracts, permits: Permits | None) -> Iterator[Finding]:
    """A program is run only if the node allows it; its name must be plain text without references."""
    if not isinstance(kind, str) or not is_plugin_name(kind):
        shown = quoted(kind) if isinstance(kind, str) else "not text"
        yield Finding(f"the plugin's type is {shown}", plugin_name_hint(str(kind)), path, code="ND1053")
    elif permits is not None and not permits.run_plugins:
        what = f'plugin "{kind}" is not allowed: the node\'s driver runs no plugins'
        hint = (
            "use one of netdra's own types, or set the chart's value node.runPlugins (netdra node without --no-plugins)"
        )
        yield Finding(what, hint, path, code="ND1054")
    elif permits is not None and not runnable.is_allowed(kind, contracts, permits.plugins, permits.named):
        finding = runnable.why_not(kind, contracts, permits.plugins)
        yield Finding(finding.what, finding.hint, path, code=finding.code)


def is_runnable(kind: str, permits: Permits, own: Iterable[CNIPluginSchema]) -> bool:
    """Whether the program of a type may be run, with a cluster's own schemas."""
    contracts = runnable.contracts_of_types({kind}, own)
    return permits.run_plugins and runnable.is_allowed(kind, contracts, permits.plugins, permits.named)


def _misspelt(
    where: Path, config: Mapping[str, Any], contracts: Sequence[Contract], everywhere: Collection[str]
) -> Iterator[Finding]:
    """Keys that a Go program takes for another key: it compares them without regard to case (encoding/json)."""
    exact = {name for contract in contracts for name in contract.names} | set(everywhere)
    folded = {name.casefold(): name for name in exact}
    seen: dict[str, str] = {}
    for key in config:
        fold = key.casefold()
        meant = seen.get(fold) if key in exact or fold not in folded else folded[fold]
        if meant is None:
            seen[fold] = key
        else:
            path = (*where, key)
            what = f"most plugins read {dotted(path)} as {quoted(meant)}"
            yield Finding(what, f"use only {meant}", path, code="ND1055")


def _common(config: Mapping[str, Any]) -> Iterator[_Given]:
    for path, kind in _ANY_PLUGINS:
        value: Any = config
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            yield _Given(path, value, kind)


def _given(config: Mapping[str, Any], contract: Contract) -> Iterator[_Given]:
    """The values of a config that a contract gives a format, and the defaults of the plugin for missing ones."""
    for key, value in config.items():
        name = contract.names.get(key)
        if name is not None:
            yield from _inside(value, contract.parameters[name], (key,))
    present = {contract.names.get(key) for key in config}
    for name, default in contract.defaults.items():
        if name not in present:
            yield from _inside(default, contract.parameters[name], (name,))


def _inside(value: Any, shape: Shape, path: Path) -> Iterator[_Given]:
    if shape.kind == "either":
        for part in _alternatives(value, shape):
            yield from _inside(value, part, path)
    elif isinstance(value, list | tuple):
        element = _element(shape)
        for at, inner in enumerate(value if element is not None else ()):
            yield from _inside(inner, element or shape, (*path, at))
    elif shape.format in NAMING:
        if value is not None:
            yield _Given(path, value, shape.format)
    elif isinstance(value, Mapping):
        yield from _in_mapping(value, shape, path)


def _in_mapping(value: Mapping[str, Any], shape: Shape, path: Path) -> Iterator[_Given]:
    folded = {name.casefold(): name for name in shape.properties}
    for key, inside in value.items():
        inner = shape.properties.get(key) if shape.kind == "object" else next(iter(shape.parts), None)
        if inner is not None:
            yield from _inside(inside, inner, (*path, key))
        elif key.casefold() in folded:
            yield _Given((*path, key), inside, "", folded[key.casefold()])


def _element(shape: Shape) -> Shape | None:
    """The shape of the elements of a list in the place of a shape; None if they name nothing."""
    if shape.kind != "list":
        return shape if shape.format in NAMING else None
    inner = shape.parts[0]
    return inner if inner.format or not shape.format else msgspec.structs.replace(inner, format=shape.format)


def _alternatives(value: Any, shape: Shape) -> Iterator[Shape]:
    """The alternatives that a value fits, or all if it fits none; a format counts for alternatives that are texts."""
    kinds = ("object", "map") if isinstance(value, Mapping) else ("list",) if isinstance(value, list | tuple) else ()
    for part in [part for part in shape.parts if part.kind in kinds] or shape.parts:
        own = part.kind in ("object", "map") or part.format
        yield part if own else msgspec.structs.replace(part, format=shape.format)


def _in_pod(step: PlannedStep, allocated: bool) -> Iterator[Finding]:
    """Where a step's interfaces must be: in the pod for a derived step, on the node for an allocated device."""
    parameter = IN_POD_PARAMETERS.get(step.type)
    if parameter is None:
        return
    value = step.config.get(parameter, step.execution == "Builtin" if step.depend_on else False)
    if step.depend_on and value is not True:
        hint = f"remove {parameter} from the topology: it is set to true"
        yield Finding(f"{parameter} must be true: {_DERIVED}", hint, ("config", parameter), code="ND1056")
    elif not step.depend_on and value is not False and (allocated or step.device is not None):
        what = f"{parameter} must not be set: a step without dependOn uses its allocated device"
        yield Finding(what, f"remove {parameter}", ("config", parameter), code="ND1057")


def _value(step: PlannedStep, given: _Given, permits: Permits | None, steps: Steps) -> Iterator[Finding]:
    where = dotted(given.path)
    if not given.format:
        what = f"most plugins read {where} as {quoted(given.meant)}"
        yield Finding(what, f"use only {given.meant}", given.path, code="ND1058")
    elif not isinstance(given.value, str):
        yield Finding(f"{where} must be text", path=given.path, code="ND1059")
    elif given.format != "interface" and _has_fact(given.value):
        hint = "remove it to use the allocated device, or set it in the topology"
        what = f"{where} {quoted(given.value)} refers to a device or a path, which must not depend on a fact"
        yield Finding(what, hint, given.path, code="ND1060")
    elif _asks(given.value):
        hint = "set it in the topology, or remove it to use the allocated device"
        yield Finding(
            f"{where} {quoted(given.value)} refers to a device or a path, which a claim must not set",
            hint,
            given.path,
            code="ND1061",
        )
    elif given.format in ("hostPath", "hostSocket"):
        yield from _host_path(given, permits)
    elif step.depend_on:
        yield from _derived(step, given, steps)
    elif step.device is not None and given.value:
        yield from _allocated(step.device, given)


def _asks(text: str) -> bool:
    """Whether a text holds a reference to a parameter."""
    try:
        return any(isinstance(part, Reference) and part.is_parameter for part in references.parse(text))
    except ConfigError:
        return False  # `graph` reports it


def _has_fact(text: str) -> bool:
    """Whether a text holds a reference to a fact of the device, the node or the pod."""
    try:
        return any(isinstance(part, Reference) and part.fact is not None for part in references.parse(text))
    except ConfigError:
        return False  # `graph` reports it


def _host_path(given: _Given, permits: Permits | None) -> Iterator[Finding]:
    path, where = given.value, dotted(given.path)
    if given.format == "hostSocket":
        path = path.removeprefix(UNIX)
    if not path:
        return
    if "{{" in path or not path.startswith("/") or ".." in path.split("/"):
        hint = 'use a path that starts with "/", without ".." and references'
        yield Finding(f"{where} {quoted(path)} is not a plain path of the node", hint, given.path, code="ND1062")
    elif permits is not None and (why := permits.allows(path)):
        hint = (
            f"remove it, or start the node's driver with --allow-host-path and a directory that contains {quoted(path)}"
        )
        yield Finding(f"{where} {quoted(path)} is a path of the node: {why}", hint, given.path, code="ND1063")


def _derived(step: PlannedStep, given: _Given, steps: Steps) -> Iterator[Finding]:
    """An interface's name counts in the pod; all else that is named must be allocated to the claim alone.

    A shared device is not the claim's to move or to change as a whole.
    """
    if given.format == "interface" or not given.value:
        return
    field = _REFERRED.get(given.format, "")
    try:
        parts = references.parse(given.value)
    except ConfigError as problem:
        yield Finding(f"{dotted(given.path)}: {problem.what}", problem.hint, given.path, code=problem.code)
        return
    if field and len(parts) == 1 and isinstance(parts[0], Reference) and parts[0].field == field:
        devices = [root.device for root in roots(parts[0].step, steps) if root.device is not None]
        fits = not any(device.is_shared for device in devices)
    else:
        devices = [root.device for root in roots(step.name, steps) if root.device is not None]
        own = {_OF_DEVICE[given.format](device).lower() for device in devices if not device.is_shared}
        fits = bool(field) and given.value.lower() in own
    if not fits:
        what = f"{dotted(given.path)} {quoted(given.value)} refers to a device of the node: {_DERIVED}"
        hint = "allocate it with a step without dependOn"
        if field:
            hint += f", and refer to it as {{{{ step.{field} }}}}"
        yield Finding(what, hint, given.path, code="ND1064")


def _of_shared(step: PlannedStep, steps: Steps, seen: Collection[Path]) -> Iterator[Finding]:
    """A step that takes a shared device for its own: one that moves it, or whose config has its PCI address (D55).

    `seen` are the places in the config of which something is found already.
    """
    if step.device is not None and step.device.is_shared and step.type in MOVING_TYPES:
        what = f'device "{step.device.device}" is shared with other claims, and type {step.type} moves it into the pod'
        yield Finding(
            what, "expose it without allowMultipleAllocations, or use a type that shares it", ("type",), code="ND1065"
        )
    shared = {root.name: root.device for root in roots(step.name, steps) if root.device and root.device.is_shared}
    addresses = {device.pci_address.lower() for device in shared.values()} - {""}
    for path, text in values.strings(step.config) if shared else ():
        try:
            parts = references.parse(text)
        except ConfigError:
            continue  # `graph` reports it
        refers = any(
            isinstance(part, Reference) and part.step in shared and part.field == "pciAddress" for part in parts
        )
        if path not in seen and (refers or any(address in text.lower() for address in addresses)):
            what = f"{dotted(path)} {quoted(text)} is the PCI address of a shared device"
            hint = f"remove {dotted(path)}: plugins would treat the device as exclusive"
            yield Finding(what, hint, ("config", *path), code="ND1066")


def roots(name: str, steps: Steps) -> Iterator[PlannedStep]:
    """The root steps that a step stands on, or the step itself."""
    seen, todo = set[str](), [name]
    while todo:
        step = steps.get(todo.pop())
        if step is not None and step.name not in seen:
            seen.add(step.name)
            todo += step.depend_on
            if not step.depend_on:
                yield step


def _allocated(device: PlannedDevice, given: _Given) -> Iterator[Finding]:
    allocated = _OF_DEVICE[given.format](device)
    if not allocated or given.value.lower() != allocated.lower():
        what = (
            f"{dotted(given.path)} {quoted(given.value)} does not match the allocated device "
            f'"{device.device}" ({quoted(allocated)})'
        )
        yield Finding(what, f"remove {dotted(given.path)}: the allocated device is used", given.path, code="ND1067")
