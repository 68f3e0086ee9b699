"""The configuration that a plugin reads on stdin, and the environment beside it. Used by `netdra.cni.protocol`.

Follows the CNI specification, "Section 2" (parameters) and "Section 3: Deriving request configuration".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from netdra.cni.plugins import PluginPath
from netdra.cni.results import render
from netdra.model.errors import InvalidInputError
from netdra.model.result import StepResult

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z", re.ASCII)
MAX_NETWORK_NAME = 255
MAX_IF_NAME = 15
"""Bytes: IFNAMSIZ of include/uapi/linux/if.h, without the NUL at the end."""
_RUNTIME_CONFIG = "runtimeConfig"
_NOT_IN_IF_NAME = re.compile(r"[\s/:%\0]")
_NOT_IN_ARGUMENT = re.compile(r"[;\0\n]")
VALID_ATTACHMENTS = "cni.dev/valid-attachments"


class Attachment(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One interface of one container on one network: what CNI_CONTAINERID, _NETNS, _IFNAME and _ARGS state.

    `netns` is "" where the namespace is gone; `arguments` are the pairs of CNI_ARGS.
    """

    container_id: str
    if_name: str
    netns: str = ""
    arguments: Mapping[str, str] = {}


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A plugin's own configuration, with the runtime's additions for an allocated device.

    Attributes:
        network: the network's name, `name` on the wire.
        type: the plugin's name.
        config: the step's parameters; a `name` in them is the interface's and is not passed on.
        device_id: the PCI address of the allocated device, or "".
    """

    network: str
    type: str
    config: Mapping[str, Any] = {}
    device_id: str = ""


def check_attachment(attachment: Attachment) -> None:
    """Refuse what a plugin would have to refuse.

    Raises:
        InvalidInputError: the container id, the interface's name or an argument breaks the specification's rule.
    """
    if not _IDENTIFIER.match(attachment.container_id):
        raise InvalidInputError(
            f"sandbox ID {attachment.container_id[:200]!r} is not a valid CNI container ID",
            hint="an ID consists of ASCII letters, digits, '_', '.' and '-', and starts with a letter or digit",
            code="ND2248",
        )
    check_if_name(attachment.if_name)
    if "\0" in attachment.netns:
        raise InvalidInputError(f"namespace path {attachment.netns!r} is not a valid path", code="ND2249")
    for key, value in attachment.arguments.items():
        if not key or "=" in key or _NOT_IN_ARGUMENT.search(key) or _NOT_IN_ARGUMENT.search(value):
            raise InvalidInputError(
                f"CNI argument {key!r}={value!r} contains characters that CNI_ARGS does not support", code="ND2250"
            )


def check_network_name(name: str) -> None:
    """Reject network names that the specification does not allow; IPAM plugins name folders by them.

    Raises:
        InvalidInputError: the name is not valid.
    """
    if len(name) > MAX_NETWORK_NAME or not _IDENTIFIER.match(name):
        raise InvalidInputError(
            f"{name[:MAX_NETWORK_NAME]!r} is not a valid network name",
            hint=f"it must have 1 to {MAX_NETWORK_NAME} ASCII letters, digits, '_', '.' and '-', and start "
            "with a letter or digit",
            code="ND2251",
        )


def check_if_name(name: str) -> None:
    """Refuse what the kernel would refuse as an interface's name (dev_valid_name in net/core/dev.c).

    Raises:
        InvalidInputError: the name cannot be an interface's.
    """
    too_long = len(name.encode(errors="surrogateescape")) > MAX_IF_NAME
    if not name or too_long or name in {".", ".."} or _NOT_IN_IF_NAME.search(name):
        raise InvalidInputError(
            f"{name!r} is not a valid interface name",
            hint=f"it must have 1 to {MAX_IF_NAME} bytes, without white space and any of / : %",
            code="ND2252",
        )


def request(network: NetworkConfig, version: str, previous: StepResult | None) -> dict[str, Any]:
    """The configuration of one ADD, DEL or CHECK.

    Raises:
        InvalidInputError: `runtimeConfig` is not an object, so the device cannot be determined in it.
    """
    derived = {key: value for key, value in network.config.items() if key != "capabilities"}
    derived |= {"cniVersion": version, "name": network.network, "type": network.type}
    if network.device_id:
        given = derived.get(_RUNTIME_CONFIG) or {}
        if not isinstance(given, Mapping):
            raise InvalidInputError(
                f'network "{network.network}": {_RUNTIME_CONFIG} {str(given)[:80]!r} is not an object', code="ND2253"
            )
        derived["deviceID"] = network.device_id
        derived[_RUNTIME_CONFIG] = {**given, "deviceID": network.device_id}
    if previous is not None:
        derived["prevResult"] = render(previous, version)
    return derived


def collection_request(network: NetworkConfig, version: str, valid: Iterable[Attachment]) -> dict[str, Any]:
    """The configuration of one GC: what is still attached to the network."""
    attachments = [{"containerID": attachment.container_id, "ifname": attachment.if_name} for attachment in valid]
    return {**request(network, version, None), VALID_ATTACHMENTS: attachments}


def environment(verb: str, where: PluginPath, attachment: Attachment | None) -> dict[str, str]:
    """The environment of a plugin: this process's own, as every runtime passes it on, with the CNI parameters."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("CNI_")}
    variables |= {"CNI_COMMAND": verb, "CNI_PATH": ":".join(where.directories)}
    if attachment is not None:
        variables |= {
            "CNI_CONTAINERID": attachment.container_id,
            "CNI_NETNS": attachment.netns,
            "CNI_IFNAME": attachment.if_name,
            "CNI_ARGS": ";".join(f"{key}={value}" for key, value in attachment.arguments.items()),
        }
    return variables
