"""A range of a PodNetwork is reported before it is full: by a condition, an event, metrics, and commands."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest
from prometheus_client.parser import text_string_to_metric_families

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.process import Ports
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.daemons import running_controller, start_controller
from tests.cluster.test_controller import EVENT, condition
from tests.cluster.test_pod_networks import NETWORK, Net


@pytest.fixture(scope="module")
def page(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[str]:
    """The address of the metrics of a controller that is installed and at work."""
    with closing(Ports("127.0.0.1")) as ports:
        port = ports.take()
        with running_controller(control_plane, api, f"--health-address=127.0.0.1:{port}"):
            yield f"http://127.0.0.1:{port}/metrics"


def samples(page: str, network: str) -> dict[tuple[str, ...], float]:
    """The values of a network's metrics by their other labels."""
    with urllib.request.urlopen(page, timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        tuple(value for label, value in sample.labels.items() if label != "network"): sample.value
        for family in families
        for sample in family.samples
        if sample.labels.get("network") == network
    }


def reasons(net: Net) -> list[str]:
    """The reasons of the events about a network."""
    events = [event for event in net.api.list(EVENT, "default") if event["regarding"].get("name") == net.name]
    return sorted(event["reason"] for event in events)


def until_nearly_full(net: Net, status: str, **figures: int) -> Object:
    """Wait until the status has these figures, and the condition."""
    net.until_status(**figures)  # an address that is released is reserved for a moment
    found = net.api.wait_for(NETWORK, net.name, lambda each: condition(each, "NearlyFull")[0] == status)
    assert found is not None
    return found


def netdra(plane: ControlPlane, *arguments: str) -> str:
    """Run a command of an administrator; returns its output."""
    kubeconfig = plane.kubeconfig("administrator", ["system:masters"])
    command = [sys.executable, "-m", "netdra", *arguments, f"--kubeconfig={kubeconfig}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_a_range_is_reported_before_it_is_full_and_until_it_has_clearly_more_free_addresses(
    workspace: Workspace, control_plane: ControlPlane, page: str
) -> None:
    ranges = [{"cidr": "10.12.0.0/28", "last": "10.12.0.10"}]
    net = Net(workspace, ranges=ranges, keepSeconds=0, quarantineSeconds=0, nearlyFullPercent=50)
    for number in range(4):
        net.claim(f"claim-{number}")
    until_nearly_full(net, "False", used=4, total=10)
    assert samples(page, net.name) == {
        ("10.12.0.0/28", "used"): 4,
        ("10.12.0.0/28", "reserved"): 0,
        ("10.12.0.0/28", "free"): 6,
        ("nearly-full",): 0,
        ("full",): 0,
    }

    net.claim("claim-4")
    found = until_nearly_full(net, "True", used=5)
    assert found["status"]["ranges"][0]["nearlyFull"] is True
    until(lambda: samples(page, net.name)["nearly-full",] == 1, "the metric")
    until(lambda: reasons(net) == ["RangeNearlyFull"], "the event", detail=lambda: str(reasons(net)))
    columns = control_plane.kubectl("get", "pnet", net.name).splitlines()
    assert columns[0][columns[0].index("NEARLY FULL") :].split()[:2] == ["NEARLY", "FULL"]
    assert columns[1][columns[0].index("NEARLY FULL") :].split()[0] == "True"
    assert "has a range with few free addresses" in netdra(control_plane, "why", "network", net.name)
    assert f'PodNetwork "{net.name}" has few free addresses' in netdra(control_plane, "doctor", "--only", "cluster")

    # One claim more or less at the limit does not change it, also with another controller.
    net.release("claim-0")
    until_nearly_full(net, "True", used=4)
    control_plane.processes["netdra-controller"].stop()
    start_controller(control_plane, workspace.api, f"--health-address={page.split('/')[2]}")
    net.claim("claim-5")
    until_nearly_full(net, "True", used=5)
    for name in ("claim-1", "claim-5"):
        net.release(name)
    until_nearly_full(net, "False", used=3)
    until(lambda: reasons(net) == ["EnoughAddresses", "RangeNearlyFull"], "the end of it to be reported")

    for number in range(7):
        net.claim(f"more-{number}")
    found = until_nearly_full(net, "True", used=10)
    assert condition(found, "AddressesAvailable") == ("False", "RangeFull")
    until(lambda: samples(page, net.name)["full",] == 1, "the metric")
    assert samples(page, net.name)["nearly-full",] == 0
    for name in [*(f"claim-{number}" for number in (2, 3, 4)), *(f"more-{number}" for number in range(7))]:
        net.release(name)
    net.api.delete(NETWORK, net.name)
    until(lambda: not samples(page, net.name), "the series to be gone")
