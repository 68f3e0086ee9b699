"""A DeviceClass's parameters for netdra, checked before any claim names it: what Prepare would refuse, in its words.

Called at admission and by `netdra validate`. Pure. Classes without parameters for netdra are none of its business.
"""

from __future__ import annotations

from collections.abc import Iterator

from netdra.model.claim import DeviceClass
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path
from netdra.topology import plain
from netdra.topology.classes import only_topology


def check_class(device_class: DeviceClass) -> tuple[Finding, ...]:
    """Why no claim for the class could be prepared, whatever device it is given."""
    configs = [config.opaque for config in device_class.spec.config]
    origin = f'DeviceClass "{device_class.metadata.name}"'
    try:
        if only_topology(configs, origin) is None:
            plain.only(configs, origin)
    except InvalidInputError as problem:
        return (Finding(what=problem.what, hint=problem.hint, path=next(_wrong(device_class), ("spec", "config"))),)
    return ()


def _wrong(device_class: DeviceClass) -> Iterator[Path]:
    """The places of configurations that cannot be understood, each by itself."""
    for at, config in enumerate(device_class.spec.config):
        try:
            plain.parameters(config.opaque, "")
        except InvalidInputError:
            yield ("spec", "config", at, "opaque", "parameters")
