"""The kernel's own share of a pod's network: a veth moved into another namespace and back, by nothing but netlink.

By netdra's requests (the move, the name and the way up in one message) and by dranet's (down, the move, up): nearly all
is the kernel's wait for its RCU callbacks (rcu_barrier in __dev_change_net_namespace), for any caller.

Measured by `bench.podruns` beside each pod while it runs, so that both have the same load: the kernel's time
is its wait for all CPUs (rcu_barrier), which a busy machine lengthens, and so does a namespace that has just gone.
Two namespaces of its own: no driver sees it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from netdra.kernel import address, kinds, link
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace

CHAIN_ADDRESS, CHAIN_MTU = "192.0.2.7/24", 1400
_DEVICE, _INSIDE = "bare", "net1"


class Move(msgspec.Struct, frozen=True):
    """Milliseconds of one move in, of a chain's additions to it in the pod, and of the way back.

    Attributes:
        into, chain, back: by netdra's requests.
        into_apart, back_apart: by dranet's.
    """

    into: float
    chain: float
    back: float
    into_apart: float
    back_apart: float


class Mover:
    """Moves its veth."""

    def __init__(self, home: Namespace, pod: Namespace, at_home: Socket, inside: Socket) -> None:
        self._home, self._pod, self._at_home, self._inside = home, pod, at_home, inside
        self._apart_first = True

    def move(self, *, chain: bool = False) -> Move:
        """Move it in and up, and back and up, both ways, in turn the one and the other first.

        Args:
            chain: by netdra's requests, it gets an address and an MTU between.
        """
        self._apart_first = not self._apart_first
        if self._apart_first:
            apart, together = self._apart(), self._together(chain=chain)
        else:
            together, apart = self._together(chain=chain), self._apart()
        return Move(*together, *apart)

    def _together(self, *, chain: bool) -> tuple[float, float, float]:
        started = time.perf_counter()
        index = link.get(self._at_home, _DEVICE).index
        link.change(self._at_home, index, netns_fd=self._pod.fd, name=_INSIDE, up=True)
        moved = time.perf_counter()
        if chain:
            address.add(self._inside, link.get(self._inside, _INSIDE).index, CHAIN_ADDRESS)
            link.change(self._inside, _INSIDE, mtu=CHAIN_MTU)
        built = time.perf_counter()
        if chain:
            link.change(self._inside, _INSIDE, mtu=1500)
        undone = time.perf_counter()
        index = link.get(self._inside, _INSIDE).index
        link.change(self._inside, index, netns_fd=self._home.fd, name=_DEVICE, up=True)
        ended = time.perf_counter()
        return (moved - started) * 1000, (built - moved) * 1000, (ended - undone) * 1000

    def _apart(self) -> tuple[float, float]:
        started = time.perf_counter()
        _move_apart(self._at_home, _DEVICE, self._pod, self._inside, _INSIDE)
        moved = time.perf_counter()
        _move_apart(self._inside, _INSIDE, self._home, self._at_home, _DEVICE)
        ended = time.perf_counter()
        return (moved - started) * 1000, (ended - moved) * 1000


def _move_apart(source: Socket, name: str, target: Namespace, there: Socket, new_name: str) -> None:
    index = link.get(source, name).index
    link.change(source, index, up=False)
    link.change(source, index, netns_fd=target.fd, name=new_name)
    link.change(there, link.get(there, new_name).index, up=True)


@contextmanager
def mover() -> Iterator[Mover]:
    """Two namespaces with a veth to move between them, gone at the end."""
    with ExitStack() as closing:
        home, pod, far = (closing.enter_context(Namespace.anonymous()) for _ in range(3))
        at_home, inside = (closing.enter_context(each.socket()) for each in (home, pod))
        link.create(at_home, _DEVICE, "veth", kinds.veth(kinds.Peer("far", netns_fd=far.fd)))
        link.change(at_home, _DEVICE, up=True)
        with far.socket() as other:
            link.change(other, "far", up=True)
        yield Mover(home, pod, at_home, inside)
