"""Writes CDI specifications again that another program has removed while their pods run.

A container that is started again needs the specification of its claims. The runtime resolves CDI devices before it
calls any NRI plugin about the container, which fails there if one is missing ("unresolvable CDI devices"); the kubelet
creates it again some seconds later. So the folder is inspected all the time. A specification that is missing twice in a
row is written again; it is missing for a moment while another daemon of this node attaches or detaches a sandbox of the
claim. If it is removed each time, it is written less and less often. Started by `netdra.node.parts`.
"""

from __future__ import annotations

import asyncio
import time

from netdra.kube.queue import WorkQueue
from netdra.kube.undone import UndoneWrites, WrittenObject
from netdra.model.plan import ClaimReference
from netdra.node.sandboxes.hooks import Attachments
from netdra.node.sandboxes.recover import contained

LOOK_SECONDS = 2.0
"""Longer than a hook of another daemon takes."""
PREPARE_SECONDS = 10.0
"""How long a claim whose record was lost, too, may take to be prepared again."""
FIRST_WAIT, MOST_WAIT = 2.0, 60.0


class Specifications:
    """The CDI specifications of the claims whose pods run."""

    def __init__(self, hooks: Attachments) -> None:
        """Begin nothing yet."""
        self._hooks = hooks
        self._missing: dict[str, ClaimReference] = {}
        self._undone = UndoneWrites()
        self._queue = WorkQueue[str]("specifications", self._restore_if_due, first=FIRST_WAIT, most=MOST_WAIT)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run())
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                with contained("CDI specifications"):
                    await self._look()

    async def _look(self) -> None:
        before, self._missing = self._missing, await asyncio.to_thread(self._hooks.table.unspecified)
        for uid in before.keys() & self._missing:
            self._queue.add(uid)

    async def _restore_if_due(self, uid: str) -> None:
        """Write a claim's specification, unless it waits because it was removed each time.

        Raises:
            UndoneError: it waits.
        """
        if uid in self._missing:
            path = str(self._hooks.table.files.spec_path(uid))
            written = WrittenObject("PUT", uid, path, "cdi-specifications", "", "CDI specification", path)
            self._undone.check(written, b"")
            await self._restore(uid)
            self._undone.note(written, b"")

    async def _restore(self, uid: str) -> None:
        """Write a claim's specification, unless that has been done, or its pods have ended."""
        claim = self._missing.get(uid)
        if claim is None:
            return
        hooks = self._hooks
        await hooks.restore_records([claim], time.monotonic() + PREPARE_SECONDS)
        await hooks.in_thread(lambda: hooks.table.specify(uid))
        for sandbox in map(hooks.table.running, hooks.table.users(uid)):
            if sandbox is not None:
                hooks.events.report_specified(sandbox, claim, hooks.table.files.spec_path(uid))
