"""The results of several dependencies as one `prevResult` (decision D9). Used by `netdra.chain` before each step.

Like list concatenation in the order of `dependOn`, but an entry that comes along two ways (the top of a diamond) is
there once, at its first place. Merging is associative, so a result may itself be a merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from netdra.model.errors import InvalidInputError
from netdra.model.result import CNIDNS, CNIAddress, CNIInterface, StepResult

T = TypeVar("T")


def merge(results: Sequence[StepResult]) -> StepResult:
    """One result for many: a single one as it is, none as the empty result.

    Interfaces with the same name and sandbox are one; addresses, routes and devices are one if all their fields agree.
    `ips[].interface` counts in the merged list of interfaces.

    Raises:
        InvalidInputError: an address names an interface that its result does not have.
    """
    if len(results) < 2:
        return results[0] if results else StepResult()
    interfaces: dict[tuple[str, str], CNIInterface] = {}
    for result in results:
        for interface in result.interfaces:
            interfaces.setdefault((interface.name, interface.sandbox), interface)
    places = {key: place for place, key in enumerate(interfaces)}
    return StepResult(
        interfaces=tuple(interfaces.values()),
        ips=_once(_placed(address, result, places) for result in results for address in result.ips),
        routes=_once(route for result in results for route in result.routes),
        dns=_merge_dns([result.dns for result in results if result.dns is not None]),
        devices=_once(device for result in results for device in result.devices),
    )


def _placed(address: CNIAddress, result: StepResult, places: dict[tuple[str, str], int]) -> CNIAddress:
    """An address with its interface's place in the merged list."""
    if address.interface is None:
        return address
    if not 0 <= address.interface < len(result.interfaces):
        raise InvalidInputError(
            f"address {address.address} is on interface {address.interface} of a result "
            f"that has {len(result.interfaces)}",
            hint="report it to the authors of the plugin: CNI counts a result's interfaces from 0",
            code="ND1298",
        )
    interface = result.interfaces[address.interface]
    return msgspec.structs.replace(address, interface=places[interface.name, interface.sandbox])


def _merge_dns(all_dns: Sequence[CNIDNS]) -> CNIDNS | None:
    if not all_dns:
        return None
    return CNIDNS(
        nameservers=_once(server for dns in all_dns for server in dns.nameservers),
        domain=next((dns.domain for dns in all_dns if dns.domain), ""),
        search=_once(domain for dns in all_dns for domain in dns.search),
        options=_once(option for dns in all_dns for option in dns.options),
    )


def _once(entries: Iterable[T]) -> tuple[T, ...]:
    """The entries without repetitions, in order."""
    return tuple(dict.fromkeys(entries))
