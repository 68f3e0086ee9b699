"""Objects as a bundle contains them: the fields that netdra reads, without annotations and outputs of other programs.

The types of the objects drop environment, command lines and all else that netdra does not read. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from netdra.cluster.objects import ClusterEvent, ContainerState, PlacedPod
from netdra.model.errors import UNREADABLE

_OURS = ("dra.networking/", "networking.dra.io/", "cni.networking.k8s.io/")
_STATES = ("running", "waiting", "terminated")
_OF_STATE = ("reason", "exitCode", "signal", "startedAt", "finishedAt")
_TEXT_LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) netdra[\w.]*: ")


def reduce_object(value: Any) -> Any:
    """An object without its annotations, except for netdra's; of a pod's containers, only their progress."""
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
