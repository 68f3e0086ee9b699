"""Where the blocking work of hooks is done: in threads of three kinds, so that none waits for what another may hang in.

Made by `netdra.node.pods.service` for `attachments`. A pool makes its threads when it has work for them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

WORKERS = 8
UNDO_WORKERS = 2
"""Of sandboxes whose plugins do not answer so many are undone at once, and nobody else waits for them."""


@dataclass(frozen=True)
class Threads:
    """The threads of one node's pods, all in the host's network namespace.

    Attributes:
        work: attaching and taking down.
        undoing: taking down what a plugin does not answer for.
        looking: looks at the kernel that take microseconds, which a pod without claims may need.
    """

    work: ThreadPoolExecutor
    undoing: ThreadPoolExecutor
    looking: ThreadPoolExecutor

    @classmethod
    def made(cls, initializer: Callable[[], object] | None = None) -> Threads:
        """New ones.

        Args:
            initializer: is called in each thread before its first work.
        """
        return cls(
            work=ThreadPoolExecutor(WORKERS, "pods", initializer),
            undoing=ThreadPoolExecutor(UNDO_WORKERS, "pods-undo", initializer),
            looking=ThreadPoolExecutor(1, "pods-look", initializer),
        )

    def drop_undoing(self) -> None:
        """Begin no more of what may hang: it is in checkpoints."""
        self.undoing.shutdown(wait=False, cancel_futures=True)

    def shutdown(self) -> None:
        """Wait for what is being done."""
        for each in (self.work, self.looking):
            each.shutdown()
