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
    "netdra_webhook_request_duration_seconds", "Duration of one verdict.", "kind", OUTCOME
)
WORKERS_REPLACED = WEBHOOK.counter(
    "netdra_webhook_workers_replaced_total",
    "Worker processes that ended: stopped because an object took too long or caused an error, or killed.",
    "reason",
)
DEFECTS = WEBHOOK.counter(
    "netdra_webhook_defects_total",
    "Objects that were admitted with a warning because netdra has a defect in a check; the log has its place.",
    "kind",
)
CONNECTIONS_ENDED = WEBHOOK.counter(
    "netdra_webhook_connections_ended_total",
    "Connections that were closed because the request was late, or the client had too many connections "
    "or sent too much data.",
    "reason",
)
NOT_AFTER = WEBHOOK.gauge(
    "netdra_webhook_certificate_not_after_timestamp_seconds",
    "Expiry time of the certificate that is used; 0 without a certificate.",
)
RENEWALS = WEBHOOK.counter("netdra_webhook_certificates_total", "Certificates that this process started to use.")


def serves(end: datetime) -> datetime:
    """Note that the process serves with another certificate from now on, and return its end."""
    NOT_AFTER.set(end.timestamp())
    RENEWALS.inc()
    return end
