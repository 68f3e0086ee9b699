"""The errors of a topology's step by itself: in its name, its type, its reserved keys, its kind of step.

`netdra.topology.graph` asks for them first, before it inspects how the steps depend on each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from netdra.model import names
from netdra.model.findings import Finding, Path, about, of_step, quoted
from netdra.model.kept import KEEPING_TYPES, faults
from netdra.model.pod_network import SLAAC_TYPE
from netdra.model.topology import BUILTIN_TYPES, WITHOUT_NETDEV, Step, is_autoconfigured
from netdra.topology import address_request, neutron_request
from netdra.topology.references import PARAMETERS

RESERVED_KEYS = ("cniVersion", "type", "prevResult")
"""Keys of a CNI configuration that netdra itself writes, so a step's config must not."""

_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")


def examine_step(topology: str, at: int, step: Step) -> Iterator[Finding]:
    """The errors in a step by itself.

    Args:
        topology: the topology's name.
        at: the step's place in `spec.steps`.
    """
    path = ("spec", "steps", at)
    shown = shown_name(step.name)
    if not names.is_label(step.name):
        yield about(
            topology,
            shown,
            "the name is not a DNS label",
            hint=f"use at most {names.MAX_LABEL} lower-case letters, digits and dashes",
            path=(*path, "name"),
            code="ND1352",
        )
    if step.name == PARAMETERS:
        yield about(
            topology, shown, "the name stands for the topology's parameters", path=(*path, "name"), code="ND1353"
        )
    if not is_plugin_name(step.type):
        yield about(
            topology,
            shown,
            f"type {quoted(step.type)} is not a valid CNI plugin name",
            hint=plugin_name_hint(step.type),
            path=(*path, "type"),
            code="ND1354",
        )
    if step.network and not names.is_label(step.network):
        what = f"network {quoted(step.network)} is not a DNS label"
        hint = f"use at most {names.MAX_LABEL} lower-case letters, digits and dashes"
        yield about(topology, shown, what, hint=hint, path=(*path, "network"), code="ND1355")
    for key in RESERVED_KEYS:
        if key in step.config:
            yield about(
                topology,
                shown,
                f"config.{key} is written by netdra",
                hint="remove it",
                path=(*path, "config", key),
                code="ND1356",
            )
    yield from _root_or_derived(topology, shown, step, path)
    yield from of_step(neutron_request.examine(step), topology, shown, *path)
    yield from of_step(address_request.examine(step), topology, shown, *path)
    yield from of_step(_autoconfiguration(step), topology, shown, *path)
    yield from of_step(_keep(step), topology, shown, *path)


def _autoconfiguration(step: Step) -> Iterator[Finding]:
    """The errors in a request for the addresses of routers; paths begin in the step."""
    if not is_autoconfigured(step.config):
        return
    place: Path = ("config", "ipam", "type")
    if not step.is_builtin:
        other = "a step with execution Binary" if step.type in BUILTIN_TYPES else f'plugin "{step.type}"'
        hint = 'add a step of type "tuning" with this ipam on its interface'
        yield Finding(f'ipam "{SLAAC_TYPE}" is carried out by netdra, not by {other}', hint, place, code="ND1357")
    elif step.type in WITHOUT_NETDEV:
        yield Finding(
            f'ipam "{SLAAC_TYPE}" requires a network interface, which type "{step.type}" does not have',
            "remove ipam",
            place,
            code="ND1358",
        )


def _keep(step: Step) -> Iterator[Finding]:
    """The errors in the choice of configuration that the device keeps; paths begin in the step."""
    keep = step.keep
    if keep is None:
        return
    if not step.is_root:
        hint = "move it to the step of the device that this one stands on"
        yield Finding(
            "only a step without dependOn has a device that can keep anything", hint, ("keep",), code="ND1359"
        )
    elif step.type not in KEEPING_TYPES or not step.is_builtin:
        other = f"type {quoted(step.type)}" if step.type not in KEEPING_TYPES else "execution Binary"
        what = f"keep goes with steps of type {', '.join(KEEPING_TYPES)} that netdra carries out, not with {other}"
        yield Finding(what, "remove keep", ("keep",), code="ND1360")
    for what, hint in faults(keep):
        yield Finding(f"keep: {what}", hint, ("keep",), code="ND1361")
    addressed = [word for word in ("addresses", "routes", "rules") if word in keep]
    if addressed and step.config.get("ipam"):
        hint = f"remove config.ipam, or {', '.join(addressed)} from keep"
        yield Finding(
            f"keep: {addressed[0]} do not go with config.ipam: both give the interface its own",
            hint,
            ("keep",),
            code="ND1362",
        )
    if addressed and step.neutron is not None:
        hint = f"remove {', '.join(addressed)} from keep"
        yield Finding(
            f"keep: {addressed[0]} do not go with neutron: addresses are the port's", hint, ("keep",), code="ND1363"
        )
    if "mtu" in keep and step.config.get("mtu") is not None:
        hint = "remove config.mtu, or mtu from keep"
        yield Finding("keep: mtu does not go with config.mtu, which changes it", hint, ("keep",), code="ND1364")


def _root_or_derived(topology: str, shown: str, step: Step, path: Path) -> Iterator[Finding]:
    if step.is_root and step.selector is None:
        yield about(
            topology,
            shown,
            "a step without dependOn is an allocated device and needs a selector",
            hint="add selector.cel, or the steps that it depends on",
            path=path,
            code="ND1365",
        )
    if not step.is_root and step.selector is not None:
        yield about(
            topology,
            shown,
            "a step with dependOn is not allocated, so its selector would select nothing",
            hint="remove the selector or dependOn",
            path=(*path, "selector"),
            code="ND1366",
        )
    resource = step.extended_resource_name
    if resource and not step.is_root:
        yield about(
            topology,
            shown,
            "only a step without dependOn can have an extendedResourceName",
            path=(*path, "extendedResourceName"),
            code="ND1367",
        )
    if resource and not names.is_extended_resource(resource):
        yield about(
            topology,
            shown,
            f"extendedResourceName {quoted(resource)} is not a valid name of an extended resource",
            hint='write "<domain>/<name>" with a domain other than kubernetes.io',
            path=(*path, "extendedResourceName"),
            code="ND1368",
        )


def is_plugin_name(text: str) -> bool:
    """Whether a text can be the name of a program in the CNI path: no path, and no sign outside of ASCII."""
    return _TYPE.match(text) is not None and ".." not in text


def plugin_name_hint(text: str) -> str:
    """The next step for a text that is not a plugin's name; of a path, the last part may be one."""
    name = text.rpartition("/")[2]
    hint = "a type is the name of a program in the CNI path: no slash, no path"
    if name != text and is_plugin_name(name):
        hint = f"write the program's name alone: {name}"
    return hint


def shown_name(name: str) -> str:
    """A topology's or step's name for an error, also if it is not valid."""
    return name if names.is_subdomain(name) else quoted(name)[1:-1]
