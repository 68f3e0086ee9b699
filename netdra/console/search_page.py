"""The results of a search: objects whose name, address, MAC or PCI address holds a text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netdra.console.frame import note, page, section
from netdra.console.markup import Child, Markup, PageAddress, element
from netdra.model.pod_address import PodAddress

MAX_HITS = 50
"""Results of one kind."""


class Hit(NamedTuple):
    """An object that was found.

    Attributes:
        segments: the path of its page.
        words: how it is called.
        why: what matched, if that is not its name.
    """

    segments: tuple[str, ...]
    words: str
    why: str = ""


class HitGroup(NamedTuple):
    """The objects of a kind that were found, and how many there are."""

    title: str
    hits: Sequence[Hit]
    total: int


def of_addresses(addresses: Sequence[PodAddress]) -> HitGroup:
    """Addresses of PodNetworks; each leads to the claim that has it, else to the network."""
    hits: list[Hit] = []
    for address in addresses[:MAX_HITS]:
        spec = address.spec
        claim = ("claims", spec.owner.namespace, spec.claim.name) if spec.claim is not None else ()
        words = f"{spec.address} of {spec.network}"
        why = f"claim {spec.owner.namespace}/{spec.claim.name}" if spec.claim is not None else "reserved"
        hits.append(Hit(claim or ("networks", spec.network), words, why))
    return HitGroup("Addresses", hits, len(addresses))


def search_page(text: str, groups: Sequence[HitGroup], unread: Sequence[str] = ()) -> bytes:
    """The page of the results, exact matches first."""
    found = [group for group in groups if group.total]
    total = sum(group.total for group in found)
    if not text:
        content: Child = note("Enter a name, an address, a MAC or a PCI address.")
    elif not found:
        content = note(f'No object matches "{text}". Names, addresses, MACs and PCI addresses are searched.')
    else:
        content = [_group(group, text) for group in found]
    shown = (
        element("p", f'{total} objects match "{text}".', class_="quiet") if found else None,
        content,
        [note(problem, "warning") for problem in unread],
    )
    return page("Search", shown, query=text)


def _group(group: HitGroup, text: str) -> Markup:
    ordered = sorted(group.hits, key=lambda hit: (text not in (hit.words, hit.words.rpartition("/")[2]), hit.words))
    left = group.total - MAX_HITS
    rows = (
        element(
            "li",
            element("a", hit.words, href=PageAddress(*hit.segments)),
            element("small", f" {hit.why}") if hit.why else None,
        )
        for hit in ordered[:MAX_HITS]
    )
    more = element("p", f"{left} more are not shown.", class_="quiet") if left > 0 else None
    return section(f"{group.title} ({group.total})", element("ul", rows, class_="hits"), more)
