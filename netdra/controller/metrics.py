"""The controller's metrics, counted by `controller`, `writing` and `neutron`."""

from __future__ import annotations

from netdra.ops.metrics import OUTCOME, SLOW, Catalogue

CONTROLLER = Catalogue("Controller")

RECONCILE_SECONDS = CONTROLLER.histogram(
    "netdra_controller_reconcile_duration_seconds",
    "Duration of one reconciliation of an object, including writes.",
    "kind",
    OUTCOME,
    buckets=SLOW,
)
CLASS_WRITES = CONTROLLER.counter(
    "netdra_controller_class_writes_total", "DeviceClasses written or deleted.", "verb", OUTCOME
)
STATUS_WRITES = CONTROLLER.counter("netdra_controller_status_writes_total", "Statuses written.", "resource")
DEGRADED = CONTROLLER.gauge(
    "netdra_controller_degraded_objects",
    "NetworkTopologies and DeviceExposurePolicies whose condition Degraded is True; 0 if the process "
    "is not the leader.",
    "kind",
)
DEFECTS = CONTROLLER.counter(
    "netdra_controller_defects_total",
    "Policies and topologies that are used without a check because netdra has a defect in it; the log has its place.",
    "kind",
)
ADDRESS_WRITES = CONTROLLER.counter(
    "netdra_controller_address_writes_total", "PodAddresses written or deleted.", "verb"
)
SHARE_WRITES = CONTROLLER.counter(
    "netdra_controller_network_share_writes_total",
    "ResourceSlices with the free addresses of PodNetworks written or deleted.",
    "verb",
)
RANGE_ADDRESSES = CONTROLLER.gauge(
    "netdra_controller_range_addresses",
    "Addresses of each range of the PodNetworks; state is used, reserved or free. Networks beyond the first 512 ranges "
    "are counted together as network other. Only the leader has these series.",
    "network",
    "range",
    "state",
)
RANGES = CONTROLLER.gauge(
    "netdra_controller_ranges",
    "Ranges of each PodNetwork with few free addresses; state is nearly-full (spec.nearlyFullPercent) or full. Only "
    "the leader has these series.",
    "network",
    "state",
)
SLICE_WRITES = CONTROLLER.counter(
    "netdra_controller_endpointslice_writes_total", "EndpointSlices of Services written or deleted.", "verb", OUTCOME
)
CONFLICTS = CONTROLLER.counter(
    "netdra_controller_address_conflicts_total",
    "Addresses of PodNetworks that are not assigned for a time because another machine uses them.",
)
NEUTRON_SECONDS = CONTROLLER.histogram(
    "netdra_controller_neutron_request_duration_seconds",
    "Duration of one request to Keystone or Neutron; the status is 0 without an answer.",
    "server",
    "method",
    "status",
    buckets=SLOW,
)
NEUTRON_PORTS = CONTROLLER.gauge(
    "netdra_controller_neutron_ports", "NeutronPorts by the reason of their condition Bound.", "reason"
)
NEUTRON_ORPHANS = CONTROLLER.counter(
    "netdra_controller_neutron_orphans_total", "Ports of deleted claims that were deleted from Neutron.", OUTCOME
)
