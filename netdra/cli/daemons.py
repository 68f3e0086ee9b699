"""What the commands that run in a cluster share: the way to the API server, the log, and a stop that is in good order.

Used by `netdra webhook` and `netdra controller`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from netdra.model.errors import PermanentError

if TYPE_CHECKING:
    from netdra.kube.client import Client

Command = TypeVar("Command", bound=Callable[..., Any])
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def cluster_options(command: Command) -> Command:
    """The options of every command that talks to an API server."""
    kubeconfig = click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="A kubeconfig file; without it, the pod's service account, $KUBECONFIG or ~/.kube/config.",
    )
    context = click.option("--context", metavar="NAME", help="The kubeconfig's context.")
    verbose = click.option("--verbose", "-v", is_flag=True, help="Log every request.")
    return kubeconfig(context(verbose(command)))


def run(
    work: Callable[[Client], Awaitable[None]], *, kubeconfig: Path | None, context: str | None, verbose: bool
) -> None:
    """Run a process of the cluster until it is told to stop (SIGTERM, SIGINT).

    Raises:
        NetdraError: there is no way to the API server, or the work cannot begin.
    """
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, format=_FORMAT)
    if not verbose:
        logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        asyncio.run(_run(work, kubeconfig, context))
    except OSError as problem:
        raise PermanentError(str(problem)) from None


async def _run(work: Callable[[Client], Awaitable[None]], kubeconfig: Path | None, context: str | None) -> None:
    from netdra.kube.client import Client
    from netdra.kube.connection import connect, find_config

    async with Client(connect(find_config(kubeconfig, context))) as client:
        working = asyncio.ensure_future(work(client))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, working.cancel)
        with suppress(asyncio.CancelledError):
            await working
