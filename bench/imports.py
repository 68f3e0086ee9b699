"""The cost of `netdra networks import`: leases of whereabouts in the cluster, and of host-local in a folder.

An IPPool has 5,000 leases: an object cannot have many more. The API server counts the requests; no controller of netdra
runs. A second import of the same leases writes nothing.
"""

from __future__ import annotations

import ipaddress
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.bed import control_plane
from bench.figures import Figure
from testbed.api import Api
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import NAMESPACE, manifest
from tests.cluster.conftest import serve_kinds
from tests.cluster.whereabouts import POOL, RESERVATION, serving_kinds

SIZES = (5_000, 20_000)
MOST_GROWTH = 1.3
"""How many times longer a lease may take in the large import than in the small one."""
QUICK = {"SIZES": (40,)}

_NETWORK = "networking.dra.io/v1alpha1/PodNetwork"
_IN_POOL = 5_000
_CONNECTIONS = 8
_BEGIN = ipaddress.IPv4Address("10.64.0.0")
_NAMESPACE = "whereabouts"
_COUNTED = re.compile(r'apiserver_request_total\{[^}]*resource="([a-z]+)"[^}]*\} (\S+)')
_COUNTED_KINDS = {"ippools", "overlappingrangeipreservations", "podaddresses", "podnetworks"}


class Cost(NamedTuple):
    """The cost of a run of the command: seconds of wall time and CPU, MiB, and requests."""

    wall: float
    cpu: float
    memory: float
    requests: int


def run() -> Iterator[Figure]:
    """Seconds, CPU, memory and requests of an import, and its growth."""
    of_pools = [_whereabouts(size) for size in SIZES]
    yield from _figures("whereabouts", of_pools)
    yield from _figures("host-local", [_host_local(size) for size in SIZES])
    of_a_lease = [costs[0].cpu / size for size, costs in zip(SIZES, of_pools, strict=True)]
    note = f"CPU for a lease of {SIZES[-1]}, compared with {SIZES[0]}; 1 is linear"
    yield Figure("growth of an import", of_a_lease[-1] / of_a_lease[0], "x", MOST_GROWTH, note)


@contextmanager
def _server() -> Iterator[tuple[ControlPlane, Api]]:
    """An API server without objects."""
    with control_plane(Settings(scheduler=False, controller_manager=False)) as plane, closing(plane.client()) as api:
        serve_kinds(plane, api)
        yield plane, api


def _figures(plugin: str, found: Sequence[tuple[Cost, Cost]]) -> Iterator[Figure]:
    for size, costs in zip(SIZES, found, strict=True):
        for name, cost in zip(("import", "second import"), costs, strict=True):
            note = f"{cost.cpu:.1f} s of CPU, {cost.memory:.0f} MiB, {cost.requests} requests"
            yield Figure(f"{name} of {size} leases of {plugin}", cost.wall, "s", note=note)


def _whereabouts(size: int) -> tuple[Cost, Cost]:
    with _server() as (plane, api), serving_kinds(api):
        api.create(manifest(NAMESPACE, _NAMESPACE))
        _lease(plane, api, size)
        return _imported(plane, api)


def _host_local(size: int) -> tuple[Cost, Cost]:
    with _server() as (plane, api), tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "lock").touch()
        for number in range(size):
            (Path(folder) / str(_BEGIN + 1 + number)).write_text(f"{uuid.uuid4().hex * 2}\r\nnet1")
        return _imported(plane, api, f"--host-local={folder}", "--node=node-1")


def _lease(plane: ControlPlane, api: Api, size: int) -> None:
    """IPPools with leases, and the reservation of each, as whereabouts writes them."""
    for first in range(0, size, _IN_POOL):
        allocations = {
            str(distance + 1): {"id": uuid.uuid4().hex * 2, "podref": _pod(first + distance), "ifname": "net1"}
            for distance in range(min(_IN_POOL, size - first))
        }
        spec = {"range": f"{_BEGIN + first}/10", "allocations": allocations}
        api.create(manifest(POOL, f"pool-{first}", _NAMESPACE, spec=spec))

    def reserve(numbers: range) -> None:
        with closing(plane.client()) as own:
            for number in numbers:
                spec = {"podref": _pod(number), "ifname": "net1", "containerid": uuid.uuid4().hex * 2}
                own.create(manifest(RESERVATION, str(_BEGIN + 1 + number), _NAMESPACE, spec=spec))

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        for done in [pool.submit(reserve, range(first, size, _CONNECTIONS)) for first in range(_CONNECTIONS)]:
            done.result()


def _pod(number: int) -> str:
    return f"workloads/web-{number:05}"


def _imported(plane: ControlPlane, api: Api, *options: str) -> tuple[Cost, Cost]:
    """The costs of an import and of a second one."""
    api.create(manifest(_NETWORK, "lan", spec={"ranges": [{"cidr": "10.64.0.0/10"}]}))
    access = f"--kubeconfig={plane.kubeconfig('importer', ['system:masters'])}"
    start = [sys.executable, "-m", "netdra", "networks"]
    command = [*start, "import", "lan", "--apply", "--output=json", *options, access]
    return _cost(plane, command), _cost(plane, command)


def _cost(plane: ControlPlane, command: Sequence[str]) -> Cost:
    before, began = _requests(plane), time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - began
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, _requests(plane) - before)


def _requests(plane: ControlPlane) -> int:
    """The requests for the kinds that the command reads and writes, as the API server counts them."""
    text = plane.kubectl("get", "--raw", "/metrics")
    return sum(int(float(count)) for kind, count in _COUNTED.findall(text) if kind in _COUNTED_KINDS)
