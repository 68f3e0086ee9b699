"""A sandbox's network and its claims' CDI specifications: both there, or neither. Blocking; called in worker threads.

Called by `netdra.node.sandboxes.hooks` and `recover`, which have the sandbox's turn (`table`).
"""

from __future__ import annotations

import ipaddress
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

import msgspec

from netdra.chain import announcements, checkpoint, duplicates
from netdra.chain import check as checks
from netdra.chain.attach import attach
from netdra.chain.checkpoint import PodIdentity, Saved
from netdra.chain.collect import collect
from netdra.chain.detach import detach
from netdra.chain.outcome import DeviceOutcome, device_outcomes, recorded_outcomes
from netdra.chain.report import AttachError, CollectReport, DetachReport, DuplicateAddress
from netdra.chain.shares import changed_devices
from netdra.chain.site import ChainSettings, open_pod, reopen_pod
from netdra.kernel import netns
from netdra.kernel.probe import WiredAddress
from netdra.model.errors import InvalidInputError, NetdraError, TemporaryError
from netdra.model.plan import ClaimReference, Plan, PlannedDevice
from netdra.node import faults, metrics
from netdra.node.claims.store import PreparedClaim
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes.circuits import hung_of
from netdra.node.sandboxes.status import ClaimDevices, Outcome, attached
from netdra.node.sandboxes.table import DetachOutcome, Table
from netdra.node.view import HeldDevice, HeldKey, Recorded, vf_of
from netdra.ops import files
from netdra.ops.boot import boot_id
from netdra.ops.metrics import measured
from netdra.rules.plans import CheckedPlans
from netdra.topology.devices import DeviceKey

COLLECT_SECONDS = 2.0  # no sandbox begins for half of it, which is less than a hook has
_AFTERWARDS = 0.05  # seconds of a budget that are reserved for the work after the chain


class Network:
    """Attaches and takes down the sandboxes of this node; it knows the devices that they have."""

    def __init__(self, settings: ChainSettings, table: Table) -> None:
        self.settings, self.table = settings, table
        self._had = _Had()

    @property
    def held(self) -> Sequence[HeldDevice]:
        """Each device that a claim has, once for each claim, as `netdra.node.view.Holder`.

        A shared device that a plugin has changed is in trouble for all claims, and if no claim has it (decision D55).
        Read from the disk: the files of another daemon of this node count at once.
        """
        held: dict[HeldKey, HeldDevice] = {}
        for record in self.table.prepared.all():
            for kept in record.owned:
                held[kept.key, record.claim.uid, vf_of(kept.facts)] = HeldDevice(
                    key=kept.key, claim=record.claim.uid, facts=kept.facts, reference=record.claim
                )
        for entry, device, claim, trouble in self._of_sandboxes(self.checkpoints()):
            before = held.get(entry) or _unprepared(device, claim)
            held[entry] = _with_trouble(before, trouble)
        for key, text in self.changed().items():
            for entry in [entry for entry in held if entry[0] == key] or [(key, "", "")]:
                before = held.get(entry) or HeldDevice(key=key, claim="", is_prepared=False)
                held[entry] = _with_trouble(before, text)
        return tuple(held.values())

    def has_sandbox(self, claim: str) -> bool:
        """As `netdra.node.view.SandboxHolder`."""
        return bool(self.table.users(claim))

    def unrecorded(self, recorded: Recorded) -> Sequence[HeldDevice]:
        """Those of `held` that only a sandbox's checkpoint has, as `netdra.node.view.SandboxHolder`."""
        unrecorded = self._had.unrecorded(self.settings.state, recorded)
        if not unrecorded:
            return ()
        held: dict[HeldKey, HeldDevice] = {}
        for entry, device, claim, trouble in self._of_sandboxes(self.checkpoints()):
            if entry in unrecorded:
                held[entry] = _with_trouble(held.get(entry) or _unprepared(device, claim), trouble)
        changed = self.changed() if held else {}
        return tuple(_with_trouble(device, changed.get(device.key, "")) for device in held.values())

    def _of_sandboxes(
        self, checkpoints: Iterable[Saved]
    ) -> Iterator[tuple[HeldKey, PlannedDevice, ClaimReference, str]]:
        """The devices of checkpoints, each with its claim and its sandbox's trouble."""
        troubles = self.table.troubles
        for saved in checkpoints:
            trouble = troubles.get(saved.header.pod.sandbox, "")
            for device, claim in _devices_of(saved):
                yield ((device.pool, device.device), claim.uid, vf_of(device)), device, claim, trouble

    def changed(self) -> dict[DeviceKey, str]:
        """The shared devices that plugins have changed, and how, in words."""
        changed = changed_devices(self.settings.state)
        return {(device.pool, device.device): device.text for device in changed}

    def has_checkpoint(self, sandbox: str) -> bool:
        """Whether a chain was ever begun for a sandbox, and not undone. Takes microseconds.

        Raises:
            InvalidInputError: the id cannot be a sandbox's.
            TemporaryError: the disk cannot be read.
        """
        return files.exists(checkpoint.path_of(self.settings.state, sandbox))

    def alive(self, sandboxes: Sequence[Sandbox]) -> tuple[tuple[Sandbox, ...], tuple[Sandbox, ...]]:
        """The sandboxes that have a network namespace of their own now, and those of which that is unknown.

        A runtime may list a stopped sandbox by the path that its namespace had, and a sandbox on the host's network by
        a path of the host's (CRI-O does both), so the kernel is asked. A running one whose path was removed has the
        path of a process in it instead. A pod has one sandbox at a time: of several that are alive, the newest counts.

        Raises:
            KernelError: the host's namespace cannot be read.
        """
        host = netns.inode_at()
        newest: dict[tuple[str, str, str], tuple[int, Sandbox]] = {}
        unknown: list[Sandbox] = []
        for sandbox in sandboxes:
            try:
                found = self._found(sandbox)
            except NetdraError:
                unknown.append(sandbox)
                continue
            if found is None or found[1].st_ino == host:
                continue
            current, status = found
            pod = (sandbox.namespace, sandbox.name, sandbox.uid)
            if pod not in newest or newest[pod][0] <= status.st_mtime_ns:
                newest[pod] = (status.st_mtime_ns, current)
        return tuple(sandbox for _, sandbox in newest.values()), tuple(unknown)

    def _found(self, sandbox: Sandbox) -> tuple[Sandbox, os.stat_result] | None:
        """A sandbox by a path that leads to its namespace, and that namespace's status; None where none is found.

        Raises:
            TemporaryError: the disk, or whether the namespace is there, cannot be read.
            KernelError: the same.
        """
        status = netns.status_at(sandbox.netns) if sandbox.netns else None
        if status is not None:
            return sandbox, status
        if not (sandbox.netns or sandbox.pid):
            return None  # containerd lists a running sandbox without its path, too, once that is removed
        saved = checks.load(self.settings.state, sandbox.id)
        of_process = f"/proc/{sandbox.pid}/ns/net" if sandbox.pid else ""
        path = of_process if saved is None else self.place(saved)
        status = netns.status_at(path) if path else None
        return None if status is None else (msgspec.structs.replace(sandbox, netns=path), status)

    def is_on_hosts(self, sandbox: Sandbox) -> bool:
        """Whether a sandbox is on the host's network: some runtimes give no namespace then, others the host's.

        Raises:
            KernelError: its namespace cannot be read.
        """
        return not sandbox.netns or netns.inode_at(sandbox.netns) == netns.inode_at()

    def hold_standing(self, saved: Saved) -> bool:
        """Hold the namespace of a sandbox that a former process left, if it is there; returns whether it is complete.

        Raises:
            TemporaryError: whether it is there cannot be read, or it cannot be held.
        """
        with reopen_pod(saved.header.namespace, same_boot=True) as space:
            if space is None:
                return False
            self.table.hold(msgspec.structs.replace(sandbox_of(saved), netns=space.path))
            return checks.is_complete(saved)

    def standing(self, sandbox: Sandbox) -> Saved | None:
        """The checkpoint of a sandbox whose network is complete in its namespace, else None.

        Raises:
            TemporaryError: the disk, or the namespace, cannot be read.
        """
        return checks.standing(self.settings.state, sandbox.id, sandbox.netns)

    def attach(
        self, sandbox: Sandbox, claims: Sequence[ClaimDevices], checked: CheckedPlans, deadline: float
    ) -> tuple[Outcome, ...]:
        """Attach a sandbox and let its containers be created; on any error it is as if nothing had been done.

        Args:
            sandbox: the pod's.
            claims: all of its claims that have devices of netdra.
            checked: their plans; none if no topology names their devices.
            deadline: when all must be done, undoing included, on the monotonic clock.

        Raises:
            InvalidInputError: the sandbox is on the host's network.
            NetdraError: the sandbox is not attached.
        """
        if self.is_on_hosts(sandbox):
            raise _host_network(sandbox, claims)
        # A former driver may have finished while claims were prepared here: its specification must not be taken away.
        saved = self.standing(sandbox) if self.has_checkpoint(sandbox.id) else None
        if saved is not None:
            return self.confirm(sandbox, self.table.prepared.of(entry.claim for entry in claims), saved)
        with measured(metrics.ATTACH_SECONDS):
            try:
                self.table.begin_attach(sandbox, [entry.claim for entry in claims])
                faults.point("attach-begun")
                done = self._run(checked, sandbox, deadline) if checked.plans else ()
                faults.point("attach-done")
                _check_in_time(sandbox, deadline)
                outcomes = attached(sandbox, claims, done)
                self.table.complete_attach(sandbox, outcomes)
            except BaseException as problem:
                # Other pods wait for the hook. The plugin would not answer either when its step is undone.
                hangs = isinstance(problem, NetdraError) and bool(hung_of(problem))
                until = time.monotonic() + _AFTERWARDS
                self.undo(sandbox.id, until if hangs else max(deadline, until))
                raise
        faults.point("attach-guarded")
        return outcomes

    def confirm(self, sandbox: Sandbox, records: Iterable[PreparedClaim], saved: Saved) -> tuple[Outcome, ...]:
        """Let the containers of a sandbox whose network stands be created; returns the outcomes of its claims.

        Args:
            sandbox: the pod's.
            records: those of its claims, as far as they are known; claims in the checkpoint need not be among them.
            saved: its checkpoint.

        Raises:
            NetdraError: a CDI specification cannot be written.
        """
        self.table.hold(sandbox)
        devices = [ClaimDevices.of_record(record) for record in records]
        outcomes = self.with_silent(attached(sandbox, devices, recorded_outcomes(saved)), saved)
        self.table.complete_attach(sandbox, outcomes)
        return outcomes

    def with_silent(self, outcomes: Sequence[Outcome], saved: Saved) -> tuple[Outcome, ...]:
        """Outcomes of a sandbox that was attached before, with its interfaces that have no carrier now.

        Args:
            outcomes: those of its claims.
            saved: its checkpoint.
        """
        silent: dict[str, str] = {}
        with suppress(NetdraError), open_pod(self._path(sandbox_of(saved))) as space:  # its namespace may end just now
            silent = announcements.silent(announcements.names_of(saved.header.plans), space)
        return tuple(msgspec.structs.replace(outcome, silent=silent) for outcome in outcomes)

    def _path(self, sandbox: Sandbox) -> str:
        """The path of a sandbox's namespace; that of a process if its own was removed."""
        return self.table.namespaces.others_path(sandbox.id) or sandbox.netns

    def duplicates(self, sandbox: Sandbox, plans: Sequence[Plan]) -> tuple[DuplicateAddress, ...]:
        """The addresses of an attached sandbox that other machines on the wire have, too, as far as that is reported.

        Raises:
            NetdraError: its namespace is gone, or cannot be entered.
        """
        with open_pod(sandbox.netns) as space:
            found = duplicates.look(plans, space)
        metrics.DUPLICATES.labels("report").inc(len(found))
        return found

    def announce_first(self, sandbox: Sandbox, plans: Sequence[Plan]) -> None:
        """Announce the addresses of a sandbox that was just attached.

        Raises:
            NetdraError: its namespace is gone, or cannot be entered.
        """
        with open_pod(sandbox.netns) as space:
            announcements.first(plans, space)

    def announce(
        self, sandbox: Sandbox, names: Collection[str], outcomes: Iterable[Outcome], without: Iterable[DuplicateAddress]
    ) -> dict[str, str]:
        """Announce addresses of a sandbox's interfaces once more: those of its steps, not what its containers added.

        Args:
            sandbox: the pod's.
            names: the interfaces.
            outcomes: of its claims.
            without: addresses that are not announced.

        Returns:
            the interfaces to try again, as `announcements.announce`.

        Raises:
            NetdraError: its namespace is gone, or cannot be entered.
        """
        devices = (device for outcome in outcomes for device in outcome.devices)
        ips = (ip.address for device in devices for step in device.steps for ip in step.result.ips)
        given = {ipaddress.ip_interface(text).ip for text in ips}
        others = {WiredAddress(entry.if_name, ipaddress.ip_address(entry.address)) for entry in without}
        with open_pod(self._path(sandbox)) as space:
            return announcements.announce(names, space, lambda place: place.address in given and place not in others)

    def drift(self, sandbox: Sandbox) -> tuple[str, ...]:
        """The drift of a sandbox's network as texts; none of a sandbox that ends just now.

        Raises:
            TemporaryError: the sandbox is just being attached or detached by another process, or was detached by it.
        """
        report = checks.check(sandbox.id, self.settings)
        if not self.has_checkpoint(sandbox.id):
            raise TemporaryError(
                f"sandbox {sandbox.id}: another process has detached it; it is compared again", code="ND2233"
            )
        drift = (*report.problems, *(f"{step}: {step.drift[0]}" for step in report.steps if step.drift))
        return drift if drift and self.alive((sandbox,))[0] else ()

    def undo(
        self, sandbox: str, deadline: float, netns: str = "", *, give_up: bool = False, stop: int = -1
    ) -> DetachOutcome:
        """Take a sandbox down: no further container, then its network. Tries everything, and returns what is left.

        Args:
            sandbox: its id.
            deadline: when it must be done, on the monotonic clock.
            netns: where its namespace is now.
            give_up: try for the last time (decision D13), but for a device that is not what it was (decision D27).
            stop: a descriptor that becomes readable when plugins are to be ended at once, or -1.
        """
        began = time.perf_counter()
        trouble: list[str] = []
        undone = DetachOutcome(trouble="netdra has a defect")
        claims = self.table.claims(sandbox)
        try:
            try:
                self.table.begin_detach(sandbox)
            except NetdraError as problem:
                trouble.append(problem.what)
            faults.point("detach-begun")
            settings = msgspec.structs.replace(self._within(deadline), stop=stop)
            undone = self._detach(sandbox, settings, netns, give_up=give_up, trouble=trouble, claims=claims)
            faults.point("detach-done")
        finally:
            self.table.complete_detach(sandbox, undone)
        metrics.DETACH_SECONDS.labels("temporary" if undone.trouble else "ok").observe(time.perf_counter() - began)
        return undone

    def _detach(
        self,
        sandbox: str,
        settings: ChainSettings,
        netns: str,
        *,
        give_up: bool,
        trouble: list[str],
        claims: tuple[ClaimReference, ...],
    ) -> DetachOutcome:
        """Undo the chain.

        Args:
            sandbox: its id.
            settings: with the time that it may take.
            netns: where its namespace is now.
            give_up: try for the last time.
            trouble: the problems before.
            claims: its claims, as far as they are known; else the checkpoint is read.
        """
        try:
            claims = claims or self._recorded_claims(sandbox)
            path = self.table.namespaces.path(sandbox)
            report = detach(sandbox, settings, netns, held_netns=path, give_up=give_up, keep_stranded=True)
            is_given_up = give_up and not report.is_undone and not self.has_checkpoint(sandbox)
        except NetdraError as problem:
            return DetachOutcome(
                claims=claims,
                trouble="\n".join((*trouble, problem.what)),
                releases_namespace=self.table.namespaces.count_failure(sandbox),
            )
        metrics.count_detach(report)
        left = (f"{step}: {step.message or 'no time left'}" for step in report.undone if step.outcome != "undone")
        text = "\n".join((*trouble, *report.problems, *left))
        return DetachOutcome(
            claims=claims,
            trouble=text,
            notes=report.notes,
            restored=report.restored,
            is_hopeless=report.namespace_gone or report.is_refused,
            is_given_up=is_given_up and bool(text),
            releases_namespace=_releases_namespace(report, give_up=give_up),
            hung=tuple(step.hung for step in report.undone if step.hung),
        )

    def plans(self, sandbox: str) -> tuple[Plan, ...]:
        """The plans in a sandbox's checkpoint; none without one.

        Raises:
            TemporaryError: the disk cannot be read.
        """
        saved = checks.load(self.settings.state, sandbox)
        return saved.header.plans if saved is not None else ()

    def _recorded_claims(self, sandbox: str) -> tuple[ClaimReference, ...]:
        return tuple(dict.fromkeys(plan.claim for plan in self.plans(sandbox)))

    def left(self) -> dict[str, Sandbox]:
        """The sandboxes that have a checkpoint, by id; of one that makes no sense the id alone.

        Raises:
            TemporaryError: the disk cannot be read.
        """
        ids = checkpoint.sandboxes(self.settings.state)
        left = {key: Sandbox(id=key, name="", namespace="", uid="") for key in ids}
        return left | {saved.header.pod.sandbox: sandbox_of(saved) for saved in self.checkpoints()}

    def checkpoints(self) -> list[Saved]:
        """All valid checkpoints; others are renamed at the next action on their sandbox.

        Raises:
            TemporaryError: the disk cannot be read.
        """
        return checkpoint.load_all(self.settings.state)[0]

    def place(self, saved: Saved) -> str:
        """The path of the namespace of a checkpoint's pod now; "" if it is gone, by itself or with the boot.

        Raises:
            UnknownNamespaceError: whether it is there cannot be read.
        """
        known = self.table.namespaces.others_path(saved.header.pod.sandbox)
        with reopen_pod(saved.header.namespace, known, same_boot=saved.header.boot_id == boot_id()) as space:
            return space.path if space is not None else ""

    def collect(self, plans: Sequence[Plan]) -> CollectReport:
        """Have plugins free leases that belong to no sandbox of this node any more; see `netdra.chain.collect`.

        Args:
            plans: of networks that may have no sandbox any more.

        Raises:
            TemporaryError: sandboxes are just beginning.
        """
        return collect(msgspec.structs.replace(self.settings, budget=COLLECT_SECONDS), plans)

    def _run(self, checked: CheckedPlans, sandbox: Sandbox, deadline: float) -> tuple[DeviceOutcome, ...]:
        """Run the chains, and count their steps."""
        try:
            self.table.hold(sandbox)
            pod = PodIdentity(sandbox=sandbox.id, name=sandbox.name, namespace=sandbox.namespace, uid=sandbox.uid)
            settings = msgspec.structs.replace(self._within(deadline), undo_of_hung=0.0)
            report = attach(checked, pod, sandbox.netns, settings, announces=False)
            metrics.count_attach(report)
            return device_outcomes(checked.plans, report.steps)
        except AttachError as problem:
            metrics.count_attach(problem.report)
            raise

    def _within(self, deadline: float) -> ChainSettings:
        left = max(0.0, deadline - time.monotonic() - _AFTERWARDS)
        return msgspec.structs.replace(self.settings, budget=left)


def sandbox_of(saved: Saved) -> Sandbox:
    """The sandbox of a checkpoint, as far as the checkpoint has it."""
    pod = saved.header.pod
    return Sandbox(
        id=pod.sandbox, name=pod.name, namespace=pod.namespace, uid=pod.uid, netns=saved.header.namespace.path
    )


def _devices_of(saved: Saved) -> Iterator[tuple[PlannedDevice, ClaimReference]]:
    """The devices of a checkpoint's plans, each with its claim."""
    for plan in saved.header.plans:
        for step in plan.steps:
            if step.device is not None:
                yield step.device, plan.claim


class _Had:
    """The devices that checkpoints have and records have not, kept up with the files of both: for one thread at a time.

    They are compared for each claim that is prepared; most often, all have a record.
    """

    def __init__(self) -> None:
        self._of_file: dict[str, frozenset[HeldKey]] = {}
        self._files: Counter[HeldKey] = Counter()
        self._unrecorded: set[HeldKey] = set()
        self._mark = self._recorded = 0

    def unrecorded(self, folder: Path, recorded: Recorded) -> AbstractSet[HeldKey]:
        """The devices that checkpoints have and no record has.

        Raises:
            TemporaryError: the disk cannot be read.
        """
        mark, is_whole, checkpoints = checkpoint.changed(folder, self._mark)
        if is_whole:
            self._of_file.clear()
            self._files.clear()
        self._recorded, others = recorded.changed(self._recorded)
        changed = {device for name, saved in checkpoints.items() for device in self._note(name, saved)}
        if is_whole or others is None:
            self._unrecorded = {device for device in self._files if device not in recorded.held}
        else:
            for device in changed | others:
                if device in self._files and device not in recorded.held:
                    self._unrecorded.add(device)
                else:
                    self._unrecorded.discard(device)
        self._mark = mark
        return self._unrecorded

    def _note(self, name: str, saved: Saved | None) -> frozenset[HeldKey]:
        """Note a file as it is now; returns the devices that it had or has."""
        former = self._of_file.pop(name, frozenset())
        devices = _keys_of(saved) if saved is not None else frozenset()
        if devices:
            self._of_file[name] = devices
        self._files.update(devices)
        self._files.subtract(former)
        for device in former:
            if not self._files[device]:
                del self._files[device]
        return former | devices


def _keys_of(saved: Saved) -> frozenset[HeldKey]:
    return frozenset(((device.pool, device.device), claim.uid, vf_of(device)) for device, claim in _devices_of(saved))


def _unprepared(device: PlannedDevice, claim: ClaimReference) -> HeldDevice:
    """A device that only a sandbox has."""
    key = device.pool, device.device
    return HeldDevice(key=key, claim=claim.uid, is_prepared=False, facts=device, reference=claim)


def _with_trouble(device: HeldDevice, trouble: str) -> HeldDevice:
    """A device with a trouble, unless it has another one already."""
    return msgspec.structs.replace(device, trouble=trouble) if trouble and not device.trouble else device


def _releases_namespace(report: DetachReport, *, give_up: bool) -> bool:
    """Whether a namespace is held no longer: no device is left in it, or only this process has it and all was tried.

    Devices that could not be taken out end as with every namespace: the kernel gives back physical ones. It is not held
    longer, or a pod that has ended would continue answering on the network.
    """
    return report.is_undone or (report.namespace_gone and (report.is_tried or give_up))


def _host_network(sandbox: Sandbox, claims: Sequence[ClaimDevices]) -> InvalidInputError:
    named = ", ".join(f'"{entry.claim.name}"' for entry in claims)
    return InvalidInputError(
        f'pod "{sandbox.namespace}/{sandbox.name}" is on the host\'s network, and its claims {named} have network '
        "devices",
        hint="remove hostNetwork or the claims: a pod on the host's network sees the host's interfaces as they are",
        code="ND2234",
    )


def _check_in_time(sandbox: Sandbox, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TemporaryError(
            f"sandbox {sandbox.id}: its network was complete only after the runtime timed out", code="ND2235"
        )
