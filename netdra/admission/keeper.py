"""Keeps the webhook's own certificate: made where none exists, stored in a Secret, trusted first and then served.

Run by every replica of `netdra webhook`; the replica that writes the Secret first has made the certificate, and the
others take it from there. The webhook configurations trust its authority before any replica serves with it, and
continue to trust the former one, so that no call of the API server fails while certificates change
(docs/decisions/D44).
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
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
from netdra.kube.undone import UndoneError
from netdra.model.meta import ObjectMeta
from netdra.ops.health import CheckResult

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0
"""How long the API server has to learn of the new authority, before it meets the new certificate."""
LONGEST_WAIT = 3600.0
REPAIRED = "networking.dra.io/repaired-at"
"""The annotation of the Secret with the time when a broken certificate was last replaced."""
REPAIR_EVERY = timedelta(hours=1)
BEHIND = timedelta(minutes=30)
"""How long a replica that cannot serve with the Secret's certificate goes on with the former one."""
_SOON = 1.0
TYPE = "kubernetes.io/tls"
MANAGER = "netdra-certificates"


class Secret(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The Secret of the certificate; values are in base64."""

    metadata: ObjectMeta
    type: str
    data: Mapping[str, str] = {}
    api_version: str = "v1"
    kind: str = "Secret"


class ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    """How the API server trusts a webhook: PEM in base64."""

    ca_bundle: str = ""


class WebhookEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a webhook that the keeper reads in a configuration; the others are left as they are."""

    name: str
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A configuration by which the API server calls the webhook."""

    metadata: ObjectMeta
    webhooks: tuple[WebhookEntry, ...] = ()


SECRETS = Resource("v1", "secrets", Secret, namespaced=True, drawn=frozenset({"data"}))
CONFIGURATIONS = Resource("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", WebhookConfiguration)


def configurations(name: str) -> tuple[str, ...]:
    """The webhook configurations of an installation, by the name of its objects."""
    return (name, f"{name}-claims")


@dataclass
class Keeper:
    """One replica's part in keeping the certificate.

    Attributes:
        namespace, name: of the Secret.
        hosts: the names that the certificate is to be valid for.
        configurations: the webhook configurations that are to trust it.
        tls: the context that the webhook serves with.
        clock: the time, with its zone; without it the API server's (`Client.now`), which is the one that checks the
            certificate: a machine whose clock is wrong would make one that is not valid yet.
        not_after: when the certificate in use ends, None while none exists.
    """

    client: Client
    namespace: str
    name: str
    hosts: Sequence[str]
    configurations: Sequence[str]
    tls: ssl.SSLContext
    clock: Callable[[], datetime] | None = None
    settle: float = SETTLE_SECONDS
    not_after: datetime | None = None
    _secrets: Store[Secret] = field(default_factory=Store)
    _trusting: tuple[Store[WebhookConfiguration], ...] = ()
    _current: Certificate | None = None
    _behind_since: datetime | None = None
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Continue until cancelled; a request that the API server refuses is tried again."""
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

    def _now(self) -> datetime:
        return self.client.now() if self.clock is None else self.clock()

    async def _keep(self) -> None:
        backoff = Backoff()
        while True:
            self._work.clear()
            try:
                wait = await self._sync()
                backoff.reset()
            except UndoneError as problem:  # reported when it began
                log.debug("certificate: %s", problem)
                wait = problem.retry_after
            except ApiError as problem:
                log.warning("certificate: %s", problem)
                wait = backoff.next(problem.retry_after)
            except OSError as problem:  # of this process, such as too many open files; an SSLError is an OSError
                self._behind_since = self._behind_since or self._now()
                log.warning("cannot use the certificate in secret %s/%s: %s", self.namespace, self.name, problem)
                wait = backoff.next()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._work.wait()

    async def _sync(self) -> float:
        """Do the work that is due; returns the seconds until more is due."""
        stored = next(iter(self._secrets.objects.values()), None)
        with suppress(ConflictError, AlreadyExistsError):  # another replica was first, and the store brings its Secret
            if stored is None:
                await self._create()
                return LONGEST_WAIT
            try:
                certificate = read(stored)
                certificates.check_begun(certificate, self._now())
            except ValueError as problem:
                return await self._repair(stored, str(problem))
            if not certificates.is_for(certificate, self.hosts):
                # Replicas with other names can continue with it. Otherwise the two would replace it in turns.
                hosts = dict.fromkeys((*self.hosts, *certificates.names(certificate)))
                await self._replace(stored, certificates.make(tuple(hosts), self._now(), certificate))
            elif self._now() >= certificates.renew_at(certificate):
                await self._replace(stored, certificates.make(self.hosts, self._now(), certificate))
            else:
                return await self._serve(certificate)
            return LONGEST_WAIT
        return _SOON

    async def _serve(self, certificate: Certificate) -> float:
        """Have a certificate trusted, and serve with it; returns the seconds until more is due."""
        if await self._trust(certificate) or (certificate != self._current and self._current is not None):
            await asyncio.sleep(self.settle)
        if certificate != self._current:
            serving.use(self.tls, certificate.chain, certificate.key)
            self._current = certificate
            self.not_after = metrics.serves(certificates.not_after(certificate.chain))
            log.info("using the certificate in secret %s/%s", self.namespace, self.name)
        self._behind_since = None
        now = self._now()
        coming = (
            time for time in (certificates.settled_at(certificate), certificates.renew_at(certificate)) if time > now
        )
        return min(LONGEST_WAIT, *((time - now).total_seconds() for time in coming))

    def check(self, now: datetime) -> CheckResult:
        """Whether there is a certificate to serve with, as a check of the process's health."""
        if self._behind_since is not None and now - self._behind_since >= BEHIND:
            return CheckResult(ok=False, detail=f"cannot use the certificate in secret {self.namespace}/{self.name}")
        return certificates.check(self.not_after, now)

    async def _repair(self, stored: Secret, problem: str) -> float:
        """Replace a broken certificate, unless that was done a moment ago; returns the seconds until more is due.

        A replica that serves continues with its own certificate, and stores that again.
        """
        what = f"secret {self.namespace}/{self.name} does not contain a valid certificate: {problem}"
        since = _time(stored.metadata.annotations.get(REPAIRED, ""))
        left = REPAIR_EVERY - (self._now() - since) if since is not None else timedelta()
        if timedelta() < left <= REPAIR_EVERY:
            log.warning(
                "%s; netdra replaces it in %d minutes, or immediately if it is deleted", what, left.seconds // 60
            )
            return left.total_seconds()
        log.warning("%s; replacing it", what)
        current = self._current
        if current is None or self._now() >= certificates.renew_at(current):
            current = certificates.make(self.hosts, self._now(), current)
        annotations = {**stored.metadata.annotations, REPAIRED: self._now().isoformat(timespec="seconds")}
        metadata = msgspec.structs.replace(stored.metadata, annotations=annotations)
        await self._replace(msgspec.structs.replace(stored, metadata=metadata), current)
        return LONGEST_WAIT

    async def _create(self) -> None:
        """Store the first certificate.

        Raises:
            ApiError: another replica was first, or the server refuses.
        """
        made = certificates.make(self.hosts, self._now())
        metadata = ObjectMeta(name=self.name, namespace=self.namespace)
        await self.client.create(SECRETS, Secret(metadata=metadata, type=TYPE, data=_data(made)))

    async def _replace(self, stored: Secret, made: Certificate) -> None:
        """Store another certificate in the place of the one that was seen; the store's next change brings it here.

        Raises:
            ApiError: another replica was first, or the server refuses.
        """
        await self.client.replace(SECRETS, msgspec.structs.replace(stored, data=_data(made)))

    async def _trust(self, certificate: Certificate) -> bool:
        """Have every configuration trust the certificate's authorities; returns whether one trusted only others.

        Raises:
            ApiError: a configuration was changed meanwhile, or the server refuses.
        """
        changed = False
        for store in self._trusting:
            for configuration in tuple(store.objects.values()):
                present = [webhook.client_config.ca_bundle for webhook in configuration.webhooks]
                wanted = [
                    _encoded(certificates.bundle(certificate, _decoded(ca_bundle), self._now()))
                    for ca_bundle in present
                ]
                if present == wanted:
                    continue
                changed = changed or any(present)
                bundles = zip(configuration.webhooks, wanted, strict=True)
                metadata = configuration.metadata
                body: dict[str, Any] = {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": "ValidatingWebhookConfiguration",
                    # Only in the state that was seen: another replica may have added an authority to it.
                    "metadata": {"name": metadata.name, "resourceVersion": metadata.resource_version},
                    "webhooks": [
                        {"name": webhook.name, "clientConfig": {"caBundle": bundle}} for webhook, bundle in bundles
                    ],
                }
                await self.client.apply(CONFIGURATIONS, body, manager=MANAGER)
        return changed


def read(stored: Secret) -> Certificate:
    """The certificate in a Secret.

    Raises:
        ValueError: none exists, or none to serve with.
    """
    try:
        stored_certificate = Certificate(
            *(base64.b64decode(stored.data[key]).decode() for key in ("tls.crt", "tls.key", "ca.crt"))
        )
    except KeyError as problem:
        raise ValueError(f"{problem.args[0]} is missing") from None
    certificates.verify(stored_certificate)
    return stored_certificate


def _data(made: Certificate) -> dict[str, str]:
    return {
        "tls.crt": _encoded(made.chain),
        "tls.key": _encoded(made.key),
        "ca.crt": _encoded(made.authorities),
    }


def _time(text: str) -> datetime | None:
    """The time of an annotation; None if its text is not a time with a zone."""
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else None
    return None


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    """The text of base64; bytes that are not UTF-8 are replaced, and are not PEM then."""
    return base64.b64decode(text).decode(errors="replace")
