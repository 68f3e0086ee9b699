"""Find errors in a pod's plans that can be known before anything is touched. Called by `attach`.

References are resolved against the expected results of the steps, so a config that would be refused when its step's
turn comes is refused now. Last of all, plugins that have STATUS of CNI 1.1 are asked whether they are ready. All are
asked at once, and a plugin that was ready counts as ready for a while: asking costs as much as a step. A plugin that
does not answer in time, or breaks the protocol, is not refused for that: its ADD will show.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import msgspec

from netdra.chain.flow import ChainStep
from netdra.chain.orders import network_of, order_of
from netdra.chain.report import StepName, name_of
from netdra.cni import protocol
from netdra.cni.config import NetworkConfig, request
from netdra.cni.errors import TRY_AGAIN_LATER, PluginError, PluginFailure, plugin_error
from netdra.cni.protocol import ReadyPlugin
from netdra.kernel import netns, unlocked
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.model.plan import called
from netdra.model.result import CNIInterface, StepDevice, StepResult
from netdra.model.topology import is_addressed
from netdra.steps import builtin, ipam
from netdra.steps.contract import Site
from netdra.topology.interfaces import makes_interface
from netdra.topology.merge import merge
from netdra.topology.references import find, resolve

_KINDS = (InvalidInputError, TemporaryError, PermanentError)
_SOME_MAC = "02:00:00:00:00:01"
_SOME_DEVICE = StepDevice(pci_address="0000:00:00.0", iommu_group="0", device_nodes=("/dev/null",), rdma_device="rdma0")


def preflight(tasks: Mapping[str, ChainStep], site: Site) -> None:
    """Check all steps of a pod.

    Raises:
        NetdraError: the namespace is the host's, an interface is there already, a plugin is missing or not ready,
            a config is wrong.
    """
    pod = site.inside
    if pod.cookie == netns.cookie(site.host):
        raise InvalidInputError(
            f'sandbox {site.container_id}: "{pod.path}" is the host\'s network namespace',
            hint="a pod with hostNetwork cannot have devices of its own",
            code="ND2123",
        )
    asked: list[PluginCall] = []
    expected: dict[str, StepResult] = {}
    for key, task in tasks.items():
        step = task.step
        if (step.device is not None or makes_interface(step)) and unlocked.index_of(pod.sock, step.if_name):
            raise PermanentError(
                f'{called(task.topology, step.name)} ({step.type}): the pod already has an interface "{step.if_name}"',
                hint="choose another config.name",
                code="ND2124",
            )
        if step.neutron is not None and (step.port is None or task.is_binary):
            raise InvalidInputError(
                f"{called(task.topology, step.name)} ({step.type}): the VF does not have a port in Neutron",
                hint="the node's driver reads the port from the claim's NeutronPort; a plan alone does not contain it",
                code="ND2125",
            )
        if is_addressed(step.config):
            raise InvalidInputError(
                f"{called(task.topology, step.name)} ({step.type}): it has no addresses of its PodNetwork",
                hint="the node's daemon takes them from the claim's PodAddresses; without a cluster, use type static",
                code="ND2126",
            )
        previous = merge([expected[dependency] for dependency in task.after])
        expected[key] = _expected(task, previous, pod.path)
        with _named(task):
            asked += _binary(task, expected, site) if task.is_binary else _builtin(task, expected, previous, site)
    check_readiness(asked, site.remaining() / 2)


@contextmanager
def _named(task: ChainStep) -> Iterator[None]:
    """Name the topology and the step in errors."""
    subject = called(task.topology, task.step.name)
    try:
        yield
    except PluginError as problem:
        if subject not in problem.what:
            failure = msgspec.structs.replace(problem.failure, message=f"{problem.failure.message}, for {subject}")
            raise plugin_error(failure, hint=problem.hint) from None
        raise
    except NetdraError as problem:
        if subject not in problem.what:
            kind = next((possible for possible in _KINDS if isinstance(problem, possible)), NetdraError)
            raise kind(f"{subject}: {problem.what}", hint=problem.hint, code=problem.code) from None
        raise


def _binary(task: ChainStep, expected: Mapping[str, StepResult], site: Site) -> Iterator[PluginCall]:
    version = task.step.config.get("cniVersion")
    plugin = protocol.find(task.step.type, site.plugins, version=version, timeout=site.remaining())
    try:
        config = _resolved(task, expected)
    except NetdraError:
        if not any(find(task.step.config)):
            raise
        return  # the value of a reference depends on the result of a plugin before it
    if config is not None:
        network = network_of(task, config)
        request(network, plugin.version, None)
        yield PluginCall(called=_called(task), plugin=plugin, network=network)


def _builtin(
    task: ChainStep, expected: Mapping[str, StepResult], previous: StepResult, site: Site
) -> Iterator[PluginCall]:
    config = _resolved(task, expected)
    if config is None:
        return
    prepared = builtin.prepare(order_of(task, config, previous), site.plugins, site.remaining())
    if prepared.lease is not None:
        plugin = ipam.find(prepared.lease, site.plugins, site.remaining())
        yield PluginCall(called=_called(task), plugin=plugin, network=ipam.network(prepared.lease))


def _resolved(task: ChainStep, expected: Mapping[str, StepResult]) -> Mapping[str, Any] | None:
    """A step's config with example values for its references; None if it refers to an address, which has no example."""
    references = find(task.step.config)
    if any(reference.field == "ips" for _, reference in references):
        return None
    if not references:
        return task.step.config
    return resolve(task.step.config, {name: expected[key] for name, key in task.ancestors.items()})


def _called(task: ChainStep) -> str:
    return str(StepName(**name_of(task.topology, task.step)))


def _expected(task: ChainStep, previous: StepResult, sandbox: str) -> StepResult:
    """An example of a step's result: right in its names, of the right types in the rest."""
    device = task.step.device
    address = device.own_pci_address if device is not None else ""
    made = CNIInterface(name=task.step.if_name, mac=_SOME_MAC, mtu=1500, sandbox=sandbox, pci_id=address)
    others = tuple(interface for interface in previous.interfaces if interface.name != made.name)
    return msgspec.structs.replace(previous, interfaces=(*others, made), devices=(*previous.devices, _SOME_DEVICE))


BELIEVED = 10.0
MAX_SECONDS = 1.0
MAX_BELIEVED = 256
WORKERS = 8
# The CNI specification's codes of STATUS: no ADD now (50), and containers may have lost their network too (51).
_UNAVAILABLE = frozenset({TRY_AGAIN_LATER, 50, 51})


class PluginCall(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that a step will call; `called` is the step as messages call it."""

    called: str
    plugin: ReadyPlugin
    network: NetworkConfig


# (binary, configuration) -> until when it counts as ready, on the monotonic clock.
_ready: dict[tuple[object, bytes], float] = {}


def check_readiness(asked: Iterable[PluginCall], seconds: float) -> None:
    """Ask all plugins that have STATUS.

    Args:
        asked: the plugins, each with its configuration.
        seconds: how long it may take; at most `MAX_SECONDS` count.

    Raises:
        TemporaryError: some plugins are not ready, and may be later.
        PermanentError: some plugins will not be ready.
    """
    now = time.monotonic()
    open_ones = [
        asking for asking in asked if protocol.has_status(asking.plugin) and _ready.get(_key(asking), 0.0) < now
    ]
    if not open_ones:
        return
    timeout = min(seconds, MAX_SECONDS)
    with ThreadPoolExecutor(min(WORKERS, len(open_ones)), thread_name_prefix="netdra-status") as threads:
        answers = list(threads.map(lambda asking: _ask(asking, now + timeout), open_ones))
    refused = [(asking, answer) for asking, answer in zip(open_ones, answers, strict=True) if answer is not None]
    if not refused:
        return
    text = "; ".join(
        f"{asking.called}: CNI plugin {asking.plugin.binary.name!r} is not ready: "
        f"{failure.message} (code {failure.code})"
        for asking, failure in refused
    )
    if all(failure.code in _UNAVAILABLE for _, failure in refused):
        raise TemporaryError(text, hint="no changes were made; check the requirements of the plugin", code="ND2127")
    raise PermanentError(text, hint="no changes were made; fix the plugin or the step's config", code="ND2128")


def _ask(asked: PluginCall, deadline: float) -> PluginFailure | None:
    """The plugin's own error, if it is not ready; None if it is, or does not answer."""
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
        for key in list(_outdated(now)):
            _ready.pop(key, None)
    if len(_ready) < MAX_BELIEVED:
        _ready[key] = now + BELIEVED


def _outdated(now: float) -> Iterator[tuple[object, bytes]]:
    return (key for key, until in list(_ready.items()) if until < now)


def _key(asked: PluginCall) -> tuple[object, bytes]:
    return asked.plugin.binary, msgspec.json.encode(asked.network)
