"""The prepared claims on disk: one file a claim, which outlives the daemon and the API object (decision D13).

A claim's file has enough to answer the kubelet again, and to clean up without the API server. It is written and read
by `prepare`, also by two daemons at once during a rolling update, and read by `netdra.node.cdi` and
`netdra.node.sandboxes`, which attaches the plans in it (decision D52).
A file that another daemon wrote counts at once: only an unchanged file is not read again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path

import msgspec

from netdra.kernel.inotify import changes_of
from netdra.model import names
from netdra.model.errors import UNREADABLE, InvalidInputError, TemporaryError
from netdra.model.plan import ClaimReference, Plan, PlannedDevice, PlannedPort
from netdra.model.resource import DeviceAttribute
from netdra.model.topology import NetworkTopology
from netdra.node.view import HeldKey, vf_of
from netdra.ops import files
from netdra.ops.file_cache import FileCache
from netdra.rules.plans import CheckedPlans, filled, restored
from netdra.topology.devices import DeviceKey

VERSION = 1
POD_CLAIM_NAME = names.POD_CLAIM_NAME
"""The annotation with the name by which the pods of a template know the claim."""
CDI_KIND = f"{names.DRIVER}/claim"


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An allocated device as it is reported to the kubelet.

    Attributes:
        requests: the claim's requests for the device, as they stand in the allocation ("main" or "main/sub").
        pool: the pool of its ResourceSlice.
        device: its name there.
        cdi_ids: CDI devices, by qualified name, that containers with these requests are given.
        share_id: the share of a device with multiple allocations, "" for a device that is allocated whole.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...] = ()
    share_id: str = ""


class KeptDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An allocated device of netdra.

    Attributes:
        told: the device as it was reported to the kubelet.
        facts: its facts at that time.
        admin_access: another claim owns it and keeps it.
        attributes: its published attributes, for the container's metadata.
        port: its port in Neutron, if its step has one; attaching and taking down go by it.
    """

    told: PreparedDevice
    facts: PlannedDevice
    admin_access: bool = False
    attributes: Mapping[str, DeviceAttribute] = {}
    port: PlannedPort | None = None

    @property
    def key(self) -> DeviceKey:
        """Its pool and name."""
        return self.told.pool, self.told.device

    @property
    def request(self) -> str:
        """The claim's request for the device, without the alternative that was chosen."""
        return base_request(self.told.requests[0])


class TopologyVersion(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A NetworkTopology as it was when a claim was prepared: its uid and generation, and a digest of its spec."""

    uid: str = ""
    generation: int = 0
    digest: str = ""

    @classmethod
    def of(cls, topology: NetworkTopology) -> TopologyVersion:
        """The version of a topology as it is now."""
        metadata = topology.metadata
        return cls(uid=metadata.uid, generation=metadata.generation, digest=_digest(topology))

    def is_of(self, topology: NetworkTopology) -> bool:
        """Whether a topology has the spec of this version: the API server counts changes of the spec as generations."""
        metadata = topology.metadata
        is_same = bool(self.uid) and (self.uid, self.generation) == (metadata.uid, metadata.generation)
        return is_same or self.digest == _digest(topology)


def _digest(topology: NetworkTopology) -> str:
    return hashlib.sha256(msgspec.json.encode(topology.spec, order="deterministic")).hexdigest()[:16]


class PreparedPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A claim's network as it was bound and checked: the hook executes it (decision D52).

    Attributes:
        plans: the claim's plans, with the ports of their VFs; interfaces are numbered as if the pod had no other claim.
        schemas: a digest of the cluster's plugin schemas that the plans were checked against.
        permits: a digest of the node's options that they were checked against.
        topologies: the topologies of the plans, by name.
    """

    plans: tuple[Plan, ...] = ()
    schemas: str = ""
    permits: str = ""
    topologies: Mapping[str, TopologyVersion] = {}

    @classmethod
    def of(cls, checked: CheckedPlans, topologies: Iterable[NetworkTopology]) -> PreparedPlan:
        """A claim's checked plans, bound from these topologies."""
        versions = {topology.name: TopologyVersion.of(topology) for topology in topologies}
        return cls(plans=checked.plans, schemas=checked.schemas, permits=checked.permits, topologies=versions)

    def filled(self, plans: Sequence[Plan]) -> PreparedPlan:
        """The claim's network with its ports and addresses.

        Raises:
            InvalidInputError: they do not fit together, or not to the other values of the plans.
        """
        return msgspec.structs.replace(self, plans=filled(self.checked, plans).plans)

    @property
    def checked(self) -> CheckedPlans:
        """The plans as the rules let them through when the claim was prepared."""
        return restored(self.plans, self.schemas, self.permits)


class PodReference(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that a claim was reserved for when it was prepared."""

    name: str
    uid: str


class PodUser(msgspec.Struct, frozen=True):
    """A pod that has a claim, whether it is on the host's network, and whether it is being deleted."""

    pod: PodReference
    on_host_network: bool
    is_ending: bool


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, dict=True):
    """A claim that is prepared on this node.

    Attributes:
        boot_id: the boot in which it was prepared; after another boot the devices are to be checked again.
        claim: the claim.
        devices: its devices of netdra, in the order of its allocation.
        pod_claim_name: its name in the pods of its template, "" for a claim that was made by hand.
        plan: its checked network; None in a record of a netdra that did not write it yet.
        pods: the pods that had it then; others may have been added since.
        choosing: its VFs are chosen and reserved for it, and it is not prepared yet: it has no plan.
        version: of this format. Later fields have a default: an older netdra ignores them. That takes `choosing` for
            prepared, misses the ports in its devices, and refuses the pod.
    """

    boot_id: str
    claim: ClaimReference
    devices: tuple[KeptDevice, ...]
    pod_claim_name: str = ""
    plan: PreparedPlan | None = None
    pods: tuple[PodReference, ...] = ()
    choosing: bool = False
    version: int = VERSION

    @property
    def requests(self) -> tuple[str, ...]:
        """Its requests with devices of netdra, each once."""
        return tuple(dict.fromkeys(device.request for device in self.devices))

    @cached_property
    def owned(self) -> tuple[KeptDevice, ...]:
        """Its devices but for those of a claim with admin access, which belong to another claim."""
        return tuple(device for device in self.devices if not device.admin_access)

    @cached_property
    def held(self) -> frozenset[HeldKey]:
        """The devices that it has. All records are compared for each claim, so this is kept with the record."""
        return frozenset((device.key, self.claim.uid, vf_of(device.facts)) for device in self.owned)

    @cached_property
    def vfs(self) -> frozenset[str]:
        """The PCI addresses of the VFs that it has."""
        return frozenset(vf for device in self.owned if (vf := vf_of(device.facts)))

    @property
    def told(self) -> tuple[PreparedDevice, ...]:
        """The devices as they were reported to the kubelet."""
        return tuple(device.told for device in self.devices)


def cdi_device(uid: str, request: str) -> str:
    """The CDI device of a claim's request: letters, digits and dashes only, like its parts, and never used again."""
    return f"{uid}-{request}"


def cdi_id(uid: str, request: str) -> str:
    """The qualified name by which the kubelet hands a request's CDI device to the runtime."""
    return f"{CDI_KIND}={cdi_device(uid, request)}"


def base_request(request: str) -> str:
    """A request's own name, of `main` and of `main/alternative` alike."""
    return request.partition("/")[0]


log = logging.getLogger(__name__)

FOLDER = "claims"
_SUFFIX = ".json"
_LOCK = ".lock"
_GONE, _MOST_GONE = "gone", 32
_LOCK_SECONDS = 10.0
_one_at_a_time = threading.Lock()  # among the threads of this process, where waiting for the file's lock is polling
_decoder = msgspec.json.Decoder(PreparedClaim)


def _read(text: bytes, path: Path) -> PreparedClaim:
    """The record in a file: the one rule for all readers.

    Raises:
        NewerStateError: a newer netdra wrote it.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is damaged.
    """
    files.refuse_newer(text, VERSION, f"prepared claim {path}")
    claim = _decoder.decode(text)
    if claim.version != VERSION:
        raise msgspec.ValidationError(f"version {claim.version}, which there never was")
    return claim


def uid_of(name: str) -> str:
    """The claim of a file in the store's folder, by the file's name; "" of a file that does not count for any claim."""
    uid, suffix, _ = name.partition(_SUFFIX)
    return uid if suffix and f".{_GONE}-" not in name else ""


def is_record(name: str) -> bool:
    """Whether a file in the store's folder has the name of a record, and not the one of a renamed file."""
    return name.endswith(_SUFFIX) and name[0] != "."


_cache: FileCache[PreparedClaim] = FileCache(_read)
_given_up: set[Path] = set()  # of this process


class ClaimStore(msgspec.Struct, frozen=True):
    """The prepared claims below a folder of the daemon's state."""

    folder: Path

    @classmethod
    def of_state(cls, state: Path) -> ClaimStore:
        """The claims of a daemon's state folder."""
        return cls(state / FOLDER)

    def follow(self) -> AbstractContextManager[None]:
        """Have the kernel report the changes of records until the context ends, so that they are not all inspected.

        Those of another daemon are reported before its lock is free.
        """
        return _cache.follow(self.folder, changes_of)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other daemon from preparing or unpreparing meanwhile; short work only.

        Raises:
            TemporaryError: another daemon holds the lock for too long, or the lock's file cannot be made or locked.
        """
        path, flags = self.folder / _LOCK, os.O_RDWR | os.O_CREAT
        try:
            try:
                lock = files.open_lockable(path, flags)
            except FileNotFoundError:
                files.make_folder(self.folder)
                lock = files.open_lockable(path, flags)
        except OSError as problem:
            raise files.unwritable(path, problem) from None
        deadline = time.monotonic() + _LOCK_SECONDS
        ours = _one_at_a_time.acquire(timeout=_LOCK_SECONDS)
        try:
            try:
                is_locked = ours and files.lock(lock, deadline)
            except OSError as problem:
                raise files.unwritable(path, problem) from None
            if not is_locked:
                raise TemporaryError(
                    f"another netdra on this node has held {path} for {_LOCK_SECONDS:.0f} s", code="ND2176"
                )
            yield
        finally:
            os.close(lock)
            if ours:
                _one_at_a_time.release()

    def get(self, uid: str) -> PreparedClaim | None:
        """A prepared claim, or None if it is not prepared; a file that cannot be read is renamed and counts as absent.

        Raises:
            NetdraError: the uid cannot be a claim's, the disk cannot be read, or a newer netdra wrote the file.
        """
        path = self._path(uid)
        if path in _given_up:
            return None
        try:
            return _cache.of(path)
        except FileNotFoundError:
            return None
        except (*UNREADABLE, IsADirectoryError) as error:
            problem = str(error)
        aside = files.put_aside(path)
        log.error("prepared claim %s cannot be read (%s) and is kept as %s", path, problem, aside)
        return None

    def of(self, claims: Iterable[ClaimReference]) -> list[PreparedClaim]:
        """The records of claims, of those that have one.

        Raises:
            NetdraError: as `get`.
        """
        return [record for claim in claims if (record := self.get(claim.uid)) is not None]

    def has(self, uid: str) -> bool:
        """Whether a claim is written down, readable or not. Takes microseconds.

        Raises:
            InvalidInputError: the uid cannot be a claim's.
            TemporaryError: the disk cannot be read.
        """
        path = self._path(uid)
        return path not in _given_up and files.exists(path)

    def all(self) -> list[PreparedClaim]:
        """Every prepared claim whose file is valid; the others are renamed, or left to a newer netdra.

        Raises:
            TemporaryError: the disk cannot be read. The devices of a missing claim would count as free.
        """
        return list(self.by_name().values())

    def by_name(self) -> dict[str, PreparedClaim]:
        """As `all`, by the names of the files, in their order.

        Raises:
            TemporaryError: as `all`.
        """
        given_up = {f"{uid}{_SUFFIX}" for uid in self.given_up()}
        file_names = sorted([name for name in self.names() if is_record(name) and name not in given_up])
        unchanged = _cache.unchanged(self.folder, file_names)
        claims = {}
        for name in file_names:
            claim = unchanged.get(name)
            with suppress(files.NewerStateError, InvalidInputError):
                claim = claim or self.get(name.removesuffix(_SUFFIX))
            if claim is not None:
                claims[name] = claim
        return claims

    def read_all(self) -> tuple[list[PreparedClaim], list[tuple[Path, str]]]:
        """Every prepared claim whose file is valid, and the other files with the reason. No file is renamed.

        Raises:
            TemporaryError: the disk cannot be read.
        """
        good: list[PreparedClaim] = []
        bad: list[tuple[Path, str]] = []
        for name in sorted(self.names()):
            if is_record(name):
                try:
                    good.append(_cache.of(self.folder / name))
                except FileNotFoundError:
                    continue
                except files.NewerStateError as problem:
                    bad.append((self.folder / name, problem.what))
                except (*UNREADABLE, IsADirectoryError) as problem:
                    bad.append((self.folder / name, str(problem)))
        return good, bad

    def is_newer(self, uid: str) -> bool:
        """Whether a newer netdra wrote a claim down.

        Raises:
            TemporaryError: the disk cannot be read.
        """
        try:
            self.get(uid)
        except files.NewerStateError:
            return True
        except InvalidInputError:
            pass
        return False

    def uids(self) -> frozenset[str]:
        """The claims that were prepared and not unprepared since, also those whose files make no sense.

        Raises:
            TemporaryError: the disk cannot be read.
        """
        return frozenset([uid for name in self.names() if (uid := uid_of(name))]) - self.given_up()

    def damaged(self) -> frozenset[str]:
        """The claims of which there are only renamed files.

        Raises:
            TemporaryError: the disk cannot be read.
        """
        return frozenset(uid for uid in self.uids() if names.is_label(uid) and not self.has(uid))

    def put_aside(self, uid: str) -> None:
        """Forget a claim that is gone and of which there are only renamed files; the newest ones of all are kept.

        Raises:
            NetdraError: they cannot be renamed.
        """
        for name in self.names():
            if name.startswith(f"{uid}{_SUFFIX}.bad-") and f".{_GONE}-" not in name:
                aside = files.put_aside(self.folder / name, _GONE)
                log.warning(
                    "no pod of this node has claim %s, whose record could not be read; it is kept as %s", uid, aside
                )
        files.keep_newest(self.folder, _GONE, _MOST_GONE)

    @contextmanager
    def saving(self, claim: PreparedClaim) -> Iterator[Callable[[], None]]:
        """Write a claim down, in place of its former file; readers see the old file or the new one, whole.

        The body calls the function that it gets; when the context has ended, the claim is there after a power failure
        too. The body may hold the lock: nothing waits for the disk meanwhile.

        Raises:
            NetdraError: the uid cannot be a claim's, or the file system does not take it.
        """
        path = self._path(claim.claim.uid)
        with files.saving(path, msgspec.json.encode(claim), _LOCK_SECONDS) as save_file:

            def save() -> None:
                # The claim is read next when its pod's sandbox begins, which need not wait for the file to be decoded.
                _cache.remember(path, save_file(), claim)
                _given_up.discard(path)

            yield save

    def put(self, claim: PreparedClaim) -> None:
        """Write a claim down, as `saving`.

        Raises:
            NetdraError: as of `saving`.
        """
        with self.saving(claim) as save:
            save()

    def sync(self) -> None:
        """Wait until all claims that were written down are there after a power failure too.

        Raises:
            TemporaryError: the disk does not take them.
        """
        try:
            files.sync(self.folder)
        except OSError as problem:
            raise files.unwritable(self.folder, problem) from None

    def give_up(self, uid: str) -> None:
        """Let a claim count as forgotten though its files cannot be removed yet, until it is written down again."""
        _given_up.add(self._path(uid))

    def given_up(self) -> frozenset[str]:
        """The claims that are forgotten, and whose files could not be removed yet."""
        paths = tuple(_given_up)
        return frozenset(path.name.removesuffix(_SUFFIX) for path in paths if path.parent == self.folder)

    def remove(self, uid: str) -> None:
        """Forget a claim, and its renamed files; an absent claim is not an error.

        Raises:
            NetdraError: the uid cannot be a claim's, or its file cannot be removed.
        """
        path = self._path(uid)
        try:
            path.unlink(missing_ok=True)
            renamed = f"{path.name}.bad-"
            for name in self.names():
                if name.startswith(renamed):
                    (self.folder / name).unlink(missing_ok=True)
        except OSError as problem:
            raise TemporaryError(f"{path} cannot be removed: {problem.strerror}", code="ND2177") from None
        _given_up.discard(path)

    def names(self) -> Collection[str]:
        """The names of the folder's files; they are records, renamed files and others.

        Raises:
            TemporaryError: the disk cannot be read.
        """
        return _cache.listed(self.folder)

    def changed(self, mark: int) -> tuple[int, frozenset[str] | None]:
        """The names of the folder's files that have changed since a mark, as `FileCache.changed`.

        Raises:
            TemporaryError: the disk cannot be read.
        """
        return _cache.changed(self.folder, mark)

    def _path(self, uid: str) -> Path:
        if not names.is_label(uid):
            raise InvalidInputError(f"claim UID {uid[:80]!r} is not a valid file name", code="ND2178")
        return files.joined(self.folder, f"{uid}{_SUFFIX}")
