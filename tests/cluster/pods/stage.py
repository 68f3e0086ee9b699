"""The base of tests of faults: a driver that runs, claims for shares of an interface with leases, and an end check.

Used by `test_faults` and `test_outages`. A share is made by CNI plugins and by steps of netdra, and has an address from
host-local, so that every kind of thing that could be left over is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from testbed.driver import Driver
from testbed.objects import POD
from testbed.pods import Pods
from testbed.workspace import Workspace
from tests.cluster.pods import witness
from tests.cluster.pods.running import make_topology, step

MTU = 1400
SHARED = "mac0"
"""The interface that is shared."""


@dataclass(frozen=True)
class Stage:
    """The driver, a test's pods, and where its claims are made."""

    driver: Driver
    pods: Pods
    workspace: Workspace

    def claim(self, name: str, *more: str) -> str:
        """A claim for a share of mac0; with a plugin, that is run after all other steps."""
        topology = shares(self.workspace, name, *more)
        return self.workspace.add_claim(name, {"name": "share", "exactly": {"deviceClassName": f"{topology}-share"}})


@contextmanager
def opened(driver: Driver, workspace: Workspace, pods: Pods) -> Iterator[Stage]:
    """A stage; at the end a driver runs, and nothing of the test's pods is left."""
    yield Stage(driver, pods, workspace)
    driver.recover()
    witness.end(pods, *(pod["metadata"]["name"] for pod in pods.api.list(POD, pods.namespace)))
    driver.until_nothing_is_left()


def shares(workspace: Workspace, base: str, *more: str) -> str:
    """A topology of shares of mac0 with leases of addresses, tuned."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": "198.51.100.0/24"}]]}
    return make_topology(
        workspace,
        base,
        step("share", "macvlan", {"mode": "bridge", "ipam": ipam}, prefix=SHARED),
        step("size", "tuning", {"dev": "{{ share.interfaceName }}", "mtu": MTU}, after="share"),
        *(step("more", plugin, after="size") for plugin in more),
    )


def whole(pods: Pods, name: str) -> None:
    """A pod has its network, and its container has had it from its first moment."""
    found = witness.interfaces(pods, name)
    assert set(found) == {"lo", "eth0", "net1"}
    assert found["net1"]["mtu"] == MTU
    assert len(witness.addresses(pods, name)) == 1
    assert "net1" in witness.began_with(pods, name)
