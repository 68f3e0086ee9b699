"""Read a claim and its pods before it is prepared: from the API server, or as they were just read for a pod.

Called by `netdra.node.claims.prepare`. A claim that is wrong by itself or by its pods is refused here; the node comes
later.
"""

from __future__ import annotations

from typing import Protocol

from netdra.kube.client import Client
from netdra.kube.errors import NotFoundError
from netdra.kube.resources import RESOURCE_CLAIMS, Resource
from netdra.model.claim import ResourceClaim
from netdra.model.core import ClusterPod
from netdra.model.errors import PermanentError
from netdra.model.plan import ClaimReference
from netdra.node.claims import checks
from netdra.node.claims.checks import named
from netdra.node.claims.store import PodReference, PodUser

PODS = Resource("v1", "pods", ClusterPod, namespaced=True)


class WatchedPods(Protocol):
    """Pods and their claims without asking the API server: `netdra.node.sandboxes.tracker`."""

    def users(self, claim: ResourceClaim) -> tuple[PodUser, ...]:
        """The known pods of this node that a claim is reserved for."""

    async def just_read(self, wanted: ClaimReference) -> ResourceClaim | None:
        """A claim as it has just been read for one of its pods; None if it was not."""


async def get_claim(client: Client, wanted: ClaimReference) -> ResourceClaim:
    """The claim as the API server has it now.

    Raises:
        ApiError: the API server did not answer.
        PermanentError: no such claim exists.
    """
    try:
        return await client.get(RESOURCE_CLAIMS, wanted.name, wanted.namespace)
    except NotFoundError:
        raise PermanentError(
            f"{named(wanted)} is not there any more",
            hint="delete the pod; its controller makes another one",
            code="ND2175",
        ) from None


async def get_pods(
    client: Client, node: str, watched: WatchedPods, claim: ResourceClaim, wanted: ClaimReference
) -> tuple[PodReference, ...]:
    """The pods of a claim that is to be prepared on a node.

    Args:
        client: for pods.
        node: this node's name.
        watched: pods that need not be read.
        claim: the claim as it was read.
        wanted: the claim that the kubelet means.

    Raises:
        ApiError: the API server did not answer.
        NetdraError: the claim is refused for a reason that lies in itself or in its pods.
    """
    checks.check_claim(claim, wanted, node)
    owned = any(not result.admin_access for result in checks.ours(claim))
    users = await users_of(client, claim, watched) if owned else ()
    for user in users:
        if user.on_host_network:
            raise checks.on_host_network(claim, user.pod.name)
    # Its successor waits until a pod that is being deleted has ended.
    staying = tuple(user.pod for user in users if not user.is_ending)
    return staying or tuple(user.pod for user in users)


async def users_of(client: Client, claim: ResourceClaim, watched: WatchedPods) -> tuple[PodUser, ...]:
    """The pods that a claim is reserved for.

    A pod that is gone or was replaced does not count. A watched pod is not asked for: its network never changes. The
    pods of a PodGroup are those that are watched.

    Raises:
        ApiError: the API server did not answer.
    """
    known = {user.pod.uid: user for user in watched.users(claim)}
    users = list(known.values())
    for consumer in claim.status.reserved_for:
        if consumer.resource != "pods" or consumer.api_group or consumer.uid in known:
            continue
        try:
            pod = await client.get(PODS, consumer.name, claim.metadata.namespace)
        except NotFoundError:
            continue
        if pod.metadata.uid == consumer.uid:
            reference = PodReference(name=consumer.name, uid=consumer.uid)
            users.append(PodUser(reference, pod.spec.host_network, pod.metadata.is_ending))
    return tuple(users)
