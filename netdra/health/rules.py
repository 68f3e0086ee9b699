"""The DeviceTaintRules for faults that nodes report, within the cap. Pure.

Called by `netdra.controller.device_health`. A rule is named after its device, so two controllers cannot make two, and
a rule that a person changes becomes what it was.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from netdra.model import names
from netdra.model.meta import ObjectMeta
from netdra.model.node_network import DeviceFault, NodeNetworkReport
from netdra.model.resource import DeviceTaint
from netdra.model.taint_rule import DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector

PREFIX = "netdra-health-"
MOST_DEVICES = 512
"""How many devices of a node count at most: a report of more does not widen the cap of a cluster."""
EVIDENCE = f"{names.GROUP}/evidence"
"""The annotation with the fault in words."""

DeviceKey = tuple[str, str]


class HealthCap(msgspec.Struct, frozen=True):
    """The shares of devices that may be tainted at one time, in percent."""

    node: int = 50
    cluster: int = 10


DEFAULT_CAP = HealthCap()


class TaintDecision(msgspec.Struct, frozen=True):
    """The rules to have, and the faults that get none because the cap is reached.

    Attributes:
        rules: by name.
        kept: the faults beyond the cap, with their nodes.
    """

    rules: Mapping[str, DeviceTaintRule]
    kept: tuple[tuple[str, DeviceFault], ...]


def decide(reports: Iterable[NodeNetworkReport], present: Iterable[DeviceTaintRule], cap: HealthCap) -> TaintDecision:
    """Choose which faults become taints.

    Args:
        reports: of all nodes.
        present: the rules that netdra has.
        cap: the shares.
    """
    faults: dict[DeviceKey, tuple[str, DeviceFault]] = {}
    devices: dict[str, int] = {}
    for report in reports:
        if report.status is None:
            continue
        node = report.metadata.name
        devices[node] = min(report.status.watched_devices, MOST_DEVICES)
        for fault in report.status.faults:
            key = fault.pool, fault.device
            former = faults.get(key)
            if fault.effect == "Report" or (former is not None and former[0] != node):
                continue
            if former is None or (former[1].effect, fault.effect) == ("NoSchedule", "NoExecute"):
                faults[key] = node, fault
    wishes = (
        TaintWish(since=fault.since, node=node, pool=key[0], device=key[1]) for key, (node, fault) in faults.items()
    )
    tainted = {(rule.spec.device_selector.pool, rule.spec.device_selector.device) for rule in present}
    granted = grant(wishes, tainted, devices, node_percent=cap.node, cluster_percent=cap.cluster)
    rules = (rule_of(*faults[wish.key]) for wish in granted.tainted)
    return TaintDecision({rule.metadata.name: rule for rule in rules}, tuple(faults[wish.key] for wish in granted.kept))


def rule_name(pool: str, device: str) -> str:
    """The same name for a device each time: a prefix and 64 bits of a digest, since pool and device may be too long."""
    return f"{PREFIX}{hashlib.sha256(f'{pool}/{device}'.encode()).hexdigest()[:16]}"


def rule_of(node: str, fault: DeviceFault) -> DeviceTaintRule:
    """The rule for a fault of a node."""
    return DeviceTaintRule(
        metadata=ObjectMeta(
            name=rule_name(fault.pool, fault.device),
            labels={names.HEALTH_LABEL: names.label_value(node)},
            annotations={EVIDENCE: fault.text},
        ),
        spec=DeviceTaintRuleSpec(
            device_selector=DeviceTaintSelector(driver=names.DRIVER, pool=fault.pool, device=fault.device),
            taint=DeviceTaint(key=names.UNHEALTHY, value=names.label_value(fault.rule), effect=fault.effect),
        ),
    )


def is_as(present: DeviceTaintRule, wanted: DeviceTaintRule) -> bool:
    """Whether a rule needs no write. The server dates its taint, and the evidence of the begin stays."""
    taint = msgspec.structs.replace(present.spec.taint, time_added=None)
    former = msgspec.structs.replace(present.spec, taint=taint)
    return former == wanted.spec and present.metadata.labels == wanted.metadata.labels


class TaintWish(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A device that is to be tainted; ordered by the begin of its fault.

    Attributes:
        since: when the fault began, in RFC 3339.
        node, pool, device: the device.
    """

    since: str
    node: str
    pool: str
    device: str

    @property
    def key(self) -> tuple[str, str]:
        """Pool and name."""
        return self.pool, self.device


class Granted(msgspec.Struct, frozen=True):
    """The devices that may be tainted, and those that may not, with the number of devices of each node and of all.

    Attributes:
        tainted: may be.
        kept: must not be, because the share of the node or of the cluster is used up.
    """

    tainted: tuple[TaintWish, ...]
    kept: tuple[TaintWish, ...]


def most(devices: int, percent: int) -> int:
    """How many of so many devices may be tainted: the share, rounded down, and one in any case.

    Without the one, a node with a single NIC could never lose a broken one. With 0 percent, the result is 0.
    """
    return max(1, devices * percent // 100) if percent and devices else 0


def grant(
    wishes: Iterable[TaintWish],
    present: Collection[tuple[str, str]],
    devices: Mapping[str, int],
    *,
    node_percent: int,
    cluster_percent: int,
) -> Granted:
    """Choose the devices that may be tainted: those that are, then those with the oldest faults.

    A wrong threshold makes all devices faulty at once; then the share alone is tainted, and the rest is reported. A
    taint that was granted stays granted while its fault lasts, so no device takes turns with another.

    Args:
        wishes: the devices to taint.
        present: pool and name of the devices that are tainted for their health now.
        devices: how many devices with health rules each node has.
        node_percent: the share of a node's devices.
        cluster_percent: the share of all devices.
    """
    of_cluster = most(sum(devices.values()), cluster_percent)
    used: Counter[str] = Counter()
    tainted: list[TaintWish] = []
    kept: list[TaintWish] = []
    for wish in sorted(wishes, key=lambda wish: (wish.key not in present, wish)):
        fits = len(tainted) < of_cluster and used[wish.node] < most(devices.get(wish.node, 0), node_percent)
        (tainted if fits else kept).append(wish)
        used[wish.node] += fits
    return Granted(tuple(tainted), tuple(kept))
