"""The metrics of requests to the API server, of reflectors, elections, events and work queues.

Counted by the modules of this package.
"""

from __future__ import annotations

from netdra.ops.metrics import FAST, SLOW, Catalogue

KUBE = Catalogue("API server")

REQUESTS = KUBE.counter(
    "netdra_api_requests_total",
    "Requests to the API server; code is the HTTP status, or none without an answer.",
    "verb",
    "resource",
    "code",
)
REQUEST_SECONDS = KUBE.histogram(
    "netdra_api_request_duration_seconds",
    "Duration of requests to the API server; of a watch until it starts.",
    "verb",
    buckets=SLOW,
)
STREAMS = KUBE.gauge("netdra_api_streams", "Watches of the API server that are open or being opened.")
STREAM_REFUSALS = KUBE.counter(
    "netdra_api_stream_refusals_total",
    "Watches that were not started in time because as many are open as a process may have; they are tried again.",
)
LISTS = KUBE.counter("netdra_reflector_lists_total", "Lists started; after the first, each is a relist.", "resource")
WATCHES = KUBE.counter(
    "netdra_reflector_watches_total", "Watches started; after the first, each is a restart.", "resource"
)
EVENTS = KUBE.counter("netdra_reflector_events_total", "Events received from watches, including bookmarks.", "resource")
FAILURES = KUBE.counter("netdra_reflector_failures_total", "Lists and watches that failed.", "resource")
OBJECTS = KUBE.gauge("netdra_reflector_objects", "Objects in the cache of this process.", "resource")
UNREADABLE = KUBE.gauge(
    "netdra_reflector_unreadable_objects", "Objects of the API server that this netdra cannot read.", "resource"
)
LAST_EVENT = KUBE.gauge(
    "netdra_reflector_last_event_timestamp_seconds",
    "Time of the last message of the API server about a kind; bookmarks arrive about once a minute.",
    "resource",
)
LEADS = KUBE.gauge("netdra_leader", "1 while this process holds the lease, otherwise 0.", "lease")
LEADERSHIPS = KUBE.counter("netdra_leader_elections_total", "Number of times that this process was elected.", "lease")
UNDONE = KUBE.counter(
    "netdra_api_writes_undone_total",
    "Writes that were repeated because another client had undone them; if it continues, they are delayed.",
    "resource",
)
EVENTS_WRITTEN = KUBE.counter("netdra_kubernetes_events_total", "Kubernetes events written.", "outcome")
EVENTS_DROPPED = KUBE.counter(
    "netdra_kubernetes_events_dropped_total",
    "Occurrences without a Kubernetes event: their object or namespace had too many, or the API server did not accept "
    "the event.",
)

# Work queues have client-go's metrics under our prefix (k8s.io/component-base/metrics/prometheus/workqueue).
QUEUE_DEPTH = KUBE.gauge("netdra_workqueue_depth", "Keys that wait to be processed.", "queue")
QUEUE_ADDS = KUBE.counter(
    "netdra_workqueue_adds_total", "Keys added; a key that is already queued is not counted.", "queue"
)
QUEUE_RETRIES = KUBE.counter(
    "netdra_workqueue_retries_total", "Keys that are processed again after a back-off.", "queue"
)
QUEUE_SECONDS = KUBE.histogram(
    "netdra_workqueue_queue_duration_seconds", "Time that a key waits for a worker.", "queue", buckets=FAST
)
WORK_SECONDS = KUBE.histogram(
    "netdra_workqueue_work_duration_seconds", "Time that a worker processes a key.", "queue", buckets=FAST
)
