"""Whether a DeviceExposurePolicy can be used: everything that the API server would refuse later, or that would mislead.

Called by `netdra.exposure.templates` for each policy, by the webhook and the controller, and by the command line. The
rules on capacities are in `netdra.exposure.capacities`, those on attributes in `netdra.exposure.additional`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache

import msgspec

from netdra.cel import CelCompileError, CelEvaluationError, DeviceVariables, compile_selector, device_variables
from netdra.exposure import additional
from netdra.exposure.capacities import (
    MAX_QUANTITY,
    bandwidth_errors,
    number,
    number_errors,
    pooling_errors,
    sharing_errors,
    value_errors,
    written_errors,
)
from netdra.model import names, suggestions, sysctls
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path
from netdra.model.health import COUNTERS, RDMA, is_known
from netdra.model.inventory import Interface, InventoryNode, attributes
from netdra.model.kept import KEEPING_TYPES, faults
from netdra.model.meta import LabelSelector
from netdra.model.policy import MAX_PLUGINS, MAX_SUFFIX, DeviceExposurePolicy, Exposure, SupportedCNIPlugin

_EXPOSURE: Path = ("spec", "exposure")
_SELECTOR: Path = ("spec", "selector", "cel")
_PLUGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}\Z", re.ASCII)
_SUFFIX = re.compile(r"[a-z0-9-]*[a-z0-9]\Z", re.ASCII)


def check(policy: DeviceExposurePolicy) -> tuple[Finding, ...]:
    """The errors in a policy; empty if the policy can be used."""
    exposure = policy.spec.exposure
    if policy.spec.action == "exclude":
        unused = (
            (Finding("exposure is not supported with action: exclude", path=_EXPOSURE, code="ND1430"),)
            if exposure
            else ()
        )
        return (*check_targets(policy), *unused)
    exposure = exposure or Exposure()
    written = [
        finding
        for name, capacity in exposure.capacity.items()
        for finding in written_errors((*_EXPOSURE, "capacity", name), capacity)
    ]
    return (*check_targets(policy), *written, *(check_exposure(_nominal(exposure)) if not written else ()))


def _nominal(exposure: Exposure) -> Exposure:
    """The exposure as on a node that has enough of everything: values that are read of nodes are checked with it."""
    nominal = {
        name: msgspec.structs.replace(capacity, value=str(MAX_QUANTITY))
        if capacity.value_from and capacity.value == ""
        else capacity
        for name, capacity in exposure.capacity.items()
    }
    return msgspec.structs.replace(exposure, capacity=nominal)


def unread(policy: DeviceExposurePolicy, node: InventoryNode) -> Iterator[Finding]:
    """The resources that a policy reads and this node does not have."""
    for name, capacity in (policy.spec.exposure or Exposure()).capacity.items():
        if capacity.value_from is not None:
            resource = capacity.value_from.node_allocatable
            what = f'node "{node.name}" does not have "{resource}" among its allocatable resources'
            yield Finding(what, path=(*_EXPOSURE, "capacity", name, "valueFrom", "nodeAllocatable"), code="ND1431")


def check_targets(policy: DeviceExposurePolicy) -> tuple[Finding, ...]:
    """The errors in the policy's choice of nodes and devices."""
    return (*check_devices(policy), *node_errors(("spec", "nodeSelector"), policy.spec.node_selector))


def check_devices(policy: DeviceExposurePolicy) -> tuple[Finding, ...]:
    """The errors in the policy's choice of devices."""
    return tuple(_selector_errors(policy))


def check_exposure(exposure: Exposure) -> tuple[Finding, ...]:
    """The errors in the policy's exposure."""
    return (
        *_suffix_errors(exposure.device_name_suffix),
        *_plugin_errors(exposure),
        *_capacity_errors(exposure),
        *additional.errors(exposure),
        *additional.room_errors(exposure),
        *(pooling_errors(exposure) if exposure.pooled_vfs is not None else sharing_errors(exposure)),
        *bandwidth_errors(exposure),
        *_keep_errors(exposure),
        *_health_errors(exposure),
    )


def _health_errors(exposure: Exposure) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, rule in enumerate(exposure.health):
        path: Path = (*_EXPOSURE, "health", index)
        if rule.name in seen:
            yield Finding(
                f'"{rule.name}" already exists', "give each rule a name of its own", (*path, "name"), code="ND1432"
            )
        seen.add(rule.name)
        if not is_known(rule.counter):
            hint = suggestions.hint(rule.counter, (*COUNTERS, f"{RDMA}symbol_error"))
            yield Finding(f'counter "{rule.counter}" is not known', hint, (*path, "counter"), code="ND1433")
        if rule.recover_below is not None and rule.recover_below > rule.at_least:
            what = f"recoverBelow {rule.recover_below} must be at most atLeast, {rule.at_least}"
            yield Finding(what, path=(*path, "recoverBelow"), code="ND1434")


def _selector_errors(policy: DeviceExposurePolicy) -> Iterator[Finding]:
    try:
        compile_selector(policy.spec.selector.cel)
    except CelCompileError as problem:
        yield Finding(problem.what, path=_SELECTOR, code=problem.code)


def try_out(expression: str) -> None:
    """Evaluate an expression on devices as large as nodes have them; its answers do not matter.

    For processes that can be ended: an expression that takes more than its bound is noticed there, and not first on
    every node.
    """
    selector = compile_selector(expression)
    for device in _trial_devices():
        with suppress(CelEvaluationError):
            selector.matches(device)


@cache
def _trial_devices() -> tuple[DeviceVariables, ...]:
    """An interface with few facts, and one with more than any node's."""
    word = "n" * 255
    made = (
        Interface(if_name="eth0", type="nic"),
        Interface(
            if_name="ens1f0v1",
            type="vf",
            mac="02:00:00:00:00:01",
            mtu=9000,
            pci_address="0000:03:00.1",
            pf_name="ens1f0",
            alias=word,
            alt_names=(word,) * 16,
            ipv4=("255.255.255.255/32",) * 256,
        ),
    )
    return tuple(device_variables(names.DRIVER, attributes(interface)) for interface in made)


def node_errors(path: Path, selector: LabelSelector | None) -> Iterator[Finding]:
    """The errors in a choice of nodes at a place, worded as the API server words them for label selectors."""
    for key, value in (selector.match_labels if selector else {}).items():
        yield from _label_errors((*path, "matchLabels"), key, (value,))
    for index, wanted in enumerate(selector.match_expressions if selector else ()):
        needs_values = wanted.operator in {"In", "NotIn"}
        if needs_values != bool(wanted.values):
            rule = "requires values" if needs_values else "must not have values"
            yield Finding(f"operator {wanted.operator} {rule}", path=(*path, "matchExpressions", index), code="ND1435")
        yield from _label_errors((*path, "matchExpressions", index), wanted.key, wanted.values)


def _label_errors(path: Path, key: str, values: Iterable[str]) -> Iterator[Finding]:
    """Keys and values that no label has."""
    if not names.is_label_key(key):
        rule = (
            f"it must have at most {names.MAX_LABEL} letters, digits, -, _ and ., optionally after a DNS domain and /"
        )
        yield Finding(f'"{key[:80]}" is not a valid label key; {rule}', path=path, code="ND1436")
    for value in values:
        if not names.is_label_value(value):
            rule = (
                f"it must have at most {names.MAX_LABEL} letters, digits, -, _ and ., and start and end "
                "with a letter or digit"
            )
            yield Finding(
                f'"{value[:80]}" of "{key[:80]}" is not a valid label value; {rule}', path=path, code="ND1437"
            )


def _suffix_errors(suffix: str) -> Iterator[Finding]:
    if suffix and (_SUFFIX.match(suffix) is None or len(suffix) > MAX_SUFFIX):
        rule = f"must have at most {MAX_SUFFIX} of a-z, 0-9 and -, and must not end with -"
        yield Finding(f'"{suffix}" {rule}', path=(*_EXPOSURE, "deviceNameSuffix"), code="ND1438")


def _plugin_errors(exposure: Exposure) -> Iterator[Finding]:
    plugins = exposure.supported_cni_plugins
    path: Path = (*_EXPOSURE, "supportedCNIPlugins")
    if len(plugins) > MAX_PLUGINS:
        yield Finding(f"{len(plugins)} plugins exceed the maximum of {MAX_PLUGINS}", path=path, code="ND1439")
    seen: set[str] = set()
    for index, plugin in enumerate(plugins):
        if _PLUGIN.match(plugin.name) is None:
            what = f'"{plugin.name}" must be the name of a plugin, e.g. macvlan'
            yield Finding(f"{what}: letters, digits, -, _ and ., no path", path=(*path, index, "name"), code="ND1440")
        if plugin.name in seen:
            yield Finding(
                f'"{plugin.name}" is listed twice', "remove one of them", (*path, index, "name"), code="ND1441"
            )
        seen.add(plugin.name)
        yield from _consumption_errors(exposure, plugin, (*path, index, "consumePerAllocation"))


def _keep_errors(exposure: Exposure) -> Iterator[Finding]:
    for index, pattern in enumerate(exposure.allowed_sysctls):
        try:
            sysctls.path(pattern.removesuffix("*") + ("x" if pattern.endswith("*") else ""))
        except InvalidInputError:
            what = f'"{pattern}" is not a setting below net'
            yield Finding(
                what,
                "write it as net.core.somaxconn or net.ipv4.tcp_*",
                (*_EXPOSURE, "allowedSysctls", index),
                code="ND1442",
            )
    for what, hint in faults(exposure.keep):
        yield Finding(what, hint, (*_EXPOSURE, "keep"), code="ND1443")
    moving = [plugin.name for plugin in exposure.supported_cni_plugins if plugin.name in KEEPING_TYPES]
    if exposure.keep and exposure.supported_cni_plugins and not moving:
        what = "keep has no effect, because no plugin in supportedCNIPlugins moves the device into the pod"
        yield Finding(
            what, f"list one of {', '.join(KEEPING_TYPES)}, or remove keep", (*_EXPOSURE, "keep"), code="ND1444"
        )
    if exposure.pooled_vfs is not None and exposure.allow_host_addresses:
        what = "allowHostAddresses is not supported with pooledVFs, which never contain a VF that the host uses"
        yield Finding(what, "remove one of the two", (*_EXPOSURE, "allowHostAddresses"), code="ND1445")


def _consumption_errors(exposure: Exposure, plugin: SupportedCNIPlugin, path: Path) -> Iterator[Finding]:
    for name, text in plugin.consume_per_allocation.items():
        place = (*path, name)
        yield from number_errors(place, text)
        capacity = exposure.capacity.get(name)
        if capacity is None:
            yield Finding(f'"{name}" not found in spec.exposure.capacity', path=place, code="ND1446")
            continue
        amount, value = number(text), number(capacity.value)
        if amount is not None and value is not None and amount > value:
            yield Finding(f"{text} exceeds the capacity of the device, {capacity.value}", path=place, code="ND1447")


def _capacity_errors(exposure: Exposure) -> Iterator[Finding]:
    seen: set[str] = set()
    for name, capacity in exposure.capacity.items():
        path: Path = (*_EXPOSURE, "capacity", name)
        yield from additional.name_errors(path, name)
        yield from value_errors(path, capacity)
        if names.qualified(name) in seen:
            yield Finding(
                f'"{name}" is set twice, with the domain {names.DRIVER} and without', path=path, code="ND1448"
            )
        seen.add(names.qualified(name))
