"""Whether netdra runs in a cluster: its workloads, its pods, and the controller's lease, in all namespaces.

Called by `netdra uninstall clean`, which deletes objects that running processes need. An API server that does not
answer is not a proof: every error is raised, and nothing is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from netdra.kube.client import Client, Selection
from netdra.kube.leader import LEASES, Lease, Terms
from netdra.kube.resources import Resource
from netdra.model.core import BareObject, ClusterPod
from netdra.model.names import CONTROLLER_LEASE
from netdra.ops.boot import since_boot

PROCESSES = "app.kubernetes.io/part-of=netdra,app.kubernetes.io/component in (node,controller,webhook)"
"""The label selector of netdra's workloads and their pods; not of pods that install CNI plugins, nor of hooks."""
WORKLOADS = {
    kind: Resource("apps/v1", f"{kind.lower()}s", BareObject, namespaced=True) for kind in ("DaemonSet", "Deployment")
}
PODS = Resource("v1", "pods", ClusterPod, namespaced=True)
_LOOK_SECONDS = 1.0


class RunningProcess(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An object that shows that netdra runs.

    Attributes:
        kind, name: of the object, the name as `<namespace>/<name>`.
        state: its state in words.
        ends: whether it may be gone soon: it is being deleted, or the lease may expire.
    """

    kind: str
    name: str
    state: str
    ends: bool


@dataclass
class _Renewals:
    """The leases' last renewals, and when this process first saw each; the times in a lease are of another clock."""

    seen: dict[str, tuple[str, float]] = field(default_factory=dict)

    def held(self, lease: Lease) -> bool:
        """Whether a process holds the lease, or may do: it is not released, and was renewed while we watch it."""
        if not lease.spec.holder_identity:
            return False
        name = _full_name(lease)
        version, since = self.seen.get(name, ("", 0.0))
        if version != lease.metadata.resource_version:
            self.seen[name] = (lease.metadata.resource_version, since_boot())
            return True
        return since_boot() - since <= (lease.spec.lease_duration_seconds or Terms().duration)


def _full_name(found: BareObject | Lease) -> str:
    return f"{found.metadata.namespace}/{found.metadata.name}"


async def wait_until_gone(client: Client, seconds: float) -> tuple[RunningProcess, ...]:
    """Wait until none of netdra's processes is left, and return those that are.

    It does not wait for a Deployment or DaemonSet that is not being deleted: netdra is installed. It waits for pods
    that end, and for a lease until it is released or was not renewed for its duration (client-go's rule for taking a
    lease over).

    Args:
        seconds: how long to wait.

    Raises:
        ApiError: the objects cannot be read.
    """
    deadline = since_boot() + seconds
    renewals = _Renewals()
    while True:
        processes = await _processes(client, renewals)
        if not processes or since_boot() >= deadline or not all(process.ends for process in processes):
            return tuple(sorted(processes))
        await asyncio.sleep(_LOOK_SECONDS)


async def _processes(client: Client, renewals: _Renewals) -> list[RunningProcess]:
    ours = Selection(label_selector=PROCESSES)
    workloads = [
        _workload(kind, workload)
        for kind, resource in WORKLOADS.items()
        for workload in await client.list(resource, ours)
    ]
    leases = await client.list(LEASES, Selection(field_selector=f"metadata.name={CONTROLLER_LEASE}"))
    return [*workloads, *_pods(await client.list(PODS, ours)), *_leases(leases, renewals)]


def _workload(kind: str, found: BareObject) -> RunningProcess:
    ends = found.metadata.deletion_timestamp is not None
    return RunningProcess(
        kind=kind, name=_full_name(found), state="is being deleted" if ends else "is installed", ends=ends
    )


def _pods(pods: Iterable[ClusterPod]) -> Iterable[RunningProcess]:
    """The pods whose containers run, or may do; a pod without its workload is deleted by the garbage collector."""
    for pod in pods:
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        where = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
        state = "has not ended" if pod.metadata.deletion_timestamp is not None else "runs"
        yield RunningProcess(kind="Pod", name=_full_name(pod), state=f"{state}{where}", ends=True)


def _leases(leases: Iterable[Lease], renewals: _Renewals) -> Iterable[RunningProcess]:
    for lease in leases:
        if renewals.held(lease):
            state = f"is held by {lease.spec.holder_identity}"
            yield RunningProcess(kind="Lease", name=_full_name(lease), state=state, ends=True)
