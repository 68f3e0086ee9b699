"""The report of a node, its NodeNetwork's status: interfaces and their outcomes, policies, problems.

Made by `netdra.node.publishing.offering`, written by `netdra.node.publishing.reporter`. Pure. Interfaces that are
alike, and have the same outcome, are one entry; the larger a node is, the more interfaces count as alike, so that the
status stays below its limit (decision D18).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec

from netdra.exposure.facts import is_there
from netdra.model import names
from netdra.model.device import Decision, LeftOut, Problem
from netdra.model.errors import shortened
from netdra.model.inventory import AttributeValue, Interface, attributes
from netdra.model.node_network import (
    DEFAULTS,
    MAX_CUSTOM_DEVICES,
    MAX_GROUPS,
    MAX_INDEXES,
    MAX_MISSING_PLUGINS,
    MAX_PLUGINS,
    MAX_POLICIES,
    MAX_PROBLEMS,
    MAX_PROVIDERS,
    MAX_REFUSALS,
    MAX_STATUS,
    MAX_TEXT,
    PODS_OWN,
    CustomDeviceReport,
    InterfaceGroup,
    MissingPlugin,
    NodeNetworkStatus,
    NodeNetworkSummary,
    NodeProblem,
    PolicyReport,
    ProviderReport,
    PublishedDevice,
    Standing,
    indexes,
)
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import RegistrationOutcome
from netdra.node.publishing.plugins import Presence

AWAY, GONE = "away", "gone"
MOST_NAMED = 32
"""How many interfaces without hardware are named that no policy matches."""
UNTOLD = "the report has no space for the result; use netdra explain on the node"
_STANDINGS = frozenset(get_args(Standing))
_MATCHING = _STANDINGS - {"failed"}
_NOTHING = object()
_Alike = Callable[[Interface], tuple[object, ...]]


class Row(msgspec.Struct, frozen=True):
    """One interface: its facts, the decision on it (None: it is gone), and its devices as they are published.

    `only_counted` interfaces are not named in the report.
    """

    interface: Interface
    decision: Decision | None
    devices: tuple[PublishedDevice, ...] = ()
    only_counted: bool = False


class ReportSource(msgspec.Struct, frozen=True):
    """The source of a report.

    Attributes:
        policies: those that hold on the node.
        problems: the problems, one for each place where it was seen.
        left_out: how many devices are not published, by reason.
        used_slots: how many attributes and capacities the fullest device carries.
        outcomes: the outcomes of providers' registrations.
        plugins: the CNI plugins that the node has.
        missing: the CNI plugins that policies list and the node does not have.
    """

    rows: Sequence[Row]
    policies: Sequence[DeviceExposurePolicy]
    problems: Sequence[Problem]
    left_out: Mapping[LeftOut, int]
    used_slots: int = 0
    outcomes: Sequence[RegistrationOutcome] = ()
    plugins: Sequence[str] = ()
    missing: Iterable[MissingPlugin] = ()


class Listed(msgspec.Struct, frozen=True):
    """For how many devices of the node policies list a CNI plugin, and how many of these devices claims have."""

    devices: int = 0
    allocated: int = 0

    def with_one(self, *, allocated: bool) -> Listed:
        """With one more device."""
        return Listed(self.devices + 1, self.allocated + allocated)


def missing_plugins(
    listed: Mapping[str, Listed], presence: Presence | None, lacked: Collection[str] = ()
) -> Iterator[MissingPlugin]:
    """The CNI plugins that policies list, or topologies need, and the node does not have, by name.

    Args:
        listed: those that policies list.
        presence: the node's plugins; None if they are not followed.
        lacked: those that topologies need and the node does not have.
    """
    if presence is None:
        return
    why = {**presence.lost, **presence.unusable}
    for plugin in sorted({*listed, *lacked}):
        if plugin in lacked or not is_there(plugin, presence.programs):
            of_policies = listed.get(plugin, Listed())
            yield MissingPlugin(
                name=plugin,
                reason=shortened(why.get(plugin, ""), MAX_TEXT),
                devices=of_policies.devices,
                allocated=of_policies.allocated,
                needed_by_topologies=plugin in lacked,
            )


def lost_plugins(listed: Mapping[str, Listed], presence: Presence | None) -> Iterator[Problem]:
    """The missing plugins as problems to fix, if they were there before, or are there and do not answer.

    A plugin that was never there may be meant for other nodes.
    """
    for missing in missing_plugins(listed, presence):
        if missing.reason:
            yield Problem(
                policy="",
                message=f'CNI plugin "{missing.name}" is not offered ({missing.devices} devices list it, claims have '
                f"{missing.allocated} of them): {missing.reason}",
                cause=f'CNI plugin "{missing.name}" is not offered: {missing.reason}',
            )


def status(seen: ReportSource) -> NodeNetworkStatus:
    """A node's status, below `MAX_STATUS` as JSON; the order of the source does not matter."""
    rows = _noted(sorted(seen.rows, key=lambda row: _in_order(row.interface.device_name)))
    published = [device for row in rows for device in row.devices]
    problems = tuple(_by_cause(seen.problems))
    rest = NodeNetworkStatus(
        summary=NodeNetworkSummary(
            interfaces=sum(not row.interface.is_pool for row in rows),
            offered=len(published),
            allocated=sum(device.allocated for device in published),
            problems=len(problems),
        ),
        used_slots=seen.used_slots,
        policies=tuple(_policies(rows, seen.policies))[:MAX_POLICIES],
        problems=problems[:MAX_PROBLEMS],
        left_out={reason: number for reason, number in sorted(seen.left_out.items()) if number},
        plugins=tuple(seen.plugins)[:MAX_PLUGINS],
        missing_plugins=tuple(seen.missing)[:MAX_MISSING_PLUGINS],
        custom_devices=tuple(_custom_devices(seen.outcomes))[:MAX_CUSTOM_DEVICES],
        providers=tuple(_providers(seen.outcomes))[:MAX_PROVIDERS],
    )
    return _fitting(rest, rows)


def device(base: str, name: str, policy: str, suffixes: Iterable[str], *, allocated: bool) -> PublishedDevice:
    """A published device in the words of a report.

    Args:
        base: its interface's name, with which names of devices begin.
        name: its own name.
        policy: the policy that offers it, "" if that is unknown.
        suffixes: those that may follow the interface's name in it.
        allocated: whether a claim has it.
    """
    likely = ("", name.removeprefix(base), *suffixes)
    suffix = next((candidate for candidate in likely if names.label(base + candidate) == name), None)
    if suffix is None:
        return PublishedDevice(policy=policy, name=name, allocated=allocated)
    return PublishedDevice(policy=policy, suffix=suffix, allocated=allocated)


def _in_order(name: str) -> tuple[str, int, str]:
    """`eth10` after `eth9`, and `p0v10` after `p0v9`."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1), name


def _alone(interface: Interface) -> tuple[object, ...]:
    """Every netdev for itself, with all that a selector can ask; VFs by their PF."""
    return _nic(interface) if interface.type == "vf" else (interface.identity, interface.if_name)


def _nic(interface: Interface) -> tuple[object, ...]:
    """By the facts that one kind of hardware shares."""
    return (
        interface.pf_name,
        interface.driver,
        interface.vendor,
        interface.product,
        interface.numa_node,
        interface.link_speed,
    )


def _fate(_: Interface) -> tuple[object, ...]:
    """By their outcome alone."""
    return ()


def _fitting(rest: NodeNetworkStatus, rows: Sequence[Row]) -> NodeNetworkStatus:
    """The status with as many facts of interfaces as fit."""
    for alike in (_alone, _nic, _fate):
        fitting = msgspec.structs.replace(rest, interfaces=_groups(rows, alike))
        if len(fitting.interfaces) <= MAX_GROUPS and _size(fitting) <= MAX_STATUS:
            return fitting
    groups = list(_merged(fitting.interfaces))
    for index in sorted(range(len(groups)), key=lambda index: -_size(groups[index])):
        groups[index] = msgspec.structs.replace(
            groups[index], attributes={}, varying=(), unreadable=(), listed=(), vfs=""
        )
        fitting = msgspec.structs.replace(rest, interfaces=tuple(groups))
        if _size(fitting) <= MAX_STATUS:
            return fitting
    return _cut(msgspec.structs.replace(rest, interfaces=tuple(_by_type(groups))))


def _merged(groups: tuple[InterfaceGroup, ...]) -> Iterator[InterfaceGroup]:
    """No more groups than fit into a report: the smallest groups are counted by type."""
    if len(groups) <= MAX_GROUPS:
        yield from groups
        return
    largest = sorted(groups, key=lambda group: -group.count)
    yield from largest[: MAX_GROUPS // 2]
    yield from _by_type(largest[MAX_GROUPS // 2 :])


def _by_type(groups: Sequence[InterfaceGroup]) -> Iterator[InterfaceGroup]:
    counts: Counter[str] = Counter()
    for group in groups:
        counts[group.type] += group.count
    for kind, count in sorted(counts.items()):
        yield InterfaceGroup(type=kind, count=count, reason=UNTOLD)


def _cut(shortened: NodeNetworkStatus) -> NodeNetworkStatus:
    """A status that is still too long: its longest list is halved until it fits."""
    while _size(shortened) > MAX_STATUS:
        longest = max(
            ("problems", "policies", "custom_devices", "providers"), key=lambda name: _size(getattr(shortened, name))
        )
        entries: tuple[Any, ...] = getattr(shortened, longest)
        shortened = msgspec.structs.replace(shortened, **{longest: entries[: len(entries) // 2]})
    return shortened


def _groups(rows: Sequence[Row], alike: _Alike) -> tuple[InterfaceGroup, ...]:
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(_key(row, alike), []).append(row)
    return tuple(_group(members) for members in groups.values())


def _key(row: Row, alike: _Alike) -> tuple[object, ...]:
    if row.only_counted:
        return (row.interface.type,)
    kind = row.interface.type, row.interface.is_pool
    return (*kind, _state(row), row.devices, _reason(row), *_standings(row).items(), alike(row.interface))


def _noted(rows: Iterable[Row]) -> list[Row]:
    """The rows with counts of the others: those that no policy matches, the ends of pods' pairs, and many alike."""
    noted: list[Row] = []
    named = 0
    for row in rows:
        interface = row.interface
        hardware = bool(interface.pci_address or interface.device_file or interface.is_pool)
        if not (row.devices or hardware or _standings(row)):
            if interface.type in PODS_OWN or named == MOST_NAMED:
                row = msgspec.structs.replace(row, only_counted=True)
            else:
                named += 1
        noted.append(row)
    return noted


def _group(members: Sequence[Row]) -> InterfaceGroup:
    first = members[0]
    counted = first.only_counted
    # Of pooled VFs, the entry of the VFs has the rest.
    interfaces = [Interface(type="vf", pf_name=row.interface.pf_name) for row in members if row.interface.is_pool]
    common, varying, unreadable = _common(interfaces or [_offerable(row.interface) for row in members])
    called = () if counted else tuple(row.interface.device_name for row in members)
    vfs = _vf_indexes([row.interface for row in members], common.get("pfName", ""))
    return InterfaceGroup(
        type=first.interface.type,
        state="" if counted else _state(first),
        count=len(members),
        listed=() if vfs else called,
        vfs=vfs,
        devices=first.devices,
        reason=_reason(first),
        policies=_standings(first),
        attributes=common,
        varying=varying,
        vf_names=_vf_names([row.interface for row in members]),
        unreadable=unreadable,
        pools_vfs=first.interface.is_pool,
    )


def _offerable(interface: Interface) -> Interface:
    """A device file that no pod may be given is reported without its path, so that readers do not expect an offer."""
    return msgspec.structs.replace(interface, device_file="") if interface.file_problem else interface


def _vf_indexes(interfaces: Sequence[Interface], pf: str) -> str:
    """The indexes of several VFs of one PF, which they are named after; "" for other interfaces."""
    are_vfs = all(vf.type == "vf" and not vf.is_pool and vf.device_name == f"{pf}v{vf.vf_index}" for vf in interfaces)
    if len(interfaces) < 2 or not pf or not are_vfs:
        return ""
    text = indexes(vf.vf_index for vf in interfaces)
    return text if len(text) <= MAX_INDEXES else ""


def _vf_names(interfaces: Sequence[Interface]) -> str:
    """The text before the index in the names of VFs, "" if some are named otherwise, or for a single VF."""
    first = interfaces[0]
    before = first.if_name.removesuffix(str(first.vf_index))
    alike = all(
        interface.vf_index >= 0 and interface.if_name == f"{before}{interface.vf_index}" for interface in interfaces
    )
    return before if alike and len(interfaces) > 1 else ""


def _state(row: Row) -> str:
    if row.decision is None:
        return GONE
    if row.interface.is_pool:
        return ""
    return row.interface.oper_state if row.interface.if_name or row.interface.device_file else AWAY


def _reason(row: Row) -> str:
    if row.decision is None:
        return "the interface is gone, and a claim has its device"
    if row.decision.exposed:
        return "" if row.devices else "none of its devices can be published"
    return shortened(row.decision.reason.removeprefix("hidden: "), MAX_TEXT)


def _standings(row: Row) -> dict[str, Standing]:
    if row.decision is None:
        return {}
    return {
        verdict.policy: verdict.outcome  # type: ignore[misc]  # a Standing is an RegistrationOutcome of these
        for verdict in row.decision.verdicts
        if verdict.outcome in _STANDINGS
    }


def _common(interfaces: Sequence[Interface]) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """The attributes that all share, without those that do not apply; those that differ; and those that none has."""
    shared: dict[str, object] = {}
    varying: set[str] = set()
    for index, interface in enumerate(interfaces):
        common: Mapping[str, AttributeValue] = attributes(interface)
        if not index:
            shared = {name: common.get(name, _NOTHING) for name in DEFAULTS if name != _TYPE}
            continue
        for name in [name for name, value in shared.items() if common.get(name, _NOTHING) != value]:
            del shared[name]
            varying.add(name)
    unreadable = tuple(_short(name) for name, value in shared.items() if value is _NOTHING)
    values = {
        _short(name): value for name, value in shared.items() if value is not _NOTHING and value != DEFAULTS[name]
    }
    return values, tuple(_short(name) for name in DEFAULTS if name in varying), unreadable


_TYPE = names.qualified("type")


def _short(name: str) -> str:
    return name.removeprefix(f"{names.DRIVER}/")


def _policies(rows: Sequence[Row], policies: Iterable[DeviceExposurePolicy]) -> Iterator[PolicyReport]:
    outcomes: Counter[tuple[str, str]] = Counter()
    outranked: dict[str, Counter[str]] = {}
    for row in rows:
        for verdict in row.decision.verdicts if row.decision else ():
            outcomes[verdict.policy, verdict.outcome] += 1
            if verdict.by:
                outranked.setdefault(verdict.policy, Counter())[verdict.by] += 1
    made = Counter(device.policy for row in rows for device in row.devices)
    for policy in sorted(policies, key=lambda policy: policy.name):
        name = policy.name
        yield PolicyReport(
            name=name,
            generation=policy.metadata.generation,
            matches=sum(outcomes[name, outcome] for outcome in _MATCHING),
            devices=made[name],
            outranked=dict(sorted(outranked.get(name, {}).items())),
            overruled=outcomes[name, "overruled"],
            failing=outcomes[name, "failed"],
            invalid=bool(outcomes[name, "invalid"]),
        )


def _custom_devices(outcomes: Iterable[RegistrationOutcome]) -> Iterator[CustomDeviceReport]:
    by_name: dict[str, list[RegistrationOutcome]] = {}
    for outcome in outcomes:
        if outcome.custom_device:
            by_name.setdefault(outcome.custom_device, []).append(outcome)
    for name, own in sorted(by_name.items()):
        problems = dict.fromkeys(f"{entry.device}: {entry.problem}" for entry in own if entry.problem)
        yield CustomDeviceReport(
            name=name,
            desired=len(own),
            applied=sum(not entry.problem for entry in own),
            problems=tuple(shortened(text, MAX_TEXT) for text in problems)[:MAX_REFUSALS],
        )


def _providers(outcomes: Iterable[RegistrationOutcome]) -> Iterator[ProviderReport]:
    by_name: dict[str, list[RegistrationOutcome]] = {}
    for outcome in outcomes:
        if not outcome.custom_device:
            by_name.setdefault(outcome.provider, []).append(outcome)
    for name, own in sorted(by_name.items()):
        yield ProviderReport(name=name, desired=len(own), applied=sum(not entry.problem for entry in own))


def _by_cause(problems: Iterable[Problem]) -> Iterator[NodeProblem]:
    """Each cause once, in the order of the number of interfaces."""
    causes: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        causes.setdefault((problem.policy, problem.cause or problem.message), []).append(problem)
    ordered = sorted(causes.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    for (policy, message), group in ordered:
        seen = sorted({problem.device for problem in group if problem.device}, key=_in_order)
        yield NodeProblem(
            policy=policy, message=shortened(message, MAX_TEXT), interfaces=len(seen), example=seen[0] if seen else ""
        )


def _size(value: object) -> int:
    return len(msgspec.json.encode(value))
