"""A node whose pods have plugins that hang, for tests of the waits of other pods.

`test_hanging_plugins` has the runtime as a lock, `tests/cluster/pods/test_hanging_hooks.py` a real one. All behind is
netdra's own (hooks, chain, programs, namespaces), but nothing is asked of an API server.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from netdra.chain.site import ChainSettings
from netdra.cni.plugins import PluginPath
from netdra.kernel import libc
from netdra.model.claim import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from netdra.model.meta import ObjectMeta
from netdra.model.names import DRIVER
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.model.topology import NetworkTopology
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore, KeptDevice, PreparedClaim, PreparedDevice, cdi_id
from netdra.node.hardware import HardwareTable
from netdra.node.nri.hooks import Sandbox
from netdra.node.parts import Dependencies, Pods
from netdra.node.permits import EVERYTHING
from netdra.node.sandboxes.hooks import Threads
from netdra.node.sandboxes.tracker import Tracker
from netdra.ops.boot import boot_id
from netdra.topology.classes import device_classes
from netdra.topology.devices import DeviceKey
from testbed.recorder import Recorder
from tests.kernel.conftest import Machine

NODE = "node"
HOOK_SECONDS = 1.75
"""What one hook takes at most of the two seconds that a runtime waits (docs/nri.md)."""
IN_VAIN = 0.8
"""A hook that takes longer waited in vain: a plugin that hangs has 0.87 s."""


class Known(Tracker):
    """A tracker that knows which claim a pod has, as of pods that it has seen come."""

    of_pods: dict[str, ClaimReference]

    def knows_to_be_claimless(self, sandbox: Sandbox) -> bool:
        return sandbox.uid not in self.of_pods

    async def claims_of(self, sandbox: Sandbox, seconds: float) -> tuple[ClaimReference, ...]:
        return (self.of_pods[sandbox.uid],)


@dataclass
class View:
    """The node as the publishing half would have it."""

    devices: dict[DeviceKey, PlannedDevice] = field(default_factory=dict)
    topologies: dict[str, NetworkTopology] = field(default_factory=dict)
    slices: tuple[Any, ...] = ()
    vfs: dict[DeviceKey, Sequence[PlannedDevice]] = field(default_factory=dict)
    hardware: HardwareTable = field(default_factory=HardwareTable)
    ready: bool = True
    labels: Mapping[str, str] | None = None


@dataclass
class Node:
    """A node, and the half of netdra's daemon that keeps its pods."""

    machine: Machine
    folder: Path
    pods: Pods = field(init=False)
    view: View = field(default_factory=View)

    def plugin(self, *hangs: str) -> Recorder:
        """A new plugin, which does not answer these verbs."""
        folder = self.folder / "plugins"
        folder.mkdir(exist_ok=True)
        made = Recorder(folder, f"far-{uuid.uuid4().hex[:6]}")
        for verb in hangs:
            made.does(verb, "exec sleep 600")
        return made

    def start(self) -> None:
        """Start the daemon's half that keeps pods."""
        host = self.machine.namespace.fd
        self.pods = Pods.assemble(
            Dependencies(
                client=None,  # type: ignore[arg-type]  # nothing is asked of an API server
                node=NODE,
                settings=ChainSettings(
                    state=self.folder / "sandboxes",
                    plugins=PluginPath(directories=(str(self.folder / "plugins"),)),
                ),
                files=ClaimFiles(plugin=self.folder / "plugin", cdi=self.folder / "cdi"),
                prepared=ClaimStore.of_state(self.folder),
                view=self.view,
                emit=lambda _: None,
                threads=Threads.made(lambda: libc.setns(host, libc.CLONE_NEWNET)),
                permits=EVERYTHING,
            )
        )
        tracker = Known(self.pods.tracker.client, self.pods.tracker.reflector, self.pods.tracker.records)
        tracker.of_pods = {}
        self.pods.hooks.tracker = tracker

    async def end(self, plugins: Sequence[Recorder]) -> None:
        """Let plugins answer, and wait until no work is in progress."""
        for plugin in plugins:
            plugin.prints("ADD", {})
            plugin.does("DEL", "exit 0")
        await self.pods.hooks.aclose()

    def prepare(self, pod: str, *plugins: Recorder) -> None:
        """A claim of the pod with that name and uid, for a device of its own and for steps of plugins, is prepared."""
        name = f"eth-{pod}"
        self.machine.veth(name, f"far-{pod}")
        device = PlannedDevice(request="nic", pool=NODE, device=name, if_name=name, supported_cnis=("host-device",))
        self.view.devices[NODE, name] = device
        topology = _topology(pod, plugins)
        self.view.topologies[topology.metadata.name] = topology
        claim = _claim(pod, topology)
        _, plan = self.pods.claims.preparation.bind(claim)
        told = PreparedDevice(requests=("nic",), pool=NODE, device=name, cdi_ids=(cdi_id(claim.metadata.uid, "nic"),))
        kept = KeptDevice(told=told, facts=device)
        self.pods.network.table.prepared.put(
            PreparedClaim(boot_id=boot_id(), claim=claim.reference, devices=(kept,), plan=plan)
        )
        assert isinstance(self.pods.hooks.tracker, Known)
        self.pods.hooks.tracker.of_pods[pod] = claim.reference


def _topology(base: str, plugins: Sequence[Recorder]) -> NetworkTopology:
    steps: list[dict[str, Any]] = [{"name": "nic", "type": "host-device", "selector": {"cel": "true"}}]
    for number, plugin in enumerate(plugins):
        steps.append({"name": f"step{number}", "type": plugin.name, "dependOn": [steps[-1]["name"]]})
    metadata = {"name": f"t-{base}", "uid": str(uuid.uuid4()), "generation": 1}
    whole = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "NetworkTopology", "metadata": metadata}
    return msgspec.convert({**whole, "spec": {"steps": steps}}, NetworkTopology)


def _claim(pod: str, topology: NetworkTopology) -> ResourceClaim:
    (device_class,) = device_classes(topology)
    (config,) = device_class.spec.config
    assert config.opaque is not None
    opaque = OpaqueDeviceConfiguration(driver=DRIVER, parameters=config.opaque.parameters)
    result = DeviceRequestAllocationResult(request="nic", driver=DRIVER, pool=NODE, device=f"eth-{pod}")
    devices = DeviceAllocationResult(
        results=(result,),
        config=(DeviceAllocationConfiguration(source="FromClass", requests=("nic",), opaque=opaque),),
    )
    user = ResourceClaimConsumerReference(resource="pods", name=pod, uid=pod)
    return ResourceClaim(
        metadata=ObjectMeta(name=f"c-{pod}", namespace="ns", uid=str(uuid.uuid4())),
        spec=ResourceClaimSpec(),
        status=ResourceClaimStatus(allocation=AllocationResult(devices=devices), reserved_for=(user,)),
    )
