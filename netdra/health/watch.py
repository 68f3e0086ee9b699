"""Samples of devices' counters and health rules → faults, with duration, hysteresis and recovery. Pure.

Fed by `netdra.node.health`, which reads counters. A fault needs evidence to begin and evidence to end: a sample that
is missing, because a driver was unloaded or a namespace could not be entered, restarts both times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from netdra.model.health import HealthEffect, HealthRule

DeviceKey = tuple[str, str]
Samples = Mapping[str, int]
"""The values of one device's counters, by the names that rules have."""
WRAP = 2**32
NEAR = 2**28
"""How near to its end a counter of 32 bits must have been to count as wrapped, and how near to 0 it must be then."""
MAX_STEPS = 64
"""How many increases of a counter are kept; older ones are joined."""
SHOWN = 4
"""How many of the last values are kept as evidence."""


class WatchedDevice(msgspec.Struct, frozen=True):
    """A device, the hardware behind it, and the rules of the policy that offers it.

    Attributes:
        key: pool and name.
        identity: the hardware: what another one counted, does not count for it.
        rules: the policy's.
    """

    key: DeviceKey
    identity: str
    policy: str
    rules: tuple[HealthRule, ...]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A device for which a rule's threshold is exceeded.

    Attributes:
        key: the device's pool and name.
        policy, rule: the threshold.
        since: when the fault began, in the time of the samples.
        increase: the increase within the rule's window, or the value of a fact, at the last sample.
        values: the last different values with their times.
    """

    key: DeviceKey
    policy: str
    rule: HealthRule
    since: float
    increase: int = 0
    values: tuple[tuple[float, int], ...] = ()

    @property
    def effect(self) -> HealthEffect:
        """The rule's."""
        return self.rule.effect


class _State(msgspec.Struct):
    """A rule on a device: since when the value is high, or low; and the fault if there is one."""

    rule: HealthRule
    high: float | None = None
    low: float | None = None
    fault: float | None = None
    increase: int = 0


class HealthWatch:
    """The counters of a node's devices, and their faults. For one thread."""

    def __init__(self, known: Iterable[tuple[DeviceKey, str, str, float]] = ()) -> None:
        """Begin without samples.

        Args:
            known: the faults of a former process of this boot: device, policy, name of the rule, since when.
        """
        self._known = {(key, policy, rule): since for key, policy, rule, since in known}
        self._counted: dict[tuple[DeviceKey, str], Counted] = {}
        self._states: dict[tuple[DeviceKey, str], _State] = {}
        self._devices: dict[DeviceKey, WatchedDevice] = {}

    def update(self, at: float, devices: Iterable[WatchedDevice], samples: Mapping[DeviceKey, Samples]) -> None:
        """Take the samples of one moment.

        Args:
            at: the moment, in seconds of a clock that never goes back.
            devices: all devices with rules; others are forgotten.
            samples: by device; a missing device, or counter, could not be read.
        """
        present = {device.key: device for device in devices}
        for key, device in present.items():
            before = self._devices.get(key)
            if before is not None and before.identity != device.identity:
                self._forget(key)
            self._take(at, device, samples.get(key, {}))
        for key in self._devices.keys() - present.keys():
            self._forget(key)
        self._devices = present
        self._known = {}

    def faults(self) -> tuple[Fault, ...]:
        """The present faults, by device and in the order of its rules."""
        return tuple(
            Fault(
                key=key,
                policy=device.policy,
                rule=rule,
                since=state.fault,
                increase=state.increase,
                values=tuple(self._counted[key, rule.counter].values) if (key, rule.counter) in self._counted else (),
            )
            for key, device in sorted(self._devices.items())
            for rule in device.rules
            if (state := self._states.get((key, rule.name))) is not None and state.fault is not None
        )

    def _forget(self, key: DeviceKey) -> None:
        for table in (self._counted, self._states):
            for entry in [entry for entry in table if entry[0] == key]:
                del table[entry]

    def _take(self, at: float, device: WatchedDevice, samples: Samples) -> None:
        key = device.key
        for counter in {rule.counter for rule in device.rules}:
            counted = self._counted.setdefault((key, counter), Counted())
            if counter in samples:
                counted.add(at, samples[counter])
            counted.forget(at - max(rule.within_seconds for rule in device.rules if rule.counter == counter))
        kept = {rule.name for rule in device.rules}
        for entry in [entry for entry in self._states if entry[0] == key and entry[1] not in kept]:
            del self._states[entry]
        for rule in device.rules:
            state = self._states.get((key, rule.name))
            if state is None or state.rule != rule:
                since = self._known.get((key, device.policy, rule.name))
                # A changed rule starts from the beginning: its fault belongs to another threshold.
                state = self._states[key, rule.name] = _State(rule, fault=since)
            _step(state, at, self._value(key, rule, at, samples))

    def _value(self, key: DeviceKey, rule: HealthRule, at: float, samples: Samples) -> int | None:
        if rule.counter not in samples:
            return None
        if rule.is_level:
            return samples[rule.counter]
        return self._counted[key, rule.counter].within(at, rule.within_seconds)


def _step(state: _State, at: float, value: int | None) -> None:
    """Move a rule's state on by one sample."""
    rule = state.rule
    if value is None:
        state.high = state.low = None
        return
    state.increase = value
    state.high = None if value < rule.at_least else at if state.high is None else state.high
    state.low = None if value >= rule.low else at if state.low is None else state.low
    if state.fault is None and state.high is not None and at - state.high >= rule.for_seconds:
        state.fault = at
    elif state.fault is not None and state.low is not None and at - state.low >= rule.recover_after_seconds:
        state.fault = None


def increase(before: int, now: int) -> int:
    """The increase between two values of a counter, never more than really happened.

    After a reset, it is the value, which was counted since then.
    """
    if now >= before:
        return now - before
    if before < WRAP and before >= WRAP - NEAR and now < NEAR:
        return now + WRAP - before
    return now


class Counted:
    """The increases of one counter, from samples with gaps, resets and wraps.

    A counter that is smaller than before was reset, or it has 32 bits and began again after 2^32 - 1: some drivers and
    the InfiniBand port counters have 32 bits. Times are seconds of a clock that never goes back.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._steps: deque[tuple[float, int]] = deque()
        self._values: deque[tuple[float, int]] = deque(maxlen=SHOWN)

    def add(self, at: float, value: int) -> None:
        """Note a value. The first one is the base: a counter may have counted for years."""
        if self._last is not None and (grown := increase(self._last, value)):
            self._steps.append((at, grown))
            if len(self._steps) > MAX_STEPS:
                (_, first), (later, second) = self._steps.popleft(), self._steps.popleft()
                self._steps.appendleft((later, first + second))
        if not self._values or self._values[-1][1] != value:
            self._values.append((at, value))
        self._last = value

    def within(self, now: float, seconds: float) -> int:
        """The increase in the last so many seconds."""
        return sum(grown for at, grown in self._steps if at > now - seconds)

    def forget(self, before: float) -> None:
        """Forget increases of before that time."""
        while self._steps and self._steps[0][0] <= before:
            self._steps.popleft()

    @property
    def values(self) -> Sequence[tuple[float, int]]:
        """The last different values, each with the time of its first sample."""
        return tuple(self._values)
