"""A process that attaches and dies by SIGKILL in the middle of a step, once it has done half of it.

Each is forked from one process that has imported this module: under emulation that takes seconds. It cannot be forked
from the tests' own process, which has threads.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Mapping
from typing import Any

import msgspec

from netdra.chain.checkpoint import Begun, CheckpointJournal, Entry, PodIdentity
from netdra.chain.site import ChainSettings
from netdra.kernel.netlink import Socket
from netdra.model.plan import Plan
from tests.hardware.node import PATIENCE
from tests.plans import attach

CHANGES_BEFORE_DEATH = 2
_NEW_LINK = 16  # RTM_NEWLINK
_FORKS = multiprocessing.get_context("forkserver")


class Job(msgspec.Struct, frozen=True):
    """The plan to attach, and the step in which to die."""

    plan: Plan
    netns: str
    settings: ChainSettings
    after: str


def exit_code(job: Job) -> int | None:
    """Do a job in a process of its own, and return how that ended, as Python counts: a signal's number is negative.

    Raises:
        AssertionError: it did not end.
    """
    _FORKS.set_forkserver_preload([__name__])
    process = _FORKS.Process(target=_attach, args=(msgspec.json.encode(job, enc_hook=str),))
    process.start()
    process.join(PATIENCE)
    ended = not process.is_alive()
    process.kill()
    process.join()
    assert ended, f"the process did not end within {PATIENCE:.0f} s"
    return process.exitcode


def _attach(encoded: bytes) -> None:
    """Attach; from the step's beginning on count the changes of links, and die after the second or when it is done."""
    job = msgspec.json.decode(encoded, type=Job, dec_hook=lambda kind, value: kind(value))
    left = [CHANGES_BEFORE_DEATH]
    began = [False]
    append, request = CheckpointJournal.append, Socket.request

    def watched_append(self: CheckpointJournal, entry: Entry) -> None:
        if began[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, entry)
        # Steps that do not wait for one another are written down by threads of their own.
        if isinstance(entry, Begun) and entry.step.endswith(job.after):
            began[0] = True

    def watched_request(self: Socket, message: int, *arguments: Any, **named: Any) -> Any:
        answer = request(self, message, *arguments, **named)
        if began[0] and message == _NEW_LINK:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
        return answer

    patches: Mapping[tuple[type, str], Any] = {
        (CheckpointJournal, "append"): watched_append,
        (Socket, "request"): watched_request,
    }
    for (owner, name), function in patches.items():
        setattr(owner, name, function)
    attach((job.plan,), PodIdentity(sandbox=job.netns, name=job.netns), f"/run/netns/{job.netns}", job.settings)
