"""The frame of every page: its head, the navigation, states, tables, bars, and pages of few words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from netdra.console.markup import Child, Markup, PageAddress, document, element

STATES: Mapping[str, str] = {
    "offered": "published and free",
    "allocated": "a claim has it",
    "host": "hidden, because the node itself uses it",
    "hidden": "not published",
    "gone": "removed from the node while a claim has it",
}
"""The states of a device or interface, and each in words."""
TONES: Mapping[str, str] = {
    "offered": "good",
    "allocated": "busy",
    "host": "warn",
    "hidden": "calm",
    "gone": "bad",
    "ok": "good",
    "fine": "good",
    "info": "calm",
    "warning": "warn",
    "error": "bad",
    "problem": "bad",
    "done": "good",
    "failed": "bad",
    "waiting": "warn",
    "unknown": "calm",
    "Running": "good",
    "Waiting": "bad",
    "Ended": "calm",
    "Ending": "calm",
    "Ready": "good",
    "Degraded": "bad",
    "Failing": "bad",
    "Full": "bad",
    "Nearly full": "warn",
    "Unused": "calm",
    "Allocated": "busy",
    "Reserved": "busy",
    "Free": "good",
    "free": "good",
    "tainted": "bad",
    "Tainted": "bad",
    "Applied": "good",
    "Trouble": "bad",
    "Installed": "good",
    "Installing": "warn",
    "Unchecked": "calm",
    "Pending": "warn",
    "used": "busy",
    "reserved": "warn",
    "Failed": "bad",
    "Errors": "bad",
    "Drops": "warn",
    "Active": "busy",
    "Idle": "calm",
}
"""The colour of each state: good, busy (in use), warn, bad, or calm."""
PAGES = (
    ("Overview", PageAddress()),
    ("Nodes", PageAddress("nodes")),
    ("Devices", PageAddress("devices")),
    ("Pods", PageAddress("pods")),
    ("Claims", PageAddress("claims")),
    ("Topologies", PageAddress("topologies")),
    ("Policies", PageAddress("policies")),
    ("Networks", PageAddress("networks")),
    ("Plugins", PageAddress("plugins")),
    ("Traffic", PageAddress("traffic")),
    ("Try a policy", PageAddress("what-if")),
)
MAX_ROWS = 500
"""Rows of one table; the page says how many are left out."""


class PageLife(NamedTuple):
    """How a page is kept current.

    Attributes:
        is_live: whether it is loaded again when the cluster changes.
        version: that of its content, "" without one.
        now: the time by the API server's clock, in RFC 3339; "" if unknown.
    """

    is_live: bool = False
    version: str = ""
    now: str = ""


STILL = PageLife()


def page(
    title: str, content: Child, *, here: str = "", life: PageLife = STILL, kind: str = "", query: str = ""
) -> bytes:
    """A page.

    Args:
        title: its heading.
        content: below the heading.
        here: the name of its part in the navigation.
        life: how it is kept current.
        kind: the kind of the object that the title names, "" for other pages.
        query: the text of the search field.
    """
    status = element("span", id="live", role="status") if life.is_live else None
    heading = element("h1", element("small", kind) if kind else None, title)
    return document(
        f"{title} · netdra",
        (
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("link", rel="stylesheet", href=PageAddress("console.css")),
            element("script", src=PageAddress("console.js"), defer=True),
        ),
        (
            Markup('<a class="skip" href="#main">Skip to the content</a>'),
            element("header", _navigation(here), _search(query)),
            element(
                "main",
                heading,
                content,
                id="main",
                tabindex=-1,
                data_version=life.version or None,
                data_now=life.now or None,
                data_live="yes" if life.is_live else None,
            ),
            element("footer", element("span", "Read only, with the rights of this console. "), status),
        ),
    )


def _navigation(here: str) -> Markup:
    links = (
        element("li", element("a", name, href=where, aria_current="page" if name == here else None))
        for name, where in PAGES
    )
    brand = element("a", "netdra", href=PageAddress(), class_="brand")
    return element("nav", brand, element("ul", links), aria_label="Pages")


def _search(query: str) -> Markup:
    return element(
        "form",
        element(
            "input",
            name="q",
            id="search",
            type="search",
            value=query,
            maxlength=253,
            placeholder="Name, address, MAC, PCI address",
            aria_label="Search all objects (key: /)",
            autocomplete="off",
        ),
        element("kbd", "/", aria_hidden="true"),
        action=PageAddress("search"),
        method="get",
        role="search",
    )


def state(name: str, words: str = "") -> Markup:
    """A state as a coloured word."""
    return element("span", name, class_=f"state {TONES.get(name, 'calm')}", title=words or STATES.get(name) or None)


def link(words: Child, *segments: str, **query: str) -> Markup:
    """A link to a page of the console."""
    return element("a", words, href=PageAddress(*segments, **query))


def together(parts: Iterable[Child]) -> Child:
    """Parts with commas between."""
    return [part if at == 0 else [", ", part] for at, part in enumerate(parts)]


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Child]], numeric: int = 99) -> Markup:
    """A table of `MAX_ROWS` rows at most, whose first column names each row.

    Args:
        caption: its name.
        columns: their names.
        rows: their cells.
        numeric: the first of the columns whose cells are numbers.
    """
    every = list(rows)
    head = element(
        "tr", (element("th", name, scope="col", class_=_class(at, numeric)) for at, name in enumerate(columns))
    )
    left = len(every) - MAX_ROWS
    shown = element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", (_row(cells, columns, numeric) for cells in every[:MAX_ROWS])),
    )
    more = element("p", f"{left} more rows are not shown.", class_="quiet") if left > 0 else None
    return element("div", shown, more, class_="table list", tabindex=0, role="group", aria_label=caption)


def _class(at: int, numeric: int) -> str | None:
    return "number" if at >= numeric else None


def _row(cells: Sequence[Child], columns: Sequence[str], numeric: int) -> Markup:
    first, *others = cells
    return element(
        "tr",
        element("th", first, scope="row"),
        (element("td", cell, class_=_class(at, numeric), data_label=columns[at]) for at, cell in enumerate(others, 1)),
    )


def bar(parts: Sequence[tuple[str, int]], total: int, words: str) -> Markup:
    """A bar of a total's parts, each with its tone; the words state the same."""
    boxes: list[Markup] = []
    begin = 0.0
    for tone, number in parts:
        width = 100 * number / total if total else 0.0
        if number:
            wide = max(width, 1.5)
            boxes.append(element("rect", class_=tone, x=f"{begin:.2f}", y=0, width=f"{wide:.2f}", height=8))
            begin += width
    drawn = element(
        "svg",
        element("rect", class_="rest", x=0, y=0, width=100, height=8),
        boxes,
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        class_="bar",
        role="img",
        aria_label=words,
    )
    return element("span", drawn, element("span", words), class_="measure")


def facts(entries: Iterable[tuple[str, Child]]) -> Markup | None:
    """Facts of an object by name; those without a value are left out."""
    known = [(name, value) for name, value in entries if value not in (None, "", (), [])]
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in known)
    return element("dl", pairs, class_="facts") if known else None


def section(title: str, *content: Child, name: str = "") -> Markup:
    """A part of a page under its heading."""
    return element("section", element("h2", title), content, class_=name or None)


def note(text: Child, kind: str = "note") -> Markup:
    """A remark, or with the kind `problem` an error."""
    return element("p", text, class_=f"note {TONES.get(kind, 'calm')}", role="alert" if kind == "problem" else None)


def notes(texts: Iterable[str]) -> Markup | None:
    """Remarks on objects that could not be read."""
    found = [element("li", text) for text in texts]
    return element("section", element("h2", "Not read"), element("ul", found), class_="unread") if found else None


def message(title: str, text: str) -> bytes:
    """A page of one text, such as an error."""
    return page(title, note(text, "problem"))


def field(label: str, name: str, value: str, hint: str = "") -> Markup:
    """A line of a form."""
    described = f"{name}-hint" if hint else None
    return element(
        "p",
        element("label", label, for_=name),
        element(
            "input", id=name, name=name, value=value, maxlength=253, aria_describedby=described, autocomplete="off"
        ),
        element("small", hint, id=described) if hint else None,
        class_="field",
    )
