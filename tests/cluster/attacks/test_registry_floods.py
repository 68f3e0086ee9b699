"""Floods of the device registry, against the whole driver as a process: its memory, and the waits of pods meanwhile.

The runtime is scripted, for a real one takes a hundred times the measured time to make a sandbox. The
registry is full before, by four owners. Each flood is another process, bounded in time.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netdra.nri import nri_pb2
from netdra.registry_client import RegistryClient
from testbed.control_plane import ControlPlane
from testbed.objects import POD, manifest
from testbed.pace import Pace, measured, stretched
from testbed.workspace import Workspace
from tests.cluster.publishing.registry_driver import Daemon, running
from tests.kernel.conftest import Machine, new_machine
from tests.registry_attacks import most_memory
from tests.unit.node.nri.peer import Peer, listening
from tests.unit.node.registry.test_memory import MOST_MIB, fill

pytestmark = pytest.mark.usefixtures("custom_kinds")

HOOKS = 400
HOOK_SECONDS = 0.06
"""For 99 of 100 hooks of pods without claims. How long pods with claims take is measured by `bench registry`."""
FLOOD_SECONDS, MOST_SECONDS = 4.0, 10.0
LEAST = {"lists": 256, "names": 20, "registrations": 50}
"""By flood, how much of it there has to be."""
_FLOOD = """
import itertools, sys, threading, time
from contextlib import suppress
from pathlib import Path
from netdra.model.errors import NetdraError
from netdra.node.registry.connections import CALLS
from netdra.registry_client import RegistryClient
from tests.registry_attacks import CONNECTIONS, attack

kind, path, seconds, least, most = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
begun = time.monotonic()
said = itertools.count()

def flood(number):
    with suppress(NetdraError), RegistryClient(f"a{number}", path, timeout=30) as client:
        for at in itertools.count():
            passed = time.monotonic() - begun
            if passed > most or (passed > seconds and next(said) > least):
                return
            next(said)
            if kind == "registrations":
                with suppress(NetdraError):
                    client.register(f"x{number}-{at}", {"note": "y" * 60}, ttl=600)
            else:
                with suppress(NetdraError), RegistryClient(f"n{number}-{at}", path, timeout=30) as other:
                    other.register("x", {"a": True}, ttl=600)
                    other.deregister("x")

print("begun", flush=True)
if kind == "lists":
    with attack("lists", Path(path)):
        count = CONNECTIONS * CALLS
else:
    threads = [threading.Thread(target=flood, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = next(said)
print(count, flush=True)
"""


@pytest.fixture
def machine() -> Iterator[Machine]:
    """The driver's node: an empty namespace."""
    yield from new_machine()


@pytest.fixture
def daemon(control_plane: ControlPlane, workspace: Workspace, machine: Machine) -> Iterator[Daemon]:
    """A driver with a full registry."""
    with running(control_plane, workspace, machine) as found:
        found.state.mkdir()
        fill(found.state)
        yield found


@contextmanager
def flooded(kind: str, socket: Path) -> Iterator[subprocess.Popen[str]]:
    """A flood by another process, for some seconds, longer where there is little of it in these."""
    bounds = map(str, (FLOOD_SECONDS, 2 * LEAST[kind], stretched(MOST_SECONDS)))
    command = (sys.executable, "-c", _FLOOD, kind, str(socket), *bounds)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
        count = int(process.stdout.readline())
    assert count >= LEAST[kind], (kind, count)


async def hooks(
    peer: Peer, pod: nri_pb2.PodSandbox, flood: subprocess.Popen[str] | None = None
) -> tuple[list[float], Pace]:
    """How long the driver takes for each hook of sandboxes that come and go, as long as a flood lasts."""
    taken: list[float] = []
    with measured() as pace:
        while flood.poll() is None if flood is not None else len(taken) < HOOKS:
            box = nri_pb2.PodSandbox()
            box.CopyFrom(pod)
            box.id = f"sandbox-{len(taken)}"
            for event in (nri_pb2.RUN_POD_SANDBOX, nri_pb2.STOP_POD_SANDBOX, nri_pb2.REMOVE_POD_SANDBOX):
                asked = time.monotonic()
                answer = await peer.ask("StateChange", nri_pb2.StateChangeEvent(event=event, pod=box), seconds=10.0)
                assert not answer.status.code, answer.status.message
                taken.append(time.monotonic() - asked)
            await asyncio.sleep(0.005)
    return taken, pace


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def test_no_flood_makes_the_driver_large_or_pods_wait(daemon: Daemon, workspace: Workspace, machine: Machine) -> None:
    spec = {"nodeName": daemon.node, "containers": [{"name": "c", "image": "none"}]}
    made = workspace.api.create(manifest(POD, "claimless", workspace.namespace, spec=spec))
    space = nri_pb2.LinuxNamespace(type="network", path=f"/run/netns/{machine.name}")
    pod = nri_pb2.PodSandbox(
        name="claimless",
        namespace=workspace.namespace,
        uid=made["metadata"]["uid"],
        linux=nri_pb2.LinuxPodSandbox(namespaces=[space]),
    )
    figures: dict[str, tuple[float, float, float]] = {}

    async def story() -> None:
        async with listening(daemon.runtime) as come:
            coming = come()
            await asyncio.to_thread(daemon.start)
            peer = await coming
            await peer.handshake()
            for kind in ("", "lists", "names", "registrations"):
                if kind:
                    with flooded(kind, daemon.socket) as flood:
                        seconds, pace = await hooks(peer, pod, flood)
                else:
                    await hooks(peer, pod)  # what is made once is made
                    seconds, pace = await hooks(peer, pod)
                figures[kind] = p99(seconds), pace.slowness, most_memory(daemon.process.pid or 0)

            assert await asyncio.to_thread(registrations)

    def registrations() -> int:
        with RegistryClient(path=str(daemon.socket), timeout=stretched(30)) as client:
            return len(client.registrations())

    asyncio.run(story())
    for kind, (most, slowness, memory) in figures.items():
        print(f"{kind or 'quiet'}: hooks p99 {1000 * most:.1f} ms, machine {slowness:.1f}, {memory:.0f} MiB at most")
    assert max(memory for _, _, memory in figures.values()) <= MOST_MIB, figures
    for most, slowness, _ in figures.values():
        assert most <= HOOK_SECONDS * slowness, figures
