"""A topology's author reaches for resources outside the claim: the uplink, root's files, any program of the node."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from netdra.model.errors import InvalidInputError, NetdraError
from netdra.node.permits import NodePermits
from testbed.objects import POD
from testbed.recorder import Recorder
from tests.cluster.sandboxes.conftest import scene as scene
from tests.cluster.sandboxes.scene import Scene, step

_NUMBERS = itertools.count()
UPLINK = "uplink"
FILE = "the secret of the node"


@pytest.fixture
def node(scene: Scene) -> Scene:
    """A node as it is without options, with an uplink that is not offered."""
    scene.machine.veth(UPLINK)
    scene.publish(*[f"eth{number}" for number in range(6)])  # each claim keeps its own
    scene.permits = NodePermits(named=lambda: frozenset({"macvlan"}))
    return scene


def named() -> str:
    """A name that no other topology of the test has."""
    return f"attack{next(_NUMBERS)}"


def refused(node: Scene, *steps: Mapping[str, Any]) -> str:
    """The error for a pod with such a topology, in the kubelet's call as in the runtime's, and nothing is done."""
    before = node.machine.links()
    topology = node.topology(named(), *[dict(each) for each in steps])
    claim = node.claim(topology)
    pod = node.pod(claim, prepare=False)
    with pytest.raises(NetdraError) as at_prepare:
        node.prepare(claim)
    # What was prepared before, by a daemon that allowed it, is refused too.
    sandbox = node.machine.sandbox(pod)

    async def story() -> str:
        async with node.daemon() as daemon:
            await daemon.seen(node.workspace.api.get(POD, pod["metadata"]["name"], node.workspace.namespace))
            with pytest.raises(NetdraError) as at_run:
                await daemon.run(sandbox)
            return at_run.value.what

    said = asyncio.run(story())
    assert said == at_prepare.value.what
    assert node.machine.links(sandbox) == {"lo"}
    assert node.machine.links() == before
    assert not node.machine.checkpoints()
    return said


NIC = step("nic", "host-device")


@pytest.mark.parametrize("execution", ["Auto", "Binary"])
def test_a_derived_host_device_does_not_get_the_uplink(node: Scene, execution: str) -> None:
    thief = {**step("thief", "host-device", {"device": UPLINK}, after=("nic",)), "execution": execution}
    assert f'config.device "{UPLINK}" refers to a device of the node' in refused(node, NIC, thief)


def test_a_root_host_device_does_not_get_the_uplink(node: Scene) -> None:
    thief = {**step("nic", "host-device", {"device": UPLINK}), "execution": "Binary"}
    assert "does not match the allocated device" in refused(node, thief)


def test_a_derived_macvlan_cannot_use_the_uplink_as_its_master(node: Scene) -> None:
    told = refused(node, NIC, step("mac", "macvlan", {"master": UPLINK, "linkInContainer": False}, after=("nic",)))
    assert "linkInContainer must be true" in told


def test_a_derived_macvlan_looks_for_its_master_in_the_pod(node: Scene) -> None:
    claim = node.claim(node.topology("attack", NIC, step("mac", "macvlan", {"master": UPLINK}, after=("nic",))))
    sandbox = node.machine.sandbox(node.pod(claim))

    async def story() -> None:
        async with node.daemon() as daemon:
            with pytest.raises(NetdraError, match="Link not found"):
                await daemon.run(sandbox)
            assert node.machine.links(sandbox) == {"lo"}

    asyncio.run(story())


def test_an_ipam_data_dir_on_the_node_is_rejected_and_not_created(node: Scene, tmp_path: Path) -> None:
    folder = tmp_path / "cron.d"
    ipam = {"type": "host-local", "subnet": "10.1.0.0/24", "dataDir": str(folder)}
    assert f'"{folder}" is a path of the node: this node allows none' in refused(
        node, step("nic", "host-device", {"ipam": ipam})
    )
    assert not folder.exists()


def test_an_ipam_plugin_reads_no_file_of_the_node_into_a_status(node: Scene, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"search {FILE}\n")
    for key in ("resolvConf", "ResolvConf"):
        ipam = {"type": "host-local", "subnet": "10.1.0.0/24", key: str(secret)}
        assert FILE not in refused(node, step("nic", "host-device", {"ipam": ipam}))


def test_a_folder_that_the_node_allows_can_be_named_and_no_link_leads_out_of_it(node: Scene, tmp_path: Path) -> None:
    allowed = tmp_path / "leases"
    allowed.mkdir()
    (allowed / "out").symlink_to(tmp_path)
    node.permits = NodePermits(folders=(allowed,))
    ipam = {"type": "host-local", "subnet": "10.1.0.0/24"}
    for path in (allowed / "out", f"{allowed}/../secrets", f"{allowed}-not"):
        told = refused(node, step("nic", "host-device", {"ipam": {**ipam, "dataDir": str(path)}}))
        assert "path of the node" in told
    whole = step("nic", "host-device", {"ipam": {**ipam, "dataDir": str(allowed / "networks")}})
    sandbox = node.machine.sandbox(node.pod(node.claim(node.topology("fine", whole))))

    async def story() -> None:
        async with node.daemon() as daemon:
            await daemon.run(sandbox)
            assert list((allowed / "networks").glob("*/10.1.0.*"))
            await daemon.stop(sandbox)
            assert not list((allowed / "networks").glob("*/10.1.0.*"))

    asyncio.run(story())


def test_no_program_of_the_cni_path_is_run_that_the_node_does_not_allow(node: Scene) -> None:
    evil = Recorder(node.machine.plugins, "evil")
    assert "netdra node --allow-plugin default --allow-plugin evil" in hint_of(
        node, step("far", "evil", after=("nic",))
    )
    assert 'plugin "evil" is not allowed' in refused(node, NIC, step("far", "evil", after=("nic",)))
    assert 'plugin "evil"' in refused(node, step("nic", "host-device", {"ipam": {"type": "evil"}}))
    assert evil.calls() == []
    node.permits = NodePermits(plugins=("evil",))
    claim = node.claim(node.topology("fine", NIC, step("far", "evil", after=("nic",))))
    node.pod(claim)


def hint_of(node: Scene, *steps: Mapping[str, Any]) -> str:
    """The next step in the text of a refusal."""
    claim = node.claim(node.topology(named(), NIC, *[dict(each) for each in steps]))
    node.pod(claim, prepare=False)
    with pytest.raises(InvalidInputError) as problem:
        node.prepare(claim)
    return problem.value.hint
