"""Device metadata files (KEP-5304): what a container can read of its devices, in the API's own words.

Pure; `files` writes them at Prepare with what was published, and again after the chain with the network's facts.
Follows metadata.resource.k8s.io/v1alpha1 and the paths of k8s.io/dynamic-resource-allocation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from netdra.model import names
from netdra.model.claim import NetworkDeviceData
from netdra.model.resource import DeviceAttribute, Wire
from netdra.node.cdi.outcome import DeviceOutcome
from netdra.node.cdi.spec import Mount
from netdra.node.claims.prepared import KeptDevice, PreparedClaim

FOLDER = "dra-device-metadata"
FILE = "metadata.json"
CONTAINER_FOLDER = "/var/run/kubernetes.io/dra-device-attributes"


class MetadataName(Wire, frozen=True):
    """Which claim the metadata is of, and how often it was written."""

    name: str
    namespace: str
    uid: str
    generation: int


class DescribedDevice(Wire, frozen=True):
    """A device as containers read of it."""

    driver: str
    pool: str
    name: str
    attributes: Mapping[str, DeviceAttribute] = {}
    network_data: NetworkDeviceData | None = None


class DescribedRequest(Wire, frozen=True):
    """A request's devices."""

    name: str
    devices: tuple[DescribedDevice, ...] = ()


class DeviceMetadata(Wire, frozen=True, omit_defaults=False):
    """The content of a metadata file."""

    metadata: MetadataName
    pod_claim_name: str | msgspec.UnsetType
    requests: tuple[DescribedRequest, ...]
    api_version: Literal["metadata.resource.k8s.io/v1alpha1"] = "metadata.resource.k8s.io/v1alpha1"
    kind: Literal["DeviceMetadata"] = "DeviceMetadata"


def render(prepared: PreparedClaim, request: str, outcomes: Sequence[DeviceOutcome] = ()) -> DeviceMetadata:
    """A request's metadata.

    Args:
        prepared: the claim.
        request: its request.
        outcomes: what its devices became; none before they have become anything.
    """
    claim = prepared.claim
    networks = {(each.key, each.share_id): each.network for each in outcomes}
    devices = tuple(
        _described(kept, networks.get((kept.key, kept.told.share_id)))
        for kept in prepared.devices
        if kept.request == request
    )
    return DeviceMetadata(
        metadata=MetadataName(
            name=claim.name, namespace=claim.namespace, uid=claim.uid, generation=2 if outcomes else 1
        ),
        pod_claim_name=prepared.pod_claim_name or msgspec.UNSET,
        requests=(DescribedRequest(name=request, devices=devices),),
    )


def encode(metadata: DeviceMetadata) -> bytes:
    """The metadata as the text of its file."""
    return msgspec.json.format(msgspec.json.encode(metadata), indent=2) + b"\n"


def container_path(prepared: PreparedClaim, request: str) -> str:
    """Where a container finds the file: by the name that its pod knows the claim by.

    That name is an annotation, which whoever makes a claim can write: one that is none of Kubernetes' counts as none.
    """
    kind, name = (
        ("resourceclaimtemplates", prepared.pod_claim_name)
        if names.is_label(prepared.pod_claim_name)
        else ("resourceclaims", prepared.claim.name)
    )
    return f"{CONTAINER_FOLDER}/{kind}/{name}/{request}/{names.DRIVER}-metadata.json"


def mount(prepared: PreparedClaim, request: str, host_path: str) -> Mount:
    """The mount that shows a container the file."""
    return Mount(
        host_path=host_path, container_path=container_path(prepared, request), options=("ro", "bind", "nosuid", "nodev")
    )


def _described(kept: KeptDevice, network: NetworkDeviceData | None) -> DescribedDevice:
    return DescribedDevice(
        driver=names.DRIVER,
        pool=kept.told.pool,
        name=kept.told.device,
        attributes=kept.attributes,
        network_data=network,
    )
