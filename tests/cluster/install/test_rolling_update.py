"""The node's driver is replaced, killed and drained away while pods with claims come and go, and none waits for it.

`make test` has a few updates; `NETDRA_UPDATES=20` as many as one wants.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from testbed import pace, yaml
from testbed.driver import until_nothing_is_left
from testbed.objects import CLAIM, NAMESPACE, POD, SLICE, add_namespace, manifest
from testbed.pods import EVENT, Pods, is_running
from testbed.site import Site
from testbed.waiting import until
from tests.cluster.install.trying import warnings
from tests.cluster.pods.running import publish

UPDATES = int(os.environ.get("NETDRA_UPDATES", "3"))
SIDE_BY_SIDE = 3
"""Pods that come and go at one time."""
LONGER = 2.0
"""Seconds that a pod may wait longer than without an update, on an idle machine."""
TRIED_AGAIN = ("FailedPrepareDynamicResources", "FailedCreatePodSandBox")
"""After the first of them the kubelet waits for its next synchronization, after the second for some seconds."""
PATIENCE = 60.0 * max(UPDATES, 3)
EXAMPLE = Path(__file__).parents[3] / "examples" / "first-pod"
HERE = "load"

pytestmark = pytest.mark.timeout(PATIENCE + 600)


@pytest.fixture(scope="module")
def installed(site: Site) -> Iterator[Site]:
    """netdra at work, with an interface that pods share."""
    site.install()
    for name in ("policy", "topology"):
        site.api.create(yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text()))
    publish(site.node, site.api, "data0")
    add_namespace(site.api, HERE)
    site.plane.kubectl("wait", "--for=create", "deviceclass/data-lan", "--timeout=30s")
    yield site
    until_nothing_is_left(site.node)
    site.api.delete(NAMESPACE, HERE)


class Load:
    """Pods with claims that start and end, several at one time, and beside each of them one without.

    Attributes:
        waited: seconds from each pod's creation until it ran.
        plain: the same of those without claims, which state how busy the machine is.
        problems: what went wrong.
    """

    def __init__(self, site: Site, name: str) -> None:
        self._site, self._name, self._numbers = site, name, itertools.count(1)
        self.waited: list[float] = []
        self.plain: list[float] = []
        self.problems: list[str] = []

    def one(self, pods: Pods) -> None:
        """Start a pod, inspect its network, and end it."""
        name = f"{self._name}-{next(self._numbers)}"
        claim = yaml.safe_load((EXAMPLE / "claim.yaml").read_text())
        pods.api.create(manifest(CLAIM, name, HERE, spec=claim["spec"]))
        pods.add(name, name)
        pods.add(f"plain-{name}")
        self.waited.append(started_after(pods.wait(name, is_running)))
        self.plain.append(started_after(pods.wait(f"plain-{name}", is_running)))
        if [link["ifname"] for link in pods.ip(name, "link", "show", "type", "macvlan")] == []:
            self.problems.append(f"{name} has no network of netdra")
        pods.delete(name, f"plain-{name}")
        pods.api.delete(CLAIM, name, HERE)

    def tried_again(self) -> list[str]:
        """The kubelet's retries, of all pods so far: the pod and the message of each."""
        return [
            f"{event['involvedObject']['name']}: {event['message']}"
            for event in self._site.api.list(EVENT, HERE)
            if event["reason"] in TRIED_AGAIN and event["involvedObject"]["name"].startswith(self._name)
        ]

    @property
    def longer(self) -> float:
        """How much longer the slowest pod with a claim took than the slowest without."""
        return max(self.waited) - max(self.plain)

    @contextmanager
    def meanwhile(self) -> Iterator[pace.Pace]:
        """Continue while entered, and at least once; how slow the machine was is known at the end."""
        ended = threading.Event()

        def run() -> None:
            try:
                with closing(self._site.plane.client()) as api:
                    pods = Pods(api, HERE, self._site.containerd)
                    self.one(pods)
                    while not ended.is_set():
                        self.one(pods)
            except Exception as problem:  # noqa: BLE001 (a thread's own is lost)
                self.problems.append(repr(problem))

        threads = [threading.Thread(target=run) for _ in range(SIDE_BY_SIDE)]
        for thread in threads:
            thread.start()
        try:
            with pace.measured() as measured:
                yield measured
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        assert self.problems == []


@pytest.fixture(scope="module")
def usual(installed: Site) -> float:
    """How many seconds longer pods with claims take while nothing is updated."""
    load = Load(installed, "usual")
    with load.meanwhile():
        until(lambda: len(load.waited) >= 2 * SIDE_BY_SIDE, "some pods to run", seconds=120)
    return load.longer


def started_after(pod: Any) -> float:
    """Whole seconds from a pod's creation to its container's start."""
    (container,) = pod["status"]["containerStatuses"]
    made, started = pod["metadata"]["creationTimestamp"], container["state"]["running"]["startedAt"]
    return (datetime.fromisoformat(started) - datetime.fromisoformat(made)).total_seconds()


def drivers(site: Site) -> dict[str, Any]:
    """The driver's pods by uid."""
    labels = "app.kubernetes.io/component=node"
    return {pod["metadata"]["uid"]: pod for pod in site.api.list(POD, "netdra", labels=labels)}


def ready(pod: Any) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))


def settled(site: Site) -> bool:
    """Whether there is one driver, and it is ready."""
    found = [*drivers(site).values()]
    return len(found) == 1 and ready(found[0]) and "deletionTimestamp" not in found[0]["metadata"]


def restarts(site: Site) -> int:
    """How often the drivers in the present pods have restarted."""
    containers = [each for pod in drivers(site).values() for each in pod["status"].get("containerStatuses", ())]
    return sum(each["restartCount"] for each in containers)


def until_settled(site: Site) -> None:
    until(lambda: settled(site), "the node to have one driver that is ready", seconds=120)


def update(site: Site) -> None:
    """Replace the driver by another one, as a changed image does, and wait for it."""
    site.plane.kubectl("--namespace=netdra", "rollout", "restart", "daemonset/netdra-node")
    site.plane.kubectl("--namespace=netdra", "rollout", "status", "daemonset/netdra-node", "--timeout=120s")


def test_no_pod_waits_for_an_update(installed: Site, usual: float) -> None:
    load, first, slices = Load(installed, "updated"), drivers(installed), installed.api.list(SLICE)
    with load.meanwhile() as measured:
        for _ in range(UPDATES):
            update(installed)
        until_settled(installed)
    print(f"{len(load.waited)} pods, {max(load.waited):.2f} s at most, {load.longer:.2f} s longer; usual {usual:.2f} s")
    assert not first.keys() & drivers(installed).keys()
    assert load.tried_again() == []
    limit = max(usual, 0) + LONGER * measured.slowness + 1  # seconds are whole ones
    assert load.longer <= limit, measured
    names = {each["metadata"]["name"]: each["spec"]["devices"] for each in slices}
    assert {each["metadata"]["name"]: each["spec"]["devices"] for each in installed.api.list(SLICE)} == names
    assert warnings(installed.api) == []
    sockets = {path.name for path in (installed.node.folder / "lib/kubelet/plugins_registry").glob("*.sock")}
    (uid,) = drivers(installed)
    assert sockets == {f"dra.networking-{uid}-reg.sock"}
    until_nothing_is_left(installed.node)


def kill(site: Site) -> None:
    """Kill the newest driver, as the kernel does where memory is short."""
    newest = max(drivers(site).values(), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    label = f"--label=io.kubernetes.pod.uid={newest['metadata']['uid']}"

    def started() -> str:
        return site.containerd.crictl("ps", "--quiet", "--no-trunc", "--name=node", label).strip()

    container = until(started, "the driver's container to run", seconds=60)
    pid = json.loads(site.containerd.crictl("inspect", container))["info"]["pid"]
    site.node.run("kill", "-9", str(pid))


def test_a_driver_that_is_killed_in_an_update_comes_back(installed: Site, usual: float) -> None:
    load = Load(installed, "killed")
    with load.meanwhile():
        installed.plane.kubectl("--namespace=netdra", "rollout", "restart", "daemonset/netdra-node")
        until(lambda: len(drivers(installed)) > 1, "the new driver's pod", seconds=60)
        kill(installed)
        installed.plane.kubectl("--namespace=netdra", "rollout", "status", "daemonset/netdra-node", "--timeout=180s")
        until_settled(installed)
    until_nothing_is_left(installed.node)


@pytest.fixture
def stays(installed: Site) -> Iterator[Pods]:
    """A pod with a network, which runs."""
    pods = installed.pods(HERE)
    claim = yaml.safe_load((EXAMPLE / "claim.yaml").read_text())
    pods.api.create(manifest(CLAIM, "stays", HERE, spec=claim["spec"]))
    pods.run("stays", "stays")
    yield pods
    pods.delete_all()
    pods.api.delete(CLAIM, "stays", HERE)


def addresses(pods: Pods, name: str) -> list[str]:
    return [each["local"] for link in pods.ip(name, "-4", "address") for each in link["addr_info"]]


def test_pods_keep_their_networks_while_the_whole_node_starts_anew(installed: Site, stays: Pods) -> None:
    before, restarted = addresses(stays, "stays"), restarts(installed)
    kill(installed)
    for process in (installed.kubelet.process, installed.containerd.process):
        process.kill()
    for process in (installed.containerd.process, installed.kubelet.process):
        process.start()
        process.wait_ready()
    installed.kubelet.wait_ready()
    # What the API server has of the driver is from before, and a pod that began now would wait for it.
    until(lambda: settled(installed) and restarts(installed) > restarted, "the driver to run again", seconds=120)
    assert addresses(stays, "stays") == before
    load = Load(installed, "after")
    load.one(stays)
    assert load.problems == []
    stays.delete("stays")
    until_nothing_is_left(installed.node)


def test_a_node_can_be_drained(installed: Site, stays: Pods) -> None:
    plane, name, before = installed.plane, installed.node.name, warnings(installed.api)
    options = ("--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=120s", "--grace-period=5")
    plane.kubectl("drain", name, *options)
    until_nothing_is_left(installed.node)
    assert settled(installed)
    plane.kubectl("uncordon", name)
    load = Load(installed, "drained")
    load.one(stays)
    assert load.problems == []
    assert warnings(installed.api) == before
