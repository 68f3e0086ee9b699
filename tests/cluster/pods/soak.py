"""Random pods, random faults at random moments, and after each run: nothing is lost, nothing is left.

Called by `test_soak`: a few runs in every test run, hundreds by `make soak`. A run is drawn from its own seed alone, so
one that failed is repeated by that number.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.driver import Driver
from testbed.objects import CLAIM, POD, SLICE
from testbed.pods import Pods, is_running
from testbed.waiting import until, waiting
from testbed.workspace import Workspace
from tests.cluster.pods import witness
from tests.cluster.pods.running import links, make_topology, publish, step
from tests.cluster.pods.stage import SHARED, shares

WHOLE = ("nic0", "nic1", "nic2")
POINTS = (
    *("prepare-begun", "prepare-described", "prepare-done", "attach-begun", "attach-done", "attach-guarded"),
    *("detach-begun", "detach-done", "unprepare-begun", "unprepare-removed"),
)
FAULTS = (*(("point",) * 4), *(("kill",) * 3), "pause", "kubelet", "runtime", "api-server", "update")
_ROOT = {"moved": "nic", "chain": "nic", "share": "share", "shared": "share"}
KINDS = tuple(_ROOT)
MOMENTS = ("coming", "running", "going")


@dataclass(frozen=True)
class Run:
    """The actions of a run: pods by kind, the fault, when it strikes, and after how many seconds, for how many."""

    seed: int
    kinds: tuple[str, ...]
    fault: str
    point: str
    moment: str
    delay: float
    away: float

    def __str__(self) -> str:
        what = f"{self.fault} {self.point}" if self.point else f"{self.fault}, {self.moment} +{self.delay:.2f} s"
        return f"{' '.join(self.kinds)}: {what}, away {self.away:.1f} s"


def draw(seed: int, most_away: float) -> Run:
    """The run of a seed."""
    drawn = random.Random(seed)
    fault = drawn.choice(FAULTS)
    return Run(
        seed=seed,
        kinds=tuple(drawn.choice(KINDS) for _ in range(drawn.randint(1, 3))),
        fault=fault,
        point=drawn.choice(POINTS) if fault == "point" else "",
        moment=drawn.choice(MOMENTS),
        delay=drawn.uniform(0.0, 1.5),
        away=drawn.uniform(0.0, most_away if fault == "api-server" else 3.0),
    )


@dataclass
class Soak:
    """The node that bears it all.

    Attributes:
        held: the pods of the run by name, each with its kind.
        early: pods that may have begun without their network: it is the documented limit of shared claims.
    """

    driver: Driver
    pods: Pods
    workspace: Workspace
    plane: ControlPlane
    held: dict[str, str] = field(default_factory=dict)
    early: set[str] = field(default_factory=set)
    _armed: bool = False

    def __post_init__(self) -> None:
        """Make the interfaces and the topologies of each kind of pod."""
        publish(self.driver.node, self.workspace.api, SHARED, *WHOLE)
        address = step("address", "tuning", {"dev": "{{ nic.interfaceName }}", "addresses": ["192.0.2.7/24"]}, "nic")
        size = step("size", "tuning", {"dev": "{{ nic.interfaceName }}", "mtu": 1400}, "address")
        nic = step("nic", "host-device", prefix="nic")
        share = shares(self.workspace, "share")
        self._topologies = {
            "moved": make_topology(self.workspace, "moved", nic),
            "chain": make_topology(self.workspace, "chain", nic, address, size),
            "share": share,
            "shared": share,
        }

    def go(self, run: Run) -> None:
        """Do one run.

        Raises:
            AssertionError: something is lost or left; so does TimeoutError, of a state that was never reached.
        """
        self.held, self.early = {}, set()
        if run.point.startswith(("prepare", "attach")):
            self._arm(run.point)
        self._come(run)
        self._strike(run, "coming")
        self._check_running()
        self._strike(run, "running")
        self._check_running()
        if run.point.startswith(("detach", "unprepare")):
            self._arm(run.point)
        for name in self.held:
            self.pods.api.delete(POD, name, self.pods.namespace, grace=5)
        self._strike(run, "going")
        self._check_gone()

    def _come(self, run: Run) -> None:
        """Make the run's pods; a shared claim is for two."""
        for number, kind in enumerate(run.kinds):
            claim = self.workspace.add_claim(
                f"c{run.seed}-{number}",
                {"name": _ROOT[kind], "exactly": {"deviceClassName": f"{self._topologies[kind]}-{_ROOT[kind]}"}},
            )
            names = [f"p{run.seed}-{number}{part}" for part in ("ab" if kind == "shared" else "a")]
            for name in names:
                witness.add(self.pods, name, claim)
                self.held[name] = kind
            self.early |= set(names) if kind == "shared" else set()

    def _strike(self, run: Run, moment: str) -> None:
        """Let the fault happen after the run's delay, for the run's time, and fix it, if this is its moment."""
        if run.point:
            self._heal(run)
        elif moment == run.moment:
            with waiting("the moment of a fault"):
                time.sleep(run.delay)
            with self._fault(run.fault), waiting("what is away to be missed"):
                time.sleep(run.away)

    @contextmanager
    def _fault(self, fault: str) -> Iterator[None]:
        node = self.driver.node
        if fault == "update":
            new = self.driver.beside("new")
            new.start()
            self.driver.kill()
            yield
            self.driver.start()
            new.kill()
        elif fault == "kill":
            self.driver.kill()
            yield
            self.driver.start()
        elif fault in ("pause", "api-server"):
            process = self.plane.apiserver if fault == "api-server" else self.driver.process
            process.pause()
            yield
            process.resume()
        else:
            node.processes[fault].kill()
            yield
            node.processes[fault].start()
            node.processes[fault].wait_ready()

    def _heal(self, run: Run) -> None:
        """If a fault point is set, wait until the driver reaches it, and start the driver again without one."""
        if not self._armed:
            return
        with suppress(TimeoutError):
            until(lambda: self.driver.process.pid is None, "a fault point", seconds=run.delay + run.away)
        self._arm("")

    def _arm(self, point: str) -> None:
        """Start the driver again, with a fault point."""
        self._armed = bool(point)
        self.driver.restart(f"{point}=kill" if point else "")

    def _check_running(self) -> None:
        """Every pod runs with its network in the end, and no container has begun without."""
        for name, kind in self.held.items():
            witness.hurry(self.pods, name, is_running)
            self._wait_network(name, kind)
            assert name in self.early or "net1" in witness.began_with(self.pods, name), f"{name} began too early"

    def _wait_network(self, name: str, kind: str) -> None:
        """Wait until a pod has its network: of one that began while the driver was away it comes late.

        Raises:
            TimeoutError: it does not come.
        """

        def network() -> tuple[set[str], int]:
            found = set(witness.interfaces(self.pods, name))
            return found, len(witness.addresses(self.pods, name)) if "net1" in found else 0

        whole = {"lo", "eth0", "net1"}, 0 if kind == "moved" else 1
        until(
            lambda: network() == whole,
            "a pod's network",
            seconds=witness.WITHIN,
            detail=lambda: f"{name} ({kind}) has {network()}",
        )

    def _check_gone(self) -> None:
        """The pods end; nothing of them is on the node, and every device is available again."""
        for name in self.held:
            witness.hurry(self.pods, name, lambda found: found is None)
        self.driver.until_nothing_is_left()
        self.workspace.api.delete_all(CLAIM, self.pods.namespace)
        self.workspace.api.wait_for_all(CLAIM, lambda found: not found, namespace=self.pods.namespace)
        # A veth ends with the namespace that it is in, when the pod ends while the driver is away; a real device would
        # fall back to the node.
        publish(self.driver.node, self.workspace.api, *sorted({*WHOLE} - links(self.driver.node)))
        self.workspace.api.wait_for_all(
            SLICE, lambda found: _untainted(found, {*WHOLE, SHARED}), fields=f"spec.nodeName={self.driver.node.name}"
        )


def _untainted(slices: list[Object], interfaces: set[str]) -> bool:
    devices = [device for each in slices for device in each["spec"].get("devices", [])]
    free = {device["attributes"]["ifName"].get("string") for device in devices if not device.get("taints")}
    return interfaces <= free


def soak(stage: Soak, seeds: range, most_away: float, tell: Callable[[str], None]) -> None:
    """Do the run of each seed, and state what is done.

    Raises:
        AssertionError: in the first run that loses or leaves something; the text has its seed.
    """
    began = time.monotonic()
    done: dict[str, int] = {}
    for number, seed in enumerate(seeds, 1):
        run, start = draw(seed, most_away), time.monotonic()
        tell(f"{number}/{len(seeds)} seed {seed}: {run} ...")
        try:
            stage.go(run)
        except (AssertionError, TimeoutError) as problem:
            raise AssertionError(f"run {number}, seed {seed} ({run}): {problem}") from problem
        done[run.fault] = done.get(run.fault, 0) + 1
        tell(f"{number}/{len(seeds)} seed {seed}: well after {time.monotonic() - start:.1f} s")
    faults = ", ".join(f"{name} {count}" for name, count in sorted(done.items()))
    tell(f"{len(seeds)} runs in {time.monotonic() - began:.0f} s, nothing lost and nothing left ({faults})")
