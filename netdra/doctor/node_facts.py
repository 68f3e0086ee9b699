"""What is looked at on a node, as values. Filled by `node_look`, judged by `node_verdicts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Presence = Literal["there", "loadable", "absent", "unknown"]
"""Of a part of the kernel: in it now, a module that can be loaded, not there, or not to be told."""


class Folder(msgspec.Struct, frozen=True):
    """A folder that a process writes to: whether it exists, and whether this process may write there."""

    path: str
    exists: bool
    writable: bool


class Nic(msgspec.Struct, frozen=True):
    """A NIC that can make VFs."""

    name: str
    vfs: int
    total: int


class Plugin(msgspec.Struct, frozen=True):
    """A CNI plugin's binary: the newest version of the specification that it speaks, "" if it does not answer."""

    name: str
    version: str
    problem: str = ""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node.

    Attributes:
        kernel: its release.
        privileged: whether the kernel could be asked as root.
        kinds: kind of link -> whether the kernel has it.
        interfaces: how many there are, -1 if they could not be listed.
        iommu_groups: how many.
        sriov: the NICs that can make VFs.
        vfio: whether there is a driver vfio-pci.
        rdma_devices: their names.
        rdma_mode: shared, exclusive, or "" if it could not be told.
        nri_socket: its path.
        nri: listens; absent; or why it does not answer.
        kubelet: the folders in which drivers meet the kubelet.
        cdi: where CDI files are written.
        cni_path: where CNI plugins are looked for.
        plugins: what is there.
        cgroup: 1, 2, or 0 for none.
        user_namespaces: how many may be made, -1 if it could not be told.
        in_user_namespace: whether this process is in one of its own.
    """

    kernel: str = ""
    privileged: bool = False
    kinds: Mapping[str, Presence] = {}
    interfaces: int = -1
    iommu_groups: int = 0
    sriov: tuple[Nic, ...] = ()
    vfio: Presence = "unknown"
    rdma_devices: tuple[str, ...] = ()
    rdma_mode: str = ""
    nri_socket: str = ""
    nri: str = "absent"
    kubelet: tuple[Folder, ...] = ()
    cdi: Folder = Folder("", exists=False, writable=False)
    cni_path: tuple[str, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    cgroup: int = 0
    user_namespaces: int = -1
    in_user_namespace: bool = False
