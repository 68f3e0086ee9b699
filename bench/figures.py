"""The result of a benchmark: a measured value beside the limit that it must keep."""

from __future__ import annotations

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One measurement.

    Attributes:
        name: the measured quantity.
        value: how much it was, in `unit`.
        unit: e.g. "ms", "x".
        limit: the highest allowed value; 0 without a limit.
        note: how it was measured, or its reference.
    """

    name: str
    value: float
    unit: str
    limit: float = 0.0
    note: str = ""
