"""The memory of a process that serves the registry, however a local user holds its connections."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from google.protobuf.message import Message

from netdra.model.errors import NetdraError
from netdra.model.registration import Registration
from netdra.model.resource import DeviceAttribute
from netdra.node.registry import service
from netdra.node.registry.connections import CALLS
from netdra.node.registry.journal import RegistrationJournal
from netdra.node.registry.service import LIMITS, LISTS_OF_CALLER
from netdra.node.registry.table import FILE, RegistrationTable
from netdra.node.wire import registry_pb2 as wire
from netdra.registry_client import RegistryClient
from testbed.process import Process
from testbed.waiting import until, until_async
from tests.registry_attacks import ATTACKS, Connection, Speech, attack, most_memory
from tests.unit.node.registry.scene import serving

PATIENCE_SECONDS = 30.0
MOST_MIB = 200
"""Of the whole daemon."""
SERVE = """
import asyncio, sys
from pathlib import Path
from tests.unit.node.registry.scene import serving

async def main():
    async with serving(Path(sys.argv[1])):
        await asyncio.Event().wait()

asyncio.run(main())
"""


def fill(folder: Path) -> int:
    """A registry that four owners have filled as far as they may; the number of registrations."""

    async def put() -> int:
        table = RegistrationTable(folder / FILE)
        facts = {f"a{at}": DeviceAttribute(string="x" * 40) for at in range(8)}
        for owner, count in enumerate((2048, 1024, 512, 256)):
            for number in range(count):
                said = Registration(provider=f"p{owner}", device=f"eth{number}", attributes=facts)
                table.put(said, f"uid:{owner + 1}", 3600)
        RegistrationJournal(folder / FILE).write(table.grants, table.owners)
        return len(table)

    return asyncio.run(put())


def listed(path: Path) -> int:
    """The number of registrations that a client gets; 0 if it gets no answer."""
    with suppress(NetdraError), RegistryClient(path=str(path), timeout=30) as client:
        return len(client.registrations())
    return 0


def test_no_attack_makes_the_process_large_and_all_are_answered_afterwards(folder: Path) -> None:
    count = fill(folder)
    path = folder / "registry.sock"
    process = Process("registry", (sys.executable, "-c", SERVE, str(folder)), folder / "log", path.exists)
    process.start()
    process.wait_ready()
    try:
        before = most_memory(process.pid or 0)
        figures = {}
        for kind in ATTACKS:
            with attack(kind, path):
                figures[kind] = most_memory(process.pid or 0)
        print(f"{before:.0f} MiB before; after each: {figures}")
        assert max(figures.values()) <= MOST_MIB, figures
        # A user has so many connections: the registry must have noticed that those of the attack have ended.
        until(lambda: listed(path) == count, "an answer after the attacks")
    finally:
        process.stop()


def test_of_one_user_four_lists_are_made_at_one_time(folder: Path) -> None:
    """A client that reads no answer has the registry keep them; further lists wait, and other calls do not."""
    speech, made = Speech(window=0), list[wire.ListRegistrationsRequest]()
    for _ in range(CALLS):
        speech.call("ListRegistrations", b"")

    async def story() -> None:
        async with serving(folder) as scene:
            listing, page = scene.registry._listing, scene.registry._listing.page

            def counted(request: wire.ListRegistrationsRequest) -> Message:
                made.append(request)
                return page(request)

            listing.page = counted  # type: ignore[method-assign]
            connection = Connection(scene.path, speech.http2.data_to_send())
            assert connection.send()
            await until_async(lambda: len(made) >= LISTS_OF_CALLER, "the first lists")
            for _ in range(50):
                assert (await scene.register()).success
            connection.socket.close()

    asyncio.run(story())
    assert len(made) == LISTS_OF_CALLER


def test_requests_that_never_end_are_dropped_before_they_exceed_the_memory_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LIMITS", LIMITS._replace(held=256 * 1024, first=600.0, request=600.0))
    speech = Speech(window=65_535)
    for _ in range(CALLS):
        speech.call("RegisterAttributes", b"\x00" * 100, part=1, ends=False)

    async def story() -> None:
        async with serving(folder) as scene:
            assert (await scene.register()).success
            reader, writer = await asyncio.open_unix_connection(str(scene.path))
            writer.write(speech.http2.data_to_send())
            async with asyncio.timeout(PATIENCE_SECONDS):
                with suppress(ConnectionError):
                    await reader.read()
            writer.close()
            assert (await scene.register()).success

    asyncio.run(story())
