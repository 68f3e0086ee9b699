"""A claim's CDI specification: one CDI device for each of its requests, with the edits of containers that use it.

Pure; `files` writes it. Follows the Container Device Interface specification 1.0
(github.com/cncf-tags/container-device-interface, SPEC.md); the version that a file names is the lowest that has all of
its fields, so that older runtimes take it. The environment is that of docs/containers.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from netdra.chain.outcome import DeviceOutcome
from netdra.model.resource import Wire
from netdra.node.claims.store import CDI_KIND, PreparedClaim, base_request, cdi_device

_UNFIT = re.compile(r"[^A-Z0-9]")

_BASE_VERSION = "0.3.0"
_LEADING_DIGIT_VERSION = "0.5.0"


def of_claim(prepared: PreparedClaim, outcomes: Sequence[DeviceOutcome]) -> tuple[DeviceOutcome, ...]:
    """The outcomes of a claim's devices, in the order of its allocation.

    A device without a step, such as one with admin access, is listed as it was prepared.

    Args:
        prepared: the claim.
        outcomes: the outcomes of devices, of other claims too.
    """
    by_device = {
        (outcome.device.pool, outcome.device.device, outcome.device.share_id): outcome
        for outcome in outcomes
        if outcome.claim.uid == prepared.claim.uid and outcome.steps
    }
    return tuple(
        by_device.get((*device.key, device.told.share_id), DeviceOutcome(claim=prepared.claim, device=device.facts))
        for device in prepared.devices
    )


def environment(prepared: PreparedClaim, request: str, outcomes: Sequence[DeviceOutcome]) -> tuple[str, ...]:
    """The variables of a request, as `NAME=value`; lists are joined by commas, a variable without value is left out.

    There is always one at least, because a CDI device needs an edit.

    Args:
        prepared: the claim.
        outcomes: the outcomes of the request's devices.
    """
    prefix = variable_prefix(prepared, request)
    values = {
        "DEVICES": [outcome.device.device for outcome in outcomes],
        "INTERFACES": [outcome.network.interface_name for outcome in outcomes if outcome.network is not None],
        "PCI_ADDRESSES": [outcome.device.pci_address for outcome in outcomes],
        "RDMA_DEVICES": [name for outcome in outcomes for name in outcome.rdma_devices],
        "DEVICE_FILES": [path for outcome in outcomes for path in outcome.numbers],
    }
    return tuple(f"{prefix}_{name}={','.join(filter(None, listed))}" for name, listed in values.items() if any(listed))


def variable_prefix(prepared: PreparedClaim, request: str) -> str:
    """The prefix of a request's variables: the name by which the pod knows the claim, and the request's name."""
    claim = prepared.pod_claim_name or prepared.claim.name
    return "_".join(("NETDRA", *(_UNFIT.sub("_", name.upper()) for name in (claim, request))))


class DeviceNode(Wire, frozen=True):
    """A device file; without type and numbers it has those of the host's file of that path."""

    path: str
    permissions: str
    type: str | None = None
    major: int | None = None
    minor: int | None = None


class Mount(Wire, frozen=True):
    """A file of the host that the container sees."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()


class ContainerEdits(Wire, frozen=True):
    """`containerEdits` of the CDI specification: what the runtime adds to each container with the device."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()


class CDIDevice(Wire, frozen=True, omit_defaults=False):
    """A named set of edits."""

    name: str
    container_edits: ContainerEdits


class CDISpec(Wire, frozen=True, omit_defaults=False):
    """The content of a specification file."""

    cdi_version: str
    kind: str
    devices: tuple[CDIDevice, ...]


def render(
    prepared: PreparedClaim, outcomes: Sequence[DeviceOutcome], metadata: Sequence[tuple[str, Mount]] = ()
) -> CDISpec:
    """A claim's specification.

    Args:
        prepared: the claim.
        outcomes: the outcomes of its devices.
        metadata: the metadata file of each request that has one.
    """
    devices = tuple(_device(prepared, request, outcomes, metadata) for request in prepared.requests)
    return CDISpec(cdi_version=_version(devices), kind=CDI_KIND, devices=devices)


def encode(content: Wire) -> bytes:
    """A specification, or a claim's metadata, as the text of its file."""
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def _device(
    prepared: PreparedClaim,
    request: str,
    outcomes: Sequence[DeviceOutcome],
    metadata: Sequence[tuple[str, Mount]],
) -> CDIDevice:
    own = [outcome for outcome in outcomes if base_request(outcome.device.request) == request]
    nodes = {node: outcome.numbers.get(node) for outcome in own for node in outcome.device_nodes}
    edits = ContainerEdits(
        env=environment(prepared, request, own),
        device_nodes=tuple(_node(path, number) for path, number in nodes.items()),
        mounts=tuple(mount for name, mount in metadata if name == request),
    )
    return CDIDevice(name=cdi_device(prepared.claim.uid, request), container_edits=edits)


def _node(path: str, number: tuple[int, int] | None) -> DeviceNode:
    if number is None:
        return DeviceNode(path=path, permissions="rw")
    return DeviceNode(path=path, permissions="rw", type="c", major=number[0], minor=number[1])


def _version(devices: Sequence[CDIDevice]) -> str:
    # Before CDI 0.5.0 the name of a device begins with a letter. The least version is read by the most runtimes.
    digits = any(device.name[:1].isdigit() for device in devices)
    return _LEADING_DIGIT_VERSION if digits else _BASE_VERSION
