"""Check one step of a sandbox that is attached: its drift, in words; and restore settings of its VF after a reset.

Used by `check`. A binary is asked by its CHECK, and `netdra.chain.look` compares the rest. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from netdra.chain import flow, look, pod_routes, programs
from netdra.chain.checkpoint import StepState
from netdra.chain.execute import Executor
from netdra.chain.flow import ChainStep
from netdra.chain.look import UncheckableError
from netdra.chain.orders import network_of, order_of
from netdra.cni import protocol
from netdra.cni.errors import PluginError
from netdra.model.errors import TemporaryError
from netdra.model.result import StepResult
from netdra.steps import builtin, early_sysctls, slaac, source_routing
from netdra.steps.contract import Order
from netdra.steps.drift import with_present_macs
from netdra.steps.early_sysctls import EarlySysctls
from netdra.steps.source_routing import SourceRouted


class StepChecks:
    """The checks of a sandbox's steps; the executor calls their plugins."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._tasks, self._journal, self._site = executor.tasks, executor.journal, executor.site

    def check(self, key: str) -> tuple[str, ...]:
        """A step's drift, in words.

        Raises:
            NetdraError: the drift cannot be found out.
        """
        task, state, results = self._tasks[key], self._journal.saved.steps[key], self._executor.results()
        order = self._order(key)
        lost = self._lost_routes(key) + self._unrequested(key)
        if source_routing.KEY in state.undo:
            routed = msgspec.convert(state.undo[source_routing.KEY], SourceRouted)
            lost += source_routing.check(routed, self._tuned_after(key), self._site)
        if early_sysctls.KEY in state.undo:
            early = msgspec.convert(state.undo[early_sysctls.KEY], EarlySysctls)
            lost += early_sysctls.check(early, self._tuned_after(key), self._site)
        if not task.is_binary:
            order = msgspec.structs.replace(order, later=self._later(key))
            if flow.began_after(key, flow.MOVE_ROUTES, self._tasks, tuple(self._journal.saved.steps)):
                order = msgspec.structs.replace(order, config=programs.without_main_routes(order.config))
            prepared = builtin.prepare(order, self._site.plugins, self._site.remaining())
            return (*builtin.check(prepared, self._expected(key, results), self._site), *lost)
        drift, unasked = self._ask(task, state)
        own = look.own_interfaces(task, order.previous, results.get(key, StepResult()))
        seen = look.drift(task, state.config, own, self._expected(key, results), self._site)
        seen += builtin.check_vf(order, self._site) + lost
        if unasked and not (own or seen):
            raise UncheckableError(unasked, code="ND2115")
        return (*drift, *seen)

    def repair(self, key: str) -> tuple[str, ...]:
        """Restore what a reset has taken from a step's VF; return what was done, in words.

        Raises:
            NetdraError: the kernel or a driver refused.
        """
        return builtin.repair_vf(self._order(key), self._site)

    def _expected(self, key: str, results: Mapping[str, StepResult]) -> StepResult:
        """The results of all steps as a check expects them."""
        undos = (state.undo for state in self._journal.saved.steps.values())
        return slaac.without_advertised(flow.expected(key, self._tasks, results), undos)

    def _order(self, key: str) -> Order:
        """A step that was done, with its notes."""
        task, state = self._tasks[key], self._journal.saved.steps[key]
        order = order_of(task, state.config, flow.previous(task, self._tasks, self._executor.results()))
        return msgspec.structs.replace(order, noted=state.notes)

    def _ask(self, task: ChainStep, state: StepState) -> tuple[tuple[str, ...], str]:
        """The errors of a binary's CHECK, and why the binary could not be asked, "" if it was."""
        plugin = self._executor.plugin(task, state.config)
        if not protocol.can_check(plugin):
            return (), f"it supports CNI {plugin.version}, which does not define CHECK"
        final = with_present_macs(flow.to_check(task.key, self._tasks, self._executor.results()), self._site)
        steps = self._journal.saved.steps
        later = flow.began_after(task.key, {"tuning"}, self._tasks, tuple(steps))
        config = programs.as_tuned(state.config, [steps[key].config for key in later])
        try:
            attachment, timeout = self._executor.attachment(task), self._executor.timeout()
            protocol.check(plugin, network_of(task, config), attachment, final, timeout)
        except PluginError as problem:
            if problem.failure.is_unimplemented or isinstance(problem, TemporaryError):
                return (), problem.what
            return (problem.what,), ""
        return (), ""

    def _lost_routes(self, key: str) -> tuple[str, ...]:
        """The routes that a step's interface has lost, in words; those that a later program has found are its own."""
        task, state = self._tasks[key], self._journal.saved.steps[key]
        kinds = {other.step.type for other in self._tasks.values()}
        later = flow.began_after(key, kinds, self._tasks, tuple(self._journal.saved.steps))
        if any(self._tasks[other].is_binary or self._tasks[other].step.type in flow.MOVE_ROUTES for other in later):
            return ()
        if task.is_binary:
            return pod_routes.lost(state.undo, self._site)
        return builtin.lost_routes(state.undo, task.step.if_name, self._site)

    def _unrequested(self, key: str) -> tuple[str, ...]:
        """The configuration that routers have given to an interface that a step has made, in words."""
        task, saved = self._tasks[key], self._journal.saved
        same = [other for other in self._tasks.values() if other.step.if_name == task.step.if_name]
        if task is not same[0]:
            return ()
        configs = [saved.steps[other.key].config for other in same]
        requested = any(other.step.default_route for other in same)
        final = flow.expected(key, self._tasks, self._executor.results())
        return pod_routes.unrequested(task.step.if_name, configs, final, self._site, default_route=requested)

    def _tuned_after(self, key: str) -> frozenset[str]:
        """The sysctls that steps which came after a step have set, by path."""
        begun = tuple(self._journal.saved.steps)
        later = (self._journal.saved.steps[other].undo for other in begun[begun.index(key) + 1 :])
        parts = (part for undo in later for part in (undo.get("step", {}).get("sysctl", {}), _values(undo)))
        return frozenset(path for part in parts for path in part)

    def _later(self, key: str) -> tuple[Mapping[str, Any], ...]:
        """The records of built-in steps of a step's type that came after it on its interface."""
        steps = self._journal.saved.steps
        later = flow.began_after(key, {self._tasks[key].step.type}, self._tasks, tuple(steps))
        return tuple(builtin.written(steps[other].undo) for other in later if not self._tasks[other].is_binary)


def _values(undo: Mapping[str, Any]) -> Mapping[str, Any]:
    values: Mapping[str, Any] = undo.get(early_sysctls.KEY, {}).get("values", {})
    return values
