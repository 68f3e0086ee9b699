"""What is kept of a claim from Prepare to Unprepare: enough to answer the kubelet again, and to clean up without API.

Made by `prepare`, kept by `store`, read by `netdra.node.cdi` and by whoever asks what is prepared on this node.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from netdra.model import names
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.model.resource import DeviceAttribute
from netdra.topology.devices import DeviceKey

VERSION = 1
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""The annotation with the name by which the pods of a template know the claim."""
CDI_KIND = f"{names.DRIVER}/claim"


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


class KeptDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An allocated device of ours.

    Attributes:
        told: what the kubelet was told of it.
        facts: what it was then.
        admin_access: its owner is somebody else and keeps it.
        attributes: what was published of it, for the container's metadata.
    """

    told: PreparedDevice
    facts: PlannedDevice
    admin_access: bool = False
    attributes: Mapping[str, DeviceAttribute] = {}

    @property
    def key(self) -> DeviceKey:
        """Its pool and name."""
        return self.told.pool, self.told.device

    @property
    def request(self) -> str:
        """The claim's request that it answers, whichever of its alternatives was chosen."""
        return base_request(self.told.requests[0])


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A claim that is prepared on this node.

    Attributes:
        boot_id: the boot in which it was; after another one the devices are to be looked at anew.
        claim: which claim.
        devices: its devices of ours, in the order of its allocation.
        pod_claim_name: what the pods of its template call it, "" for a claim that was made by hand.
        version: of this format.
    """

    boot_id: str
    claim: ClaimReference
    devices: tuple[KeptDevice, ...]
    pod_claim_name: str = ""
    version: int = VERSION

    @property
    def requests(self) -> tuple[str, ...]:
        """Its requests with devices of ours, each once."""
        return tuple(dict.fromkeys(each.request for each in self.devices))

    @property
    def told(self) -> tuple[PreparedDevice, ...]:
        """What the kubelet was told."""
        return tuple(each.told for each in self.devices)


def cdi_device(uid: str, request: str) -> str:
    """The CDI device of a claim's request: letters, digits and dashes only, as both are, and never used again."""
    return f"{uid}-{request}"


def cdi_id(uid: str, request: str) -> str:
    """The qualified name by which the kubelet hands it to the runtime."""
    return f"{CDI_KIND}={cdi_device(uid, request)}"


def base_request(request: str) -> str:
    """A request's own name, of `main` and of `main/alternative` alike."""
    return request.partition("/")[0]
