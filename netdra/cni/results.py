"""CNI results between text and `StepResult`, in every protocol version from 0.3.1 to 1.1.0. Used by `netdra.cni`.

Follows the CNI specification, "Section 5: Result Types", and the field lists of the earlier versions: up to 0.4.0 an
address carries its IP version; `mtu`, `socketPath` and `pciID` of interfaces and all but `dst` and `gw` of routes are
1.1.0's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

import msgspec

from netdra.model.errors import UNREADABLE
from netdra.model.result import CNIDNS, CNIAddress, CNIInterface, CNIRoute, StepDevice, StepResult

SUPPORTED_VERSIONS = ("0.3.1", "0.4.0", "1.0.0", "1.1.0")
CHECK_SINCE = "0.4.0"
STATUS_AND_GC_SINCE = "1.1.0"
_READABLE_VERSIONS = ("0.3.0", *SUPPORTED_VERSIONS)
_INTERFACE_FIELDS_BEFORE_1_1 = ("name", "mac", "sandbox")
_ROUTE_FIELDS_BEFORE_1_1 = ("dst", "gw")
# The limits of the API server for a claim's status (AllocatedDeviceStatus.networkData), and the kernel's longest path.
_LONGEST = {"name": 256, "mac": 128, "sandbox": 4096, "socket_path": 4096, "pci_id": 256}


class _Printed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The output of plugins; Go programs write null for absent values."""

    cni_version: str = ""
    interfaces: tuple[CNIInterface, ...] | None = None
    ips: tuple[CNIAddress, ...] | None = None
    routes: tuple[CNIRoute, ...] | None = None
    dns: CNIDNS | None = None
    devices: tuple[StepDevice, ...] | None = None


_decoder = msgspec.json.Decoder(_Printed)


def at_least(version: str, since: str) -> bool:
    """Whether a supported protocol version has what came with another one."""
    return SUPPORTED_VERSIONS.index(version) >= SUPPORTED_VERSIONS.index(since)


def parse(printed: bytes) -> StepResult:
    """The result that a plugin printed on ADD.

    Raises:
        ValueError: it is not a result: not JSON, of another shape or version, with addresses that are not valid or that
            point to an interface that is not in it.
    """
    if not printed.strip():
        raise ValueError("it printed no result")
    try:
        result = _decoder.decode(printed)
    except UNREADABLE as problem:
        raise ValueError(f"its result is invalid: {problem}") from None
    if result.cni_version and result.cni_version not in _READABLE_VERSIONS:
        raise ValueError(f"its result has the CNI version {result.cni_version!r}")
    interfaces = result.interfaces or ()
    for interface in interfaces:
        _check_interface(interface)
    for address in result.ips or ():
        _check_address(address, len(interfaces))
    for route in result.routes or ():
        _check_route(route)
    empty_dns = result.dns is None or result.dns == CNIDNS()
    return StepResult(
        interfaces=interfaces,
        ips=result.ips or (),
        routes=result.routes or (),
        dns=None if empty_dns else result.dns,
        devices=result.devices or (),
    )


def render(result: StepResult, version: str) -> dict[str, Any]:
    """A result as the `prevResult` of a plugin that speaks that version: without the fields that came later."""
    plain = result.as_prev_result(version)
    if at_least(version, "1.1.0"):
        return plain
    if "interfaces" in plain:
        plain["interfaces"] = [_only(entry, _INTERFACE_FIELDS_BEFORE_1_1) for entry in plain["interfaces"]]
    if "routes" in plain:
        plain["routes"] = [_only(entry, _ROUTE_FIELDS_BEFORE_1_1) for entry in plain["routes"]]
    if "ips" in plain and not at_least(version, "1.0.0"):
        plain["ips"] = [{"version": "6" if ":" in entry["address"] else "4", **entry} for entry in plain["ips"]]
    return plain


def _only(entry: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: entry[field] for field in fields if field in entry}


def _check_interface(interface: CNIInterface) -> None:
    """A text longer than any name, address or path is not one, and would fill statuses and checkpoints."""
    for field, most in _LONGEST.items():
        if len(getattr(interface, field)) > most:
            raise ValueError(f"the plugin's result contains an interface whose {field} has more than {most} characters")


def _check_address(address: CNIAddress, interfaces: int) -> None:
    try:
        ipaddress.ip_interface(address.address)
        if address.gateway:
            ipaddress.ip_address(address.gateway)
    except ValueError as problem:
        raise ValueError(f"the plugin's result contains an invalid address: {problem}") from None
    if address.interface is not None and not 0 <= address.interface < interfaces:
        raise ValueError(
            f"the plugin's result assigns {address.address} to interface {address.interface}, but "
            f"contains {interfaces} interfaces"
        )


def _check_route(route: CNIRoute) -> None:
    try:
        ipaddress.ip_interface(route.dst)
        if route.gw:
            ipaddress.ip_address(route.gw)
    except ValueError as problem:
        raise ValueError(f"the plugin's result contains an invalid route: {problem}") from None
