"""The start page: what is wrong now, each cause with its next step and objects; below it the cluster in one picture.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from netdra.console.fleet import ClassShare, NodeCounts, cluster_map, sums
from netdra.console.frame import STILL, PageLife, link, note, page, section, state
from netdra.console.markup import Child, Markup, PageAddress, element
from netdra.console.times import ago
from netdra.console.troubles import ClusterExamination, ClusterTrouble, TroubleKind

NAMED = 6
"""Objects of a trouble that its card names."""


class ClassChoice(NamedTuple):
    """The DeviceClasses by which the picture can be filtered.

    Attributes:
        names: all of them.
        chosen: the one that filters it, "" for none.
        shares: then by node the devices that match it.
        problem: why they cannot be counted.
    """

    names: Sequence[str] = ()
    chosen: str = ""
    shares: Mapping[str, ClassShare] | None = None
    problem: str = ""


ALL_CLASSES = ClassChoice()


def start_page(
    nodes: Sequence[NodeCounts],
    found: ClusterExamination,
    classes: ClassChoice = ALL_CLASSES,
    problem: str = "",
    life: PageLife = STILL,
) -> bytes:
    """The start page.

    Args:
        nodes: in the order of their names.
        found: the result of the last examination.
        classes: the filter of the picture.
        problem: why the numbers of nodes may be old, "" if they are not.
        life: how the page is kept current.
    """
    content = (
        note(problem, "problem") if problem else None,
        _summary(nodes, found, life.now),
        _troubles(found),
        _cluster(nodes, classes),
        _unexamined(found.notes),
    )
    return page("Overview", content, here="Overview", life=life)


def _summary(nodes: Sequence[NodeCounts], found: ClusterExamination, now: str) -> Markup:
    """The state of the cluster in one line of numbers, each with its page."""
    total = sums(nodes)
    errors = sum(trouble.is_error for trouble in found.troubles)
    bad_nodes = sum(node.is_in_trouble for node in nodes)
    degraded = _affected(found.troubles, "topologies")
    cards = (
        _card("Causes", len(found.troubles), "bad" if errors else "warn" if found.troubles else "good", _causes(found)),
        _card("Pods stuck", found.stuck, _tone(found.stuck), f"of {found.pods} with claims", "pods"),
        _card("Topologies in trouble", degraded, _tone(degraded), "", "topologies"),
        _card("Nodes with a problem", bad_nodes, _tone(bad_nodes, "warn"), f"of {len(nodes)} that report", "nodes"),
        _card("Devices in use", total.allocated, "busy", f"of {total.devices}, {total.offered} free", "devices"),
    )
    checked = ago(found.checked, now)
    when = element("p", "Checked ", checked, ".", class_="quiet") if checked is not None else None
    return element("div", element("ul", cards, class_="cards"), when, id="summary")


def _affected(troubles: Iterable[ClusterTrouble], kind: TroubleKind) -> int:
    return len({subject for trouble in troubles if trouble.kind == kind for subject in trouble.subjects})


def _tone(number: int, bad: str = "bad") -> str:
    return bad if number else "good"


def _causes(found: ClusterExamination) -> str:
    if not found.checked:
        return "being checked"
    errors = sum(trouble.is_error for trouble in found.troubles)
    return f"{errors} errors, {len(found.troubles) - errors} warnings" if found.troubles else "nothing is wrong"


def _card(title: str, number: int, tone: str, words: str, where: str = "") -> Markup:
    inside = (element("b", number), element("span", title), element("small", words) if words else None)
    held = element("a", inside, href=PageAddress(where)) if where else element("span", inside)
    return element("li", held, class_=f"card {tone}")


def _troubles(found: ClusterExamination) -> Markup:
    problem = note(f"The last examination failed: {found.problem}", "problem") if found.problem else None
    if found.troubles:
        cards: Child = element("ol", map(_trouble, found.troubles), class_="troubles")
    elif not found.checked:
        cards = note("The cluster is being checked. This page follows.")
    else:
        cards = note("Nothing is wrong.", "fine")
    return section("Trouble now", problem, cards)


def _trouble(trouble: ClusterTrouble) -> Markup:
    named = trouble.subjects[:NAMED]
    left = max(trouble.affected, len(trouble.subjects)) - len(named)
    words = [element("li", _subject(trouble, at)) for at in range(len(named))]
    more = (
        element("li", link(f"{left} more", trouble.subjects[0].page, code=trouble.code)) if left > 0 and named else None
    )
    return element(
        "li",
        element(
            "p",
            state("error" if trouble.is_error else "warning"),
            element("b", trouble.counted),
            element("code", trouble.code),
            class_="head",
        ),
        element("p", trouble.text, class_="cause"),
        element("p", element("b", "Next: "), trouble.next_step, class_="next") if trouble.next_step else None,
        element("ul", words, more, class_="subjects") if words else None,
        class_=f"trouble {'bad' if trouble.is_error else 'warn'}",
    )


def _subject(trouble: ClusterTrouble, at: int) -> Child:
    subject = trouble.subjects[at]
    return element("a", subject.words, href=subject.address) if subject.address is not None else subject.words


def _cluster(nodes: Sequence[NodeCounts], classes: ClassChoice) -> Markup:
    problem = note(classes.problem, "problem") if classes.problem else None
    if not nodes:
        return section("The cluster", problem, note("No node reports. Check that netdra node runs: netdra doctor"))
    filtered = f" by DeviceClass {classes.chosen}" if classes.shares is not None else ""
    return section(
        f"The cluster: {len(nodes)} nodes{filtered}", problem, _choose(classes), cluster_map(nodes, classes.shares)
    )


def _choose(classes: ClassChoice) -> Markup | None:
    if not classes.names:
        return None
    options = (
        element("option", name or "all devices", value=name, selected=name == classes.chosen)
        for name in ("", *classes.names)
    )
    return element(
        "form",
        element("label", "Devices of class", for_="class"),
        element("select", options, id="class", name="class"),
        element("button", "Show", type="submit"),
        action=PageAddress(),
        method="get",
        class_="filter",
    )


def _unexamined(texts: Sequence[str]) -> Markup | None:
    counted = Counter(texts)
    return (
        section("Not checked", element("ul", (element("li", text) for text in counted)), name="unread")
        if counted
        else None
    )
