"""Faults that nodes report become taints within the cap, and nothing else does."""

from __future__ import annotations

import msgspec

from netdra.health.rules import HealthCap, TaintDecision, decide, is_as, rule_of
from netdra.model import names
from netdra.model.meta import ObjectMeta
from netdra.model.node_network import DeviceFault, NodeNetworkReport, ReportedStatus


def fault(device: str, since: int = 0, effect: str = "NoSchedule", pool: str = "", rule: str = "crc") -> DeviceFault:
    """A fault of a device; its pool is called after it."""
    fields = {"counter": "rx_crc_errors", "increase": 412, "at_least": 100, "within_seconds": 3600}
    return DeviceFault(
        pool=pool or f"n-{device}",
        device=device,
        policy="nics",
        rule=rule,
        effect=effect,  # type: ignore[arg-type]
        since=f"2026-11-30T00:00:{since:02}Z",
        values=("00:10:11Z 1207", "00:12:41Z 1619"),
        **fields,  # type: ignore[arg-type]
    )


def report(node: str, *faults: DeviceFault, watched: int = 8) -> NodeNetworkReport:
    return NodeNetworkReport(
        metadata=ObjectMeta(name=node), status=ReportedStatus(faults=faults, watched_devices=watched)
    )


def tainted(decision: TaintDecision) -> dict[str, str]:
    """The effect of each tainted device."""
    specs = (rule.spec for rule in decision.rules.values())
    return {spec.device_selector.device: spec.taint.effect for spec in specs}


def test_a_fault_is_a_taint_of_its_device_and_a_reported_one_is_none() -> None:
    decision = decide([report("a", fault("eth1"), fault("eth2", effect="Report"))], (), HealthCap())
    (rule,) = decision.rules.values()
    assert rule.spec.device_selector.device == "eth1"
    assert (rule.spec.taint.key, rule.spec.taint.value) == (names.UNHEALTHY, "crc")
    (evidence,) = rule.metadata.annotations.values()
    assert "rx_crc_errors 412 in 3600 s (00:10:11Z 1207, 00:12:41Z 1619)" in evidence
    assert 'policy "nics", rule "crc" allows less than 100' in evidence


def test_of_several_rules_of_a_device_the_strongest_effect_counts() -> None:
    found = decide([report("a", fault("eth1"), fault("eth1", effect="NoExecute", rule="down"))], (), HealthCap())
    assert tainted(found) == {"eth1": "NoExecute"}


def test_a_wrong_threshold_taints_a_share_of_a_node_and_of_the_cluster_and_the_rest_is_kept() -> None:
    reports = [report(f"n{node}", *(fault(f"n{node}e{nic}", nic) for nic in range(8))) for node in range(10)]
    of_cluster = decide(reports, (), HealthCap(node=50, cluster=10))
    assert (len(of_cluster.rules), len(of_cluster.kept)) == (8, 72)
    of_node = decide(reports, (), HealthCap(node=50, cluster=100))
    assert (len(of_node.rules), len(of_node.kept)) == (40, 40)
    assert decide(reports, (), HealthCap(node=50, cluster=0)).rules == {}
    # A repaired device makes room for another one, and no other taint changes.
    present = of_cluster.rules.values()
    repaired = next(iter(present)).spec.device_selector.device
    rest = [
        report(each.metadata.name, *(entry for entry in each.status.faults if entry.device != repaired))
        for each in reports
        if each.status is not None
    ]
    again = decide(rest, present, HealthCap(node=50, cluster=10))
    assert len(again.rules) == 8
    assert set(of_cluster.rules) - set(again.rules) == {rule_of("x", fault(repaired)).metadata.name}


def test_a_taint_ends_with_its_report_and_with_its_node() -> None:
    first = decide([report("a", fault("eth1"))], (), HealthCap())
    assert decide([report("a")], first.rules.values(), HealthCap()).rules == {}
    assert decide([], first.rules.values(), HealthCap()).rules == {}
    assert decide([NodeNetworkReport(metadata=ObjectMeta(name="a"))], first.rules.values(), HealthCap()).rules == {}


def test_a_node_that_claims_more_devices_than_it_can_have_widens_no_cap() -> None:
    forged = report("forger", watched=1_000_000)
    many = [report(f"n{node}", fault(f"n{node}e0")) for node in range(100)]
    assert len(decide([forged, *many], (), HealthCap(cluster=10)).rules) <= (512 + 800) // 10


def test_of_two_nodes_that_report_one_device_the_first_counts() -> None:
    found = decide([report("a", fault("eth1", pool="p")), report("b", fault("eth1", pool="p"))], (), HealthCap())
    (rule,) = found.rules.values()
    assert rule.metadata.labels[names.HEALTH_LABEL] == "a"


def test_a_rule_is_written_again_only_if_it_differs_beyond_the_servers_date() -> None:
    wanted = rule_of("a", fault("eth1"))
    taint = msgspec.structs.replace(wanted.spec.taint, time_added="2026-11-30T00:00:00Z")
    stored = msgspec.structs.replace(wanted, spec=msgspec.structs.replace(wanted.spec, taint=taint))
    assert is_as(stored, wanted)
    assert not is_as(stored, rule_of("a", fault("eth1", effect="NoExecute")))
    assert not is_as(stored, rule_of("b", fault("eth1")))
