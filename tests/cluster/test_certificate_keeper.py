"""The webhook's certificate through its life: several replicas agree on one, and it is renewed when it is due."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from netdra.admission import certificates, keeper, serving
from netdra.admission.certificates import LIFETIME
from netdra.admission.keeper import Keeper
from netdra.kube import client as kube_client
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from testbed.waiting import until_async
from testbed.workspace import Workspace
from tests.cluster.daemons import CONFIGURATION, SECRET, bundle_of

HOSTS = ("netdra-webhook.netdra.svc",)


def configuration(name: str) -> Object:
    """A configuration that matches no existing object."""
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothing"]}
    webhook = {
        "name": "validate.networking.dra.io",
        "clientConfig": {"url": "https://127.0.0.1:1/validate"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return manifest(CONFIGURATION, name, webhooks=[webhook])


class Replica:
    """One process's part: a keeper whose clock can be behind, and its serving certificate."""

    def __init__(self, client: Client, workspace: Workspace, name: str, behind: timedelta | None) -> None:
        """Without a clock of its own it goes by the API server's."""
        self.behind = behind or timedelta()
        self.tls = serving.context()
        self.keeper = Keeper(
            client,
            workspace.namespace,
            "certificate",
            HOSTS,
            (name,),
            self.tls,
            clock=None if behind is None else lambda: datetime.now(UTC) - self.behind,
            settle=0.0,
        )


@asynccontextmanager
async def running(replica: Replica) -> AsyncIterator[int]:
    """A replica at work, as the port that it serves on."""

    async def nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    keeping = asyncio.create_task(replica.keeper.run())
    server = await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=replica.tls)
    try:
        async with server:
            yield server.sockets[0].getsockname()[1]
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


async def until_served(port: int, bundle: bytes) -> bytes:
    """Connect, trusting these authorities, until that succeeds; the certificate that was shown."""
    trust = ssl.create_default_context(cadata=bundle.decode())
    shown: list[bytes] = []

    async def served() -> bool:
        with suppress(ssl.SSLError, ConnectionError):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=HOSTS[0])
            shown.append(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
            writer.close()
        return bool(shown)

    await until_async(served, "the certificate to be served")
    return shown[0]


def test_two_replicas_serve_one_certificate_and_it_is_renewed_at_two_thirds_of_its_life(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    api, name = workspace.api, workspace.name("keeper")
    workspace.create(configuration(name))

    def trusted(before: bytes = b"") -> bytes:
        """The bundle of the configuration, once it is another one."""

        def is_new(found: Object | None) -> bool:
            return bundle_of(found) not in (b"", before)

        return bundle_of(api.wait_for(CONFIGURATION, name, is_new))

    async def story() -> None:
        async with Client(connect(find_config(control_plane.kubeconfig()))) as client:
            due = LIFETIME * 2 / 3 + timedelta(hours=1)
            first, second = Replica(client, workspace, name, due), Replica(client, workspace, name, due)
            async with running(first) as one, running(second) as two:
                bundle = await asyncio.to_thread(trusted)
                shown = await until_served(one, bundle)
                assert await until_served(two, bundle) == shown
                for replica in (first, second):
                    replica.behind = timedelta(0)
                    replica.keeper._work.set()
                renewed = await asyncio.to_thread(trusted, bundle)
                assert renewed.endswith(bundle), "who still serves with the old one is no longer trusted"
                newest = renewed.removesuffix(bundle)
                fresh = {await until_served(port, newest) for port in (one, two)}
                assert len(fresh) == 1
                assert fresh != {shown}

    asyncio.run(story())
    api.delete(SECRET, "certificate", workspace.namespace)


def test_a_corrupt_secret_is_replaced_once_an_hour_and_running_replicas_keep_serving(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    api, name, namespace = workspace.api, workspace.name("keeper"), workspace.namespace
    workspace.create(configuration(name))
    spoilt = {"data": {"tls.key": "bm9uc2Vuc2U="}}

    def stored() -> Object:
        found = api.get(SECRET, "certificate", namespace)
        assert found is not None
        return found

    def until_mended() -> None:
        def is_mended(found: Object | None) -> bool:
            return found is not None and found["data"]["tls.key"] != spoilt["data"]["tls.key"]

        api.wait_for(SECRET, "certificate", is_mended, namespace=namespace)

    async def story() -> None:
        async with Client(connect(find_config(control_plane.kubeconfig()))) as client:
            first, second = (Replica(client, workspace, name, timedelta(0)) for _ in range(2))
            async with running(first) as one, running(second) as two:
                await asyncio.to_thread(api.wait_for, CONFIGURATION, name, lambda found: bool(bundle_of(found)))
                bundle = bundle_of(api.get(CONFIGURATION, name))
                shown = await until_served(one, bundle)
                assert await until_served(two, bundle) == shown
                before = stored()
                api.patch(SECRET, "certificate", spoilt, namespace=namespace)
                await asyncio.to_thread(until_mended)
                assert stored()["data"] == before["data"], "who serves has put back what it serves with"
                api.patch(SECRET, "certificate", spoilt, namespace=namespace)
                version = stored()["metadata"]["resourceVersion"]
                # A third one cannot serve at all, and changes nothing for that.
                third = Replica(client, workspace, name, timedelta(0))
                async with running(third):
                    await asyncio.sleep(2)
                    assert not third.keeper.check(datetime.now(UTC)).ok
                    assert stored()["metadata"]["resourceVersion"] == version
                    assert bundle_of(api.get(CONFIGURATION, name)) == bundle
                    for port in (one, two):
                        assert await until_served(port, bundle) == shown
                    for replica in (first, second, third):
                        replica.behind = timedelta(hours=-1)
                        replica.keeper._work.set()
                    await asyncio.to_thread(until_mended)

    asyncio.run(story())
    api.delete(SECRET, "certificate", namespace)


def test_a_replica_whose_clock_is_wrong_makes_no_certificate_that_others_cannot_use(
    control_plane: ControlPlane, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes by the API server's clock, and replaces one that a wrong clock has made."""
    api, name = workspace.api, workspace.name("keeper")
    workspace.create(configuration(name))
    ahead = timedelta(days=61)
    early = certificates.make(HOSTS, datetime.now(UTC) + ahead)
    api.create(manifest(SECRET, "certificate", workspace.namespace, type=keeper.TYPE, data=keeper._data(early)))

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + ahead

    monkeypatch.setattr(kube_client, "datetime", Wrong)

    async def story() -> None:
        async with Client(connect(find_config(control_plane.kubeconfig()))) as client:
            replica = Replica(client, workspace, name, None)
            async with running(replica) as port:
                found = await asyncio.to_thread(
                    api.wait_for, CONFIGURATION, name, lambda found: bundle_of(found) not in (b"", early.chain.encode())
                )
                shown = x509.load_der_x509_certificate(await until_served(port, bundle_of(found)))
                assert shown.not_valid_before_utc <= datetime.now(UTC) <= shown.not_valid_after_utc
                assert abs(client.now() - datetime.now(UTC)) < timedelta(minutes=1)
                stored = api.get(SECRET, "certificate", workspace.namespace)
                assert keeper.REPAIRED in stored["metadata"]["annotations"]
                assert replica.keeper.check(client.now()).ok

    asyncio.run(story())
