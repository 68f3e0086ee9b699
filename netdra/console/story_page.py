"""The story of an object as a part of its page: the cause first and once, then what happened, as a timeline. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from netdra.console.frame import note, section, state
from netdra.console.markup import Child, Markup, PageAddress, element
from netdra.console.times import ago
from netdra.model.errors import without_code
from netdra.story.statement import Statement, Story

_WORDS = {"ok": "done", "info": "fact", "warning": "warning", "error": "error"}
MAX_DETAILS = 200
_PAGES = {
    "Pod": "pods",
    "ResourceClaim": "claims",
    "NetworkTopology": "topologies",
    "PodNetwork": "networks",
    "DeviceExposurePolicy": "policies",
    "CNIPlugin": "plugins",
    "Node": "nodes",
    "Device": "devices",
}
"""The first words of objects in statements, and the pages of these objects."""
_MENTION = re.compile(
    r'\b(Pod|ResourceClaim|NetworkTopology|PodNetwork|DeviceExposurePolicy|CNIPlugin|node|Node) "([^"]+)"'
)
_EVENT = re.compile(r"event (\w+)(?: \((\d+) times\))?: (.*)\Z", re.DOTALL)


class Folded(NamedTuple):
    """A statement of a timeline, and how often it occurred."""

    statement: Statement
    times: int = 1


def object_address(text: str) -> PageAddress | None:
    """The page of an object that a statement is about, e.g. `ResourceClaim default/db-0-net`; None without one."""
    kind, _, rest = text.partition(" ")
    name = rest.partition(",")[0].split(" ")[0]
    page, parts = _PAGES.get(kind), tuple(filter(None, name.split("/", 1)))
    if page is None or not parts:
        return None
    needs = 2 if page in ("pods", "claims", "devices") else 1
    return PageAddress(page, *parts) if len(parts) == needs else None


def summary(told: Story, now: str = "") -> Markup:
    """The object's state, the cause, the next step, and the object to change."""
    head = element("p", f"{told.subject} {told.state}.", class_="lead")
    cause = told.cause
    if cause is None:
        return element("section", head, note("No problem was found.", "fine"), class_="cause")
    inside = (
        element(
            "p",
            state("warning" if told.is_fine else "error"),
            element("code", cause.reason) if cause.reason else None,
            ago(cause.time, now),
            class_="head",
        ),
        element("p", cause.coded, class_="cause"),
        element("p", element("b", "Next: "), cause.next_step, class_="next") if cause.next_step else None,
        _details(cause),
        _mentioned(cause, told.subject),
    )
    return element(
        "section", head, element("div", inside, class_=f"trouble {'warn' if told.is_fine else 'bad'}"), class_="cause"
    )


def _mentioned(cause: Statement, subject: str) -> Markup | None:
    """Links to the objects that the cause is about, and that it and its next step name."""
    found: dict[str, PageAddress] = {}
    about, where = cause.object.partition(",")[0], object_address(cause.object)
    if where is not None and about != subject:
        found[about] = where
    for kind, name in _MENTION.findall(f"{cause.text} {cause.next_step}"):
        called = f"{kind.capitalize() if kind == 'node' else kind} {name}"
        where = object_address(called)
        if where is not None and called not in (subject, about):
            found[called] = where
    links = (element("li", element("a", called, href=where)) for called, where in list(found.items())[:6])
    return element("ul", element("li", element("b", "Objects:")), links, class_="subjects") if found else None


def folded(statements: Sequence[Statement], cause: Statement | None) -> list[Folded]:
    """The statements without the cause, equal ones once: an event that repeats a statement counts for it."""
    found: dict[str, Folded] = {}
    causes = {_essence(line) for line in ((cause.text, *cause.details) if cause is not None else ())} - {""}
    for statement in statements:
        event = _EVENT.match(statement.text)
        text, times = (event[3], int(event[2] or 1)) if event is not None else (statement.text, 1)
        essence = _essence(text)
        repeats = statement is cause or any(essence in known or known in essence for known in causes if essence)
        if repeats and (event is None or times == 1):
            continue
        if repeats:
            text = "the cause above"
        key = f"{event[1] if event is not None else statement.severity} {essence}"
        known = found.get(key)
        if known is None:
            plain = replace(statement, text=f"{event[1]}: {text}") if event is not None else statement
            found[key] = Folded(plain, times)
        else:
            newest = max(known.statement.time, statement.time)
            found[key] = Folded(replace(known.statement, time=newest), known.times + times)
    return [*found.values()]


def _essence(text: str) -> str:
    """A text without what differs between repetitions: device, code, numbers of attempts, identifiers, white space."""
    plain = re.sub(r'^device "[^"]*" is not attached: ', "", without_code(text))
    return " ".join(re.sub(r"\b[0-9a-f]{12,}\b|\b\d+(\.\d+)?(ms|s)\b", "", plain).split()).rstrip(".")


def timeline(told: Story, now: str = "") -> Markup:
    """The statements of a story, in their order."""
    entries = (_entry(found, told.subject, now) for found in folded(told.statements, told.cause))
    return section("Timeline", element("ol", entries, class_="story"))


def _entry(found: Folded, subject: str, now: str) -> Markup:
    statement = found.statement
    where = object_address(statement.object) if statement.object != subject else None
    about: Child = element("a", statement.object, href=where) if where is not None else statement.object
    return element(
        "li",
        element(
            "p",
            state(_WORDS[statement.severity]),
            element("b", f"{found.times} times") if found.times > 1 else None,
            about if statement.object != subject else None,
            ago(statement.time, now),
            class_="head",
        ),
        element("p", statement.coded),
        _details(statement),
        element("p", element("b", "Next: "), statement.next_step, class_="next")
        if statement.is_problem and statement.next_step
        else None,
        class_=statement.severity,
    )


def _details(statement: Statement) -> Markup | None:
    details = statement.details[:MAX_DETAILS]
    return element("ul", (element("li", line) for line in details), class_="details") if details else None
