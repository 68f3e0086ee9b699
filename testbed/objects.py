"""Kubernetes objects that tests need around those of netdra: nodes that are only API objects, namespaces, pods.

Called by `testbed.workspace`, the cluster tests and the benchmarks. These functions wait by a watch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.api import Api, Object

CLASS = "resource.k8s.io/v1/DeviceClass"
CLAIM = "resource.k8s.io/v1/ResourceClaim"
NAMESPACE = "v1/Namespace"
NODE = "v1/Node"
POD = "v1/Pod"
SERVICE_ACCOUNT = "v1/ServiceAccount"
SLICE = "resource.k8s.io/v1/ResourceSlice"

HOSTNAME = "kubernetes.io/hostname"


def manifest(kind: str, name: str, namespace: str = "", **parts: Any) -> Object:
    """An object of a kind (`v1/Pod`), with its other top-level fields."""
    version, _, last = kind.rpartition("/")
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": version, "kind": last, "metadata": {"name": name, **place}, **parts}


def add_namespace(api: Api, name: str) -> Object:
    """Make a namespace, and wait until pods can be made in it: the controller manager gives it a service account."""
    namespace = api.create(manifest(NAMESPACE, name))
    api.wait_for(SERVICE_ACCOUNT, "default", lambda account: account is not None, namespace=name)
    return namespace


def add_node(api: Api, name: str, labels: Mapping[str, str] | None = None) -> Object:
    """Make a node that is Ready and has no kubelet: pods are scheduled onto it and stay there unstarted."""
    room = {"cpu": "1000", "memory": "1Ti", "pods": "10000"}
    ready = {"type": "Ready", "status": "True", "reason": "TestBed", "message": "a node without a machine"}
    node = manifest(NODE, name, status={"capacity": room, "allocatable": room, "conditions": [ready]})
    node["metadata"]["labels"] = {HOSTNAME: name, **(labels or {})}
    api.create(node)
    # The API server taints every node that is made, until the controller manager sees it Ready; this is quicker.
    return api.patch(NODE, name, {"spec": {"taints": None}})


def pod(namespace: str, name: str, claims: Mapping[str, str] | None = None, *, node: str = "") -> Object:
    """A pod with one container that uses resource claims: name inside the pod -> ResourceClaim.

    With `node` it is for that node only, by a selector, so that the scheduler still decides.
    """
    names = claims or {}
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": inside} for inside in names]}}
    spec = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "nodeSelector": {HOSTNAME: node} if node else {},
        "containers": [container],
        "resourceClaims": [{"name": inside, "resourceClaimName": claim} for inside, claim in names.items()],
    }
    return manifest(POD, name, namespace, spec=spec)


def scheduling(found: Object | None) -> tuple[str, str]:
    """The scheduler's decision on a pod: (node, "") or ("", why it does not fit), and ("", "") before."""
    conditions = (found or {}).get("status", {}).get("conditions", [])
    decided = next((condition for condition in conditions if condition["type"] == "PodScheduled"), None)
    if found is None or decided is None:
        return "", ""
    node: str = found["spec"].get("nodeName", "")
    return node, "" if node else decided.get("message", "")


def allocated(claim: Object | None) -> list[tuple[str, str]]:
    """The devices of a claim, as (pool, device), in the order of its allocation; none if it has no allocation."""
    allocation = (claim or {}).get("status", {}).get("allocation", {})
    return [(result["pool"], result["device"]) for result in allocation.get("devices", {}).get("results", [])]
