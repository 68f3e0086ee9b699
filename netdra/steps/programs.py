"""The BPF programs of a device: those that a pod or a plugin attached are detached when it comes back (decision D27).

Called by `moving` before the device is up on the host, and by `allocated` to compare it. Programs that were on the
device when it was taken are the node's own: its policy allows that they go with it (`allowHostUse`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from netdra.kernel import bpf, link
from netdra.kernel.bpf import Program
from netdra.kernel.errors import KernelError
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.steps.settings import StrandedError

_HINT = "end the program that attached it, or use bpftool; netdra retries automatically"


class Compared(NamedTuple):
    """The programs that a device did not have before, and those that it has no longer."""

    added: tuple[Program, ...] = ()
    lost: tuple[Program, ...] = ()


def compare(before: Sequence[Program] | None, netdev: Link, sock: Socket) -> Compared:
    """How the programs of a device differ from the recorded ones.

    Args:
        before: the recorded ones; None if they are not known: then nothing differs.
        netdev: as it was read a moment ago.
        sock: a socket in its namespace, which must be the calling thread's.

    Raises:
        KernelError: they cannot be read.
    """
    if before is None:
        return Compared()
    now = bpf.attached(netdev, sock)
    return Compared(_without(now, before), _without(before, now))


def restore(called: str, before: Sequence[Program] | None, netdev: Link, sock: Socket) -> tuple[str, ...]:
    """Detach the programs that a device did not have before; return notes on the detached programs, and on lost ones.

    Args:
        called: the device as messages call it.
        before: as for `compare`, as `netdev` and `sock` are.

    Raises:
        StrandedError: one cannot be detached.
        KernelError: they cannot be read.
    """
    if before is None:
        unclear = "; the record of an older netdra does not state whether the node attached it"
        return tuple(f"{called} has {words(program)}{unclear}" for program in bpf.attached(netdev, sock))
    added, lost = compare(before, netdev, sock)
    # Their names can only be read while they are loaded.
    notes = [f"{called} has {words(program)}, which is detached now" for program in added]
    reasons: list[str] = []
    for program in added:
        try:
            bpf.detach(sock, netdev.index, program)
        except KernelError as problem:
            reasons.append(problem.what)
    left = compare(before, link.get(sock, netdev.index), sock).added if added else ()
    if left:
        stays = (f"{called} has {words(program)}" for program in left)
        error = StrandedError("; ".join((*stays, *reasons)), hint=_HINT, code="ND2047")
        error.reasons = tuple(reasons)
        raise error
    return (*notes, *(f"{called} has lost {words(program)}" for program in lost))


def words(program: Program) -> str:
    """A program in messages, with its name if it has one."""
    name = bpf.name_of(program)
    called = f'{program.id} "{name}"' if name else str(program.id)
    return f"BPF program {called} ({program.place})"


def _without(programs: Iterable[Program], others: Iterable[Program]) -> tuple[Program, ...]:
    """The programs that are not among the others, by their BPF link if they have one.

    The creator of a link may give it another program at any time, as agents do when they are updated.
    """
    known = {_key(program) for program in others}
    return tuple(program for program in programs if _key(program) not in known)


def _key(program: Program) -> tuple[str, int, int]:
    return (program.place, 0, program.link) if program.link else (program.place, program.id, 0)
