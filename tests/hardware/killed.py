"""A process that attaches and dies by SIGKILL in the middle of a step, once it has done half of it. Reads a job."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from netdra.chain.checkpoint import Begun, CheckpointJournal, Entry, PodIdentity
from netdra.chain.site import ChainSettings
from netdra.kernel.netlink import Socket
from netdra.model.plan import Plan
from tests.plans import attach

CHANGES_BEFORE_DEATH = 2
_NEW_LINK = 16  # RTM_NEWLINK


class Job(msgspec.Struct, frozen=True):
    """The plan to attach, and the step in which to die."""

    plan: Plan
    netns: str
    settings: ChainSettings
    after: str


def main() -> None:
    """Attach; from the step's beginning on count the changes of links, and die after the second or when it is done."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job, dec_hook=lambda kind, value: kind(value))
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


if __name__ == "__main__":
    main()
