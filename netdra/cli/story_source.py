"""Where the objects of a story are read: a cluster, or a support bundle in its place. Used by `netdra why`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from netdra.cli.shared import ClusterAccess
from netdra.model.errors import InvalidInputError

if TYPE_CHECKING:
    from netdra.cluster.objects import ClusterState
    from netdra.kube.client import Client

T = TypeVar("T")


class StorySource:
    """Reads the objects of a story from a live cluster; `RecordedCluster` reads them from a bundle."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access

    def namespace(self) -> str:
        """The namespace of names without one.

        Raises:
            InvalidInputError: the cluster cannot be found.
        """
        return self._access.config().namespace

    def client(self) -> Client:
        """Reads the objects, to be entered.

        Raises:
            InvalidInputError: the cluster cannot be found.
        """
        return self._access.client()

    def translate(self, name: str) -> str:
        """A name that the user knows, as the objects have it."""
        return name

    def restore(self, value: T) -> T:
        """A value made of the objects, with the names that the user knows."""
        return value

    def complete(self, cluster: ClusterState) -> ClusterState:
        """The objects that were read, with a note on those that are not there."""
        return cluster


class RecordedCluster(StorySource):
    """A cluster as a support bundle contains it. With the mapping of an anonymous one, real names are used."""

    def __init__(self, path: Path, mapping_path: Path | None) -> None:
        """Read the files.

        Raises:
            InvalidInputError: one of them cannot be read.
        """
        from netdra.bundle import archive, mapping
        from netdra.bundle.anonymity import Anonymizer

        self._bundle = archive.read_file(path)
        if self._bundle.manifest.of != "cluster":
            what = f"{path}: the bundle of a node does not contain objects of the cluster"
            raise InvalidInputError(what, hint="run netdra support-bundle without --node", code="ND4055")
        self._mapping = mapping.read_file(mapping_path) if mapping_path is not None else None
        self._anonymizer = Anonymizer(self._mapping) if self._mapping is not None else None

    def namespace(self) -> str:
        """The namespace of the context in which the bundle was written."""
        return self._bundle.manifest.namespace

    def client(self) -> Client:
        """Reads the objects of the bundle."""
        from netdra.bundle.recorded import RecordedClient

        return RecordedClient(self._bundle)

    def translate(self, name: str) -> str:
        """A name of the cluster as the bundle has it."""
        return self._anonymizer.name(name) if self._anonymizer is not None else name

    def restore(self, value: T) -> T:
        """A value made of the bundle, with the names of the cluster."""
        if self._mapping is None:
            return value
        from netdra.bundle.anonymity import restore

        return msgspec.convert(restore(msgspec.to_builtins(value), self._mapping), type(value))

    def complete(self, cluster: ClusterState) -> ClusterState:
        """The objects, with a note on those that the bundle's limit left out."""
        from netdra.bundle.content import gaps

        return msgspec.structs.replace(cluster, unread={**cluster.unread, **gaps(self._bundle.manifest.left_out)})


def story_source(access: ClusterAccess, path: Path | None, mapping: Path | None) -> StorySource:
    """The cluster, or the bundle that takes its place.

    Raises:
        click.UsageError: options contradict each other.
        InvalidInputError: the bundle cannot be read.
    """
    if path is None and mapping is not None:
        raise click.UsageError("--mapping belongs to an anonymous bundle: specify --bundle")
    if path is None:
        return StorySource(access)
    if access.is_given:
        raise click.UsageError("--bundle takes the place of a cluster: omit --kubeconfig and --context")
    return RecordedCluster(path, mapping)
