"""Events on the real API server: one for a single occurrence, a series for repeated ones, and no code waits for any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from netdra.kube import events
from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.kube.events import ObjectReference, Occurrence, Recorder
from netdra.kube.metrics import KUBE
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.workspace import Workspace, open_workspace
from tests.cluster.fault_proxy import Answer, FaultProxy

KIND = "events.k8s.io/v1/Event"


@asynccontextmanager
async def recorder(plane: ControlPlane) -> AsyncIterator[tuple[Recorder, FaultProxy]]:
    async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as client:
        found = Recorder(client, "dra.networking/test", "somewhere")
        task = asyncio.create_task(found.run())
        try:
            yield found, proxy
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def claim_failed(workspace: Workspace, note: str = "the device is away") -> Occurrence:
    claim = ObjectReference(
        api_version="resource.k8s.io/v1", kind="ResourceClaim", name="c", namespace=workspace.namespace
    )
    return Occurrence(regarding=claim, type="Warning", reason="PrepareFailed", action="Prepare", note=note)


def no_address(workspace: Workspace, name: str) -> Occurrence:
    claim = ObjectReference(
        api_version="resource.k8s.io/v1", kind="ResourceClaim", name=name, namespace=workspace.namespace
    )
    return Occurrence(regarding=claim, type="Warning", reason="NoFreeAddress", action="AssignAddress", note="full")


async def told(api: Api, workspace: Workspace, count: int) -> list[Object]:
    return await asyncio.to_thread(
        api.wait_for_all, KIND, lambda found: len(found) >= count, namespace=workspace.namespace, fields=""
    )


def test_an_emitted_event_is_listed_by_kubectl(control_plane: ControlPlane, api: Api, workspace: Workspace) -> None:
    async def story() -> None:
        async with recorder(control_plane) as (found, _):
            found.emit(claim_failed(workspace))
            (event,) = await told(api, workspace, 1)
            assert event["regarding"]["name"] == "c"
            assert (event["type"], event["reason"], event["action"]) == ("Warning", "PrepareFailed", "Prepare")
            assert event["reportingController"] == "dra.networking/test"
            assert event["note"] == "the device is away"

    asyncio.run(story())
    listed = control_plane.kubectl("get", "events", "-n", workspace.namespace)
    assert "PrepareFailed" in listed
    assert "resourceclaim/c" in listed


def test_repeated_events_become_one_event_with_a_count_and_few_requests(
    control_plane: ControlPlane, api: Api, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "WRITE_AGAIN_SECONDS", 0.5)

    async def story() -> None:
        async with recorder(control_plane) as (found, proxy):
            found.emit(claim_failed(workspace))
            await told(api, workspace, 1)
            for _ in range(999):
                found.emit(claim_failed(workspace))
            (event,) = await asyncio.to_thread(
                api.wait_for_all,
                KIND,
                lambda listed: any(item.get("series", {}).get("count") == 1000 for item in listed),
                namespace=workspace.namespace,
            )
            assert event["series"]["count"] == 1000
            assert proxy.count() <= 3

    asyncio.run(story())


def test_a_server_that_refuses_for_a_while_gets_the_event_later(
    control_plane: ControlPlane, api: Api, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "WRITE_AGAIN_SECONDS", 0.3)

    async def story() -> None:
        async with recorder(control_plane) as (found, proxy):
            answers = iter([Answer.status(503), Answer.status(429)])
            proxy.fault = lambda _: next(answers, None)
            found.emit(claim_failed(workspace))
            (event,) = await told(api, workspace, 1)
            assert event["reason"] == "PrepareFailed"
            assert found.book.dropped == 0

    asyncio.run(story())


def test_an_event_that_the_server_will_never_take_is_dropped(control_plane: ControlPlane) -> None:
    async def story() -> None:
        async with recorder(control_plane) as (found, proxy):
            nowhere = ObjectReference(api_version="v1", kind="Pod", name="p", namespace="nowhere-at-all")
            found.emit(Occurrence(regarding=nowhere, type="Normal", reason="R", action="A", note="n"))
            await found.flush()
            assert found.book.dropped == 1
            assert found.book.unwritten() == []
            assert proxy.count() <= 2

    asyncio.run(story())


def test_an_event_that_expired_on_the_server_is_written_again(
    control_plane: ControlPlane, api: Api, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "WRITE_AGAIN_SECONDS", 0.3)

    async def story() -> None:
        async with recorder(control_plane) as (found, _):
            found.emit(claim_failed(workspace))
            (event,) = await told(api, workspace, 1)
            api.delete(KIND, event["metadata"]["name"], workspace.namespace)
            found.emit(claim_failed(workspace))
            (again,) = await told(api, workspace, 1)
            assert again["metadata"]["name"] != event["metadata"]["name"]
            assert again["series"]["count"] == 2

    asyncio.run(story())


def test_a_process_writes_its_remaining_events_at_exit(
    control_plane: ControlPlane, api: Api, workspace: Workspace
) -> None:
    async def story() -> None:
        async with recorder(control_plane) as (found, _):
            found.emit(claim_failed(workspace))
            await told(api, workspace, 1)
            found.emit(claim_failed(workspace))
            found.emit(claim_failed(workspace, "x" * 5000))
            await found.flush()
        listed = api.list(KIND, workspace.namespace)
        assert sorted(item.get("series", {}).get("count", 1) for item in listed) == [1, 2]
        assert max(len(item["note"].encode()) for item in listed) == 1024

    asyncio.run(story())


def test_a_namespace_with_two_thousand_failing_claims_does_not_silence_another_namespace(
    control_plane: ControlPlane, api: Api, workspace: Workspace
) -> None:
    async def story(quiet: Workspace) -> None:
        async with recorder(control_plane) as (found, proxy):
            for number in range(2000):
                found.emit(no_address(workspace, f"c{number}"))
            found.emit(no_address(quiet, "alone"))
            (event,) = await told(api, quiet, 1)
            assert event["regarding"]["name"] == "alone"
            await told(api, workspace, 1)
            assert proxy.count() <= events.MAX_OPEN
            assert found.book.dropped >= 2000 - events.MAX_OPEN
            assert dropped() - before == found.book.dropped

    def dropped() -> float:
        return KUBE.registry.get_sample_value("netdra_kubernetes_events_dropped_total") or 0.0

    before = dropped()
    with open_workspace(api) as quiet:
        asyncio.run(story(quiet))
