"""The vocabulary of selectors: the names that devices have, each with the kinds of value that it can have.

Filled by `netdra.vocabulary`, read by `netdra.cel.analysis`. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

import msgspec

from netdra.model.suggestions import closest, hint

Kinds = tuple[str, ...]
"""The kinds of value that a name can have: `bool`, `int`, `string`, `version`, `list`; several if givers disagree."""

_NEAR, _LIKE, _NEAR_DOMAIN, _SPELLING = 0.8, 0.6, 0.75, 0.85


class KnownValues(msgspec.Struct, frozen=True, kw_only=True):
    """The texts that an attribute can have, besides "", which reports that the device has none.

    Attributes:
        form: a pattern that each value matches whole.
        described: the form in words, with an example.
        known: the values, as far as they are known; with `others` a device can have further ones of the form.
    """

    form: str = r".*"
    described: str = ""
    known: tuple[str, ...] = ()
    others: bool = True

    def is_possible(self, text: str) -> bool:
        """Whether a device can have the value."""
        fits = re.fullmatch(self.form, text, re.DOTALL) is not None
        return not text or text in self.known or (fits and self.others and not self.meant(text))

    def meant(self, text: str) -> str:
        """The known value of which a text is another spelling, "" for none."""
        return "" if text in self.known else closest(text, self.known, _SPELLING)

    def hint(self, text: str) -> str:
        """The suggestion instead of a value that no device can have."""
        if self.known:
            return hint(text, self.known)
        spellings = (
            text.lower(),
            text.lower().removeprefix("0x"),
            f"0000:{text.lower()}",
            text.lower().replace("-", ":"),
        )
        right = next((spelling for spelling in spellings if re.fullmatch(self.form, spelling)), "")
        return f'write "{right}"' if right else f"it is {self.described}"


class Added(msgspec.Struct, frozen=True):
    """Additions to devices from others than the driver, by qualified name; a capacity is always a quantity."""

    attributes: Mapping[str, Kinds] = {}
    capacity: tuple[str, ...] = ()


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """The names that a selector can ask for.

    Attributes:
        driver: the driver's name, which is the domain of most of its names.
        facts: what the driver knows every interface, or publishes of every device, by qualified name.
        values: the values of those facts of which not every text can be one, by qualified name.
        capacity: the capacities that it publishes, by qualified name.
        added: what stands beside it on devices.
        of_devices: whether devices are asked, as by a topology, or interfaces before any policy has chosen them.
        withheld: facts of interfaces that devices do not carry (decision D25).
        aliases: words that people write for the driver's domain.
    """

    driver: str
    facts: Mapping[str, Kinds]
    values: Mapping[str, KnownValues] = {}
    capacity: frozenset[str] = frozenset()
    added: Added
    of_devices: bool
    withheld: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()

    def kinds(self, name: str) -> Kinds | None:
        """The kinds of an attribute by its qualified name; None if nothing gives devices this attribute."""
        return self.facts.get(name) or self.added.attributes.get(name)

    @property
    def domains(self) -> frozenset[str]:
        """All domains of the attributes that devices have."""
        return frozenset(name.partition("/")[0] for name in (*self.facts, *self.added.attributes))

    def is_own(self, domain: str) -> bool:
        """Whether the driver itself publishes in a domain, so that it knows what is there."""
        return any(name.startswith(f"{domain}/") for name in self.facts)

    def nearest(self, domain: str, name: str) -> str:
        """The fact whose name is almost the given name; "" if none exists."""
        return closest(name, self._named(self.facts, domain), _NEAR)

    def likely(self, domain: str, name: str) -> str:
        """A name of the domain that may be meant, for a hint; "" if none is like it."""
        present = self._named(self.facts, domain) + self._named(self.added.attributes, domain)
        return closest(name, present, _LIKE) or next((entry for entry in present if _ends_alike(entry, name)), "")

    def nearest_domain(self, domain: str) -> str:
        """The domain of the driver's own that is almost the given domain; "" if none exists."""
        own = sorted({name.partition("/")[0] for name in self.facts})
        if frozenset(domain.split(".")) >= frozenset(self.driver.split(".")) or domain in self.aliases:
            return self.driver
        close = difflib.get_close_matches(domain, own, n=1, cutoff=_NEAR_DOMAIN)
        parts = (entry for entry in own if entry.startswith(f"{domain}.") or entry.endswith(f".{domain}"))
        abridged = (entry for entry in own if len(domain) >= len("dra.net") and entry.startswith(domain))
        return next((candidate for group in (close, abridged, parts) for candidate in group), "")

    def domain_of(self, name: str) -> str:
        """The domain of the driver's own that has an attribute of that name, "" if none has."""
        qualified = (f"{domain}/{name}" for domain in (self.driver, *sorted(self.domains)))
        return next((entry.partition("/")[0] for entry in qualified if entry in self.facts), "")

    def _named(self, table: Iterable[str], domain: str) -> list[str]:
        return [name.partition("/")[2] for name in table if name.startswith(f"{domain}/")]


def _ends_alike(name: str, other: str) -> bool:
    """Whether one name is the other's last word: `speed` and `linkSpeed`."""
    short, long = sorted((name.lower(), other.lower()), key=len)
    return len(short) > 2 and (long.endswith(short) or long.startswith(short))
