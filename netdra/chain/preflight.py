"""Find what can be known to be wrong with a pod's plans before anything is touched. Called by `attach`.

References are resolved against what the steps are expected to make, so a config that would be refused when its step's
turn comes is refused now. Plugins that can be asked are asked whether they are ready, as the last thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from netdra.chain import readiness
from netdra.chain.execute import network_of, order_of
from netdra.chain.flow import Task
from netdra.chain.readiness import Asked
from netdra.chain.report import StepName, name_of
from netdra.cni import protocol
from netdra.cni.config import request
from netdra.cni.errors import PluginError, plugin_error
from netdra.kernel import netns, unlocked
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.model.plan import called
from netdra.model.result import CNIInterface, StepDevice, StepResult
from netdra.steps import builtin, ipam
from netdra.steps.contract import Site
from netdra.topology.interfaces import makes_interface
from netdra.topology.merge import merge
from netdra.topology.references import find, resolve

_KINDS = (InvalidInputError, TemporaryError, PermanentError)
_SOME_MAC = "02:00:00:00:00:01"
_SOME_DEVICE = StepDevice(pci_address="0000:00:00.0", iommu_group="0", device_nodes=("/dev/null",), rdma_device="rdma0")


def preflight(found: Mapping[str, Task], site: Site) -> None:
    """Check all steps of a pod.

    Raises:
        NetdraError: the namespace is the host's, an interface is there already, a plugin is missing or not ready,
            a config is wrong.
    """
    pod = site.inside
    if pod.cookie == netns.cookie():
        raise InvalidInputError(
            f'sandbox {site.container_id}: "{pod.path}" is the host\'s own network namespace',
            hint="a pod with hostNetwork has no network that devices could be moved into",
        )
    asked: list[Asked] = []
    expected: dict[str, StepResult] = {}
    for key, task in found.items():
        step = task.step
        if (step.device is not None or makes_interface(step)) and unlocked.index_of(pod.sock, step.if_name):
            raise PermanentError(
                f'{called(task.topology, step.name)} ({step.type}): the pod has an interface "{step.if_name}" already',
                hint="choose another config.name",
            )
        previous = merge([expected[each] for each in task.after])
        expected[key] = _expected(task, previous, pod.path)
        with _named(task):
            asked += _binary(task, expected, site) if task.is_binary else _builtin(task, expected, previous, site)
    readiness.check(asked, site.remaining() / 2)


@contextmanager
def _named(task: Task) -> Iterator[None]:
    """Name the topology and the step in what is said of it."""
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
            kind = next((each for each in _KINDS if isinstance(problem, each)), NetdraError)
            raise kind(f"{subject}: {problem.what}", hint=problem.hint) from None
        raise


def _binary(task: Task, expected: Mapping[str, StepResult], site: Site) -> Iterator[Asked]:
    version = task.step.config.get("cniVersion")
    plugin = protocol.find(task.step.type, site.plugins, version=version, timeout=site.remaining())
    try:
        config = _resolved(task, expected)
    except NetdraError:
        if not any(find(task.step.config)):
            raise
        return  # what a reference becomes depends on what a plugin before it makes
    if config is not None:
        network = network_of(task, config)
        request(network, plugin.version, None)
        yield Asked(called=_called(task), plugin=plugin, network=network)


def _builtin(task: Task, expected: Mapping[str, StepResult], previous: StepResult, site: Site) -> Iterator[Asked]:
    config = _resolved(task, expected)
    if config is None:
        return
    prepared = builtin.prepare(order_of(task, config, previous), site.plugins, site.remaining())
    if prepared.lease is not None:
        plugin = ipam.find(prepared.lease, site.plugins, site.remaining())
        yield Asked(called=_called(task), plugin=plugin, network=ipam.network(prepared.lease))


def _resolved(task: Task, expected: Mapping[str, StepResult]) -> Mapping[str, Any] | None:
    """A step's config as it may become, or None if only the step that gets an address can say which."""
    if any(reference.field == "ips" for _, reference in find(task.step.config)):
        return None
    return resolve(task.step.config, {name: expected[key] for name, key in task.ancestors.items()})


def _called(task: Task) -> str:
    return str(StepName(**name_of(task.topology, task.step)))


def _expected(task: Task, previous: StepResult, sandbox: str) -> StepResult:
    """What a step's result may look like: right in its names, of the right types in the rest."""
    device = task.step.device
    address = device.pci_address if device is not None else ""
    made = CNIInterface(name=task.step.if_name, mac=_SOME_MAC, mtu=1500, sandbox=sandbox, pci_id=address)
    others = tuple(each for each in previous.interfaces if each.name != made.name)
    return msgspec.structs.replace(previous, interfaces=(*others, made), devices=(*previous.devices, _SOME_DEVICE))
