"""The inputs of several commands: files of objects, an inventory, the API server's features.

Used by the modules beside it. "-" is standard input.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO, TypeVar

import click
import msgspec

from netdra.cli import shared, terminal
from netdra.model import documents, names, yaml_text
from netdra.model.custom_device import CustomDevice
from netdra.model.device import Features
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Inventory, InventoryNode
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import Registration
from netdra.model.resource import ResourceSlice

if TYPE_CHECKING:
    from netdra.slices.nodes import SchedulerNode

Kind = TypeVar("Kind")

GATES = {
    "DRAPartitionableDevices": "partitionable_devices",
    "DRAConsumableCapacity": "consumable_capacity",
    "DRAListTypeAttributes": "list_attributes",
    "DRADeviceTaints": "device_taints",
}
MAX_BYTES = 4 * yaml_text.MAX_TEXT
SUFFIXES = (".yaml", ".yml", ".json")

ALLOCATABLE = {"pods": "110"}
"""The resources that policies can read of a node without its own: the kubelet's default."""

OURS = (f"{names.GROUP}/", f"{names.SCHEMA_GROUP_VERSION.split('/')[0]}/", "resource.k8s.io/")
"""The API groups whose objects are checked; all others are passed over, so that whole manifests can be given."""


_MOST_LOOKED_AT = 100
"""Slices in which fields are looked for that netdra does not read: those of one driver are alike."""


class _NodeMetadata(msgspec.Struct, frozen=True):
    """What is read of a Node."""

    name: str
    labels: Mapping[str, str] = {}


class RecordedInventory(NamedTuple):
    """The options of an inventory: a recorded one or this machine's, and what of it is otherwise.

    Attributes:
        inventory_path: the file; this machine's inventory without it.
        node_name: the node's name, if it is another than the inventory's.
        uplinks: the uplinks of a recorded tree.
        used: the interfaces of a recorded tree that the host uses.
        physnets: the physical networks of NICs, `PHYSNET=NIC,NIC`; the inventory's own if none is given.
    """

    inventory_path: str | None
    node_name: str | None
    uplinks: Sequence[str]
    used: Sequence[str]
    physnets: Sequence[str]

    def read(self) -> Inventory:
        """The inventory.

        Raises:
            InvalidInputError: the file cannot be read, or holds no inventory; a node cannot have the name.
            NetdraError: this machine's interfaces cannot be listed.
        """
        path, node = self.inventory_path, self.node_name
        if node is not None:
            check_node(node)
        scanned = _scanned() if path is None else documents.inventory(text(path), name(path))
        scanned = with_uses(scanned, self.uplinks, self.used)
        if self.physnets:
            from netdra.discovery.overrides import with_physnets
            from netdra.exposure.physnets import read

            scanned = with_physnets(scanned, read(self.physnets))
        facts = scanned.node
        if not facts.allocatable:
            facts = msgspec.structs.replace(facts, allocatable=ALLOCATABLE)
        return msgspec.structs.replace(scanned, node=msgspec.structs.replace(facts, name=node or facts.name))


def policies_option(*, required: bool) -> shared.Decorator:
    """The option --policies."""
    what = "A file with DeviceExposurePolicies (and CustomDevices), or a folder of such; may be given several times."
    return shared.option("--policies", "PATH", what, "policy_paths", required=required, multiple=True)


uplink_option = shared.option(
    "--uplink",
    "NAME|none",
    "Of a recorded tree: an interface that carries the node's own traffic; may be given several times.",
    "uplinks",
    multiple=True,
)
host_use_option = shared.option(
    "--host-use",
    "NAME|none",
    "Of a recorded tree: an interface that the host itself uses; may be given several times.",
    "used",
    multiple=True,
)
inventory_options = shared.group(
    "recorded",
    RecordedInventory,
    shared.option(
        "--inventory",
        "FILE",
        "An inventory that `netdra capture` recorded; without it, this machine's interfaces.",
        "inventory_path",
    ),
    shared.option(
        "--node", "NAME", "The node's name in Kubernetes, if it is another than the inventory's.", "node_name"
    ),
    uplink_option,
    host_use_option,
    shared.physnet,
)
feature_option = shared.option(
    "--feature",
    "GATE=true|false",
    f"What the API server takes, other than Kubernetes 1.37 by default: {', '.join(GATES)}.",
    "gates",
    multiple=True,
)


def check_node(node: str) -> None:
    """Check the value of --node.

    Raises:
        InvalidInputError: a node cannot have the name.
    """
    if not names.is_subdomain(node):
        raise InvalidInputError(f'--node "{node}" is no node name', hint="a node's name is a DNS subdomain")


def with_uses(recorded: Inventory, uplinks: Sequence[str], used: Sequence[str]) -> Inventory:
    """The inventory with the values of --uplink and --host-use; its own where none is given.

    Raises:
        InvalidInputError: there is no such interface.
    """
    if uplinks:
        from netdra.discovery.overrides import with_uplinks

        recorded = with_uplinks(recorded, uplinks)
    if used:
        from netdra.discovery.overrides import with_host_use

        recorded = with_host_use(recorded, used)
    return recorded


def text(path: str) -> str:
    """The text of a file, or of standard input for "-".

    Raises:
        InvalidInputError: it cannot be read, is too long, or is no text.
    """
    shown = name(path)
    stdin: TextIO | None = sys.stdin
    if path == "-" and stdin is None:
        raise InvalidInputError(f"{shown}: it is closed", hint="name a file, or have a program or a file as its input")
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise InvalidInputError(f"{shown}: {problem.strerror}", hint=_unread(problem)) from None
    if len(data) > MAX_BYTES:
        raise InvalidInputError(f"{shown}: longer than the {MAX_BYTES} bytes that are read", hint="split it")
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        what = f"{shown}: byte {problem.start} is not of a UTF-8 text"
        raise InvalidInputError(what, hint="files hold YAML or JSON, in UTF-8") from None


def _unread(problem: OSError) -> str:
    if isinstance(problem, FileNotFoundError | NotADirectoryError):
        return 'name a file that is there, or "-" for standard input'
    if isinstance(problem, IsADirectoryError):
        return "name a file in this folder"
    return "name a file that this user can read"


def name(path: str) -> str:
    """A path's name in messages."""
    return "standard input" if path == "-" else terminal.path(path)


def objects(paths: Sequence[str], kind: type[Kind]) -> list[Kind]:
    """The objects of one kind in files and in folders of files; other kinds that netdra knows are passed over.

    Raises:
        InvalidInputError: a file cannot be read, or holds an object that breaks its schema; or none is of the kind.
    """
    there = everything(paths)
    chosen: list[Kind] = [item for item in there if isinstance(item, kind)]
    if not chosen:
        raise missing(kind.__name__, paths, there)
    return chosen


def policies(paths: Sequence[str], node: InventoryNode) -> tuple[list[DeviceExposurePolicy], tuple[Registration, ...]]:
    """The policies in files, and the registrations of the CustomDevices beside them for a node.

    Args:
        paths: files and folders.
        node: the node.

    Raises:
        InvalidInputError: as `objects`.
    """
    from netdra.exposure.registered import of_custom_device

    there = everything(paths)
    written = [policy for policy in there if isinstance(policy, DeviceExposurePolicy)]
    if not written:
        raise missing(DeviceExposurePolicy.__name__, paths, there)
    chosen = (of_custom_device(device, node.name, node.labels) for device in there if isinstance(device, CustomDevice))
    return written, tuple(registration for registration in chosen if registration is not None)


class ForAllocation(NamedTuple):
    """What claims are allocated from and by.

    Attributes:
        objects: the objects of the kinds that netdra knows, in their order.
        nodes: the Node objects among them: names and labels.
        problems: what of the objects is not read, or the API server would refuse, with the file and the object.
    """

    objects: list[documents.Document]
    nodes: list[SchedulerNode]
    problems: list[str]


def for_allocation(paths: Sequence[str]) -> ForAllocation:
    """The objects of files and folders from which claims are allocated, and Nodes beside them.

    Raises:
        InvalidInputError: as `everything`; a Node has no name, or labels that are none.
    """
    from netdra.slices.nodes import SchedulerNode
    from netdra.slices.written import misread

    found = ForAllocation([], [], [])
    looked = 0
    with _without_collector():
        for value, place in (pair for path in files(paths) for pair in documents.values(text(path), name(path))):
            if isinstance(value, dict) and (value.get("kind"), value.get("apiVersion")) == ("Node", "v1"):
                metadata = documents.convert(value.get("metadata"), _NodeMetadata, f"{place}: Node: metadata")
                found.nodes.append(SchedulerNode(metadata.name, metadata.labels))
                continue
            document = documents.decode(value, place)
            found.objects.append(document)
            looked += isinstance(document, ResourceSlice)
            if not isinstance(document, ResourceSlice) or looked <= _MOST_LOOKED_AT:
                subject = f'{place}: {document.kind} "{document.metadata.name}"'
                found.problems.extend(f"{subject}: {each.finding.text_at_path}" for each in misread(value))
    return found


def sources(paths: Sequence[str]) -> str:
    """The files' names, in messages."""
    return ", ".join(map(name, paths))


def check_stdin(*paths: str | None) -> None:
    """See that at most one input of a command is standard input.

    Raises:
        click.UsageError: several are.
    """
    if paths.count("-") > 1:
        raise click.UsageError("standard input can be read once: only one input can be -")


def missing(wanted: str, paths: Sequence[str], there: Sequence[documents.Document]) -> InvalidInputError:
    """The error where files have none of the wanted objects; its hint has the kinds that are there instead."""
    kinds = sorted({item.kind for item in there})
    hint = f"found there: {', '.join(kinds)}" if kinds else "there is no object at all"
    return InvalidInputError(f"{sources(paths)}: no {wanted}", hint=hint)


def everything(paths: Sequence[str]) -> list[documents.Document]:
    """The objects of all kinds that netdra knows in files and in folders of files, in their order.

    Raises:
        InvalidInputError: a file cannot be read, or holds an object of another kind, or one that breaks its schema.
    """
    with _without_collector():
        return [document for path in files(paths) for document in documents.read(text(path), name(path))]


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Files make hundreds of thousands of objects, none in a circle; the collector would look through all of them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def is_foreign(value: object) -> bool:
    """Whether a document is an object of an API group that is not ours."""
    version = value.get("apiVersion") if isinstance(value, dict) else None
    return isinstance(version, str) and bool(version) and not version.startswith(OURS)


def features(gates: Sequence[str]) -> Features:
    """The API server's features, from `GATE=true|false`.

    Raises:
        InvalidInputError: a gate is unknown, or is neither true nor false.
    """
    changes = {}
    for gate in gates:
        gate_name, _, value = gate.partition("=")
        if gate_name not in GATES or value not in {"true", "false"}:
            hint = f"write GATE=true or GATE=false; the gates are {', '.join(GATES)}"
            raise InvalidInputError(f'--feature "{gate}" is not understood', hint=hint)
        changes[GATES[gate_name]] = value == "true"
    return msgspec.structs.replace(Features(), **changes)


def _scanned() -> Inventory:
    from netdra.discovery.scan import scan

    return scan()


def files(paths: Sequence[str]) -> list[str]:
    """The files of paths: a file itself, those of a folder by their names, "-" for standard input."""
    return [file for path in paths for file in ([path] if path == "-" or not Path(path).is_dir() else _inside(path))]


def _inside(folder: str) -> list[str]:
    try:
        paths = sorted(str(file) for file in Path(folder).iterdir() if file.suffix in SUFFIXES)
    except OSError as problem:
        raise InvalidInputError(f"{name(folder)}: {problem.strerror}", hint=_unread(problem)) from None
    if not paths:
        what = f"{name(folder)}: no file in this folder ends in {', '.join(SUFFIXES)}"
        raise InvalidInputError(what, hint="folders inside it are not looked into")
    return paths
