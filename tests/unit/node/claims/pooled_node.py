"""A node without an API server: its slices, the allocations from them, its claims, their pods, and its crashes.

The publishing half, the claims, their records, the checkpoints and the allocator are the real ones. The kernel is a
list of interfaces, the API server a dictionary.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from netdra.chain import checkpoint
from netdra.chain.checkpoint import Header, NamespaceId, PodIdentity
from netdra.chain.site import ChainSettings
from netdra.cni.plugins import PluginPath
from netdra.kube.client import Client
from netdra.kube.errors import NotFoundError, Status
from netdra.kube.resources import RESOURCE_CLAIMS
from netdra.model import names
from netdra.model.claim import AllocationResult, DeviceClass, DeviceRequestAllocationResult, ResourceClaim
from netdra.model.device import DEFAULT_FEATURES
from netdra.model.errors import NetdraError
from netdra.model.inventory import Interface
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import DeviceFile
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.node import faults
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims import prepare as preparing
from netdra.node.claims.handler import Claims
from netdra.node.claims.store import ClaimStore, PodUser, PreparedClaim, PreparedDevice
from netdra.node.hardware import HardwareTable
from netdra.node.nri.hooks import Sandbox
from netdra.node.permits import EVERYTHING
from netdra.node.priority import PriorityGate, Turns
from netdra.node.publishing.offering import Offered, Offering, Slices
from netdra.node.sandboxes.network import Network
from netdra.node.sandboxes.table import Table
from netdra.ops.boot import boot_id
from netdra.slices.allocator import Allocation, Allocator
from netdra.topology.devices import DeviceKey
from tests.builders import OURS, exclusive, inventory, policy, sriov

NODE = "worker-1"
SPEED = 100_000
VF, PF = f'{OURS}.type == "vf"', f'{OURS}.type == "pf"'
BANDWIDTH = names.qualified(names.BANDWIDTH)
VFS = names.qualified(names.VFS)
CLASSES = tuple(
    msgspec.convert(
        {
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{names.DRIVER}" && {expression}'}}]},
        },
        DeviceClass,
    )
    for name, expression in (("vf", VF), ("pf", PF))
)
_NUMBERS = itertools.count(1)


class CrashError(BaseException):
    """The daemon dies here."""


def pooled(name: str = "vfs", cel: str = VF, *, lanes: int = 1, **exposure: Any) -> DeviceExposurePolicy:
    exposure.setdefault("supportedCNIPlugins", [{"name": "host-device"}])
    return policy(name, cel, pooledVFs={"lanes": lanes}, **exposure)


def single(name: str = "vfs", cel: str = VF) -> DeviceExposurePolicy:
    return exclusive(name, cel)


WHOLE = exclusive("pfs", PF)


def card(name: str = "eth0", count: int = 4, **facts: Any) -> tuple[Interface, ...]:
    """A PF and VFs that have a driver and a carrier."""
    return tuple(
        msgspec.structs.replace(each, driver="iavf" if each.type == "vf" else "ice", oper_state="up")
        for each in sriov(name, count, speed=SPEED, **facts)
    )


def claim_of(*requests: Mapping[str, Any], name: str = "") -> ResourceClaim:
    name = name or f"claim-{next(_NUMBERS)}"
    return msgspec.convert(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
            "spec": {"devices": {"requests": list(requests)}},
        },
        ResourceClaim,
    )


def request(
    name: str = "nic", bandwidth: int | None = None, count: int = 1, device_class: str = "vf"
) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    if bandwidth is not None:
        exactly["capacity"] = {"requests": {BANDWIDTH: str(bandwidth)}}
    return {"name": name, "exactly": exactly}


def results(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    assert claim.status.allocation is not None
    return claim.status.allocation.devices.results


class Server:
    """The API server's claims; it is the client, too."""

    def __init__(self) -> None:
        self.claims: dict[str, ResourceClaim] = {}
        self.slices: dict[str, Slices] = {}

    async def get(self, resource: object, name: str, namespace: str = "") -> ResourceClaim:
        await asyncio.sleep(0)
        found = self.claims.get(name) if resource is RESOURCE_CLAIMS else None
        if found is None:
            raise NotFoundError(f"{name} is not there", Status(code=404))
        return found

    @property
    def published(self) -> tuple[ResourceSlice, ...]:
        return tuple(one for pool in sorted(self.slices) for one in self.slices[pool])

    def allocator(self) -> Allocator:
        return Allocator(self.published, CLASSES, allocated=self.claims.values())

    def allocate(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Allocate as the scheduler; None if the claim does not fit."""
        outcome = self.allocator().allocate(claim)
        if not isinstance(outcome, Allocation):
            return None
        (allocated,) = outcome.claims
        self.claims[claim.metadata.name] = allocated
        return allocated

    def offered(self) -> int:
        """How many further VFs the scheduler would give, one by one."""
        allocator = self.allocator()
        number = 0
        while isinstance(allocator.allocate(claim_of(request(), name=f"probe-{number}")), Allocation):
            number += 1
        return number


class Unwatched:
    def users(self, claim: ResourceClaim) -> tuple[PodUser, ...]:
        return ()

    async def just_read(self, wanted: ClaimReference) -> ResourceClaim | None:
        return None


async def unexamined(devices: Collection[PlannedDevice]) -> None:
    """Wait for no search: none of the devices was in a pod."""


class Daemon:
    """One process of netdra on the node: it begins with the state of earlier ones on disk and at the API server."""

    topologies: Mapping[str, NetworkTopology] = {}
    ready = True
    labels: Mapping[str, str] | None = None

    def __init__(self, folder: Path, server: Server) -> None:
        self.server = server
        self.store = ClaimStore.of_state(folder / "state")
        files = ClaimFiles(plugin=folder / "plugin", cdi=folder / "cdi")
        self.table = Table(files, self.store)
        self.network = Network(ChainSettings(state=folder / "checkpoints"), self.table)
        self.offering = Offering(NODE, server.slices)
        self.made: dict[str, Slices] = {}
        self.hardware = HardwareTable(folder / "state" / "hardware.json")
        self.devices: dict[DeviceKey, PlannedDevice] = {}
        self.vfs: dict[DeviceKey, Sequence[PlannedDevice]] = {}
        self.last: Offered | None = None
        self.claims = Claims(
            cast(Client, server),
            NODE,
            self,
            self.network,
            self.store,
            files,
            Unwatched(),
            EVERYTHING,
            Turns(PriorityGate()),
            unexamined,
        )

    @property
    def slices(self) -> Sequence[ResourceSlice]:
        return tuple(one for pool in sorted(self.made) for one in self.made[pool])

    def publish(self, world: World) -> bool:
        """One pass, as `Publishing` enters it; returns whether anything had to be written."""
        self.offering.follow(world.policies, DEFAULT_FEATURES)
        world.now += 100.0
        offered = self.last = self.offering.update(
            inventory(*world.interfaces, node=NODE), {}, self.network.held, world, world.now
        )
        self.hardware.note({key: device for pool in offered.devices.values() for key, device in pool.items()})
        changed = False
        for pool, slices in offered.slices.items():
            for former in self.made.pop(pool, ()):
                for device in former.spec.devices:
                    self.devices.pop((pool, device.name), None)
                    self.vfs.pop((pool, device.name), None)
            self.devices |= offered.devices[pool]
            changed = changed or self.server.slices.get(pool, ()) != slices
            if slices:
                self.made[pool] = self.server.slices[pool] = slices
            else:
                self.server.slices.pop(pool, None)
        self.vfs |= offered.vfs
        return changed


class World:
    """The node's kernel, policies, and daemons; tests change the interfaces and the policies."""

    def __init__(self, folder: Path, interfaces: Sequence[Interface], *policies: DeviceExposurePolicy) -> None:
        self.folder, self.server = folder, Server()
        self.there: dict[str, Interface] = {each.pci_address: each for each in interfaces}
        self.policies: tuple[DeviceExposurePolicy, ...] = policies
        self.now = 0.0
        self.in_pods: dict[str, str] = {}  # sandbox -> claim's uid
        self.moved: set[str] = set()
        self.daemon = Daemon(folder, self.server)
        self.publish()

    # The kernel.

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        """As this node's namespace shows them."""
        vfs = Counter(each.pf_pci_address for each in self.there.values() if each.type == "vf")
        return tuple(
            msgspec.structs.replace(each, if_name="", mac="", mtu=0, oper_state="", no_carrier=False)
            if each.pci_address in self.moved
            else msgspec.structs.replace(each, num_vfs=vfs[each.pci_address])
            if each.type == "pf"
            else each
            for each in self.there.values()
        )

    def change(self, address: str, **facts: Any) -> None:
        self.there[address] = msgspec.structs.replace(self.there[address], **facts)

    def left(self, interface: Interface) -> bool:
        return False

    def on_the_bus(self, address: str, bus: str = "pci") -> bool:
        return address in self.there

    def device_file(self, path: str) -> DeviceFile:
        return DeviceFile(problem="there is none", missing=True)

    # The daemon.

    def publish(self) -> None:
        """Passes until nothing changes; a second one changes nothing."""
        self.daemon.publish(self)
        assert not self.daemon.publish(self)

    def restart(self) -> None:
        """A new process in place of the old one."""
        self.daemon.table.namespaces.close()
        self.daemon = Daemon(self.folder, self.server)
        for sandbox in self.in_pods:
            self.daemon.table.mark_running(sandbox_called(sandbox))
        self.publish()

    def prepare(self, claim: ResourceClaim, *, crash: str = "") -> tuple[PreparedDevice, ...]:
        """The kubelet's call; a process that died is begun again."""
        try:
            with dying(crash):
                return asyncio.run(self.daemon.claims.prepare(claim.reference))
        except CrashError:
            self.restart()
            raise

    def unprepare(self, claim: ResourceClaim, *, crash: str = "") -> None:
        try:
            with dying(crash):
                asyncio.run(self.daemon.claims.unprepare(claim.reference))
        except CrashError:
            self.restart()
            raise

    def record(self, claim: ResourceClaim) -> PreparedClaim | None:
        return self.daemon.store.get(claim.metadata.uid)

    def vfs_of(self, claim: ResourceClaim) -> list[str]:
        """The VFs of a prepared claim in the order of its allocation."""
        record = self.record(claim)
        assert record is not None
        return [device.facts.pci_address for device in record.devices]

    # Pods.

    def begin_pod(self, claim: ResourceClaim) -> str:
        """The claim's devices go to a pod, and the checkpoint states so; returns the sandbox."""
        record = self.record(claim)
        assert record is not None
        assert record.plan is not None
        sandbox = f"box-{next(_NUMBERS)}"
        header = Header(
            version=checkpoint.VERSION,
            boot_id=boot_id(),
            pod=PodIdentity(sandbox=sandbox, name=sandbox, namespace="ns", uid=sandbox),
            namespace=NamespaceId(path=f"/nowhere/{sandbox}", cookie=1),
            plugins=PluginPath(),
            plans=record.plan.plans,
        )
        checkpoint.create(self.folder / "checkpoints", header, 1.0, lasting=False).close()
        self.daemon.table.mark_running(sandbox_called(sandbox))
        self.in_pods[sandbox] = claim.metadata.uid
        self.moved |= set(self.vfs_of(claim))
        return sandbox

    def end_pod(self, sandbox: str, trouble: str = "") -> None:
        """A pod's network is taken down, unless its devices cannot be returned."""
        if trouble:
            self.daemon.table.set_trouble(sandbox, trouble)
            return
        for saved in checkpoint.load_all(self.folder / "checkpoints")[0]:
            if saved.header.pod.sandbox == sandbox:
                steps = [step for plan in saved.header.plans for step in plan.steps if step.device is not None]
                self.moved -= {step.device.pci_address for step in steps if step.device is not None}
        checkpoint.path_of(self.folder / "checkpoints", sandbox).unlink()
        del self.in_pods[sandbox]
        self.daemon.table.mark_running(sandbox_called(sandbox))
        self.daemon.table.set_trouble(sandbox, "")
        self.daemon.table.mark_ended(sandbox)

    def sandboxes(self, claim: ResourceClaim) -> list[str]:
        return [sandbox for sandbox, uid in self.in_pods.items() if uid == claim.metadata.uid]

    def release(self, claim: ResourceClaim) -> None:
        """The claim's pod ends, and the claim with it."""
        for sandbox in self.sandboxes(claim):
            self.end_pod(sandbox)
        self.unprepare(claim)
        self.server.claims.pop(claim.metadata.name, None)


def sandbox_called(name: str) -> Sandbox:
    return Sandbox(id=name, name=name, namespace="ns", uid=name, netns=f"/nowhere/{name}")


@contextmanager
def dying(at: str) -> Iterator[None]:
    """The process dies at a point; a claim that cannot be prepared is refused at once instead of being tried again."""
    point, view = faults.point, preparing.VIEW_SECONDS

    def reached(name: str) -> None:
        if name == at:
            raise CrashError(name)

    faults.point, preparing.VIEW_SECONDS = reached, -1.0
    try:
        yield
    finally:
        faults.point, preparing.VIEW_SECONDS = point, view


def refusal(act: Callable[[], object]) -> NetdraError | None:
    """Why an act is refused; None if it is not."""
    with suppress(CrashError):
        try:
            act()
        except NetdraError as problem:
            return problem
    return None


def consumed(allocation: AllocationResult | None) -> int:
    """The bandwidth that a claim was allocated of pooled VFs, in Mbit/s."""
    found = allocation.devices.results if allocation is not None else ()
    return sum(int(result.consumed_capacity.get(BANDWIDTH, "0")) for result in found if result.share_id)
