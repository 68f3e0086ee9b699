"""The kubelet plugin: its sockets, taken over from daemons that are no more, and its services, served on them.

Run by the node daemon. With an instance in their names, the sockets of an old and a new daemon are there side by side,
and the kubelet goes over to the new daemon (Kubernetes 1.33). Without an instance, there must be one daemon at a time.
Stopping takes the registration away first, so that the kubelet brings no new claims, and then lets the calls end that
have begun.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import msgspec

from netdra.grpc.calls import Methods
from netdra.grpc.server import Server
from netdra.kube.backoff import Backoff
from netdra.model import names
from netdra.model.errors import InvalidInputError, PermanentError, TemporaryError
from netdra.node.kubelet import presence
from netdra.node.kubelet.services import (
    HEALTH_VERSIONS,
    ClaimServices,
    HealthService,
    HealthSource,
    KubeletRegistration,
)
from netdra.ops import files

log = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
"""The time that calls have to end when the plugin stops."""
KUBELET_ROOT = Path("/var/lib/kubelet")
MAX_PATH = 107  # struct sockaddr_un: 108 bytes with the null byte at the end
_LOCK = ".lock"
_LOCK_SECONDS = 5.0


class Sockets(msgspec.Struct, frozen=True):
    """The sockets of one daemon. All paths are the same for the kubelet, outside of netdra's container.

    Attributes:
        plugin: the plugin's own folder.
        dra: the socket of the DRA service.
        registration: the socket by which the kubelet finds the plugin.
    """

    plugin: Path
    dra: Path
    registration: Path


def sockets(root: Path = KUBELET_ROOT, instance: str = "") -> Sockets:
    """The sockets below a kubelet's root folder.

    Args:
        root: the kubelet's `--root-dir`.
        instance: the mark by which this daemon differs from others on the node: its pod's uid; "" for the only daemon.

    Raises:
        InvalidInputError: the instance cannot be part of a file's name, or the root's path is too long for sockets.
    """
    if instance and not names.is_label(instance):
        raise InvalidInputError(
            f"instance {instance[:80]!r} cannot be part of a socket's name",
            hint="give the uid of the daemon's pod",
            code="ND2190",
        )
    plugin = root / "plugins" / names.DRIVER
    part = f"-{instance}" if instance else ""
    return Sockets(
        plugin=plugin,
        dra=_fitting(plugin, f"dra{part}", ".sock"),
        registration=_fitting(root / "plugins_registry", f"{names.DRIVER}{part}", "-reg.sock"),
    )


@contextmanager
def taking(wanted: Sockets) -> Iterator[None]:
    """Make the folders, remove dead daemons' sockets, and keep others from doing so until the sockets are there.

    Raises:
        PermanentError: a folder is missing or cannot be written.
        TemporaryError: another daemon is starting, or has these sockets, or the kubelet has not made its folder yet.
    """
    registry = wanted.registration.parent
    try:
        wanted.plugin.mkdir(parents=True, exist_ok=True, mode=0o750)
        lock = os.open(wanted.plugin / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, files.MODE)
    except OSError as problem:
        raise PermanentError(
            f"{wanted.plugin} cannot be used: {problem.strerror}",
            hint="mount the kubelet's folder, writable; see whether its file system is full or read-only",
            code="ND2191",
        ) from None
    try:
        if not registry.is_dir():
            raise TemporaryError(
                f"{registry} is not there", hint="is the kubelet running, and is this its folder?", code="ND2192"
            )
        if not files.lock(lock, time.monotonic() + _LOCK_SECONDS):
            raise TemporaryError(
                f"another daemon has been starting in {wanted.plugin} for {_LOCK_SECONDS:.0f} s", code="ND2193"
            )
        for path in (*wanted.plugin.glob("dra*.sock"), *registry.glob(f"{names.DRIVER}*-reg.sock")):
            if not answers(path):
                path.unlink(missing_ok=True)
        for path in (wanted.dra, wanted.registration):
            if path.exists():
                raise TemporaryError(
                    f"{path} is another daemon's, which is running",
                    hint="one daemon a node, or each with an instance of its own (the uid of its pod)",
                    code="ND2194",
                )
        yield
    finally:
        os.close(lock)


def answers(path: Path) -> bool:
    """Whether a process listens on a socket."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)) as probe:
        outcome = probe.connect_ex(str(path))
    # EAGAIN is an answer, too: a process listens, and its backlog is full (connect(2)).
    return outcome not in (errno.ECONNREFUSED, errno.ENOENT)


def _fitting(folder: Path, name: str, suffix: str) -> Path:
    """A socket's path, its name shortened to a digest of it if the path would be too long."""
    path = folder / f"{name}{suffix}"
    if len(os.fsencode(path)) <= MAX_PATH:
        return path
    digest = hashlib.sha256(name.encode()).hexdigest()
    room = MAX_PATH - len(os.fsencode(folder / suffix))
    if room < len(names.DRIVER) + 12:
        raise InvalidInputError(
            f"{folder}: the path is too long for a socket in it, which has at most {MAX_PATH} bytes",
            hint="the kubelet's root folder must have a shorter path",
            code="ND2195",
        )
    # The shortened name begins like all others, so that a clean-up finds it.
    prefix = names.DRIVER if name.startswith(names.DRIVER) else "dra"
    return folder / (f"{prefix}-{digest}"[:room] + suffix)


@asynccontextmanager
async def serving(wanted: Sockets, claims: ClaimServices, health: HealthSource) -> AsyncIterator[KubeletRegistration]:
    """Serve the kubelet while the context is open.

    Args:
        wanted: the sockets.
        claims: answers for claims.
        health: gives the devices' health.

    Yields:
        The registration with the kubelet's answer, for readiness.

    Raises:
        NetdraError: the sockets cannot be made.
    """
    healths = HealthService(health)
    registration = KubeletRegistration(str(wanted.dra), (*claims.versions, *HEALTH_VERSIONS))
    with taking(wanted):
        dra = await _start_server(wanted.dra, {**claims.methods(), **healths.methods()})
        try:
            registrar = await _start_server(wanted.registration, registration.methods())
        except BaseException:
            await dra.stop(0)
            raise
        made = {path: presence.identity(path) for path in (wanted.dra, wanted.registration)}
    log.info("serving the kubelet on %s", wanted.dra)
    try:
        yield registration
    finally:
        # The kubelet takes the socket's removal for the end of the registration. If no other instance is registered
        # within 30 s, it deletes the driver's slices (pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go).
        presence.remove_own(wanted.registration, made[wanted.registration])
        await registrar.stop(0)
        healths.close()
        await dra.stop(GRACE_SECONDS)
        presence.remove_own(wanted.dra, made[wanted.dra])
        log.info("no longer serving the kubelet")


async def _start_server(path: Path, methods: Methods) -> Server:
    server = Server(methods)
    try:
        await server.start(path)
    except OSError as problem:
        raise PermanentError(
            f"{path} cannot be served: {problem.strerror or problem}", hint="is its folder writable?", code="ND2196"
        ) from None
    return server


class KubeletPlugin:
    """Serves the kubelet, tries again when the sockets cannot be made, and makes them again when they are deleted.

    The kubelet sees the registration socket come, and registers the driver again.
    """

    def __init__(self, wanted: Sockets, claims: ClaimServices, health: HealthSource) -> None:
        self._wanted, self._claims, self._health = wanted, claims, health
        self._registration: KubeletRegistration | None = None
        self._trouble = ""

    @property
    def registered(self) -> bool:
        """Whether the kubelet has the driver registered."""
        return self._registration is not None and self._registration.registered

    @property
    def problem(self) -> str:
        """Why the kubelet has not registered the driver, for people; "" while it has."""
        if self.registered:
            return ""
        problem = self._registration.problem if self._registration is not None else self._trouble
        return problem or "the kubelet has not registered the driver yet"

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            PermanentError: the sockets can never be made here.
        """
        backoff, paths = Backoff(), (self._wanted.dra, self._wanted.registration)
        has_served = False
        while True:
            try:
                async with serving(self._wanted, self._claims, self._health) as self._registration:
                    has_served = True
                    gone = await presence.wait_gone({path: presence.identity(path) for path in paths})
                    log.warning("%s was deleted: the kubelet's sockets are created again", gone)
            except (TemporaryError, PermanentError) as problem:
                if isinstance(problem, PermanentError) and not has_served:
                    raise
                self._trouble = problem.what
                log.warning("%s", problem)
            finally:
                self._registration = None
            await asyncio.sleep(backoff.next())
