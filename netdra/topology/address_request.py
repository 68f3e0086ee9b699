"""A step whose addresses come from a PodNetwork: the errors in it, and the addresses that a claim requests. Pure.

Called by `step_check` for `ipam: {type: network}`, and by the controller for the steps of an allocated claim. Addresses
are assigned before any step runs and wherever the pod is, so they are plain text or values of parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from netdra.model import texts
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path, quoted
from netdra.model.topology import Step, is_addressed
from netdra.topology import references
from netdra.topology.references import PARAMETERS
from netdra.topology.values import ConfigError

_KEYS = ("address", "addresses")


def examine(step: Step) -> Iterator[Finding]:
    """The errors in a step's addresses; paths begin in the step."""
    if not is_addressed(step.config):
        return
    place: Path = ("config", "ipam")
    if not step.network:
        yield Finding(
            "ipam of type network requires network: the PodNetwork that the addresses come from",
            "write network: NAME beside config",
            (*place, "type"),
            code="ND1258",
        )
    families: set[int] = set()
    for path, text in _requested(step.config["ipam"]):
        if "{{" in text:
            yield from _referring(text, (*place, *path))
        elif not texts.fits(text, "ip"):
            yield Finding(
                f"{quoted(text)} is not {texts.EXPECTED['ip']}",
                texts.instead(text, "ip"),
                (*place, *path),
                code="ND1259",
            )
        elif (version := 6 if ":" in text else 4) in families:
            what = f"{quoted(text)} is the second address of IPv{version}"
            yield Finding(what, "request one address of each family", (*place, *path), code="ND1260")
        else:
            families.add(version)


def requested(step: Step) -> tuple[str, ...]:
    """The addresses that a step requests, with a claim's values in it.

    Raises:
        InvalidInputError: a text is not an address.
    """
    found = tuple(text for _, text in _requested(step.config["ipam"]) if text)
    for text in found:
        if not texts.fits(text, "ip"):
            raise InvalidInputError(
                f'step "{step.name}": requested address {quoted(text)} is not {texts.EXPECTED["ip"]}',
                hint="refer to a parameter of format ip: {{ params.<name> }}",
                code="ND1261",
            )
    return found


def _requested(ipam: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """The texts of `address` and `addresses`, each with its place; other types are found by the plugin's schema."""
    for key in _KEYS:
        value = ipam.get(key)
        if isinstance(value, str):
            yield (key,), value
        for at, text in enumerate(value if isinstance(value, list | tuple) else ()):
            if isinstance(text, str):
                yield (key, at), text


def _referring(text: str, path: Path) -> Iterator[Finding]:
    """References to anything but parameters: addresses are assigned before a step runs."""
    try:
        parts = references.parse(text)
    except ConfigError:
        return  # the graph reports it
    for part in parts:
        if isinstance(part, references.Reference) and not part.is_parameter:
            what = f"{part} is not known when the address is assigned"
            yield Finding(what, f"refer to a parameter: {{{{ {PARAMETERS}.<name> }}}}", path, code="ND1262")
