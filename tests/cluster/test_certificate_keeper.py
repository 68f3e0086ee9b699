"""The webhook's certificate through its life: several replicas agree on one, and it is renewed when it is due."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

from netdra.admission import serving
from netdra.admission.certificates import LIFETIME
from netdra.admission.keeper import Keeper
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from testbed.waiting import until_async
from testbed.workspace import Workspace

CONFIGURATION = "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
SECRET = "v1/Secret"
HOSTS = ("netdra-webhook.netdra.svc",)


def configuration(name: str) -> Object:
    """A configuration that asks about nothing that there is."""
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
    """One process's part: a keeper whose clock can be behind, and what is served with."""

    def __init__(self, client: Client, workspace: Workspace, name: str, behind: timedelta) -> None:
        self.behind = behind
        self.tls = serving.context()
        self.keeper = Keeper(
            client,
            workspace.namespace,
            "certificate",
            HOSTS,
            (name,),
            self.tls,
            clock=lambda: datetime.now(UTC) - self.behind,
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


def bundle_of(found: Object | None) -> bytes:
    """The authorities that a configuration trusts."""
    config = found["webhooks"][0]["clientConfig"] if found else {}
    return base64.b64decode(config.get("caBundle", ""))
