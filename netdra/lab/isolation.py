"""Run something in a child process that has network and mount namespaces of its own, root or not.

Everything that the child makes ends with it, in any case. The parent stays outside, so it can state what the
machine looked like before and after. Called by the command line.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from netdra.kernel import libc, link, netns
from netdra.kernel.errors import KernelError, KernelRefusedError
from netdra.kernel.netlink import Socket
from netdra.model.errors import NetdraError, PermanentError

Emit = Callable[[msgspec.Struct], None]


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """The last thing that a child states if it cannot continue."""

    what: str
    hint: str = ""
    code: str = ""


class Traces(msgspec.Struct, frozen=True):
    """The objects on this machine with names of the lab, and the children of this process.

    Only these: while the lab runs, others may well change the machine.
    """

    links: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()


def traces(links: Collection[str], namespaces: Collection[str], folder: str) -> Traces:
    """Search for traces of the lab from outside of it.

    Args:
        links: the names of its links.
        namespaces: the names of its namespaces.
        folder: where its files and mounts are.
    """
    with Socket() as sock:
        left = sorted(netdev.name for netdev in link.dump(sock) if netdev.name in links)
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return Traces(
        links=tuple(left),
        namespaces=tuple(name for name in netns.names() if name in namespaces),
        mounts=tuple(path for path in mounts if path.startswith(folder)),
        processes=tuple(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
    )


def run(work: Callable[[Emit], None]) -> Iterator[msgspec.Raw]:
    """Run `work` in isolation, and yield each struct that it emits, as JSON.

    Raises:
        PermanentError: the kernel allows no namespaces here, or the work failed (the text is its own).
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(work, writing)
    os.close(writing)
    last = b""
    try:
        with os.fdopen(reading, "rb") as lines:
            for last in lines:
                if not last.startswith(b'{"type":"failure"'):
                    yield msgspec.Raw(last)
    finally:
        with contextlib.suppress(ProcessLookupError):
            if not last:
                os.kill(child, signal.SIGTERM)
        status = os.waitpid(child, 0)[1]
    if status:
        raise _failure(last, status)


def _failure(last: bytes, status: int) -> PermanentError:
    if last.startswith(b'{"type":"failure"'):
        failure = msgspec.json.decode(last, type=Failure)
        return PermanentError(failure.what, hint=failure.hint, code=failure.code)
    code = os.waitstatus_to_exitcode(status)
    return PermanentError(
        f"the lab's process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}", code="ND4086"
    )


def _child(work: Callable[[Emit], None], writing: int) -> None:
    """The child's whole life; it never returns into the parent's code."""
    code = 1
    try:
        libc.die_with_parent()
        with os.fdopen(writing, "wb", buffering=0) as lines:

            def emit(event: msgspec.Struct) -> None:
                lines.write(msgspec.json.encode(event) + b"\n")

            try:
                enter()
                work(emit)
                code = 0
            except NetdraError as problem:
                emit(Failure(problem.what, problem.hint, problem.code))
    except BrokenPipeError:
        pass
    except Exception:  # noqa: BLE001 - a forked child must not return into its parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def enter() -> None:
    """Give this process, which must have one thread, a network and mount namespace of its own; as root or as a user.

    /run is an empty tmpfs inside, and /sys shows the new network namespace where the kernel allows it.

    Raises:
        PermanentError: neither is allowed.
    """
    with contextlib.suppress(KernelRefusedError):
        _enter_as_root()
        return
    try:
        netns.enter_user_namespace()
    except KernelError as problem:
        raise PermanentError(
            f"the lab needs namespaces of its own, and this user may not make them: {problem.what}",
            hint="run it as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone, AppArmor profile)",
            code=problem.code,
        ) from None


def _enter_as_root() -> None:
    libc.unshare(libc.CLONE_NEWNET | libc.CLONE_NEWNS)
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_PRIVATE)
    libc.mount("tmpfs", "/run", "tmpfs", 0)
    with contextlib.suppress(KernelError):  # a container may be forbidden to; its sysfs then shows the host's devices
        libc.mount("sysfs", "/sys", "sysfs", 0)
