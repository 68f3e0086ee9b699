"""One reader for the commands that work on objects: files, folders and standard input in any mixture, and a cluster.

Used by `plan`, `explain`, `simulate`, `validate`, `render` and `graph`. Each command asks for the kinds that it needs;
objects of other kinds are not decoded. Objects of files override those of the cluster of the same kind and name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

import click
import msgspec

from netdra.cli import inputs, shared, terminal
from netdra.model import documents, suggestions
from netdra.model.claim import ResourceClaim, ResourceClaimTemplate
from netdra.model.core import ClusterNode
from netdra.model.custom_device import CustomDevice
from netdra.model.documents import Document
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding
from netdra.model.inventory import Inventory, InventoryNode
from netdra.model.registration import Registration
from netdra.model.resource import ResourceSlice, SharedValues
from netdra.model.scheduler_version import NEWEST_SCHEDULER, SchedulerVersion

if TYPE_CHECKING:
    from netdra.cli.cluster_objects import ClusterObjects

Kind = TypeVar("Kind")
DocumentKind = TypeVar("DocumentKind", bound=Document)
Claim = ResourceClaim | ResourceClaimTemplate

INVENTORY = "inventory"
"""What messages call a node's inventory, which has no kind."""
NODE = ClusterNode.__name__
_OTHERS_OF_RESOURCE = frozenset({"DeviceTaintRule", "PodSchedulingContext", "ResourcePoolStatusRequest"})
"""Kinds of resource.k8s.io that netdra does not read."""
_MOST_CHECKED = 100
"""Slices in which fields are looked for that netdra does not read: those of one driver are alike."""


class InputEntry(NamedTuple):
    """One document: its plain value, its place in messages, and its file."""

    value: Any
    place: str
    file: str


class UnknownKinds:
    """The kinds that netdra and Kubernetes do not have, each with its first place and the number of its documents."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, Finding]] = {}
        self._count: Counter[str] = Counter()

    def add(self, value: Any, finding: Finding, place: str) -> bool:
        """Count a document; whether it is the first one of its kind."""
        kind = str(value.get("kind"))
        self._first.setdefault(kind, (place, finding))
        self._count[kind] += 1
        return self._count[kind] == 1

    def texts(self) -> Iterator[str]:
        """One line a kind."""
        for kind, (place, finding) in self._first.items():
            more = self._count[kind] - 1
            others = f" (and {more} more document{'s' * (more != 1)})" if more else ""
            yield f"{place}{others}: ignored: {finding.text}"


class InputObjects:
    """The documents of files, and the objects of a cluster; decoded when a command asks for their kind.

    Attributes:
        source: their name in messages.
        unknown: the unknown kinds.
        foreign: the documents of other API groups.
        chosen: the version of Kubernetes that an option names.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.unknown = UnknownKinds()
        self.foreign: list[InputEntry] = []
        self.cluster: ClusterObjects | None = None
        self.chosen: SchedulerVersion | None = None
        self._all: list[InputEntry] = []
        self._entries: dict[str, list[InputEntry]] = {}
        self._decoded: dict[int, Document] = {}
        self._values = SharedValues()

    def add(self, entry: InputEntry) -> None:
        """Take a document.

        Raises:
            InvalidInputError: it is not an object, or its apiVersion is almost netdra's.
        """
        kind = kind_of(entry.value, entry.place)
        if isinstance(kind, Finding):
            self.unknown.add(entry.value, kind, entry.place)
        elif kind is None:
            self.foreign.append(entry)
        else:
            entries = self._entries.setdefault(kind, [])
            if kind == ResourceSlice.__name__ and len(entries) >= _MOST_CHECKED:
                entry = self._decode_now(entry)
            entries.append(entry)
            self._all.append(entry)

    def _decode_now(self, entry: InputEntry) -> InputEntry:
        """Decode one of many slices, and keep of its plain value, which takes most of the memory, what names it.

        A slice that cannot be decoded is an error only for commands that ask for slices.
        """
        try:
            document = documents.decode(entry.value, entry.place)
        except InvalidInputError:
            return entry
        assert isinstance(document, ResourceSlice)
        self._values.share(document)
        head = {key: entry.value.get(key) for key in ("apiVersion", "kind", "metadata")}
        self._decoded[id(head)] = document
        return entry._replace(value=head)

    def of(self, kind: type[DocumentKind], files: Collection[str] | None = None) -> list[DocumentKind]:
        """The objects of a kind; with `files`, those of these files alone.

        Raises:
            InvalidInputError: one breaks its schema.
        """
        with inputs.without_collector():
            written: list[Any] = [self._decode(entry) for entry in self.entries(kind, files)]
        return written if files is not None else self._with_cluster(kind, written)

    def _decode(self, entry: InputEntry) -> Document:
        known = self._decoded.get(id(entry.value))
        if known is None:
            known = self._decoded[id(entry.value)] = documents.decode(entry.value, entry.place)
        return known

    def claims(self, files: Collection[str] | None = None) -> list[Claim]:
        """The claims and templates of files in their order, and then those of the cluster.

        Args:
            files: the only files that are inspected, without the cluster.

        Raises:
            InvalidInputError: one of a file breaks its schema.
        """
        wanted = (ResourceClaim.__name__, ResourceClaimTemplate.__name__)
        entries = (entry for entry in self._all if _shown(entry.value) in wanted)
        written: list[Any] = [self._decode(entry) for entry in entries if files is None or entry.file in files]
        if files is not None or self.cluster is None:
            return written
        known = set(map(id, written))
        there = (*self.of(ResourceClaim), *self.of(ResourceClaimTemplate))
        return [*written, *(claim for claim in there if id(claim) not in known)]

    @property
    def files(self) -> frozenset[str]:
        """The files with objects."""
        return frozenset(entry.file for entry in self._all)

    def entries(self, kind: type, files: Collection[str] | None = None) -> list[InputEntry]:
        """The plain documents of a kind."""
        entries = self._entries.get(kind.__name__, [])
        return entries if files is None else [entry for entry in entries if entry.file in files]

    def require(self, kind: type[DocumentKind]) -> list[DocumentKind]:
        """As `of`, of a kind without which the command has nothing to do.

        Raises:
            InvalidInputError: as of `of`; or none exists.
        """
        if not (objects := self.of(kind)):
            raise self.missing(kind.__name__)
        return objects

    def missing(self, wanted: str, *paths: str) -> InvalidInputError:
        """The error where none of the wanted objects is in the input; its hint has the kinds that are.

        Args:
            wanted: their kind.
            paths: the only paths that are inspected; all without one.
        """
        files = inputs.identities(paths) if paths else None
        entries = [*self._all, *self.foreign]
        kinds = {_shown(entry.value) for entry in entries if files is None or entry.file in files}
        there = (
            f"the input contains {suggestions.listed(sorted(kinds))}"
            if kinds
            else "the input does not contain any objects"
        )
        step = "add a PATH with such an object, or use --cluster"
        if self.cluster is not None:
            refused = [plural for plural, kind in self.cluster.refused().items() if kind in wanted.split()]
            right = f"request the permission to list {suggestions.listed(refused)}, or " if refused else ""
            step = f"{right}add a PATH with such an object"
        source = inputs.sources(paths) if paths else self.source
        return InvalidInputError(f"{source}: {wanted} not found", hint=f"{there}; {step}", code="ND4035")

    def nodes(self) -> list[ClusterNode]:
        """The Nodes.

        Raises:
            InvalidInputError: one has no name, or invalid labels.
        """
        return self._with_cluster(ClusterNode, [_node(entry) for entry in self._entries.get(NODE, [])])

    def inventories(self, file: str | None = None) -> list[Inventory]:
        """The inventories; with a file, its own.

        Raises:
            InvalidInputError: one breaks the schema; the file has none.
        """
        entries = self._entries.get(INVENTORY, [])
        if file is not None:
            own = inputs.identities([file])
            entries = [entry for entry in entries if entry.file in own]
            if not entries:
                raise InvalidInputError(
                    f"{inputs.name(file)}: inventory not found", hint=documents.RECORD, code="ND4036"
                )
        nodes = {node.metadata.name: node for node in self.nodes()}
        return [_labelled(documents.inventory_of(entry.value, entry.place), nodes) for entry in entries]

    def misread(self) -> Iterator[str]:
        """The unread parts of slices and claims, which must have been decoded; with the file and the object."""
        from netdra.slices.written import misread

        slices = self.entries(ResourceSlice)[:_MOST_CHECKED]
        for entry in (*slices, *self.entries(ResourceClaim), *self.entries(ResourceClaimTemplate)):
            subject = f'{entry.place}: {entry.value["kind"]} "{entry.value["metadata"].get("name", "")}"'
            yield from (f"{subject}: {wrong.finding.text_at_path}" for wrong in misread(entry.value))

    def registrations(self, node: InventoryNode) -> tuple[Registration, ...]:
        """The facts in CustomDevices about a node's devices."""
        from netdra.exposure.registered import of_custom_device

        chosen = (of_custom_device(device, node.name, node.labels) for device in self.of(CustomDevice))
        return tuple(registration for registration in chosen if registration is not None)

    @property
    def scheduler(self) -> SchedulerVersion:
        """The version of Kubernetes whose scheduler allocates: the chosen one, the cluster's, or the newest release."""
        if self.chosen is not None:
            return self.chosen
        return NEWEST_SCHEDULER if self.cluster is None else self.cluster.version

    def _with_cluster(self, kind: type[Kind], written: list[Kind]) -> list[Kind]:
        if self.cluster is None:
            return written
        keys = {self.cluster.key(entry) for entry in written}
        return [*written, *(entry for entry in self.cluster.of(kind) if self.cluster.key(entry) not in keys)]


class InputOptions(NamedTuple):
    """The options of all commands that read objects: PATHs, and the cluster."""

    paths: tuple[str, ...]
    of_cluster: bool
    cluster: shared.ClusterAccess

    def check(self, *more: str | None) -> None:
        """Check that an input is specified, and that options of the cluster are used with --cluster.

        Raises:
            click.UsageError: the input is missing, or they are used without it.
        """
        for option, value in zip(("--kubeconfig", "--context"), self.cluster, strict=True):
            if value is not None and not self.of_cluster:
                raise click.UsageError(f"{option} requires --cluster")
        if not (self.of_cluster or self.paths or any(more)):
            raise click.UsageError("Missing argument 'PATH...': specify files or directories, or use --cluster.")

    def read(self, kinds: Iterable[type], *more: str | None, driver: str = "") -> InputObjects:
        """The objects of the paths, of further paths, and of the cluster. Unknown kinds are reported on stderr.

        Args:
            kinds: what is read of the cluster.
            more: the values of options that name paths, too; they are read first.
            driver: the only driver whose slices are read of the cluster; "" for all.

        Raises:
            InvalidInputError: a file cannot be read, or is not YAML.
            ApiError: the cluster cannot be read; a right that is missing is reported on stderr instead.
        """
        paths = [*(path for path in more if path is not None), *self.paths]
        objects = read(paths, source=self.source(paths))
        if self.of_cluster:
            from netdra.cli import cluster_objects

            objects.cluster = cluster_objects.read(self.cluster, kinds, driver)
        for text in objects.unknown.texts():
            terminal.tell(text)
        return objects

    def source(self, paths: Sequence[str]) -> str:
        """The name of the input in messages."""
        return ", ".join([*map(inputs.name, dict.fromkeys(paths)), *(["the cluster"] if self.of_cluster else [])])


def options(
    of_cluster: str = "Also read objects from the cluster; objects in PATHs replace them.",
) -> shared.Decorator:
    """The argument PATH and the options of the cluster, as the command's argument `given`."""
    return shared.group(
        "given",
        InputOptions,
        click.argument("paths", metavar="PATH...", nargs=-1),
        click.option("--cluster", "of_cluster", is_flag=True, help=of_cluster),
        shared.cluster("With --cluster: the kubeconfig.", "With --cluster: the context of the kubeconfig."),
    )


slices = shared.option(
    "--slices", "PATH", "An additional PATH with slices or other objects.", "slice_paths", multiple=True
)


def kubernetes_version() -> shared.Decorator:
    """The option for the version of the scheduler, as the command's argument `kubernetes`."""
    return shared.option(
        "--kubernetes-version",
        "VERSION",
        f"Allocate as the scheduler of this version, e.g. {NEWEST_SCHEDULER}. [default: the cluster's, or"
        f" {NEWEST_SCHEDULER}]",
        "kubernetes",
        callback=lambda _context, _option, value: None if value is None else SchedulerVersion.parse(value),
    )


def read(paths: Sequence[str], source: str) -> InputObjects:
    """The documents of files and folders, each file once.

    Raises:
        InvalidInputError: a file cannot be read, is not YAML, or contains a document that is not an object.
    """
    objects = InputObjects(source)
    with inputs.without_collector():
        for path in inputs.once(paths):
            file = inputs.identity(path)
            for value, place in documents.values(inputs.text(path), inputs.name(path)):
                objects.add(InputEntry(value, place, file))
    return objects


def kind_of(value: Any, place: str) -> str | Finding | None:
    """The kind of a document that netdra reads; None for one of another API group, a finding for one that is unknown.

    Raises:
        InvalidInputError: it is not an object, or its apiVersion is almost netdra's.
    """
    if documents.is_inventory(value):
        return INVENTORY
    if inputs.is_foreign(value):
        if (value.get("apiVersion"), value.get("kind")) == ("v1", "Node"):
            return NODE
        if finding := _misversioned(value):
            raise InvalidInputError(f"{place}: {finding.what}", hint=finding.hint, path=finding.path, code=finding.code)
        return None if isinstance(value.get("kind"), str) else documents.unknown_kind(value)
    if not isinstance(value, dict):
        documents.examine(value, place)
    group = str(value.get("apiVersion")).partition("/")[0]
    if group == "resource.k8s.io" and value.get("kind") in _OTHERS_OF_RESOURCE:
        return None
    return documents.unknown_kind(value) or str(value["kind"])


def _misversioned(value: dict[str, Any]) -> Finding | None:
    """The errors in an object of one of netdra's kinds whose apiVersion is almost the kind's."""
    kind = documents.KINDS.get(str(value.get("kind")))
    if kind is None:
        return None
    (field,) = (field for field in msgspec.structs.fields(kind) if field.encode_name == "apiVersion")
    version = value["apiVersion"]
    if meant := suggestions.closest(version, get_args(field.type)):
        what = f'{kind.__name__} does not exist in apiVersion "{version}"'
        return Finding(what, f'did you mean "{meant}"?', ("apiVersion",), code="ND4037")
    return None


def others(claims: Iterable[ResourceClaim], shown: Iterable[ResourceClaim]) -> list[ResourceClaim]:
    """The claims that have another namespace or name than each of those that are shown."""
    keys = {(claim.metadata.namespace, claim.metadata.name) for claim in shown}
    return [claim for claim in claims if (claim.metadata.namespace, claim.metadata.name) not in keys]


def _shown(value: dict[str, Any]) -> str:
    return str(value.get("kind", INVENTORY))


def _node(entry: InputEntry) -> ClusterNode:
    node = documents.convert(entry.value, ClusterNode, f"{entry.place}: Node")
    if not node.metadata.name:
        raise InvalidInputError(
            f"{entry.place}: Node: metadata.name is missing", hint="set metadata.name of the Node", code="ND4038"
        )
    return node


def _labelled(inventory: Inventory, nodes: Mapping[str, ClusterNode]) -> Inventory:
    """The inventory with the labels and resources of its Node, if the input has that."""
    node = nodes.get(inventory.node.name)
    if node is None:
        return inventory
    labels, amounts = node.metadata.labels, node.status.allocatable or inventory.node.allocatable
    facts = msgspec.structs.replace(inventory.node, labels=labels, allocatable=amounts)
    return msgspec.structs.replace(inventory, node=facts)
