"""A sandbox's network and its claims' CDI specifications: both there, or neither. Blocking; called in worker threads.

Called by `netdra.node.pods.attachments`, which holds the sandbox's lock, and by `reconcile` and `orphans`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from netdra.chain import check as checks
from netdra.chain import checkpoint
from netdra.chain.attach import attach
from netdra.chain.checkpoint import Pod, Saved
from netdra.chain.collect import collect
from netdra.chain.detach import detach
from netdra.chain.outcome import DeviceOutcome, device_outcomes, recorded_outcomes
from netdra.chain.report import AttachError, CollectReport, DetachReport
from netdra.chain.site import Settings
from netdra.kernel import netns
from netdra.model.claim import ResourceClaim
from netdra.model.errors import InvalidInputError, NetdraError, TemporaryError
from netdra.model.plan import ClaimReference, Plan
from netdra.model.schema import CNIPluginSchema
from netdra.node import faults, metrics
from netdra.node.nri.hooks import Sandbox
from netdra.node.pods.guard import Guard
from netdra.node.pods.namespaces import Namespaces
from netdra.node.pods.status import Outcome, attached
from netdra.ops.metrics import measured

COLLECT_SECONDS = 2.0  # no sandbox begins for half of it, which is less than a hook has
_AFTERWARDS = 0.05  # seconds of a budget that are kept for what follows the chain


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """What became of taking a sandbox down.

    Attributes:
        claims: the claims whose network was run in it, as far as its checkpoint says.
        trouble: what could not be undone yet, "" if all is.
        notes: what was undone and could not be given back as it was.
        restored: what of devices plugins had left otherwise than it was, and netdra restored.
        hopeless: all that is left is refused by its plugin as it was when it was to be done: nothing will mend it.
        namespace_gone: its namespace is gone for all but us, so nothing that fails now can be mended in it.
        given_up: what could not be undone is in a file that was put aside, and is tried no more.
        tries: how often it was tried so far since the namespace was gone, or without hope; counted by `attachments`.
        hung: the plugins that did not answer in time.
    """

    claims: tuple[ClaimReference, ...] = ()
    trouble: str = ""
    notes: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    hopeless: bool = False
    namespace_gone: bool = False
    given_up: bool = False
    tries: int = 0
    hung: tuple[str, ...] = ()


class Network:
    """Attaches and takes down the sandboxes of this node."""

    def __init__(self, settings: Settings, guard: Guard) -> None:
        self.settings, self.guard = settings, guard
        self.namespaces = Namespaces()

    def has_checkpoint(self, sandbox: str) -> bool:
        """Whether anything was ever begun for a sandbox, and not undone. Takes microseconds.

        Raises:
            InvalidInputError: the id cannot be a sandbox's.
        """
        return checkpoint.path_of(self.settings.state, sandbox).exists()

    def alive(self, sandboxes: Sequence[Sandbox]) -> tuple[Sandbox, ...]:
        """Those that have a network namespace of their own now; of those of one pod, the newest.

        A runtime may list a sandbox that has stopped by the path that its namespace had, and one on the host's network
        by a path of the host's (CRI-O does both): the kernel is asked what is there. A pod has one sandbox at a time.
        """
        host = netns.inode_at()
        newest: dict[tuple[str, str, str], tuple[int, Sandbox]] = {}
        for sandbox in sandboxes:
            found = netns.status_at(sandbox.netns) if sandbox.netns else None
            if found is None or found.st_ino == host:
                continue
            pod = (sandbox.namespace, sandbox.name, sandbox.uid)
            if pod not in newest or newest[pod][0] <= found.st_mtime_ns:
                newest[pod] = (found.st_mtime_ns, sandbox)
        return tuple(sandbox for _, sandbox in newest.values())

    def is_on_hosts(self, sandbox: Sandbox) -> bool:
        """Whether a sandbox is on the host's network: some runtimes tell of no namespace then, others of the host's."""
        return not sandbox.netns or netns.inode_at(sandbox.netns) == netns.inode_at()

    def hold(self, saved: Saved) -> None:
        """Hold the namespace of a sandbox that a former process has left, if it is there."""
        namespace = saved.header.namespace
        if checks.is_there(namespace):
            self.namespaces.hold(saved.header.pod.sandbox, namespace.path)

    def standing(self, sandbox: Sandbox) -> Saved | None:
        """The checkpoint of a sandbox whose network is complete in its namespace, else None."""
        return checks.standing(self.settings.state, sandbox.id, sandbox.netns)

    def attach(
        self,
        sandbox: Sandbox,
        claims: Sequence[ResourceClaim],
        plans: Sequence[Plan],
        deadline: float,
        schemas: Sequence[CNIPluginSchema] = (),
    ) -> tuple[Outcome, ...]:
        """Attach a sandbox and let its containers be created; on any error it is as if nothing had been done.

        Args:
            sandbox: the pod's.
            claims: all of its claims that have devices of ours.
            plans: what they come to; none if no topology speaks of their devices.
            deadline: when all must be done, undoing included, on the monotonic clock.
            schemas: the cluster's plugin schemas.

        Raises:
            InvalidInputError: it is on the host's network.
            NetdraError: it is not attached.
        """
        if self.is_on_hosts(sandbox):
            raise _host_network(sandbox, claims)
        with measured(metrics.ATTACH_SECONDS):
            try:
                self.guard.begin(sandbox.id, [claim.reference for claim in claims])
                faults.point("attach-begun")
                done = self._run(plans, sandbox, deadline, schemas) if plans else ()
                faults.point("attach-done")
                _check_in_time(sandbox, deadline)
                outcomes = attached(sandbox, claims, done)
                self.guard.attached(outcomes)
            except BaseException:
                self.undo(sandbox.id, max(deadline, time.monotonic() + _AFTERWARDS))
                raise
        faults.point("attach-guarded")
        return outcomes

    def confirm(self, sandbox: Sandbox, claims: Sequence[ResourceClaim], saved: Saved) -> tuple[Outcome, ...]:
        """Let the containers of a sandbox whose network stands be created, and say what it has.

        Raises:
            NetdraError: a CDI specification cannot be written.
        """
        self.namespaces.hold(sandbox.id, sandbox.netns)
        outcomes = attached(sandbox, claims, recorded_outcomes(saved))
        self.guard.attached(outcomes)
        return outcomes

    def drift(self, sandbox: Sandbox) -> tuple[str, ...]:
        """In words, what of a sandbox's network is no longer as it was made; nothing of one that ends just now.

        Raises:
            TemporaryError: the sandbox is just being attached or detached by another process.
        """
        report = checks.check(sandbox.id, self.settings)
        found = (*report.problems, *(f"{each}: {each.drift[0]}" for each in report.steps if each.drift))
        return found if self.alive((sandbox,)) else ()

    def undo(self, sandbox: str, deadline: float, netns: str = "", *, give_up: bool = False) -> Undone:
        """Take a sandbox down: no container more, then its network. Tries everything, and says what is left.

        Args:
            sandbox: its id.
            deadline: when it must be done, on the monotonic clock.
            netns: where its namespace is now.
            give_up: try for the last time (decision D13), but for a device that is not what it was (decision D27).
        """
        began = time.perf_counter()
        trouble: list[str] = []
        claims: tuple[ClaimReference, ...] = ()
        report = DetachReport(sandbox=sandbox, found=True)
        try:
            self.guard.gone(sandbox)
        except NetdraError as problem:
            trouble.append(problem.what)
        faults.point("detach-begun")
        try:
            saved = checks.load(self.settings.state, sandbox)
            claims = tuple(dict.fromkeys(plan.claim for plan in saved.header.plans)) if saved is not None else ()
            held = self.namespaces.path(sandbox)
            within = self._within(deadline)
            report = detach(sandbox, within, netns, held=held, give_up=give_up, keep_stranded=True)
            metrics.detached(report)
            self._let_go(report, give_up=give_up)
            trouble += report.problems
            trouble += [
                f"{each}: {each.message or 'no time left'}" for each in report.undone if each.outcome != "undone"
            ]
        except NetdraError as problem:
            trouble.append(problem.what)
        faults.point("detach-done")
        metrics.DETACH_SECONDS.labels("temporary" if trouble else "ok").observe(time.perf_counter() - began)
        return Undone(
            claims=claims,
            trouble="\n".join(trouble),
            notes=report.notes,
            restored=report.restored,
            hopeless=report.is_refused,
            namespace_gone=report.namespace_gone,
            given_up=give_up and bool(trouble) and not self.has_checkpoint(sandbox),
            hung=tuple(each.hung for each in report.undone if each.hung),
        )

    def known(self) -> tuple[str, ...]:
        """The sandboxes that anything is kept of."""
        return (*checkpoint.sandboxes(self.settings.state), *self.guard.sandboxes(), *self.namespaces.sandboxes())

    def checkpoints(self) -> list[Saved]:
        """All checkpoints that can be read; what cannot is put aside when its sandbox is next spoken of."""
        return checkpoint.load_all(self.settings.state)[0]

    def is_of_a_lost_namespace(self, saved: Saved) -> bool:
        """Whether the pod of a checkpoint cannot be running: its namespace is gone, by itself or with the boot."""
        header = saved.header
        if header.boot_id != checkpoint.boot_id():
            return True
        return not checks.is_there(header.namespace)

    def collect(self, plans: Sequence[Plan]) -> CollectReport:
        """Have plugins free what belongs to no sandbox of this node any more; see `netdra.chain.collect`.

        Args:
            plans: of networks that may have no sandbox any more.

        Raises:
            TemporaryError: sandboxes are just beginning.
        """
        return collect(msgspec.structs.replace(self.settings, budget=COLLECT_SECONDS), plans)

    def _run(
        self, plans: Sequence[Plan], sandbox: Sandbox, deadline: float, schemas: Sequence[CNIPluginSchema]
    ) -> tuple[DeviceOutcome, ...]:
        """Run the chains, and count their steps."""
        try:
            self.namespaces.hold(sandbox.id, sandbox.netns)
            report = attach(plans, _pod(sandbox), sandbox.netns, self._within(deadline), schemas)
            metrics.attached(report)
            return device_outcomes(plans, report.steps)
        except AttachError as problem:
            metrics.attached(problem.report)
            raise

    def _let_go(self, report: DetachReport, *, give_up: bool) -> None:
        """Hold a namespace no longer once nothing is left in it, or once only we have it and all was tried.

        What could not be taken out of it then goes the way of every namespace: the kernel gives back what is physical.
        Longer it is not held, or a pod that has ended would go on answering on the network.
        """
        if report.is_undone or (report.namespace_gone and (report.is_tried or give_up)):
            self.namespaces.release(report.sandbox)

    def _within(self, deadline: float) -> Settings:
        left = max(0.0, deadline - time.monotonic() - _AFTERWARDS)
        return msgspec.structs.replace(self.settings, budget=left)


def sandbox_of(saved: Saved) -> Sandbox:
    """The sandbox of a checkpoint, as far as that knows it."""
    pod = saved.header.pod
    return Sandbox(
        id=pod.sandbox, name=pod.name, namespace=pod.namespace, uid=pod.uid, netns=saved.header.namespace.path
    )


def _pod(sandbox: Sandbox) -> Pod:
    return Pod(sandbox=sandbox.id, name=sandbox.name, namespace=sandbox.namespace, uid=sandbox.uid)


def _host_network(sandbox: Sandbox, claims: Sequence[ResourceClaim]) -> InvalidInputError:
    named = ", ".join(f'"{claim.metadata.name}"' for claim in claims)
    return InvalidInputError(
        f'pod "{sandbox.namespace}/{sandbox.name}" is on the host\'s network, and its claims {named} have network '
        "devices",
        hint="remove hostNetwork or the claims: a pod on the host's network sees the host's interfaces as they are",
    )


def _check_in_time(sandbox: Sandbox, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TemporaryError(
            f"sandbox {sandbox.id}: its network was complete only after the runtime had given up waiting"
        )
