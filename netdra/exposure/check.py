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
from netdra.model import names, suggestions
from netdra.model.errors import sentence
from netdra.model.health import COUNTERS, RDMA, is_known
from netdra.model.inventory import Interface, InventoryNode, attributes
from netdra.model.kept import KEEPING_TYPES, faults
from netdra.model.meta import LabelSelector
from netdra.model.policy import MAX_PLUGINS, MAX_SUFFIX, DeviceExposurePolicy, Exposure, SupportedCNIPlugin

_PLUGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}\Z", re.ASCII)
_SUFFIX = re.compile(r"[a-z0-9-]*[a-z0-9]\Z", re.ASCII)


def check(policy: DeviceExposurePolicy) -> tuple[str, ...]:
    """The errors in a policy, each with its field; empty if the policy can be used."""
    exposure = policy.spec.exposure
    if policy.spec.action == "exclude":
        unused = ("spec.exposure: not supported with action: exclude",) if exposure else ()
        return (*check_targets(policy), *unused)
    exposure = exposure or Exposure()
    written = [
        text
        for name, capacity in exposure.capacity.items()
        for text in written_errors(f'spec.exposure.capacity["{name}"]', capacity)
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


def unread(policy: DeviceExposurePolicy, node: InventoryNode) -> Iterator[str]:
    """The resources that a policy reads and this node does not have."""
    for name, capacity in (policy.spec.exposure or Exposure()).capacity.items():
        if capacity.value_from is not None:
            path = f'spec.exposure.capacity["{name}"].valueFrom.nodeAllocatable'
            resource = capacity.value_from.node_allocatable
            yield f'{path}: node "{node.name}" does not have "{resource}" among its allocatable resources'


def check_targets(policy: DeviceExposurePolicy) -> tuple[str, ...]:
    """The errors in the policy's choice of nodes and devices."""
    return (*check_devices(policy), *node_errors("spec.nodeSelector", policy.spec.node_selector))


def check_devices(policy: DeviceExposurePolicy) -> tuple[str, ...]:
    """The errors in the policy's choice of devices."""
    return tuple(_selector_errors(policy))


def check_exposure(exposure: Exposure) -> tuple[str, ...]:
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


def _health_errors(exposure: Exposure) -> Iterator[str]:
    seen: set[str] = set()
    for place, rule in enumerate(exposure.health):
        path = f"spec.exposure.health[{place}]"
        if rule.name in seen:
            yield f'{path}.name: "{rule.name}" already exists; give each rule a name of its own'
        seen.add(rule.name)
        if not is_known(rule.counter):
            next_step = suggestions.hint(rule.counter, (*COUNTERS, f"{RDMA}symbol_error"))
            yield f'{path}.counter: counter "{rule.counter}" is not known; {next_step}'
        if rule.recover_below is not None and rule.recover_below > rule.at_least:
            yield f"{path}.recoverBelow: {rule.recover_below} must be at most atLeast, {rule.at_least}"


def _selector_errors(policy: DeviceExposurePolicy) -> Iterator[str]:
    try:
        compile_selector(policy.spec.selector.cel)
    except CelCompileError as problem:
        yield f"spec.selector.cel: {problem.what}"


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


def node_errors(path: str, selector: LabelSelector | None) -> Iterator[str]:
    """The errors in a choice of nodes, worded as the API server words them for label selectors."""
    for key, value in (selector.match_labels if selector else {}).items():
        yield from _label_errors(f"{path}.matchLabels", key, (value,))
    for index, wanted in enumerate(selector.match_expressions if selector else ()):
        needs_values = wanted.operator in {"In", "NotIn"}
        if needs_values != bool(wanted.values):
            rule = "requires values" if needs_values else "must not have values"
            yield f"{path}.matchExpressions[{index}]: operator {wanted.operator} {rule}"
        yield from _label_errors(f"{path}.matchExpressions[{index}]", wanted.key, wanted.values)


def _label_errors(path: str, key: str, values: Iterable[str]) -> Iterator[str]:
    """Keys and values that no label has."""
    if not names.is_label_key(key):
        rule = (
            f"it must have at most {names.MAX_LABEL} letters, digits, -, _ and ., optionally after a DNS domain and /"
        )
        yield f'{path}: "{key[:80]}" is not a valid label key; {rule}'
    for value in values:
        if not names.is_label_value(value):
            rule = (
                f"it must have at most {names.MAX_LABEL} letters, digits, -, _ and ., and start and end "
                "with a letter or digit"
            )
            yield f'{path}: "{value[:80]}" of "{key[:80]}" is not a valid label value; {rule}'


def _suffix_errors(suffix: str) -> Iterator[str]:
    if suffix and (_SUFFIX.match(suffix) is None or len(suffix) > MAX_SUFFIX):
        rule = f"must have at most {MAX_SUFFIX} of a-z, 0-9 and -, and must not end with -"
        yield f'spec.exposure.deviceNameSuffix: "{suffix}" {rule}'


def _plugin_errors(exposure: Exposure) -> Iterator[str]:
    plugins = exposure.supported_cni_plugins
    path = "spec.exposure.supportedCNIPlugins"
    if len(plugins) > MAX_PLUGINS:
        yield f"{path}: {len(plugins)} plugins, more than {MAX_PLUGINS}"
    seen: set[str] = set()
    for plugin in plugins:
        if _PLUGIN.match(plugin.name) is None:
            yield f'{path}: "{plugin.name}" is not a valid CNI plugin name'
        if plugin.name in seen:
            yield f'{path}: "{plugin.name}" is listed twice'
        seen.add(plugin.name)
        yield from _consumption_errors(exposure, plugin)


def _keep_errors(exposure: Exposure) -> Iterator[str]:
    for what, hint in faults(exposure.keep):
        yield sentence(f"spec.exposure.keep: {what}", hint)
    moving = [plugin.name for plugin in exposure.supported_cni_plugins if plugin.name in KEEPING_TYPES]
    if exposure.keep and exposure.supported_cni_plugins and not moving:
        yield (
            "spec.exposure.keep: has no effect, because no plugin in supportedCNIPlugins moves the "
            f"device into the pod; list one of {', '.join(KEEPING_TYPES)}, or remove keep"
        )
    if exposure.pooled_vfs is not None and exposure.allow_host_addresses:
        yield (
            "spec.exposure.allowHostAddresses: not supported with pooledVFs, which never contain a VF "
            "that the host uses; remove one of the two"
        )


def _consumption_errors(exposure: Exposure, plugin: SupportedCNIPlugin) -> Iterator[str]:
    for name, text in plugin.consume_per_allocation.items():
        path = f'spec.exposure.supportedCNIPlugins["{plugin.name}"].consumePerAllocation["{name}"]'
        yield from number_errors(path, text)
        capacity = exposure.capacity.get(name)
        if capacity is None:
            yield f"{path}: not found in spec.exposure.capacity"
            continue
        amount, value = number(text), number(capacity.value)
        if amount is not None and value is not None and amount > value:
            yield f"{path}: {text} exceeds the capacity of the device, {capacity.value}"


def _capacity_errors(exposure: Exposure) -> Iterator[str]:
    seen: set[str] = set()
    for name, capacity in exposure.capacity.items():
        path = f'spec.exposure.capacity["{name}"]'
        yield from additional.name_errors(path, name)
        yield from value_errors(path, capacity)
        if names.qualified(name) in seen:
            yield f"{path}: set twice, with the domain {names.DRIVER} and without"
        seen.add(names.qualified(name))
