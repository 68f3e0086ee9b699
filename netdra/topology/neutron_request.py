"""A root step's request to Neutron, with parameters that a claim may give: checked when written, filled when bound.

Neutron is asked before any step runs, so a request has no results of steps in it, only values of parameters. Called
by `step_check` for the request beside the step's config, by `graph` for its references, by `netdra.rules` with each
value that a claim may give, and by `bind` with the claim's values. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from netdra.model import texts
from netdra.model.findings import Finding, Path, dotted, quoted
from netdra.model.topology import NeutronRequest, Step
from netdra.topology import references, values
from netdra.topology.references import Reference
from netdra.topology.values import ConfigError

TYPE = "sriov"
"""The type of steps whose devices can have a port; netdra itself must carry them out."""
MAX_TEXT = 255
"""Signs of a name of Neutron's (`NAME_FIELD_SIZE`)."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}\Z")
_IDS = ("securityGroups", "qosPolicy", "port")
_VLAN = "the VLAN is the network's: choose the network by neutron.network"
_RATE = "rates are those of a QoS policy: neutron.qosPolicy, or that of the network"
_OF_THE_PORT: Mapping[str, str] = {
    **dict.fromkeys(("vlan", "vlanQoS", "qos", "vlanProto", "proto"), _VLAN),
    **dict.fromkeys(("minTxRate", "min_tx_rate", "maxTxRate", "max_tx_rate"), _RATE),
    **dict.fromkeys(("linkState", "link_state"), "the link is down where the port is: openstack port set --disable"),
    "mac": "the MAC address is the port's: make a port that has it, and name it by neutron.port",
    "mtu": "the MTU is the network's: openstack network set --mtu",
    "spoofchk": "it follows port security: openstack port set --disable-port-security",
    "trust": "it is the port's: openstack port set --binding-profile trusted=true, and name it by neutron.port",
    "ipam": "addresses are the port's: choose them by neutron.subnet or neutron.fixedIPs",
}
"""Keys of a step's config that the port decides, and where to set them instead."""
_OF_RUNTIMES: Mapping[str, str] = {
    "mac": _OF_THE_PORT["mac"], "ips": _OF_THE_PORT["ipam"], "bandwidth": _RATE, "ipRanges": _OF_THE_PORT["ipam"]
}  # fmt: skip


def examine(step: Step) -> Iterator[Finding]:
    """The errors in a step's request beside the rest of the step; paths begin in the step."""
    request = step.neutron
    if request is None:
        return
    if not step.is_root:
        hint = "move it to the step of the VF that this one stands on"
        yield Finding(
            "only a step without dependOn has a VF, and so a port of Neutron", hint, ("neutron",), code="ND1303"
        )
    elif step.type != TYPE:
        what = f"neutron goes with type {TYPE} alone, not with {quoted(step.type)}"
        yield Finding(what, "a port of Neutron is a VF's", ("neutron",), code="ND1304")
    elif not step.is_builtin:
        what = "neutron does not go with execution Binary: the program sets a VF up from its config alone"
        yield Finding(what, "leave execution out", ("neutron",), code="ND1305")
    given = [key for key in _plain(request) if key != "port"]
    if request.port and given:
        what = f"port does not go with {', '.join(given)}: a port that is there has them"
        yield Finding(what, f"leave out either port or {', '.join(given)}", ("neutron", "port"), code="ND1306")
    yield from _beside(step.config)
    for field, texts_of in (("securityGroups", request.security_groups or ()), ("fixedIPs", request.fixed_ips)):
        for at, text in enumerate(texts_of):
            if text in texts_of[:at]:
                yield Finding(
                    f"{field} has {quoted(text)} twice", "remove one of them", ("neutron", field, at), code="ND1307"
                )


def check(request: NeutronRequest) -> Iterator[Finding]:
    """Texts that Neutron would not take for an id, name or address; texts that still have references pass."""
    for path, text in values.strings(_plain(request)):
        place = ("neutron", *path)
        called = dotted(path, "")[1:]
        if "{{" in text:
            continue
        if not text or len(text) > MAX_TEXT or not text.isprintable():
            hint = f"1 to {MAX_TEXT} signs that can be printed; leave out what Neutron is to choose"
            yield Finding(f"{called} {quoted(text)} is neither a name nor an ID", hint, place, code="ND1308")
        elif path[0] == "fixedIPs" and not texts.fits(text, "ip"):
            yield Finding(
                f"{called} {quoted(text)} is not {texts.EXPECTED['ip']}",
                texts.instead(text, "ip"),
                place,
                code="ND1309",
            )
        elif path[0] in _IDS and _UUID.match(text) is None:
            shown = {"securityGroups": "security group", "qosPolicy": "network qos policy", "port": "port"}[
                str(path[0])
            ]
            yield Finding(
                f"{called} {quoted(text)} is not an ID", f"see it by `openstack {shown} list`", place, code="ND1310"
            )


def find(request: NeutronRequest) -> list[tuple[Path, Reference]]:
    """All references in a request, with the path of the text that they are in.

    Raises:
        ConfigError: the text between braces is not a reference; the error names the path.
    """
    pairs: list[tuple[Path, Reference]] = []
    for path, text in values.strings(_plain(request)):
        try:
            parts = references.parse(text)
        except ConfigError as problem:
            raise ConfigError(
                f"{dotted(path, 'neutron')}: {problem.what}", hint=problem.hint, code=problem.code
            ) from None
        pairs += [(path, part) for part in parts if isinstance(part, Reference)]
    return pairs


def fill(request: NeutronRequest, given: Mapping[str, Any]) -> NeutronRequest:
    """A request in which the parameters that have a value are replaced; a list becomes items of the list it is in.

    Raises:
        ConfigError: a reference is malformed.
    """
    filled = references.fill(_plain(request), given)
    flat = {key: [*_flat(value)] if isinstance(value, list) else value for key, value in filled.items()}
    return msgspec.convert({**flat, "assignAddresses": request.assign_addresses}, NeutronRequest)


def misfit(path: Path, kind: str) -> str:
    """Why no parameter of a type may stand at a place of a request; "" if one may."""
    if kind == "string" or (kind == "[]string" and len(path) > 1):
        return ""
    return "let it be a text" + (", or a list of texts" if len(path) > 1 else "")


def _plain(request: NeutronRequest) -> dict[str, Any]:
    """The texts of a request, by the names that they are written with."""
    built = msgspec.to_builtins(request)
    return {key: value for key, value in built.items() if key != "assignAddresses"}


def _flat(items: Sequence[Any]) -> Iterator[str]:
    for item in items:
        yield from item if isinstance(item, list) else (item,)


def _beside(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Keys of a config that the port decides."""
    for key, instead in _OF_THE_PORT.items():
        if config.get(key) not in (None, {}):
            yield Finding(f"config.{key} does not go with neutron", instead, ("config", key), code="ND1311")
    given = config.get("runtimeConfig")
    for key, instead in _OF_RUNTIMES.items():
        if isinstance(given, Mapping) and given.get(key) is not None:
            yield Finding(
                f"config.runtimeConfig.{key} does not go with neutron",
                instead,
                ("config", "runtimeConfig", key),
                code="ND1312",
            )
