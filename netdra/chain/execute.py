"""Do, undo and check one step of a pod's plans, built in or binary, with the checkpoint written around each act.

Used by `attach`, `detach` and `check`, which decide on the order; `flow` says what each step is given.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from netdra.chain import flow, holders
from netdra.chain.checkpoint import Amended, Begun, Done, Journal, StepState, Undone
from netdra.chain.flow import Task
from netdra.chain.site import Settings
from netdra.cni import protocol
from netdra.cni.config import Attachment, NetworkConfig
from netdra.cni.errors import PluginError
from netdra.cni.protocol import Plugin
from netdra.kernel import link, unlocked
from netdra.model import decoders
from netdra.model.errors import PermanentError, TemporaryError
from netdra.model.result import StepResult
from netdra.steps import builtin
from netdra.steps.contract import Order, Site
from netdra.topology.references import resolve

_IN_THREADS = ("netdra.cni", "netdra.model.result", "netdra.steps")  # what is decoded beside other steps
_CONTAINER_UNKNOWN = 3  # the CNI error that says that there is nothing to clean up
# Plugins that make links and routes in the pod's namespace; their veth on the host goes with its peer.
_IN_THE_POD = frozenset({
    "bridge", "dummy", "ipvlan", "loopback", "macvlan", "ptp", "sbr", "tap", "tuning", "vlan", "vrf",
})  # fmt: skip
_STACKED = frozenset({"ipvlan", "ipvtap", "macsec", "macvlan", "macvtap", "vlan"})  # made on another interface
_ON_THE_HOST = ("ipMasq", "macspoofchk")  # what lets bridge and ptp write firewall rules there


def order_of(task: Task, config: Mapping[str, Any], previous: StepResult) -> Order:
    """A built-in step as `netdra.steps` takes it."""
    return Order(
        topology=task.topology,
        step=task.step.name,
        type=task.step.type,
        if_name=task.step.if_name,
        network=task.step.network,
        config=config,
        device=task.step.device,
        previous=previous,
    )


class Executor:
    """Does the steps of one sandbox. Close it when it has done so."""

    def __init__(self, found: Mapping[str, Task], journal: Journal, site: Site, settings: Settings) -> None:
        decoders.build(*_IN_THREADS)
        self.tasks, self.journal, self._settings = found, journal, settings
        self.site = dataclasses.replace(site, lock=journal.held)
        self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def until(self, deadline: float) -> None:
        """From now on, act until another time on the monotonic clock; an interrupt before is over."""
        self.site = dataclasses.replace(self.site, deadline=deadline)
        with suppress(BlockingIOError):
            os.eventfd_read(self._stop)

    def interrupt(self) -> None:
        """End the plugins that run."""
        os.eventfd_write(self._stop, 1)

    def close(self) -> None:
        """No plugin runs any more."""
        os.close(self._stop)

    def do(self, key: str) -> None:
        """Do a step whose dependencies are done.

        Raises:
            NetdraError: it failed; undo it.
        """
        if not self.site.remaining():
            raise TemporaryError("there is no time left for it", hint="see which of the steps before it took so long")
        task, results = self.tasks[key], self._results()
        config = resolve(task.step.config, {name: results[each] for name, each in task.ancestors.items()})
        previous = flow.previous(task, self.tasks, results)
        if task.is_binary:
            self.journal.append(Done(step=key, result=self._add(task, config, previous)))
            return
        self.site.notes.clear()
        result = self._apply(task, config, previous)
        self.journal.append(Done(step=key, result=result, notes=tuple(self.site.notes)))

    def undo(self, key: str) -> tuple[str, ...]:
        """Undo a step that has begun, and return what could not be given back but does not matter.

        Raises:
            NetdraError: it is not undone.
        """
        if not self.site.remaining():
            raise NoTimeError("there is no time left for it")
        task, state = self.tasks[key], self.journal.saved.steps[key]
        if task.is_binary:
            notes = self._delete(task, state.config)
        else:
            notes = builtin.undo(task.step.type, state.undo, self.site)
            self._give_up(task, state)
        self.journal.append(Undone(step=key))
        return notes

    def release(self, key: str) -> tuple[str, ...]:
        """Give back what outlives a restart of the machine: of a binary all that it can do alone, else the lease.

        Serves where nothing more is known of a step, too.

        Raises:
            NetdraError: it is not released.
        """
        task = self.tasks[key]
        state = self.journal.saved.steps.get(key)
        config = state.config if state is not None else task.step.config
        if task.is_binary:
            return self._delete(task, config)
        if state is not None:
            builtin.release(state.undo, self.site)
            self._give_up(task, state)
        else:
            builtin.release_planned(order_of(task, config, StepResult()), self.site)
        return ()

    def check(self, key: str) -> tuple[str, ...]:
        """In words, what of a step is no longer as it should be.

        Raises:
            NetdraError: it cannot be told.
        """
        task, state, results = self.tasks[key], self.journal.saved.steps[key], self._results()
        if not task.is_binary:
            order = order_of(task, state.config, flow.previous(task, self.tasks, results))
            order = msgspec.structs.replace(order, later=self._later(key))
            prepared = builtin.prepare(order, self.site.plugins, self.site.remaining())
            return builtin.check(prepared, flow.expected(key, self.tasks, results), self.site)
        plugin = self._plugin(task, state.config)
        if not protocol.can_check(plugin):
            raise UncheckableError(f"it speaks CNI {plugin.version}, which has no CHECK")
        final = flow.final(key, self.tasks, results) or StepResult()
        try:
            protocol.check(plugin, network_of(task, state.config), self._attachment(task), final, self._timeout())
        except PluginError as problem:
            return (problem.what,)
        return ()

    def _later(self, key: str) -> tuple[Mapping[str, Any], ...]:
        """What built-in steps of a step's type that came after it on its interface wrote down before they acted."""
        step, steps = self.tasks[key].step, self.journal.saved.steps
        begun = list(steps)
        after = [self.tasks[each] for each in begun[begun.index(key) + 1 :]]
        return tuple(
            builtin.written(steps[each.key].undo)
            for each in after
            if not each.is_binary and (each.step.type, each.step.if_name) == (step.type, step.if_name)
        )

    def _apply(self, task: Task, config: Mapping[str, Any], previous: StepResult) -> StepResult:
        prepared = builtin.prepare(order_of(task, config, previous), self.site.plugins, self.site.remaining())
        record = builtin.observe(prepared, self.site)
        for device in builtin.holds(task.step.type, record):
            holders.take(self._settings.state, device, self.site.container_id)
        self.journal.append(Begun(step=task.key, config=config, undo=record))
        return builtin.apply(
            prepared, record, self.site, lambda more: self.journal.append(Amended(step=task.key, undo=more))
        )

    def _add(self, task: Task, config: Mapping[str, Any], previous: StepResult) -> StepResult:
        plugin = self._plugin(task, config)
        self.journal.append(Begun(step=task.key, config=config))
        given = previous if task.after else None
        attachment = self._attachment(task)
        before = {each.name for each in previous.interfaces}
        if task.after and unlocked.index_of(self.site.inside.sock, task.step.if_name):
            before.add(task.step.if_name)
        result = protocol.add(plugin, network_of(task, config), attachment, given, self._timeout())
        if task.after:
            told = {each.name for each in result.interfaces if each.sandbox == self.site.inside.path}
            self._check_made(task, {task.step.if_name, *told} - before)
        return result

    def _check_made(self, task: Task, names: Collection[str]) -> None:
        """What a derived step made stands on interfaces of the pod: what a program was told, it need not have heeded.

        Raises:
            PermanentError: it stands on an interface of the node.
        """
        pod = self.site.inside
        for name in sorted(names):
            made = link.find(pod.sock, name)
            if made is not None and made.kind in _STACKED and made.lower and made.lower_netns != -1:
                raise PermanentError(
                    f'"{name}" was made on an interface of the node, not of the pod',
                    hint=f'see whether this version of "{task.step.type}" can look in the pod',
                )

    def _delete(self, task: Task, config: Mapping[str, Any]) -> tuple[str, ...]:
        try:
            plugin = self._plugin(task, config)
            final = flow.final(task.key, self.tasks, self._results())
            protocol.delete(plugin, network_of(task, config), self._attachment(task), final, self._timeout())
        except PluginError as problem:
            if problem.failure.code == _CONTAINER_UNKNOWN:
                return ()
            if self.site.pod is None and _lives_in_the_pod_alone(task.step.type, config):
                return (f"its DEL failed, but all that it makes is gone with the namespace: {problem.what}",)
            raise
        return ()

    def _give_up(self, task: Task, state: StepState) -> None:
        for device in builtin.holds(task.step.type, state.undo):
            holders.give_up(self._settings.state, device, self.site.container_id)

    def _plugin(self, task: Task, config: Mapping[str, Any]) -> Plugin:
        version = config.get("cniVersion")
        where, lock = self.site.plugins, self.site.lock
        found = protocol.find(task.step.type, where, version=version, timeout=self._timeout(), lock=lock)
        return msgspec.structs.replace(found, stop=self._stop)

    def _timeout(self) -> float:
        """Seconds that the next call of a plugin may take."""
        return min(self.site.remaining(), self._settings.step_timeout)

    def _attachment(self, task: Task) -> Attachment:
        return Attachment(
            container_id=self.site.container_id,
            if_name=task.step.if_name,
            netns=self.site.pod.path if self.site.pod is not None else "",
            arguments=self.site.arguments,
        )

    def _results(self) -> dict[str, StepResult]:
        return {key: state.result for key, state in self.journal.saved.steps.items() if state.result is not None}


def _lives_in_the_pod_alone(kind: str, config: Mapping[str, Any]) -> bool:
    """Whether nothing that a well-known plugin makes with that config outlives the pod's namespace."""
    return kind in _IN_THE_POD and not any(config.get(key) for key in ("ipam", *_ON_THE_HOST))


class NoTimeError(TemporaryError):
    """A step was not undone because the time was up."""


class UncheckableError(PermanentError):
    """A step's plugin cannot be asked whether all is well."""


def network_of(task: Task, config: Mapping[str, Any]) -> NetworkConfig:
    """A step as a binary is told of it, with its config resolved."""
    device = task.step.device
    return NetworkConfig(
        network=task.step.network,
        type=task.step.type,
        config=config,
        device_id=device.pci_address if device is not None else "",
    )
