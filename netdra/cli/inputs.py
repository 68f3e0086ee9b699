"""The inputs of several commands: files of objects, an inventory, the API server's features.

Used by the modules beside it. "-" is standard input.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO, TypeVar

import msgspec

from netdra.cli import shared, terminal
from netdra.model import names, suggestions, yaml_text
from netdra.model.device import Features
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Inventory

Kind = TypeVar("Kind")

GATES = {
    "DRAPartitionableDevices": "partitionable_devices",
    "DRAConsumableCapacity": "consumable_capacity",
    "DRAListTypeAttributes": "list_attributes",
    "DRADeviceTaints": "device_taints",
}
MAX_BYTES = yaml_text.MAX_TEXT
SUFFIXES = (".yaml", ".yml", ".json")

ALLOCATABLE = {"pods": "110"}
"""The resources that policies can read of a node without its own: the kubelet's default."""

OURS = (f"{names.GROUP}/", f"{names.SCHEMA_GROUP_VERSION.split('/')[0]}/", "resource.k8s.io/")
"""The API groups whose objects are checked; all others are passed over, so that whole manifests can be given."""


class NoTextError(InvalidInputError):
    """A file that can be read does not contain a text that commands take."""


class RecordedInventory(NamedTuple):
    """The options of an inventory: a recorded one or this machine's, and the changes to it.

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

    def choose(self, recorded: Sequence[Inventory]) -> list[Inventory]:
        """The inventories of the input, or this machine's if none exists, with the values of the options.

        Args:
            recorded: the inventories of the input. With several of them --node chooses one, with one it renames it.

        Raises:
            InvalidInputError: no inventory is of this node, the name is not valid, or an interface does not exist.
            NetdraError: this machine's interfaces cannot be listed.
        """
        name = self.node_name
        if name is not None:
            check_node(name)
        if len(recorded) > 1 and name is not None:
            names_there = [inventory.node.name for inventory in recorded]
            recorded = [inventory for inventory in recorded if inventory.node.name == name]
            if not recorded:
                hint = f"the inventories are of {suggestions.listed(names_there)}"
                raise InvalidInputError(f'--node "{name}": inventory not found', hint=hint, code="ND4022")
        return [self._changed(inventory) for inventory in recorded or [_scanned()]]

    def _changed(self, scanned: Inventory) -> Inventory:
        scanned = with_uses(scanned, self.uplinks, self.used)
        if self.physnets or scanned.node.physnets:
            from netdra.discovery.overrides import with_physnets
            from netdra.exposure.physnets import read

            scanned = with_physnets(scanned, read(self.physnets) if self.physnets else scanned.node.physnets)
        facts = scanned.node
        if not facts.allocatable:
            facts = msgspec.structs.replace(facts, allocatable=ALLOCATABLE)
        node = msgspec.structs.replace(facts, name=self.node_name or facts.name)
        return msgspec.structs.replace(scanned, node=node)


policies_option = shared.option(
    "--policies", "PATH", "An additional PATH with policies or other objects.", "policy_paths", multiple=True
)

uplink_option = shared.option(
    "--uplink",
    "NAME|none",
    "Of a recorded tree: an interface that carries the node's traffic; repeatable.",
    "uplinks",
    multiple=True,
)
host_use_option = shared.option(
    "--host-use",
    "NAME|none",
    "Of a recorded tree: an interface that the host uses; repeatable.",
    "used",
    multiple=True,
)
inventory_options = shared.group(
    "recorded",
    RecordedInventory,
    shared.option(
        "--inventory",
        "FILE",
        "Use the inventory of this file instead of those in PATHs. Without any inventory, this "
        "machine's interfaces are used.",
        "inventory_path",
    ),
    shared.option(
        "--node",
        "NAME",
        "The node's name in Kubernetes, if it differs from the inventory's; selects one of several inventories.",
        "node_name",
    ),
    uplink_option,
    host_use_option,
    shared.physnet,
)
feature_option = shared.option(
    "--feature",
    "GATE=true|false",
    f"Feature gates of the API server that differ from the defaults of Kubernetes 1.37: {', '.join(GATES)}.",
    "gates",
    multiple=True,
)


def check_node(node: str) -> None:
    """Check the value of --node.

    Raises:
        InvalidInputError: a node cannot have the name.
    """
    if not names.is_subdomain(node):
        raise InvalidInputError(
            f'--node "{node}" is not a valid node name',
            hint="use lower-case letters, digits, - and ., as in worker-1",
            code="ND4023",
        )


def with_uses(recorded: Inventory, uplinks: Sequence[str], used: Sequence[str]) -> Inventory:
    """The inventory with the values of --uplink and --host-use; its own where none is given.

    Raises:
        InvalidInputError: no such interface exists.
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
        NoTextError: it is too long, or is not a text.
        InvalidInputError: it cannot be read.
    """
    shown = name(path)
    stdin: TextIO | None = sys.stdin
    if path == "-" and stdin is None:
        raise InvalidInputError(f"{shown}: it is closed", hint="specify a file, or redirect the input", code="ND4024")
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise InvalidInputError(f"{shown}: {problem.strerror}", hint=_unread(problem), code="ND4025") from None
    if len(data) > MAX_BYTES:
        raise NoTextError(
            f"{shown}: longer than the limit of {MAX_BYTES} bytes",
            hint="split the file, for example by nodes",
            code="ND4026",
        )
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        what = f"{shown}: byte {problem.start} is not valid UTF-8"
        raise NoTextError(what, hint="save the file as YAML or JSON in UTF-8", code="ND4027") from None


def _unread(problem: OSError) -> str:
    if isinstance(problem, FileNotFoundError | NotADirectoryError):
        return 'specify an existing file, or "-" for standard input'
    if isinstance(problem, IsADirectoryError):
        return "specify a file in this directory"
    return "specify a file that this user can read"


def name(path: str) -> str:
    """A path's name in messages."""
    return "standard input" if path == "-" else terminal.path(path)


def sources(paths: Sequence[str]) -> str:
    """The files' names, in messages."""
    return ", ".join(map(name, paths))


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Files make hundreds of thousands of objects, none in a circle; the collector would search all of them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # they stay until the command ends
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
            hint = f"use GATE=true or GATE=false; the gates are {', '.join(GATES)}"
            raise InvalidInputError(f'--feature "{gate}" is not valid', hint=hint, code="ND4028")
        changes[GATES[gate_name]] = value == "true"
    return msgspec.structs.replace(Features(), **changes)


def _scanned() -> Inventory:
    from netdra.discovery.scan import scan

    return scan()


def once(paths: Sequence[str]) -> list[str]:
    """The files that paths name, each one time."""
    return list({identity(file): file for file in reversed(files(paths))}.values())[::-1]


def identity(file: str) -> str:
    """A file, however its path is written."""
    return file if file == "-" else str(Path(file).resolve())


def identities(paths: Sequence[str]) -> frozenset[str]:
    """The files of paths, however these are written."""
    return frozenset(map(identity, files(paths)))


def files(paths: Sequence[str]) -> list[str]:
    """The files of paths: a file itself, those of a folder and of the folders in it by their names, "-" for stdin."""
    return [file for path in paths for file in ([path] if path == "-" or not Path(path).is_dir() else _inside(path))]


def _inside(folder: str) -> list[str]:
    paths: list[str] = []
    try:
        for inner, folders, names_there in os.walk(folder, onerror=_raise):
            folders[:] = sorted(entry for entry in folders if not entry.startswith("."))
            paths += (os.path.join(inner, entry) for entry in sorted(names_there) if entry.endswith(SUFFIXES))
    except OSError as problem:
        raise InvalidInputError(f"{name(folder)}: {problem.strerror}", hint=_unread(problem), code="ND4029") from None
    if not paths:
        what = f"{name(folder)}: no file in this directory has the suffix {', '.join(SUFFIXES)}"
        raise InvalidInputError(what, hint="specify a directory with YAML or JSON files", code="ND4030")
    return paths


def _raise(problem: OSError) -> None:
    raise problem
