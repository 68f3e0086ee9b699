"""The node daemon's process: its parts, started in the order in which a node needs them, and stopped together.

Called by `netdra node`, which gives it an API client. The order of the start is decided here, that of the imports with
it:

- Where no former daemon has left state, no device can be held: the node is published first, and only then the parts
  that keep pods are imported and begin. Imported before, they would be a third of the time until the first slice.
- Where a former daemon has left state, pods come first: the slices are there already, the devices that pods hold must
  be known before the slices are touched, and the pods wait for the process that serves the kubelet and the runtime.

Each part continues while the others cannot: a part asks another by `netdra.node.view`. The ResourceSlices stay when the
daemon ends: the next daemon finds them, and the kubelet removes those of a driver that does not come back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from netdra.cni.plugins import root_trouble
from netdra.discovery.watch import Watcher
from netdra.kernel import mounts
from netdra.kernel.sysfs import Sysfs
from netdra.kube.client import Client
from netdra.kube.health import reachable, synced
from netdra.model import decoders
from netdra.model.errors import NetdraError, PermanentError
from netdra.model.extras import how_to_install
from netdra.model.inventory import InventoryNode
from netdra.node.hardware import FILE as HARDWARE_FILE
from netdra.node.hardware import HardwareTable
from netdra.node.permits import permits_of
from netdra.node.publishing.service import Publishing
from netdra.node.registry.table import FILE, RegistrationTable
from netdra.node.settings import NodeSettings
from netdra.node.signals import Signals
from netdra.ops import descriptors
from netdra.ops.health import CheckResult, met
from netdra.ops.process import Process, spare_what_is_loaded

if TYPE_CHECKING:
    from netdra.node.parts import Parts

log = logging.getLogger(__name__)

FIRST_SECONDS = 2.0
"""How long the parts that keep pods wait for the first slices."""


async def run(client: Client, process: Process, settings: NodeSettings) -> None:
    """Be the driver of a node until cancelled.

    Raises:
        NetdraError: a part cannot continue.
    """
    descriptors.raise_limit()
    _look_around(settings)
    sysfs = Sysfs(settings.sysfs_root)
    signals = Signals()
    registrations = _registrations(settings, signals)
    publishing = Publishing(
        client,
        settings.node,
        lambda: Watcher(InventoryNode(name=settings.node, physnets=settings.physnets), sysfs=sysfs),
        plugins=settings.plugins,
        allowed=lambda plugin: permits.may_run(plugin),
        leased=lambda: registrations.registrations if registrations is not None else (),
        files=settings.device_files,
        hardware=HardwareTable(settings.state_dir / HARDWARE_FILE, lambda: client.now().timestamp()),
    )
    permits = permits_of(settings, lambda: publishing.schemas, lambda: publishing.named_plugins)
    signals.held_changed.subscribe(publishing.note_held)
    signals.registrations_changed.subscribe(publishing.look_again)
    _add_checks(process, client, publishing)
    try:
        async with asyncio.TaskGroup() as tasks:

            def begin(name: str, part: Coroutine[Any, Any, None]) -> None:
                process.health.task(name, tasks.create_task(part, name=name))

            used = settings.is_used()
            if not used:
                begin("publishing", publishing.run())
                await _first_slices(publishing)
            parts = _parts(client, settings, publishing, signals, registrations)
            publishing.know_holder(parts.pods.network)
            await parts.pods.recover()
            if used:
                begin("publishing", publishing.run())
            for name, part in parts.work():
                begin(name, part)
            parts.add_checks(process.health)
    except BaseExceptionGroup as problems:  # an exception raised in an `except*` is wrapped again before Python 3.11.4
        known, others = problems.split(NetdraError)
        if known is None or others is not None:
            raise
        raise _first(known) from None


def _look_around(settings: NodeSettings) -> None:
    """Log the troubles of the host that would otherwise appear only when a plugin or a step of a pod fails."""
    mounts.make_sysctls_writable()
    for trouble in (root_trouble(str(settings.cni_root)), mounts.sysctl_trouble()):
        if trouble is not None:
            log.error("%s", trouble)


async def _first_slices(publishing: Publishing) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_SECONDS):
            await publishing.published.wait()


def _registrations(settings: NodeSettings, signals: Signals) -> RegistrationTable | None:
    """The registrations of programs on the node, read from their file before anything is published."""
    if settings.registry_socket is None:
        return None
    return RegistrationTable(
        settings.state_dir / FILE, pinned=settings.registry_providers, changed=signals.registrations_changed.emit
    )


def _parts(
    client: Client,
    settings: NodeSettings,
    publishing: Publishing,
    signals: Signals,
    registrations: RegistrationTable | None,
) -> Parts:
    """The parts that keep pods, imported now.

    On the event loop, which stands still meanwhile: msgspec crashes where two threads make decoders at one time.

    Raises:
        PermanentError: they cannot be imported.
    """
    try:
        from netdra.node.parts import Parts
    except ImportError as problem:
        raise PermanentError(
            f"the parts of the node daemon that keep pods cannot be imported: {problem}",
            hint=f"install the packages of the daemons {how_to_install('cluster')}",
            code="ND2180",
        ) from problem
    decoders.build()
    spare_what_is_loaded()
    return Parts.assemble(client, settings, publishing, signals, registrations)


def _add_checks(process: Process, client: Client, publishing: Publishing) -> None:
    """Ready only when all parts are ready; the parts that keep pods replace their checks when they begin."""
    ready = process.health.ready
    ready("api-server", reachable(client))
    ready("caches", synced(client))
    ready("slices", met(publishing.published.is_set, "not yet published", "published"))
    ready("descriptors", _descriptors)
    for part in ("kubelet", "runtime"):
        ready(part, met(lambda: False, "not begun yet"))


def _descriptors() -> CheckResult:
    """Being not ready would not help: no request is sent elsewhere, and an update with the remedy would wait for it."""
    seen = descriptors.read()
    return CheckResult(ok=True, detail="cannot be read" if seen is None else str(seen))


def _first(problems: BaseExceptionGroup[NetdraError]) -> NetdraError:
    """One part's failure ends all parts; the first one is the reason."""
    problem = problems.exceptions[0]
    return _first(problem) if isinstance(problem, BaseExceptionGroup) else problem
