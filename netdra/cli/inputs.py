"""The inputs of several commands: files of objects, an inventory, the API server's features.

Used by the modules beside it. "-" is standard input.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click
import msgspec

from netdra.cli import terminal
from netdra.model import documents, names, yaml_text
from netdra.model.custom_device import CustomDevice
from netdra.model.device import Features
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Inventory
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import Registration

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

_POLICIES: dict[str, Any] = {
    "metavar": "PATH",
    "multiple": True,
    "help": "A file with DeviceExposurePolicies (and CustomDevices), or a folder of such; may be given several times.",
}
policies_option = click.option("--policies", "policy_paths", required=True, **_POLICIES)
some_policies_option = click.option("--policies", "policy_paths", **_POLICIES)
inventory_option = click.option(
    "--inventory",
    "inventory_path",
    metavar="FILE",
    help="An inventory that `netdra capture` recorded; without it, this machine's interfaces.",
)
node_option = click.option(
    "--node", "node_name", metavar="NAME", help="The node's name in Kubernetes, if it is another than the inventory's."
)
uplink_option = click.option(
    "--uplink",
    "uplinks",
    metavar="NAME|none",
    multiple=True,
    help="Of a recorded tree: an interface that carries the node's own traffic; may be given several times.",
)
host_use_option = click.option(
    "--host-use",
    "used",
    metavar="NAME|none",
    multiple=True,
    help="Of a recorded tree: an interface that the host itself uses; may be given several times.",
)
feature_option = click.option(
    "--feature",
    "gates",
    metavar="GATE=true|false",
    multiple=True,
    help=f"What the API server takes, other than Kubernetes 1.37 by default: {', '.join(GATES)}.",
)


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
    """What to do about a file that cannot be read."""
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
        raise InvalidInputError(f"{sources(paths)}: no {kind.__name__}", hint=holding(there))
    return chosen


def policies(
    paths: Sequence[str], labels: Mapping[str, str]
) -> tuple[list[DeviceExposurePolicy], tuple[Registration, ...]]:
    """The policies in files, and the registrations of the CustomDevices beside them for a node.

    Args:
        paths: files and folders.
        labels: the node's.

    Raises:
        InvalidInputError: as `objects`.
    """
    from netdra.exposure.registered import of_custom_device

    there = everything(paths)
    written = [policy for policy in there if isinstance(policy, DeviceExposurePolicy)]
    if not written:
        raise InvalidInputError(f"{sources(paths)}: no DeviceExposurePolicy", hint=holding(there))
    chosen = (of_custom_device(device, labels) for device in there if isinstance(device, CustomDevice))
    return written, tuple(registration for registration in chosen if registration is not None)


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


def as_list(items: Iterable[object]) -> dict[str, Any]:
    """Objects as the List of JSON that kubectl and these commands read."""
    return {"apiVersion": "v1", "kind": "List", "items": [documents.plain(item) for item in items]}


def holding(there: Sequence[documents.Document]) -> str:
    """The kinds that are there instead of the wanted one, as a hint."""
    kinds = sorted({item.kind for item in there})
    return f"found there: {', '.join(kinds)}" if kinds else "there is no object at all"


def everything(paths: Sequence[str]) -> list[documents.Document]:
    """The objects of all kinds that netdra knows in files and in folders of files, in their order.

    Raises:
        InvalidInputError: a file cannot be read, or holds an object of another kind, or one that breaks its schema.
    """
    return [document for path in files(paths) for document in documents.read(text(path), name(path))]


def is_foreign(value: object) -> bool:
    """Whether a document is an object of an API group that is not ours."""
    version = value.get("apiVersion") if isinstance(value, dict) else None
    return isinstance(version, str) and bool(version) and not version.startswith(OURS)


def inventory(
    path: str | None,
    node: str | None,
    uplinks: Sequence[str] = (),
    used: Sequence[str] = (),
    physnets: Sequence[str] = (),
) -> Inventory:
    """A recorded inventory or this machine's, under another node's name if one is given.

    Args:
        path: of the file; this machine's inventory without it.
        node: the name.
        uplinks: the uplinks of a recorded tree, from `--uplink`.
        used: the interfaces of a recorded tree that the host uses, from `--host-use`.
        physnets: the physical networks of NICs, `PHYSNET=NIC,NIC`; the inventory's own if none is given.

    Raises:
        InvalidInputError: the file cannot be read, or holds no inventory; a node cannot have the name.
        NetdraError: this machine's interfaces cannot be listed.
    """
    if node is not None and not names.is_subdomain(node):
        raise InvalidInputError(f'--node "{node}" is no node name', hint="a node's name is a DNS subdomain")
    scanned = _scanned() if path is None else documents.inventory(text(path), name(path))
    if uplinks:
        from netdra.discovery.overrides import with_uplinks

        scanned = with_uplinks(scanned, uplinks)
    if used:
        from netdra.discovery.overrides import with_host_use

        scanned = with_host_use(scanned, used)
    if physnets:
        from netdra.discovery.overrides import with_physnets
        from netdra.exposure.physnets import read

        scanned = with_physnets(scanned, read(physnets))
    if not scanned.node.allocatable:
        node_facts = msgspec.structs.replace(scanned.node, allocatable=ALLOCATABLE)
        scanned = msgspec.structs.replace(scanned, node=node_facts)
    if node is None:
        return scanned
    return msgspec.structs.replace(scanned, node=msgspec.structs.replace(scanned.node, name=node))


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
