"""A topology's desired DeviceClasses against the current ones: the classes to create, change and delete.

Pure. Called by `netdra.controller.controller`. A class is ours if a NetworkTopology of this name owns it; another class
of the same name is not netdra's, and is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from netdra.model.claim import DeviceClass
from netdra.model.device import Features
from netdra.model.meta import OwnerReference
from netdra.model.names import GROUP_VERSION
from netdra.model.pod_network import PodNetwork
from netdra.model.topology import NetworkTopology
from netdra.topology.classes import device_classes, owner

KIND = NetworkTopology.__name__


class ClassWrites(msgspec.Struct, frozen=True):
    """The writes that a topology's classes need.

    Attributes:
        names: the desired classes, in the order of the root steps.
        create: classes that are missing.
        replace: classes of netdra that are not as they should be, as they are to be.
        delete: classes of netdra that are not desired, or are those of a topology that had the name before.
        foreign: classes of other owners under a desired name.
    """

    names: tuple[str, ...] = ()
    create: tuple[DeviceClass, ...] = ()
    replace: tuple[DeviceClass, ...] = ()
    delete: tuple[DeviceClass, ...] = ()
    foreign: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether every class is there as it should be, and no other."""
        return not (self.create or self.replace or self.delete or self.foreign)


def changes(topology: NetworkTopology, present: Mapping[str, DeviceClass], features: Features) -> ClassWrites:
    """The writes for one topology; a topology that is being deleted should have no classes.

    Args:
        topology: a sound topology, as it is stored.
        present: the DeviceClasses that it owns, and those of its steps' names, by name; others make no difference.

    Raises:
        InvalidInputError: the topology is unsound.
    """
    made = () if topology.metadata.deletion_timestamp else device_classes(topology, features)
    wanted = {entry.metadata.name: _owned(entry, topology) for entry in made}
    own = {name: device_class for name, device_class in present.items() if owner(device_class) == topology.name}
    stale = [entry for entry in own.values() if not _belongs(entry, topology) or entry.metadata.name not in wanted]
    current = {name: entry for name, entry in own.items() if entry not in stale}
    # A class that is being deleted still has its name: the new class is made when it is gone.
    return ClassWrites(
        names=tuple(wanted),
        create=tuple(entry for name, entry in wanted.items() if name not in present),
        replace=tuple(merged for name, entry in current.items() if (merged := _merged(entry, wanted[name])) != entry),
        delete=tuple(device_class for device_class in stale if not device_class.metadata.deletion_timestamp),
        foreign=tuple(name for name in wanted if name in present and name not in own),
    )


def is_generated(device_class: DeviceClass) -> bool:
    """Whether the controller made a class, for a topology or a PodNetwork that may be gone."""
    return bool(owner(device_class) or owner(device_class, PodNetwork.__name__))


def owner_reference(topology: NetworkTopology) -> OwnerReference:
    """The reference by which an object is deleted with its topology."""
    return OwnerReference(
        api_version=GROUP_VERSION, kind=KIND, name=topology.name, uid=topology.metadata.uid, controller=True
    )


def _owned(made: DeviceClass, topology: NetworkTopology) -> DeviceClass:
    return replace(made, metadata=replace(made.metadata, owner_references=(owner_reference(topology),)))


def _belongs(device_class: DeviceClass, topology: NetworkTopology) -> bool:
    return any(owner.uid == topology.metadata.uid for owner in device_class.metadata.owner_references)


def _merged(present: DeviceClass, wanted: DeviceClass) -> DeviceClass:
    """The class with all that is ours as it should be; labels and annotations of other clients stay."""
    metadata = replace(present.metadata, labels={**present.metadata.labels, **wanted.metadata.labels})
    return replace(present, metadata=metadata, spec=wanted.spec)
