"""Hundreds of Services of one namespace on the real API server: the Services and addresses of others do not wait."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from netdra.kube.connection import MAX_SHARED_STREAMS, MAX_STREAMS
from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.objects import POD
from testbed.process import Ports, Process
from testbed.waiting import until
from testbed.workspace import Workspace, open_workspace
from tests.cluster.daemons import running_controller
from tests.cluster.test_services import READY, SERVICE, WAITING, Storage

MANY = 300
SECONDS = 10.0
"""How long a change of a pod may take until it is in a slice, on a machine with other work."""
MOST_STREAMS = MAX_STREAMS - MAX_SHARED_STREAMS
"""The streams that are reserved for the controller's watches: one for each kind that it reads."""


@pytest.fixture(scope="module")
def metrics() -> Iterator[int]:
    """The port of the controller's metrics."""
    with closing(Ports("127.0.0.1")) as ports:
        yield ports.take()


@pytest.fixture(scope="module", autouse=True)
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None, metrics: int) -> Iterator[Process]:
    """The controller, installed and at work, with the rights of its account and no others."""
    with running_controller(control_plane, api, "--services", f"--health-address=127.0.0.1:{metrics}") as process:
        yield process


def streams(port: int) -> float:
    """The streams that the controller has open, by its metric."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    (found,) = re.findall(r"^netdra_api_streams (\S+)$", text, re.MULTILINE)
    return float(found)


def sockets(process: Process) -> int:
    """The sockets that a process has open."""
    count = 0
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):
            count += str(entry.readlink()).startswith("socket:")
    return count


def fill(api: Api, workspace: Workspace) -> Storage:
    """A tenant with hundreds of Services, each with a selector of its own."""
    tenant = Storage(workspace, ranges=[{"cidr": "10.74.0.0/24"}])
    single = {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}
    for number in range(MANY):
        tenant.service(f"many-{number}", pods=f"app=a{number}", **single)
    return tenant


def follows_its_pods(storage: Storage, name: str) -> float:
    """Have a new pod of a Service come, change and go; returns the longest time until a slice followed, in seconds."""
    longest = 0.0
    storage.pod(name)
    states = [("ready", READY), ("not ready", WAITING), ("gone", None)]
    (address,) = (entry.partition("/")[0] for entry in storage.net.of(name))
    for state, wanted in states:
        began = time.monotonic()
        if state == "not ready":
            storage.report(name, ready=False)
        elif state == "gone":
            storage.api.delete(POD, name, storage.namespace)
        until(
            lambda wanted=wanted: storage.endpoints("storage").get(address) == wanted,  # type: ignore[misc]
            f"{name} to be {state}",
            detail=lambda: storage.slices("storage"),
        )
        longest = max(longest, time.monotonic() - began)
    return longest


def test_a_tenant_with_hundreds_of_services_keeps_no_other_service_and_no_address_waiting(
    workspace: Workspace, control_plane: ControlPlane, api: Api, controller: Process, metrics: int
) -> None:
    storage = Storage(workspace, ranges=[{"cidr": "10.75.0.0/24"}])
    with open_workspace(api) as other:
        tenant = fill(api, other)
        storage.service("storage", ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
        assert follows_its_pods(storage, "web-0") < SECONDS
        until(
            lambda: len(tenant.api.list("discovery.k8s.io/v1/EndpointSlice", tenant.namespace)) == MANY,
            "a slice of each Service of the tenant",
        )
        tenant.pod("last", app=f"a{MANY - 1}")
        until(lambda: tenant.endpoints(f"many-{MANY - 1}") == {"10.74.0.1": READY}, "the tenant's own pod")
        assert streams(metrics) <= MOST_STREAMS
        assert sockets(controller) <= MOST_STREAMS + 32

        control_plane.apiserver.kill()
        control_plane.apiserver.start()
        control_plane.apiserver.wait_ready()
        storage.pod("again")  # has an address, soon
        assert follows_its_pods(storage, "web-1") < SECONDS
        assert streams(metrics) <= MOST_STREAMS
        tenant.api.delete_all(SERVICE, tenant.namespace)
    assert follows_its_pods(storage, "web-2") < SECONDS
