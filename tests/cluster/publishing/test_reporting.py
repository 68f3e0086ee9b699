"""A node's NodeNetwork: written also without any slices, kept as it should be, and no more often than it changes.

The webhook is away here, so every policy is taken as it is written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from netdra.cni.plugins import PluginPath
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.node.publishing import reporter
from netdra.node.view import HeldDevice
from testbed import pace
from testbed.api import Object
from testbed.build import program
from testbed.control_plane import ControlPlane
from testbed.objects import HOSTNAME, NODE
from testbed.waiting import until_async
from testbed.workspace import Workspace
from tests.cluster.daemons import running_controller
from tests.cluster.fault_proxy import Answer, Fault, Request
from tests.cluster.publishing.scene import EVENT, POLICY, VETHS, Scene, about, policy, publishing
from tests.kernel.conftest import Machine

pytestmark = pytest.mark.usefixtures("custom_kinds")

REPORT = "networking.dra.io/v1alpha1/NodeNetwork"
ROLLOUT = "networking.dra.io/v1alpha1/DeviceExposurePolicyRollout"
TYPO = 'device.attributes["dra.networking"].ifNmae == "eth0"'


def condition(found: Object | None, kind: str) -> Object:
    said = (found or {}).get("status", {}).get("conditions", [])
    return next((each for each in said if each["type"] == kind), {})


def reports(scene: Scene) -> list[str]:
    """The writes of reports until now."""
    return [
        request.method for request in scene.proxy.requests if request.method != "GET" and "nodenetworks" in request.path
    ]


def of_this_node(workspace: Workspace, cel: str = VETHS, name: str = "veths", **spec: object) -> Object:
    """A policy of the test's own node: its counts exclude nodes that are just being deleted."""
    return policy(workspace, cel, name, nodeSelector={"matchLabels": {HOSTNAME: workspace.name("node")}}, **spec)


async def reported(scene: Scene, met: Callable[[Object], bool] = lambda _: True) -> Object:
    """The node's NodeNetwork, once it is there and as it should be."""

    def is_so(found: Object | None) -> bool:
        return found is not None and "status" in found and met(found["status"])

    found = await asyncio.to_thread(scene.api.wait_for, REPORT, scene.node, is_so)
    assert found is not None
    return found


def summary(found: Object) -> Object:
    numbers: Object = found["status"]["summary"]
    return numbers


def test_a_typo_in_an_exclude_policy_hides_possible_matches_and_is_reported_in_two_seconds(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    """Seen: every slice of every node was gone after 0.7 s, and the policy was stated to be well."""

    async def story() -> None:
        machine.veth("eth0", "far0")
        machine.veth("eth1", "far1")
        good = of_this_node(workspace)["metadata"]["name"]
        async with publishing(control_plane, workspace, machine) as scene:
            api = scene.api
            await scene.devices("eth0", "eth1")
            await reported(scene, lambda status: status["summary"]["offered"] == 2)
            with pace.within(2.0, "a policy's status"):
                typo = of_this_node(workspace, TYPO, "typo", action="exclude")["metadata"]["name"]
                found = await asyncio.to_thread(
                    api.wait_for, ROLLOUT, typo, lambda found: condition(found, "Degraded").get("status") == "True"
                )
            assert found is not None
            assert (found["status"]["nodes"], found["status"]["devices"]) == (1, 0)
            assert f"on 1 nodes, e.g. {scene.node}" in condition(found, "Degraded")["message"]
            (problem,) = found["status"]["problems"]
            assert 'Key not found in map : "ifNmae"' in problem["message"]
            assert problem["interfaces"] >= 2
            await scene.devices("eth1")
            shown = control_plane.kubectl("get", "dxp", typo, "--no-headers").split()
            assert shown[:5] == [typo, "exclude", "100", "True", "False"], "Accepted, and not Conflicting"
            shown = control_plane.kubectl("get", "dxprollout", typo, "--no-headers").split()
            assert shown[:7] == [typo, "1", "1", "0", "0", "True", "False"], "Degraded, and not Overlapping"
            other = await asyncio.to_thread(
                api.wait_for, ROLLOUT, good, lambda found: (found or {})["status"]["devices"] == 1
            )
            assert condition(other, "Degraded")["status"] == "False"
            api.patch(POLICY, typo, {"spec": {"selector": {"cel": TYPO.replace("ifNmae", "ifName")}}})
            await asyncio.to_thread(
                api.wait_for, ROLLOUT, typo, lambda found: condition(found, "Degraded").get("reason") == "NoProblems"
            )

    with running_controller(control_plane, workspace.api):
        asyncio.run(story())


def test_a_first_policy_with_a_typo_publishes_nothing_and_reports_degraded(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        machine.veth("eth0", "far0")
        async with publishing(control_plane, workspace, machine) as scene:
            await reported(scene)
            with pace.within(2.0, "a policy's status"):
                typo = of_this_node(workspace, TYPO, "typo")["metadata"]["name"]
                found = await asyncio.to_thread(
                    scene.api.wait_for,
                    ROLLOUT,
                    typo,
                    lambda found: condition(found, "Degraded").get("status") == "True",
                )
            assert found is not None
            assert (found["status"]["nodes"], found["status"]["devices"]) == (1, 0)
            assert scene.slices() == []

    with running_controller(control_plane, workspace.api):
        asyncio.run(story())


def test_a_policy_reports_another_policy_that_takes_its_devices(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        machine.veth("eth0", "far0")
        machine.veth("eth1", "far1")
        first = of_this_node(workspace, VETHS, "aaa")["metadata"]["name"]
        second = of_this_node(workspace, f"{VETHS} || false", "zzz")["metadata"]["name"]
        async with publishing(control_plane, workspace, machine) as scene:
            found = await asyncio.to_thread(
                scene.api.wait_for,
                ROLLOUT,
                second,
                lambda found: condition(found, "Overlapping").get("status") == "True",
            )
            text = f'policy "{first}" takes 2 devices that this policy also matches'
            assert condition(found, "Overlapping")["message"] == text

    with running_controller(control_plane, workspace.api):
        asyncio.run(story())


def test_a_node_reports_its_interfaces_and_goes_with_its_node(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        machine.veth("eth0", "far0")
        name = of_this_node(workspace)["metadata"]["name"]
        path = PluginPath(directories=(str(program("bridge").parent),))
        async with publishing(control_plane, workspace, machine, path) as scene:
            await scene.devices("eth0")
            found = await reported(scene, lambda status: "plugins" in status and status["summary"]["offered"] == 1)
            (owner,) = found["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("Node", scene.node)
            status = found["status"]
            (group,) = [each for each in status["interfaces"] if "eth0" in each.get("names", ())]
            assert (group["type"], group["devices"]) == ("veth", [{"policy": name}])
            assert {"bridge", "macvlan"} <= set(status["plugins"])
            assert all("annotations" not in each["metadata"] for each in scene.slices())
            numbers = [str(summary(found)[each]) for each in ("interfaces", "offered", "allocated", "problems")]
            shown = control_plane.kubectl("get", "nodenetworks", scene.node).splitlines()
            assert shown[0].split() == ["NAME", "INTERFACES", "OFFERED", "ALLOCATED", "PROBLEMS", "AGE"]
            assert shown[1].split()[:5] == [scene.node, *numbers]
        scene.api.delete(NODE, scene.node)
        await asyncio.to_thread(scene.api.wait_for, REPORT, scene.node, lambda found: found is None)

    asyncio.run(story())


def test_the_first_policy_that_names_a_plugin_causes_no_event_and_one_slice(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    """A node runs the plugins that policies name, and does not report a program before the program has answered."""

    async def story() -> None:
        machine.veth("eth0", "far0")
        path = PluginPath(directories=(str(program("bridge").parent),))
        async with publishing(control_plane, workspace, machine, path, runs_all=False) as scene:
            await reported(scene)
            since = time.monotonic()
            name = of_this_node(workspace, exposure={"supportedCNIPlugins": [{"name": "macvlan"}]})["metadata"]["name"]
            found = await scene.devices("eth0")
            assert ",macvlan," in found["eth0"]["attributes"]["supportedCNIs"]["string"]
            await scene.at_rest()
            assert scene.writes(since) == ["POST"]
            events = scene.api.list(EVENT)
            assert about(events, scene.node) == about(events, name) == []

    asyncio.run(story())


def test_device_allocation_is_reported_and_an_unchanged_report_is_not_rewritten(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "QUIET_SECONDS", 0.5)

    async def story() -> None:
        machine.veth("eth0", "far0")
        of_this_node(workspace)
        async with publishing(control_plane, workspace, machine) as scene:
            await reported(scene, lambda status: status["summary"]["offered"] == 1)
            scene.hold("eth0")
            await reported(scene, lambda status: status["summary"]["allocated"] == 1)
            await scene.at_rest()
            before = reports(scene)
            assert before[0] == "POST"
            for _ in range(3):
                scene.publishing.look_again()
                await scene.looks_again()
            await scene.quiet()
            assert reports(scene) == before
            assert len(before) <= 4

    asyncio.run(story())


def test_a_deleted_or_changed_report_is_written_again(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        machine.veth("eth0", "far0")
        of_this_node(workspace)
        async with publishing(control_plane, workspace, machine) as scene:
            first = await reported(scene, lambda status: status["summary"]["offered"] == 1)
            scene.api.delete(REPORT, scene.node)
            again = await reported(scene, lambda status: status["summary"]["offered"] == 1)
            await until_async(
                lambda: scene.api.get(REPORT, scene.node)["metadata"]["uid"] != first["metadata"]["uid"], "a new report"
            )
            again = await reported(scene, lambda status: status["summary"]["offered"] == 1)
            scene.api.patch(REPORT, scene.node, {"status": {"summary": {"offered": 99}}}, subresource="status")
            mended = await reported(scene, lambda status: status["summary"]["offered"] == 1)
            assert mended["status"] == again["status"]

    asyncio.run(story())


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (403, "Forbidden"), (500, "InternalError")])
def test_a_server_that_takes_no_reports_keeps_no_device_from_being_published(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine, code: int, reason: str
) -> None:
    def refuse(request: Request) -> Fault:
        return Answer.status(code, reason) if "nodenetworks" in request.path else None

    async def story() -> None:
        machine.veth("eth0", "far0")
        of_this_node(workspace)
        async with publishing(control_plane, workspace, machine) as scene:
            scene.proxy.fault = refuse
            await scene.devices("eth0")
            machine.veth("eth1", "far1")
            await scene.devices("eth0", "eth1")
            assert not [each.problem for each in scene.publishing._client.following if each.problem]
            scene.proxy.fault = lambda _: None
            await reported(scene, lambda status: status["summary"]["offered"] == 2)

    asyncio.run(story())


def test_one_event_reports_a_cause_for_any_number_of_interfaces(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        for number in range(4):
            machine.veth(f"eth{number}", f"far{number}")
        of_this_node(workspace)
        failing = of_this_node(workspace, f'{VETHS} && device.attributes["dra.networking"].nothing == 1', "failing")
        bad = failing["metadata"]["name"]
        async with publishing(control_plane, workspace, machine) as scene:
            await scene.devices(*(f"eth{number}" for number in range(4)))
            found = await asyncio.to_thread(
                scene.api.wait_for_all, EVENT, lambda items: bool(about(items, bad)), namespace="default"
            )
            (event,) = about(found, bad)
            assert event["reason"] == "PolicyProblem"
            assert "(on 4 interfaces, eth0, eth1, eth2 and 1 more)" in event["note"]
            machine.veth("eth4", "far4")
            await scene.devices(*(f"eth{number}" for number in range(5)))
            await reported(scene, lambda status: status["problems"][0]["interfaces"] == 5)
            await scene.at_rest()
            events = scene.api.list(EVENT, "default")
            assert len(about(events, bad)) == 1

    asyncio.run(story())


def test_a_pooled_vf_that_goes_while_a_claim_has_it_is_an_event_of_the_claim_and_a_problem_of_the_node(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        claim = ClaimReference(namespace=workspace.namespace, name="gone", uid="7b0e8a5e-0000-4000-8000-000000000009")
        vf = PlannedDevice(
            request="nic",
            pool="p",
            device="p0-vfs",
            type="vf",
            pci_address="ffff:ff:1f.7",
            pf_name="p0",
            vf_index=7,
            pooled=True,
        )
        async with publishing(control_plane, workspace, machine) as scene:
            scene.hands.held = (HeldDevice(key=("p", "p0-vfs"), claim=claim.uid, facts=vf, reference=claim),)
            scene.publishing.look_again()
            status = (await reported(scene, lambda status: bool(status.get("problems"))))["status"]
            (problem,) = status["problems"]
            text = f'ResourceClaim "{claim.namespace}/gone": VF p0v7 (ffff:ff:1f.7) of device "p0-vfs" is gone'
            assert problem["message"].startswith(text)
            assert problem["example"] == "p0v7"
            (event,) = await asyncio.to_thread(
                scene.api.wait_for_all, EVENT, lambda items: len(items) == 1, namespace=claim.namespace
            )
            about = event["regarding"]
            assert (about["kind"], about["name"], about["uid"]) == ("ResourceClaim", "gone", claim.uid)
            assert (event["reason"], event["note"]) == ("VFGone", problem["message"])
            scene.release()
            await reported(scene, lambda status: not status.get("problems"))
            assert not scene.publishing.vf_troubles

    asyncio.run(story())


def test_the_differences_of_a_held_device_are_in_the_nodes_report_and_in_an_event_of_the_node(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    differences = 'device "eth0" cannot be made what it was: netdev "eth0" has MTU 1300, not 1450'

    async def story() -> None:
        machine.veth("eth0", "far0")
        of_this_node(workspace)
        async with publishing(control_plane, workspace, machine) as scene:
            await scene.devices("eth0")
            scene.hold("eth0", trouble=differences)
            found = await reported(scene, lambda status: bool(status.get("problems")))
            assert differences in str(found["status"]["problems"])
            events = await asyncio.to_thread(
                scene.api.wait_for_all, EVENT, lambda items: bool(about(items, scene.node)), namespace="default"
            )
            (event,) = about(events, scene.node)
            assert (event["regarding"]["kind"], event["reason"]) == ("Node", "NodeProblem")
            assert differences in event["note"]
            scene.release()
            await reported(scene, lambda status: not status.get("problems"))

    asyncio.run(story())
