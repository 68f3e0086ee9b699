"""The interfaces of a NIC with what the policies say of each: between `netdra.exposure.resolve` and `assemble`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from netdra.exposure.grouping import HeldVF, MemberPlace
from netdra.exposure.resolve import Resolution
from netdra.model.inventory import AttributeValue, Interface


class Offer(msgspec.Struct, frozen=True):
    """An interface with what the policies say about it and the facts that can be published."""

    interface: Interface
    resolution: Resolution
    facts: Mapping[str, AttributeValue]


class NicOffers(msgspec.Struct, frozen=True):
    """What shares a pool and counters (`netdra.exposure.grouping`).

    Attributes:
        pf_name: what the counters are named after where the root is not known.
        root: the PF, or what else stands on nothing.
        others: its VFs and all that is on these, each with where it stands.
        above: by the name of an interface of these, what stands on it and is in another pool.
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
