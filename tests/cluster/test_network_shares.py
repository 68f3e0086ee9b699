"""The free addresses of PodNetworks as devices, on the real API server and scheduler (decision D71)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLASS, SLICE
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.daemons import running_controller
from tests.cluster.test_pod_networks import NETWORK, Net

pytestmark = pytest.mark.usefixtures("controller")
CAPACITY = "dra.networking/addresses"


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work, with the rights of its account and no others."""
    with running_controller(control_plane, api) as process:
        yield process


def slices(api: Api, network: str) -> dict[str, Object]:
    """The slices of a PodNetwork by their pools, without the part that all have."""
    prefix = f"podnetworks.dra.networking/{network}"
    found = {each["spec"]["pool"]["name"]: each for each in api.list(SLICE)}
    return {pool.removeprefix(prefix): each for pool, each in found.items() if f"{pool}/".startswith(f"{prefix}/")}


def capacities(api: Api, network: str) -> dict[str, str]:
    """The capacities of a PodNetwork's devices, by their pools; "0" without a device."""
    return {
        pool: next((each["capacity"][CAPACITY]["value"] for each in found["spec"].get("devices", [])), "0")
        for pool, found in slices(api, network).items()
    }


def until_capacity(net: Net, *wanted: int) -> None:
    """Wait until the devices of a network have these capacities."""

    def found() -> list[int]:
        return sorted(int(value) for value in capacities(net.api, net.name).values())

    until(lambda: found() == sorted(wanted), f"capacities {wanted}", detail=lambda: str(slices(net.api, net.name)))


def test_the_capacity_follows_claims_without_a_share(workspace: Workspace, api: Api) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.41.0.0/29"}], keepSeconds=0)
    until_capacity(net, 6)
    (found,) = slices(api, net.name).values()
    assert found["spec"]["allNodes"]
    (device,) = found["spec"]["devices"]
    assert [(taint["key"], taint["effect"]) for taint in device["taints"]] == [
        ("dra.networking/addresses", "NoSchedule")
    ]
    made = api.wait_for(CLASS, f"podnetwork.{net.name}", lambda found: found is not None)
    assert made is not None
    assert made["metadata"]["ownerReferences"][0]["name"] == net.name
    for number in range(6):
        net.claim(f"claim-{number}")
        until_capacity(net, 5 - number)
    net.release("claim-3")
    until_capacity(net, 1)
    api.delete(NETWORK, net.name)
    until(lambda: not slices(api, net.name), "the slice to be deleted with the network")
    until(lambda: _is_gone(api, f"podnetwork.{net.name}"), "the class to be deleted with the network")


def _is_gone(api: Api, device_class: str) -> bool:
    return all(each["metadata"]["name"] != device_class for each in api.list(CLASS))
