"""Every alert of the chart with its own durations, by promtool on series without a cluster: it waits, fires, resolves.

`tests/cluster/pods/test_monitoring.py` has some of them on the real daemons, with shorter durations.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from testbed import helm, prometheus
from testbed.api import Object

FAULT, AFTER = 80, 60
"""Minutes: how long a fault lasts, and how long all is well afterwards."""
GROWS = f"0+30x{FAULT} {30 * FAULT}x{AFTER}"
"""A counter that grows by 30 a minute while the fault lasts."""
FORTNIGHT = 14 * 86400
Fault = tuple[dict[str, str], dict[str, str], str]
"""Series by their names with their values, the alert's labels, and the value that its text contains."""


def level(wrong: int, well: int) -> str:
    """A gauge with one value during the fault and another afterwards."""
    return f"{wrong}x{FAULT} {well}x{AFTER}"


def gauge(name: str, wrong: int, well: int, **labels: str) -> Fault:
    text = "".join(f', {label}="{value}"' for label, value in labels.items())
    return {f'{name}{{pod="a"{text}}}': level(wrong, well)}, {"pod": "a", **labels}, str(wrong)


def counter(name: str, labels: str = "", **kept: str) -> Fault:
    return {f'{name}{{pod="a"{labels}}}': GROWS}, {"pod": "a", **kept}, ""


BUCKET = "netdra_event_loop_delay_seconds_bucket"
FAULTS: dict[str, Fault] = {
    "NetdraDown": (
        {
            'up{namespace="netdra", pod="netdra-node-a"}': level(0, 1),
            'up{namespace="other", pod="netdra-node-b"}': "0x140",
        },
        {"pod": "netdra-node-a"},
        "",
    ),
    # Without any pod of a component the series does not exist.
    "NetdraMissing": (
        {'up{namespace="netdra", pod="netdra-webhook-a"}': f"_x{FAULT} 1x{AFTER}"},
        {"namespace": "netdra", "component": "webhook"},
        "",
    ),
    "NetdraRuntimeNotConnected": gauge("netdra_nri_connected", 0, 1),
    "NetdraKubeletNotRegistered": gauge("netdra_kubelet_registered", 0, 1),
    "NetdraAttachFails": counter("netdra_attach_duration_seconds_count", ', outcome="permanent"'),
    "NetdraPrepareFails": counter("netdra_claim_prepare_duration_seconds_count", ', outcome="temporary"'),
    "NetdraDevicesNotGivenBack": gauge("netdra_held_devices_in_trouble", 2, 0),
    "NetdraPluginDoesNotAnswer": gauge("netdra_plugin_left_alone", 1, 0, type="ovs"),
    "NetdraDevicesLeftOut": gauge("netdra_devices_left_out", 5, 0, reason="limit"),
    "NetdraDeviceLinkDown": (
        {'netdra_published_taints{pod="a", taint="link-down"}': level(3, 0)},
        {"pod": "a"},
        "3",
    ),
    "NetdraDeviceGone": ({'netdra_published_taints{pod="a", taint="gone"}': level(1, 0)}, {"pod": "a"}, "1"),
    "NetdraDegraded": (
        {'netdra_controller_degraded_objects{pod="a", kind="NetworkTopology"}': level(3, 0)},
        {"kind": "NetworkTopology"},
        "3",
    ),
    "NetdraRangeFull": (
        {'netdra_controller_ranges{pod="a", network="storage", state="full"}': level(2, 0)},
        {"network": "storage"},
        "2",
    ),
    "NetdraRangeNearlyFull": (
        {'netdra_controller_ranges{pod="a", network="storage", state="nearly-full"}': level(1, 0)},
        {"network": "storage"},
        "1",
    ),
    # Without any controller the metric does not exist.
    "NetdraNobodyLeads": (
        {'netdra_leader{pod="a", lease="netdra-controller"}': f"_x{FAULT} 1x{AFTER}"},
        {},
        "",
    ),
    "NetdraCertificateEnds": gauge("netdra_webhook_certificate_not_after_timestamp_seconds", FORTNIGHT, 10 * FORTNIGHT),
    "NetdraWebhookTurnsAway": counter("netdra_webhook_requests_total", ', verdict="unready", kind="Pod"'),
    "NetdraCopyOfTheClusterFails": counter("netdra_reflector_failures_total", ', resource="nodes"', resource="nodes"),
    "NetdraReportsFail": counter("netdra_report_failures_total"),
    "NetdraErrors": counter("netdra_log_lines_total", ', level="error"'),
    "NetdraEventLoopLate": (
        {
            f'{BUCKET}{{pod="a", le="1.0"}}': "0x140",
            **{f'{BUCKET}{{pod="a", le="{le}"}}': GROWS for le in ("5.0", "+Inf")},
        },
        {"pod": "a"},
        "",
    ),
    "NetdraDeviceFaulty": gauge("netdra_device_faults", 1, 0, effect="NoSchedule"),
}
HARMLESS = {
    'netdra_attach_duration_seconds_count{pod="a", outcome="ok"}': "0+30x140",
    'netdra_claim_prepare_duration_seconds_count{pod="a", outcome="invalid"}': "0+30x140",
    'netdra_devices_left_out{pod="a", reason="in-use"}': "4x140",
    'netdra_published_taints{pod="a", taint="withdrawn"}': "2x140",
    'netdra_log_lines_total{pod="a", level="info"}': "0+30x140",
    'netdra_webhook_requests_total{pod="a", verdict="refused", kind="Pod"}': "0+30x140",
}
"""Series at which no alert fires."""


def rules() -> Object:
    """The rendered rules of the chart."""
    whole = helm.template(helm.CHARTS / "netdra", "netdra", "netdra", {"metrics": {"rules": True}})
    (found,) = (each for each in helm.objects(whole, "monitoring.yaml") if each["kind"] == "PrometheusRule")
    spec: Object = found["spec"]
    return spec


def test_every_alert_waits_fires_and_is_resolved(tmp_path: Path) -> None:
    found = rules()
    (group,) = found["groups"]
    assert [rule["alert"] for rule in group["rules"]] == list(FAULTS)
    series = dict(HARMLESS)
    for faulty, _, _ in FAULTS.values():
        assert not faulty.keys() & series.keys()
        series |= faulty
    checks = [check for rule in group["rules"] for check in checks_of(rule, *FAULTS[rule["alert"]][1:])]
    written = [{"series": name, "values": values} for name, values in series.items()]
    tests = [{"interval": "1m", "input_series": written, "alert_rule_test": checks}]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(found))
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(content))
    assert "SUCCESS" in prometheus.run_rule_tests(tmp_path / "tests.yaml")


def checks_of(rule: Object, labels: dict[str, str], value: str) -> list[Any]:
    """The checks of promtool: the alert does not fire at once, fires during the fault, and not at the end."""
    annotations = {name: filled(text, labels, value) for name, text in rule["annotations"].items()}
    fires = {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": annotations}
    expected: dict[str, list[Any]] = {"1m": [], f"{FAULT - 5}m": [fires], f"{FAULT + AFTER - 5}m": []}
    return [{"eval_time": time, "alertname": rule["alert"], "exp_alerts": alerts} for time, alerts in expected.items()]


def filled(text: str, labels: dict[str, str], value: str) -> str:
    """An annotation as Prometheus renders it."""
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text).replace("{{ $value }}", value)
