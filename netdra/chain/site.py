"""Open the site of a chain: the host's namespace, the pod's, and the arguments that plugins get about the pod.

Used by `attach`, `detach` and `check`. The host's namespace is the calling thread's, so a lab whose node is a namespace
calls from a thread inside it; plugin processes inherit it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import msgspec

from netdra.chain import holders
from netdra.chain.checkpoint import NamespaceId, PodIdentity
from netdra.cni.plugins import PluginPath
from netdra.kernel import netns, reachable
from netdra.kernel.device_files import DeviceFiles
from netdra.kernel.errors import KernelError, KernelMissingError
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.steps.contract import PodSpace, Site

DEFAULT_STATE = Path("/var/lib/netdra/sandboxes")


class ChainSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How chains are run on a node.

    Attributes:
        state: where the checkpoints are.
        plugins: where plugin binaries are.
        budget: seconds that attaching may take, with undoing it if it fails.
        setup_share: how much of the budget setting up may take; the rest is for undoing.
        undo_of_hung: seconds that undoing may take after a plugin did not answer, within the budget; the rest is left
            to `detach`. None: as long as the budget lasts.
        step_timeout: seconds that one step may take, within the budget.
        device_files: which device files pods may be given, as patterns.
        hold_unknown: whether a device is held if it comes back with a difference that netdra does not know.
        stop: a descriptor that becomes readable when the plugins are to be ended at once, or -1.
    """

    state: Path = DEFAULT_STATE
    plugins: PluginPath = PluginPath()
    budget: float = 1.5
    setup_share: float = 0.6
    undo_of_hung: float | None = None
    step_timeout: float = 60.0
    device_files: tuple[str, ...] = ()
    hold_unknown: bool = False
    stop: int = -1


@contextmanager
def open_pod(path: str) -> Iterator[PodSpace]:
    """A pod's namespace, open until the context ends.

    Raises:
        KernelMissingError: the path does not exist.
        InvalidInputError: the file is not a network namespace.
        PermanentError: this process may not enter it.
        KernelError: it cannot be opened or entered.
    """
    with Namespace.open(path) as namespace:
        try:
            sock = namespace.visit(Socket)
        except KernelError as problem:
            if problem.errno == errno.EINVAL:  # setns(2): the file is of no namespace of that kind
                raise InvalidInputError(f'"{path}" is not a network namespace', code="ND2137") from None
            if problem.errno == errno.EPERM:
                raise PermanentError(
                    f'cannot enter network namespace "{path}": {os.strerror(errno.EPERM)} (EPERM)',
                    hint="run as root, or with CAP_SYS_ADMIN here and in the namespace's user namespace",
                    code="ND2138",
                ) from None
            raise
        with sock:
            yield PodSpace(namespace=namespace, sock=sock, path=path, cookie=netns.cookie(sock))


class UnknownNamespaceError(TemporaryError):
    """Whether a checkpoint's namespace is there cannot be read: nothing in it may be undone (decision D59)."""


@contextmanager
def reopen_pod(wanted: NamespaceId, *others: str, same_boot: bool) -> Iterator[PodSpace | None]:
    """The namespace of a checkpoint, or None where it is gone: no path leads to it, and no process is in it.

    A path alone proves nothing: a program may have removed the name of a running pod's namespace, or reused it.

    Args:
        wanted: the namespace as the checkpoint has it.
        others: further paths that it may have, each a path or "". It is opened by the first path that leads to it.
        same_boot: whether the checkpoint is of this boot; namespaces do not outlive one.

    Raises:
        UnknownNamespaceError: what is at one of the paths, or which namespaces processes are in, cannot be read.
    """
    with ExitStack() as closing:
        try:
            space = _reopened(wanted, others, closing) if same_boot else None
        except NetdraError as problem:
            raise UnknownNamespaceError(problem.what, hint=problem.hint, code=problem.code) from None
        yield space


@contextmanager
def opened(
    pod: PodIdentity,
    space: PodSpace | None,
    settings: ChainSettings,
    seconds: float,
    *,
    plugins: PluginPath | None = None,
) -> Iterator[Site]:
    """The site of one attach, detach or check, with that many seconds until its deadline."""
    with Socket() as host, Namespace.current() as host_namespace:
        yield Site(
            host=host,
            host_namespace=host_namespace,
            pod=space,
            container_id=pod.sandbox,
            arguments=arguments(pod),
            plugins=plugins or settings.plugins,
            sysfs=Sysfs(),
            deadline=time.monotonic() + seconds,
            lock=-1,
            holder=_other_holder(settings.state, pod.sandbox),
            port_holder=partial(holders.port_holder, settings.state),
            vfs_before=partial(holders.vfs_before, settings.state),
            device_files=DeviceFiles(settings.device_files),
            hold_unknown=settings.hold_unknown,
        )


def arguments(pod: PodIdentity) -> dict[str, str]:
    """CNI_ARGS as Kubernetes' runtimes pass them."""
    values = {
        "K8S_POD_NAMESPACE": pod.namespace,
        "K8S_POD_NAME": pod.name,
        "K8S_POD_INFRA_CONTAINER_ID": pod.sandbox,
        "K8S_POD_UID": pod.uid,
    }
    return {"IgnoreUnknown": "1", **{key: value for key, value in values.items() if value}}


def _reopened(wanted: NamespaceId, others: Iterable[str], closing: ExitStack) -> PodSpace | None:
    for path in _paths(wanted, others):
        with ExitStack() as opening:
            space = _opened_if_there(path, opening)
            if space is not None and space.cookie == wanted.cookie:
                closing.push(opening.pop_all())
                return space
    return None


def _paths(wanted: NamespaceId, others: Iterable[str]) -> Iterator[str]:
    """Where a namespace may be: its known paths, then those of all processes, which are searched only if needed."""
    yield from dict.fromkeys((wanted.path, *others))
    own = netns.inode_at()
    yield from (path for inode, path in reachable.inhabited().items() if inode != own)


def _opened_if_there(path: str, closing: ExitStack) -> PodSpace | None:
    """The namespace at a path; None where none exists, or a file that is of no namespace (any more)."""
    if not path:
        return None
    try:
        return closing.enter_context(open_pod(path))
    except (KernelMissingError, InvalidInputError):
        return None


def _other_holder(state: Path, sandbox: str) -> Callable[[str], str]:
    def holder(device: str) -> str:
        other = holders.holder(state, device)
        return "" if other == sandbox else other

    return holder
