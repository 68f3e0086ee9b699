"""What is measured of a node: discovery, publishing, claims, sandboxes, chains.

Counted on by the parts of the node daemon. What takes time is measured with `netdra.ops.metrics.measured`, which also
says how it ended: `with measured(PREPARE_SECONDS): ...`.
"""

from __future__ import annotations

from netdra.ops.metrics import FAST, OUTCOME, SLOW, Catalogue, Values

NODE = Catalogue("Node")

# Discovery.
READ_SECONDS = NODE.histogram(
    "netdra_discovery_read_duration_seconds",
    "Reading the kernel; trigger is event (what a change concerns) or scan (everything).",
    "trigger",
)
KERNEL_EVENTS = NODE.counter("netdra_discovery_events_total", "Events of the kernel that were taken in.")
SCANS = NODE.counter("netdra_discovery_scans_total", "Full readings of the kernel.")
OVERFLOWS = NODE.counter("netdra_discovery_overflows_total", "How often the kernel dropped events; a scan follows.")
INTERFACES = NODE.gauge("netdra_discovery_interfaces", "Interfaces and VFs of this node.", "type")
UNREADABLE_FACTS = NODE.gauge("netdra_discovery_unreadable_facts", "Facts of interfaces that could not be read.")

# Publishing.
POOLS = NODE.gauge("netdra_published_pools", "Pools that this node publishes.")
SLICES = NODE.gauge("netdra_published_slices", "ResourceSlices that this node publishes.")
DEVICES = NODE.gauge("netdra_published_devices", "Devices that this node publishes.")
TAINTED = NODE.gauge("netdra_published_tainted_devices", "Devices that are published with a taint of netdra.")
LEFT_OUT = NODE.gauge(
    "netdra_devices_left_out",
    "Devices that are not published; reason is feature-gate (off), limit (of the API), name-taken, in-use (what claims "
    "hold leaves them no counters), refused (by the API server), policy-failed (once an interface that its expression "
    "fails on), policy-invalid (once an error of it).",
    "reason",
)
SLICE_WRITES = NODE.counter(
    "netdra_publisher_writes_total", "ResourceSlices written; verb is create, update, delete.", "verb"
)
PUBLISHER_ROUNDS = NODE.counter("netdra_publisher_rounds_total", "Comparisons of wanted and present slices.", OUTCOME)
OVERTAKEN = NODE.counter("netdra_publisher_overtaken_total", "Pools whose writes somebody else's change came before.")
DROPPED = NODE.counter(
    "netdra_publisher_dropped_fields_total", "Fields that the API server did not keep, by its feature gate.", "gate"
)
REPORTS = NODE.counter("netdra_reports_total", "Writes of this node's NodeNetwork.")
REPORT_FAILURES = NODE.counter("netdra_report_failures_total", "Writes of this node's NodeNetwork that failed.")
PUBLISH_SECONDS = NODE.histogram(
    "netdra_publish_delay_seconds",
    "From reading a change of the kernel until the API server has all that came of it.",
    buckets=SLOW,
)

# Claims and the kubelet.
PREPARE_SECONDS = NODE.histogram(
    "netdra_claim_prepare_duration_seconds", "Preparing one claim for the kubelet.", OUTCOME, buckets=SLOW
)
UNPREPARE_SECONDS = NODE.histogram(
    "netdra_claim_unprepare_duration_seconds", "Giving one claim back.", OUTCOME, buckets=SLOW
)
PREPARED = NODE.gauge("netdra_claims_prepared", "Claims that are prepared on this node.")
REGISTERED = NODE.gauge("netdra_kubelet_registered", "1 while the kubelet has this driver registered, else 0.")
REGISTRATIONS = NODE.counter("netdra_kubelet_registrations_total", "Registrations with the kubelet.", OUTCOME)
STATUS_WRITES = NODE.counter("netdra_claim_status_writes_total", "Device statuses written to claims.", OUTCOME)

# Sandboxes and the runtime.
HOOK_SECONDS = NODE.histogram(
    "netdra_nri_hook_duration_seconds",
    "Answering the runtime; hook is run, stop, remove or synchronize.",
    "hook",
    OUTCOME,
    buckets=FAST,
)
NRI_CONNECTED = NODE.gauge("netdra_nri_connected", "1 while the runtime has this plugin connected, else 0.")
NRI_CONNECTIONS = NODE.counter("netdra_nri_connections_total", "Connections to the runtime that were made.")
ATTACH_SECONDS = NODE.histogram(
    "netdra_attach_duration_seconds", "Giving a pod all its networks, undoing included where that failed.", OUTCOME
)
DETACH_SECONDS = NODE.histogram("netdra_detach_duration_seconds", "Taking a pod's networks down.", OUTCOME)
ATTACHMENTS = NODE.gauge("netdra_attachments", "Sandboxes that have networks of netdra.")
HELD_NAMESPACES = NODE.gauge(
    "netdra_held_namespaces",
    "Network namespaces of sandboxes that are held so that none ends with a device of the node in it.",
)
REPAIRS = NODE.counter(
    "netdra_attachments_repaired_total", "Sandboxes that Synchronize found without their network.", OUTCOME
)
ORPHANS = NODE.counter(
    "netdra_orphans_cleaned_total",
    "Remains of pods that are gone, given back; kind is sandbox, claim or cdi.",
    "kind",
    OUTCOME,
)
HELD = NODE.gauge("netdra_held_devices", "Devices that claims of this node have.")
STUCK = NODE.gauge("netdra_held_devices_in_trouble", "Devices that could not be given back yet.")

CIRCUITS_OPEN = NODE.gauge(
    "netdra_plugin_left_alone",
    "1 for a CNI plugin that did not answer in time: its pods are refused at once until it is tried again, else 0.",
    "type",
)

# Chains.
STEP_SECONDS = NODE.histogram(
    "netdra_chain_step_duration_seconds",
    "One step of a chain that was done; action is add or del, type the step's CNI type.",
    "type",
    "action",
)
STEP_FAILURES = NODE.counter(
    "netdra_chain_step_failures_total",
    "Steps that were not done; reason is permanent, temporary or defect, and undo-failed or undo-left in taking down.",
    "type",
    "reason",
)
RESTORED = NODE.counter(
    "netdra_chain_devices_restored_total",
    "Devices that a step's plugin left otherwise than they were; outcome is ok (netdra restored it) or permanent (it "
    "could not, and nobody else gets the device).",
    "type",
    OUTCOME,
)
step_type = Values()
"""The `type` label of a step: a CNI type, of which there are few unless somebody makes many."""
