"""The owner that a caller of the device registry registers as: a user of the node, or a pod's service account.

Used by `netdra.node.registry.service` for each call that changes something. The kernel reports which user has the other
end of a connection. In a cluster many pods run as one user, so a pod shows a token that was made out for netdra
(`serviceAccountToken` of a projected volume, with the audience `dra.networking`). The API server names the token's
service account.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from weakref import WeakValueDictionary

from netdra.kube.client import Client
from netdra.kube.resources import TOKEN_REVIEWS, TokenReview, TokenReviewSpec
from netdra.model import names
from netdra.node.registry.connections import Caller
from netdra.node.registry.owners import ROOT
from netdra.node.registry.shares import RefusedRegistrationError

AUDIENCE = names.DRIVER
KEPT_SECONDS = 60.0
MOST_KEPT = 256
MAX_TOKEN = 16 * 1024
MAX_REVIEWS = 2
"""Reviews at one time: hooks look up claims by the same connections to the API server."""
_ACCOUNT = "system:serviceaccount:"
_NODE = "authentication.kubernetes.io/node-name"


def _token_error(what: str, *, hint: str = "") -> RefusedRegistrationError:
    return RefusedRegistrationError(what, hint=hint, reason="NO_TOKEN", code="ND2204")


class Callers:
    """The owners of callers; a token's review is remembered for a while."""

    def __init__(self, client: Client, node: str, *, tokens_only: bool) -> None:
        """Begin without any.

        Args:
            node: this node; a token of another node's pod is refused.
            tokens_only: whether a call without a token is refused.
        """
        self._client = client
        self._node = node
        self._tokens_only = tokens_only
        self._known: dict[bytes, tuple[float, str]] = {}
        self._reviews = asyncio.Semaphore(MAX_REVIEWS)
        self._locks = WeakValueDictionary[bytes, asyncio.Lock]()

    async def owner(self, caller: Caller) -> str:
        """The caller's name: `root`, `uid:<number>`, or a service account's name as the API server has it.

        The user 0 of a container is `uid:0`; `root` is the node's own.

        Raises:
            RefusedRegistrationError: the token is not for this registry, or a token is missing.
            ApiError: the API server did not review the token.
        """
        if not caller.token:
            if self._tokens_only:
                raise _token_error(
                    "this registry asks for a token",
                    hint=f"send the metadata authorization: Bearer TOKEN, of a projected token for {AUDIENCE}",
                )
            return ROOT if caller.is_root else f"uid:{caller.uid}"
        if len(caller.token) > MAX_TOKEN:
            raise _token_error(f"the token has {len(caller.token)} bytes, more than {MAX_TOKEN}")
        digest = hashlib.sha256(caller.token.encode(errors="replace")).digest()
        owner = self._remembered(digest)
        if owner:
            return owner
        # A token that many calls show at once is reviewed for the first, and the others wait without a review's place.
        async with self._locks.setdefault(digest, asyncio.Lock()), self._reviews:
            owner = self._remembered(digest)
            if not owner:
                owner = await self._review(caller.token)
                while len(self._known) >= MOST_KEPT:
                    del self._known[next(iter(self._known))]
                self._known[digest] = time.monotonic() + KEPT_SECONDS, owner
        return owner

    def _remembered(self, digest: bytes) -> str:
        until, owner = self._known.get(digest, (0.0, ""))
        return owner if time.monotonic() < until else ""

    async def _review(self, token: str) -> str:
        asked = TokenReview(spec=TokenReviewSpec(token=token, audiences=(AUDIENCE,)))
        status = (await self._client.create(TOKEN_REVIEWS, asked)).status
        if status is None or not status.authenticated or AUDIENCE not in status.audiences:
            why = f": {status.error}" if status is not None and status.error else ""
            raise _token_error(
                f"the token is not valid here{why[:200]}", hint=f"project one with the audience {AUDIENCE}"
            )
        if not status.user.username.startswith(_ACCOUNT):
            raise _token_error(f"the token is {status.user.username}'s, which is not the service account of a pod")
        nodes = status.user.extra.get(_NODE, ())
        if not nodes:
            raise _token_error(
                "the token is not bound to a pod on a node, so any machine could show it",
                hint="use a projected serviceAccountToken volume, or kubectl create token --bound-object-kind=Pod",
            )
        if self._node not in nodes:
            raise _token_error(f"the token is of a pod on node {nodes[0]}, and this is {self._node}")
        return status.user.username
