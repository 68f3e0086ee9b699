"""A container runtime that behaves as CRI-O and unlike containerd, as far as netdra can distinguish them.

Seen of CRI-O 1.36.3 with NRI 0.11. It has real network namespaces with an eth0 and the CDI library of its time; it
runs no containers, and sends only the events. It uses the older call (StateChange) and names no version of NRI; a
sandbox has no process; one on the host's network has a path of the host's namespace; the namespace of one that stops
goes first and is still reported, then, and as long as the sandbox is listed. After its restart it also reports the ends
of older sandboxes.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import Message

from netdra.kernel import kinds, libc, link, netns
from netdra.kernel.netns import Namespace
from netdra.kube.backoff import Backoff
from netdra.node.nri.plugin import NriSettings, Plugin
from netdra.nri import nri_pb2
from testbed.api import Object
from testbed.cdi import Cache
from tests.cluster.sandboxes.scene import WITHIN, Daemon, Scene
from tests.unit.node.nri.peer import Peer, listening

NAME, VERSION = "cri-o", "1.36.3"
REGISTRATION_MILLISECONDS, REQUEST_MILLISECONDS = 5000, 2000


class RefusedError(Exception):
    """A sandbox or a container was not made, for the reason that the kubelet would have."""


@dataclass
class Box:
    """A sandbox as the runtime keeps it, until it is removed.

    Attributes:
        seen: the kernel's own view: the other end of a wire into the namespace, which is there as long as that is.
    """

    message: nri_pb2.PodSandbox
    stopped: bool = False
    seen: str = ""

    @property
    def key(self) -> str:
        """Its id."""
        return str(self.message.id)

    @property
    def path(self) -> str:
        """Where its namespace is, or was."""
        return str(self.message.linux.namespaces[0].path)


@dataclass
class StandIn:
    """The runtime of a scene's node; `serving` runs it.

    Attributes:
        request_milliseconds: how long it waits for a plugin, as it announces.
        boxes: its sandboxes, by id.
    """

    scene: Scene
    cache: Cache
    come: Callable[[], asyncio.Task[Peer]]
    outside: Namespace
    request_milliseconds: int = int(WITHIN * 1000)
    boxes: dict[str, Box] = field(default_factory=dict)
    peer: Peer | None = None
    host_paths: list[str] = field(default_factory=list)

    async def connect(self) -> None:
        """Accept the next plugin, and send it all sandboxes: the first list is empty, as there."""
        self.peer = peer = await self.come()
        call, _ = await peer.registration()
        peer.accept(call)
        configure = nri_pb2.ConfigureRequest(
            runtime_name=NAME,
            runtime_version=VERSION,
            registration_timeout=REGISTRATION_MILLISECONDS,
            request_timeout=self.request_milliseconds,
        )
        assert not (await peer.ask("Configure", configure)).status.code
        pods = [box.message for box in self.boxes.values()]
        assert not (await peer.ask("Synchronize", nri_pb2.SynchronizeRequest(pods=pods))).status.code

    async def die(self) -> None:
        """The runtime ends; its sandboxes stay."""
        assert self.peer is not None
        await self.peer.close()
        self.peer = None

    async def run(self, pod: Object, *, on_host: bool = False) -> Box:
        """RunPodSandbox.

        Raises:
            RefusedError: a plugin refused it; nothing of it is left here.
        """
        name = f"netdra-test-{uuid.uuid4().hex[:8]}"
        path = self._of_host(name) if on_host else f"{netns.NAMED}/{name}"
        metadata = pod["metadata"]
        namespace = nri_pb2.LinuxNamespace(type="network", path=path)
        box = Box(
            nri_pb2.PodSandbox(
                id=uuid.uuid4().hex,
                name=metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata["uid"],
                linux=nri_pb2.LinuxPodSandbox(namespaces=[namespace]),
            )
        )
        if not on_host:
            box.seen = self._make(name)
        self.boxes[box.key] = box
        problem = await self._tell(nri_pb2.RUN_POD_SANDBOX, box)
        if problem:
            await self._tell(nri_pb2.STOP_POD_SANDBOX, box)
            await self._tell(nri_pb2.REMOVE_POD_SANDBOX, box)
            self.end(box)
            del self.boxes[box.key]
            raise RefusedError(problem)
        return box

    def create_container(self, claim: str, request: str) -> None:
        """CreateContainer with a device of a claim.

        Raises:
            RefusedError: the CDI library does not know the device.
        """
        problem = self.cache.problem(f"dra.networking/claim={self.scene.uid(claim)}-{request}")
        if problem:
            raise RefusedError(f"CDI device injection failed: {problem}")

    async def stop(self, box: Box) -> None:
        """StopPodSandbox: the namespace goes, and then plugins get the event."""
        self.end(box)
        await self._tell(nri_pb2.STOP_POD_SANDBOX, box)

    async def remove(self, box: Box) -> None:
        """RemovePodSandbox."""
        await self._tell(nri_pb2.REMOVE_POD_SANDBOX, box)
        self.boxes.pop(box.key, None)

    def end(self, box: Box) -> None:
        """The namespace of a sandbox goes without an event: eth0 first, as by the CNI's DEL."""
        if box.stopped or not box.seen:
            return
        box.stopped = True
        with Namespace.open(box.path) as space, space.socket() as sock:
            link.delete(sock, link.get(sock, "eth0").index)
        name = Path(box.path).name
        self.scene.machine.sandboxes.remove(name)
        netns.delete(name)

    def lives(self, box: Box) -> bool:
        """Whether the kernel still has the sandbox's namespace, with any holder: whether the wire into it exists."""
        with self.outside.socket() as sock:
            return link.find(sock, box.seen) is not None

    async def until_gone(self, box: Box) -> None:
        """Wait until the kernel has ended the sandbox's namespace."""
        async with asyncio.timeout(WITHIN):
            while self.lives(box):  # noqa: ASYNC110 - the kernel ends namespaces in its own time
                await asyncio.sleep(0.01)

    def close(self) -> None:
        """Nothing is left on this machine."""
        for path in self.host_paths:
            libc.umount(path)
            Path(path).unlink()
        self.outside.close()

    async def _tell(self, event: nri_pb2.Event, box: Box) -> str:
        """Send an event; why the plugin refuses, or ""."""
        if self.peer is None:
            return ""
        change: Message = nri_pb2.StateChangeEvent(event=event, pod=box.message)
        status = (await self.peer.ask("StateChange", change)).status
        return str(status.message) if status.code else ""

    def _make(self, name: str) -> str:
        """A namespace with eth0, and a second wire whose other end reports that it lives."""
        seen = f"w{uuid.uuid4().hex[:8]}"
        with Namespace.create(name) as space, space.socket() as sock:
            self.scene.machine.sandboxes.append(name)
            link.change(sock, "lo", up=True)
            link.create(sock, "eth0", "veth", kinds.veth(kinds.Peer(f"e{seen}", netns_fd=self.outside.fd)), up=True)
            link.create(sock, "wire", "veth", kinds.veth(kinds.Peer(seen, netns_fd=self.outside.fd)))
        return seen

    def _of_host(self, name: str) -> str:
        """A path of the host's own namespace, as a pod on its network has."""
        path = f"{netns.NAMED}/{name}"
        Path(path).touch(mode=0o444)
        libc.mount(f"/proc/self/fd/{self.scene.machine.host.fd}", path, "", libc.MS_BIND)
        self.host_paths.append(path)
        return path


@asynccontextmanager
async def playing(scene: Scene) -> AsyncIterator[StandIn]:
    """The runtime of a node, whose socket is in the node's folder."""
    with Cache(scene.machine.files.cdi) as cache:
        async with listening(scene.machine.folder / "nri.sock") as come:
            runtime = StandIn(scene, cache, come, Namespace.anonymous())
            try:
                yield runtime
            finally:
                runtime.close()


@asynccontextmanager
async def driving(scene: Scene, runtime: StandIn) -> AsyncIterator[tuple[Daemon, Plugin]]:
    """A daemon that is registered with the runtime, and has compared all that runs."""
    async with scene.daemon() as daemon:
        plugin = Plugin(
            daemon.pods.hooks, NriSettings(socket=scene.machine.folder / "nri.sock"), backoff=Backoff(0.05, 0.2)
        )
        running = asyncio.create_task(plugin.run())
        try:
            await runtime.connect()
            async with asyncio.timeout(WITHIN):
                await plugin.connected.wait()
                await daemon.pods.recovery.wait_finished()
            yield daemon, plugin
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
