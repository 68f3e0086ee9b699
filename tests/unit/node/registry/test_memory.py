"""The memory of a process that serves the registry, however a local user holds its connections."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from netdra.model.registration import Registration
from netdra.model.resource import DeviceAttribute
from netdra.node.registry.journal import RegistrationJournal
from netdra.node.registry.table import FILE, RegistrationTable
from netdra.registry_client import RegistryClient
from testbed.process import Process
from tests.registry_attacks import ATTACKS, attack, most_memory

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
        with RegistryClient(path=str(path), timeout=30) as client:
            assert len(client.registrations()) == count
    finally:
        process.stop()
