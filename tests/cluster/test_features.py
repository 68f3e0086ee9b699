"""The features of a real API server, with any feature gates, are detected before anything is published."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.kube.errors import RefusedError
from netdra.kube.features import probe, scheduler_version
from netdra.model.device import DEFAULT_FEATURES, Features
from netdra.model.errors import PermanentError
from netdra.model.scheduler_version import NEWEST_SCHEDULER, OLDEST_SCHEDULER, SchedulerVersion
from testbed.api import Api
from testbed.commands import Settings
from testbed.components import KUBERNETES_VERSION
from testbed.control_plane import ControlPlane
from testbed.objects import SLICE
from tests.cluster.conftest import StartControlPlane
from tests.cluster.fault_proxy import Answer, FaultProxy


def probed(plane: ControlPlane, user: str = "kubernetes-admin", *groups: str) -> Features:
    async def story() -> Features:
        config = find_config(plane.kubeconfig(user, groups or ("system:masters",)))
        async with Client(connect(config)) as client:
            return await probe(client, "worker-1")

    return asyncio.run(story())


def test_the_supported_release_provides_the_expected_features_and_probing_writes_nothing(
    control_plane: ControlPlane, api: Api
) -> None:
    before = versions(api)

    assert probed(control_plane) == DEFAULT_FEATURES
    # Some may go meanwhile: those of nodes that other tests have deleted.
    assert versions(api).items() <= before.items()


def versions(api: Api) -> dict[str, str]:
    """The present slices, and the version of each."""
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in api.list(SLICE)}


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        ({"DRAListTypeAttributes": True}, Features(list_attributes=True)),
        (
            {
                "DRAPartitionableDevices": False,
                "DRAConsumableCapacity": False,
                "DRADeviceTaints": False,
                "DRADeviceTaintRules": False,
            },
            Features(partitionable_devices=False, consumable_capacity=False, device_taints=False),
        ),
    ],
    ids=["with-lists", "without-the-rest"],
)
def test_gates_are_found_out(
    gates: dict[str, bool], expected: Features, start_control_plane: StartControlPlane
) -> None:
    plane = start_control_plane(Settings(feature_gates=gates, scheduler=False, controller_manager=False))

    assert probed(plane) == expected
    with closing(plane.client()) as client:
        assert client.list(SLICE) == []


def test_a_server_without_the_api_is_named_as_the_reason(control_plane: ControlPlane) -> None:
    async def story() -> None:
        async with FaultProxy(control_plane).serving() as proxy, Client(connect(proxy.config)) as client:
            proxy.fault = lambda _: Answer.status(404, "NotFound")
            with pytest.raises(PermanentError, match=r"resource\.k8s\.io/v1 is not served"):
                await probe(client, "worker-1")

    asyncio.run(story())


def test_a_probe_without_permission_to_create_slices_reports_the_refusal(control_plane: ControlPlane) -> None:
    with pytest.raises(RefusedError, match="403"):
        probed(control_plane, "nobody", "nothing")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, SchedulerVersion.parse(KUBERNETES_VERSION)),
        (Answer(200, b'{"gitVersion": "v1.38.0-beta.0+x"}'), SchedulerVersion(1, 38)),
        (Answer(200, b'{"gitVersion": "v1.20.1"}'), OLDEST_SCHEDULER),
        (Answer(200, b'["other"]'), NEWEST_SCHEDULER),
        (Answer.status(403, "Forbidden"), NEWEST_SCHEDULER),
    ],
    ids=["real", "newer", "too-old", "unreadable", "refused"],
)
def test_version_of_the_scheduler_is_the_servers_or_the_newest_release(
    control_plane: ControlPlane, answer: Answer | None, expected: SchedulerVersion
) -> None:
    async def story() -> SchedulerVersion:
        async with FaultProxy(control_plane).serving() as proxy, Client(connect(proxy.config)) as client:
            proxy.fault = lambda _: answer
            return await scheduler_version(client)

    assert asyncio.run(story()) == expected
