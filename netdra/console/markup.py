r"""HTML and SVG as values: every text is escaped when it becomes part of an element, so no caller can forget it.

Names of interfaces, pods, labels and annotations are written by others. A text may hold markup, control characters,
changes of direction or half a surrogate pair; all of it is shown and none of it has an effect. Used by all pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from html import escape
from urllib.parse import quote, urlencode

MAX_TEXT = 4096
"""Characters of one text; the rest is left out."""
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*\Z")
_VOID = frozenset({"br", "hr", "input", "link", "meta"})
_URLS = frozenset({"action", "href", "src"})
_FORBIDDEN = frozenset({"style", "srcdoc"})


class Markup:
    """Markup that is escaped; only `element`, `join` and this module's constants make it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class PageAddress:
    """An address of a page of the console: a path of its own host, never another host or scheme."""

    __slots__ = ("text",)

    def __init__(self, *segments: str, **query: str) -> None:
        """The address of a path, with the fields of a query that have a value."""
        path = "/" + "/".join([quote(segment, safe="") for segment in segments])
        asked = urlencode({name: value for name, value in query.items() if value}) if query else ""
        self.text = f"{path}?{asked}" if asked else path


Child = Markup | str | int | None | Iterable["Child"]
Value = str | int | bool | PageAddress | None


def visible(text: str) -> str:
    """A text whose invisible characters are shown as escapes, in bounds."""
    if len(text) <= MAX_TEXT and text.isascii() and text.isprintable():
        return text
    shown = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
    return _INVISIBLE.sub(lambda match: match[0].encode("unicode-escape").decode(), shown)


def element(tag: str, *children: Child, **attributes: Value) -> Markup:
    """An element.

    Args:
        tag: its name.
        children: texts, which are escaped, markup, or several of them; None is skipped.
        attributes: without values None and False; a name's trailing underscore is dropped, others become hyphens. An
            attribute with a URL takes an `PageAddress` alone.

    Raises:
        ValueError: an attribute could have an effect that its value decides.
    """
    inside = join(children).text
    opened = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}>"
    return Markup(opened if tag in _VOID else f"{opened}{inside}</{tag}>")


def join(children: Child) -> Markup:
    """Children side by side."""
    parts: list[str] = []
    _append(children, parts)
    return Markup("".join(parts))


def _append(child: Child, parts: list[str]) -> None:
    if isinstance(child, Markup):
        parts.append(child.text)
    elif isinstance(child, str | int):
        parts.append(escape(visible(str(child))))
    elif child is not None:
        for inner in child:
            _append(inner, parts)


def _attribute(given: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    name = _checked(given)
    if isinstance(value, PageAddress) != (name in _URLS):
        raise ValueError(f"attribute {name} takes {'only' if name in _URLS else 'no'} PageAddress")
    if value is True:
        return f" {name}"
    if isinstance(value, int):
        return f' {name}="{value}"'
    text = value.text if isinstance(value, PageAddress) else visible(value)
    return f' {name}="{escape(text)}"'


@lru_cache(maxsize=256)
def _checked(given: str) -> str:
    """An attribute's name.

    Raises:
        ValueError: its value would be code.
    """
    name = given.rstrip("_").replace("_", "-")
    if not _NAME.match(name) or name in _FORBIDDEN or name.startswith("on"):
        raise ValueError(f"attribute {name} is not allowed")
    return name


def document(title: str, head: Child, body: Child) -> bytes:
    """A whole page."""
    inside = element("head", element("meta", charset="utf-8"), element("title", title), head)
    page = element("html", inside, element("body", body), lang="en").text
    return f"<!DOCTYPE html>\n{page}\n".encode()
