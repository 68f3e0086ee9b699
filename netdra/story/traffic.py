"""The rates of pods' interfaces, from two or more readings of the nodes' series. Pure.

Used by `netdra top --traffic` and the console, which read the series that `netdra.node.traffic.reader` writes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from netdra.model.errors import PermanentError

_COUNTERS = (
    *("receive_bytes", "transmit_bytes", "receive_drop", "transmit_drop", "receive_errs", "transmit_errs"),
    "bandwidth_bytes",
)
_LINE = re.compile(
    rf"^netdra_pod_network_({'|'.join(_COUNTERS)})(?:_total)?\{{(.*)\}} (\d{{1,20}})$", re.ASCII | re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LABELS = frozenset({"namespace", "pod", "claim", "request", "step", "interface", "device", "network"})
_ESCAPE = re.compile(r"\\(.)")
_MEASURED = re.compile(r"^netdra_traffic_read_duration_seconds_count [1-9]", re.MULTILINE)
_BARS = "▁▂▃▄▅▆▇█"
HISTORY = 16
"""How many rates a sparkline shows."""

InterfaceKey = tuple[tuple[str, str], ...]
"""An interface's labels."""


class InterfaceTraffic(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The rates of one interface, per second.

    Attributes:
        receive_bytes, transmit_bytes, drops, errors: received and sent bytes; packets of both directions.
        bandwidth: the claim's bandwidth in bytes per second, 0 for no bound.
        history: the sum of both directions' bytes, one value for each reading but the first.
    """

    node: str = ""
    namespace: str = ""
    pod: str = ""
    claim: str = ""
    request: str = ""
    step: str = ""
    interface: str = ""
    device: str = ""
    network: str = ""
    receive_bytes: float = 0.0
    transmit_bytes: float = 0.0
    drops: float = 0.0
    errors: float = 0.0
    bandwidth: int = 0
    history: tuple[float, ...] = ()

    @property
    def share(self) -> float | None:
        """The share of the claim's bandwidth that the busier direction uses; None without a bandwidth."""
        return max(self.receive_bytes, self.transmit_bytes) / self.bandwidth if self.bandwidth else None

    @property
    def sparkline(self) -> str:
        """The history as bars, the highest one full."""
        most = max(self.history, default=0.0)
        return "".join(_BARS[round(value / most * (len(_BARS) - 1)) if most else 0] for value in self.history)


class TrafficReading(msgspec.Struct, frozen=True):
    """The series of the nodes at one time, which is in seconds of any clock."""

    at: float
    interfaces: Mapping[InterfaceKey, Mapping[str, int]]


def read(at: float, pages: Mapping[str, str]) -> TrafficReading:
    """The counters in pages of metrics. A page speaks for its own node, and in the labels of these series alone.

    Args:
        at: when they were read.
        pages: by node.

    Raises:
        PermanentError: no driver's version exports counters.
    """
    if not any("netdra_pod_network_" in page for page in pages.values()):
        raise PermanentError(
            "the drivers are of a version that does not export the counters of pods' interfaces", code="ND4060"
        )
    interfaces: dict[InterfaceKey, dict[str, int]] = {}
    for node, page in pages.items():
        by_labels: dict[str, dict[str, int]] = {}  # equal in each family, so they are read once
        for name, labels, value in _LINE.findall(page):
            counters = by_labels.get(labels)
            if counters is None:
                counters = by_labels[labels] = interfaces.setdefault(_key(node, labels), {})
            counters[name] = int(value)
    return TrafficReading(at, interfaces)


def _key(node: str, labels: str) -> InterfaceKey:
    found = ((name, _ESCAPE.sub(_unescaped, value)) for name, value in _LABEL.findall(labels) if name in _LABELS)
    return (("node", node), *found)


def is_measured(page: str) -> bool:
    """Whether a driver had read counters before it wrote this page; the first page of one that does has none."""
    return _MEASURED.search(page) is not None


def rates(readings: Sequence[TrafficReading]) -> list[InterfaceTraffic]:
    """The rates between the last two readings, the busiest interface first; those of one reading alone are left out."""
    if len(readings) < 2:
        return []
    rows = [_row(key, readings) for key in readings[-1].interfaces if key in readings[-2].interfaces]
    return sorted(
        rows, key=lambda row: (-row.receive_bytes - row.transmit_bytes, row.namespace, row.pod, row.interface)
    )


def continued(rows: Sequence[InterfaceTraffic], before: Iterable[InterfaceTraffic]) -> list[InterfaceTraffic]:
    """Rates of two readings with the histories of former rows, so that no former reading has to be kept."""
    histories = {_names(row): row.history for row in before}
    return [
        msgspec.structs.replace(row, history=(*histories.get(_names(row), ()), *row.history)[-HISTORY:]) for row in rows
    ]


def _names(row: InterfaceTraffic) -> tuple[str, ...]:
    place = (row.node, row.namespace, row.pod, row.claim)
    return (*place, row.request, row.step, row.interface, row.device, row.network)


def _row(key: InterfaceKey, readings: Sequence[TrafficReading]) -> InterfaceTraffic:
    former, last = readings[-2:]
    pairs = list(itertools.pairwise(readings))[-HISTORY:]
    labels = dict(key)
    return InterfaceTraffic(
        **labels,
        receive_bytes=_rate(former, last, key, ("receive_bytes",)),
        transmit_bytes=_rate(former, last, key, ("transmit_bytes",)),
        drops=_rate(former, last, key, ("receive_drop", "transmit_drop")),
        errors=_rate(former, last, key, ("receive_errs", "transmit_errs")),
        bandwidth=last.interfaces[key].get("bandwidth_bytes", 0),
        history=tuple(
            _rate(before, after, key, ("receive_bytes", "transmit_bytes"))
            for before, after in pairs
            if key in before.interfaces and key in after.interfaces
        ),
    )


def _rate(before: TrafficReading, after: TrafficReading, key: InterfaceKey, names: Iterable[str]) -> float:
    """The increase of counters, per second; a counter that is smaller than before began again at 0."""
    seconds = after.at - before.at
    total = 0
    for name in names:
        former, last = before.interfaces[key].get(name), after.interfaces[key].get(name)
        if former is not None and last is not None:
            total += last - former if last >= former else last
    return total / seconds if seconds > 0 else 0.0


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
