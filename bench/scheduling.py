"""The cost of a pod's claim for kube-scheduler, beside a minimal driver with as many devices; and claims of many rails.

Nodes are API objects; their slices are made by netdra's own exposure and packing, the DeviceClasses by its topologies.
Each driver has a control plane of its own, because the scheduler search all slices of a cluster. One pod comes
after the other, and the scheduler's CPU time is measured: elapsed time is useless on a machine with neighbours.

`MODES` are the ways in which a policy can offer a PF's VFs; all cases are measured in each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from bench.bed import control_plane
from bench.figures import Figure
from netdra.exposure import expose
from netdra.model import documents, names
from netdra.model.inventory import Interface, Inventory, InventoryNode
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.topology import NetworkTopology
from netdra.slices.pack import pack
from netdra.topology.classes import device_classes
from testbed import objects
from testbed.api import Api, Object
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, NAMESPACE, POD, SLICE

NODES = (30, 100)
PODS = 20
WARM = 2
"""Pods of each case that are not measured: the first ones have selectors compiled."""
VFS = 64
RAIL_NODES = 8
RAILS = 8
RAIL_VFS = 16
RAIL_PODS = 3
RAIL_SECONDS = 60.0
"""How long pods of many rails are waited for."""


class Mode(NamedTuple):
    """A way in which a policy offers a PF's VFs, and the limits of its figures; 0 for none.

    Attributes:
        exposure: what the policy's `exposure` states of them, beside the plugins.
        ratio: a pod's CPU beside that of a minimal driver.
        bound, beside: seconds until pods of many rails have a node, and one without a claim that comes after them.
    """

    exposure: Object
    ratio: float
    bound: float
    beside: float


MODES: Mapping[str, Mode] = {
    # Limits of the reachable ratios: 28 attributes and counters cost more than one attribute, and the scheduler's
    # search does not end (decision D56).
    "one device per VF": Mode({}, ratio=3.0, bound=0.0, beside=0.0),
    "pooled VFs": Mode({"pooledVFs": {"lanes": 1}}, ratio=1.1, bound=1.0, beside=0.5),
}
QUICK = {
    "NODES": (2,),
    "PODS": 1,
    "WARM": 1,
    "VFS": 4,
    "RAIL_NODES": 2,
    "RAILS": 2,
    "RAIL_VFS": 4,
    "RAIL_PODS": 2,
    "MODES": {"pooled VFs": MODES["pooled VFs"]},
}
HOME = "bench"
SETTLED = "settled.example.com"
SETTLED_SECONDS = 120.0
MINIMAL = "minimal.example.com"
_PF = "enp{}s0f0"
_ADVANCED = 128
_numbers = count()
T = TypeVar("T")


@dataclass(frozen=True)
class Driver:
    """The published devices of a driver, and the measured claims.

    Attributes:
        classes: its DeviceClasses.
        slices: a node's ResourceSlices.
        cases: by name, a claim's requests.
    """

    classes: Sequence[Object]
    slices: Callable[[str], list[Object]]
    cases: Mapping[str, Object]


def run() -> Iterator[Figure]:
    """The figures: scheduler CPU of a pod by case, each driver's and their ratio, and those of many rails."""
    for nodes in NODES:
        plain = _costs(minimal(), nodes)
        for mode in MODES:
            ours = _costs(netdra(mode), nodes)
            for case, cost in ours.items():
                name, note = f"{mode}, {nodes} nodes x {2 * VFS + 3}: {case}", f"of the scheduler's CPU, {PODS} pods"
                yield Figure(name, cost * 1000, "ms", 0.0, note)
                beside = f"beside {plain[case] * 1000:.1f} ms of a minimal driver"
                yield Figure(f"{name}, beside a minimal driver", cost / plain[case], "x", MODES[mode].ratio, beside)
    for mode in MODES:
        yield from _rails(mode, "no carrier", without_carrier=True)
        yield from _rails(mode, "used up", without_carrier=False)


def netdra(mode: str) -> Driver:
    """Two PFs' VFs, the PFs whole and a bridge; the pods want VFs of a topology with a bond of two."""
    pfs = [_PF.format(number) for number in range(2)]
    made = interfaces(pfs, VFS)
    bridge = Interface(if_name="br-data", type="bridge", bridge_name="br-data", bridge_type="linux", mtu=9000)
    steps: list[Object] = [_vf_step(f"vf{number}", pf) for number, pf in enumerate(pfs)]
    links = [{"name": f"{{{{ {step['name']}.interfaceName }}}}"} for step in steps]
    bond = {"mode": "active-backup", "miimon": 100, "links": links}
    steps.append({"name": "bond0", "type": "bond", "dependOn": ["vf0", "vf1"], "config": bond})
    classes = topology_classes("headline", steps)
    first, second = (each["metadata"]["name"] for each in classes)
    return Driver(
        classes,
        lambda node: slices(node, [*made, bridge], policies(mode, whole=True)),
        {
            "one VF": _devices(first),
            "two VFs of one NUMA node": _devices(first, second, matchAttribute=f"{names.DRIVER}/numaNode"),
            "two VFs that fit nowhere": _devices(first, second, matchAttribute=f"{names.DRIVER}/pfName"),
        },
    )


def minimal() -> Driver:
    """As many devices in the same order, with one attribute, of which a bare selector asks."""
    kinds = ["br-data", *("pf",) * 2, *("enp0s0f0",) * VFS, *("enp1s0f0",) * VFS]
    key = f'device.attributes["{MINIMAL}"].pfName'
    classes = [_class(f"minimal-{pf}", f'{key} == "{pf}"') for pf in ("enp0s0f0", "enp1s0f0")]
    first, second = (each["metadata"]["name"] for each in classes)

    def published(node: str) -> list[Object]:
        devices = [
            {"name": f"device-{number}", "attributes": {"pfName": {"string": kind}}}
            for number, kind in enumerate(kinds)
        ]
        parts = [devices[at : at + _ADVANCED] for at in range(0, len(devices), _ADVANCED)]
        return [_slice(node, MINIMAL, number, len(parts), part) for number, part in enumerate(parts)]

    return Driver(
        classes,
        published,
        {
            "one VF": _devices(first),
            "two VFs of one NUMA node": _devices(first, second, distinctAttribute=f"{MINIMAL}/pfName"),
            "two VFs that fit nowhere": _devices(first, second, matchAttribute=f"{MINIMAL}/pfName"),
        },
    )


def interfaces(pfs: Sequence[str], vfs: int, *, down: str = "") -> list[Interface]:
    """PFs and their VFs, all on one NUMA node; the PF `down` has no carrier."""
    made: list[Interface] = []
    for bus, pf in enumerate(pfs):
        address = f"0000:{bus:02x}:00.0"
        hardware: dict[str, Any] = {
            "numa_node": 0,
            "vendor": "15b3",
            "driver": "mlx5_core",
            "pcie_root": f"pci0000:{bus:02x}",
        }
        link: dict[str, Any] = {"mtu": 9000, "link_speed": 100_000, "oper_state": "down" if pf == down else "up"}
        made.append(
            Interface(
                if_name=pf,
                type="pf",
                mac=f"02:00:00:00:{bus:02x}:ff",
                pci_address=address,
                product="1017",
                sriov_capable=True,
                num_vfs=vfs,
                total_vfs=vfs,
                rdma=True,
                eswitch_mode="legacy",
                no_carrier=pf == down,
                **hardware,
                **link,
            )
        )
        made += (
            Interface(
                if_name=f"{pf}v{index}",
                type="vf",
                mac=f"02:00:00:00:{bus:02x}:{index:02x}",
                pci_address=f"0000:{bus:02x}:{1 + index // 8:02x}.{index % 8}",
                product="1018",
                pf_name=pf,
                pf_pci_address=address,
                vf_index=index,
                rdma=True,
                **hardware,
                **link,
            )
            for index in range(vfs)
        )
    return made


def policies(mode: str, *, whole: bool) -> list[DeviceExposurePolicy]:
    """The policies of VFs as a mode has them and, with `whole`, of the PFs whole and of the bridge."""
    plugins = {name: {"name": name, "exclusive": True} for name in ("sriov", "host-device")}
    exposures: dict[str, Object] = {"vf": {"supportedCNIPlugins": [*plugins.values()], **MODES[mode].exposure}}
    if whole:
        exposures["pf"] = {"supportedCNIPlugins": [plugins["host-device"]]}
        ports = {"value": "64", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}}}
        attach = {"name": "bridge", "consumePerAllocation": {"ports": 1}}
        shared = {"allowMultipleAllocations": True, "capacity": {"ports": ports}}
        exposures["bridge"] = {**shared, "supportedCNIPlugins": [attach]}
    return [
        _read(
            {
                "apiVersion": names.GROUP_VERSION,
                "kind": "DeviceExposurePolicy",
                "metadata": {"name": kind},
                "spec": {"selector": {"cel": _ours(f'type == "{kind}"')}, "exposure": exposure},
            },
            DeviceExposurePolicy,
        )
        for kind, exposure in exposures.items()
    ]


def slices(node: str, found: Sequence[Interface], offered: Sequence[DeviceExposurePolicy]) -> list[Object]:
    """A node's slices as netdra publishes them."""
    inventory = Inventory(node=InventoryNode(name=node), interfaces=tuple(found))
    return [documents.plain(one) for one in pack(expose(inventory, offered), node=node)]


def topology_classes(name: str, steps: Sequence[Object]) -> list[Object]:
    """A topology's DeviceClasses as the controller writes them."""
    topology = {
        "apiVersion": names.GROUP_VERSION,
        "kind": "NetworkTopology",
        "metadata": {"name": name},
        "spec": {"steps": [*steps]},
    }
    return [documents.plain(one) for one in device_classes(_read(topology, NetworkTopology))]


@contextmanager
def cluster(nodes: int, driver: Driver, published: Callable[[str], list[Object]] | None = None) -> Iterator[Cluster]:
    """A control plane with so many nodes, a driver's classes, and slices that the scheduler knows."""
    with control_plane(Settings(controller_manager=False)) as plane, closing(plane.client()) as api:
        api.create(objects.manifest(NAMESPACE, HOME))
        for each in (*driver.classes, _class(SETTLED, f'device.driver == "{SETTLED}"')):
            api.create(each)
        called = [f"node-{number:03}" for number in range(nodes)]
        for name in called:
            objects.add_node(api, name)
        for name in called:
            for one in (published or driver.slices)(name):
                api.create(one)
        # A watch delivers changes in order: once the scheduler allocates the last device, it knows all others.
        api.create(_slice(called[-1], SETTLED, 0, 1, [{"name": "last"}]))
        found = Cluster(plane, api)
        assert found.wait_bound(found.pod(_devices(SETTLED)), SETTLED_SECONDS)
        api.delete_all(SLICE, fields=f"spec.driver={SETTLED}")
        yield found


@dataclass(frozen=True)
class Cluster:
    """A control plane and a way to it."""

    plane: ControlPlane
    api: Api

    def pod(self, devices: Object | None, node: str = "") -> str:
        """Make a pod, with a claim if it states what of devices; its name."""
        name = f"p{next(_numbers)}"
        if devices is not None:
            self.api.create(objects.manifest(CLAIM, name, HOME, spec={"devices": devices}))
        self.api.create(objects.pod(HOME, name, {} if devices is None else {"net": name}, node=node))
        return name

    def decision(self, pod: str, timeout: float = 120.0) -> str:
        """Why the scheduler has no node for a pod, once it has stated so; "" once it has one."""
        found = self.api.wait_for(POD, pod, lambda one: any(objects.scheduling(one)), namespace=HOME, timeout=timeout)
        return objects.scheduling(found)[1]

    def wait_bound(self, pod: str, timeout: float) -> bool:
        """Wait until a pod has a node; whether it has one in time."""
        with suppress(TimeoutError):
            self.api.wait_for(
                POD, pod, lambda one: bool(objects.scheduling(one)[0]), namespace=HOME, timeout=max(timeout, 0.01)
            )
            return True
        return False

    def cpu(self) -> float:
        """The CPU seconds that the scheduler has used so far, by its threads: /proc/PID/stat only counts in 10 ms."""
        tasks = Path(f"/proc/{self.plane.scheduler.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _costs(driver: Driver, nodes: int) -> dict[str, float]:
    """By case, the scheduler's CPU seconds for a pod."""
    with cluster(nodes, driver) as running:
        return {case: _cost(running, case, devices) for case, devices in driver.cases.items()}


def _cost(running: Cluster, case: str, devices: Object) -> float:
    for _ in range(WARM):
        _decide(running, case, devices)
    before = running.cpu()
    for _ in range(PODS):
        _decide(running, case, devices)
    return (running.cpu() - before) / PODS


def _decide(running: Cluster, case: str, devices: Object) -> None:
    """Have one pod decided on; one that does not fit goes again, so that nothing has it tried twice."""
    pod = running.pod(devices)
    why = running.decision(pod)
    assert ("nowhere" in case) == bool(why), f"{case}: {why}"
    if why:
        running.api.delete(POD, pod, HOME)


def _rails(mode: str, fault: str, *, without_carrier: bool) -> list[Figure]:
    """Pods with one VF of each of many PFs, while the last PF of one node has none to give."""
    pfs = [_PF.format(number) for number in range(RAILS)]
    steps = [_vf_step(f"rail{number}", pf) for number, pf in enumerate(pfs)]
    classes = topology_classes("rails", steps)
    devices = _devices(*(each["metadata"]["name"] for each in classes))
    offered = policies(mode, whole=False)

    def published(node: str) -> list[Object]:
        down = pfs[-1] if without_carrier and node == "node-000" else ""
        return slices(node, interfaces(pfs, RAIL_VFS, down=down), offered)

    with cluster(RAIL_NODES, Driver(classes, published, {})) as running:
        if not without_carrier:
            last = _devices(classes[-1]["metadata"]["name"])
            assert not any(running.decision(running.pod(last, "node-000")) for _ in range(RAIL_VFS))
        used, begun = running.cpu(), time.monotonic()
        pods = [running.pod(devices) for _ in range(RAIL_PODS)]
        beside = running.pod(None)
        assert running.wait_bound(beside, 4 * RAIL_SECONDS), "a pod without a claim"
        waited = time.monotonic() - begun
        bound = sum(running.wait_bound(pod, begun + RAIL_SECONDS - time.monotonic()) for pod in pods)
        took, cpu = time.monotonic() - begun, running.cpu() - used
    name = f"{mode}, {RAIL_NODES} nodes, {RAILS} rails x {RAIL_VFS}, one rail of a node {fault}"
    note = f"{bound} of {RAIL_PODS} pods were bound"
    limits = MODES[mode]
    return [
        Figure(f"{name}: waited for pods", took, "s", limits.bound, note),
        Figure(f"{name}: scheduler CPU", cpu, "s", 0.0, note),
        Figure(f"{name}: a pod without a claim waits", waited, "s", limits.beside),
    ]


def _vf_step(name: str, pf: str) -> Object:
    return {
        "name": name,
        "type": "sriov",
        "selector": {"cel": _ours('type == "vf"') + " && " + _ours(f'pfName == "{pf}"')},
    }


def _ours(condition: str) -> str:
    return f'device.attributes["{names.DRIVER}"].{condition}'


def _read(one: Object, kind: type[T]) -> T:
    (found,) = documents.read(msgspec.json.encode(one).decode(), HOME)
    assert isinstance(found, kind)
    return found


def _class(name: str, expression: str) -> Object:
    return objects.manifest(CLASS, name, spec={"selectors": [{"cel": {"expression": expression}}]})


def _slice(node: str, driver: str, number: int, of: int, devices: Sequence[Object]) -> Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": of}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [*devices]}
    return objects.manifest(SLICE, f"{node}-{driver}-{number}", spec=spec)


def _devices(*classes: str, **constraint: Any) -> Object:
    requests = [{"name": f"r{number}", "exactly": {"deviceClassName": called}} for number, called in enumerate(classes)]
    return {"requests": requests, "constraints": [constraint] if constraint else []}
