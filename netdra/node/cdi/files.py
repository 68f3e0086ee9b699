"""A claim's files for containers: metadata from Prepare on, the CDI specification only while the network is complete.

`write_metadata` and `remove_all` are called by `netdra.node.claims`; `write_spec` by `netdra.node.sandboxes` once the
chain has succeeded, `remove_spec` before it is undone. A container cannot be made without the specification, so it is
written last and removed first (decision D12). All calls can be repeated, and none asks the API server. They block on
file system calls alone, and do not wait until data is on the disk: no pod outlives a power failure, after which every
claim is prepared and attached again.

Metadata (KEP-5304) is what a container can read of its devices, in the API's own words: the published attributes from
Prepare on, and the network's facts after the chain. It follows metadata.resource.k8s.io and the paths of
k8s.io/dynamic-resource-allocation (api/metadata/doc.go): a file is a sequence of JSON objects, the same one in each
version, the newest first, of which a reader takes the first that it knows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from netdra.chain.outcome import DeviceOutcome
from netdra.model import names
from netdra.model.claim import NetworkDeviceData
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.plan import PlannedPort
from netdra.model.resource import MAX_ATTRIBUTES_AND_CAPACITIES, DeviceAttribute, Wire
from netdra.node.cdi import spec
from netdra.node.cdi.spec import Mount
from netdra.node.claims.store import KeptDevice, PreparedClaim
from netdra.ops import files

METADATA_FOLDER = "dra-device-metadata"
METADATA_VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
"""The newest first. Libraries before 1.37 know v1alpha1 alone, later ones may drop it."""
CONTAINER_FOLDER = "/var/run/kubernetes.io/dra-device-attributes"

CDI_FOLDER = Path("/var/run/cdi")
_PREFIX = f"{names.DRIVER}-claim-"
_SUFFIX = ".json"
_READABLE = 0o644  # programs in containers need not be root
_TRAVERSABLE = 0o755  # the folder is every driver's
_LOCK_SECONDS = 5.0


class MetadataName(Wire, frozen=True):
    """The claim of the metadata, and how often the metadata was written."""

    name: str
    namespace: str
    uid: str
    generation: int


class DescribedDevice(Wire, frozen=True):
    """A device as containers read it."""

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
    """The metadata of a request's devices, in one version; the versions differ in nothing else."""

    metadata: MetadataName
    pod_claim_name: str | msgspec.UnsetType
    requests: tuple[DescribedRequest, ...]
    api_version: str = METADATA_VERSIONS[0]
    kind: Literal["DeviceMetadata"] = "DeviceMetadata"


def device_metadata(prepared: PreparedClaim, request: str, outcomes: Sequence[DeviceOutcome] = ()) -> DeviceMetadata:
    """A request's metadata, in the newest version.

    Args:
        prepared: the claim.
        request: its request, without the alternative that was chosen.
        outcomes: the outcome of each of its devices; none before the chain.
    """
    claim = prepared.claim
    chosen = [(place, device) for place, device in enumerate(prepared.devices) if device.request == request]
    devices = tuple(_described(device, outcomes[place].network if outcomes else None) for place, device in chosen)
    return DeviceMetadata(
        metadata=MetadataName(
            name=claim.name, namespace=claim.namespace, uid=claim.uid, generation=2 if outcomes else 1
        ),
        pod_claim_name=prepared.pod_claim_name if names.is_label(prepared.pod_claim_name) else msgspec.UNSET,
        requests=(DescribedRequest(name=chosen[0][1].told.requests[0], devices=devices),),
    )


def _encode(metadata: DeviceMetadata) -> bytes:
    """The content of a metadata file: the metadata in each version."""
    # The newest version comes first: readers take the first one that they know.
    return b"".join(
        spec.encode(msgspec.structs.replace(metadata, api_version=version)) for version in METADATA_VERSIONS
    )


def container_path(prepared: PreparedClaim, request: str) -> str:
    """Where a container finds the file: by the name by which its pod knows the claim.

    That name is an annotation, which any author of a claim can write: a name that Kubernetes does not allow is ignored.
    """
    kind, name = (
        ("resourceclaimtemplates", prepared.pod_claim_name)
        if names.is_label(prepared.pod_claim_name)
        else ("resourceclaims", prepared.claim.name)
    )
    return f"{CONTAINER_FOLDER}/{kind}/{name}/{request}/{names.DRIVER}-metadata.json"


def _mount(prepared: PreparedClaim, request: str, host_path: str) -> Mount:
    """The mount that shows a container the file."""
    return Mount(
        host_path=host_path, container_path=container_path(prepared, request), options=("ro", "bind", "nosuid", "nodev")
    )


def _described(device: KeptDevice, network: NetworkDeviceData | None) -> DescribedDevice:
    attributes = [*{**device.attributes, **_port_attributes(device.port)}.items()]
    return DescribedDevice(
        driver=names.DRIVER,
        pool=device.told.pool,
        name=device.told.device,
        # A published device may have as many attributes already as the metadata of one can have. The last attributes
        # are those that the published device lacks: the chosen VF's own facts, and its port's.
        attributes=dict(attributes[-MAX_ATTRIBUTES_AND_CAPACITIES:]),
        network_data=network,
    )


def _port_attributes(port: PlannedPort | None) -> Mapping[str, DeviceAttribute]:
    """The attributes of a VF's port in Neutron, which a container reads beside the published attributes of the VF.

    The addresses are among them though they may be for an interface that is made of the VF.
    """
    if port is None:
        return {}
    texts = {"neutronPortID": port.port_id, "neutronNetworkID": port.network_id, "neutronNetwork": port.network_name}
    attributes = {names.qualified(name): DeviceAttribute(string=text) for name, text in texts.items() if text}
    attributes[names.qualified("neutronMAC")] = DeviceAttribute(string=port.settings.mac)
    attributes[names.qualified("neutronVLAN")] = DeviceAttribute(int_=port.settings.vlan)
    if port.settings.addresses:
        attributes[names.qualified("neutronAddresses")] = DeviceAttribute(strings=port.settings.addresses)
    return attributes


class ClaimFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files of claims are.

    Attributes:
        plugin: the plugin's own folder below the kubelet's, by a path that is the same outside of netdra's container:
            the runtime mounts from it.
        cdi: a folder in which the runtime searches for CDI specifications.
    """

    plugin: Path
    cdi: Path = CDI_FOLDER

    def write_metadata(self, claim: PreparedClaim) -> None:
        """Write a claim's metadata before any pod has the claim; files that a pod's containers read stay as they are.

        Raises:
            NetdraError: a name cannot be a file's, or the file system does not take it.
        """
        if files.exists(self.spec_path(claim.claim.uid)):
            return  # the kubelet asks again after its start
        self._describe(claim, ())

    def write_spec(self, claim: PreparedClaim, outcomes: Sequence[DeviceOutcome]) -> None:
        """Let containers be made with a claim's devices: its pod's chain has succeeded.

        Args:
            outcomes: the outcomes of devices; those of other claims may be among them.

        Raises:
            NetdraError: a name cannot be a file's, or the file system does not take it; no container can be made.
        """
        own = spec.of_claim(claim, outcomes)
        mounts = self._describe(claim, own)
        text = spec.encode(spec.render(claim, own, mounts))
        path = self.spec_path(claim.claim.uid)
        if not os.path.isdir(self.cdi):  # noqa: PTH112 (a pod waits for it)
            self._make_folder()
        files.place(path, text, _LOCK_SECONDS, mode=_READABLE)

    def remove_spec(self, uid: str) -> None:
        """Let no further container be made with a claim's devices.

        A claim that several pods share keeps its specification as long as one of them has its network; the caller sees
        to that.

        Raises:
            NetdraError: the file is there and cannot be removed.
        """
        _remove(self.spec_path(uid))

    def remove_all(self, uid: str) -> None:
        """Remove all files of a claim.

        Raises:
            NetdraError: a file is there and cannot be removed.
        """
        self.remove_spec(uid)
        prefix = f"{_uid(uid)}."
        for name in files.listed(self._folder):
            if name.startswith(prefix):
                _remove(self._folder / name)

    def specified(self) -> tuple[str, ...]:
        """The uids of the claims that have a specification now.

        Raises:
            TemporaryError: the folder cannot be read.
        """
        return tuple(
            sorted(
                name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
                for name in files.listed(self.cdi)
                if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
            )
        )

    def retain(self, uids: Iterable[str], among: Iterable[str] | None = None) -> tuple[str, ...]:
        """Remove the specifications of all claims but these, and return the uids of those removed.

        Args:
            uids: the claims whose specifications stay.
            among: the claims whose specifications may be removed; all that have one now if None.

        Raises:
            NetdraError: one cannot be removed.
        """
        kept = frozenset(uids)
        stale = tuple(uid for uid in (self.specified() if among is None else among) if uid not in kept)
        for uid in stale:
            self.remove_spec(uid)
        return stale

    def spec_path(self, uid: str) -> Path:
        """Where a claim's specification is.

        Raises:
            InvalidInputError: the uid cannot be part of a file's name.
        """
        return files.joined(self.cdi, f"{_PREFIX}{_uid(uid)}{_SUFFIX}")

    def metadata_path(self, uid: str, request: str) -> Path:
        """Where the metadata of a claim's request is.

        By uid, because a claim may be gone and another claim have its name before it is unprepared.

        Raises:
            InvalidInputError: uid or request cannot be part of a file's name.
        """
        return files.joined(self._folder, f"{_uid(uid)}.{_part(request)}.json")

    def _make_folder(self) -> None:
        try:
            self.cdi.mkdir(parents=True, exist_ok=True, mode=_TRAVERSABLE)
        except OSError as problem:
            raise files.unwritable(self.cdi, problem) from None

    def _describe(self, claim: PreparedClaim, outcomes: Sequence[DeviceOutcome]) -> list[tuple[str, spec.Mount]]:
        mounts = []
        for request in claim.requests:
            path = self.metadata_path(claim.claim.uid, request)
            # The old file is removed first: no container has it by this name now, and ext4 writes out a file that is
            # renamed over another one (auto_da_alloc), which is a quarter of the time that all files of a pod take.
            text = _encode(device_metadata(claim, request, outcomes))
            files.appear(path, text, _LOCK_SECONDS, mode=_READABLE)
            mounts.append((request, _mount(claim, request, str(path))))
        return mounts

    @property
    def _folder(self) -> Path:
        # One for all claims: to remove a folder takes ext4 a millisecond, and the kubelet waits for it.
        return files.joined(self.plugin, METADATA_FOLDER)


def _part(name: str) -> str:
    """A name that comes from outside, as part of a file's name."""
    if not names.is_subdomain(name):
        raise InvalidInputError(f"{name[:80]!r} cannot be part of a file's name", code="ND2142")
    return name


def _uid(uid: str) -> str:
    """A uid that comes from outside, as the part of a file's name before the first dot."""
    if not names.is_label(uid):
        raise InvalidInputError(f"{uid[:80]!r} cannot be part of a file's name", code="ND2143")
    return uid


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        # A read-only file system refuses to remove what is not there, too (do_unlinkat() in fs/namei.c).
        if os.path.lexists(path):
            raise _stuck(path, problem) from None


def _stuck(path: Path, problem: OSError) -> TemporaryError:
    return TemporaryError(
        f"{path} cannot be removed: {problem.strerror}", hint="see whether its file system is well", code="ND2144"
    )
