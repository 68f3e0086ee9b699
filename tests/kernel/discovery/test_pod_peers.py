"""The host's end of a pod's veth or netkit pair is used by the host; that of a pair into any other namespace is not."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from netdra.discovery import live
from netdra.discovery.scan import scan
from netdra.discovery.watch import Watcher
from netdra.kernel import libc, link, netns, pod_namespaces, uapi
from netdra.kernel.errors import KernelError, kernel_error
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.model.inventory import Inventory, InventoryNode
from testbed.node import make_cgroups, remove_cgroups
from testbed.waiting import until
from tests.kernel.conftest import Machine, new_machine
from tests.wires import named

NODE = InventoryNode(name="worker-1")
POD = ("pod-peer",)


def scanned(machine: Machine) -> Inventory:
    with machine.namespace.run(live.Kernel) as kernel:
        return scan(NODE, kernel, settle=0.0)


def used(inventory: Inventory) -> dict[str, tuple[str, ...]]:
    return {each.if_name: each.host_use for each in inventory.interfaces if each.host_use}


@pytest.fixture
def watcher(machine: Machine) -> Iterator[Watcher]:
    with machine.namespace.run(lambda: Watcher(NODE, settle=0.0)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("cni-{}", {"wire": POD}),  # containerd
        ("{}", {"wire": POD}),  # CRI-O
        ("qrouter-{}", {}),
        ("netdra-demo-{}", {}),
        ("cni-{}-old", {}),
    ],
)
def test_a_namespace_is_a_pods_by_the_name_that_its_runtime_gives_it(
    machine: Machine, name: str, use: dict[str, tuple[str, ...]]
) -> None:
    with contextlib.contextmanager(new_machine)(name.format(uuid.uuid4())) as other:
        machine.veth("wire", "eth0", peer_in=other.namespace)
        assert used(scanned(machine)) == use


def test_a_peer_in_an_unnamed_namespace_is_not_a_pod_peer(machine: Machine, pod: Machine) -> None:
    """A node that is a container, as those of kind, has NICs whose other ends are in its machine's namespace."""
    with Namespace.anonymous() as outside:
        machine.veth("eth0", "outer", peer_in=outside)
        machine.veth("wire", "eth0", peer_in=pod.namespace)
        assert used(scanned(machine)) == {"wire": POD}


@contextlib.contextmanager
def container(namespace: Namespace, cgroup: str) -> Iterator[int]:
    """A process in a namespace and in a cgroup of that name, as the kubelet's pods are in one below "kubepods"."""
    path = f"/proc/self/fd/{namespace.fd}"
    with subprocess.Popen(("nsenter", f"--net={path}", "sleep", "600"), pass_fds=(namespace.fd,)) as process:
        groups = make_cgroups(f"{cgroup}-{os.getpid()}")
        try:
            inside = f"/proc/{process.pid}/ns/net"
            until(lambda: netns.inode_at(inside) == namespace.inode, "the process to be inside")
            for group in groups:
                (group / "cgroup.procs").write_text(str(process.pid))
            yield process.pid
        finally:
            process.kill()
            process.wait()
            remove_cgroups(groups)


def test_the_wire_of_a_pod_whose_namespace_has_lost_its_name_stays_a_pods(
    machine: Machine, other: Machine, watcher: Watcher
) -> None:
    with Namespace.anonymous() as pod, container(pod, "kubepods"):
        with named(pod, f"cni-{uuid.uuid4()}"):
            machine.veth("wire", "eth0", peer_in=pod)
            watcher.handle()
            assert used(watcher.inventory) == {"wire": POD}
        machine.veth("next", "eth0", peer_in=other.namespace)
        watcher.handle()
        assert used(watcher.inventory) == used(scanned(machine)) == {"wire": POD}


def test_a_namespace_without_a_name_is_a_pods_while_a_process_of_a_pod_is_in_it(machine: Machine) -> None:
    with Namespace.anonymous() as space:
        machine.veth("wire", "eth0", peer_in=space)
        number, pods = pod_namespaces.id_of(machine.sock, space.fd), pod_namespaces.PodNamespaces()
        with container(space, "machine"):
            assert number not in pod_namespaces.ids(machine.sock)
        with container(space, "kubepods"):
            assert number in pods.ids(machine.sock)
            with named(space, f"cni-{uuid.uuid4()}"):
                assert number in pods.ids(machine.sock)
            assert number in pods.ids(machine.sock)
        assert number not in pods.ids(machine.sock)


def _made_far(machine: Machine, pod: Machine) -> None:
    machine.veth("wire", "eth0", peer_in=pod.namespace)


def _peer_moved(machine: Machine, pod: Machine) -> None:
    machine.veth("wire", "there")
    link.change(machine.sock, "there", netns_fd=pod.namespace.fd)


def _host_end_moved(machine: Machine, pod: Machine) -> None:
    pod.veth("wire", "eth0")
    link.change(pod.sock, "wire", netns_fd=machine.namespace.fd)


@pytest.mark.parametrize("wired", [_made_far, _peer_moved, _host_end_moved])
def test_a_pods_wire_is_followed_however_a_plugin_makes_it(
    machine: Machine, pod: Machine, watcher: Watcher, wired: Callable[[Machine, Machine], None]
) -> None:
    wired(machine, pod)
    watcher.handle()
    assert used(watcher.inventory) == used(scanned(machine)) == {"wire": POD}
    assert watcher.rescans == 0


def test_a_peer_that_moves_after_the_watcher_has_read_both_ends(
    machine: Machine, pod: Machine, watcher: Watcher
) -> None:
    machine.veth("wire", "there")
    watcher.handle()
    assert used(watcher.inventory) == {}
    link.change(machine.sock, "there", netns_fd=pod.namespace.fd)
    assert watcher.handle()
    assert used(watcher.inventory) == {"wire": POD}
    link.change(pod.sock, "there", netns_fd=machine.namespace.fd)
    assert watcher.handle()
    assert used(watcher.inventory) == {}
    assert watcher.rescans == 0


def test_a_namespace_with_the_reused_id_of_a_deleted_pod_is_not_a_pod_namespace(
    machine: Machine, watcher: Watcher
) -> None:
    """The kernel gives the id of a namespace that is gone to the next one."""
    with contextlib.contextmanager(new_machine)(f"cni-{uuid.uuid4()}") as pod:
        machine.veth("wire", "eth0", peer_in=pod.namespace)
        watcher.handle()
        assert used(watcher.inventory) == {"wire": POD}
        link.delete(machine.sock, "wire")
    with contextlib.contextmanager(new_machine)() as router:
        machine.veth("port", "eth0", peer_in=router.namespace)
        watcher.handle()
        assert used(watcher.inventory) == {}


def test_of_250_pods_each_is_asked_once(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    folder = str(tmp_path)
    request.addfinalizer(lambda: libc.umount(folder))
    for number in range(250):
        name = f"cni-{uuid.uuid4()}"
        with Namespace.create(name, folder) as space:
            request.addfinalizer(partial(netns.delete, name, folder))
            machine.veth(f"w{number}", "eth0", peer_in=space)
    ids = {netdev.peer_netns for netdev in link.dump(machine.sock) if netdev.kind == "veth"}
    asked = []
    ask = pod_namespaces.id_of

    def counted(sock: Socket, descriptor: int) -> int:
        asked.append(descriptor)
        return ask(sock, descriptor)

    monkeypatch.setattr(pod_namespaces, "id_of", counted)
    pods = pod_namespaces.PodNamespaces(folder)
    for _ in range(3):
        assert pods.ids(machine.sock) == ids
        assert len(asked) == len(ids) == 250


def test_where_pods_namespaces_cannot_be_read_the_use_is_unknown_until_they_can(
    machine: Machine, pod: Machine, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise kernel_error(errno.EMFILE, "cannot open")

    with monkeypatch.context() as patched:
        patched.setattr(pod_namespaces, "id_of", refuse)
        machine.veth("wire", "eth0", peer_in=pod.namespace)
        machine.veth("a", "b")
        watcher.handle()
        (wire,) = [each for each in watcher.inventory.interfaces if each.unreadable]
        assert (wire.if_name, wire.unreadable) == ("wire", ("host_use",))
        assert watcher.inventory.unreadable == {"hostUse: EMFILE": 1}
        assert watcher.stale
        with pytest.raises(KernelError, match="EMFILE"):
            pod_namespaces.ids(machine.sock)
    watcher.rescan()
    assert watcher.inventory.unreadable == {}
    assert used(watcher.inventory) == {"wire": POD}


def test_a_file_without_a_mounted_namespace_is_not_a_pod_namespace(
    machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A runtime makes the file first, and mounts the namespace on it then."""
    folder = tmp_path_factory.mktemp("netns")
    (folder / f"cni-{uuid.uuid4()}").touch()
    assert pod_namespaces.ids(machine.sock, str(folder)) == frozenset()
    assert pod_namespaces.ids(machine.sock, str(folder / "missing")) == frozenset()


def test_an_id_is_the_one_that_links_carry(machine: Machine, other: Machine) -> None:
    assert pod_namespaces.id_of(machine.sock, other.namespace.fd) == -1
    machine.veth("wire", "eth0", peer_in=other.namespace)
    assert pod_namespaces.id_of(machine.sock, other.namespace.fd) == link.get(machine.sock, "wire").lower_netns
    with pytest.raises(KernelError):
        machine.sock.request(uapi.RTM_GETNSID, b"\0\0\0\0", doing="ask nothing")
