"""The interfaces of a NIC with the policies' resolution for each: between `netdra.exposure.resolve` and `assemble`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from netdra.exposure.grouping import HeldVF, MemberPlace
from netdra.exposure.resolve import Resolution
from netdra.model.inventory import AttributeValue, Interface


class Offer(msgspec.Struct, frozen=True):
    """An interface with the policies' resolution for it and the facts that can be published."""

    interface: Interface
    resolution: Resolution
    facts: Mapping[str, AttributeValue]


class NicOffers(msgspec.Struct, frozen=True):
    """The interfaces that share a pool and counters (`netdra.exposure.grouping`).

    Attributes:
        pf_name: the name in the counters' names where the root is not known.
        root: the PF, or another interface with none below it.
        others: its VFs and all that is on these, each with where it stands.
        above: by the name of an interface of these, the interfaces on top of it that are in another pool.
        held: the VFs that claims have.
    """

    pf_name: str
    root: Offer | None
    others: tuple[tuple[Offer, MemberPlace], ...] = ()
    above: tuple[tuple[str, Offer], ...] = ()
    held: tuple[HeldVF, ...] = ()

    @property
    def members(self) -> tuple[Offer, ...]:
        """All interfaces, the root first."""
        others = tuple(offer for offer, _ in self.others)
        return (self.root, *others) if self.root else others
