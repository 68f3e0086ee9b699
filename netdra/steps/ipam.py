"""IPAM of built-in steps: any step may carry `ipam`, and delegates to its plugin as the CNI specification states.

Called by `builtin`: ADD after the step has made its interface, DEL before it is undone, with the whole config of the
step on stdin. The lease is released on every path, since DEL needs nothing but the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from netdra.cni import protocol
from netdra.cni.config import Attachment, NetworkConfig
from netdra.cni.errors import PluginError
from netdra.cni.plugins import PluginPath
from netdra.cni.protocol import ReadyPlugin
from netdra.kernel import link
from netdra.model.errors import InvalidInputError
from netdra.model.result import StepResult
from netdra.model.topology import is_autoconfigured
from netdra.steps import addressing
from netdra.steps.addressing import AddedAddressing
from netdra.steps.contract import Order, Site

MIN_TIMEOUT = 0.5


class IpamLease(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The data for releasing a lease; `added` is known once the plugin has answered."""

    plugin: str
    network: str
    if_name: str
    type: str
    config: Mapping[str, Any]
    added: AddedAddressing | None = None


def wanted(order: Order) -> IpamLease | None:
    """The lease that a step's config asks for, or None; addresses of routers are not leased (`slaac`).

    Raises:
        InvalidInputError: `ipam` names no plugin.
    """
    section = order.config.get("ipam")
    if not section or is_autoconfigured(order.config):
        return None
    plugin = section.get("type") if isinstance(section, Mapping) else None
    if not isinstance(plugin, str) or not plugin:
        raise InvalidInputError(
            f"{order.called}: ipam names no plugin", hint='give it a type, such as "host-local"', code="ND2035"
        )
    return IpamLease(plugin=plugin, network=order.network, if_name=order.if_name, type=order.type, config=order.config)


def find(lease: IpamLease, plugins: PluginPath, timeout: float, lock: int = -1) -> ReadyPlugin:
    """The lease's plugin.

    Raises:
        InvalidInputError: its name is not valid.
        PluginError: it is missing or does not answer.
    """
    return protocol.find(lease.plugin, plugins, timeout=timeout, lock=lock)


def add(lease: IpamLease, result: StepResult, site: Site, *, default_route: bool) -> tuple[IpamLease, StepResult]:
    """Take a lease: return it with the addresses and routes for the interface, and the plugin's result.

    Args:
        lease: the lease.
        result: the step's result so far.
        site: where; gets a note on each default route that is left out.
        default_route: see `Order`.

    Raises:
        PluginError: the plugin failed; release the lease anyway.
        InvalidInputError: it gave no address.
    """
    plugin = find(lease, site.plugins, site.remaining(), site.lock)
    leased = protocol.add(plugin, network(lease), _attachment(lease, site), result, site.remaining())
    if not leased.ips:
        raise InvalidInputError(
            f'IPAM plugin "{lease.plugin}" gave no address for network "{lease.network}"', code="ND2036"
        )
    if not default_route:
        leased, notes = addressing.without_defaults(leased, f'IPAM plugin "{lease.plugin}"')
        site.notes.extend(notes)
    added = addressing.ahead(addressing.from_ipam(leased, lease.if_name), site.inside)
    return msgspec.structs.replace(lease, added=added), leased


def configure(added: AddedAddressing, site: Site) -> None:
    """Put leased addresses and routes on the interface; a step without an interface has them in its result alone.

    Raises:
        KernelError: the kernel refused one.
    """
    netdev = link.find(site.inside.sock, added.if_name)
    if netdev is not None:
        addressing.add(added, netdev.index, site.inside)


def release(lease: IpamLease, site: Site) -> None:
    """Take leased addresses off the interface, and give the lease back; twice is not an error.

    Raises:
        PluginError: the plugin failed.
        KernelError: the kernel refused.
    """
    if lease.added is not None:
        addressing.remove(lease.added, site)
    timeout = max(site.remaining(), MIN_TIMEOUT)
    plugin = find(lease, site.plugins, timeout, site.lock)
    protocol.delete(plugin, network(lease), _attachment(lease, site), None, timeout)


def check(lease: IpamLease, final: StepResult, site: Site) -> tuple[str, ...]:
    """Whether the plugin still knows the lease."""
    plugin = find(lease, site.plugins, site.remaining())
    if not protocol.can_check(plugin):
        return ()
    try:
        protocol.check(plugin, network(lease), _attachment(lease, site), final, site.remaining())
    except PluginError as problem:
        if not problem.failure.is_unimplemented:
            return (problem.what,)
    return ()


def network(lease: IpamLease) -> NetworkConfig:
    """The configuration that the lease's plugin is given: the step's own."""
    return NetworkConfig(network=lease.network, type=lease.type, config=lease.config)


def _attachment(lease: IpamLease, site: Site) -> Attachment:
    return Attachment(
        container_id=site.container_id,
        if_name=lease.if_name,
        netns=site.pod.path if site.pod is not None else "",
        arguments=site.arguments,
    )
