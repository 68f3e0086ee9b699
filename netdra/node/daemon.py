"""The node daemon's process: its parts, started together and stopped together.

Called by `netdra node`, which gives it an API client. Publishing, the kubelet's services and the runtime's hooks each
go on while the others cannot: what a part needs of another it asks by `netdra.node.view`. The ResourceSlices stay when
the daemon ends: the next one finds them, and the kubelet removes those of a driver that does not come back.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from netdra.chain import checkpoint
from netdra.chain.site import Settings as ChainSettings
from netdra.cni.plugins import PluginPath
from netdra.discovery.watch import Watcher
from netdra.kernel.sysfs import Sysfs
from netdra.kube.client import Client
from netdra.kube.events import Recorder
from netdra.kube.health import reachable, synced
from netdra.model import names
from netdra.model.errors import NetdraError
from netdra.model.inventory import Node
from netdra.node import measure
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore
from netdra.node.kubelet.sockets import sockets
from netdra.node.nri.plugin import Plugin
from netdra.node.nri.plugin import Settings as NriSettings
from netdra.node.pods.service import Pods, Surroundings, assemble, keep
from netdra.node.publishing.service import Publishing
from netdra.node.serving import KubeletService
from netdra.ops.health import Finding, met
from netdra.ops.process import Process


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Which node this is, and where things are on it.

    Attributes:
        node: its name in Kubernetes.
        instance: what tells this daemon from the one that it takes over from: its pod's uid, or "".
        sysfs_root: the folder that stands for /sys.
        state_dir: what has to outlive the daemon: checkpoints, prepared claims.
        kubelet_root: the kubelet's root folder, with `plugins` and `plugins_registry`.
        nri_socket: the container runtime's socket for NRI plugins.
        nri_index: two digits: where netdra stands among the runtime's plugins.
        cdi_dir: where CDI files are written.
        cni_path: the folders of CNI plugin binaries, in the order in which they are searched.
        cni_root: the root of the file system that they are in and see.
    """

    node: str
    instance: str = ""
    sysfs_root: str = "/sys"
    state_dir: Path = Path("/var/lib/netdra")
    kubelet_root: Path = Path("/var/lib/kubelet")
    nri_socket: Path = Path("/var/run/nri/nri.sock")
    nri_index: str = "10"
    cdi_dir: Path = Path("/var/run/cdi")
    cni_path: tuple[Path, ...] = (Path("/opt/cni/bin"),)
    cni_root: Path = Path("/")


async def run(client: Client, process: Process, settings: Settings) -> None:
    """Be the driver of a node until cancelled.

    Raises:
        NetdraError: a part cannot go on.
    """
    sysfs = Sysfs(settings.sysfs_root)
    wanted = sockets(settings.kubelet_root, settings.instance)
    publishing = Publishing(client, settings.node, lambda: Watcher(Node(name=settings.node), sysfs=sysfs))
    recorder = Recorder(client, f"{names.DRIVER}/pods", settings.node)
    pods = _pods(client, settings, publishing, recorder, wanted.plugin)
    publishing.holder = pods.held
    kubelet = KubeletService(wanted, pods.claims, publishing)
    plugin = Plugin(pods.hooks, NriSettings(socket=settings.nri_socket, index=settings.nri_index))
    _add_checks(process, client, publishing, kubelet, plugin)
    state = settings.state_dir / "sandboxes"
    measure.on_scrape(
        lambda: len(ClaimStore.of_state(settings.state_dir).uids()),
        lambda: len(checkpoint.sandboxes(state)),
        lambda: kubelet.registered,
    )
    await pods.recall()
    try:
        async with asyncio.TaskGroup() as parts:
            for name, part in (
                ("publishing", publishing.run()),
                ("events", recorder.run()),
                ("pods", pods.run()),
                ("kubelet", kubelet.run()),
                ("runtime", plugin.run()),
            ):
                process.health.task(name, parts.create_task(part, name=name))
    except* NetdraError as problems:
        raise _first(problems) from None


def _pods(client: Client, settings: Settings, publishing: Publishing, recorder: Recorder, plugin_folder: Path) -> Pods:
    plugins = PluginPath(directories=tuple(map(str, settings.cni_path)), root=str(settings.cni_root))
    return assemble(
        Surroundings(
            client=client,
            node=settings.node,
            held=keep(
                ChainSettings(state=settings.state_dir / "sandboxes", plugins=plugins),
                ClaimFiles(plugin=plugin_folder, cdi=settings.cdi_dir),
                ClaimStore.of_state(settings.state_dir),
            ),
            view=publishing,
            emit=recorder.emit,
            changed=publishing.look_again,
            haste=publishing.haste,
        )
    )


def _add_checks(
    process: Process, client: Client, publishing: Publishing, kubelet: KubeletService, plugin: Plugin
) -> None:
    ready = process.health.ready
    ready("api-server", reachable(client))
    ready("caches", synced(client))
    ready("slices", met(lambda: publishing.published, "not yet published", "published"))
    ready("kubelet", lambda: Finding(kubelet.registered, kubelet.problem or "registered"))
    ready("runtime", lambda: Finding(plugin.connected.is_set(), plugin.problem or str(plugin.runtime)))


def _first(problems: BaseExceptionGroup[NetdraError]) -> NetdraError:
    """One part's failure ends all parts; the first one is the reason."""
    problem = problems.exceptions[0]
    return _first(problem) if isinstance(problem, BaseExceptionGroup) else problem
