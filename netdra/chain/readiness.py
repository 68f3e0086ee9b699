"""Ask plugins whether they are ready before anything is touched: STATUS of CNI 1.1. Called by `preflight`.

All are asked at once, and one that said yes is believed for a while: asking costs as much as a step. A plugin that
does not answer in time, or breaks the protocol, is not held up for that: its ADD will tell.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from netdra.cni import protocol
from netdra.cni.config import NetworkConfig
from netdra.cni.errors import TRY_AGAIN_LATER, PluginError, PluginFailure
from netdra.cni.protocol import Plugin
from netdra.model.errors import PermanentError, TemporaryError

BELIEVED = 10.0
MAX_SECONDS = 1.0
MAX_BELIEVED = 256
WORKERS = 8
# The CNI specification's codes of STATUS: no ADD now (50), and what is attached may have lost its network too (51).
_UNAVAILABLE = frozenset({TRY_AGAIN_LATER, 50, 51})


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that a step will call; `called` is the step as messages call it."""

    called: str
    plugin: Plugin
    network: NetworkConfig


# (binary, configuration) -> until when it is believed to be ready, on the monotonic clock.
_ready: dict[tuple[object, bytes], float] = {}


def check(asked: Iterable[Asked], seconds: float) -> None:
    """Ask all plugins that have STATUS.

    Args:
        asked: which, and with what configuration.
        seconds: what may be spent on it, at most `MAX_SECONDS` of them.

    Raises:
        TemporaryError: some are not ready, and may be later.
        PermanentError: some will not be.
    """
    now = time.monotonic()
    open_ones = [each for each in asked if protocol.has_status(each.plugin) and _ready.get(_key(each), 0.0) < now]
    if not open_ones:
        return
    timeout = min(seconds, MAX_SECONDS)
    with ThreadPoolExecutor(min(WORKERS, len(open_ones)), thread_name_prefix="netdra-status") as threads:
        answers = list(threads.map(lambda each: _ask(each, now + timeout), open_ones))
    refused = [(each, answer) for each, answer in zip(open_ones, answers, strict=True) if answer is not None]
    if not refused:
        return
    text = "; ".join(
        f"{each.called}: CNI plugin {each.plugin.binary.name!r} is not ready: {failure.message} (code {failure.code})"
        for each, failure in refused
    )
    if all(failure.code in _UNAVAILABLE for _, failure in refused):
        raise TemporaryError(text, hint="nothing was touched; see what the plugin waits for")
    raise PermanentError(text, hint="nothing was touched; mend the plugin or the step's config")


def _ask(asked: Asked, deadline: float) -> PluginFailure | None:
    """What a plugin has against being called, if it says so itself."""
    left = deadline - time.monotonic()
    if left <= 0:
        return None
    try:
        protocol.status(asked.plugin, asked.network, left)
    except PluginError as problem:
        return problem.failure if problem.failure.kind == "error" else None
    _believe(_key(asked))
    return None


def _believe(key: tuple[object, bytes]) -> None:
    now = time.monotonic()
    if len(_ready) >= MAX_BELIEVED:
        for each in list(_outdated(now)):
            _ready.pop(each, None)
    if len(_ready) < MAX_BELIEVED:
        _ready[key] = now + BELIEVED


def _outdated(now: float) -> Iterator[tuple[object, bytes]]:
    return (key for key, until in list(_ready.items()) if until < now)


def _key(asked: Asked) -> tuple[object, bytes]:
    return asked.plugin.binary, msgspec.json.encode(asked.network)
