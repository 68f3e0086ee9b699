"""The node daemon's process: its parts, started together and stopped together.

Called by `netdra node`, which gives it an API client. The ResourceSlices stay when it ends: the next one finds them,
and the kubelet removes those of a driver that does not come back.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from netdra.discovery.watch import Watcher
from netdra.kernel.sysfs import Sysfs
from netdra.kube.client import Client
from netdra.kube.health import reachable, synced
from netdra.model.errors import NetdraError
from netdra.model.inventory import Node
from netdra.node.publishing.service import Publishing
from netdra.ops.health import met
from netdra.ops.process import Process


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Which node this is, and where things are on it.

    Attributes:
        node: its name in Kubernetes.
        sysfs_root: the folder that stands for /sys.
        state_dir: what has to outlive the daemon: checkpoints, prepared claims.
        kubelet_root: the kubelet's root folder, with `plugins` and `plugins_registry`.
        nri_socket: the container runtime's socket for NRI plugins.
        cdi_dir: where CDI files are written.
        cni_path: the folders of CNI plugin binaries, in the order in which they are searched.
    """

    node: str
    sysfs_root: str = "/sys"
    state_dir: Path = Path("/var/lib/netdra")
    kubelet_root: Path = Path("/var/lib/kubelet")
    nri_socket: Path = Path("/var/run/nri/nri.sock")
    cdi_dir: Path = Path("/var/run/cdi")
    cni_path: tuple[Path, ...] = (Path("/opt/cni/bin"),)


async def run(client: Client, process: Process, settings: Settings) -> None:
    """Be the driver of a node until cancelled.

    Raises:
        NetdraError: a part cannot go on.
    """
    sysfs = Sysfs(settings.sysfs_root)
    publishing = Publishing(client, settings.node, lambda: Watcher(Node(name=settings.node), sysfs=sysfs))
    process.health.ready("api-server", reachable(client))
    process.health.ready("caches", synced(client))
    process.health.ready("slices", met(lambda: publishing.published, "not yet published", "published"))
    try:
        async with asyncio.TaskGroup() as parts:
            parts.create_task(publishing.run(), name="publishing")
    except* NetdraError as problems:
        raise _first(problems) from None


def _first(problems: BaseExceptionGroup[NetdraError]) -> NetdraError:
    """One part's failure ends all parts; the first one is the reason."""
    problem = problems.exceptions[0]
    return _first(problem) if isinstance(problem, BaseExceptionGroup) else problem
