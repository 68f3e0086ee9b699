"""Devices in words, for the tables and the texts of commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from netdra.model import names
from netdra.model.device import Decision, ExposedDevice, ExposureResult, Hidden, PolicyVerdict, Problem
from netdra.model.errors import sentence
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import MAX_ATTRIBUTES_AND_CAPACITIES, DeviceCapacity
from netdra.model.suggestions import listed

UNKNOWN_HINTS: Mapping[Hidden | None, tuple[str, str]] = {
    "uplink-unknown": (
        "the interfaces with traffic of the node are unknown",
        "set them with --uplink NAME, or --uplink none",
    ),
    "host-use-unknown": (
        "the interfaces that the host uses are unknown",
        "set them with --host-use NAME, or --host-use none",
    ),
}
"""The facts that may be unknown of a recorded tree, and the option that gives them."""
_NAMED = 5


def kind(device: ExposedDevice) -> str:
    """Whether one claim may have it, or several, or each claim a VF of it."""
    if device.lane is not None:
        return "pooled VFs"
    return "shared" if device.shared else "exclusive"


def plugins(device: ExposedDevice) -> str:
    """The CNI plugins that may attach it."""
    supported = device.attributes.get(names.qualified(names.SUPPORTED_CNIS), ())
    return ", ".join(supported) if isinstance(supported, tuple) else str(supported)


def capacity(device: ExposedDevice) -> str:
    """Its capacity, and how much of it a claim gets by default."""
    return ", ".join(f"{_short(name)} {_amount(amount)}" for name, amount in device.capacity.items())


def taken(device: ExposedDevice) -> str:
    """The amounts that it takes from the counters of its NIC while it is allocated."""
    return ", ".join(f"{name} {amount}" for counters in device.consumes.values() for name, amount in counters.items())


def slots(device: ExposedDevice) -> str:
    """How many attributes and capacities it carries, of how many that the API takes; the rest is for providers."""
    return f"{used_slots(device)} with {MAX_ATTRIBUTES_AND_CAPACITIES} attributes and capacities"


def used_slots(device: ExposedDevice) -> int:
    """How many attributes and capacities it carries."""
    return len(device.attributes) + len(device.registered) + len(device.capacity)


def amounts(counters: Mapping[str, int]) -> str:
    """A counter set's contents."""
    return ", ".join(f"{name} {amount}" for name, amount in counters.items())


def problem_text(problem: Problem) -> str:
    """A problem on one line or more, beginning with its policy."""
    return f'policy "{problem.policy}": {problem.message}' if problem.policy else problem.message


def problem_texts(problems: Iterable[Problem]) -> Iterator[str]:
    """Problems as texts; a policy's failure that is alike on several interfaces comes once, with their names."""
    alike: dict[tuple[str, str], list[Problem]] = {}
    for number, problem in enumerate(problems):
        failure = problem.message.partition(" ")[2] if problem.left_out == "policy-failed" else f"{number}"
        alike.setdefault((problem.policy, failure), []).append(problem)
    for first, *others in alike.values():
        yield problem_text(first)
        if others:
            named = listed((other.message.partition(" ")[0] for other in others), _NAMED)
            yield f'policy "{first.policy}": the same problem as {named}'


def unknown_use(decisions: Iterable[Decision]) -> Iterator[str]:
    """Interfaces of a recorded tree that are hidden only because their use is unknown, and the option that gives it."""
    hidden = Counter(decision.hidden for decision in decisions)
    for why, (what, hint) in UNKNOWN_HINTS.items():
        count = hidden[why]
        if count:
            many = f"{count} matched interfaces are" if count > 1 else "1 matched interface is"
            yield sentence(f"{many} not offered, because {what}", hint)


def nothing_offered(decisions: Sequence[Decision]) -> str:
    """Why a node offers nothing at all."""
    if not decisions:
        return "no devices are offered: the inventory does not contain interfaces"
    reasons = Counter(decision.reason.removeprefix("hidden: ") for decision in decisions)
    lines = [f"{count} interface{'s' * (count != 1)}: {reason}" for reason, count in reasons.most_common(_NAMED)]
    rest = sum(reasons.values()) - sum(count for _, count in reasons.most_common(_NAMED))
    more = [f"{rest} more for other reasons, see `netdra explain`"] if rest else []
    return "\n  ".join(["no devices are offered:", *lines, *more])


def without_devices(policies: Iterable[DeviceExposurePolicy], result: ExposureResult) -> Iterator[str]:
    """Why policies make no devices of a node that offers others; those with a problem of their own are reported."""
    used = {problem.policy for problem in result.problems}
    found: dict[str, list[PolicyVerdict]] = {}
    for decision in result.decisions:
        for verdict in decision.verdicts:
            found.setdefault(verdict.policy, []).append(verdict)
    for policy in policies:
        verdicts = found.get(policy.name, [])
        outcomes = Counter(verdict.outcome for verdict in verdicts)
        if policy.name in used or not outcomes or outcomes.keys() & {"wins", "excludes", "failed", "invalid"}:
            continue
        if outcomes["overruled"]:
            first = next(verdict for verdict in verdicts if verdict.outcome == "overruled")
            why = f"{_interfaces(outcomes['overruled'])} matched, but not offered: {first.detail}"
        elif outcomes["outranked"]:
            first = next(verdict for verdict in verdicts if verdict.outcome == "outranked")
            why = f'{_interfaces(outcomes["outranked"])} matched, but policy "{first.by}" has a higher rank'
        elif outcomes["other-node"]:
            why = "its nodeSelector does not match the node"
        else:
            why = f"it does not match any of the {_interfaces(len(verdicts))}"
        yield f'policy "{policy.name}": no devices: {why}'


def _interfaces(count: int) -> str:
    return f"{count} interface{'s' * (count != 1)}"


def _short(name: str) -> str:
    return name.removeprefix(f"{names.DRIVER}/")


def _amount(amount: DeviceCapacity) -> str:
    default = amount.request_policy.default if amount.request_policy else None
    return str(amount.value) if default is None else f"{amount.value} ({default} a claim)"
