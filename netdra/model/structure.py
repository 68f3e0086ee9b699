"""The fields of the model's types and the types of these, as msgspec reports them; read once a type, in milliseconds.

Called by `netdra.model.reasons`, for errors in objects, and by `netdra.model.openapi`, for their definitions.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec.inspect as mi


def structure_of(kind: Any) -> mi.Type:
    """The structure of a type."""
    return _structure(kind)


@cache
def _structure(kind: Any) -> mi.Type:
    return mi.type_info(kind)
