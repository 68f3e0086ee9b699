"""The daemon's node, and where things are on it: the options of `netdra node`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from netdra.cni.plugins import PluginPath
from netdra.kernel.device_files import DeviceFiles
from netdra.kernel.sysfs import Sysfs

HEALTH_FILE = "health.json"
"""The faults of the node's devices, in the state folder."""
UnknownDifferences = Literal["Report", "Hold"]


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The node, and where things are on it.

    Attributes:
        node: its name in Kubernetes.
        instance: the mark by which this daemon differs from the one that it takes over from: its pod's uid, or "".
        sysfs_root: the folder that stands for /sys.
        state_dir: the state that outlives the daemon: checkpoints, prepared claims.
        kubelet_root: the kubelet's root folder, with `plugins` and `plugins_registry`.
        nri_socket: the container runtime's socket for NRI plugins.
        nri_index: two digits: where netdra stands among the runtime's plugins.
        cdi_dir: where CDI files are written.
        cni_path: the folders of CNI plugin binaries, in the order in which they are searched.
        cni_root: the root of the file system that they are in and see.
        run_plugins: whether CNI plugins may be run at all.
        registry_socket, registry_mode, registry_group: the device registry's socket with its permissions and group;
            without a path the registry is off.
        registry_tokens_only: whether callers of the registry must show a token.
        registry_providers: by provider, the owner who may register under its name.
        allow_plugins, allow_host_paths: what authors of topologies may use of the node (`netdra.node.permits`).
        allow_device_files: patterns of device files that providers may register and pods be given.
        physnets: by physical network, the NICs that are wired to it, by name or PCI address.
        pod_network_kind: the PodNetworkKind by which claims' statuses report PodNetworks; "" if they do not.
        unknown_differences: what becomes of a device that comes back from a pod with a difference that netdra does not
            know: it is reported, or the device is held.
        traffic_interfaces: how many interfaces of pods are exported with their counters; 0 for none, without any cost.
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
    run_plugins: bool = True
    registry_socket: Path | None = None
    registry_mode: int = 0o660
    registry_group: str = ""
    registry_tokens_only: bool = False
    registry_providers: Mapping[str, str] = {}
    allow_plugins: tuple[str, ...] = ()
    allow_host_paths: tuple[Path, ...] = ()
    allow_device_files: tuple[str, ...] = ()
    physnets: Mapping[str, tuple[str, ...]] = {}
    pod_network_kind: str = ""
    unknown_differences: UnknownDifferences = "Report"
    traffic_interfaces: int = 0

    @property
    def sandboxes(self) -> Path:
        """The folder of the checkpoints."""
        return self.state_dir / "sandboxes"

    @property
    def plugins(self) -> PluginPath:
        """Where CNI plugins are searched for, and which files they see."""
        folders = self.cni_path if self.run_plugins else ()
        return PluginPath(directories=tuple(map(str, folders)), root=str(self.cni_root))

    @property
    def device_files(self) -> DeviceFiles:
        """Which device files providers may register and pods be given."""
        return DeviceFiles(self.allow_device_files, Sysfs(self.sysfs_root))

    def is_used(self) -> bool:
        """Whether a former daemon has left state here, of pods, of claims or of faulty devices."""
        return (self.state_dir / HEALTH_FILE).is_file() or any(
            path.is_file() for path in self.state_dir.glob("*/[!.]*")
        )
