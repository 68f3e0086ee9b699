"""Metrics, and how they are exposed together.

The modules called `metrics` declare a `Catalogue` each and nothing else; the code beside them sets these
metrics; `netdra.ops.server` exposes a process's catalogues, and docs/metrics.md is written from them. Names follow
the Prometheus conventions: base units, `_total` on counters. A label takes few values, never a pod's or claim's name,
except in a `SeriesCatalogue`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from netdra.model.errors import InvalidInputError, PermanentError, TemporaryError

PREFIX = "netdra_"
OTHER = "other"
FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 5.0, 10.0)
"""Seconds: what happens on this machine, up to the longest that a runtime waits."""
SLOW = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: what takes an answer of the API server, or several."""

OUTCOME = "outcome"
OUTCOMES = ("ok", "invalid", "permanent", "temporary", "timeout", "cancelled", "defect")


class Family(msgspec.Struct, frozen=True):
    """A metric as it is declared.

    Attributes:
        name: as it is scraped, unit and `_total` included.
        type: counter, gauge or histogram.
        help: one sentence.
        labels: their names.
    """

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()


class Catalogue:
    """Metrics that are exposed together.

    Attributes:
        title: what they are about, as the heading of their table.
        families: the declared families, in their order.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.families: list[Family] = []
        self.registry = CollectorRegistry()

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Declare what only grows; its name ends with `_total`."""
        assert name.endswith("_total"), name
        self._declare(name, "counter", text, labels)
        return Counter(name, text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Declare a value that goes up and down."""
        self._declare(name, "gauge", text, labels)
        return Gauge(name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, *labels: str, buckets: Sequence[float] = FAST) -> Histogram:
        """Declare how long something takes; its name ends with `_seconds`."""
        assert name.endswith("_seconds"), name
        self._declare(name, "histogram", text, labels)
        return Histogram(name, text, labels, registry=self.registry, buckets=tuple(buckets))

    def _declare(self, name: str, kind: str, text: str, labels: tuple[str, ...]) -> None:
        assert name.startswith(PREFIX), name
        self.families.append(Family(name, kind, text, labels))

    def text(self) -> bytes:
        """Its part of the scraped page, in the text format."""
        return generate_latest(self.registry)


class SeriesCatalogue(Catalogue):
    """Metrics with many series, whose labels name pods: written as text, by the owner of their values.

    Prometheus' client library takes 100 times as long for 6,000 series: it looks up, copies and formats the labels each
    time, and those of an interface never change.

    Attributes:
        source: writes the page's part, `header` included; None while nothing is measured.
    """

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self.source: Callable[[], bytes] | None = None

    def series(self, kind: Literal["counter", "gauge"], name: str, text: str, *labels: str) -> Family:
        """Declare a family."""
        assert name.endswith("_total") == (kind == "counter"), name
        self._declare(name, kind, text, labels)
        return self.families[-1]

    def text(self) -> bytes:
        """The text of the source; without one the families without series."""
        if self.source is not None:
            return self.source()
        return "".join(map(header, self.families)).encode()


def header(family: Family) -> str:
    """The lines before the series of a family."""
    return f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.type}\n"


def series_name(family: Family, values: Sequence[str]) -> str:
    """The name of one series, with its labels, as the text format writes it (a value follows).

    Args:
        values: the labels' values, in the family's order.
    """
    pairs = zip(family.labels, values, strict=True)
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{family.name}{{{labels}}} "


def _escaped(value: str) -> str:
    # Interface names may have any byte but "/" and white space; those that are not UTF-8 are escapes already.
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def exposition(catalogues: Iterable[Catalogue]) -> bytes:
    """The scraped page, in the text format."""
    return b"".join(catalogue.text() for catalogue in catalogues)


def outcome_of(problem: BaseException) -> str:
    """How something ended that raised, as a label's value: one of `OUTCOMES`."""
    kinds: tuple[tuple[type[BaseException], str], ...] = (
        (InvalidInputError, "invalid"),
        (TemporaryError, "temporary"),
        (PermanentError, "permanent"),
        (TimeoutError, "timeout"),
        (asyncio.CancelledError, "cancelled"),
    )
    return next((name for kind, name in kinds if isinstance(problem, kind)), "defect")


def measured(histogram: Histogram, *labels: str) -> AbstractContextManager[None]:
    """Observe how long the body takes and how it ends.

    Args:
        histogram: its last label is `outcome`.
        labels: the values of those before.
    """
    began = time.perf_counter()
    return _ending(lambda outcome: histogram.labels(*labels, outcome).observe(time.perf_counter() - began))


def counted(counter: Counter, *labels: str) -> AbstractContextManager[None]:
    """Count that the body was done, and how it ended.

    Args:
        counter: its last label is `outcome`.
        labels: the values of those before.
    """
    return _ending(lambda outcome: counter.labels(*labels, outcome).inc())


@contextmanager
def _ending(tell: Callable[[str], None]) -> Iterator[None]:
    """Record how the body ended."""
    outcome = "ok"
    try:
        yield
    except BaseException as problem:
        outcome = outcome_of(problem)
        raise
    finally:
        tell(outcome)


class Values:
    """Keeps a label to few values: those that come after the first so many are all called `other`."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._values: set[str] = set()

    def __call__(self, value: str) -> str:
        """The value, or `other`."""
        if value not in self._values and len(self._values) >= self._most:
            return OTHER
        self._values.add(value)
        return value


PROCESS = Catalogue("Every process")
INFO = PROCESS.gauge("netdra_build_info", "1; the labels contain the version of netdra.", "version", "process")
LOOP_DELAY = PROCESS.histogram("netdra_event_loop_delay_seconds", "Delay of the event loop, measured once a second.")
IN_FLIGHT = PROCESS.gauge("netdra_in_flight", "Requests and other work in progress.")
LOG_LINES = PROCESS.counter("netdra_log_lines_total", "Lines logged, including suppressed repeats.", "level")

# RSS, CPU, descriptors, start time (process_*) and Python's own (python_*).
for _collector in (ProcessCollector, PlatformCollector, GCCollector):
    _collector(registry=PROCESS.registry)
