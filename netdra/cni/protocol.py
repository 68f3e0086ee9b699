"""The verbs of CNI: VERSION, ADD, DEL, CHECK, STATUS and GC of one plugin.

Called by `netdra.chain` for steps that are binaries and by `netdra.steps` for IPAM plugins, which are delegated to with
the whole configuration of the step ("Section 4: Plugin Delegation"). A call either succeeds or raises a `PluginError`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from netdra.cni import config, plugins, process, results
from netdra.cni.config import Attachment, NetworkConfig
from netdra.cni.confined import ConfinedPrograms
from netdra.cni.errors import MAX_STDERR, Kind, PluginError, PluginFailure, plugin_error
from netdra.cni.plugins import Binary, PluginPath
from netdra.model.errors import MAX_FOREIGN, UNREADABLE, InvalidInputError, TemporaryError, printable
from netdra.model.result import StepResult

VERSION_TIMEOUT = 5.0


class ReadyPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that is there and speaks `version` with us.

    `lock` is a descriptor that each of its processes inherits, or -1: a file that is locked through it stays locked
    until they have ended, even if this process dies before them. `stop` is one that ends them once it is readable,
    or -1.
    """

    binary: Binary
    where: PluginPath
    version: str
    lock: int = -1
    stop: int = -1


class _Versions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    supported_versions: tuple[str, ...]


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    msg: str = ""
    code: int = 0
    details: str = ""


def find(
    name: str,
    where: PluginPath,
    *,
    version: str | None = None,
    timeout: float = VERSION_TIMEOUT,
    lock: int = -1,
    confined: ConfinedPrograms | None = None,
) -> ReadyPlugin:
    """Find a plugin and agree on a protocol version with it: the highest that both have, or the one asked for.

    With `confined` it runs without any rights, as before its first use.

    Raises:
        InvalidInputError: the name is not a plugin name, or the version none that is spoken here.
        PluginError: no such binary exists, it cannot be run, or no version fits.
    """
    binary = plugins.find(name, where)
    if version is not None and version not in results.SUPPORTED_VERSIONS:
        raise InvalidInputError(
            f'CNI plugin "{name}": cniVersion {str(version)[:20]!r} is not supported',
            hint=f"use one of {', '.join(results.SUPPORTED_VERSIONS)}, or omit it",
            code="ND2259",
        )
    offered = supported_versions(binary, timeout, confined)
    wanted = results.SUPPORTED_VERSIONS if version is None else (version,)
    common = [supported for supported in results.SUPPORTED_VERSIONS if supported in offered and supported in wanted]
    if not common:
        message = f"it supports CNI {', '.join(offered) or 'no known version'}, but {' or '.join(wanted)} was requested"
        raise plugin_error(PluginFailure(plugin=name, verb="VERSION", kind="version", message=message))
    return ReadyPlugin(binary=binary, where=where, version=common[-1], lock=lock)


# (root, path) -> the binary that was called, and its answer; another binary at the same path is called again.
_answers: dict[tuple[str, str], tuple[Binary, tuple[str, ...]]] = {}


def supported_versions(
    binary: Binary, timeout: float = VERSION_TIMEOUT, confined: ConfinedPrograms | None = None
) -> tuple[str, ...]:
    """VERSION: the protocol versions that a binary states it speaks, asked once for each file.

    Raises:
        PluginError: it cannot be run or does not answer.
    """
    answer = _answers.get((binary.root, binary.path))
    if answer is not None and answer[0] == binary:
        return answer[1]
    offered = _ask_versions(binary, timeout, confined)
    _answers[binary.root, binary.path] = (binary, offered)
    return offered


def _ask_versions(binary: Binary, timeout: float, confined: ConfinedPrograms | None) -> tuple[str, ...]:
    request = {"cniVersion": results.SUPPORTED_VERSIONS[-1]}
    if confined is None:
        environment = config.environment("VERSION", PluginPath(directories=(), root=binary.root), None)
        printed = _execute(binary, "VERSION", request, environment, timeout)
    else:
        run = partial(confined.run, binary, {"CNI_COMMAND": "VERSION"}, msgspec.json.encode(request), timeout)
        printed = _finished(binary, "VERSION", run, timeout)
    try:
        return msgspec.json.decode(printed, type=_Versions).supported_versions
    except UNREADABLE as problem:
        raise _rubbish(binary, "VERSION", f"its answer to VERSION is invalid: {problem}", printed) from None


def add(
    plugin: ReadyPlugin, network: NetworkConfig, attachment: Attachment, previous: StepResult | None, timeout: float
) -> StepResult:
    """ADD: attach, and return the plugin's result.

    Raises:
        PluginError: it failed, ran out of time, or printed what is not a result. DEL must be called then too.
    """
    printed = _call(plugin, "ADD", config.request(network, plugin.version, previous), attachment, timeout)
    try:
        return results.parse(printed)
    except ValueError as problem:
        raise _rubbish(plugin.binary, "ADD", str(problem), printed) from None


def delete(
    plugin: ReadyPlugin, network: NetworkConfig, attachment: Attachment, previous: StepResult | None, timeout: float
) -> None:
    """DEL: undo an ADD, also one that failed or never happened. `previous` is the final result of the ADDs, if known.

    Raises:
        PluginError: it failed or ran out of time.
    """
    # DEL has a prevResult since 0.4.0, which brought CHECK too (SPEC.md of that version).
    kept = previous if results.at_least(plugin.version, results.CHECK_SINCE) else None
    _call(plugin, "DEL", config.request(network, plugin.version, kept), attachment, timeout)


def new_stop() -> int:
    """A counter (eventfd(2)) that ends the programs which are given it, once it is written to; the caller closes it.

    Raises:
        TemporaryError: the kernel has none to give.
    """
    try:
        return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    except OSError as problem:
        raise TemporaryError(f"plugins cannot be called: {problem.strerror}", code="ND2260") from None


def can_check(plugin: ReadyPlugin) -> bool:
    """Whether the plugin has CHECK: it came with 0.4.0."""
    return results.at_least(plugin.version, results.CHECK_SINCE)


def check(
    plugin: ReadyPlugin, network: NetworkConfig, attachment: Attachment, previous: StepResult, timeout: float
) -> None:
    """CHECK: whether what ADD made is still so. `previous` is the final result of the ADDs.

    Raises:
        PluginError: something is missing or wrong, or the plugin has no CHECK.
    """
    _require(plugin, "CHECK", results.CHECK_SINCE)
    _call(plugin, "CHECK", config.request(network, plugin.version, previous), attachment, timeout)


def has_status(plugin: ReadyPlugin) -> bool:
    """Whether the plugin has STATUS and GC: they came with 1.1.0."""
    return results.at_least(plugin.version, results.STATUS_AND_GC_SINCE)


def status(plugin: ReadyPlugin, network: NetworkConfig, timeout: float) -> None:
    """STATUS: whether the plugin is ready for ADD.

    Raises:
        PluginError: it is not (code 50 or 51), or it has no STATUS.
    """
    _require(plugin, "STATUS", results.STATUS_AND_GC_SINCE)
    _call(plugin, "STATUS", config.request(network, plugin.version, None), None, timeout)


def collect(plugin: ReadyPlugin, network: NetworkConfig, valid: Iterable[Attachment], timeout: float) -> None:
    """GC: let the plugin free what belongs to none of the attachments that are still valid.

    Raises:
        PluginError: it failed, or it has no GC.
    """
    _require(plugin, "GC", results.STATUS_AND_GC_SINCE)
    _call(plugin, "GC", config.collection_request(network, plugin.version, valid), None, timeout)


def _require(plugin: ReadyPlugin, verb: str, since: str) -> None:
    if not results.at_least(plugin.version, since):
        message = f"it supports CNI {plugin.version}, which does not define {verb}"
        raise plugin_error(PluginFailure(plugin=plugin.binary.name, verb=verb, kind="version", message=message))


def _call(
    plugin: ReadyPlugin, verb: str, request: Mapping[str, Any], attachment: Attachment | None, timeout: float
) -> bytes:
    if attachment is not None:
        config.check_attachment(attachment)
    environment = config.environment(verb, plugin.where, attachment)
    return _execute(plugin.binary, verb, request, environment, timeout, plugin.lock, plugin.stop)


def _execute(
    binary: Binary,
    verb: str,
    request: Mapping[str, Any],
    environment: Mapping[str, str],
    timeout: float,
    lock: int = -1,
    stop: int = -1,
) -> bytes:
    try:
        stdin = msgspec.json.encode(request)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise InvalidInputError(
            f'CNI plugin "{binary.name}": its configuration is not valid JSON: {problem}', code="ND2261"
        ) from None
    run = partial(process.run, binary.argv(), environment, stdin, timeout, lock, stop)
    return _finished(binary, verb, run, timeout)


def _finished(binary: Binary, verb: str, run: Callable[[], process.Finished], timeout: float) -> bytes:
    """The output of a successful program."""
    try:
        finished = run()
    except OSError as problem:
        message = f"{binary.path} cannot be run: {problem.strerror}"
        raise plugin_error(PluginFailure(plugin=binary.name, verb=verb, kind="missing", message=message)) from None
    if finished.stopped:
        raise _failed(binary, verb, "stopped", "it was stopped because the caller was interrupted", finished)
    if finished.timed_out:
        message = f"it timed out after {timeout:.1f} s and was stopped"
        raise _failed(binary, verb, "timeout", message, finished, waited=timeout)
    if finished.overflowed:
        message = f"it printed more than {process.MAX_STDOUT} bytes and was stopped"
        raise _failed(binary, verb, "overflow", message, finished)
    if finished.status < 0:
        message = f"it was terminated by signal {-finished.status} ({signal.strsignal(-finished.status)})"
        raise _failed(binary, verb, "signal", message, finished)
    if finished.status > 0:
        raise _own_error(binary, verb, finished)
    return finished.stdout


def _own_error(binary: Binary, verb: str, finished: process.Finished) -> PluginError:
    try:
        said = msgspec.json.decode(finished.stdout, type=_Error)
    except UNREADABLE:
        printed = _one_line(finished.stdout.decode(errors="replace"), 200)
        message = f"exit status {finished.status} without a CNI error" + (f"; it printed: {printed}" if printed else "")
        return _failed(binary, verb, "rubbish", message, finished)
    message = _one_line(said.msg) or f"exit status {finished.status}"
    return plugin_error(
        PluginFailure(
            plugin=binary.name,
            verb=verb,
            kind="error",
            message=message,
            code=said.code,
            details=_one_line(said.details),
            stderr=_stderr(finished),
        )
    )


def _failed(
    binary: Binary, verb: str, kind: Kind, message: str, finished: process.Finished, *, waited: float = 0.0
) -> PluginError:
    failure = PluginFailure(
        plugin=binary.name, verb=verb, kind=kind, message=message, stderr=_stderr(finished), waited=waited
    )
    return plugin_error(failure)


def _rubbish(binary: Binary, verb: str, message: str, printed: bytes) -> PluginError:
    shown = _one_line(printed.decode(errors="replace"), 200)
    text = f"{message}; it printed: {shown}" if shown else message
    return plugin_error(PluginFailure(plugin=binary.name, verb=verb, kind="rubbish", message=text))


def _one_line(text: str, limit: int = MAX_FOREIGN) -> str:
    """A plugin's text without line breaks: reports have a line for each fact of netdra's own."""
    return printable(" ".join(text.split()), limit)


def _stderr(finished: process.Finished) -> str:
    return printable(finished.stderr.decode(errors="replace"), MAX_STDERR)
