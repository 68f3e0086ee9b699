"""The events of a watcher of a driver's ResourceSlices, and their times: the clock of the benchmarks of publishing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager, suppress

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import SLICE

Condition = Callable[[AbstractSet[str]], bool]
_QUIET = 3600.0


class Watched:
    """The published interfaces of one driver, kept current by a thread.

    Attributes:
        writes: how often its slices were written since the watch began.
    """

    def __init__(self, api: Api, driver: str) -> None:
        self._api = api
        self._driver = driver
        self._changed = threading.Condition()
        self._slices: dict[str, frozenset[str]] = {}
        self._found: Counter[str] = Counter()
        self.writes = 0

    def follow(self) -> None:
        """Watch until the server is gone."""
        with suppress(OSError):
            for kind, found in self._api.watch(SLICE, timeout=_QUIET):
                if kind in {"ADDED", "MODIFIED", "DELETED"} and found["spec"]["driver"] == self._driver:
                    self._take(kind, found)

    def wait(self, condition: Condition, timeout: float) -> float | None:
        """The moment (of `time.perf_counter`) at which a condition holds of the interfaces; None if it does not."""
        with self._changed:
            # Called after each event: collecting all names each time would cost more than the measured work.
            held = self._changed.wait_for(lambda: condition(self._found.keys()), timeout)
            return self._at if held else None

    def wait_count(self, count: int, timeout: float) -> float | None:
        """The moment at which there are just so many slices; None if that does not come."""
        with self._changed:
            held = self._changed.wait_for(lambda: len(self._slices) == count, timeout)
            return self._at if held else None

    def interfaces(self) -> frozenset[str]:
        """The names of all interfaces that are published now."""
        with self._changed:
            return frozenset(self._found)

    def _take(self, kind: str, found: Object) -> None:
        now = time.perf_counter()
        with self._changed:
            self._at = now
            self.writes += 1
            name, named = found["metadata"]["name"], frozenset(_named(found) if kind != "DELETED" else ())
            for gone in self._slices.pop(name, ()):
                self._found[gone] -= 1
                if not self._found[gone]:
                    del self._found[gone]
            if kind != "DELETED":
                self._slices[name] = named
                self._found.update(named)
            self._changed.notify_all()


@contextmanager
def watched(plane: ControlPlane, driver: str) -> Iterator[Watched]:
    """A watch of a driver's slices; the driver has none before and after."""
    with closing(plane.client()) as api:
        _remove(api, driver)
        seen = Watched(plane.client(), driver)
        # Its connection ends with the control plane.
        threading.Thread(target=seen.follow, daemon=True).start()
        try:
            yield seen
        finally:
            _remove(api, driver)


def _named(found: Object) -> Iterator[str]:
    """The interfaces of a slice's devices: an attribute has the name, qualified or not."""
    for device in found["spec"].get("devices", []):
        for key, value in device.get("attributes", {}).items():
            if key.rpartition("/")[2] == "ifName":
                yield value["string"]


def _remove(api: Api, driver: str) -> None:
    api.delete_all(SLICE, fields=f"spec.driver={driver}")
