"""The pages of the console by their URLs, read strictly: a name that cannot be an object's has no page. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple
from urllib.parse import parse_qs, unquote

from netdra.model.names import MAX_SUBDOMAIN, is_subdomain

MAX_QUERY = 4096
MAX_PAGE = 10_000
KINDS: Mapping[str, str] = {
    "nodes": "node",
    "devices": "device",
    "pods": "pod",
    "claims": "claim",
    "topologies": "topology",
    "policies": "policy",
    "networks": "network",
    "plugins": "plugin",
}
"""The kinds of objects that have pages: the first part of the path, and the word for one object."""
PLACED = frozenset({"devices", "pods", "claims"})
"""Those whose objects are in a namespace, or on a node."""


class PageRoute(NamedTuple):
    """A page, with the names that its path and its form have.

    Attributes:
        page: the start page, a list, an object, the traffic of pods, a search, or the trial of policies.
        kind: the kind of a list or an object, one of `KINDS`.
        place: the object's namespace, or its node.
        query: the fields of the form, the first value of each.
    """

    page: Literal["start", "list", "object", "traffic", "search", "what-if"]
    kind: str = ""
    place: str = ""
    name: str = ""
    query: Mapping[str, str] = {}

    @property
    def number(self) -> int:
        """The page of a long list."""
        text = self.query.get("page", "1")
        return min(max(int(text), 1), MAX_PAGE) if text.isascii() and text.isdecimal() and len(text) < 6 else 1


def route(path: str, query: str) -> PageRoute | None:
    """The page of a URL; None if none exists."""
    if len(query) > MAX_QUERY or len(path) > MAX_QUERY:
        return None
    asked = {name: values[0] for name, values in fields(query).items()}
    segments = [unquote(segment, errors="surrogateescape") for segment in path.strip("/").split("/")]
    match segments:
        case [""]:
            return PageRoute("start", query=asked)
        case ["what-if"]:
            return PageRoute("what-if", query=asked)
        case ["traffic"]:
            return PageRoute("traffic", query=asked) if is_subdomain(asked.get("node", "") or "all") else None
        case ["search"]:
            return PageRoute("search", query=asked)
        case [kind] if kind in KINDS:
            return PageRoute("list", kind, query=asked)
        case [kind, name] if kind in KINDS and kind not in PLACED:
            return PageRoute("object", kind, "", name, asked) if is_subdomain(name) else None
        case [kind, place, name] if kind in PLACED and is_subdomain(place):
            # An interface may be called almost anything.
            is_name = 0 < len(name) <= MAX_SUBDOMAIN if kind == "devices" else is_subdomain(name)
            return PageRoute("object", kind, place, name, asked) if is_name else None
    return None


def fields(query: str) -> Mapping[str, list[str]]:
    """The fields of a form; none of one with too many."""
    try:
        return parse_qs(query, keep_blank_values=True, max_num_fields=16, errors="replace")
    except ValueError:
        return {}
