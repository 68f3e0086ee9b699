"""What the kubelet asks of a claim, and who answers.

The gRPC services call a `ClaimHandler`, for v1 and v1beta1 alike (k8s.io/kubelet/pkg/apis/dra).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from netdra.model.plan import ClaimReference


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An allocated device as the kubelet is told of it.

    Attributes:
        requests: the requests of the claim that it is for, as they stand in the allocation ("main" or "main/sub").
        pool: the pool of its ResourceSlice.
        device: its name there.
        cdi_ids: CDI devices, by qualified name, that containers with these requests are given.
        share_id: which share of a device with multiple allocations, "" for a device that is had whole.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...] = ()
    share_id: str = ""


class ClaimHandler(Protocol):
    """Who prepares claims. Both calls are idempotent: the kubelet repeats them, also with two daemons at once."""

    async def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        """Make a claim of a pod on this node ready; asked again, answer the same.

        Raises:
            NetdraError: it is not; its text becomes the pod's event. The kubelet asks again only after a minute or
                so, so transient faults are retried inside, for at most 30 of its 45 seconds.
        """

    async def unprepare(self, claim: ClaimReference) -> None:
        """The last pod that used a claim is gone. One that was never prepared, or no longer is, is no error.

        Raises:
            NetdraError: something could not be undone; the kubelet asks again.
        """
