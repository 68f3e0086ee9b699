"""Whose a provider's name is: its first owner's, until a while after the last of its registrations.

Used by `netdra.node.registry.table`. A name without registrations is kept so that no other program takes it while its
owner is being replaced; how many such names one owner keeps is bounded, and so are all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from netdra.node.registry.journal import Grant, ProviderOwner
from netdra.node.registry.shares import RefusedRegistrationError

OWNED_SECONDS = 3_600.0
"""How long a provider's name stays its owner's after the last of its registrations has ended."""
OWNED_NAMES = 8
"""How many names without registrations an owner keeps, the last ones."""
MOST_NAMES = 256
"""The same of all owners."""
ROOT = "root"
"""The owner that root of the node registers as."""
ANY_ROOT = "uid:0"
"""The owner that the user 0 of any container registers as: root of the node and service accounts outrank it."""


class ProviderOwners:
    """The owner of each provider's name: a user id or a service account (decision D47)."""

    def __init__(self, pinned: Mapping[str, str], is_used: Callable[[str], int]) -> None:
        """Begin without any.

        Args:
            pinned: the owners of providers that only these may register under.
            is_used: whether a provider has registrations.
        """
        self._pinned, self._is_used = dict(pinned), is_used
        self.names: dict[str, ProviderOwner] = {}

    def check(self, provider: str, owner: str, now: float) -> bool:
        """Check that an owner may use a provider's name; returns whether it takes the name from another owner.

        Raises:
            RefusedRegistrationError: the name is another owner's.
        """
        pinned = self._pinned.get(provider)
        current = self.names.get(provider)
        changes = current is not None and current.name != owner and bool(self._is_used(provider) or now < current.until)
        if pinned is not None:
            if pinned != owner and (pinned, owner) != (ANY_ROOT, ROOT):
                raise RefusedRegistrationError(
                    f'provider: "{provider}" belongs to {pinned}, not to {owner}', reason="NOT_OWNER", code="ND2207"
                )
            return changes
        if current is not None and changes and (current.name != ANY_ROOT or owner.startswith("uid:")):
            raise RefusedRegistrationError(
                f'provider: "{provider}" belongs to {current.name}, not to {owner}; choose another name, or have root '
                "of the node take the provider's registrations back",
                reason="NOT_OWNER",
                code="ND2208",
            )
        return changes

    def own(self, grant: Grant) -> None:
        """Give a registration's provider to the owner of the registration."""
        self.names[grant.key[0]] = ProviderOwner(grant.owner, grant.ends + OWNED_SECONDS)

    def release(self, provider: str, now: float) -> None:
        """Keep the name of a provider whose last registration has ended for a while, in the place of older ones."""
        current = self.names.pop(provider, None)
        if current is None:
            return
        self.names[provider] = ProviderOwner(current.name, min(current.until, now + OWNED_SECONDS))
        unused = [name for name in self.names if not self._is_used(name)]
        own = [name for name in unused if self.names[name].name == current.name]
        if len(own) > OWNED_NAMES or len(unused) > MOST_NAMES:
            del self.names[own[0]]

    def expire(self, now: float) -> None:
        """Set names free whose time is over."""
        for provider in [name for name, owner in self.names.items() if owner.until <= now]:
            if not self._is_used(provider):
                del self.names[provider]
