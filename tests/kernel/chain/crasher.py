"""A process that attaches or detaches, and dies by SIGKILL at the nth event of its work. Run by `test_crash`.

An event is each request to the kernel, each entry of the checkpoint, each program that is run; before it
and after it. Reads a job as JSON in its first line, then one n a line; for each it forks, and states "killed" or
"done".
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from netdra.chain.checkpoint import CheckpointJournal, PodIdentity
from netdra.chain.detach import detach
from netdra.chain.site import ChainSettings
from netdra.cni import process
from netdra.kernel.netlink import Socket
from netdra.model.plan import Plan
from tests.plans import attach


class Job(msgspec.Struct, frozen=True):
    """The action, and its pod."""

    verb: Literal["attach", "detach"]
    plans: tuple[Plan, ...]
    pod: PodIdentity
    netns: str
    settings: ChainSettings


def die_at(number: int) -> None:
    """Let this process die at the nth event from now on."""
    left = [number]

    def event() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            event()
            result = function(*arguments, **named)
            event()
            return result

        return wrapped

    Socket.request = watched(Socket.request)  # type: ignore[method-assign]
    CheckpointJournal.append = watched(CheckpointJournal.append)  # type: ignore[method-assign]
    process.spawn = watched(process.spawn)  # type: ignore[attr-defined]


def act(job: Job) -> None:
    """Do the job."""
    if job.verb == "attach":
        attach(job.plans, job.pod, job.netns, job.settings)
    else:
        assert detach(job.pod.sandbox, job.settings).is_clean


def main() -> None:
    """Serve until the input ends."""
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=Job, dec_hook=lambda kind, value: kind(value))
    for line in sys.stdin.buffer:
        child = os.fork()
        if child == 0:
            die_at(int(line))
            act(job)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else f"done {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
