"""The server dies, stands still, forgets its history or is restored: the store is its state again within seconds."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
import urllib.request
from collections.abc import Callable

from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.objects import NAMESPACE
from testbed.waiting import waiting
from tests.cluster.fault_proxy import Answer
from tests.cluster.reflector.scene import replayed, run, scene

PAUSE_SECONDS = 3.0  # a watch is given up after one


def test_a_killed_server_costs_nothing_but_time(plane: ControlPlane, server: Api) -> None:
    async def story() -> None:
        async with scene(plane, server) as found:
            killed = time.monotonic()
            await restarted(plane)
            away = time.monotonic() - killed
            found.delete("first-1", "first-2")
            found.write("after", "first-0", text="after")
            await found.equal()
            assert replayed(found.changes) == found.versions()
            assert found.proxy.count(killed) <= 6 + 2 * away

    run(story())


def test_a_paused_server_is_waited_for(plane: ControlPlane, server: Api) -> None:
    async def story() -> None:
        async with scene(plane, server, idle=1.0) as found:
            paused = time.monotonic()
            plane.apiserver.pause()
            try:
                with waiting("few requests"):
                    await asyncio.sleep(PAUSE_SECONDS)
            finally:
                plane.apiserver.resume()
            found.delete("first-1")
            found.write("after")
            await found.equal()
            assert replayed(found.changes) == found.versions()
            assert found.proxy.count(paused, paused + PAUSE_SECONDS + 2.0) <= 8

    run(story())


def test_a_list_recovers_a_compacted_history_and_the_missed_deletes(plane: ControlPlane, server: Api) -> None:
    async def story() -> None:
        async with scene(plane, server) as found:
            found.proxy.fault = lambda _: Answer.status(503)
            found.proxy.cut_all()
            found.delete("first-1", "first-2", "first-3")
            for number in range(20):
                found.write("first-0", text=str(number))
            compact(plane, server)
            await restarted(plane)
            before = found.reflector.counts.lists
            found.proxy.fault = lambda _: None
            await found.equal()
            assert found.reflector.counts.lists == before + 1
            assert replayed(found.changes) == found.versions()
            gone = {change.key for change in found.changes if change.new is None}
            assert gone == {f"{found.namespace}/first-{number}" for number in (1, 2, 3)}

    run(story())


async def restarted(plane: ControlPlane) -> None:
    """Kill the API server, start it again and wait until it is ready; it lives as long as the thread that starts it."""
    plane.apiserver.kill()
    plane.apiserver.start()
    await asyncio.to_thread(plane.apiserver.wait_ready)


def compact(plane: ControlPlane, api: Api) -> None:
    """Make etcd forget all revisions before the current one."""
    endpoint = next(part.split("=", 1)[1] for part in plane.etcd.command if part.startswith("--listen-client-urls="))
    revision = api.request("GET", api.path(NAMESPACE))["metadata"]["resourceVersion"]
    body = json.dumps({"revision": revision, "physical": True}).encode()
    with urllib.request.urlopen(f"{endpoint}/v3/kv/compaction", data=body) as answer:
        assert answer.status == 200


def test_a_server_restored_from_a_backup_is_believed(plane: ControlPlane, server: Api) -> None:
    data, backup = plane.folder / "etcd", plane.folder / "backup"

    def restore() -> None:
        shutil.rmtree(data)
        backup.rename(data)

    async def bounced(meanwhile: Callable[[], object]) -> None:
        plane.apiserver.kill()
        plane.etcd.kill()
        meanwhile()
        plane.etcd.start()
        await asyncio.to_thread(plane.etcd.wait_ready)
        await restarted(plane)

    async def story() -> None:
        async with scene(plane, server, idle=2.0) as found:
            await bounced(lambda: shutil.copytree(data, backup))
            for number in range(50):
                await asyncio.to_thread(found.write, "first-0", f"lost-{number}", text=str(number))
            await found.equal()
            await bounced(restore)
            found.write("first-0", text="after")
            await found.equal()
            assert f"{found.namespace}/lost-0" not in found.store.objects
            assert found.store.objects[f"{found.namespace}/first-0"].data == {"text": "after"}
            assert replayed(found.changes) == found.versions()

    run(story())
