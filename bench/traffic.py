"""The CPU time of a scrape of pods' traffic: 250 pods with three interfaces each, beside `ip -s -j link`.

Pods are network namespaces that are gone afterwards (root), with lo, eth0 and the interfaces of the step. Counters are
read, and the page is written, as for a scrape; checkpoints are those that a driver has in memory. CPU times are those
of the whole process, the median of several rounds: neighbours make noise.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bench.figures import Figure
from netdra.chain.checkpoint import Header, NamespaceId, PodIdentity, Saved, StepState
from netdra.chain.flow import tasks
from netdra.cni.plugins import PluginPath
from netdra.kernel import kinds, link
from netdra.kernel.netns import Namespace
from netdra.model.plan import ClaimReference, Plan, PlannedDevice, PlannedStep
from netdra.model.result import CNIInterface, StepResult
from netdra.node.sandboxes.namespaces import Namespaces
from netdra.node.traffic import reader
from netdra.node.traffic.interfaces import SandboxInterface, of_checkpoint
from netdra.node.traffic.links import PodLink
from netdra.node.traffic.reader import Traffic

PODS, INTERFACES = 250, 3
SCRAPE_SECONDS = 15.0
SHARE = 0.1
"""The highest share of one CPU, in percent."""
ROUNDS = 21
QUICK = {"PODS": 4, "ROUNDS": 3}


def run() -> Iterator[Figure]:
    """The figures of a scrape."""
    with _pods() as (namespaces, checkpoints, spaces):
        states = _links(checkpoints)
        traffic = Traffic(lambda: checkpoints, namespaces.opened, 10 * PODS, links=lambda: states)
        ours = [_cpu(lambda: _scrape(traffic)) for _ in range(ROUNDS + 1)][1:]  # the first one looks up the names
        page = traffic.page().decode()
        assert page.count("netdra_pod_network_receive_bytes_total{") == PODS * INTERFACES
        theirs = [_cpu(lambda: _ip(spaces), resource.RUSAGE_CHILDREN) for _ in range(2)]
    size = f"{PODS} pods with {INTERFACES} interfaces each, CPU time"
    median = statistics.median(ours)
    yield Figure("scrape", median, "ms", note=f"{size}; the best of {ROUNDS} took {min(ours):.1f} ms")
    yield Figure(
        "share of a CPU", 100 * median / (SCRAPE_SECONDS * 1000), "%", SHARE, f"a scrape in {SCRAPE_SECONDS:g} s"
    )
    yield Figure("ip -s -j link", min(theirs), "ms", note=f"{size}; in each pod's namespace")
    yield Figure("scrape / ip -s -j link", median / min(theirs), "x", 0.1)


def _scrape(traffic: Traffic) -> None:
    traffic._read_at = -reader.FRESH_SECONDS  # noqa: SLF001 - another second has come
    traffic.page()


def _ip(spaces: list[Namespace]) -> None:
    for space in spaces:
        space.run(lambda: subprocess.run(("ip", "-s", "-j", "link"), stdout=subprocess.DEVNULL, check=True))


def _cpu(work: Callable[[], object], whose: int = resource.RUSAGE_SELF) -> float:
    """The milliseconds of CPU time that a work takes."""
    before = _used(whose)
    work()
    return (_used(whose) - before) * 1000


def _used(whose: int) -> float:
    if whose == resource.RUSAGE_SELF:
        return time.process_time()
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def _pods() -> Iterator[tuple[Namespaces, list[Saved], list[Namespace]]]:
    """Pods on a node: the namespaces that a driver holds, their checkpoints, and the namespaces once more."""
    with ExitStack() as undo:
        held = Namespaces()
        undo.callback(held.close)
        switch = undo.enter_context(Namespace.anonymous())
        checkpoints, spaces = list[Saved](), list[Namespace]()
        for number in range(PODS):
            space = undo.enter_context(Namespace.anonymous())
            names = [f"net{place}" for place in range(1, INTERFACES + 1)]
            with space.socket() as sock:
                for place, name in enumerate(("eth0", *names)):
                    peer = kinds.Peer(f"far{number}-{place}", netns_fd=switch.fd)
                    link.create(sock, name, "veth", kinds.veth(peer))
                    link.change(sock, name, up=True)
            sandbox = f"{number:064x}"
            held.hold(sandbox, f"/proc/self/fd/{space.fd}")
            spaces.append(space)
            checkpoints.append(_checkpoint(sandbox, f"pod-{number}", names))
        yield held, checkpoints, spaces


def _checkpoint(sandbox: str, pod: str, names: list[str]) -> Saved:
    """The checkpoint of a pod with interfaces that were moved into it."""
    steps = tuple(
        PlannedStep(
            name=f"rail-{place}",
            type="host-device",
            if_name=name,
            network=f"rail-{place}",
            execution="Builtin",
            device=PlannedDevice(request=f"rail-{place}", pool="worker-1/pf", device=f"enp3s0f{place}v1", if_name=name),
        )
        for place, name in enumerate(names)
    )
    claim = ClaimReference(namespace="training", name=f"{pod}-rails", uid=pod)
    plan = Plan(topology="rails", claim=claim, steps=steps)
    identity = PodIdentity(sandbox=sandbox, name=pod, namespace="training", uid=pod)
    header = Header(
        version=1,
        boot_id="boot",
        pod=identity,
        namespace=NamespaceId(path=f"/run/netns/{pod}", cookie=1),
        plugins=PluginPath(),
        plans=(plan,),
    )
    states = {
        key: StepState(
            config={}, undo={}, result=StepResult(interfaces=(CNIInterface(name=task.step.if_name, sandbox="pod"),))
        )
        for key, task in tasks((plan,)).items()
    }
    return Saved(header=header, steps=states, complete=True)


def _links(checkpoints: list[Saved]) -> dict[SandboxInterface, PodLink]:
    """The links' states, as the watch of links has them."""
    return {
        interface: PodLink(speed=100_000, carrier_up=1) for saved in checkpoints for interface in of_checkpoint(saved)
    }
