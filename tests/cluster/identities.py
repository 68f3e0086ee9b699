"""netdra's processes as the API server knows them: their namespace, service accounts and rights, and tokens of these.

A token of a pod is bound to the pod's node, as the kubelet's are: by it the API server distinguishes the drivers of
nodes.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from testbed import helm, objects
from testbed.access import Access
from testbed.api import Api, Object
from testbed.objects import NAMESPACE, POD
from testbed.waiting import until

NETDRA = "netdra"
_NUMBERS = itertools.count(1)


def template(name: str) -> list[Object]:
    """The objects of one of the chart's templates, as helm makes them of its own values."""
    return helm.objects(helm.installed(NETDRA), name)


@cache
def _with_all() -> str:
    return helm.template(helm.CHARTS / NETDRA, NETDRA, NETDRA, helm.WITH_ALL)


def rights(name: str) -> list[Object]:
    """The objects of one of the chart's templates, with the rights for all that netdra can do."""
    return helm.objects(_with_all(), name)


INSTALLED = (
    "rights.yaml",
    "own-node.yaml",
    "own-controller.yaml",
    "own-taints.yaml",
    "own-schemas.yaml",
    "own-daemonsets.yaml",
    "own-neutron-ports.yaml",
    "own-pod-addresses.yaml",
    "own-reservations.yaml",
    "own-endpointslices.yaml",
    "certificate-keeper.yaml",
)


def install(api: Api) -> None:
    """The namespace, the rights, and the policies that restrict each process to its own objects."""
    if not any(found["metadata"]["name"] == NETDRA for found in api.list(NAMESPACE)):
        objects.add_namespace(api, NETDRA)
    for manifest in (each for name in INSTALLED for each in rights(name)):
        api.apply(manifest)
    until(lambda: _may_list_nodes(api, "netdra-controller"), "the API server to know the rights")


def _may_list_nodes(api: Api, account: str) -> bool:
    """Whether an account has what it is given last: the API server follows roles a moment later."""
    asked = {
        "user": f"system:serviceaccount:{NETDRA}:{account}",
        "resourceAttributes": {"verb": "list", "resource": "nodes"},
    }
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": asked}
    allowed: bool = api.create(review)["status"]["allowed"]
    return allowed


def kubeconfig(plane: Access, api: Api, account: str, node: str = "", namespace: str = NETDRA) -> Path:
    """A kubeconfig file for a service account; with a node, as a pod of netdra's namespace there has it."""
    pod = _pod(api, account, node) if node else None
    token = _token(api, account, pod, namespace=namespace)
    path = plane.authority.folder / f"{account}-{next(_NUMBERS)}.kubeconfig"
    cluster = {"server": plane.server, "certificate-authority": str(plane.authority.own.certificate)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": cluster}],
        "users": [{"name": account, "user": {"token": token}}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": account}}],
        "current-context": "testbed",
    }
    path.write_text(json.dumps(config))
    return path


def allocated(name: str, topology: str, steps: Sequence[str], node: str = "") -> Object:
    """A claim's status as the scheduler writes it: a device of a topology's class for each step."""
    results = [
        {"request": step, "driver": "dra.networking", "pool": "pool", "device": f"{name}-{step}"} for step in steps
    ]
    config: list[Any] = [
        {
            "source": "FromClass",
            "requests": [step],
            "opaque": {
                "driver": "dra.networking",
                "parameters": {"networkTopologyRef": {"name": topology}, "step": step},
            },
        }
        for step in steps
    ]
    allocation: Object = {"devices": {"results": results, "config": config}}
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"allocation": allocation}


def _pod(api: Api, account: str, node: str) -> Object:
    name = f"{account}-{uuid.uuid4().hex[:8]}"  # a node that was started anew finds its former driver's pod
    spec = {
        "serviceAccountName": account,
        "nodeName": node,
        "hostNetwork": True,
        "containers": [{"name": "main", "image": "none"}],
    }
    made = api.create(objects.manifest(POD, name, NETDRA, spec=spec))
    # Nobody is to run it: a kubelet would pull its image again and again.
    api.patch(POD, name, {"status": {"phase": "Succeeded"}}, namespace=NETDRA, subresource="status")
    return made


def token(api: Api, account: str, node: str, *audiences: str) -> str:
    """A token of a service account as a pod on a node has it: for the API server, or for others."""
    return _token(api, account, _pod(api, account, node), audiences)


def _token(
    api: Api, account: str, pod: Object | None, audiences: Sequence[str] = (), *, namespace: str = NETDRA
) -> str:
    bound = {}
    if pod is not None:
        metadata = pod["metadata"]
        bound = {
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        }
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600, "audiences": [*audiences], **bound},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    found: str = api.request("POST", path, request)["status"]["token"]
    return found
