"""The chart's alerts and dashboard in a real Prometheus that scrapes the daemons as the chart's monitors describe.

Durations of the rules are shortened: a `for` to a second, a range to some scrapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import pytest
import yaml

from testbed import helm, prometheus
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.driver import HEALTH_PORT, Driver
from testbed.pods import is_running
from testbed.process import Ports, Process
from testbed.prometheus import Prometheus
from testbed.site import relay
from testbed.waiting import until
from tests.cluster.daemons import WRONG_POLICY, refusal, running_controller, running_webhook
from tests.cluster.pods import witness
from tests.cluster.pods.stage import Stage, shares

CHART = helm.CHARTS / "netdra"
PAGE = CHART.parents[1] / "docs" / "alerts.md"
FOR, RANGE = "1s", "10s"
"""What durations are shortened to."""
RESOLVED_WITHIN = 90.0
RARE = {
    "netdra_device_faults",
    "netdra_pod_network_bandwidth_bytes",
    "netdra_controller_ranges",
    "netdra_plugin_left_alone",
    "netdra_reflector_failures_total",
}
"""What exists only after a CNI plugin has hung, the API server has rejected a watch, or a policy has health rules."""
NAMED = re.compile(r"\bnetdra_[a-z_]+")


@dataclass(frozen=True)
class Monitored:
    """A Prometheus, and the controller that it scrapes."""

    prometheus: Prometheus
    controller: Process

    def until_fires(self, alert: str) -> Object:
        """Wait until an alert fires, and return it."""
        return until(lambda: self.prometheus.firing().get(alert), f"{alert} to fire", detail=self.prometheus.firing)

    def until_resolved(self, alert: str) -> None:
        """Wait until an alert does not fire."""
        until(
            lambda: alert not in self.prometheus.firing(),
            f"{alert} to be resolved",
            seconds=RESOLVED_WITHIN,
            detail=self.prometheus.firing,
        )


@cache
def rendered() -> str:
    """The chart with all that watches netdra."""
    everything = dict.fromkeys(("podMonitor", "serviceMonitor", "rules", "dashboard"), True)
    return helm.template(CHART, "netdra", "netdra", {"metrics": everything})


def of_kind(kind: str) -> Object:
    """The object of a kind that the chart's monitoring has."""
    (found,) = (each for each in helm.objects(rendered(), "monitoring.yaml") if each["kind"] == kind)
    return found


def shortened(rules: Object) -> Object:
    """Rules with durations that a test can wait for."""
    for rule in rules["groups"][0]["rules"]:
        rule["for"] = FOR
        rule["expr"] = re.sub(r"\[\d+m\]", f"[{RANGE}]", rule["expr"])
    return rules


def scrape(pod: str, port: int, endpoint: Object) -> Object:
    """How a pod is scraped, with the labels that the Prometheus operator gives it."""
    labels = {"namespace": "netdra", "pod": pod}
    static = {"targets": [f"127.0.0.1:{port}"], "labels": labels}
    honor = {"honor_labels": endpoint.get("honorLabels", False)}
    return {"job_name": pod, "metrics_path": endpoint["path"], "static_configs": [static], **honor}


@pytest.fixture(scope="module")
def monitored(driver: Driver, control_plane: ControlPlane, api: Api) -> Iterator[Monitored]:
    """The three daemons, and a Prometheus on the driver's node that scrapes them."""
    (of_nodes,) = of_kind("PodMonitor")["spec"]["podMetricsEndpoints"]
    (of_pods,) = of_kind("ServiceMonitor")["spec"]["endpoints"]
    with closing(Ports("127.0.0.1")) as ports:
        ours = {name: ports.take() for name in ("controller", "webhook")}
        ports.close()
        arguments = {name: f"--health-address=127.0.0.1:{port}" for name, port in ours.items()}
        with (
            running_controller(control_plane, api, arguments["controller"]) as controller,
            running_webhook(control_plane, api, arguments["webhook"]),
        ):
            for name, port in ours.items():
                relay(driver.node, name, str(port), ready=partial(driver.node.listens, port))
            scrapes = [
                scrape("netdra-node-a", HEALTH_PORT, of_nodes),
                *(scrape(f"netdra-{name}-a", port, of_pods) for name, port in ours.items()),
            ]
            yield Monitored(Prometheus(driver.node, scrapes, shortened(of_kind("PrometheusRule")["spec"])), controller)


def panels() -> list[str]:
    """Every query of the dashboard, with Grafana's own variable replaced."""
    dashboard = json.loads(of_kind("ConfigMap")["data"]["netdra.json"])
    targets = (target for panel in dashboard["panels"] for target in panel.get("targets", ()))
    return [target["expr"].replace("$__rate_interval", RANGE) for target in targets]


def empty(asked: Prometheus) -> list[str]:
    """The queries of the dashboard that have no result."""
    return [query for query in panels() if not asked.query(query)]


def named(expressions: list[str]) -> set[str]:
    """The metrics that expressions name."""
    return {name for expression in expressions for name in NAMED.findall(expression)}


def only_after_an_event() -> set[str]:
    """The metrics that docs/alerts.md lists as such."""
    (paragraph,) = re.findall(r"^No series exists before the first event of: ([^.]*)\.", PAGE.read_text(), re.MULTILINE)
    return set(re.findall(r"`(\w+)`", paragraph))


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(of_kind("PrometheusRule")["spec"]))
    assert "SUCCESS" in prometheus.check_rules(rules)


def test_every_query_is_evaluated_and_every_metric_exists(monitored: Monitored, stage: Stage, api: Api) -> None:
    asked = monitored.prometheus
    until(lambda: set(asked.targets().values()) == {"up"}, "all daemons to be scraped", detail=asked.targets)
    until(lambda: all(rule["health"] == "ok" for rule in asked.rules()), "the rules", detail=asked.rules)
    wanted = named([*panels(), *(rule["query"] for rule in asked.rules())])
    assert wanted - asked.series() == only_after_an_event()

    far_end = stage.driver.recorder("far-end")
    far_end.fails("ADD", message="no carrier")
    witness.add(stage.pods, "failing", stage.claim("failing", "far-end"))
    witness.run(stage.pods, "running", stage.claim("running"))
    refusal(lambda: api.create(WRONG_POLICY, dry_run=True))
    until(lambda: wanted - asked.series() == RARE, "all metrics", detail=lambda: wanted - asked.series())
    # A rate has a value from the second scrape on.
    until(lambda: not empty(asked), "every panel to show something", detail=lambda: empty(asked))
    fires = monitored.until_fires("NetdraAttachFails")
    assert "netdra-node-a" in fires["annotations"]["summary"]
    monitored.until_fires("NetdraDegraded")

    far_end.prints("ADD", {})
    witness.hurry(stage.pods, "failing", is_running)
    monitored.until_resolved("NetdraAttachFails")
    monitored.until_resolved("NetdraDegraded")


def test_the_traffic_of_pods_equals_the_sent_bytes_also_over_a_restart_of_the_driver(
    monitored: Monitored, stage: Stage
) -> None:
    def counted(pod: str, metric: str) -> float:
        query = f'netdra_pod_network_{metric}_total{{pod="{pod}",namespace="{stage.pods.namespace}",interface="net1"}}'
        found = until(lambda: monitored.prometheus.query(query), f"the series of {pod}")
        return float(found[0]["value"][1])

    topology = shares(stage.workspace, "wire")
    for name in ("receiver", "sender"):
        request = {"name": "share", "exactly": {"deviceClassName": f"{topology}-share"}}
        witness.run(stage.pods, name, stage.workspace.add_claim(name, request))
    (address,) = witness.addresses(stage.pods, "receiver")
    ends = (("sender", "transmit_bytes"), ("receiver", "receive_bytes"))
    before = [counted(*end) for end in ends]
    command = ("ping", "-q", "-c", "50", "-i", "0.02", "-s", "1000", address.partition("/")[0])
    stage.pods.exec("sender", *command)
    stage.driver.restart()
    stage.pods.exec("sender", *command)
    sent = 2 * 50 * (1000 + 8 + 20 + 14)

    def increases() -> list[float]:
        return [counted(*end) - first for end, first in zip(ends, before, strict=True)]

    # ARP, and packets that a new link with IPv6 sends by itself.
    until(lambda: all(sent <= found <= sent + 10_000 for found in increases()), "all bytes", detail=increases)
    witness.end(stage.pods, "sender", "receiver")
    gone = 'last_over_time(netdra_pod_network_receive_bytes_total{pod="receiver"}[2s])'
    until(lambda: not monitored.prometheus.query(gone), "the series to end with the pod")


def test_a_process_that_has_stopped_is_reported_and_no_alert_fires_when_all_run(
    monitored: Monitored, driver: Driver
) -> None:
    healthy = monitored.prometheus.firing
    until(lambda: not healthy(), "no alert to fire", seconds=RESOLVED_WITHIN, detail=healthy)
    driver.kill()
    monitored.controller.stop()
    try:
        assert monitored.until_fires("NetdraDown")["labels"]["pod"] in ("netdra-node-a", "netdra-controller-a")
        monitored.until_fires("NetdraNobodyLeads")
    finally:
        driver.start()
        monitored.controller.start()
        monitored.controller.wait_ready()
    until(lambda: not healthy(), "all alerts to be resolved", seconds=RESOLVED_WITHIN, detail=healthy)
