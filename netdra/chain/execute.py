"""Do and undo one step of a pod's plans, built in or binary, with the checkpoint written around each act.

Used by `attach` and `detach`, which decide on the order; `flow` makes the results that each step is given.
`netdra.steps.allocated` checks a binary's changes of its device; `step_check` finds what a step has lost since.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec

from netdra.chain import flow, holders, other_links, pod_routes, programs, returned, shares, verify
from netdra.chain.checkpoint import HELD, Amended, Begun, CheckpointJournal, Done, StepState, UndoneEntry
from netdra.chain.flow import ChainStep
from netdra.chain.holders import RECORD
from netdra.chain.orders import network_of, order_of
from netdra.chain.other_links import HostLinks, TakenLink
from netdra.chain.shares import SharedDevices
from netdra.chain.site import ChainSettings
from netdra.cni import protocol
from netdra.cni.config import Attachment
from netdra.cni.errors import PluginError
from netdra.cni.protocol import ReadyPlugin
from netdra.kernel.errors import KernelError
from netdra.kernel.netlink import Socket
from netdra.model import decoders
from netdra.model.errors import NetdraError, PermanentError, TemporaryError
from netdra.model.plan import called
from netdra.model.result import StepResult
from netdra.ops import files
from netdra.ops.boot import boot_id
from netdra.steps import allocated, builtin, early_sysctls, rated, source_routing
from netdra.steps.allocated import Allocated, Returned
from netdra.steps.contract import NoTimeError, Order, Site
from netdra.steps.early_sysctls import EarlySysctls
from netdra.steps.settings import StrandedError
from netdra.steps.source_routing import SourceRouted

_IN_THREADS = ("netdra.cni", "netdra.model.result", "netdra.steps")  # decoded beside other steps
_CONTAINER_UNKNOWN = 3  # the CNI error for "nothing to clean up"
_PROCESSES = "/proc/"  # a path below it may be another process's by now


class Executor:
    """Does the steps of one sandbox. Close it when it has done so."""

    def __init__(
        self, tasks: Mapping[str, ChainStep], journal: CheckpointJournal, site: Site, settings: ChainSettings
    ) -> None:
        decoders.build(*_IN_THREADS)
        self.tasks, self.journal, self._settings = tasks, journal, settings
        self.site = msgspec.structs.replace(site, lock=journal.inherited)
        self._stop = protocol.new_stop()
        self._shared = SharedDevices(settings.state)
        self._host_links = HostLinks(tasks)
        if site.pod is not None:
            journal.relocate(site.pod.path)

    def until(self, deadline: float) -> None:
        """From now on, act until another time on the monotonic clock; an interrupt before is over."""
        self.site = msgspec.structs.replace(self.site, deadline=deadline)
        with suppress(BlockingIOError):
            os.eventfd_read(self._stop)

    def interrupt(self) -> None:
        """End the plugins that run."""
        os.eventfd_write(self._stop, 1)

    def close(self) -> None:
        """No plugin runs any more."""
        os.close(self._stop)
        self._shared.close()

    def plugin(self, task: ChainStep, config: Mapping[str, Any]) -> ReadyPlugin:
        """The program of a step, for one call.

        Raises:
            NetdraError: it is not found, or does not support the version of the config.
        """
        version = config.get("cniVersion")
        where, lock = self.site.plugins, self.site.lock
        plugin = protocol.find(task.step.type, where, version=version, timeout=self.timeout(), lock=lock)
        return msgspec.structs.replace(plugin, stop=self._stop if self._settings.stop < 0 else self._settings.stop)

    def timeout(self) -> float:
        """Seconds that the next call of a plugin may take."""
        return min(self.site.remaining(), self._settings.step_timeout)

    def attachment(self, task: ChainStep) -> Attachment:
        """The arguments of a call of a step's program."""
        return Attachment(
            container_id=self.site.container_id,
            if_name=task.step.if_name,
            netns=self.site.pod.path if self.site.pod is not None else "",
            arguments=self.site.arguments,
        )

    def results(self) -> dict[str, StepResult]:
        """The results of the steps that are done."""
        return {key: state.result for key, state in self.journal.saved.steps.items() if state.result is not None}

    def do(self, key: str) -> None:
        """Do a step whose dependencies are done.

        Raises:
            NetdraError: it failed; undo it.
        """
        if not self.site.remaining():
            raise TemporaryError(
                "timed out before the step started", hint="check why the steps before it were slow", code="ND2113"
            )
        task, results = self.tasks[key], self.results()
        config = task.resolved(task.step.config, self.tasks, results)
        previous = flow.previous(task, self.tasks, results)
        if task.is_binary:
            result, notes = self._add(task, config, previous)
            self._route_by_source(task, result)
            self.journal.append(Done(step=key, result=result, notes=notes))
            return
        self.site.notes.clear()
        result = self._apply(task, config, previous)
        self._route_by_source(task, result)
        self.journal.append(Done(step=key, result=result, notes=tuple(self.site.notes)))

    def undo(self, key: str) -> Returned:
        """Undo a step that has begun; return the restored settings, and minor settings that could not be restored.

        Raises:
            NotUndoneError: it is not undone.
        """
        if not self.site.remaining():
            raise NoTimeError("timed out before the step started", code="ND2114")
        deleted: tuple[str, ...] = ()
        try:
            given = self._undo_step(key)
        except NotUndoneError as problem:
            # A mode of the device may be on because a link of the pod in another namespace needs it.
            deleted = self._delete_hidden(key) if problem.stranded else ()
            if not deleted:
                raise
            given = self._undo_step(key)
        given = self._without_children(key, Returned((*given.restored, *deleted), given.notes))
        self.give_up(key)
        self.journal.note(UndoneEntry(step=key))
        return given

    def _undo_step(self, key: str) -> Returned:
        task, state = self.tasks[key], self.journal.saved.steps[key]
        if source_routing.KEY in state.undo:
            routed = msgspec.convert(state.undo[source_routing.KEY], SourceRouted)
            self._undo_part(lambda site: source_routing.undo(routed, site))
        given = self._undo_binary(task, state) if task.is_binary else self._undo_builtin(task, state)
        if early_sysctls.KEY in state.undo:
            early = msgspec.convert(state.undo[early_sysctls.KEY], EarlySysctls)
            self._undo_part(lambda site: early_sysctls.undo(early, site), given)
        if task.is_binary:
            routes = pod_routes.recorded(state.undo)
            self._undo_part(lambda site: pod_routes.restore(routes, site), given)
        return given

    def _undo_part(self, undo: Callable[[Site], object], given: Returned = Returned()) -> None:  # noqa: B008 (frozen)
        """Undo what surrounds a step; `given` is what became of its device before.

        Raises:
            NotUndoneError: it is not undone.
        """
        try:
            with self._own_sockets() as site:
                undo(site)
        except NetdraError as problem:
            raise NotUndoneError(problem.what, given, code=problem.code) from None

    def _early(self, task: ChainStep) -> EarlySysctls | None:
        """The sysctls that a step states, as they are before it runs."""
        if not task.step.sysctls:
            return None
        return early_sysctls.observe(
            called(task.topology, task.step.name), task.step.if_name, task.step.sysctls, self.site
        )

    def _route_by_source(self, task: ChainStep, result: StepResult) -> None:
        """Let traffic from the addresses of a step's interface leave by it, if the step asks for that."""
        if not task.step.source_routing:
            return
        with self._own_sockets() as site:
            added = source_routing.observe(called(task.topology, task.step.name), task.step.if_name, result, site)
            undo = {**self.journal.saved.steps[task.key].undo, source_routing.KEY: msgspec.to_builtins(added)}
            self.journal.append(Amended(step=task.key, undo=undo))
            source_routing.apply(added, site)

    def _delete_hidden(self, key: str) -> tuple[str, ...]:
        """Delete what the pod left on a step's device in any namespace; returns the deleted links, in words."""
        devices = _holds(self.tasks[key], self.journal.saved.steps[key])
        seconds = self.site.remaining() / 2
        try:
            findings = returned.examine(self._settings.state, seconds, returning=devices).findings
        except NetdraError:
            return ()  # the error of the step stands
        return tuple(str(finding) for finding in findings if not finding.problem)

    def _without_children(self, key: str, given: Returned) -> Returned:
        """Delete what the pod left on a step's device in the namespaces that the pod's knows; see `returned`.

        Raises:
            NotUndoneError: it could not be deleted.
        """
        devices = _holds(self.tasks[key], self.journal.saved.steps[key])
        try:
            # A binary's undo runs beside others, which have the sockets of the site.
            with self._own_sockets() if self.tasks[key].is_binary else nullcontext(self.site) as site:
                deleted = returned.end_known(self._settings.state, devices, site)
        except (KernelError, TemporaryError):
            return given  # they are searched again before the next pod gets the device
        except PermanentError as problem:
            raise NotUndoneError(problem.what, given, stranded=True, code=problem.code) from None
        return Returned((*given.restored, *deleted), given.notes)

    def give_up(self, key: str) -> None:
        """Note that the sandbox has a step's device no longer."""
        for device in _holds(self.tasks[key], self.journal.saved.steps[key]):
            if not holders.give_up(self._settings.state, device, self.site.container_id):
                self.journal.keeps_devices = True

    def note_held(self, key: str, differences: str) -> None:
        """Note in which way a step's device is not what it was: it is held until it is."""
        undo = self.journal.saved.steps[key].undo
        if undo.get(HELD) != differences:
            self.journal.note(Amended(step=key, undo={**undo, HELD: differences}))

    def release_as_it_is(self, key: str) -> None:
        """Count a step as undone whose device is not what it was."""
        self.give_up(key)
        self.journal.note(UndoneEntry(step=key))

    def release(self, key: str) -> Returned:
        """Give back what outlives a restart of the machine: by a binary's DEL, or as the lease of a built-in step.

        Works also for a step of which nothing more is known.

        Raises:
            NetdraError: it is not released.
        """
        task, state = self.tasks[key], self.journal.saved.steps.get(key)
        notes: tuple[str, ...] = ()
        try:
            if task.is_binary:
                notes = self._delete(task, task.step.config if state is None else state.config)
            elif state is None:
                builtin.release_planned(order_of(task, task.step.config, StepResult()), self.site)
            else:
                builtin.release(state.undo, self.site)
        except NetdraError as problem:
            if state is None or not programs.is_refused(state, problem):
                raise
            notes = (f"its plugin fails on DEL as on ADD and therefore did not change anything: {problem.what}",)
        if state is not None:
            self.give_up(key)
        return Returned(notes=notes)

    def _apply(self, task: ChainStep, config: Mapping[str, Any], previous: StepResult) -> StepResult:
        prepared = builtin.prepare(order_of(task, config, previous), self.site.plugins, self.site.remaining())
        early = self._early(task)
        record = {**builtin.observe(prepared, self.site), **_part(early)}
        for device in builtin.holds(task.step.type, record):
            holders.take(self._settings.state, device, self.site.container_id)
            self._check_free(task, device)
        self.journal.append(Begun(step=task.key, config=config, undo=record))
        try:
            if early is not None:
                early_sysctls.apply(early, self.site)
            result = builtin.apply(
                prepared, record, self.site, lambda more: self.journal.append(Amended(step=task.key, undo=more))
            )
        except PluginError as problem:
            self._note_error(task.key, problem)
            raise
        if early is not None:
            early_sysctls.settle(early, self.site)
        return result

    def _add(
        self, task: ChainStep, config: Mapping[str, Any], previous: StepResult
    ) -> tuple[StepResult, tuple[str, ...]]:
        """Call a binary's ADD; return its result, and notes on its device."""
        plugin = self.plugin(task, config)
        with self._own_sockets() as site:
            programs.check_unused(task, config, site)
            programs.check_lower(task, config, site)
            before = verify.earlier(task, previous, site)
            routes = pod_routes.observe(task, self.journal.saved.header.links or (), site)
        early = self._early(task)
        record = {**self._recorded(task), pod_routes.ROUTES: msgspec.to_builtins(routes), **_part(early)}
        self.journal.append(Begun(step=task.key, config=config, undo=record))
        self._host_links.begin(task, self.site.pod)
        try:
            given = previous if task.after else None
            if early is not None:
                early_sysctls.apply(early, self.site)
            result = protocol.add(plugin, network_of(task, config), self.attachment(task), given, self.timeout())
        except PluginError as problem:
            self._note_error(task.key, problem)
            raise
        finally:
            taken = self._taken(task)
        if early is not None:
            early_sysctls.settle(early, self.site)
        with self._own_sockets() as site:
            notes = self._shared.check(task, site)
            if taken:
                text = f"{other_links.plugins_of(taken)} moved {', '.join(map(str, taken))} from the host into the pod"
                raise PermanentError(text, hint="correct the step's config, or replace the plugin", code="ND2116")
            device = msgspec.convert(record[RECORD], Allocated) if RECORD in record else None
            verify.check(task, config, result, before, device, site)
            result, routes = pod_routes.settle(task, config, routes, previous, result, site)
            notes = (*notes, *site.notes)
        if routes.interfaces:
            undo = {**self.journal.saved.steps[task.key].undo, pod_routes.ROUTES: msgspec.to_builtins(routes)}
            self.journal.append(Amended(step=task.key, undo=undo))
        result = programs.with_mtu(task, config, result, self.site.inside.path)
        return result, (*notes, *self._rated(order_of(task, config, previous)))

    def _taken(self, task: ChainStep) -> tuple[TakenLink, ...]:
        """The links that a plugin has taken from the host besides its device; undoing the step returns them."""
        undo = self.journal.saved.steps[task.key].undo
        device = msgspec.convert(undo[RECORD], Allocated) if RECORD in undo else None
        taken = self._host_links.end(task, device, self.site.pod, self._own_sockets)
        if taken:
            links = [*undo.get(other_links.TAKEN, ()), *map(msgspec.to_builtins, taken)]
            self.journal.note(Amended(step=task.key, undo={**undo, other_links.TAKEN: links}))
        return taken

    def _taken_back(self, task: ChainStep) -> Returned:
        links = self.journal.saved.steps[task.key].undo.get(other_links.TAKEN)
        if not links:
            return Returned()
        with self._own_sockets() as site:
            return other_links.bring_home(msgspec.convert(links, tuple[TakenLink, ...]), site)

    def left(self) -> Mapping[str, tuple[str, ...]]:
        """The links that plugins have left in the pod though their steps are undone, by step, in words."""
        names = other_links.made(self.journal.saved, self.site.pod)
        if not names:
            return {}
        with self._own_sockets() as site:
            return other_links.left(names, self.tasks, self.journal.saved, site)

    def _rated(self, order: Order) -> tuple[str, ...]:
        """Give a binary's VF the rates that it was allocated; return the notes on that."""
        if rated.wanted(order) is None:
            return ()
        with self._own_sockets() as site:
            rated.apply(order, site)
            return tuple(site.notes)

    def _note_error(self, key: str, problem: PluginError) -> None:
        """Write down a plugin's own error on ADD: if DEL has the same one, the plugin has never done anything."""
        if problem.failure.kind == "error":
            undo = {**self.journal.saved.steps[key].undo, programs.REFUSED: programs.words(problem.failure)}
            self.journal.note(Amended(step=key, undo=undo))

    def _recorded(self, task: ChainStep) -> Mapping[str, Any]:
        """A binary's device as it is before ADD, as its undo; the device is this sandbox's from now on."""
        if task.step.device is None:
            return {}
        with self._own_sockets() as site:
            if task.step.device.is_shared:
                return self._shared.before_add(task, site)
            record = allocated.observe(task.step.device, task.step.if_name, site)
        if record is None:
            return {}
        try:
            holders.take(self._settings.state, record.key, self.site.container_id)
        except TemporaryError:
            # Pods that share a claim have its device together where the plugin leaves it on the host.
            if not holders.shares_claim(self._settings.state, record.key, self.journal.saved.header):
                raise
        else:
            self._check_free(task, record.key)
        if rated.wanted(order_of(task, task.step.config, StepResult())) is not None:
            # Of pods that share the claim, the first one's record has the rates from before.
            former = holders.record_of_sharer(self._settings.state, record.key, self.site.container_id)
            record = record if former is None else msgspec.structs.replace(record, function=former.function)
        return {RECORD: msgspec.to_builtins(record)}

    def _check_free(self, task: ChainStep, device: str) -> None:
        """Refuse a device that a former pod, or any other user, still hears; see `returned`.

        Raises:
            PermanentError: a link in another namespace stands on it.
            TemporaryError: it is not examined yet.
        """
        planned = task.step.device
        may_share = planned is not None and planned.allow_host_use
        returned.check_free(self._settings.state, device, self.site.remaining() / 2, host_may_use=may_share)

    def _undo_binary(self, task: ChainStep, state: StepState) -> Returned:
        """Call DEL, and then restore the device where it is not as it was, even if the plugin fails."""
        notes: tuple[str, ...] = ()
        problem: NetdraError | None = None
        early = self._before_del(task, state) if shares.BEFORE_ADD in state.undo else Returned()
        with suppress(NetdraError):  # DEL is called anyway
            self._host_links.begin(task, self.site.pod)
        try:
            notes = self._delete(task, state.config)
        except NetdraError as failed:
            problem = failed
        stranded: list[NetdraError] = []
        given = Returned()
        try:
            self._taken(task)
            given = self._taken_back(task)
        except NetdraError as failed:
            stranded.append(failed)
        try:
            own = self._shared_back(task, early) if shares.BEFORE_ADD in state.undo else self._device_back(task, state)
            given = Returned((*given.restored, *own.restored), (*given.notes, *own.notes))
        except NoTimeError:
            raise
        except NetdraError as failed:
            stranded.append(failed)
        if stranded:
            text = "; ".join(failure.what for failure in (problem, *stranded) if failure is not None)
            raise NotUndoneError(text, given, stranded=True, hung=_hung(problem), code=stranded[0].code) from None
        if problem is not None and task.step.type in programs.ON_THE_DEVICE and RECORD in state.undo:
            notes = (f"its DEL failed, but its device is unchanged: {problem.what}",)
            programs.forget_device(task, state.config, self.site, self.journal.saved.header.namespace.path)
            problem = self._unreleased(task, state.config)
        if problem is not None and programs.is_without_its_bridge(task, state.config):
            notes = (f"its DEL failed, but its bridge no longer exists, nor does the port: {problem.what}",)
            with self._own_sockets() as site:
                programs.remove_veth(task, state, site)
            problem = self._unreleased(task, state.config)
        if problem is not None:
            what, refused, hung = problem.what, programs.is_refused(state, problem), _hung(problem)
            if not refused or not {RECORD, shares.BEFORE_ADD} & state.undo.keys():
                raise NotUndoneError(what, given, refused=refused, hung=hung, code=problem.code) from None
            notes = (f"its plugin rejects its config on DEL, too; its device is unchanged: {problem.what}",)
        return Returned(given.restored, (*notes, *given.notes))

    def _unreleased(self, task: ChainStep, config: Mapping[str, Any]) -> NetdraError | None:
        """Release the lease that a program failed to release; return why it is not released."""
        try:
            builtin.release_planned(order_of(task, config, StepResult()), self.site)
        except NetdraError as problem:
            return problem
        return None

    def _undo_builtin(self, task: ChainStep, state: StepState) -> Returned:
        self.site.restored.clear()
        try:
            notes = builtin.undo(task.step.type, state.undo, self.site)
            return Returned(tuple(self.site.restored), notes)
        except NoTimeError:
            raise
        except NetdraError as problem:
            if programs.is_refused(state, problem):
                return Returned(
                    notes=(f"its IPAM plugin fails on DEL as on ADD, so it did not allocate a lease: {problem.what}",)
                )
            # An IPAM plugin's failure alone proves nothing about the device.
            stranded = bool(_holds(task, state)) and not isinstance(problem, PluginError)
            given = Returned(tuple(self.site.restored))
            raise NotUndoneError(
                problem.what, given, stranded=stranded, hung=_hung(problem), code=problem.code
            ) from None

    def _before_del(self, task: ChainStep, state: StepState) -> Returned:
        """Restore a shared device that an ADD changed before the plugin has it in its hands again on DEL."""
        with self._own_sockets() as site:
            undo = self._shared.before_del(task, state, site)
            if undo != state.undo:
                self.journal.note(Amended(step=task.key, undo=undo))
            with suppress(StrandedError):
                return self._shared.restore(task, site)
        return Returned()

    def _shared_back(self, task: ChainStep, early: Returned) -> Returned:
        with self._own_sockets() as site:
            given = self._shared.restore(task, site)
        state = self.journal.saved.steps[task.key]
        undo = self._shared.end(task, state)
        if undo != state.undo:
            self.journal.note(Amended(step=task.key, undo=undo))
        both = ((*early.restored, *given.restored), (*early.notes, *given.notes))
        return Returned(*(tuple(dict.fromkeys(texts)) for texts in both))

    def _device_back(self, task: ChainStep, state: StepState) -> Returned:
        if RECORD not in state.undo:
            return Returned()
        record = msgspec.convert(state.undo[RECORD], Allocated)
        folder, sandbox = self._settings.state, self.site.container_id
        rates: tuple[str, ...] = ()
        with self._own_sockets() as site:
            if _is_rated(task, state) and not holders.sharer(folder, record.key, sandbox):
                # The rates are netdra's, and so no difference that the plugin has left.
                with suppress(NetdraError):  # found below
                    rates = rated.undo(record.function, site)
                    record = allocated.without_rates(record)
            given = allocated.give_back(record, site, lambda: holders.sharer(folder, record.key, sandbox))
        return Returned(given.restored, (*rates, *given.notes))

    @contextmanager
    def _own_sockets(self) -> Iterator[Site]:
        """The site with sockets of this thread's own: binaries are called beside each other."""
        with ExitStack() as closing:
            host, pod = closing.enter_context(Socket()), self.site.pod
            if pod is not None:
                pod = msgspec.structs.replace(pod, sock=closing.enter_context(pod.namespace.visit(Socket)))
            yield msgspec.structs.replace(self.site, host=host, pod=pod, notes=[], restored=[])

    def _delete(self, task: ChainStep, config: Mapping[str, Any]) -> tuple[str, ...]:
        attachment, path = self.attachment(task), self._path_that_was()
        try:
            plugin = self.plugin(task, config)
            network, final = network_of(task, config), flow.final(task.key, self.tasks, self.results())
            if path:
                # With it plugins reset the host's side too; a plugin that insists on a namespace is called without.
                try:
                    there = msgspec.structs.replace(attachment, netns=path)
                    protocol.delete(plugin, network, there, final, self.timeout())
                except PluginError as problem:
                    if problem.failure.kind in {"timeout", "stopped"}:
                        raise
                else:
                    return ()
            protocol.delete(plugin, network, attachment, final, self.timeout())
        except PluginError as problem:
            if problem.failure.code == _CONTAINER_UNKNOWN:
                return ()
            if self.site.pod is None and programs.lives_in_the_pod_alone(task.step.type, config):
                # Some plugins check the namespace before they release the lease, and only the lease is left.
                builtin.release_planned(order_of(task, config, StepResult()), self.site)
                return (
                    f"its DEL failed, but everything that it created was removed with the namespace: {problem.what}",
                )
            raise
        return ()

    def _path_that_was(self) -> str:
        """The path of a namespace that is gone, for DEL; "" where it is there, or may be another's path by now.

        The CNI specification asks DEL to succeed without the namespace, and has no rule that its path leads anywhere.
        """
        header = self.journal.saved.header
        path = header.namespace.path
        if self.site.pod is not None or header.boot_id != boot_id() or path.startswith(_PROCESSES):
            return ""
        return "" if files.exists(Path(path)) else path


def _part(early: EarlySysctls | None) -> dict[str, Any]:
    """The part of a step's record with the sysctls that it states."""
    return {} if early is None else {early_sysctls.KEY: msgspec.to_builtins(early)}


def _is_rated(task: ChainStep, state: StepState) -> bool:
    """Whether netdra sets the rates of a binary's device."""
    return rated.wanted(order_of(task, state.config, StepResult())) is not None


def _holds(task: ChainStep, state: StepState) -> tuple[str, ...]:
    """The keys of the devices that a step has for its pod."""
    if not task.is_binary:
        return builtin.holds(task.step.type, state.undo)
    return holders.written(state)


def _hung(problem: NetdraError | None) -> str:
    """The plugin that did not answer in time, "" if none."""
    return problem.failure.hung if isinstance(problem, PluginError) else ""


class NotUndoneError(PermanentError):
    """A step is not undone.

    Attributes:
        given: what became of its device anyway.
        stranded: its device is not what it was.
        refused: its plugin cannot read its config.
        hung: the plugin that did not answer in time, "" if none.
    """

    def __init__(
        self,
        what: str,
        given: Returned = Returned(),  # noqa: B008 (it is frozen)
        *,
        stranded: bool = False,
        refused: bool = False,
        hung: str = "",
        code: str = "",
    ) -> None:
        super().__init__(what, code=code)
        self.given, self.stranded, self.refused, self.hung = given, stranded, refused, hung
