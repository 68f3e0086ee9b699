"""The common part of the commands that run in a cluster: access to the API server, log, health, and orderly shutdown.

Used by `netdra webhook`, `netdra controller` and `netdra node`. `cluster_options` gathers their options into one
`Options`, which the command passes to `run` with the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from netdra import __version__
from netdra.cli import shared, terminal
from netdra.model import decoders
from netdra.model.errors import PermanentError, TemporaryError
from netdra.ops.logs import FORMATS, LEVELS, set_up

if TYPE_CHECKING:
    from netdra.kube.client import Client
    from netdra.ops.metrics import Catalogue
    from netdra.ops.process import Process

_SPARE_SECONDS = 5


@dataclass(frozen=True)
class Options:
    """The options of every daemon.

    Attributes:
        cluster: the way to the API server.
        log_format, log_level, verbose: of `netdra.ops.logs`; verbose is the level debug.
        health_address: where /metrics, /healthz and /readyz are; "" for nowhere.
        health_socket: a unix socket that serves them too.
        drain_seconds: how long the daemon works on after SIGTERM, not ready any more.
        stop_seconds: how long the work in progress may take then, and the end after it.
    """

    cluster: shared.ClusterAccess
    log_format: Literal["text", "json"]
    log_level: str
    verbose: bool
    health_address: str
    health_socket: Path | None
    drain_seconds: float
    stop_seconds: float


cluster_options = shared.group(
    "options",
    Options,
    shared.cluster("A kubeconfig file; without it, the pod's service account, $KUBECONFIG or ~/.kube/config."),
    shared.option(
        "--health-address",
        "[HOST]:PORT",
        "The address that serves /metrics, /healthz and /readyz over HTTP, e.g. :8080; by default not served.",
        envvar="NETDRA_HEALTH_ADDRESS",
        default="",
    ),
    shared.option(
        "--health-socket",
        "PATH",
        "Serve them on a Unix socket, too, for netdra-health; --health-address then waits until its port is available.",
        envvar="NETDRA_HEALTH_SOCKET",
        type=shared.PATH,
    ),
    click.option(
        "--log-format", type=click.Choice(FORMATS), envvar="NETDRA_LOG_FORMAT", default="text", show_default=True
    ),
    click.option(
        "--log-level", type=click.Choice(LEVELS), envvar="NETDRA_LOG_LEVEL", default="info", show_default=True
    ),
    click.option("--verbose", "-v", is_flag=True, help="Log every request; the same as --log-level debug."),
    shared.seconds(
        "--drain-seconds", "The time to keep serving after SIGTERM, while not ready.", 0, 300, 0.0, metavar="N"
    ),
    shared.seconds("--stop-seconds", "The time for running work to finish after that.", 0.1, 300, 20.0, metavar="N"),
)
"""The options of a daemon, as the command's argument `options`."""


def run(
    name: str,
    catalogues: Sequence[Catalogue],
    work: Callable[[Client, Process], Awaitable[None]],
    options: Options,
) -> None:
    """Run a process of the cluster until a signal stops it (SIGTERM, SIGINT).

    Args:
        name: controller, webhook or node.
        catalogues: its metrics beside those of every process.
        work: the process's work, until cancelled.
        options: the command's.

    Raises:
        NetdraError: the API server cannot be reached, or the work cannot begin.
    """
    from netdra.ops.metrics import LOG_LINES

    level = "debug" if options.verbose else options.log_level
    set_up(options.log_format, level, count=lambda level: LOG_LINES.labels(level).inc())
    try:
        asyncio.run(_run(name, catalogues, work, options))
    except OSError as problem:
        raise PermanentError(str(problem), code="ND4015") from None


async def _run(
    name: str,
    catalogues: Sequence[Catalogue],
    work: Callable[[Client, Process], Awaitable[None]],
    options: Options,
) -> None:
    from netdra.kube.metrics import KUBE
    from netdra.ops import server
    from netdra.ops.metrics import INFO, PROCESS
    from netdra.ops.process import YOUNG_OBJECTS, Bounds, Process, return_large_blocks

    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    return_large_blocks()
    decoders.build()
    where = server.address(options.health_address)
    process = Process(name, on_stop=functools.partial(_limit, options))
    INFO.labels(__version__, name).set(1)
    async with AsyncExitStack() as opened:
        client = await opened.enter_async_context(options.cluster.client())
        pages = server.Told(process.health, (PROCESS, KUBE, *catalogues), os.environ.get("POD_UID", ""))
        if options.health_socket is not None:
            with listening("--health-socket", options.health_socket, "use a path in an existing directory"):
                await opened.enter_async_context(server.serving(options.health_socket, pages))
        if where is not None:
            serving = server.serving if options.health_socket is None else server.serving_when_free
            with listening(
                "--health-address", options.health_address, "use an address of this machine and an unused port"
            ):
                await opened.enter_async_context(serving(where, pages))
        try:
            await process.run(lambda: work(client, process), Bounds(options.drain_seconds, options.stop_seconds))
        except TemporaryError as problem:
            if not process.stopping:
                raise
            # Work that cannot be cancelled would keep the event loop from closing too.
            terminal.tell(str(problem))
            sys.stderr.flush()
            os._exit(4)


@contextlib.contextmanager
def listening(option: str, value: object, hint: str) -> Iterator[None]:
    """Name the option and its value where they cannot be listened on.

    Raises:
        PermanentError: they cannot.
    """
    try:
        yield
    except OSError as problem:
        words = problem.strerror or str(problem)
        raise PermanentError(f"{option} {value}: cannot listen: {words}", hint=hint, code="ND4016") from None


def _limit(options: Options) -> None:
    """Have the kernel end the process (SIGALRM) if its event loop stands still."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(options.drain_seconds + 2 * options.stop_seconds) + _SPARE_SECONDS)
