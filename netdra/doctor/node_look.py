"""Inspects a node: the kernel, and the files and sockets of the kubelet and the runtime. Changes nothing.

Called by `netdra doctor`. Asked as root, the kernel is asked for each kind of link in a network namespace that is gone
again at once (it may load the kind's module for that, as it would for a pod); otherwise its module lists are read.
"""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from netdra.chain import checkpoint
from netdra.chain.holders import held_hint
from netdra.cni import plugins as binaries
from netdra.cni import protocol
from netdra.cni.confined import ConfinedPrograms
from netdra.cni.errors import PluginError
from netdra.discovery.scan import scan
from netdra.doctor.diagnosis import number
from netdra.doctor.node_verdicts import (
    KINDS,
    HeldSandbox,
    InstalledPlugin,
    KeptPlugin,
    NodeFacts,
    NodeFolder,
    Presence,
    SriovNic,
    Trouble,
)
from netdra.kernel import link, mounts, rdma
from netdra.kernel.errors import KernelError
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import InvalidInputError, NetdraError, with_code
from netdra.model.inventory import Interface
from netdra.ops import descriptors
from netdra.ops.descriptors import Descriptors

MAX_PLUGINS = 64
CONNECT_SECONDS = 2.0
_IDENTITY_MAP = re.compile(r"\s*0\s+0\s+4294967295\s*")
_PLUGIN = re.compile(r"[a-z0-9][a-z0-9_.-]*", re.ASCII)


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are on the node; `root` is the folder that stands for `/`."""

    root: Path = Path("/")
    kubelet_root: Path = Path("/var/lib/kubelet")
    nri_socket: Path = Path("/var/run/nri/nri.sock")
    cdi_dir: Path = Path("/var/run/cdi")
    cni_path: tuple[Path, ...] = (Path("/opt/cni/bin"),)
    state_dir: Path = Path("/var/lib/netdra")

    def at(self, path: str | Path) -> Path:
        """A path of the node as this process sees it."""
        return self.root / str(path).lstrip("/")


def look(places: Places) -> NodeFacts:
    """All facts; what cannot be read is left as unknown.

    Raises:
        InvalidInputError: the node's root folder cannot be read at all.
    """
    try:
        next(places.root.iterdir(), None)
    except OSError as problem:
        raise InvalidInputError(
            f'the root folder of the node "{places.root}" cannot be read: {problem.strerror}',
            hint="run it as root on the node, or in the driver's pod with node.runPlugins",
            code="ND3096",
        ) from None
    interfaces = _interfaces()
    kinds = _probe_kinds()
    modules = Modules(places)
    sysfs = Sysfs(str(places.at("sys")))
    return NodeFacts(
        kernel=platform.release(),
        privileged=kinds is not None,
        kinds=kinds if kinds is not None else {kind: modules.presence(kind) for kind in KINDS},
        interfaces=-1 if interfaces is None else len(interfaces),
        iommu_groups=len(sysfs.listing("kernel/iommu_groups")),
        sriov=tuple(
            SriovNic(interface.if_name, interface.num_vfs, interface.total_vfs)
            for interface in interfaces or ()
            if interface.sriov_capable
        ),
        vfio="there" if sysfs.exists("bus/pci/drivers/vfio-pci") else modules.presence("vfio-pci"),
        rdma_devices=tuple(sorted(rdma.devices(sysfs))),
        rdma_mode=_rdma_mode(),
        nri_socket=str(places.nri_socket),
        nri=_answers(places.at(places.nri_socket)),
        kubelet=tuple(_folder(places, places.kubelet_root / name) for name in ("plugins", "plugins_registry")),
        cdi=_folder(places, places.cdi_dir),
        cni_path=tuple(map(str, places.cni_path)),
        plugins=tuple(_plugins(places)),
        kept_plugins=kept_plugins(places),
        held=_held(places),
        troubles=tuple(
            Trouble(with_code(trouble.what, trouble.code), trouble.hint)
            for trouble in (binaries.root_trouble(str(places.root)), mounts.sysctl_trouble())
            if trouble is not None
        ),
        cgroup=_cgroup(sysfs),
        user_namespaces=_number(places.at("proc/sys/user/max_user_namespaces")),
        descriptors=_descriptors(places),
        in_user_namespace=not _IDENTITY_MAP.fullmatch(_text(places.at("proc/self/uid_map")) or "0 0 4294967295"),
    )


def _held(places: Places) -> tuple[HeldSandbox, ...] | None:
    """The sandboxes that hold devices which are not what they were; None if the checkpoints cannot be read."""
    try:
        saved, _ = checkpoint.load_all(places.at(places.state_dir) / "sandboxes")
    except NetdraError:
        return None
    return tuple(_held_sandbox(one) for one in saved if one.held)


def _held_sandbox(saved: checkpoint.Saved) -> HeldSandbox:
    pod = saved.header.pod
    called = f"{pod.namespace}/{pod.name}" if pod.name else ""
    return HeldSandbox(pod.sandbox, called, "; ".join(saved.held.values()), held_hint(pod.sandbox))


def _interfaces() -> tuple[Interface, ...] | None:
    try:
        return scan().interfaces
    except NetdraError:
        return None


def _probe_kinds() -> dict[str, Presence] | None:
    """The kernel's own answer for each kind; None without the permission."""
    try:
        with Namespace.anonymous() as empty, empty.socket() as opened:
            return {kind: _probe(opened, kind) for kind in KINDS}
    except KernelError:
        return None


def _probe(opened: Socket, kind: str) -> Presence:
    """Make a link of the kind, of nothing: a kernel that has it misses what it stands on, others know no such type."""
    try:
        link.create(opened, "probe", kind)
    except KernelError as problem:
        return "absent" if problem.is_unsupported and problem.message in ("", "Unknown device type") else "there"
    with suppress(KernelError):
        link.delete(opened, "probe")
    return "there"


class Modules:
    """The kernel's modules: built in, loaded, or on disk; the lists use - and _ alike."""

    def __init__(self, places: Places) -> None:
        folder = places.at("lib/modules") / platform.release()
        self._present = _names(_text(folder / "modules.builtin")) | _names(_text(places.at("proc/modules")))
        self._loadable = _names(_text(folder / "modules.dep"))

    def presence(self, name: str) -> Presence:
        """Whether there is a module for a kind of link, or of that name."""
        wanted = {"bond": "bonding", "vlan": "8021q"}.get(name, name).replace("-", "_")
        if wanted in self._present:
            return "there"
        if wanted in self._loadable:
            return "loadable"
        return "absent" if self._loadable else "unknown"


def _names(text: str) -> set[str]:
    """The first word of each line as a module's name: `kernel/drivers/net/vlan.ko.xz: …` or `vlan 1 0 …`."""
    words = (line.split()[0].rstrip(":") for line in text.splitlines() if line.strip())
    return {word.rpartition("/")[2].partition(".ko")[0].replace("-", "_") for word in words}


def _rdma_mode() -> str:
    try:
        with rdma.open_socket() as opened:
            return rdma.netns_mode(opened)
    except KernelError:
        return ""


def _answers(path: Path) -> str:
    """Whether a socket takes connections: `listens`, `absent` or why not."""
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.settimeout(CONNECT_SECONDS)
            opened.connect(str(path))
    except FileNotFoundError:
        return "absent"
    except OSError as problem:
        return problem.strerror or str(problem)
    return "listens"


def _folder(places: Places, path: Path) -> NodeFolder:
    """Of a folder that is not there, or that this user cannot see, whether it could be made."""
    seen = places.at(path)
    nearest = next(entry for entry in (seen, *seen.parents) if os.access(entry, os.F_OK))
    exists = nearest == seen and seen.is_dir()
    return NodeFolder(str(path), exists=exists, writable=os.access(nearest, os.W_OK | os.X_OK))


def _plugins(places: Places) -> Iterator[InstalledPlugin]:
    where = binaries.PluginPath(directories=tuple(map(str, places.cni_path)), root=str(places.root))
    names: set[str] = set()
    for folder in places.cni_path:
        with suppress(OSError):
            names |= {path.name for path in places.at(folder).iterdir() if _PLUGIN.fullmatch(path.name)}
    with closing(ConfinedPrograms()) as confined:
        for name in sorted(names)[:MAX_PLUGINS]:
            try:
                versions = protocol.supported_versions(binaries.find(name, where), confined=confined)
            except PluginError as problem:
                if problem.failure.kind != "missing":  # ignore files that are not programs, such as a licence
                    yield InstalledPlugin(name, "", problem.what)
                continue
            yield InstalledPlugin(name, max(versions, key=number, default=""))


def kept_plugins(places: Places) -> tuple[KeptPlugin, ...]:
    """The plugins that netdra installed, and whether the pods of their CNIPlugins run here."""
    kept = _kept_here(places)
    found = []
    for folder in places.cni_path:
        with suppress(OSError):
            names = sorted(path.name for path in places.at(folder / binaries.STORE).iterdir())
            for name in filter(binaries.is_name, names[:MAX_PLUGINS]):
                keeper: Literal["running", "absent", "unknown"] = "unknown"
                if kept is not None:
                    keeper = "running" if name in kept else "absent"
                found.append(KeptPlugin(name, str(folder), keeper))
    return tuple(found)


def _kept_here(places: Places) -> set[str] | None:
    """The plugins that processes of this node keep; None if not all of its processes can be seen."""
    # The kernel's own threads are in no process namespace but the node's.
    if _text(places.at("proc/2/comm")).strip() != "kthreadd":
        return None
    return {
        name
        for process in places.at("proc").glob("[0-9]*")
        for command, verb, name in _triples(_text(process / "cmdline").split("\0"))
        if (command, verb) == ("cni-plugin", "install")
    }


def _triples(words: list[str]) -> Iterator[tuple[str, str, str]]:
    return zip(words, words[1:], words[2:], strict=False)


def _descriptors(places: Places) -> Descriptors | None:
    """The descriptors of the node's daemon; None if none runs here, or this user may not inspect it."""
    for process in sorted(places.at("proc").glob("[0-9]*")):
        words = _text(process / "cmdline").split("\0")
        if any(word.rpartition("/")[2] == "netdra" and then == "node" for word, then in pairwise(words)):
            return descriptors.read(process)
    return None


def _cgroup(sysfs: Sysfs) -> int:
    if sysfs.exists("fs/cgroup/cgroup.controllers"):
        return 2
    return 1 if sysfs.listing("fs/cgroup") else 0


def _number(path: Path) -> int:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else -1


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
