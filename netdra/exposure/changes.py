"""Every node's devices as they are published now, and as they would be after some policies. Pure.

Called by `netdra plan --cluster` and the console. The nodes' interfaces are read from their NodeNetworks, their devices
from their ResourceSlices. Facts that a node's report lacks are not guessed, but named in a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from netdra.exposure.foresight import (
    UNCHANGED,
    DeviceForecast,
    Foresight,
    SimilarInterfaces,
    VFPooling,
    referenced_attributes,
)
from netdra.exposure.grouping import pool_name
from netdra.exposure.pooling import lane_names
from netdra.model import names
from netdra.model.inventory import AttributeValue, Interface
from netdra.model.node_network import InterfaceGroup, NodeNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.model.suggestions import listed

_PF_NAME = names.qualified("pfName")
_ROOTS = frozenset({"pf", "nic", "representor"})
"""Types of interfaces that have pools of their own."""
_AWAY = "away"
"""The state of an interface in a pod, in a node's report."""


class DeviceChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One device of one node, as it is printed in JSON and YAML.

    Attributes:
        now: the policy that offers it today, "" if it is not published, "?" if that is unknown.
        after: the same after the policies.
        allocated: whether a claim has it; it stays published, tainted, until the claim gives it back.
    """

    node: str
    pool: str
    device: str
    now: str = ""
    after: str = ""
    allocated: bool = False

    @property
    def differs(self) -> bool:
        """Whether the policies change whether it is offered, or by which policy."""
        return self.now != self.after


class ClusterNow(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster: nodes with their labels, their reports, the policies, and the slices of netdra's driver."""

    labels: Mapping[str, Mapping[str, str]]
    reports: Sequence[NodeNetwork]
    policies: Sequence[DeviceExposurePolicy]
    slices: Sequence[ResourceSlice]


def compare(
    now: ClusterNow, written: Sequence[DeviceExposurePolicy], without: Sequence[str] = ()
) -> tuple[list[DeviceChange], list[str]]:
    """Every device of every node now and after policies are written or deleted, and notes on unknown facts. Pure."""
    stands = {policy.name: policy for policy in now.policies}
    changed = [entry for entry in written if entry.name not in stands or stands[entry.name].spec != entry.spec]
    removed = [stands[name] for name in {*without, *(policy.name for policy in changed)} if name in stands]
    lines: list[DeviceChange] = []
    notes: list[str] = []
    published = _published(now.slices)
    forecasts: dict[tuple[str, ...], _Forecasts] = {}
    for report in sorted(now.reports, key=lambda report: report.name):
        labels = now.labels.get(report.name, {})
        here = [
            policy
            for policy in changed
            if policy.spec.node_selector is None or policy.spec.node_selector.matches(labels)
        ]
        holding = tuple(policy.name for policy in here)
        if holding not in forecasts:
            forecasts[holding] = _Forecasts(now.policies, removed, here)
        compared = _Node(report, published.get(report.name, {}), forecasts[holding])
        lines += compared.lines()
        if compared.unknown:
            many = f"{compared.unknown} interface{'s' * (compared.unknown != 1)}"
            notes.append(f"node {report.name}: the report on {many} is incomplete, so the result is unknown")
    silent = sorted({*now.labels, *published} - {report.name for report in now.reports})
    if silent:
        notes.append(f"{listed(silent)}: no report, so the result of the policies is unknown")
    lines += [
        DeviceChange(node=node, pool=pool, device=device, now="?", after="?")
        for node in silent
        for device, pool in published.get(node, {}).items()
    ]
    return sorted(lines, key=lambda line: (line.node, line.pool, line.device)), notes


class _Forecasts:
    """Forecasts for interfaces on nodes with the same policies; equal interfaces are evaluated once."""

    def __init__(
        self,
        policies: Sequence[DeviceExposurePolicy],
        removed: Sequence[DeviceExposurePolicy],
        written: Sequence[DeviceExposurePolicy],
    ) -> None:
        self.foresight = Foresight(policies, removed, written)
        self._asked = referenced_attributes(policy.spec.selector.cel for policy in written)
        self._known: dict[tuple[object, ...], DeviceForecast | None] = {}

    def of(
        self, group: InterfaceGroup, facts: Mapping[str, AttributeValue], unknown: AbstractSet[str]
    ) -> DeviceForecast | None:
        """The forecast for an interface's devices; None if its report is not sufficient.

        Args:
            group: the interface's.
            facts: its attributes.
            unknown: those that the report leaves open.
        """
        plain = {
            name: value
            for name in self._asked
            if (value := facts.get(name)) is not None and not isinstance(value, tuple)
        }
        open_ = tuple(sorted(self._asked & unknown))
        unreadable = tuple(
            qualified for name in group.unreadable if (qualified := names.qualified(name)) in self._asked
        )
        key = tuple(sorted(plain.items())), open_, unreadable, tuple(sorted(group.policies.items())), group.devices
        if key not in self._known:
            seen = SimilarInterfaces(plain, open_, unreadable, group.policies, group.devices)
            self._known[key] = self.foresight.of(seen)
        return self._known[key]


class _Node:
    """One node's report, beside its slices."""

    def __init__(self, report: NodeNetwork, pools: Mapping[str, str], forecasts: _Forecasts) -> None:
        self._node = report.name
        self._groups = report.status.interfaces if report.status is not None else ()
        self._pools = pools
        self._forecasts = forecasts
        self.unknown = 0
        self._pooled: Counter[tuple[str, VFPooling]] = Counter()
        self._away: Counter[str] = Counter()
        self._pfs_of_unknown: set[str] = set()

    def lines(self) -> Iterator[DeviceChange]:
        reported: set[str] = set()
        groups = [group for group in self._groups if not group.pools_vfs]
        for group in groups:
            common, unknown = group.facts()
            for name in group.names:
                own = group.derived_from(name, common, unknown) if unknown else {}
                facts, left = ({**common, **own}, unknown - own.keys()) if own else (common, unknown)
                for line in self._of(group, name, facts, left):
                    reported.add(line.device)
                    yield line
            self.unknown += group.count if group.is_untold and (group.devices or self._may_matter(group)) else 0
        for line in self._of_pools():
            reported.add(line.device)
            yield line
        # Published, and not in the report yet, or no longer.
        for device, pool in self._pools.items():
            if device not in reported:
                yield DeviceChange(node=self._node, pool=pool, device=device, now="?", after="?")

    def _may_matter(self, group: InterfaceGroup) -> bool:
        """Whether the change of policies may concern interfaces that are only counted."""
        change = self._forecasts.of(group, *group.facts())
        return change is None or change.matched

    def _of(
        self, group: InterfaceGroup, name: str, facts: Mapping[str, AttributeValue], unknown: AbstractSet[str]
    ) -> Iterator[DeviceChange]:
        change = self._forecasts.of(group, facts, unknown)
        self.unknown += change is None
        pf_name = str(facts.get(_PF_NAME, ""))
        if change is None:
            self._pfs_of_unknown.add(pf_name)
        else:
            pooled = self._forecasts.foresight.pooled_now(group.policies) if change is UNCHANGED else change.pooled
            if pooled is not None:
                self._pooled[pf_name, pooled] += 1
            elif group.state == _AWAY:
                self._away[pf_name] += 1
        gone = change.removed if change is not None else ()
        taken = change.reassigned if change is not None else {}
        for device in group.devices:
            called, now = device.called(name), device.policy or "?"
            after = "" if device in gone else taken.get(device.suffix, now)
            yield DeviceChange(
                node=self._node,
                pool=self._pool(group, name, called, pf_name),
                device=called,
                now=now,
                after="?" if change is None else after,
                allocated=device.allocated,
            )
        for suffix, policy in (change.added if change is not None else {}).items():
            called = names.label(name + suffix)
            yield DeviceChange(
                node=self._node, pool=self._pool(group, name, called, pf_name), device=called, after=policy
            )

    def _of_pools(self) -> Iterator[DeviceChange]:
        """The devices of pooled VFs: those of the report, and those that the VFs would be pooled as."""
        after = {
            names.label(name + pooled.suffix): (pf_name, pooled.policy)
            for (pf_name, pooled), count in self._pooled.items()
            for name in lane_names(pf_name, pooled.lanes)[:count]
        }
        # A VF in a pod may match no policy there, and is still a part of its claim's device.
        kept = {
            names.label(name + pooled.suffix): (pf_name, pooled.policy)
            for (pf_name, pooled), count in self._pooled.items()
            for name in lane_names(pf_name, pooled.lanes)[count : count + self._away[pf_name]]
        }
        for group in self._groups:
            for device, published in group.published() if group.pools_vfs else ():
                pf_name = str(group.facts()[0].get(_PF_NAME, ""))
                missing = "?" if pf_name in self._pfs_of_unknown else ""
                yield DeviceChange(
                    node=self._node,
                    pool=self._pools.get(device, "?"),
                    device=device,
                    now=published.policy or "?",
                    after=after.pop(device, kept.get(device, (pf_name, missing)))[1],
                    allocated=published.allocated,
                )
        for device, (pf_name, policy) in after.items():
            yield DeviceChange(node=self._node, pool=pool_name(self._node, pf_name, None), device=device, after=policy)

    def _pool(self, group: InterfaceGroup, name: str, device: str, pf_name: str) -> str:
        """The pool that a device is in, or would be; "?" for interfaces that may be on a NIC, and so in its pool."""
        if device in self._pools:
            return self._pools[device]
        if group.type not in _ROOTS and group.type != "vf":
            return "?"
        root = None if group.type == "vf" else Interface(if_name=name, type=group.type)
        return pool_name(self._node, pf_name, root)


def _published(slices: Iterable[ResourceSlice]) -> dict[str, dict[str, str]]:
    """By node, the devices that are published, each with its pool."""
    published: dict[str, dict[str, str]] = {}
    for resource_slice in slices:
        if resource_slice.spec.driver == names.DRIVER and resource_slice.spec.node_name:
            of_node = published.setdefault(resource_slice.spec.node_name, {})
            of_node.update((device.name, resource_slice.spec.pool.name) for device in resource_slice.spec.devices)
    return published
