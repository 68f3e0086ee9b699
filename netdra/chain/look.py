"""The drift of a binary's interfaces from its result, asked of the kernel and not of the plugin (decision D27).

Called by `netdra.chain.execute` on check: many plugins have a CHECK that does nothing, or reports that it is not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from netdra.chain.flow import ChainStep
from netdra.chain.programs import ON_A_MASTER
from netdra.kernel import link, pci
from netdra.kernel.link import HERE, Link
from netdra.model.errors import PermanentError
from netdra.model.result import CNIInterface, StepResult
from netdra.steps.contract import Site
from netdra.steps.devices import USERSPACE_DRIVERS
from netdra.steps.drift import check_values


class UncheckableError(PermanentError):
    """A step cannot be checked."""


def own_interfaces(task: ChainStep, given: StepResult, own: StepResult) -> tuple[CNIInterface, ...]:
    """The interfaces that a step made, and the one of its name: it only hands on all others."""
    return tuple(
        interface
        for interface in own.interfaces
        if interface not in given.interfaces or interface.name == task.step.if_name
    )


def drift(
    task: ChainStep, config: Mapping[str, Any], interfaces: Iterable[CNIInterface], expected: StepResult, site: Site
) -> tuple[str, ...]:
    """The step's interfaces that are not there, or not as the results have them, in words.

    Args:
        task: the step.
        config: its config, without references.
        interfaces: the step's own interfaces.
        expected: all interfaces as in the result of the step that changed them last.
        site: where.

    Raises:
        UncheckableError: a userspace driver has the device, so no interface can be checked.
        KernelError: the kernel refused.
    """
    drifted: list[str] = []
    for interface in interfaces:
        if (
            interface.sandbox == site.inside.path
        ):  # one without a sandbox would be the host's, and some plugins forget it
            drifted += _of_interface(task, config, interface.name, expected, site)
    return tuple(drifted)


def _of_interface(
    task: ChainStep, config: Mapping[str, Any], name: str, expected: StepResult, site: Site
) -> Iterator[str]:
    there = link.find(site.inside.sock, name)
    if there is None:
        _check_has_interface(task, name, site)
        yield f'interface "{name}" does not exist'
        return
    yield from check_values(there, expected, site)
    if name == task.step.if_name:
        yield from _of_master(task, config, there, site)
        yield from _of_members(config, there, site)


def _check_has_interface(task: ChainStep, name: str, site: Site) -> None:
    address = task.step.device.pci_address if task.step.device is not None else ""
    driver = pci.driver_of(site.sysfs, address) if address else ""
    if driver in USERSPACE_DRIVERS:
        raise UncheckableError(
            f'its result contains interface "{name}", but {address} is bound to driver {driver}; the '
            "interface cannot be checked",
            code="ND2122",
        )


def _of_master(task: ChainStep, config: Mapping[str, Any], made: Link, site: Site) -> Iterator[str]:
    """Whether an interface that was made on another one of the pod still stands on it."""
    master = config.get("master")
    in_pod = bool(task.after) or config.get("linkInContainer") is True
    if not in_pod or made.kind not in ON_A_MASTER or not isinstance(master, str) or not master:
        return
    lower = link.find(site.inside.sock, master)
    if lower is None:
        yield f'interface "{master}", the lower interface of "{made.name}", does not exist'
    elif not _stands_on(made, lower):
        yield f'interface "{made.name}" is not on top of "{master}"'


def _stands_on(made: Link, lower: Link) -> bool:
    """Whether a link stands on another one, or beside one of its own kind, on the link below both.

    macvlan_common_newlink() in drivers/net/macvlan.c and ipvlan_link_new() in drivers/net/ipvlan/ipvlan_main.c make a
    link that is asked for on one of its own kind on the link below that one.
    """
    if made.lower_netns == HERE and made.lower == lower.index:
        return True
    return made.kind == lower.kind and (made.lower, made.lower_netns) == (lower.lower, lower.lower_netns)


def _of_members(config: Mapping[str, Any], made: Link, site: Site) -> Iterator[str]:
    """Whether the links that a bond was made of are still in it."""
    listed = config.get("links")
    if made.kind != "bond" or not isinstance(listed, list | tuple):
        return
    for entry in listed:
        name = entry.get("name") if isinstance(entry, Mapping) else entry
        if not isinstance(name, str) or not name:
            continue
        member = link.find(site.inside.sock, name)
        if member is None:
            yield f'interface "{name}" of bond "{made.name}" does not exist'
        elif member.master != made.index:
            yield f'interface "{name}" is not in bond "{made.name}"'
