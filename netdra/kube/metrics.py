"""The metrics of requests to the API server, of reflectors, elections, events and work queues.

Counted by the modules of this package.
"""

from __future__ import annotations

from netdra.ops.metrics import FAST, SLOW, Catalogue

KUBE = Catalogue("API server")

REQUESTS = KUBE.counter(
    "netdra_api_requests_total",
    "Requests to the API server; code is the HTTP status, or none where no answer came.",
    "verb",
    "resource",
    "code",
)
REQUEST_SECONDS = KUBE.histogram(
    "netdra_api_request_duration_seconds",
    "How long the API server takes to answer; a watch until it begins.",
    "verb",
    buckets=SLOW,
)
LISTS = KUBE.counter("netdra_reflector_lists_total", "Lists begun; after the first, each is a relist.", "resource")
WATCHES = KUBE.counter("netdra_reflector_watches_total", "Watches begun; after the first, a restart each.", "resource")
EVENTS = KUBE.counter("netdra_reflector_events_total", "Events that watches brought, bookmarks included.", "resource")
FAILURES = KUBE.counter("netdra_reflector_failures_total", "Lists and watches that failed.", "resource")
OBJECTS = KUBE.gauge("netdra_reflector_objects", "Objects in this process's copy.", "resource")
UNREADABLE = KUBE.gauge(
    "netdra_reflector_unreadable_objects", "Objects of the API server that this netdra cannot read.", "resource"
)
LAST_EVENT = KUBE.gauge(
    "netdra_reflector_last_event_timestamp_seconds",
    "When the API server was last heard from about a kind; bookmarks come about once a minute.",
    "resource",
)
LEADS = KUBE.gauge("netdra_leader", "1 while this process holds the lease, else 0.", "lease")
LEADERSHIPS = KUBE.counter("netdra_leader_elections_total", "How often this process was elected.", "lease")
EVENTS_WRITTEN = KUBE.counter("netdra_kubernetes_events_total", "Kubernetes events written.", "outcome")

# Work queues have client-go's metrics under our prefix (k8s.io/component-base/metrics/prometheus/workqueue).
QUEUE_DEPTH = KUBE.gauge("netdra_workqueue_depth", "Keys that are to be worked on now.", "queue")
QUEUE_ADDS = KUBE.counter(
    "netdra_workqueue_adds_total", "Keys added; one that was there already is not counted.", "queue"
)
QUEUE_RETRIES = KUBE.counter(
    "netdra_workqueue_retries_total", "Keys that are worked on again after a back-off.", "queue"
)
QUEUE_SECONDS = KUBE.histogram(
    "netdra_workqueue_queue_duration_seconds", "How long a key waits for a worker.", "queue", buckets=FAST
)
WORK_SECONDS = KUBE.histogram(
    "netdra_workqueue_work_duration_seconds", "How long a worker has a key.", "queue", buckets=FAST
)
