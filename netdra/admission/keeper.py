"""Keeps the webhook's own certificate: made where there is none, stored in a Secret, trusted first and then served.

Run by every replica of `netdra webhook`; whoever writes the Secret first has made the certificate, and the others take
it from there. The webhook configurations are told to trust its authority before anybody serves with it, so that no
call of the API server fails while certificates change.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from netdra.admission import certificates, metrics, serving
from netdra.admission.certificates import Certificate
from netdra.kube.backoff import Backoff
from netdra.kube.client import Client, Selection
from netdra.kube.errors import AlreadyExistsError, ApiError, ConflictError
from netdra.kube.reflector import Reflector
from netdra.kube.resources import Resource
from netdra.kube.store import Store
from netdra.model.meta import ObjectMeta

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0
"""How long the API server is given to see whom to trust, before it meets the new certificate."""
LONGEST_WAIT = 3600.0
TYPE = "kubernetes.io/tls"
MANAGER = "netdra-certificates"


class Secret(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where the certificate is stored; values are in base64."""

    metadata: ObjectMeta
    type: str
    data: Mapping[str, str] = {}
    api_version: str = "v1"
    kind: str = "Secret"


class ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    """How the API server trusts a webhook: PEM in base64."""

    ca_bundle: str = ""


class Webhook(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of a configuration."""

    name: str
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the API server asks the webhook about."""

    metadata: ObjectMeta
    webhooks: tuple[Webhook, ...] = ()


SECRETS = Resource("v1", "secrets", Secret, namespaced=True)
CONFIGURATIONS = Resource("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", WebhookConfiguration)


def configurations(name: str) -> tuple[str, ...]:
    """The webhook configurations of an installation, by what its objects are called."""
    return (name, f"{name}-claims")


def now() -> datetime:
    """The time, with its zone."""
    return datetime.now(UTC)


@dataclass
class Keeper:
    """One replica's part in keeping the certificate.

    Attributes:
        namespace, name: of the Secret.
        hosts: what the certificate is to be valid for.
        configurations: the webhook configurations that are to trust it.
        tls: what is served with.
        not_after: when the certificate in use ends, None while there is none.
    """

    client: Client
    namespace: str
    name: str
    hosts: Sequence[str]
    configurations: Sequence[str]
    tls: ssl.SSLContext
    clock: Callable[[], datetime] = now
    settle: float = SETTLE_SECONDS
    not_after: datetime | None = None
    _secrets: Store[Secret] = field(default_factory=Store)
    _trusting: tuple[Store[WebhookConfiguration], ...] = ()
    _current: Certificate | None = None
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Go on until cancelled; what the API server refuses is tried again."""
        chosen = Selection(namespace=self.namespace, field_selector=f"metadata.name={self.name}")
        self._trusting = tuple(Store() for _ in self.configurations)
        with ExitStack() as following:
            async with asyncio.TaskGroup() as tasks:
                following.enter_context(self._secrets.following(lambda _: self._work.set()))
                tasks.create_task(Reflector(self.client, SECRETS, self._secrets, chosen).run())
                for name, store in zip(self.configurations, self._trusting, strict=True):
                    following.enter_context(store.following(lambda _: self._work.set()))
                    named = Selection(field_selector=f"metadata.name={name}")
                    tasks.create_task(Reflector(self.client, CONFIGURATIONS, store, named).run())
                for store in self._trusting:
                    await store.wait_synced()
                await self._secrets.wait_synced()
                await self._keep()

    async def _keep(self) -> None:
        backoff = Backoff()
        while True:
            self._work.clear()
            try:
                wait = await self._sync()
                backoff.reset()
            except ApiError as problem:
                log.warning("certificate: %s", problem)
                wait = backoff.next(problem.retry_after)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._work.wait()

    async def _sync(self) -> float:
        """Do what is to be done now; the seconds until there is something to do again."""
        stored = next(iter(self._secrets.objects.values()), None)
        found = _read(stored) if stored is not None else None
        if found is None or self._is_due(found):
            with suppress(ConflictError, AlreadyExistsError):
                await self._renew(stored, found)
            return LONGEST_WAIT
        await self._trust(found)
        if found != self._current:
            if self._current is not None:
                await asyncio.sleep(self.settle)
            serving.use(self.tls, found.chain, found.key)
            self._current = found
            self.not_after = metrics.serves(certificates.not_after(found.chain))
            log.info("serving with the certificate of secret %s/%s", self.namespace, self.name)
        left = (certificates.renew_at(found) - self.clock()).total_seconds()
        return min(max(left, 0.0), LONGEST_WAIT)

    def _is_due(self, found: Certificate) -> bool:
        return not certificates.is_for(found, self.hosts) or self.clock() >= certificates.renew_at(found)

    async def _renew(self, stored: Secret | None, before: Certificate | None) -> None:
        """Store a new certificate; the store's next change brings it here, or that of somebody who was first.

        Raises:
            ApiError: somebody was first, or the server refuses.
        """
        made = certificates.make(self.hosts, self.clock(), before)
        data = {
            "tls.crt": _encoded(made.chain),
            "tls.key": _encoded(made.key),
            "ca.crt": _encoded(made.authorities),
        }
        if stored is None:
            metadata = ObjectMeta(name=self.name, namespace=self.namespace)
            await self.client.create(SECRETS, Secret(metadata=metadata, type=TYPE, data=data))
        else:
            await self.client.replace(SECRETS, msgspec.structs.replace(stored, data=data))

    async def _trust(self, found: Certificate) -> None:
        """Have every configuration trust the certificate's authorities."""
        bundle = _encoded(found.authorities)
        for store in self._trusting:
            for configuration in tuple(store.objects.values()):
                if all(each.client_config.ca_bundle == bundle for each in configuration.webhooks):
                    continue
                wanted: dict[str, Any] = {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": "ValidatingWebhookConfiguration",
                    "metadata": {"name": configuration.metadata.name},
                    "webhooks": [
                        {"name": each.name, "clientConfig": {"caBundle": bundle}} for each in configuration.webhooks
                    ],
                }
                await self.client.apply(CONFIGURATIONS, wanted, manager=MANAGER)


def _read(stored: Secret) -> Certificate | None:
    """The certificate in a Secret, or None if there is none that can be used."""
    try:
        found = Certificate(*(_decoded(stored.data[key]) for key in ("tls.crt", "tls.key", "ca.crt")))
        certificates.renew_at(found)
        certificates.is_for(found, ())
        serving.use(serving.context(), found.chain, found.key)
    except (KeyError, ValueError, OSError, binascii.Error) as problem:  # an SSLError is an OSError
        log.warning("secret %s/%s holds no certificate: %r", stored.metadata.namespace, stored.metadata.name, problem)
        return None
    return found


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
