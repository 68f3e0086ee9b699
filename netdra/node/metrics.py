"""The node daemon's metrics, and how the counts of other parts are carried over.

Most are counted in the module where the event happens; docs/metrics.md lists them. The functions here are called after
each reading of the kernel, after each attachment and after each publication.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, get_args

from netdra.chain.report import AttachReport, DetachReport, FailedAttachReport, UndoReport
from netdra.model import names
from netdra.model.device import LeftOut
from netdra.model.inventory import Inventory
from netdra.model.resource import ResourceSlice
from netdra.node.view import HeldDevice
from netdra.ops.metrics import FAST, OUTCOME, SLOW, Catalogue, SeriesCatalogue, Values

NODE = Catalogue("Node")

# Discovery.
READ_SECONDS = NODE.histogram(
    "netdra_discovery_read_duration_seconds",
    "Reading the kernel; trigger is event (changed interfaces) or scan (all interfaces).",
    "trigger",
)
KERNEL_EVENTS = NODE.counter("netdra_discovery_events_total", "Events received from the kernel.")
SCANS = NODE.counter("netdra_discovery_scans_total", "Full readings of the kernel.")
OVERFLOWS = NODE.counter("netdra_discovery_overflows_total", "How often the kernel dropped events; a scan follows.")
STALE = NODE.gauge(
    "netdra_discovery_stale",
    "1 if the last full reading of the kernel failed, links changed during it, or events were lost since then, else 0. "
    "Events are still processed, but interfaces may be missing until a reading succeeds.",
)
INTERFACES = NODE.gauge("netdra_discovery_interfaces", "Interfaces and VFs of this node.", "type")
UNREADABLE_FACTS = NODE.gauge("netdra_discovery_unreadable_facts", "Facts of interfaces that could not be read.")

# Publishing.
POOLS = NODE.gauge("netdra_published_pools", "Pools that this node publishes.")
SLICES = NODE.gauge("netdra_published_slices", "ResourceSlices that this node publishes.")
DEVICES = NODE.gauge("netdra_published_devices", "Devices that this node publishes.")
TAINTED = NODE.gauge("netdra_published_tainted_devices", "Devices that are published with a taint of netdra.")
TAINTS = NODE.gauge(
    "netdra_published_taints",
    "Devices that are published with this taint of netdra; taint is link-down, gone, withdrawn or trouble.",
    "taint",
)
LEFT_OUT = NODE.gauge(
    "netdra_devices_left_out",
    "Devices that are not published; reason is feature-gate (disabled), limit (of the API), name-taken, in-use "
    "(allocated devices use their counters), refused (by the API server), policy-failed (one for each interface "
    "on which an expression fails), policy-invalid (one for each error of a policy).",
    "reason",
)
SLICE_WRITES = NODE.counter(
    "netdra_publisher_writes_total", "ResourceSlices written; verb is create, update, delete.", "verb"
)
PUBLISHER_ROUNDS = NODE.counter("netdra_publisher_rounds_total", "Comparisons of desired and stored slices.", OUTCOME)
OVERTAKEN = NODE.counter("netdra_publisher_overtaken_total", "Pools that another client changed before the write.")
DROPPED = NODE.counter(
    "netdra_publisher_dropped_fields_total", "Fields that the API server did not keep, by its feature gate.", "gate"
)
REGISTRY_CALLS = NODE.counter(
    "netdra_registry_calls_total",
    "Registrations through the device registry's socket; outcome is granted or refused.",
    "outcome",
)
REGISTRY_REGISTRATIONS = NODE.gauge("netdra_registry_registrations", "Valid registrations of the device registry.")
REPORTS = NODE.counter("netdra_reports_total", "Writes of this node's NodeNetwork.")
REPORT_FAILURES = NODE.counter("netdra_report_failures_total", "Writes of this node's NodeNetwork that failed.")
PUBLISH_SECONDS = NODE.histogram(
    "netdra_publish_delay_seconds",
    "Time from reading a change of the kernel until the API server has stored all resulting slices.",
    buckets=SLOW,
)

# Claims and the kubelet.
PREPARE_SECONDS = NODE.histogram(
    "netdra_claim_prepare_duration_seconds", "Preparing one claim for the kubelet.", OUTCOME, buckets=SLOW
)
UNPREPARE_SECONDS = NODE.histogram(
    "netdra_claim_unprepare_duration_seconds", "Unpreparing one claim.", OUTCOME, buckets=SLOW
)
PREPARED = NODE.gauge("netdra_claims_prepared", "Claims that are prepared on this node.")
REGISTERED = NODE.gauge("netdra_kubelet_registered", "1 while this driver is registered with the kubelet, else 0.")
REGISTRATIONS = NODE.counter("netdra_kubelet_registrations_total", "Registrations with the kubelet.", OUTCOME)
STATUS_WRITES = NODE.counter("netdra_claim_status_writes_total", "Device statuses written to claims.", OUTCOME)

# Sandboxes and the runtime.
HOOK_SECONDS = NODE.histogram(
    "netdra_nri_hook_duration_seconds",
    "Duration of a call of the container runtime; hook is run, stop, remove or synchronize.",
    "hook",
    OUTCOME,
    buckets=FAST,
)
NRI_CONNECTED = NODE.gauge("netdra_nri_connected", "1 while this plugin is connected to the container runtime, else 0.")
NRI_CONNECTIONS = NODE.counter("netdra_nri_connections_total", "Connections to the container runtime.")
ATTACH_SECONDS = NODE.histogram(
    "netdra_attach_duration_seconds", "Attaching all networks of a pod, including the undo after a failure.", OUTCOME
)
DUPLICATES = NODE.counter(
    "netdra_duplicate_addresses_total",
    "Addresses of PodNetworks that another machine on the wire was found to use; action is report (the pod "
    "started) or reassign (it did not).",
    "action",
)
DETACH_SECONDS = NODE.histogram("netdra_detach_duration_seconds", "Detaching a pod's networks.", OUTCOME)
ATTACHMENTS = NODE.gauge("netdra_attachments", "Sandboxes that have networks of netdra.")
HELD_NAMESPACES = NODE.gauge(
    "netdra_held_namespaces",
    "Network namespaces of sandboxes that netdra keeps open until the node's devices are out of them.",
)
REPAIRS = NODE.counter(
    "netdra_attachments_repaired_total", "Sandboxes that Synchronize found without their network.", OUTCOME
)
ORPHANS = NODE.counter(
    "netdra_orphans_cleaned_total",
    "Remains of deleted pods that were released; kind is sandbox, claim or cdi.",
    "kind",
    OUTCOME,
)
UNKNOWN = NODE.counter(
    "netdra_sandbox_looks_unknown_total",
    "Checks whether a sandbox's network namespace exists that the kernel did not answer, e.g. without free file "
    "descriptors; nothing is undone, and the check is repeated.",
)
HELD = NODE.gauge("netdra_held_devices", "Devices that are in use by claims of this node; each pooled VF counts.")
STUCK = NODE.gauge("netdra_held_devices_in_trouble", "Devices that could not be released yet; each pooled VF counts.")

CIRCUITS_OPEN = NODE.gauge(
    "netdra_plugin_left_alone",
    "1 for a CNI plugin that did not answer in time: its pods are rejected at once until the next try, else 0.",
    "type",
)

# Chains.
STEP_SECONDS = NODE.histogram(
    "netdra_chain_step_duration_seconds",
    "Duration of one successful step; action is add or del, type is the step's CNI type.",
    "type",
    "action",
)
STEP_FAILURES = NODE.counter(
    "netdra_chain_step_failures_total",
    "Failed steps; reason is permanent, temporary or defect, and undo-failed or undo-left for an undo.",
    "type",
    "reason",
)
RESTORED = NODE.counter(
    "netdra_chain_devices_restored_total",
    "Devices that a step's plugin did not restore; outcome is ok (netdra restored the device) or permanent (netdra "
    "could not restore it, and no other pod gets the device).",
    "type",
    OUTCOME,
)
step_type = Values()
"""The `type` label of a step: a CNI type; the number of its values is bounded."""


FAULTS = NODE.gauge(
    "netdra_device_faults",
    "Thresholds of policies that counters of this node's devices exceed; effect is Report, NoSchedule or NoExecute.",
    "effect",
)

# Traffic of pods. The names are those of node_exporter's `node_network_*` (after /proc/net/dev), the labels those of
# kube-state-metrics and cAdvisor, so that queries join them without relabelling.
TRAFFIC_SECONDS = NODE.histogram(
    "netdra_traffic_read_duration_seconds", "Reading the counters of all interfaces of pods, for one scrape."
)
TRAFFIC_INTERFACES = NODE.gauge(
    "netdra_traffic_interfaces", "Interfaces of pods whose counters are exported; 0 while they are not."
)
TRAFFIC_OMITTED = NODE.gauge(
    "netdra_traffic_omitted_interfaces", "Interfaces of pods that are not exported because of --traffic-interfaces."
)
TRAFFIC_UNREADABLE = NODE.counter(
    "netdra_traffic_unreadable_total", "Namespaces of pods, and PFs of VFs, whose counters could not be read."
)
TRAFFIC = SeriesCatalogue("Traffic of pods")
POD_INTERFACE = ("namespace", "pod", "claim", "request", "step", "interface", "device", "network")
"""The labels of a pod's interface: `netdra.node.traffic.interfaces.SandboxInterface`."""
RECEIVE_BYTES, RECEIVE_PACKETS, RECEIVE_DROP, RECEIVE_ERRS = (
    TRAFFIC.series("counter", f"netdra_pod_network_receive_{name}_total", text, *POD_INTERFACE)
    for name, text in (
        ("bytes", "Bytes that the pod's interface received."),
        ("packets", "Packets that it received."),
        ("drop", "Received packets that were dropped, also for lack of buffers."),
        ("errs", "Packets that were received with errors."),
    )
)
TRANSMIT_BYTES, TRANSMIT_PACKETS, TRANSMIT_DROP, TRANSMIT_ERRS = (
    TRAFFIC.series("counter", f"netdra_pod_network_transmit_{name}_total", text, *POD_INTERFACE)
    for name, text in (
        ("bytes", "Bytes that the pod's interface sent."),
        ("packets", "Packets that it sent."),
        ("drop", "Packets to send that were dropped."),
        ("errs", "Packets that could not be sent because of errors."),
    )
)
BANDWIDTH = TRAFFIC.series(
    "gauge",
    "netdra_pod_network_bandwidth_bytes",
    "Bandwidth in bytes per second that the pod's claim was allocated of the interface's device.",
    *POD_INTERFACE,
)
CARRIER = TRAFFIC.series(
    "gauge", "netdra_pod_network_carrier", "1 if the pod's interface has a carrier, else 0.", *POD_INTERFACE
)
CARRIER_UP, CARRIER_DOWN = (
    TRAFFIC.series("counter", f"netdra_pod_network_carrier_{name}_changes_total", text, *POD_INTERFACE)
    for name, text in (
        ("up", "How often its link got a carrier since it was made."),
        ("down", "How often its link lost its carrier since it was made."),
    )
)
SPEED = TRAFFIC.series(
    "gauge",
    "netdra_pod_network_speed_bytes",
    "Speed of its link in bytes per second, of a device that is the pod's alone.",
    *POD_INTERFACE,
)
RDMA_COUNTER = TRAFFIC.series(
    "counter",
    "netdra_pod_rdma_port_counter_total",
    "A counter of a port of an RDMA device that is the pod's alone, by the kernel's name; data is in bytes.",
    *POD_INTERFACE,
    *("rdma_device", "port", "counter"),
)


class Watched(Protocol):
    """A reader of the kernel's events that counts them: `netdra.discovery.watch.Watcher`."""

    rescans: int
    events: int
    overflows: int

    @property
    def stale(self) -> bool:
        """Whether something may be missing."""


class Discovered:
    """The discovery metrics of one watcher."""

    def __init__(self, watcher: Watched) -> None:
        self._watcher = watcher
        self._counted = (-1, 0, 0)  # the first reading is a scan too
        self._types: set[str] = set()

    def count(self) -> None:
        """Count the readings and events since the last call, also those that changed no interface."""
        watcher = self._watcher
        before, self._counted = self._counted, (watcher.rescans, watcher.events, watcher.overflows)
        counters = (SCANS, KERNEL_EVENTS, OVERFLOWS)
        for counter, now, then in zip(counters, self._counted, before, strict=True):
            counter.inc(now - then)
        STALE.set(watcher.stale)

    def show(self, inventory: Inventory) -> None:
        """Show the present inventory."""
        counts = Counter(interface.type for interface in inventory.interfaces)
        self._types |= counts.keys()
        for kind in self._types:
            INTERFACES.labels(kind).set(counts[kind])
        UNREADABLE_FACTS.set(sum(inventory.unreadable.values()))


class Delay:
    """The time from a change of the kernel until the API server has all slices that follow from it."""

    def __init__(self) -> None:
        self._since: float | None = None

    def begins(self) -> None:
        """A change was read; if an earlier change is on its way already, the time since that one counts."""
        if self._since is None:
            self._since = time.monotonic()

    def ends(self, *, published: bool) -> None:
        """All slices that follow from the change are there, or none follow."""
        if published and self._since is not None:
            PUBLISH_SECONDS.observe(time.monotonic() - self._since)
        self._since = None


def on_scrape(
    prepared: Callable[[], int],
    attached: Callable[[], int],
    namespaces: Callable[[], int],
    registered: Callable[[], bool],
) -> None:
    """Have gauges look up their values, on the disk or in another part, when they are scraped.

    Args:
        prepared: how many claims are prepared.
        attached: how many sandboxes have a network.
        namespaces: how many sandboxes' namespaces are held.
        registered: whether the kubelet has the driver.
    """
    PREPARED.set_function(prepared)
    ATTACHMENTS.set_function(attached)
    HELD_NAMESPACES.set_function(namespaces)
    REGISTERED.set_function(registered)


def set_held(devices: Sequence[HeldDevice]) -> None:
    """Show which devices claims have: a shared device is one, and of pooled VFs each VF is one."""
    HELD.set(len({(device.key, device.vf) for device in devices}))
    STUCK.set(len({(device.key, device.vf) for device in devices if device.trouble}))


def set_published(slices: Sequence[ResourceSlice], left_out: Mapping[LeftOut, int]) -> None:
    """Show the slices that are to be published.

    Args:
        slices: all of the node's.
        left_out: how many devices are left out of them, by reason.
    """
    devices = [device for resource_slice in slices for device in resource_slice.spec.devices]
    POOLS.set(len({resource_slice.spec.pool.name for resource_slice in slices}))
    SLICES.set(len(slices))
    DEVICES.set(len(devices))
    TAINTED.set(sum(bool(device.taints) for device in devices))
    taints = Counter(taint.key for device in devices for taint in device.taints)
    for key in (names.LINK_DOWN, names.GONE, names.WITHDRAWN, names.TROUBLE):
        TAINTS.labels(key.removeprefix(f"{names.DRIVER}/")).set(taints[key])
    for reason in get_args(LeftOut):
        LEFT_OUT.labels(reason).set(left_out.get(reason, 0))


def count_attach(report: AttachReport | FailedAttachReport) -> None:
    """Count the steps of an attachment that was just done, whether it succeeded or failed."""
    if isinstance(report, FailedAttachReport):
        for failure in report.failures:
            outcome = "temporary" if failure.temporary else "defect" if failure.kind == "defect" else "permanent"
            STEP_FAILURES.labels(step_type(failure.plugin), outcome).inc()
            DUPLICATES.labels("reassign").inc(len(failure.duplicates))
        _count_undone(report.undone)
    elif not report.repeated:
        for step in report.steps:
            STEP_SECONDS.labels(step_type(step.plugin), "add").observe(step.seconds)


def count_detach(report: DetachReport) -> None:
    """Count the steps of a detachment."""
    _count_undone(report.undone)


def _count_undone(steps: Iterable[UndoReport]) -> None:
    for step in steps:
        kind = step_type(step.plugin)
        if step.restored or step.stranded:
            RESTORED.labels(kind, "permanent" if step.stranded else "ok").inc()
        if step.outcome == "undone":
            STEP_SECONDS.labels(kind, "del").observe(step.seconds)
        else:
            STEP_FAILURES.labels(kind, f"undo-{step.outcome}").inc()
