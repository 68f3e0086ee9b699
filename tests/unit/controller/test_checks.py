"""The errors in an object is found once in a worker, and remembered until the object changes."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from netdra.controller.checks import Checks
from netdra.controller.metrics import CONTROLLER
from netdra.model.policy import DeviceExposurePolicy, DeviceExposurePolicyStatus
from netdra.model.topology import NetworkTopology
from netdra.review import objects
from netdra.review.world import World
from netdra.workers import pool
from netdra.workers.pool import WorkerKilledError, WorkersBusyError
from testbed.waiting import until_async
from tests.builders import exclusive, policy
from tests.unit.controller.test_classes import topology
from tests.unit.controller.test_status import schema
from tests.unit.workers.commands import DEAD, DEAF, DEFECTIVE

SOUND = "- {name: vf0, type: sriov}"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that takes another's place is waited for, however slowly the machine starts it."""
    monkeypatch.setattr(pool, "PATIENCE", 60.0)


def test_valid_objects_pass_the_checks_and_invalid_objects_return_errors() -> None:
    async def story() -> None:
        async with Checks(seconds=60.0) as checks:
            assert await checks.errors(exclusive("p", "true"), World()) == ()
            (wrong,) = await checks.errors(policy("p", "device.driver =="), World())
            assert wrong.startswith('DeviceExposurePolicy "p": CEL expression does not compile')
            assert await checks.errors(topology(steps=SOUND), World()) == ()
            (wrong,) = await checks.errors(topology(steps="- {name: vf0, type: sriov, dependOn: [x]}"), World())
            assert '"x"' in wrong

    asyncio.run(story())


DEFAULT_ROUTE = """
- name: vf0
  type: sriov
  config: {ipam: {type: static, addresses: [{address: 10.0.0.2/24}], routes: [{dst: 0.0.0.0/0}]}}
"""
NUMBER_AS_TEXT = """device.attributes["dra.networking"].mtu == "9000\""""


def test_a_topology_that_was_stored_without_the_webhook_has_its_errors() -> None:
    async def story() -> None:
        async with Checks(seconds=60.0) as checks:
            (wrong,) = await checks.errors(topology(steps=DEFAULT_ROUTE), World(is_stored=True))
            assert "a second default route replaces that of eth0" in wrong

    asyncio.run(story())


@pytest.mark.parametrize(
    "value",
    [
        topology(steps=f"- {{name: a, type: sriov, selector: {{cel: '{NUMBER_AS_TEXT}'}}}}"),
        policy("p", NUMBER_AS_TEXT),
    ],
    ids=["topology", "policy"],
)
def test_names_in_selectors_of_stored_objects_are_left_to_the_nodes(
    value: NetworkTopology | DeviceExposurePolicy,
) -> None:
    async def story() -> None:
        async with Checks(seconds=60.0) as checks:
            assert await checks.errors(value, World(is_stored=True)) == ()

    ((_, wrong),) = objects.errors([value], World())
    assert "mtu is an int" in wrong.what
    asyncio.run(story())


def test_a_check_result_is_kept_until_the_spec_or_a_schema_changes() -> None:
    async def story() -> None:
        async with Checks(seconds=60.0) as checks:
            net = topology(steps="- {name: vf0, type: mine, config: {a: 1}}")
            asked = policy("p", "device.driver ==")
            known, sound = await checks.errors(asked, World()), await checks.errors(net, World())
            for process in checks.pool.running:
                process.kill()
                await process.wait()
            assert await checks.errors(replace(asked, status=DeviceExposurePolicyStatus()), World()) == known
            assert await checks.errors(net, World()) == sound == ()
            # The worker is gone, so whatever is asked anew cannot be answered.
            with pytest.raises(WorkerKilledError):
                await checks.errors(policy("p", "true"), World())
            own = schema("s", "mine", configParameters={"optional": []})
            (wrong,) = await checks.errors(net, World(schemas={"s": own}))
            assert '"a"' in wrong

    asyncio.run(story())


def test_a_check_that_is_too_slow_twice_is_an_error_of_the_object() -> None:
    async def story() -> None:
        async with Checks(seconds=0.2, command=DEAF) as checks:
            with pytest.raises(WorkersBusyError, match=r"within 0\.2 s"):
                await checks.errors(exclusive("p", "true"), World())
            (wrong,) = await checks.errors(exclusive("p", "true"), World())
            assert wrong == "cannot be checked within 0.2 s; make its expressions simpler (ND2288)"

    asyncio.run(story())


def defects() -> float:
    """The policies that are used without a check."""
    return CONTROLLER.registry.get_sample_value("netdra_controller_defects_total", {"kind": "policy"}) or 0.0


def test_an_object_is_used_though_netdra_fails_in_its_check() -> None:
    async def story() -> None:
        before = defects()
        async with Checks(seconds=60.0, command=DEFECTIVE) as checks:
            for _ in range(2):
                assert await checks.errors(exclusive("p", "true"), World()) == ()
        assert defects() == before + 1

    asyncio.run(story())


def test_a_worker_that_is_killed_marks_no_object_however_often() -> None:
    async def story() -> None:
        async with Checks(seconds=60.0) as checks:
            for _ in range(3):
                await until_async(lambda: checks.pool._free.qsize() == 1, "another worker")
                (process,) = checks.pool.running
                process.kill()
                with pytest.raises(WorkerKilledError):
                    await checks.errors(exclusive("p", "true"), World())
            assert await checks.errors(exclusive("p", "true"), World()) == ()

    asyncio.run(story())


def test_a_check_that_ends_a_worker_twice_exceeds_the_available_memory() -> None:
    async def story() -> None:
        async with Checks(seconds=60.0, command=DEAD) as checks:
            with pytest.raises(WorkersBusyError):
                await checks.errors(exclusive("p", "true"), World())
            (wrong,) = await checks.errors(exclusive("p", "true"), World())
            assert "in the available memory" in wrong

    asyncio.run(story())


def test_checks_of_deleted_objects_are_forgotten() -> None:
    async def story() -> None:
        async with Checks(seconds=60.0) as checks:
            await checks.errors(exclusive("p", "true"), World())
            await checks.errors(exclusive("q", "true"), World())
            await checks.errors(topology(steps=SOUND), World())
            checks.forget("policy", "p")
            checks.forget("topology", topology().name)
            assert set(checks._checked) == {("policy", "q")}

    asyncio.run(story())
