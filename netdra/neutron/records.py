"""The record in Neutron of the owner of a cluster's ports: a security group of the project, which no port has. Pure.

Its description ends in a word that the cluster's controller writes again again and again; see
`netdra.controller.neutron.ownership`. Of all that a project can own, it needs no network and no further extension.
"""

from __future__ import annotations

import msgspec

_PREFIX = "netdra-"
_TEXT = "The controller of a Kubernetes cluster writes here that it looks after its ports. word="


class OwnershipRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A security group as it is read."""

    id: str
    name: str
    description: str | None = None
    project_id: str = ""
    revision_number: int | None = None

    @property
    def word(self) -> str:
        """The word that was written last; "" if netdra did not write the description."""
        text = self.description or ""
        return text.removeprefix(_TEXT) if text.startswith(_TEXT) else ""


def name(cluster: str) -> str:
    """The name of a cluster's record, by the cluster's uid."""
    return f"{_PREFIX}{cluster}"


def described(word: str) -> str:
    """The description with a word."""
    return f"{_TEXT}{word}"
