"""A list of objects: filtered by a text, a state and a namespace, sorted by a column, by pages, with counts. Pure.

Its rows are made by `netdra.console.rows`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from netdra.console.frame import STILL, TONES, PageLife, note, page
from netdra.console.markup import Child, Markup, PageAddress, element

ROWS = 100
"""Rows of one page."""
MAX_CHOICES = 500
_WIDE = frozenset({"cause", "reason"})


class Cell(NamedTuple):
    """A cell: the content that is shown, and the value that sorts it."""

    shown: Child
    key: int | str


class ListColumn(NamedTuple):
    """A column.

    Attributes:
        key: its name in URLs.
        title: its heading.
        is_number: whether its cells are numbers, which are sorted from the greatest down first.
    """

    key: str
    title: str
    is_number: bool = False


class ListRow(NamedTuple):
    """An object in a list.

    Attributes:
        segments: the path of its page.
        cells: a cell for each column.
        state: the state that the list can be filtered by.
        namespace: its namespace, "" without one.
        text: the texts that the filter searches.
        codes: the codes of its troubles.
    """

    segments: tuple[str, ...]
    cells: tuple[Cell, ...]
    state: str = ""
    namespace: str = ""
    text: str = ""
    codes: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """How it is called."""
        return "/".join(self.segments[1:])

    def why(self, text: str) -> str:
        """The words of its text that hold a text, if its name does not."""
        if text in self.words.lower():
            return ""
        return " ".join([word for word in self.text.split() if text in word][:3])


class ObjectList(NamedTuple):
    """All objects of a kind.

    Attributes:
        title: the kind, as the page's heading.
        path: the page.
        columns, rows: the objects.
        remark: a fact about the whole list, "" for none.
        unread: why objects are missing.
        total: the number of objects if not all of them are in `rows`, 0 if all are.
        nothing: the words for a list without rows, "" for the usual ones.
    """

    title: str
    path: str
    columns: Sequence[ListColumn]
    rows: Sequence[ListRow]
    remark: str = ""
    unread: Sequence[str] = ()
    total: int = 0
    nothing: str = ""


class Shown(NamedTuple):
    """The part of a list that is shown.

    Attributes:
        text, state, namespace, code: filters, "" for all.
        sort: the key of the column that sorts, with a hyphen before it for the reverse order.
        number: the page, from 1 on.
        node: only objects of this node, "" for all.
    """

    text: str = ""
    state: str = ""
    namespace: str = ""
    code: str = ""
    sort: str = ""
    number: int = 1
    node: str = ""

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the URL, apart from the page."""
        names = ("text", "state", "namespace", "code", "sort", "node")
        return {name: value for name in names if (value := str(getattr(self, name)))}


def shown_of(query: Mapping[str, str], number: int) -> Shown:
    """The part of a list that a URL requests."""
    names = ("text", "state", "namespace", "code", "sort", "node")
    return Shown(**{name: query.get(name, "").strip() for name in names}, number=number)


def list_page(found: ObjectList, shown: Shown, problem: str = "", life: PageLife = STILL) -> bytes:
    """The page of a list.

    Args:
        found: all objects.
        shown: the part of them.
        problem: why the objects may be old, "" if they are not.
        life: how the page is kept current.
    """
    matching = [row for row in found.rows if _matches(row, shown)]
    chosen = [row for row in matching if shown.state in ("", row.state)]
    ordered = _sorted(chosen, found.columns, shown.sort)
    visible = ordered[(shown.number - 1) * ROWS : shown.number * ROWS]
    content = (
        note(problem, "problem") if problem else None,
        (note(text, "warning") for text in found.unread),
        element("p", found.remark, class_="quiet") if found.remark else None,
        _states(found, matching, shown),
        _filter(found, shown),
        _table(found, visible, len(chosen), shown) if chosen else note(_nothing(found)),
        _pages(found, len(chosen), shown),
    )
    return page(found.title, content, here=found.title, life=life)


def _nothing(found: ObjectList) -> str:
    kind = found.title.lower()
    if found.rows:
        return f"Of {len(found.rows)} {kind}, none matches the filter."
    return found.nothing or f"The cluster has no {kind}."


def _matches(row: ListRow, shown: Shown) -> bool:
    return (
        shown.text.lower() in row.text
        and shown.namespace in ("", row.namespace)
        and (not shown.code or shown.code in row.codes)
    )


def _sorted(rows: list[ListRow], columns: Sequence[ListColumn], sort: str) -> list[ListRow]:
    name, is_reversed = sort.removeprefix("-"), sort.startswith("-")
    at = next((at for at, column in enumerate(columns) if column.key == name), None)
    if at is None:
        return sorted(rows, key=_rank)
    return sorted(rows, key=lambda row: (row.cells[at].key, row.cells[0].key), reverse=is_reversed)


def _rank(row: ListRow) -> int:
    """Trouble first."""
    return 0 if TONES.get(row.state) == "bad" else 1 if row.codes else 2


def _states(found: ObjectList, rows: Iterable[ListRow], shown: Shown) -> Markup | None:
    """The states with their numbers, as links that filter."""
    counts = Counter(row.state for row in rows if row.state)
    if not counts:
        return None
    every = [("", sum(counts.values())), *sorted(counts.items())]
    links = (
        element(
            "li",
            element(
                "a",
                name or "All",
                " ",
                element("b", number),
                href=_address(found, shown._replace(state=name, number=1)),
                aria_current="true" if name == shown.state else None,
            ),
        )
        for name, number in every
    )
    return element("nav", element("ul", links), class_="tabs", aria_label="States")


def _filter(found: ObjectList, shown: Shown) -> Markup:
    kept = (
        element("input", type="hidden", name=name, value=value)
        for name, value in shown.fields.items()
        if name not in ("text", "namespace")
    )
    namespaces = sorted({row.namespace for row in found.rows if row.namespace})[:MAX_CHOICES]
    options = (
        element("option", name or "all namespaces", value=name, selected=name == shown.namespace)
        for name in ("", *namespaces)
    )
    choose = element("select", options, name="namespace", aria_label="Namespace") if namespaces else None
    text = element(
        "input", type="search", name="text", value=shown.text, maxlength=253, placeholder="Filter", aria_label="Filter"
    )
    clear = element("a", "Clear", href=PageAddress(found.path)) if shown.fields else None
    code = element("span", "cause ", element("code", shown.code)) if shown.code else None
    button = element("button", "Filter", type="submit")
    inside = (text, choose, kept, button, code, clear)
    return element("form", inside, action=PageAddress(found.path), method="get", class_="filter")


def _table(found: ObjectList, rows: Sequence[ListRow], number: int, shown: Shown) -> Markup:
    total = found.total or len(found.rows)
    counted = f"{number} of {total}" if number != total else str(total)
    head = element("tr", (_heading(found, column, shown) for column in found.columns))
    body = (element("tr", _cells(found.columns, row)) for row in rows)
    drawn = element(
        "table", element("caption", f"{found.title}: {counted}"), element("thead", head), element("tbody", body)
    )
    return element("div", drawn, class_="table list", tabindex=0, role="group", aria_label=found.title)


def _cells(columns: Sequence[ListColumn], row: ListRow) -> Iterable[Markup]:
    for at, (column, cell) in enumerate(zip(columns, row.cells, strict=True)):
        kind = "number" if column.is_number else "wide" if column.key in _WIDE and cell.key else None
        if at == 0:
            yield element("th", cell.shown, scope="row")
        else:
            yield element("td", cell.shown, class_=kind, data_label=column.title)


def _heading(found: ObjectList, column: ListColumn, shown: Shown) -> Markup:
    name, is_reversed = shown.sort.removeprefix("-"), shown.sort.startswith("-")
    is_sorted = name == column.key
    first = f"-{column.key}" if column.is_number else column.key
    second = column.key if column.is_number else f"-{column.key}"
    sort = second if shown.sort == first else first
    arrow = (" ↓" if is_reversed else " ↑") if is_sorted else ""
    where = _address(found, shown._replace(sort=sort, number=1))
    order = ("descending" if is_reversed else "ascending") if is_sorted else None
    return element(
        "th",
        element("a", column.title, arrow, href=where),
        scope="col",
        class_="number" if column.is_number else None,
        aria_sort=order,
    )


def _address(found: ObjectList, shown: Shown) -> PageAddress:
    number = {"page": str(shown.number)} if shown.number > 1 else {}
    return PageAddress(found.path, **shown.fields, **number)


def _pages(found: ObjectList, rows: int, shown: Shown) -> Markup | None:
    last = max(1, -(-rows // ROWS))
    if last == 1:
        return None

    def turn(number: int, name: str) -> Markup | None:
        where = _address(found, shown._replace(number=number))
        return element("li", element("a", name, href=where)) if 1 <= number <= last else None

    here = element("li", f"Page {shown.number} of {last}")
    turns = element("ul", turn(shown.number - 1, "Previous"), here, turn(shown.number + 1, "Next"))
    return element("nav", turns, aria_label="Pages of the list", class_="turns")
