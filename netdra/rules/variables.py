"""Variables of a shell or of envsubst in objects, which were not replaced before the file was applied. Pure.

netdra takes them as they are written: `device.attributes["dra.networking"].ifName == "${NIC}"` matches no interface.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from netdra.model.findings import Finding, Path

_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def unreplaced(spec: msgspec.Struct) -> Iterator[Finding]:
    """The variables in the texts of an object's spec, each at its first place."""
    found: dict[str, Path] = {}
    for path, text in _texts(msgspec.to_builtins(spec), ("spec",)):
        for variable in _VARIABLE.findall(text):
            found.setdefault(variable, path)
    for variable, path in found.items():
        what = f"{variable} is not replaced: netdra does not know variables of a shell"
        yield Finding(what, 'replace it before the file is applied, for example with "envsubst"', path, code="ND1214")


def _texts(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))
