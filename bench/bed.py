"""The control planes and clouds of the benchmarks: one for each, or, in a quick run, one for all.

Called by the benchmarks, and by `python -m bench`, which begins a quick run. A figure requires a control plane that has
done nothing before; a quick run only shows that a benchmark works, and uses one that is cleared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path

from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.openstack.cloud import Cloud

CLOUD = "NETDRA_BENCH_CLOUD"
"""The variable with the folder in which tests share a cloud with a quick run (`Cloud.share`)."""


# Control planes without a controller manager have no service accounts, and need no such account for a pod.
_ARGUMENTS = {"kube-apiserver": ("--disable-admission-plugins=ServiceAccount",)}


class _Shared:
    """The control plane of a quick run, which starts when a benchmark needs it first."""

    def __init__(self, undo: ExitStack) -> None:
        self._undo = undo
        self._plane: ControlPlane | None = None

    def plane(self) -> ControlPlane:
        """With all components, also for a benchmark that needs fewer: without objects they do nothing."""
        if self._plane is None:
            self._plane = self._undo.enter_context(ControlPlane(Settings(arguments=_ARGUMENTS)))
        return self._plane


_shared: ContextVar[_Shared | None] = ContextVar("shared", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """Have all benchmarks use the same control plane, one after the other, until the end of the block."""
    with ExitStack() as undo:
        token = _shared.set(_Shared(undo))
        try:
            yield
        finally:
            _shared.reset(token)


@contextmanager
def control_plane(settings: Settings | None = None) -> Iterator[ControlPlane]:
    """A control plane without objects: a new one, or the shared one, which is cleared afterwards."""
    shared = _shared.get()
    if shared is None:
        with ControlPlane(settings) as plane:
            yield plane
        return
    plane = shared.plane()
    try:
        yield plane
    finally:
        plane.clear()


@contextmanager
def cloud(*, page: int) -> Iterator[Cloud]:
    """A cloud without networks: a new one that lists so many objects at once, or the one that is shared."""
    folder = os.environ.get(CLOUD)
    if folder is not None and _shared.get() is not None:
        yield Cloud.joined(Path(folder))
        return
    with Cloud(page=page) as running:
        yield running
