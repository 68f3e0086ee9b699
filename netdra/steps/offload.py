"""The ethtool part of tuning: offload features, rings, channels and coalescing of a device.

Features have the kernel's names, or those under which ethtool(8) sums several up ("tcp-segmentation-offload", "tso"). A
feature that the device has fixed, or cannot have just now, is noted and fails nothing: one topology serves NICs of
several makes. A name that no device has is refused.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from netdra.kernel import ethtool
from netdra.kernel.ethtool import Feature
from netdra.kernel.netlink import NETLINK_GENERIC
from netdra.kernel.netns import Namespace
from netdra.model.errors import InvalidInputError

Settings = Mapping[str, Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)] | bool]

# The lines of `ethtool -k` that sum up several features, with these features' kernel names (off_flag_def in ethtool's
# common.c).
_SUMS: Mapping[str, str] = {
    "rx-checksumming": "rx-checksum",
    "tx-checksumming": "tx-checksum-*",
    "scatter-gather": "tx-scatter-gather*",
    "tcp-segmentation-offload": "tx-tcp*-segmentation",
    "generic-segmentation-offload": "tx-generic-segmentation",
    "generic-receive-offload": "rx-gro",
    "large-receive-offload": "rx-lro",
    "rx-vlan-offload": "rx-vlan-hw-parse",
    "tx-vlan-offload": "tx-vlan-hw-insert",
    "ntuple-filters": "rx-ntuple-filter",
    "receive-hashing": "rx-hashing",
}
_SHORT = {
    "rx": "rx-checksumming",
    "tx": "tx-checksumming",
    "sg": "scatter-gather",
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "rxvlan": "rx-vlan-offload",
    "txvlan": "tx-vlan-offload",
    "ntuple": "ntuple-filters",
    "rxhash": "receive-hashing",
}


class EthtoolParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of ethtool(8), under its names."""

    features: Mapping[str, bool] = {}
    rings: Settings = {}
    channels: Settings = {}
    coalesce: Settings = {}

    @property
    def groups(self) -> dict[str, dict[str, int]]:
        """The settings that are given, by group."""
        groups = {"rings": self.rings, "channels": self.channels, "coalesce": self.coalesce}
        return {
            group: {name: int(value) for name, value in wanted.items()} for group, wanted in groups.items() if wanted
        }


class Offloads(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Features and settings by the kernel's names: the present or the desired ones."""

    features: Mapping[str, bool] = {}
    groups: Mapping[str, Mapping[str, int]] = {}

    def __bool__(self) -> bool:
        return bool(self.features or self.groups)


def state(
    params: EthtoolParams, index: int, name: str, space: Namespace, where: str
) -> tuple[Offloads, Offloads, list[str]]:
    """The parameters to be set on a device, their present values, and the unsupported ones, in words.

    Raises:
        InvalidInputError: no such feature exists, or the device has no such setting.
        KernelError: the device has none of a group's settings.
    """
    if not params.features and not params.groups:
        return Offloads(), Offloads(), []
    with space.socket(NETLINK_GENERIC) as sock:
        present = ethtool.features(sock, index) if params.features else {}
        now = {group: ethtool.settings(sock, index, group) for group in params.groups}
    features, lacking = _features(params.features, present, where)
    for group, values in params.groups.items():
        for setting in values:
            if setting not in now[group]:
                raise InvalidInputError(f'{where}: device "{name}" has no {group} setting "{setting}"', code="ND2045")
    return (
        Offloads(features=features, groups=params.groups),
        Offloads(
            features={name: present[name].active for name in features},
            groups={group: {name: now[group][name] for name in values} for group, values in params.groups.items()},
        ),
        [f'device "{name}" cannot have feature {feature} {_word(value)}' for feature, value in lacking],
    )


def change(wanted: Offloads, index: int, space: Namespace) -> list[str]:
    """Set what differs; return what the driver did not set, in words.

    Raises:
        KernelError: the driver refused a setting.
    """
    if not wanted:
        return []
    with space.socket(NETLINK_GENERIC) as sock:
        for group, values in wanted.groups.items():
            now = ethtool.settings(sock, index, group)
            differing = {name: value for name, value in values.items() if now.get(name) != value}
            if differing:
                ethtool.change_settings(sock, index, group, differing)
        if not wanted.features:
            return []
        active = ethtool.features(sock, index)
        features = {name: on for name, on in wanted.features.items() if name in active and active[name].active != on}
        try:
            if features:
                ethtool.change_features(sock, index, features)
        except InvalidInputError as problem:
            return [problem.what]
    return []


def without(wanted: Offloads, others: Sequence[Offloads]) -> Offloads:
    """The wanted features and settings that none of the others has."""
    return Offloads(
        features={
            name: on for name, on in wanted.features.items() if not any(name in other.features for other in others)
        },
        groups={
            group: {
                name: value
                for name, value in values.items()
                if not any(name in other.groups.get(group, {}) for other in others)
            }
            for group, values in wanted.groups.items()
        },
    )


def drift(wanted: Offloads, now: Offloads, called: str) -> list[str]:
    """In words, what is not as it was set."""
    differences = [
        f"{called}: feature {name} is {_word(now.features[name])}"
        for name, value in wanted.features.items()
        if now.features[name] != value
    ]
    return differences + [
        f"{called}: {group} {name} is {now.groups[group][name]}, not {value}"
        for group, values in wanted.groups.items()
        for name, value in values.items()
        if now.groups[group][name] != value
    ]


def _features(
    wanted: Mapping[str, bool], present: Mapping[str, Feature], where: str
) -> tuple[dict[str, bool], list[tuple[str, bool]]]:
    """The features that can be set, by the kernel's names, and the wanted ones that are not available."""
    settable: dict[str, bool] = {}
    lacking = []
    for name, value in wanted.items():
        long = _SHORT.get(name, name)
        parts = fnmatch.filter(present, _SUMS[long]) if long in _SUMS else [name] if name in present else []
        if not parts:
            raise InvalidInputError(
                f'{where}: feature "{name}" not found', hint="use the names that `ethtool -k` shows", code="ND2046"
            )
        settable |= {part: value for part in parts if not present[part].fixed}
        if not _can_be(value, [present[part] for part in parts]):
            lacking.append((name, value))
    return settable, lacking


def _can_be(value: bool, parts: Iterable[Feature]) -> bool:
    """Whether a feature can be on (one of its parts can) or off (all of them can)."""
    able = [not part.fixed or part.active == value for part in parts]
    return any(able) if value else all(able)


def _word(value: bool) -> str:
    return "on" if value else "off"
