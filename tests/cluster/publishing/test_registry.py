"""`netdra node --registry-socket` as a process: what programs register stands in slices, and outlives a crash."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from statistics import median

import pytest

from netdra.model.errors import InvalidInputError
from netdra.registry_client import RegistryClient
from testbed.control_plane import ControlPlane
from testbed.pace import measured, within
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.publishing.registry_driver import Daemon, running
from tests.cluster.publishing.scene import VETHS, devices, policy
from tests.kernel.conftest import Machine

pytestmark = pytest.mark.usefixtures("custom_kinds")

REPORT = "networking.dra.io/v1alpha1/NodeNetwork"
DEVICES = 21
MEDIAN_SECONDS = 0.05
LEASE_SECONDS = 3


@pytest.fixture
def daemon(control_plane: ControlPlane, workspace: Workspace, machine: Machine) -> Iterator[Daemon]:
    """A driver that serves the registry."""
    for at in range(DEVICES):
        machine.veth(f"eth{at}", f"far{at}")
    count = {"value": 9, "requestPolicy": {"default": 1}}
    policy(workspace, VETHS, exposure={"allowMultipleAllocations": True, "capacity": {"count": count}})
    with running(control_plane, workspace, machine) as found:
        found.start()
        yield found


def test_a_registration_is_published_fast_survives_a_crash_and_ends_with_its_lease(daemon: Daemon) -> None:
    with RegistryClient("bctl", str(daemon.socket)) as client:
        until(lambda: len(devices(daemon.slices())) == DEVICES, "the slices")
        time.sleep(1)
        with measured() as pace:
            seconds = [_seen_after(daemon, client, f"eth{at}") for at in range(DEVICES)]
        print(f"register to slice: p50 {median(seconds) * 1000:.1f} ms, most {max(seconds) * 1000:.1f} ms")
        assert median(seconds) < MEDIAN_SECONDS * pace.slowness, f"{seconds}: {pace}"
        found = daemon.wait("eth0", "bctl/bandwidth")
        assert found["capacity"]["bctl/bandwidth"] == {"value": "4096", "requestPolicy": {"default": "0"}}
        assert found["attributes"]["bctl/rdma"] == {"bool": True}

        # A value that changes all the time is written once in ten seconds.
        before = _versions(daemon)
        for value in range(30):
            client.register("eth1", {"rdma": True}, {"bandwidth": 5000 + value}, ttl=600)
        time.sleep(1)
        assert len([1 for name, version in _versions(daemon).items() if before[name] != version]) <= 1

    # It dies, and what it had granted stands in the slices all the time: nothing is written for it.
    until(lambda: _bandwidth(daemon, "eth1") == "5029", "the last value", seconds=30)
    before = _versions(daemon)
    daemon.process.kill()
    daemon.start()
    with RegistryClient("bctl", str(daemon.socket)) as client:
        listed = client.registrations()
    assert len(listed) == DEVICES
    assert all(0 < each.ttl_seconds <= 600 for each in listed)
    time.sleep(2)
    assert _versions(daemon) == before

    # A provider that goes away takes its facts along when its lease ends.
    provider = subprocess.Popen((sys.executable, "-c", PROVIDER, str(daemon.socket)), stdout=subprocess.PIPE, text=True)
    assert provider.stdout is not None
    assert provider.stdout.readline() == "registered\n"
    daemon.wait("eth2", "probe/latency")
    provider.kill()
    provider.wait()
    provider.stdout.close()
    with within(3, "the end of what a provider said", after=LEASE_SECONDS):
        daemon.wait("eth2", "probe/latency", there=False)


def test_registrations_are_counted_and_no_others_with_them(daemon: Daemon) -> None:
    with RegistryClient("bctl", str(daemon.socket)) as client:
        for at in range(3):
            client.register(f"eth{at}", {"rdma": True}, ttl=600)
        with pytest.raises(InvalidInputError, match="longer than 64"):
            client.register("eth3", {"note": "x" * 65}, ttl=600)
    lines = daemon.metrics().splitlines()
    assert "netdra_registry_registrations 3.0" in lines
    assert 'netdra_registry_calls_total{outcome="granted"} 3.0' in lines
    assert 'netdra_registry_calls_total{outcome="refused"} 1.0' in lines
    # No kubelet is there.
    assert "netdra_kubelet_registered 0.0" in lines
    assert not any("netdra_kubelet_registrations_total{" in line and not line.endswith(" 0.0") for line in lines)


def _bandwidth(daemon: Daemon, device: str) -> str:
    found: str = daemon.wait(device, "bctl/bandwidth")["capacity"]["bctl/bandwidth"]["value"]
    return found


PROVIDER = f"""
import sys, time
from netdra.registry_client import RegistryClient
with RegistryClient("probe", sys.argv[1]) as client:
    client.register("eth2", {{"latency": 7}}, ttl={LEASE_SECONDS})
    print("registered", flush=True)
    while True:
        time.sleep(1)
        client.register("eth2", {{"latency": 7}}, ttl={LEASE_SECONDS})
"""


def _versions(daemon: Daemon) -> dict[str, str]:
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in daemon.slices()}


def _seen_after(daemon: Daemon, client: RegistryClient, device: str) -> float:
    """Seconds from the call until a watch of the API server reports the result."""
    seen: list[float] = []

    def watch() -> None:
        daemon.wait(device, "bctl/rdma")
        seen.append(time.monotonic())

    watching = threading.Thread(target=watch)
    watching.start()
    time.sleep(0.1)  # the watch is there before the call
    begun = time.monotonic()
    client.register(device, {"rdma": True}, {"bandwidth": 4096}, ttl=600)
    watching.join(60)
    return seen[0] - begun


def test_a_pod_token_identifies_the_owner_of_a_registration(daemon: Daemon, workspace: Workspace) -> None:
    api = daemon.api
    foreign, own = (identities.token(api, "netdra-node", daemon.node, *asked) for asked in ((), ("dra.networking",)))
    owner = "system:serviceaccount:netdra:netdra-node"
    with RegistryClient("bctl", str(daemon.socket), own) as client:
        client.register("eth0", {"a": 1})
        assert [each.owner for each in client.registrations()] == [owner]
    with RegistryClient("bctl", str(daemon.socket)) as client:
        _refused(client, f'"bctl" belongs to {owner}, not to uid:{os.getuid()}')
    for other in (foreign, "nonsense"):
        with RegistryClient("bctl", str(daemon.socket), other) as client:
            _refused(client, "is not valid here")


def _refused(client: RegistryClient, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        client.register("eth0", {"a": 2})
