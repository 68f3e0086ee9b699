"""What the runtime may ask of the plugin on one connection, and how each request becomes a hook.

`netdra.node.nri.plugin` makes one for each connection; `netdra.node.nri.connection` brings the requests. A runtime with
NRI before 0.12 tells all events of pods by StateChange, later ones have a method for each; both lead to the same hook.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine

from google.protobuf.message import DecodeError, Message

from netdra.node.nri.connection import Request
from netdra.node.nri.hooks import Sandbox, SandboxHooks
from netdra.node.nri.messages import PLUGIN_SERVICE, POD_EVENTS, Runtime, runtime, sandbox, subscription
from netdra.node.nri.runner import Budget, Runner, budget
from netdra.node.nri.ttrpc import CallError, Code
from netdra.node.wire import nri_pb2

log = logging.getLogger(__name__)

MOST_SANDBOXES = 16384
"""Sandboxes that one Synchronize may list; the kubelet's own bound for a node is far below."""

Method = Callable[[Request], Awaitable[Message]]
Hook = Coroutine[object, object, None]


class PluginService:
    """The plugin's side of one connection.

    Attributes:
        runtime: who is at the other end, once it has said so.
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
            "StateChange": self._state_change,
            "RunPodSandbox": self._run,
            "StopPodSandbox": self._stop,
            "RemovePodSandbox": self._remove,
            # Not subscribed to; answered all the same.
            "UpdatePodSandbox": self._ignore,
            "PostUpdatePodSandbox": self._ignore,
        }

    async def serve(self, request: Request) -> bytes:
        """Answer one request.

        Raises:
            CallError: the answer is this error.
        """
        method = self._methods.get(request.method) if request.service == PLUGIN_SERVICE else None
        if method is None:
            raise CallError(Code.UNIMPLEMENTED, f"{request.service} has no method {request.method} here")
        try:
            return (await method(request)).SerializeToString()
        except DecodeError as problem:
            raise CallError(Code.INVALID_ARGUMENT, f"{request.method}: cannot be read: {problem}") from problem

    async def _configure(self, request: Request) -> Message:
        self.runtime = runtime(nri_pb2.ConfigureRequest.FromString(request.payload))
        return subscription()

    async def _synchronize(self, request: Request) -> Message:
        part = nri_pb2.SynchronizeRequest.FromString(request.payload)
        self._listed += map(sandbox, part.pods)
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

    async def _shutdown(self, request: Request) -> Message:
        log.info("the runtime is going down")
        return await self._ignore(request)

    async def _ignore(self, _request: Request) -> Message:
        return nri_pb2.Empty()

    async def _run(self, request: Request) -> Message:
        return await self._event(nri_pb2.RUN_POD_SANDBOX, _pod(request), request)

    async def _stop(self, request: Request) -> Message:
        return await self._event(nri_pb2.STOP_POD_SANDBOX, _pod(request), request)

    async def _remove(self, request: Request) -> Message:
        return await self._event(nri_pb2.REMOVE_POD_SANDBOX, _pod(request), request)

    async def _state_change(self, request: Request) -> Message:
        change = nri_pb2.StateChangeEvent.FromString(request.payload)
        return await self._event(change.event, change.pod, request)

    async def _event(self, event: nri_pb2.Event, pod: nri_pb2.PodSandbox, request: Request) -> Message:
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

    def _budget(self, request: Request) -> Budget:
        spent = asyncio.get_running_loop().time() - request.received
        return budget(self.runtime.request_timeout if self.runtime else 0.0, request.timeout, spent)


def _pod(request: Request) -> nri_pb2.PodSandbox:
    return nri_pb2.PodSandboxRequest.FromString(request.payload).pod
