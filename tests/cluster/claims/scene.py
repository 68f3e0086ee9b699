"""A node whose claims the real scheduler allocates, and the daemon's half that prepares them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdra.exposure import expose
from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.model import documents, names
from netdra.model.device import ExposureResult
from netdra.model.inventory import Interface
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.handler import Claims
from netdra.node.claims.store import ClaimStore
from netdra.node.hardware import HardwareTable
from netdra.node.view import HeldDevice, Recorded
from netdra.slices.pack import layout
from netdra.topology.classes import device_classes
from netdra.topology.devices import DeviceKey, from_slices
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, HOSTNAME, POD, manifest
from testbed.workspace import Workspace
from tests.builders import OURS, exclusive, inventory, policy, shared, sriov
from tests.cluster.claims.alone import handler
from tests.cluster.fault_proxy import FaultProxy

WITHIN = 60.0
_NUMBERS = itertools.count(1)
PF, VF = f'{OURS}.type == "pf"', f'{OURS}.type == "vf"'
POLICIES = (
    exclusive("vfs", VF, "sriov", "host-device"),
    exclusive("whole", PF, "host-device", deviceNameSuffix="-whole"),
    shared("mac", PF, deviceNameSuffix="-mac", exclusionGroup="g", supportedCNIPlugins=[{"name": "macvlan"}]),
    shared("ip", PF, deviceNameSuffix="-ip", exclusionGroup="g", supportedCNIPlugins=[{"name": "ipvlan"}]),
    policy("overlay", PF, deviceNameSuffix="-ovn", supportedCNIPlugins=[{"name": "ovn-k8s-cni-overlay"}]),
)
BONDED = """
- {name: vf0, type: sriov, selector: {cel: 'true'}}
- {name: vf1, type: sriov, selector: {cel: 'true'}}
- {name: bond0, type: bond, dependOn: [vf0, vf1], config: {mode: active-backup,
    links: ['{{ vf0.interfaceName }}', '{{ vf1.interfaceName }}']}}
"""


@dataclass
class View:
    """The node as the publishing half would have it."""

    slices: Sequence[ResourceSlice]
    topologies: Mapping[str, NetworkTopology] = field(default_factory=dict)
    vfs: Mapping[DeviceKey, Sequence[PlannedDevice]] = field(default_factory=dict)
    hardware: HardwareTable = field(default_factory=HardwareTable)
    ready: bool = True
    labels: Mapping[str, str] | None = None

    @property
    def devices(self) -> Mapping[DeviceKey, PlannedDevice]:
        return from_slices(self.slices)


@dataclass
class Holders:
    held: Sequence[HeldDevice] = ()

    def has_sandbox(self, claim: str) -> bool:
        return False

    def unrecorded(self, recorded: Recorded) -> Sequence[HeldDevice]:
        return [device for device in self.held if (device.key, device.claim, device.vf) not in recorded.held]


@dataclass
class Scene:
    """A node with a NIC, its devices published, and the handler of its claims behind a proxy."""

    workspace: Workspace
    node: str
    view: View
    holders: Holders
    proxy: FaultProxy
    claims: Claims
    store: ClaimStore
    files: ClaimFiles
    client: Client

    def restart(self) -> None:
        """Another daemon begins with the files of this one."""
        self.claims = handler(self.client, self.node, self.view, self.holders, self.store, self.files)

    def topology(self, name: str, steps: str, parameters: str = "[]") -> NetworkTopology:
        """A topology that the node knows, with its classes in the cluster; parameters are in flow style."""
        made = documents.read(
            f"apiVersion: networking.dra.io/v1alpha1\nkind: NetworkTopology\n"
            f"metadata: {{name: {self.workspace.name(name)}}}\nspec:\n  parameters: {parameters}\n  steps:\n"
            + "\n".join(f"    {line}" for line in steps.strip().splitlines()),
            "test",
        )
        (topology,) = made
        assert isinstance(topology, NetworkTopology)
        self.view.topologies = {**self.view.topologies, topology.name: topology}
        for each in device_classes(topology):
            self.workspace.create(documents.plain(each))
        return topology

    def device_class(self, expression: str, parameters: Any = None, **spec: Any) -> str:
        """A class that an administrator wrote by hand."""
        name = self.workspace.name(f"class-{next(_NUMBERS)}")
        opaque = {"opaque": {"driver": names.DRIVER, "parameters": parameters}}
        selectors = [{"cel": {"expression": f'device.driver == "{names.DRIVER}" && {expression}'}}]
        config = [opaque] if parameters is not None else []
        self.workspace.create(manifest(CLASS, name, spec={"selectors": selectors, "config": config, **spec}))
        return name

    def allocated(self, claim: str, *requests: Object, pods: int = 1, config: Any = (), **pod: Any) -> ClaimReference:
        """A claim that pods have and the scheduler has allocated here."""
        api, namespace = self.workspace.api, self.workspace.namespace
        spec = {"devices": {"requests": list(requests), "config": list(config)}}
        made = api.create(manifest(CLAIM, claim, namespace, spec=spec))
        for number in range(pods):
            self.run_pod(f"{claim}-{number}", claim, **pod)
        api.wait_for(
            CLAIM,
            claim,
            lambda found: len((found or {}).get("status", {}).get("reservedFor", [])) == pods,
            namespace=namespace,
        )
        return ClaimReference(namespace=namespace, name=claim, uid=made["metadata"]["uid"])

    def run_pod(self, name: str, claim: str = "", *, limits: Mapping[str, str] | None = None, **spec: Any) -> None:
        container = {"name": "main", "image": "none", "resources": {"limits": dict(limits or {})}}
        claims = [{"name": "net", "resourceClaimName": claim}] if claim else []
        self.workspace.api.create(
            manifest(
                POD,
                name,
                self.workspace.namespace,
                spec={
                    "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": False,
                    "nodeSelector": {HOSTNAME: self.node},
                    "containers": [container],
                    "resourceClaims": claims,
                    **spec,
                },
            )
        )


@asynccontextmanager
async def node(
    plane: ControlPlane,
    workspace: Workspace,
    folder: Path,
    policies: Sequence[DeviceExposurePolicy] = POLICIES,
) -> AsyncIterator[Scene]:
    name = workspace.add_node()
    interfaces = sriov("eth0", 6)
    found = expose(inventory(*interfaces, node=name), policies)
    slices = layout(found, node=name).slices
    workspace.publish(name, *(documents.plain(each) for each in slices))
    view, holders = View(slices, vfs=dict(pooled_vfs(found, interfaces))), Holders()
    store = ClaimStore.of_state(folder / "state")
    files = ClaimFiles(plugin=folder / "plugin", cdi=folder / "cdi")
    async with (
        asyncio.timeout(WITHIN),
        FaultProxy(plane).serving() as proxy,
        Client(connect(proxy.config)) as client,
    ):
        claims = handler(client, name, view, holders, store, files)
        scene = Scene(workspace, name, view, holders, proxy, claims, store, files, client)
        yield scene
        await scene.claims.aclose()


def pooled_vfs(
    found: ExposureResult, interfaces: Sequence[Interface]
) -> Iterator[tuple[DeviceKey, list[PlannedDevice]]]:
    """The VFs that claims of each device of pooled VFs can be given."""
    for device in found.devices:
        if device.lane is not None:
            yield (
                (device.pool, device.name),
                [
                    PlannedDevice(
                        request="",
                        pool=device.pool,
                        device=device.name,
                        if_name=vf.if_name,
                        type=vf.type,
                        mac=vf.mac,
                        pci_address=vf.pci_address,
                        pf_name=vf.pf_name,
                        vf_index=vf.vf_index,
                        supported_cnis=device.plugins,
                        pooled=True,
                    )
                    for vf in interfaces
                    if vf.identity in device.lane.vfs
                ],
            )


def request(name: str, device_class: str, **further: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": device_class, **further}}


def supporting(plugin: str) -> str:
    return f'{OURS}.supportedCNIs.contains(",{plugin},")'


def reserved(claim: Object | None) -> list[Object]:
    found: list[Object] = (claim or {}).get("status", {}).get("reservedFor", [])
    return found


def extended(pod: Object | None) -> Object:
    found: Object = (pod or {}).get("status", {}).get("extendedResourceClaimStatus", {})
    return found
