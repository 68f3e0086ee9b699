"""The frame of every page: its head, the navigation, the legend of states, tables, and pages of few words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from netdra.console.markup import Child, Markup, PageAddress, document, element

STATES: Mapping[str, str] = {
    "offered": "published and free",
    "allocated": "a claim has it",
    "host": "hidden, because the node itself uses it",
    "hidden": "not published",
    "gone": "removed from the node while a claim has it",
}
"""The states of a device or interface, and each in words."""
_PAGES = (
    ("Nodes", PageAddress()),
    ("Pod", PageAddress("pod")),
    ("Why", PageAddress("why")),
    ("Try a policy", PageAddress("what-if")),
)
MAX_ROWS = 500
"""Rows of one table; the page says how many are left out."""


def page(title: str, content: Child, *, is_live: bool = False, here: str = "", version: str = "") -> bytes:
    """A page.

    Args:
        title: its heading.
        content: below the heading.
        is_live: whether the page is loaded again when the cluster changes.
        here: the name of its part in the navigation.
        version: that of the content, "" without one.
    """
    links = (
        element("li", element("a", name, href=where, aria_current="page" if name == here else None))
        for name, where in _PAGES
    )
    status = element("p", id="live", role="status") if is_live else None
    return document(
        f"{title} · netdra",
        (
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("link", rel="stylesheet", href=PageAddress("console.css")),
            element("script", src=PageAddress("console.js"), defer=True) if is_live else None,
        ),
        (
            Markup('<a class="skip" href="#main">Skip to the content</a>'),
            element("header", element("nav", element("ul", links), aria_label="Pages")),
            element("main", element("h1", title), content, id="main", tabindex=-1, data_version=version or None),
            element("footer", "Read only. Read from the cluster with the rights of this console.", status),
        ),
    )


def state(name: str) -> Markup:
    """A state as a coloured word."""
    return element("span", name, class_=f"state {name}") if name in STATES else element("span", name, class_="state")


def legend() -> Markup:
    """The states, in colours and in words."""
    entries = (element("div", element("dt", state(name)), element("dd", words)) for name, words in STATES.items())
    return element("dl", entries, class_="legend")


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Child]]) -> Markup:
    """A table of `MAX_ROWS` rows at most, whose first column names each row."""
    every = list(rows)
    head = element("tr", (element("th", column, scope="col") for column in columns))
    left = len(every) - MAX_ROWS
    shown = element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", map(_row, every[:MAX_ROWS])),
    )
    more = element("p", f"{left} more rows are not shown.") if left > 0 else None
    return element("div", shown, more, class_="table")


def _row(cells: Sequence[Child]) -> Markup:
    first, *others = cells
    return element("tr", element("th", first, scope="row"), (element("td", cell) for cell in others))


def note(text: str, kind: str = "note") -> Markup:
    """A remark, or with the kind `problem` an error."""
    return element("p", text, class_=kind, role="alert" if kind == "problem" else None)


def notes(texts: Iterable[str]) -> Markup | None:
    """Remarks on objects that could not be read."""
    found = [element("li", text) for text in texts]
    return element("section", element("h2", "Not read"), element("ul", found)) if found else None


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
    )
