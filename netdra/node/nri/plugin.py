"""Keeps netdra registered with the container runtime, and turns the runtime's requests into hooks.

Run by the node daemon for as long as it lives: it connects, registers, and begins again whenever the runtime goes.
Without a connection, pods begin without netdra's hooks: the daemon is not ready then, and the next Synchronize
has the sandboxes that were missed. A runtime with NRI before 0.12 reports all events of pods by StateChange, later ones
have a method for each event; both lead to the same hook. Field by field the messages are `protos/nri.proto`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import msgspec
from google.protobuf.message import DecodeError, Message

from netdra.kube.backoff import Backoff
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.node.metrics import NRI_CONNECTED, NRI_CONNECTIONS
from netdra.node.nri.hooks import (
    DEFAULT_TIMEOUT,
    Budget,
    BusyError,
    DefectError,
    Runner,
    Sandbox,
    SandboxHooks,
    budget,
    one_line,
)
from netdra.node.priority import PriorityGate
from netdra.nri import nri_pb2
from netdra.nri.connection import RuntimeConnection, RuntimeRequest
from netdra.nri.framing import CallError, Code

log = logging.getLogger(__name__)

PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"

POD_EVENTS = (nri_pb2.RUN_POD_SANDBOX, nri_pb2.STOP_POD_SANDBOX, nri_pb2.REMOVE_POD_SANDBOX)

MOST_SANDBOXES = 16384
"""Sandboxes that one Synchronize may list; the kubelet's own bound for a node is far below."""
HANDSHAKE_SECONDS = 60.0
"""From the connection to Synchronize: the runtime may be busy with other plugins and with pods that start."""
HEALTHY_SECONDS = 5.0
"""After a connection that lasted this long the next attempt comes soon."""

_NAME = re.compile(r"[a-zA-Z0-9_.+-]+")
_INDEX = re.compile(r"[0-9]{2}")

Method = Callable[[RuntimeRequest], Awaitable[Message]]
Hook = Coroutine[object, object, None]


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime at the other end.

    Attributes:
        name: e.g. "containerd".
        version: e.g. "v2.4.2".
        nri_version: of the NRI module in it; "" before 0.12.
        request_timeout: the seconds that it waits for an answer; 0 if it does not report it.
    """

    name: str
    version: str
    nri_version: str
    request_timeout: float


def runtime(configure: nri_pb2.ConfigureRequest) -> Runtime:
    """The runtime that asks which events are wanted."""
    return Runtime(
        name=configure.runtime_name,
        version=configure.runtime_version,
        nri_version=configure.NRI_version,
        # In milliseconds. When they are over, the runtime closes the connection and starts the pod anyway, without the
        # hook's work (containerd/nri, pkg/adaptation/plugin.go, isFatalError).
        request_timeout=max(configure.request_timeout, 0) / 1000,
    )


def subscription() -> nri_pb2.ConfigureResponse:
    """Pods' events alone, of the kinds that every runtime has: a kind that a runtime does not know would be refused."""
    return nri_pb2.ConfigureResponse(events=sum(1 << (event - 1) for event in POD_EVENTS))


def sandbox(pod: nri_pb2.PodSandbox) -> Sandbox:
    """A sandbox; without a network namespace of its own it has no `network` entry, or an entry without a path."""
    # CRI-O also names a path for a pod on the host's network: a mount of the host's own namespace.
    paths = (namespace.path for namespace in pod.linux.namespaces if namespace.type == "network")
    return Sandbox(id=pod.id, name=pod.name, namespace=pod.namespace, uid=pod.uid, netns=next(paths, ""), pid=pod.pid)


def running(pod: nri_pb2.PodSandbox) -> Sandbox:
    """A sandbox that runs, from a list of them.

    containerd that was killed in the middle of making a sandbox has lost its specification, and names no namespace at
    all (seen with 2.4). Containers join the network namespace of the sandbox's process, so that is the sandbox's. A
    sandbox that ends is not asked so: its process's number may be another process's by then.
    """
    described = sandbox(pod)
    if pod.linux.namespaces or not pod.pid:
        return described
    return msgspec.structs.replace(described, netns=f"/proc/{pod.pid}/ns/net")


class PluginService:
    """The plugin's side of one connection.

    Attributes:
        runtime: the runtime at the other end, once Configure has come.
        synchronized: set once the hooks know all sandboxes; events follow.
    """

    def __init__(self, hooks: SandboxHooks, runner: Runner) -> None:
        self.runtime: Runtime | None = None
        self.synchronized = asyncio.Event()
        self._hooks = hooks
        self._runner = runner
        self._listed: list[Sandbox] = []
        self._methods: dict[str, Method] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "Shutdown": self._shutdown,
            # CRI-O 1.36 (NRI 0.11) sends pods' events in this form; newer runtimes call the three methods below.
            "StateChange": self._state_change,
            "RunPodSandbox": self._run,
            "StopPodSandbox": self._stop,
            "RemovePodSandbox": self._remove,
            # Not subscribed to, but answered.
            "UpdatePodSandbox": self._ignore,
            "PostUpdatePodSandbox": self._ignore,
        }

    async def serve(self, request: RuntimeRequest) -> bytes:
        """Answer one request.

        Raises:
            CallError: the error to answer with.
        """
        method = self._methods.get(request.method) if request.service == PLUGIN_SERVICE else None
        if method is None:
            raise CallError(Code.UNIMPLEMENTED, f"{request.service} has no method {request.method} here")
        try:
            return (await method(request)).SerializeToString()
        except DecodeError as problem:
            raise CallError(Code.INVALID_ARGUMENT, f"{request.method}: cannot be read: {problem}") from problem
        except NetdraError as problem:
            raise CallError(_code(problem), one_line(problem)) from problem

    async def _configure(self, request: RuntimeRequest) -> Message:
        self.runtime = runtime(nri_pb2.ConfigureRequest.FromString(request.payload))
        return subscription()

    async def _synchronize(self, request: RuntimeRequest) -> Message:
        part = nri_pb2.SynchronizeRequest.FromString(request.payload)
        # Stopped sandboxes are listed, too: by containerd without a path, by CRI-O with that of their former namespace.
        # The first list of CRI-O 1.36 is empty.
        self._listed += map(running, part.pods)
        if len(self._listed) > MOST_SANDBOXES:
            self._listed = []
            raise CallError(Code.RESOURCE_EXHAUSTED, f"Synchronize lists more than {MOST_SANDBOXES} sandboxes")
        if part.more:
            return nri_pb2.SynchronizeResponse(more=True)
        listed, self._listed = tuple(self._listed), []
        hook = self._hooks.synchronize(listed)
        await self._runner.run("synchronize", "the synchronize hook", hook, self._budget(request).answer)
        self.synchronized.set()
        return nri_pb2.SynchronizeResponse()

    async def _shutdown(self, request: RuntimeRequest) -> Message:
        log.info("the runtime is going down")
        return await self._ignore(request)

    async def _ignore(self, _request: RuntimeRequest) -> Message:
        return nri_pb2.Empty()

    async def _run(self, request: RuntimeRequest) -> Message:
        return await self._event(nri_pb2.RUN_POD_SANDBOX, _pod(request), request)

    async def _stop(self, request: RuntimeRequest) -> Message:
        # CRI-O has removed the network namespace before this call (server/sandbox_stop_linux.go), containerd has not:
        # decision D22.
        return await self._event(nri_pb2.STOP_POD_SANDBOX, _pod(request), request)

    async def _remove(self, request: RuntimeRequest) -> Message:
        return await self._event(nri_pb2.REMOVE_POD_SANDBOX, _pod(request), request)

    async def _state_change(self, request: RuntimeRequest) -> Message:
        change = nri_pb2.StateChangeEvent.FromString(request.payload)
        return await self._event(change.event, change.pod, request)

    async def _event(self, event: nri_pb2.Event, pod: nri_pb2.PodSandbox, request: RuntimeRequest) -> Message:
        if event in POD_EVENTS:
            about = sandbox(pod)
            self._check(about)
            allowed = self._budget(request)
            name, hook = self._hook(event, about, allowed.work)
            what = f"the {name} hook of pod {about.namespace}/{about.name}, sandbox {about.id},"
            await self._runner.run(name, what, hook, allowed.answer)
        return nri_pb2.Empty()

    def _check(self, about: Sandbox) -> None:
        if not about.id:
            raise CallError(Code.INVALID_ARGUMENT, "a pod's event without a sandbox id")
        if not self.synchronized.is_set():
            raise CallError(Code.FAILED_PRECONDITION, f"sandbox {about.id}: no Synchronize has come before")

    def _hook(self, event: nri_pb2.Event, about: Sandbox, seconds: float) -> tuple[str, Hook]:
        """The hook for one of POD_EVENTS, and its name."""
        if event == nri_pb2.RUN_POD_SANDBOX:
            return "run", self._hooks.run(about, seconds)
        if event == nri_pb2.STOP_POD_SANDBOX:
            return "stop", self._hooks.stop(about, seconds)
        return "remove", self._hooks.remove(about)

    def _budget(self, request: RuntimeRequest) -> Budget:
        spent = asyncio.get_running_loop().time() - request.received
        return budget(self.runtime.request_timeout if self.runtime else 0.0, request.timeout, spent)


def _code(problem: NetdraError) -> Code:
    """The status of the answer for an error of a hook."""
    match problem:
        case InvalidInputError():
            return Code.INVALID_ARGUMENT
        case BusyError():
            return Code.RESOURCE_EXHAUSTED
        case DefectError():
            return Code.INTERNAL
        case PermanentError():
            return Code.FAILED_PRECONDITION
        case TemporaryError():
            return Code.ABORTED
        case _:
            return Code.UNKNOWN


def _pod(request: RuntimeRequest) -> nri_pb2.PodSandbox:
    return nri_pb2.PodSandboxRequest.FromString(request.payload).pod


class NriSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How netdra presents itself, and where the runtime is.

    Attributes:
        name: the plugin's name.
        index: two digits; the runtime calls its plugins in this order.
        socket: the path of the runtime's socket.
    """

    name: str = "netdra"
    index: str = "10"
    socket: Path = Path("/var/run/nri/nri.sock")

    def __post_init__(self) -> None:
        """Check the name and the index by the runtime's rules."""
        if not _NAME.fullmatch(self.name):
            raise InvalidInputError(
                f'NRI plugin name "{self.name}" is refused by runtimes',
                hint="use letters, digits and _ . + -",
                code="ND2201",
            )
        if not _INDEX.fullmatch(self.index):
            raise InvalidInputError(
                f'NRI plugin index "{self.index}" is not two digits', hint='write it as "10"', code="ND2202"
            )


class Plugin:
    """netdra's registration with the runtime.

    Attributes:
        connected: set while netdra is registered and knows all sandboxes: pods do not begin without its hooks.
        problem: why it is not connected, "" while it is.
        runtime: the runtime of the last connection; None before the first one.
    """

    def __init__(
        self,
        hooks: SandboxHooks,
        settings: NriSettings,
        *,
        gate: PriorityGate | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """Prepare; `run` registers.

        Args:
            hooks: act on a sandbox's events.
            settings: how to register, and where.
            gate: the priority gate; other work waits for it while a hook runs.
            backoff: how long to wait between attempts.
        """
        self.connected = asyncio.Event()
        self.problem = "not connected to the container runtime yet"
        self.runtime: Runtime | None = None
        self._hooks = hooks
        self._settings = settings
        self._backoff = backoff or Backoff()
        self._runner = Runner(gate or PriorityGate())

    async def run(self) -> None:
        """Stay registered until cancelled; open requests are answered first."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                began = clock()
                try:
                    await self._session()
                except (TemporaryError, CallError, TimeoutError) as problem:
                    self._note_failure(problem)
                if clock() - began > HEALTHY_SECONDS:
                    self._backoff.reset()
                await asyncio.sleep(self._backoff.next())
        finally:
            await self._runner.finish(self._patience)

    async def _session(self) -> None:
        """One connection, from its beginning to its end, which is always one of these errors.

        Raises:
            TemporaryError: the runtime is absent, it went, or it broke the protocol.
            CallError: the runtime refused the registration.
            TimeoutError: the runtime did not finish the handshake.
        """
        reader, writer = await self._dial(self._settings.socket)
        service = PluginService(self._hooks, self._runner)
        connection = RuntimeConnection(reader, writer, service.serve)
        # Serving begins first: Configure may come before the answer to the registration.
        reading = asyncio.create_task(connection.run())
        registering = asyncio.create_task(self._register(connection, service))
        try:
            await asyncio.wait({reading, registering}, return_when=asyncio.FIRST_EXCEPTION)
            for task in (reading, registering):
                if task.done():
                    task.result()
        except asyncio.CancelledError:
            await connection.drain(self._patience)
            raise
        finally:
            connection.close()
            reading.cancel()
            registering.cancel()
            await asyncio.gather(reading, registering, return_exceptions=True)
            self._set_connected(connected=False)

    async def _dial(self, path: Path) -> tuple[StreamReader, StreamWriter]:
        try:
            return await asyncio.open_unix_connection(path)
        except OSError as problem:
            raise TemporaryError(
                f"NRI socket {path}: {problem}",
                hint="is the runtime up, is NRI on in it (containerd 1.7 has it off), is the directory mounted?",
                code="ND2203",
            ) from problem

    async def _register(self, connection: RuntimeConnection, service: PluginService) -> None:
        """Register, and wait until the runtime has listed all its sandboxes."""
        request = nri_pb2.RegisterPluginRequest(plugin_name=self._settings.name, plugin_idx=self._settings.index)
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await connection.call(RUNTIME_SERVICE, "RegisterPlugin", request.SerializeToString(), HANDSHAKE_SECONDS)
            await service.synchronized.wait()
        self.runtime = service.runtime
        log.info("registered with the container runtime: %s", self.runtime)
        self._set_connected(connected=True)

    def _note_failure(self, problem: Exception) -> None:
        text = str(problem) or f"no answer within {HANDSHAKE_SECONDS:g} s"
        if isinstance(problem, NetdraError):
            text = one_line(problem)
        log.log(logging.DEBUG if text == self.problem else logging.WARNING, "not registered: %s", text)
        self.problem = text

    def _set_connected(self, *, connected: bool) -> None:
        if connected == self.connected.is_set():
            return
        if connected:
            self.connected.set()
            self.problem = ""
            NRI_CONNECTIONS.inc()
        else:
            self.connected.clear()
            self.problem = "the connection to the container runtime ended"
        NRI_CONNECTED.set(connected)

    @property
    def _patience(self) -> float:
        """How long a runtime waits for an answer; a hook is not waited for longer."""
        return (self.runtime.request_timeout if self.runtime else 0.0) or DEFAULT_TIMEOUT
