"""A step that is held until a test lets it go, in a claim that pods share."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from netdra.node.nri.hooks import Sandbox
from testbed.recorder import Recorder
from tests.cluster.sandboxes.scene import Scene, step


@dataclass
class Gate:
    """The step's plugin, which lets everything pass until the test makes it hold."""

    plugin: Recorder
    begun: Path
    opened: Path

    @classmethod
    def of(cls, scene: Scene) -> Gate:
        """The gate of a node."""
        begun, opened = (scene.machine.folder / name for name in ("begun", "gate"))
        for pipe in (begun, opened):
            os.mkfifo(pipe)
        return cls(Recorder(scene.machine.plugins, "recorded"), begun, opened)

    def holds(self) -> None:
        """Hold the next caller."""
        self.plugin.does("ADD", f'echo >"{self.begun}"; read _ <"{self.opened}"; echo "{{}}"')

    async def reached(self) -> None:
        """Wait until a caller is held."""
        await asyncio.to_thread(self.begun.read_text)

    async def opens(self) -> None:
        """Let go who is held."""
        await asyncio.to_thread(self.opened.write_text, "go\n")


def shared(scene: Scene) -> tuple[str, Sandbox, Sandbox, Gate]:
    """A claim of a macvlan and a gate, the sandboxes of the two pods that share it, and the gate."""
    scene.publish("eth7", shared=True)
    gate = Gate.of(scene)
    steps = (step("mac", "macvlan", {"mode": "bridge"}), step("slow", "recorded", after=("mac",)))
    claim = scene.claim(scene.topology("shares", *steps))
    one, other = (scene.machine.sandbox(scene.pod(claim)) for _ in range(2))
    return claim, one, other, gate
