"""Events of a node's sandboxes that several parts must know, so that no part holds another one.

Made by `netdra.node.daemon`, which gives them to the parts; a part subscribes when it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


class Signal:
    """Something that happens. Subscribers are called in their order, on the event loop, and must not block."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, subscriber: Callable[[], None]) -> None:
        """Have a function called each time that it happens."""
        self._subscribers.append(subscriber)

    def emit(self) -> None:
        """Call the subscribers: it has happened."""
        for subscriber in self._subscribers:
            subscriber()


@dataclass(frozen=True)
class Signals:
    """The signals of one node.

    Attributes:
        held_changed: the held devices, or the reasons why they cannot be returned, have changed.
        claim_prepared: a claim has been prepared: a pod with its devices begins soon.
        registrations_changed: other registrations of programs on the node are to be published.
        attached: a sandbox has its network.
        listed: the runtime has listed its sandboxes.
        ended_unseen: a sandbox may have ended without a hook.
        address_lost: an address of a claim may have been released while the claim has it.
    """

    held_changed: Signal = field(default_factory=Signal)
    claim_prepared: Signal = field(default_factory=Signal)
    registrations_changed: Signal = field(default_factory=Signal)
    attached: Signal = field(default_factory=Signal)
    listed: Signal = field(default_factory=Signal)
    ended_unseen: Signal = field(default_factory=Signal)
    address_lost: Signal = field(default_factory=Signal)
