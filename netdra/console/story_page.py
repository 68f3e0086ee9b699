"""*Why* as a page: the cause first, then every statement of the story in its order. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from netdra.console.frame import field, note, notes, page
from netdra.console.markup import Markup, PageAddress, element
from netdra.story.kinds import KINDS
from netdra.story.statement import Statement, Story

_WORDS = {"ok": "done", "info": "fact", "warning": "warning", "error": "error"}
MAX_DETAILS = 200


def story_page(told: Story) -> bytes:
    """The page of a story."""
    return page(f"Why: {told.subject}", (summary(told), steps(told), notes(told.unread)), is_live=True, here="Why")


def summary(told: Story) -> Markup:
    """The object's state, the cause, and the next step."""
    state = element("p", f"{told.subject} {told.state}.")
    if told.cause is None:
        return element("section", state, note("No problem was found.", "fine"), class_="cause")
    word = "Warning" if told.is_fine else "Cause"
    kind = "warning" if told.is_fine else "problem"
    return element(
        "section", state, note(f"{word}: {told.cause.text}", kind), _next(told.cause.next_step), class_="cause"
    )


def steps(told: Story) -> Markup:
    """All statements."""
    return element(
        "section",
        element("h2", "The whole story"),
        element("ol", (_statement(statement, told.subject) for statement in told.statements), class_="story"),
    )


def _statement(statement: Statement, subject: str) -> Markup:
    about = "" if statement.object == subject else f"{statement.object}: "
    details = statement.details[:MAX_DETAILS]
    return element(
        "li",
        element("b", _WORDS[statement.severity]),
        element("time", statement.time, datetime=statement.time) if statement.time else None,
        element("p", f"{about}{statement.text}"),
        element("ul", (element("li", line) for line in details)) if details else None,
        _next(statement.next_step) if statement.is_problem else None,
        class_=statement.severity,
    )


def _next(text: str) -> Markup | None:
    return element("p", f"Next: {text}") if text else None


def story_form(asked: Mapping[str, str], problem: str = "") -> bytes:
    """The form that asks for a story."""
    choices = (element("option", kind, value=kind, selected=kind == asked.get("kind")) for kind in KINDS)
    form = element(
        "form",
        element("p", element("label", "Kind", for_="kind"), element("select", choices, id="kind", name="kind")),
        field(
            "Namespace or node",
            "place",
            asked.get("place", ""),
            "Empty for a topology or network.",
        ),
        field("Name", "name", asked.get("name", "")),
        element("button", "Show why", type="submit"),
        action=PageAddress("why"),
        method="get",
    )
    return page("Why", (note(problem, "problem") if problem else None, form), here="Why")
