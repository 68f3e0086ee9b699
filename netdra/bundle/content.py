"""The content of a bundle, from the collected objects: reduced, maybe anonymous, and cut to its size. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from netdra.bundle.anonymity import Anonymizer
from netdra.bundle.archive import LeftOut, file_name
from netdra.bundle.recorded import FOLDER, objects_file
from netdra.cluster.objects import ClusterEvent, ContainerState, PlacedPod
from netdra.model.errors import UNREADABLE

Parts = tuple[str, ...]
"""The folders and the name of a file, which may have the names of objects."""


_SUFFIX = re.compile(r"(.*?)((?:\.previous)?\.(?:log|jsonl?|txt)|)", re.DOTALL)
_OURS = ("dra.networking/", "networking.dra.io/", "cni.networking.k8s.io/")
_STATES = ("running", "waiting", "terminated")
_OF_STATE = ("reason", "exitCode", "signal", "startedAt", "finishedAt")
_TEXT_LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) netdra[\w.]*: ")


class Collected(msgspec.Struct, kw_only=True):
    """The collected parts, the most important first in each: the last is left out first.

    Attributes:
        objects: by the plurals of their kinds.
        data: values of netdra's model.
        logs: texts of logs, of which netdra's own lines are kept.
        texts: other texts of netdra.
        left_out: what could not be read.
        namespace: that of the context.
    """

    objects: dict[str, Sequence[Any]] = {}
    data: dict[Parts, Any] = {}
    logs: dict[Parts, str] = {}
    texts: dict[Parts, str] = {}
    left_out: list[LeftOut] = []
    namespace: str = ""


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a bundle, and the parts that it does not contain."""

    files: dict[str, bytes]
    left_out: tuple[LeftOut, ...]
    namespace: str


def content(collected: Collected, anonymizer: Anonymizer | None, most: int) -> Content:
    """The files.

    Args:
        collected: what was read.
        anonymizer: maps names and addresses; None if these stay.
        most: bytes of all files together.
    """
    reduced = _reduced(collected)
    if anonymizer is not None:
        reduced = anonymizer.apply(lambda: _anonymous(reduced, anonymizer))
    files = _Files(most)
    files.left_out += reduced.left_out
    for plural, found in reduced.objects.items():
        files.add_objects(plural, found)
    for parts, value in reduced.data.items():
        files.add(parts, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    for parts, text in (*reduced.texts.items(), *reduced.logs.items()):
        files.add_lines(parts, text.splitlines())
    return Content(files=files.files, left_out=tuple(files.left_out), namespace=reduced.namespace)


def _reduced(collected: Collected) -> Collected:
    return msgspec.structs.replace(
        collected,
        objects={plural: [*map(reduce_object, found)] for plural, found in collected.objects.items()},
        logs={parts: "\n".join(own_lines(text)) for parts, text in collected.logs.items()},
    )


def _anonymous(reduced: Collected, anonymizer: Anonymizer) -> Collected:
    def rename(parts: Parts) -> Parts:
        """The parts of a file's name: those inside of a folder have the names of objects, except for kinds."""
        folder, *inner = parts
        if folder == FOLDER:
            return parts
        split = (_SUFFIX.fullmatch(part) for part in inner)
        return (folder, *(f"{anonymizer.name(match[1])}{match[2]}" for match in split if match is not None))

    return Collected(
        objects={plural: [*map(anonymizer.value, found)] for plural, found in reduced.objects.items()},
        data={rename(parts): anonymizer.value(value) for parts, value in reduced.data.items()},
        logs={rename(parts): _anonymous_lines(text, anonymizer) for parts, text in reduced.logs.items()},
        texts={rename(parts): _anonymous_lines(text, anonymizer) for parts, text in reduced.texts.items()},
        left_out=[
            LeftOut(
                part="/".join(rename(tuple(entry.part.split("/")))),
                reason=anonymizer.text(entry.reason),
                code=entry.code,
            )
            for entry in reduced.left_out
        ],
        namespace=anonymizer.name(reduced.namespace),
    )


def _anonymous_lines(text: str, anonymizer: Anonymizer) -> str:
    return "\n".join(_anonymous_line(line, anonymizer) for line in text.splitlines())


def _anonymous_line(line: str, anonymizer: Anonymizer) -> str:
    if line.startswith("{"):
        try:
            entry = msgspec.json.decode(line, type=dict[str, Any])
        except UNREADABLE:
            return anonymizer.text(line)
        return msgspec.json.encode(anonymizer.value(entry, is_plain=True)).decode()
    return anonymizer.text(line)


class _Files:
    """The files, as long as all together are not larger than allowed."""

    def __init__(self, most: int) -> None:
        self.files: dict[str, bytes] = {}
        self.left_out: list[LeftOut] = []
        self._most = self._left = most

    def add_objects(self, plural: str, found: Sequence[Any]) -> None:
        """A kind's objects: the first that fit."""
        encoded: list[bytes] = []
        left = self._left - len(b'{"items":[]}\n')
        for value in found:
            data = msgspec.json.encode(value)
            left -= len(data) + len(b",\n")
            if left < 0:
                break
            encoded.append(data)
        name = objects_file(plural)
        if left < 0:
            self._note(name, f"{len(found) - len(encoded)} of {len(found)} objects")
        self._put(name, b'{"items":[' + b",\n".join(encoded) + b"]}\n")

    def add_lines(self, parts: Parts, lines: Sequence[str]) -> None:
        """A text: the last lines that fit."""
        name, kept, left = self._name(parts), len(lines), self._left
        while kept and (left := left - len(lines[kept - 1].encode()) - 1) >= 0:
            kept -= 1
        if kept:
            self._note(name, f"the first {kept} of {len(lines)} lines")
        if kept < len(lines):
            self._put(name, "".join(f"{line}\n" for line in lines[kept:]).encode())

    def add(self, parts: Parts, data: bytes) -> None:
        """A file, if it fits."""
        name = self._name(parts)
        if len(data) > self._left:
            self._note(name, "the file")
        else:
            self._put(name, data)

    def _name(self, parts: Parts) -> str:
        """A name that no other file has; names of objects may be too long for a tar."""
        name = base = file_name(*parts)
        number = 1
        while name in self.files:
            number += 1
            folder, slash, last = base.rpartition("/")
            name = f"{folder}{slash}{number}-{last}"
        return name

    def _note(self, name: str, what: str) -> None:
        mib = self._most / 2**20
        self.left_out.append(LeftOut(part=name, reason=f"{what}: over the limit of {mib:g} MiB for the whole bundle"))

    def _put(self, name: str, data: bytes) -> None:
        self.files[name] = data
        self._left -= len(data)


def reduce_object(value: Any) -> Any:
    """An object without its annotations, except for netdra's; of a pod's containers, only their progress.

    The types of the objects drop environment, command lines and all else that netdra does not read.
    """
    if isinstance(value, ClusterEvent):
        return _event(value)
    if isinstance(value, PlacedPod):
        value = _pod(value)
    metadata = value.metadata
    kept = {key: text for key, text in metadata.annotations.items() if key.startswith(_OURS)}
    return msgspec.structs.replace(value, metadata=msgspec.structs.replace(metadata, annotations=kept))


def _event(event: ClusterEvent) -> ClusterEvent:
    metadata = event.metadata if isinstance(event.metadata, Mapping) else {}
    kept = {key: metadata[key] for key in ("name", "namespace") if isinstance(metadata.get(key), str)}
    return msgspec.structs.replace(event, metadata=kept)


def _pod(pod: PlacedPod) -> PlacedPod:
    status = msgspec.structs.replace(
        pod.status,
        container_statuses=tuple(map(_container, pod.status.container_statuses or ())),
        init_container_statuses=tuple(map(_container, pod.status.init_container_statuses or ())),
    )
    return msgspec.structs.replace(pod, status=status)


def _container(container: ContainerState) -> ContainerState:
    return msgspec.structs.replace(
        container, state=_reduce_state(container.state), last_state=_reduce_state(container.last_state)
    )


def _reduce_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a container without its message, which may be the end of its log."""
    return {
        kind: {key: value for key, value in entry.items() if key in _OF_STATE and isinstance(value, str | int)}
        for kind, entry in state.items()
        if kind in _STATES and isinstance(entry, Mapping)
    }


def own_lines(log: str) -> Iterator[str]:
    """The lines of a log that netdra wrote, as text or JSON."""
    return (line for line in log.splitlines() if _TEXT_LINE.match(line) or _is_json_line(line))


def _is_json_line(line: str) -> bool:
    if not line.startswith("{"):
        return False
    try:
        entry = msgspec.json.decode(line)
    except UNREADABLE:
        return False
    return isinstance(entry, dict) and str(entry.get("logger", "")).startswith("netdra")
