"""What a checkpoint says: its entries, and the state of a sandbox that they add up to. Pure but for the boot's id.

Written and read by `checkpoint`; one entry is one line of JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from netdra.cni.plugins import PluginPath
from netdra.model.errors import PermanentError
from netdra.model.plan import Plan
from netdra.model.result import StepResult

VERSION = 1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Namespace(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod's network namespace: where it was found, and the number that no other one has until the next boot."""

    path: str
    cookie: int


class Pod(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The pod, or any container, that a chain is run for; `sandbox` is CNI_CONTAINERID and keys the checkpoint."""

    sandbox: str
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="entry"):
    pass


class Header(_Entry, frozen=True, kw_only=True, tag="header"):
    """What is to be done, for whom and where."""

    version: int
    boot_id: str
    pod: Pod
    namespace: Namespace
    plugins: PluginPath
    plans: tuple[Plan, ...]


class Begun(_Entry, frozen=True, kw_only=True, tag="begun"):
    """A step is about to act: its config with all references resolved, and what undoing it needs beside that."""

    step: str
    config: Mapping[str, Any]
    undo: Mapping[str, Any] = {}


class Amended(_Entry, frozen=True, kw_only=True, tag="amended"):
    """A step that has begun knows more of what undoing it needs."""

    step: str
    undo: Mapping[str, Any]


class Done(_Entry, frozen=True, kw_only=True, tag="done"):
    """A step has succeeded, with something to say or not."""

    step: str
    result: StepResult
    notes: tuple[str, ...] = ()


class Complete(_Entry, frozen=True, kw_only=True, tag="complete"):
    """All steps have succeeded."""


class Undone(_Entry, frozen=True, kw_only=True, tag="undone"):
    """A step is undone, and what it had may be another pod's by now."""

    step: str


Entry = Header | Begun | Amended | Done | Complete | Undone


class StepState(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal says of a step that has begun."""

    config: Mapping[str, Any]
    undo: Mapping[str, Any]
    result: StepResult | None = None
    notes: tuple[str, ...] = ()
    undone: bool = False


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint says. `steps` are those that have begun, in that order; `damaged` counts unreadable lines."""

    header: Header
    steps: Mapping[str, StepState] = {}
    complete: bool = False
    damaged: int = 0


class BadCheckpointError(PermanentError):
    """A checkpoint that cannot be read."""


_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


@cache
def boot_id() -> str:
    """What tells this boot of the machine from every other one."""
    return _BOOT_ID.read_text().strip()


def read(text: bytes, name: str) -> Saved:
    """The checkpoint in a file's bytes. A last line without its end counts as not written.

    Raises:
        BadCheckpointError: it has no readable header, or is of another version.
    """
    lines = text.split(b"\n")[:-1]
    header = _entry(lines[0]) if lines else None
    if not isinstance(header, Header):
        raise BadCheckpointError(f"checkpoint {name} has no readable header")
    if header.version != VERSION:
        raise BadCheckpointError(f"checkpoint {name} is of version {header.version}, this netdra reads {VERSION}")
    saved = Saved(header=header)
    for line in lines[1:]:
        saved = folded(saved, _entry(line))
    return saved


def _entry(line: bytes) -> Entry | None:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None


def folded(saved: Saved, entry: Entry | None) -> Saved:
    """What is known after one more entry; an entry that makes no sense where it stands is damage."""
    match entry:
        case Complete():
            return msgspec.structs.replace(saved, complete=True)
        case Begun():
            return _with_step(saved, entry.step, StepState(config=entry.config, undo=entry.undo))
        case Amended() if entry.step in saved.steps:
            return _with_step(saved, entry.step, msgspec.structs.replace(saved.steps[entry.step], undo=entry.undo))
        case Done() if entry.step in saved.steps:
            done = msgspec.structs.replace(saved.steps[entry.step], result=entry.result, notes=entry.notes)
            return _with_step(saved, entry.step, done)
        case Undone() if entry.step in saved.steps:
            return _with_step(saved, entry.step, msgspec.structs.replace(saved.steps[entry.step], undone=True))
        case _:
            return msgspec.structs.replace(saved, damaged=saved.damaged + 1)


def _with_step(saved: Saved, step: str, state: StepState) -> Saved:
    return msgspec.structs.replace(saved, steps={**saved.steps, step: state})
