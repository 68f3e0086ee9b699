"""The pages of the console by their URLs, read strictly: a name that cannot be an object's has no page. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, unquote

from netdra.model.names import MAX_SUBDOMAIN, is_subdomain
from netdra.story.kinds import CLUSTER_WIDE, KINDS

MAX_QUERY = 4096
MAX_PAGE = 10_000


class PageRoute(NamedTuple):
    """A page, with the names that its path and its form have.

    Attributes:
        page: "nodes", "node", "pod", "why" or "what-if"; a form that is not filled in has no name.
        kind: the kind of the story's object.
        place: its namespace, or its node.
        name: its name.
        query: the fields of the form, the first value of each.
    """

    page: str
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
            return PageRoute("nodes", query=asked)
        case ["nodes", node] if is_subdomain(node):
            return PageRoute("node", "node", "", node, asked)
        case ["pod"]:
            return _of_form("pod", {**asked, "kind": "pod"})
        case ["pod", namespace, name]:
            return _checked(PageRoute("pod", "pod", namespace, name, asked))
        case ["why"]:
            return _of_form("why", asked)
        case ["why", kind, name] if kind in CLUSTER_WIDE:
            return _checked(PageRoute("why", kind, "", name, asked))
        case ["why", kind, place, name] if kind in KINDS:
            return _checked(PageRoute("why", kind, place, name, asked))
        case ["what-if"]:
            return PageRoute("what-if", query=asked)
    return None


def fields(query: str) -> Mapping[str, list[str]]:
    """The fields of a form; none of one with too many."""
    try:
        return parse_qs(query, keep_blank_values=True, max_num_fields=16, errors="replace")
    except ValueError:
        return {}


def _of_form(page: str, asked: Mapping[str, str]) -> PageRoute | None:
    """The page that a filled form asks for; the empty form if it is not complete."""
    kind, place, name = (asked.get(field, "").strip() for field in ("kind", "place", "name"))
    is_complete = kind in KINDS and name and (place or kind in CLUSTER_WIDE)
    filled = PageRoute(page, kind, "" if kind in CLUSTER_WIDE else place, name, asked)
    return _checked(filled) if is_complete else PageRoute(page, query=asked)


def _checked(filled: PageRoute) -> PageRoute | None:
    """The route, if its names can be those of objects; an interface may be called almost anything."""
    is_name = 0 < len(filled.name) <= MAX_SUBDOMAIN if filled.kind == "device" else is_subdomain(filled.name)
    is_place = not filled.place if filled.kind in CLUSTER_WIDE else is_subdomain(filled.place)
    return filled if is_name and is_place else None
