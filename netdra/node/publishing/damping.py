"""Facts that come and go by themselves (a link's state, its speed, addresses) change what is published only so often.

Asked by `netdra.node.publishing.offering` before each pass. Pure: the time is given. A link that flaps would otherwise
cost a write for each flap, on every node with such a cable. The first changes pass at once; what is withheld is told as
soon as there is a token for it. Interfaces that come and go, and all other facts, are never withheld.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from netdra.model.inventory import Interface

BURST = 5
SECONDS_PER_CHANGE = 10.0
_LAST_DIGITS = 1e-6
_Key = tuple[str, str]


class Bucket(msgspec.Struct, frozen=True):
    """Tokens as they were at a time, in seconds of the caller's clock; one more comes every so many seconds."""

    tokens: float
    at: float
    most: float = BURST
    seconds: float = SECONDS_PER_CHANGE

    def now(self, now: float) -> float:
        """The tokens at a later time."""
        return min(self.most, self.tokens + (now - self.at) / self.seconds)

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0.0 if there is one, which a clock's last digits do not put off."""
        missing = 1 - self.now(now)
        return missing * self.seconds if missing > _LAST_DIGITS else 0.0

    def less(self, now: float) -> Bucket:
        """The bucket after a token was taken."""
        return msgspec.structs.replace(self, tokens=max(self.now(now) - 1, 0.0), at=now)


class Damper:
    """What was let through of each interface, and a bucket for each that changed lately."""

    def __init__(self) -> None:
        self._shown: dict[_Key, Interface] = {}
        self._buckets: dict[_Key, Bucket] = {}
        self._due: float | None = None

    @property
    def due(self) -> float | None:
        """When the first of what is withheld may be told; None if nothing is."""
        return self._due

    def damp(self, interfaces: Sequence[Interface], now: float) -> tuple[Interface, ...]:
        """The interfaces as they are to be published now, in the same order.

        Args:
            interfaces: as they are.
            now: seconds of a clock that never goes back.
        """
        shown: dict[_Key, Interface] = {}
        waits: list[float] = []
        for interface in interfaces:
            key = (interface.identity, interface.if_name)
            known = self._shown.get(key, interface)
            if known is interface or known == interface:
                shown[key] = known
            elif _settled(interface, known) != known:
                shown[key] = interface
            elif wait := self._bucket(key, now).wait(now):
                shown[key] = known
                waits.append(now + wait)
            else:
                shown[key] = interface
                self._buckets[key] = self._bucket(key, now).less(now)
        self._shown = shown
        self._due = min(waits, default=None)
        self._buckets = {
            key: bucket for key, bucket in self._buckets.items() if key in shown and bucket.now(now) < BURST
        }
        return tuple(shown[interface.identity, interface.if_name] for interface in interfaces)

    def _bucket(self, key: _Key, now: float) -> Bucket:
        return self._buckets.get(key) or Bucket(BURST, now)


def _settled(interface: Interface, known: Interface) -> Interface:
    """An interface with the restless facts of another time."""
    return msgspec.structs.replace(
        interface,
        oper_state=known.oper_state,
        link_speed=known.link_speed,
        no_carrier=known.no_carrier,
        ipv4=known.ipv4,
        ipv6=known.ipv6,
    )
