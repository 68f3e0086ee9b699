"""Why the kernel refused an interface's MTU: the kernel gives an error number, this module names what has less.

Used by steps that set an MTU, after the kernel has refused it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from netdra.kernel import link
from netdra.kernel.errors import KernelRefusedError
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.model.errors import PermanentError


@contextmanager
def explained(called: str, sock: Socket, which: str | int, mtu: int | None) -> Iterator[None]:
    """Raise for a refused MTU an error with the interface's name and the limit.

    Args:
        called: the step, for the message.
        sock: a socket in the interface's namespace.
        which: the interface's name or index.
        mtu: what it is to be, None if it stays.

    Raises:
        PermanentError: the kernel refused, and the MTU is why.
        KernelRefusedError: it refused for another reason.
    """
    try:
        yield
    except KernelRefusedError as problem:
        netdev = link.find(sock, which) if mtu is not None else None
        if netdev is None or mtu is None:
            raise
        why, hint = limit(netdev, link.dump(sock), mtu, link.max_mtu(sock, netdev.index))
        if not why:
            raise
        what = f"{called}: cannot set mtu {mtu} of {netdev.name}: {why} ({problem.what})"
        raise PermanentError(what, hint=hint, code="ND2043") from None


@contextmanager
def member_explained(called: str, sock: Socket, bond: str, member: str, mtu: int) -> Iterator[None]:
    """Raise an error with the reason for a member that a bond cannot have because it does not take the bond's MTU.

    Raises:
        PermanentError: the kernel refused, and the MTU may be why.
        KernelRefusedError: it refused for another reason.
    """
    try:
        yield
    except KernelRefusedError as problem:
        netdev = link.find(sock, member)
        if netdev is None or netdev.mtu >= mtu:
            raise
        what = f"{called}: cannot set mtu {mtu} of {bond}: its slave {member} has {netdev.mtu} ({problem.what})"
        raise PermanentError(what, hint=f"set mtu of {member} in the step that brings it", code="ND2044") from None


def limit(netdev: Link, links: Sequence[Link], mtu: int, most: int) -> tuple[str, str]:
    """The limit that excludes an MTU, and the next step; both "" if unknown.

    Args:
        links: all of its namespace.
        mtu: the desired one.
        most: the greatest that its driver takes, 0 if it does not report it.
    """
    for other in links:
        if other.master == netdev.index and netdev.kind == "bond" and other.mtu < mtu:
            return f"its slave {other.name} has {other.mtu}", f"set mtu of {other.name} in the step that brings it"
        if netdev.stands_on == other.index and other.mtu < mtu:
            hint = f"raise the MTU of {other.name} first, in the step that makes it"
            return f"{other.name}, which it stands on, has {other.mtu}", hint
    return (f"its device takes at most {most}", f"set at most {most}") if 0 < most < mtu else ("", "")
