"""Writes the controller's objects: DeviceClasses, usages, rollouts, finalizers, statuses and events.

Used by `controller`, `plugins`, `neutron` and `uninstall`, which decide what is to be written. A condition has an event
when it is written into the status for the first time, so a restart repeats no event. A change of the message alone is
a new event only if the object was changed too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from netdra.controller import metrics
from netdra.controller.classes import ClassWrites
from netdra.kube.client import Client
from netdra.kube.errors import AlreadyExistsError, RefusedError
from netdra.kube.events import ObjectReference, Occurrence, Recorder
from netdra.kube.resources import DEVICE_CLASSES, NEUTRON_PORTS, SCHEMAS, TOPOLOGIES, KubernetesObject, Resource
from netdra.kube.undone import UndoneError
from netdra.model import documents, names
from netdra.model.claim import ResourceClaimConsumerReference
from netdra.model.meta import Condition, ObjectMeta, OwnerReference
from netdra.model.neutron_port import FINALIZER as IN_NEUTRON
from netdra.model.neutron_port import NeutronPort
from netdra.model.resource import API_VERSION
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.ops.metrics import counted
from netdra.topology.users import pod_owner

_ACTIONS: Mapping[str, str] = {
    "Compiled": "Compile",
    "Ready": "WriteDeviceClasses",
    "Accepted": "Accept",
    "Conflicting": "Compare",
    "Degraded": "Expose",
    "Applied": "Apply",
    "Installed": "Install",
    "SchemaApplied": "ApplySchema",
    "InUse": "Delete",
    "Bound": "BindNeutronPort",
    "Current": "CompareNeutronPort",
    "Enforced": "BindNeutronPort",
    "AddressesAvailable": "AssignAddress",
    "NearlyFull": "AssignAddress",
}
_WARNINGS = frozenset(
    {
        ("Compiled", "Unsound"),
        ("Ready", "ForeignDeviceClass"),
        ("Ready", "PluginNotAllowed"),
        ("Ready", "Refused"),
        ("Ready", "Deleting"),
        ("Accepted", "Invalid"),
        ("Accepted", "Contradictory"),
        ("Accepted", "Duplicate"),
        ("Conflicting", "SameRank"),
        ("Degraded", "FailsOnNodes"),
        ("Degraded", "ClaimsFailed"),
        ("Applied", "NotEverywhere"),
        ("Installed", "Failing"),
        ("Installed", "NotConfigured"),
        ("SchemaApplied", "NoSchema"),
        ("SchemaApplied", "Contradictory"),
        ("InUse", "DeletionWaits"),
        ("Current", "ChangedInNeutron"),
        ("Enforced", "NotEnforced"),
        ("Ready", "Invalid"),
        ("AddressesAvailable", "RangeFull"),
        ("NearlyFull", "RangeNearlyFull"),
    }
)

_OF_CLAIMS = frozenset({"ClaimsFailed", "NoFailures"})

MANAGER = "netdra-controller"

T = TypeVar("T", bound=KubernetesObject)

log = logging.getLogger(__name__)

FINALIZER = f"{names.GROUP}/in-use"


def notices(
    regarding: ObjectReference, before: Sequence[Condition], after: Sequence[Condition]
) -> Iterator[Occurrence]:
    """The events after a status was written.

    Args:
        before: its conditions as they stood.
        after: as they stand now.
    """
    by_type = {condition.type: condition for condition in before}
    for condition in after:
        old = by_type.get(condition.type)
        if _is_warning(condition):
            if old is None or _is_news(old, condition):
                yield _occurrence(regarding, condition, warning=True)
        elif old is not None and _is_warning(old) and old.status != condition.status:
            yield _occurrence(regarding, condition, warning=False)


def drift(regarding: ObjectReference, classes: Sequence[str]) -> Occurrence:
    """The event for DeviceClasses of a topology that another client had changed."""
    named = ", ".join(f'"{name}"' for name in classes)
    note = f"DeviceClass {named} was changed and has been restored from the topology; change the topology instead"
    return Occurrence(regarding=regarding, type="Warning", reason="DriftCorrected", action=_ACTIONS["Ready"], note=note)


def _is_warning(condition: Condition) -> bool:
    is_unbound = (condition.type, condition.status) == ("Bound", "False")  # for every reason of Neutron
    return is_unbound or (condition.type, condition.reason) in _WARNINGS


def _is_news(old: Condition, new: Condition) -> bool:
    if (old.status, old.reason) != (new.status, new.reason):
        return True
    if new.type == "Current":
        return old.message != new.message  # the port's object does not change when its port in Neutron does
    return old.message != new.message and old.observed_generation != new.observed_generation


def _occurrence(regarding: ObjectReference, condition: Condition, *, warning: bool) -> Occurrence:
    return Occurrence(
        regarding=regarding,
        type="Warning" if warning else "Normal",
        reason=condition.reason,
        action="Attach" if condition.reason in _OF_CLAIMS else _ACTIONS[condition.type],
        note=condition.message,
    )


class StatusWithConditions(Protocol):
    """The part of a status that the controller compares before and after a write."""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """One condition for each type, as Kubernetes requires."""


class WithMetadata(Protocol):
    """An object that an event can be about: its name, namespace and uid are in the metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """As the API server sent it."""


class WithStatus(WithMetadata, Protocol):
    """An object with metadata and a status."""

    @property
    def status(self) -> Any:
        """Its present status, or None."""


async def write_status(
    client: Client, recorder: Recorder, resource: Resource[Any], about: WithStatus, status: StatusWithConditions
) -> None:
    """Write a status, unless the object has it already; its news become events.

    Raises:
        ApiError: it cannot be written just now, so no event is written either.
    """
    if status == about.status:
        return
    wanted = {
        "apiVersion": resource.group_version,
        "kind": resource.type.__name__,
        "metadata": {"name": about.metadata.name, "uid": about.metadata.uid},
        "status": documents.plain(status),
    }
    await client.apply(resource, wanted, manager=MANAGER, subresource="status")
    metrics.STATUS_WRITES.labels(resource.plural).inc()
    before: Sequence[Condition] = () if about.status is None else about.status.conditions
    for occurrence in notices(reference(resource, about), before, status.conditions):
        recorder.emit(occurrence)


async def write_summary(
    client: Client,
    recorder: Recorder,
    resource: Resource[Any],
    present: WithStatus | None,
    owner: tuple[Resource[Any], WithMetadata],
    status: StatusWithConditions,
) -> None:
    """Write an object that summarizes another one and goes with it, unless it is so already, by one request.

    Its news become events about the other one.

    Args:
        present: the object as it is stored, if there is one.
        owner: the other one, with its kind.
        status: the desired status.

    Raises:
        ApiError: it cannot be written just now, so no event is written either.
    """
    regarding = reference(*owner)
    owners = (
        OwnerReference(api_version=regarding.api_version, kind=regarding.kind, name=regarding.name, uid=regarding.uid),
    )
    if present is not None and (present.metadata.owner_references, present.status) == (owners, status):
        return
    wanted = {
        "apiVersion": resource.group_version,
        "kind": resource.type.__name__,
        "metadata": {"name": regarding.name, "ownerReferences": documents.plain(owners)},
        "status": documents.plain(status),
    }
    await client.apply(resource, wanted, manager=MANAGER)
    metrics.STATUS_WRITES.labels(resource.plural).inc()
    before: Sequence[Condition] = () if present is None or present.status is None else present.status.conditions
    for occurrence in notices(regarding, before, status.conditions):
        recorder.emit(occurrence)


def reference(resource: Resource[Any], about: WithMetadata) -> ObjectReference:
    """An object as events name it."""
    metadata = about.metadata
    return ObjectReference(
        api_version=resource.group_version, kind=resource.type.__name__, name=metadata.name, uid=metadata.uid
    )


def claim_references(
    metadata: ObjectMeta, users: Iterable[ResourceClaimConsumerReference] = ()
) -> Iterator[ObjectReference]:
    """A claim as events name it, and the pod that it was made for, or else the pods that it is reserved for."""
    yield ObjectReference(
        api_version=API_VERSION,
        kind="ResourceClaim",
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
    )
    pod = pod_owner(metadata)
    if pod is not None:
        yield ObjectReference(api_version="v1", kind="Pod", name=pod.name, namespace=metadata.namespace, uid=pod.uid)
        return
    for user in users:
        if user.resource == "pods" and not user.api_group:
            namespace = metadata.namespace
            yield ObjectReference(api_version="v1", kind="Pod", name=user.name, namespace=namespace, uid=user.uid)


class ClassesWritten(NamedTuple):
    """The outcome of the writes of a topology's classes.

    Attributes:
        refused: the API server's refusals, or "".
        undone: the first write that waits because another client undoes it.
    """

    refused: str = ""
    undone: UndoneError | None = None


async def write(client: Client, planned: ClassWrites) -> ClassesWritten:
    """Write the planned changes.

    Raises:
        ApiError: a change cannot be written just now.
    """
    refused: list[str] = []
    undone: UndoneError | None = None
    for entry in planned.delete:
        try:
            with counted(metrics.CLASS_WRITES, "delete"):
                await client.delete(DEVICE_CLASSES, entry)
            log.info('deleted DeviceClass "%s"', entry.metadata.name)
        except UndoneError as problem:
            undone = undone or problem
    writes = (("create", client.create, planned.create), ("update", client.replace, planned.replace))
    for verb, send, group in writes:
        for entry in group:
            try:
                with counted(metrics.CLASS_WRITES, verb):
                    await send(DEVICE_CLASSES, entry)
                log.info('wrote DeviceClass "%s"', entry.metadata.name)
            except AlreadyExistsError:
                continue  # the store will have it soon, and the topology is processed again
            except RefusedError as problem:
                refused.append(problem.what)
            except UndoneError as problem:
                undone = undone or problem
    return ClassesWritten("\n".join(refused), undone)


async def delete_shipped(client: Client, schema: CNIPluginSchema) -> None:
    """Delete an object in which a former version of netdra showed a schema of its own (decision D35).

    Raises:
        ApiError: the object was changed meanwhile, or cannot be deleted just now.
    """
    await client.delete(SCHEMAS, schema)
    log.info('deleted CNIPluginSchema "%s" of an older netdra', schema.metadata.name)


async def finalize_topology(client: Client, topology: NetworkTopology, *, wanted: bool) -> None:
    """Set the finalizer of a topology that claims may use, or remove it.

    Raises:
        ApiError: as of `set_finalizer`.
    """
    if wanted == (FINALIZER in topology.metadata.finalizers) or (wanted and topology.metadata.deletion_timestamp):
        return
    await set_finalizer(client, TOPOLOGIES, topology, FINALIZER, wanted=wanted)


async def finalize_port(client: Client, port: NeutronPort, *, wanted: bool) -> None:
    """Set the finalizer of a NeutronPort whose port may be in Neutron, or remove it.

    Raises:
        ApiError: as of `set_finalizer`.
    """
    await set_finalizer(client, NEUTRON_PORTS, port, IN_NEUTRON, wanted=wanted)


async def set_finalizer(client: Client, resource: Resource[T], stored: T, finalizer: str, *, wanted: bool) -> None:
    """Set a finalizer of an object, or remove it.

    Raises:
        ApiError: the object was changed meanwhile, or cannot be written just now.
    """
    metadata = stored.metadata
    others = [name for name in metadata.finalizers if name != finalizer]
    finalizers = [*others, finalizer] if wanted else others
    patch = {"finalizers": finalizers, "resourceVersion": metadata.resource_version, "uid": metadata.uid}
    await client.merge(resource, metadata.name, {"metadata": patch}, metadata.namespace)
