"""Reads the objects of a cluster or a node for a support bundle. Called by `netdra support-bundle`.

A right that the user lacks is noted, and the rest is read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from netdra import __version__
from netdra.bundle.archive import MIB, LeftOut
from netdra.bundle.content import Collected, Parts
from netdra.bundle.recorded import VERSIONS, objects_file
from netdra.cluster.objects import ClusterEvent, PlacedPod
from netdra.cluster.reading import EVENTS, NODES, PODS, TAINT_RULES, WORKLOADS
from netdra.doctor.cluster_verdicts import NETDRA_PODS, PART_LABEL
from netdra.kube import resources
from netdra.kube.client import Client, Selection
from netdra.kube.errors import ApiError, UnavailableError
from netdra.kube.resources import Resource
from netdra.model.core import ClusterNode

T = TypeVar("T")

KINDS: tuple[Resource[Any], ...] = (
    resources.NODE_NETWORKS,
    resources.TOPOLOGIES,
    resources.TOPOLOGY_USAGES,
    resources.POLICIES,
    resources.POLICY_ROLLOUTS,
    resources.CUSTOM_DEVICES,
    resources.CUSTOM_DEVICE_ROLLOUTS,
    resources.CNI_PLUGINS,
    resources.SCHEMAS,
    resources.POD_NETWORKS,
    resources.DEVICE_CLASSES,
    resources.RESOURCE_CLAIMS,
    PODS,
    resources.RESOURCE_SLICES,
    NODES,
    TAINT_RULES,
    resources.CLAIM_TEMPLATES,
    resources.POD_ADDRESSES,
    resources.NEUTRON_PORTS,
    EVENTS,
)
"""The kinds of which all objects are read, the most important ones first."""
MOST_LOGS = 40
"""The pods of netdra whose logs and metrics are read."""
_LOG_LINES = 5000
_LOG_BYTES = MIB
_MOST_WORKLOADS = 500
_METRICS_PORT = "metrics"
_OF_DRIVER = "node"


class ClusterReading:
    """Collects the parts of a bundle.

    Attributes:
        collected: what was read so far.
    """

    def __init__(self, client: Client, namespace: str, done: Callable[[], object]) -> None:
        """Read nothing yet.

        Args:
            namespace: netdra's.
            done: called for each kind, and then for the pods of netdra.
        """
        self.collected = Collected()
        self._client = client
        self._namespace = namespace
        self._done = done

    async def read(self) -> None:
        """Read everything.

        Raises:
            ApiError: the API server does not answer.
        """
        version = msgspec.json.decode(await self._client.read("/version", "version"))
        for resource in KINDS:
            await self._objects(resource)
            self._done()
        await self._workloads()
        await self._versions(str(version.get("gitVersion", "")))
        await self._processes()
        self._done()

    async def _objects(self, resource: Resource[Any]) -> None:
        found = await self._attempt(objects_file(resource.plural), self._client.list(resource))
        if found is not None:
            self.collected.objects[resource.plural] = sorted(found, key=_rank)

    async def _workloads(self) -> None:
        """The owners of pods with claims, which `netdra why deployment NAME` finds pods by."""
        pods = [pod for pod in self.collected.objects.get(PODS.plural, ()) if pod.spec.resource_claims]
        wanted, found = _owners(pods), dict[str, dict[tuple[str, str], Any]]()
        for kind, namespace, name in wanted:
            resource = WORKLOADS[kind]
            of_kind = found.setdefault(resource.plural, {})
            if (namespace, name) in of_kind or sum(map(len, found.values())) >= _MOST_WORKLOADS:
                continue
            workload = await self._attempt(objects_file(resource.plural), self._client.get(resource, name, namespace))
            if workload is not None:
                of_kind[namespace, name] = workload
                wanted += _owners([workload])
        self.collected.objects |= {plural: [*of_kind.values()] for plural, of_kind in found.items() if of_kind}

    async def _versions(self, server: str) -> None:
        def versions(node: ClusterNode) -> tuple[str, str]:
            return node.status.node_info.kubelet_version, node.status.node_info.container_runtime_version

        nodes = await self._attempt("versions of nodes", self._client.gather(resources.NODES, versions))
        counts = Counter(nodes or ())
        self.collected.data[VERSIONS,] = {
            "netdra": __version__,
            "kubernetes": server,
            "nodes": [
                {"kubelet": kubelet, "containerRuntime": runtime, "count": count}
                for (kubelet, runtime), count in counts.most_common()
            ],
        }

    async def _processes(self) -> None:
        """The logs and metrics of netdra's pods."""
        chosen = Selection(namespace=self._namespace, label_selector=NETDRA_PODS)
        pods = await self._attempt("logs and metrics", self._client.list(PODS, chosen)) or []
        ordered = sorted(pods, key=lambda pod: (_is_driver(pod), pod.is_ready))
        for pod in ordered[:MOST_LOGS]:
            for container in pod.spec.containers or ():
                await self._log(pod, container.name, is_previous=False)
                if _has_restarted(pod, container.name):
                    await self._log(pod, container.name, is_previous=True)
            if not _is_driver(pod):
                await self._metrics(pod)
        if len(ordered) > MOST_LOGS:
            reason = (
                f"the logs of {len(ordered) - MOST_LOGS} of {len(ordered)} pods: over the limit of {MOST_LOGS} pods"
            )
            self.collected.left_out.append(LeftOut(part="logs", reason=reason))

    async def _log(self, pod: PlacedPod, container: str, *, is_previous: bool) -> None:
        name = f"{container}.previous.log" if is_previous else f"{container}.log"
        parts: Parts = ("logs", pod.metadata.name, name)
        wanted = {"container": container, "tailLines": str(_LOG_LINES), "limitBytes": str(_LOG_BYTES)}
        if is_previous:
            wanted["previous"] = "true"
        path = f"{PODS.path(pod.metadata.namespace, pod.metadata.name)}/log"
        text = await self._attempt("/".join(parts), self._client.read(path, "logs", wanted))
        if text is not None:
            self.collected.logs[parts] = text.decode(errors="replace")

    async def _metrics(self, pod: PlacedPod) -> None:
        parts: Parts = ("metrics", f"{pod.metadata.name}.txt")
        path = f"{PODS.path(pod.metadata.namespace, f'{pod.metadata.name}:{_METRICS_PORT}')}/proxy/metrics"
        text = await self._attempt("/".join(parts), self._client.read(path, "metrics"))
        if text is not None:
            self.collected.texts[parts] = text.decode(errors="replace")

    async def _attempt(self, part: str, request: Awaitable[T]) -> T | None:
        """The answer to a request; None if the API server refuses it, which is noted once for each part.

        Raises:
            ApiError: the API server does not answer.
        """
        try:
            return await request
        except ApiError as problem:
            if isinstance(problem, UnavailableError) and not problem.status.code:
                raise
            if all(entry.part != part for entry in self.collected.left_out):
                code = problem.status.code
                self.collected.left_out.append(LeftOut(part=part, reason=_refusal(problem), code=code))
            return None


def _refusal(problem: ApiError) -> str:
    """Why a part cannot be read, without the names in the API server's text."""
    code = problem.status.code
    if code == HTTPStatus.FORBIDDEN:
        return "you are not allowed to read this part"
    if code == HTTPStatus.NOT_FOUND:
        return "the cluster does not have this part"
    return f"the API server answered with status {code}"


def _rank(entry: Any) -> Any:
    """The order in which objects of a kind are kept if not all fit: pods with claims, and the latest events, first."""
    if isinstance(entry, PlacedPod):
        return not entry.spec.resource_claims, entry.is_ready
    return _Backwards(entry.time) if isinstance(entry, ClusterEvent) else 0


class _Backwards(str):
    """Sorts the greatest text first."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def _owners(found: Iterable[Any]) -> list[tuple[str, str, str]]:
    """The kind, namespace and name of workloads that own objects."""
    owners = (
        (owner.kind.lower(), entry.metadata.namespace, owner.name)
        for entry in found
        for owner in entry.metadata.owner_references
        if owner.kind.lower() in WORKLOADS
    )
    return [*dict.fromkeys(owners)]


def _is_driver(pod: PlacedPod) -> bool:
    return pod.metadata.labels.get(PART_LABEL) == _OF_DRIVER


def _has_restarted(pod: PlacedPod, container: str) -> bool:
    states = pod.status.container_statuses or ()
    return any(state.name == container and state.last_state for state in states)


def read_cluster(client: Client, namespace: str, done: Callable[[], object]) -> Collected:
    """Read netdra's view of a cluster.

    Raises:
        ApiError: the API server does not answer.
    """

    async def read() -> Collected:
        async with client:
            reading = ClusterReading(client, namespace, done)
            await reading.read()
            return reading.collected

    return asyncio.run(read())
