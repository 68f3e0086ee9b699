"""All registrations of a node in pages: an answer has some of them, and a token with which the next are asked for.

Used by `netdra.node.registry.service`. An answer is memory until its caller has read it, so it is never the whole
registry; and a page costs as little as it is long, however many there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from google.protobuf.message import Message

from netdra.model.registration import RegistrationOutcome
from netdra.node.registry.messages import wire_outcome, wire_registration
from netdra.node.registry.shares import RefusedRegistrationError
from netdra.node.registry.table import RegistrationTable
from netdra.node.wire import registry_pb2 as wire

PAGE_BYTES = 32 * 1024
"""About how large an answer becomes."""
_LEASED, _OBJECT = "0", "1"
_Place = tuple[str, str, str]
"""Whether it is of the socket or of a CustomDevice; the provider; the device, or the object's name."""


class ListedNode(Protocol):
    """The node as far as listings show it."""

    @property
    def outcomes(self) -> Sequence[RegistrationOutcome]:
        """The outcome of each registration; the same object while nothing changes."""


class Listing:
    """The registrations of sockets and CustomDevices with their outcomes. One event loop's."""

    def __init__(self, table: RegistrationTable, view: ListedNode, file_problem: Callable[[str], str]) -> None:
        """Begin without any page.

        Args:
            table: the socket's registrations.
            view: the node.
            file_problem: why a device file is not given to pods now, by its path.
        """
        self._table, self._view, self._file_problem = table, view, file_problem
        self._seen: Sequence[RegistrationOutcome] | None = None
        self._outcomes: dict[tuple[str, str], list[RegistrationOutcome]] = {}
        self._objects: list[_Place] = []

    def page(self, request: wire.ListRegistrationsRequest) -> Message:
        """The registrations that follow the page of a token.

        Raises:
            RefusedRegistrationError: the token is not one of an earlier page.
        """
        outcomes = self._view.outcomes
        if outcomes is not self._seen:
            self._seen, self._outcomes = outcomes, {}
            for outcome in outcomes:
                name = outcome.custom_device
                about = (outcome.provider, f"custom {name}" if name else outcome.meant)
                self._outcomes.setdefault(about, []).append(outcome)
            self._objects = sorted(
                {(_OBJECT, outcome.provider, outcome.custom_device) for outcome in outcomes if outcome.custom_device}
            )
        registrations: list[wire.Registration] = []
        size = 0
        last: _Place = ("", "", "")
        for place, registration in self._after(_place(request.page_token), request.provider):
            if size >= PAGE_BYTES:
                return wire.ListRegistrationsResponse(registrations=registrations, next_page_token=" ".join(last))
            registrations.append(registration)
            size += registration.ByteSize()
            last = place
        return wire.ListRegistrationsResponse(registrations=registrations)

    def _after(self, place: _Place, provider: str) -> Iterator[tuple[_Place, wire.Registration]]:
        for key in (
            self._table.after(place[1:] if place[0] == _LEASED else (provider, "")) if place[0] < _OBJECT else ()
        ):
            if provider not in ("", key[0]):
                break
            grant = self._table.get(*key)
            if grant is not None:
                path = grant.registration.device_file
                problem = self._file_problem(path) if path else ""
                left = self._table.left(grant)
                yield (_LEASED, *key), wire_registration(grant, left, self._outcomes.get(key, ()), problem)
        for at in range(bisect_right(self._objects, place), len(self._objects)):
            _, of, name = self._objects[at]
            if provider in ("", of):
                listed = self._outcomes[of, f"custom {name}"]
                yield (
                    self._objects[at],
                    wire.Registration(
                        provider=of,
                        device=listed[0].meant,
                        custom_device=name,
                        outcomes=[wire_outcome(entry) for entry in listed],
                    ),
                )


def _place(token: str) -> _Place:
    """Where the page ended that gave a token; the beginning for none."""
    kind, _, rest = token.partition(" ")
    provider, _, name = rest.partition(" ")
    if token and (kind not in (_LEASED, _OBJECT) or not name):
        raise RefusedRegistrationError(
            "page_token: not a token of this registry", hint="begin without one", code="ND2206"
        )
    return kind, provider, name
