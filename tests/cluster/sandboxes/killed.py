"""A daemon that is killed at a named point of a call: the half that keeps pods, in a process of its own.

Run by `test_killed`. Reads one job as JSON from its standard input; the fault point is in the environment.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Literal

import msgspec

from netdra.chain.site import ChainSettings
from netdra.kernel import libc
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.model.plan import ClaimReference
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore
from netdra.node.nri.hooks import Sandbox
from netdra.node.parts import Dependencies, Pods
from netdra.node.sandboxes.hooks import Threads
from netdra.topology.devices import from_slices
from tests.cluster.sandboxes.scene import BUDGET, View


class Job(msgspec.Struct, frozen=True):
    """The call, its object, and its node; `host` is the descriptor of the node's network namespace."""

    verb: Literal["run", "stop", "prepare", "unprepare"]
    sandbox: Sandbox
    claim: ClaimReference
    node: str
    kubeconfig: Path
    folder: Path
    settings: ChainSettings
    host: int
    slices: tuple[ResourceSlice, ...]
    topologies: tuple[NetworkTopology, ...]


async def act(job: Job) -> None:
    """Make the call."""
    files = ClaimFiles(plugin=job.folder / "plugin", cdi=job.folder / "cdi")
    store = ClaimStore.of_state(job.folder)
    async with Client(connect(find_config(job.kubeconfig))) as client:
        pods = Pods.assemble(
            Dependencies(
                client=client,
                node=job.node,
                settings=job.settings,
                files=files,
                prepared=store,
                view=View(
                    devices=from_slices(job.slices),
                    slices=job.slices,
                    topologies={each.metadata.name: each for each in job.topologies},
                ),
                emit=lambda _: None,
                threads=Threads.made(lambda: libc.setns(job.host, libc.CLONE_NEWNET)),
            )
        )
        await pods.recover()
        match job.verb:
            case "run":
                await pods.hooks.run(job.sandbox, BUDGET)
            case "stop":
                await pods.hooks.stop(job.sandbox, BUDGET)
            case "prepare":
                await pods.claims.prepare(job.claim)
            case "unprepare":
                await pods.claims.unprepare(job.claim)
        await pods.hooks.aclose()


if __name__ == "__main__":
    asyncio.run(act(msgspec.json.decode(sys.stdin.buffer.read(), type=Job, dec_hook=lambda kind, value: kind(value))))
    os._exit(0)
