"""Why an interface gets no address of a PodNetwork, each with one word for events and metrics."""

from __future__ import annotations

from typing import ClassVar

from netdra.model.errors import TemporaryError


class AddressError(TemporaryError):
    """No address is assigned; an administrator or another claim may change that at any time.

    Attributes:
        reason: why, in one word.
    """

    reason: ClassVar[str] = "NotAssigned"


class NoFreeAddressError(AddressError):
    """All addresses of the ranges for the node are assigned."""

    reason = "NoFreeAddress"


class NoRangeError(AddressError):
    """No range of a family is for the node: a free address would not help."""

    reason = "NoRangeForNode"


class AddressTakenError(AddressError):
    """Another interface has the requested address."""

    reason = "AddressTaken"


class AddressHeldError(AddressError):
    """A former pod of the owner, or of the same claim, may still have the address."""

    reason = "AddressHeld"


class WrongAddressError(AddressError):
    """The requested address is of no range of the node, or is reserved for another owner."""

    reason = "WrongAddress"


class NoPodNetworkError(AddressError):
    """The PodNetwork does not exist, or its spec cannot be used."""

    reason = "NoPodNetwork"


class NotAllowedError(AddressError):
    """The PodNetwork is not for the claim's namespace."""

    reason = "NamespaceNotAllowed"


class NamespaceLimitError(AddressError):
    """The claim's namespace has as many addresses as the PodNetwork allows."""

    reason = "NamespaceLimit"


class RequestMissingError(AddressError):
    """The PodNetwork requires that a claim requests its addresses, and the claim does not."""

    reason = "RequestMissing"
