"""The time of a driver for each call: by its own metrics, and by those of the kubelet that called it.

Asked by `bench.podruns`, before and after one pod, so that the difference is that pod's.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from bench.drivers import PREPARE, UNPREPARE, Driver
from netdra.kernel.netns import Namespace
from testbed.access import ADMIN, ADMIN_GROUPS, Access

KUBELET = "the kubelet's "
"""What the name of a time that the kubelet took begins with."""

_KUBELET_PORT = 10250
_KUBELET_METRIC = "dra_grpc_operations_duration_seconds"
_METHODS = {PREPARE: "NodePrepareResources", UNPREPARE: "NodeUnprepareResources"}
_TIMEOUT = 10.0


class Total(msgspec.Struct, frozen=True):
    """All calls so far: their seconds, their number, and the bound of the slowest one's bucket."""

    seconds: float = 0.0
    count: int = 0
    bound: float = 0.0


class Timers:
    """The times of one driver on one node."""

    def __init__(self, driver: Driver, namespace: Namespace, plane: Access) -> None:
        """Connect to nothing yet.

        Args:
            driver: the driver.
            namespace: the node's network namespace.
            plane: whose administrator may read the kubelet's metrics.
        """
        self._driver, self._namespace = driver, namespace
        pair = plane.authority.client(ADMIN, ADMIN_GROUPS)
        # The kubelet signs its own certificate; it is ours, on a namespace's loopback.
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE
        self._tls.load_cert_chain(pair.certificate, pair.key)

    def driver(self) -> dict[str, Total]:
        """By call, the driver's own metrics."""
        connection = http.client.HTTPConnection("127.0.0.1", self._driver.port, timeout=_TIMEOUT)
        text = self._namespace.run(lambda: _get(connection))
        return {
            what: _total(text, metric, {label: value})
            for what, (metric, (label, value)) in self._driver.histograms.items()
        }

    def kubelet(self) -> dict[str, Total]:
        """The same as the kubelet saw it, for the kubelet's calls; one more connection."""
        connection = http.client.HTTPSConnection("127.0.0.1", _KUBELET_PORT, timeout=_TIMEOUT, context=self._tls)
        text = self._namespace.run(lambda: _get(connection))
        return {
            KUBELET + what: _total(text, _KUBELET_METRIC, {"driver_name": self._driver.name}, method)
            for what, method in _METHODS.items()
        }


def _get(connection: http.client.HTTPConnection) -> str:
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def _total(text: str, metric: str, labels: Mapping[str, str], method: str = "") -> Total:
    lines = "".join(f"{line}\n" for line in text.splitlines() if line.startswith((f"{metric}_", f"# TYPE {metric} ")))
    seconds, count, buckets = 0.0, 0, dict[float, float]()
    for family in text_string_to_metric_families(lines):
        for each in family.samples:
            if not labels.items() <= each.labels.items() or method not in each.labels.get("method_name", ""):
                continue
            if each.name.endswith("_sum"):
                seconds += each.value
            elif each.name.endswith("_count"):
                count += int(each.value)
            elif each.name.endswith("_bucket"):
                bound = float(each.labels["le"])
                buckets[bound] = buckets.get(bound, 0.0) + each.value
    return Total(seconds, count, min((bound for bound, held in buckets.items() if held >= count), default=0.0))
