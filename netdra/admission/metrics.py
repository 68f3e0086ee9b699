"""The webhook's metrics, counted by its server, its door, its workers and the keepers of its certificate."""

from __future__ import annotations

from datetime import datetime

from netdra.ops.metrics import OUTCOME, Catalogue

WEBHOOK = Catalogue("Webhook")

REQUESTS = WEBHOOK.counter(
    "netdra_webhook_requests_total",
    "AdmissionReviews answered; verdict is allowed, refused, unready or malformed.",
    "kind",
    "operation",
    "verdict",
)
REQUEST_SECONDS = WEBHOOK.histogram(
    "netdra_webhook_request_duration_seconds", "How long a verdict takes.", "kind", OUTCOME
)
WORKERS_REPLACED = WEBHOOK.counter(
    "netdra_webhook_workers_replaced_total",
    "Worker processes ended: late or broken because of an object, or killed.",
    "reason",
)
CONNECTIONS_ENDED = WEBHOOK.counter(
    "netdra_webhook_connections_ended_total",
    "Connections broken off: late with a request, or of an address that had too many of them or too much in them.",
    "reason",
)
NOT_AFTER = WEBHOOK.gauge(
    "netdra_webhook_certificate_not_after_timestamp_seconds", "When the certificate that is served with ends; 0: none."
)
RENEWALS = WEBHOOK.counter("netdra_webhook_certificates_total", "Certificates that this process began to serve with.")


def serves(end: datetime) -> datetime:
    """Note that the process serves with another certificate from now on, and return its end."""
    NOT_AFTER.set(end.timestamp())
    RENEWALS.inc()
    return end
