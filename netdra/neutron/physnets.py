"""Which network the VFs of a physical network get ports of where their topology names none: an administrator's file.

As Kuryr's default_physnet_subnets, by name or id, in YAML: `physnet2: {network: blue, subnet: blue-v4}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from netdra.model.names import is_physnet
from netdra.neutron.clouds import read_yaml
from netdra.neutron.errors import CloudsError

_HINT = "write: physnet2: {network: NAME or id, subnet: NAME or id}"


class PhysnetDefault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A network, and its subnet where not any will do: ids or names."""

    network: str
    subnet: str = ""


def read(path: Path) -> Mapping[str, PhysnetDefault]:
    """The networks by physical network.

    Raises:
        CloudsError: the file cannot be read, or does not state so.
    """
    plain = read_yaml(path)
    try:
        defaults = msgspec.convert(plain or {}, dict[str, PhysnetDefault])
    except msgspec.ValidationError as problem:
        raise CloudsError(f"{path}: {problem}", hint=_HINT, code="ND3060") from None
    for name, default in defaults.items():
        if not is_physnet(name) or not default.network:
            what = "names no network" if is_physnet(name) else "is not a valid name of a physical network"
            raise CloudsError(f'{path}: "{name}" {what}', hint=_HINT, code="ND3061")
    return defaults
