"""The checks of a node: one finding each, with the next step. Pure.

The facts are filled by `node_look`; `verdicts` is called by `netdra doctor`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Literal

import msgspec

from netdra.doctor.diagnosis import Diagnosis, diagnose, number
from netdra.ops.descriptors import Descriptors

Presence = Literal["there", "loadable", "absent", "unknown"]
"""Of a part of the kernel: in it now, a module that can be loaded, not there, or unknown."""

KINDS: Mapping[str, str] = {
    "bond": "the step bond",
    "vlan": "the step vlan",
    "macvlan": "CNI plugin macvlan",
    "ipvlan": "CNI plugin ipvlan",
    "bridge": "CNI plugin bridge",
    "veth": "CNI plugins bridge and ptp",
    "vrf": "the step vrf",
    "vxlan": "overlays",
    "dummy": "CNI plugin dummy",
    "ifb": "CNI plugin bandwidth",
    "tun": "CNI plugin tap",
}
"""Kinds of links, and what needs them."""

NEWEST_NEEDED = (0, 4, 0)
"""CNI 0.4.0 brought CHECK; an older plugin can be run and not be checked."""


_finding = partial(diagnose, "node")


class NodeFolder(msgspec.Struct, frozen=True):
    """A folder that a process writes to: whether it exists, and whether this process may write there."""

    path: str
    exists: bool
    writable: bool


class SriovNic(msgspec.Struct, frozen=True):
    """A NIC that can make VFs."""

    name: str
    vfs: int
    total: int


class InstalledPlugin(msgspec.Struct, frozen=True):
    """A CNI plugin's binary: the newest version of the specification that it speaks, "" if it does not answer."""

    name: str
    version: str
    problem: str = ""


class KeptPlugin(msgspec.Struct, frozen=True):
    """A CNI plugin that netdra installed.

    Attributes:
        name: its name.
        folder: the folder that it is in.
        keeper: whether the process of its CNIPlugin's pod runs on this node.
    """

    name: str
    folder: str
    keeper: Literal["running", "absent", "unknown"]


class HeldSandbox(msgspec.Struct, frozen=True):
    """A sandbox that has ended and holds a device: how the device differs from its former state, and how to fix it."""

    sandbox: str
    pod: str
    differences: str
    fix: str


class Trouble(msgspec.Struct, frozen=True):
    """Something that this process cannot do, and how it could."""

    seen: str
    fix: str


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
        rdma_mode: shared, exclusive, or "" if unknown.
        nri_socket: its path.
        nri: listens; absent; or why it does not answer.
        kubelet: the folders in which drivers meet the kubelet.
        cdi: where CDI files are written.
        cni_path: where CNI plugins are searched for.
        plugins: what is there.
        kept_plugins: those that netdra installed.
        held: the sandboxes that hold devices; None if the checkpoints cannot be read.
        troubles: what this process cannot do in the container that it is in.
        cgroup: 1, 2, or 0 for none.
        user_namespaces: how many may be made, -1 if unknown.
        in_user_namespace: whether this process is in one of its own.
        descriptors: those of netdra's daemon; None if it does not run, or may not be inspected.
    """

    kernel: str = ""
    privileged: bool = False
    kinds: Mapping[str, Presence] = {}
    interfaces: int = -1
    iommu_groups: int = 0
    sriov: tuple[SriovNic, ...] = ()
    vfio: Presence = "unknown"
    rdma_devices: tuple[str, ...] = ()
    rdma_mode: str = ""
    nri_socket: str = ""
    nri: str = "absent"
    kubelet: tuple[NodeFolder, ...] = ()
    cdi: NodeFolder = NodeFolder("", exists=False, writable=False)
    cni_path: tuple[str, ...] = ()
    plugins: tuple[InstalledPlugin, ...] = ()
    kept_plugins: tuple[KeptPlugin, ...] = ()
    held: tuple[HeldSandbox, ...] | None = ()
    troubles: tuple[Trouble, ...] = ()
    cgroup: int = 0
    user_namespaces: int = -1
    in_user_namespace: bool = False
    descriptors: Descriptors | None = None


def verdicts(facts: NodeFacts) -> list[Diagnosis]:
    """All findings about a node, in the order of `netdra doctor`."""
    return [
        _rights(facts),
        _interfaces(facts),
        *_kinds(facts),
        _sriov(facts),
        _iommu(facts),
        _vfio(facts),
        _rdma(facts),
        _nri(facts),
        *_kubelet(facts),
        _cdi(facts),
        *_plugins(facts),
        *_kept_plugins(facts),
        *_held(facts),
        *_troubles(facts),
        *_descriptors(facts),
        _cgroup(facts),
        _user_namespaces(facts),
    ]


def _rights(facts: NodeFacts) -> Diagnosis:
    if facts.privileged:
        return _finding("rights", "ok", f"Linux {facts.kernel}, checked as root")
    seen = f"Linux {facts.kernel}, not checked as root: link kinds are only known from module lists"
    return _finding(
        "rights", "warning", seen, "run netdra doctor as root, or in netdra's own pod on the node", code="ND2320"
    )


def _interfaces(facts: NodeFacts) -> Diagnosis:
    if facts.interfaces < 0:
        return _finding(
            "interfaces",
            "error",
            "cannot be listed",
            "netdra requires rtnetlink; check that this is an unsandboxed Linux",
            code="ND2321",
        )
    return _finding("interfaces", "ok", f"{facts.interfaces} in this network namespace")


def _kinds(facts: NodeFacts) -> Iterator[Diagnosis]:
    by_presence = {
        presence: [kind for kind in KINDS if facts.kinds.get(kind, "unknown") == presence]
        for presence in ("there", "loadable", "unknown")
    }
    usable = [*by_presence["there"], *(f"{kind} (module)" for kind in by_presence["loadable"])]
    if usable:
        yield _finding("link kinds", "ok", ", ".join(usable))
    if by_presence["unknown"]:
        yield _finding(
            "link kinds",
            "warning",
            f"unknown: {', '.join(by_presence['unknown'])}",
            "run netdra doctor as root",
            code="ND2322",
        )
    for kind, needed in KINDS.items():
        if facts.kinds.get(kind) == "absent":
            fix = f"install the kernel's module: modprobe rtnl-link-{kind} (RHEL: kernel-modules-extra)"
            yield _finding(
                f"link kind {kind}", "warning", f"not supported by this kernel; {needed} will fail", fix, code="ND2323"
            )


def _sriov(facts: NodeFacts) -> Diagnosis:
    if not facts.sriov:
        return _finding("SR-IOV", "ok", "no NIC supports VFs")
    seen = ", ".join(f"{nic.name} {nic.vfs} of {nic.total} VFs" for nic in facts.sriov)
    idle = [nic.name for nic in facts.sriov if not nic.vfs]
    if idle:
        fix = "; ".join(f"echo N >/sys/class/net/{name}/device/sriov_numvfs" for name in idle)
        why = "to offer VFs to pods, create them while the NIC is not in use, because its link may go down for a moment"
        return _finding("SR-IOV", "warning", seen, f"{why}: {fix}", code="ND2324")
    return _finding("SR-IOV", "ok", seen)


def _iommu(facts: NodeFacts) -> Diagnosis:
    if facts.iommu_groups:
        return _finding("IOMMU", "ok", f"{facts.iommu_groups} groups")
    fix = "enable it in the firmware, and boot with intel_iommu=on iommu=pt (AMD: enabled by default)"
    return _finding("IOMMU", "warning", "no groups: vfio-pci cannot be used", fix, code="ND2325")


def _vfio(facts: NodeFacts) -> Diagnosis:
    if facts.vfio in ("there", "loadable"):
        return _finding("vfio-pci", "ok", "there" if facts.vfio == "there" else "available as a module")
    seen = "unknown" if facts.vfio == "unknown" else "not supported by this kernel; the step vfio-pci will fail"
    return _finding("vfio-pci", "warning", seen, "modprobe vfio-pci", code="ND2326")


def _rdma(facts: NodeFacts) -> Diagnosis:
    if not facts.rdma_devices:
        return _finding("RDMA", "ok", "no devices")
    seen = f"{', '.join(facts.rdma_devices)}; namespace mode {facts.rdma_mode or 'unknown'}"
    if facts.rdma_mode == "exclusive":
        return _finding("RDMA", "ok", seen)
    why = "every pod sees all RDMA devices" if facts.rdma_mode else "run as root to find out"
    fix = "before any pod runs: rdma system set netns exclusive (permanently: options ib_core netns_mode=0)"
    return _finding("RDMA", "warning", f"{seen}: {why}", fix, code="ND2327")


def _nri(facts: NodeFacts) -> Diagnosis:
    if facts.nri == "listens":
        return _finding("NRI", "ok", f"{facts.nri_socket} accepts connections")
    fix = (
        "containerd 2: on by default; 1.7: [plugins.'io.containerd.nri.v1.nri'] disable = false; "
        "CRI-O from 1.30: on by default; before: [crio.nri] enable_nri = true"
    )
    what = "does not exist" if facts.nri == "absent" else f"does not answer: {facts.nri}"
    return _finding(
        "NRI", "error", f"{facts.nri_socket} {what}; networks cannot be attached to pods", fix, code="ND2328"
    )


def _kubelet(facts: NodeFacts) -> Iterator[Diagnosis]:
    for folder in facts.kubelet:
        if not folder.exists:
            fix = "check that this is the kubelet's --root-dir (--kubelet-root)"
            yield _finding("kubelet", "error", f"{folder.path} does not exist", fix, code="ND2329")
        elif not folder.writable:
            yield _unwritable("kubelet", folder, facts)
        else:
            yield _finding("kubelet", "ok", folder.path)


def _unwritable(check: str, folder: NodeFolder, facts: NodeFacts) -> Diagnosis:
    """The finding of a folder in which this process cannot write; root can, but on a read-only file system."""
    if facts.privileged:
        seen = f"{folder.path} cannot be written, not even by root"
        return _finding(
            check, "error", seen, f"check whether its filesystem is read-only: findmnt -T {folder.path}", code="ND2330"
        )
    return _finding(
        check, "warning", f"{folder.path} cannot be written by this user", "run netdra doctor as root", code="ND2331"
    )


def _cdi(facts: NodeFacts) -> Diagnosis:
    folder = facts.cdi
    if folder.exists and folder.writable:
        return _finding("CDI", "ok", folder.path)
    if not folder.exists and folder.writable:
        return _finding("CDI", "ok", f"{folder.path} does not exist yet; netdra creates it")
    return _unwritable("CDI", folder, facts)


def _plugins(facts: NodeFacts) -> Iterator[Diagnosis]:
    where = ":".join(facts.cni_path)
    if not facts.plugins:
        seen = f"none in {where}; netdra's own steps do not need any"
        yield _finding(
            "CNI plugins",
            "warning",
            seen,
            "install the containernetworking plugins there, or set --cni-path",
            code="ND2332",
        )
        return
    answering = [f"{plugin.name} {plugin.version}" for plugin in facts.plugins if plugin.version]
    if answering:
        yield _finding("CNI plugins", "ok", f"{where}: {', '.join(answering)}")
    for plugin in facts.plugins:
        if not plugin.version:
            seen = plugin.problem or "does not answer VERSION"
            fix = f"if topologies use it, install a working {plugin.name}; the pod network may need this one"
            yield _finding(f"CNI plugin {plugin.name}", "warning", seen, fix, code="ND2333")
        elif number(plugin.version) < NEWEST_NEEDED:
            seen = f"supports CNI {plugin.version} at most, which does not define CHECK"
            fix = f"if topologies use it, install a newer {plugin.name}"
            yield _finding(f"CNI plugin {plugin.name}", "warning", seen, fix, code="ND2334")


def _kept_plugins(facts: NodeFacts) -> Iterator[Diagnosis]:
    """A plugin whose CNIPlugin is gone is never removed: netdra was uninstalled by force."""
    for plugin in facts.kept_plugins:
        check = f"CNI plugin {plugin.name}"
        match plugin.keeper:
            case "running":
                yield _finding(check, "ok", f"installed by netdra in {plugin.folder}, and maintained by a pod")
            case "unknown":
                seen = f"installed by netdra in {plugin.folder}; it is unknown whether a pod maintains it"
                yield _finding(check, "ok", seen)
            case "absent":
                seen = f"installed by netdra in {plugin.folder}, but no pod of a CNIPlugin maintains it"
                fix = (
                    f"if CNIPlugin {plugin.name} no longer exists, remove it: netdra cni-plugin remove "
                    f"{plugin.name} --cni-folder {plugin.folder}"
                )
                yield _finding(check, "warning", seen, fix, code="ND2335")


def _held(facts: NodeFacts) -> Iterator[Diagnosis]:
    if facts.held is None:
        fix = "run as root on the node, and set --state-dir to the directory of netdra node"
        yield _finding("held devices", "warning", "the checkpoints cannot be read", fix, code="ND2336")
    for held in facts.held or ():
        pod = f' of pod "{held.pod}"' if held.pod else ""
        seen = f"sandbox {held.sandbox}{pod}: {held.differences}"
        yield _finding("held devices", "warning", seen, held.fix, code="ND2337")


def _troubles(facts: NodeFacts) -> Iterator[Diagnosis]:
    for trouble in facts.troubles:
        yield _finding("container", "error", trouble.seen, trouble.fix)


def _descriptors(facts: NodeFacts) -> Iterator[Diagnosis]:
    if facts.descriptors is None:
        return
    seen = f"netdra's daemon uses {facts.descriptors.used} of {facts.descriptors.limit}"
    if not facts.descriptors.is_short:
        yield _finding("file descriptors", "ok", seen)
        return
    fix = "raise the limit of open files (LimitNOFILE of the container runtime's service), and restart the daemon"
    yield _finding(
        "file descriptors", "warning", f"{seen}: without an unused one, pods cannot be attached", fix, code="ND2338"
    )


def _cgroup(facts: NodeFacts) -> Diagnosis:
    if facts.cgroup == 2:
        return _finding("cgroup", "ok", "version 2")
    if not facts.cgroup:
        return _finding("cgroup", "warning", "not mounted on /sys/fs/cgroup", "mount cgroup2 there", code="ND2339")
    fix = "boot with systemd.unified_cgroup_hierarchy=1; until then, the kubelet needs failCgroupV1: false"
    return _finding(
        "cgroup", "warning", "version 1, which the kubelet rejects by default since 1.35", fix, code="ND2340"
    )


def _user_namespaces(facts: NodeFacts) -> Diagnosis:
    inside = "; this process runs in a nested one" if facts.in_user_namespace else ""
    if facts.user_namespaces > 0:
        return _finding("user namespaces", "ok", f"up to {facts.user_namespaces}{inside}")
    seen = "unknown" if facts.user_namespaces < 0 else "not allowed"
    fix = "sysctl -w user.max_user_namespaces=15000"
    return _finding(
        "user namespaces", "warning", f"{seen}: pods with hostUsers: false cannot run{inside}", fix, code="ND2341"
    )
