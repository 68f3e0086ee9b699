"""Namespaces come, can be worked in from any thread, and go with their contents."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from netdra.kernel import link, netns
from netdra.kernel.errors import KernelExistsError, KernelMissingError
from netdra.kernel.monitor import LinkEvent, Monitor
from netdra.kernel.netns import Namespace
from netdra.model.errors import InvalidInputError
from tests.kernel.conftest import Machine


def test_iproute2_knows_a_named_namespace_and_its_deletion() -> None:
    name = f"netdra-test-{uuid.uuid4().hex[:8]}"
    with Namespace.create(name) as made:
        try:
            listed = subprocess.run(("ip", "netns", "list"), capture_output=True, text=True, check=True).stdout
            assert name in listed.split()
            assert name in netns.names()
            with Namespace.open(made.path) as opened:
                assert opened.inode == made.inode
            with pytest.raises(KernelExistsError):
                Namespace.create(name)
        finally:
            netns.delete(name)
    assert not Path(made.path).exists()
    with pytest.raises(KernelMissingError):
        netns.delete(name)
    with pytest.raises(KernelMissingError):
        Namespace.open(made.path)


def test_work_is_done_inside_while_the_caller_stays_outside(machine: Machine) -> None:
    with Namespace.current() as here:
        inside = machine.namespace.run(lambda: Path("/proc/thread-self/ns/net").stat().st_ino)
        assert inside == machine.namespace.inode != here.inode
        with Namespace.current() as still:
            assert still.inode == here.inode


def test_a_thread_visits_by_itself_and_is_back_after_errors_too(machine: Machine) -> None:
    seen: list[object] = []

    def own() -> tuple[int, int]:
        return threading.get_ident(), os.stat("/proc/thread-self/ns/net").st_ino  # noqa: PTH116

    def fail() -> None:
        raise InvalidInputError("inside")

    def visit() -> None:
        outside = own()
        seen.append(machine.namespace.visit(own) == (outside[0], machine.namespace.inode))
        with pytest.raises(InvalidInputError, match="inside"):
            machine.namespace.visit(fail)
        seen.append(own() == outside)

    thread = threading.Thread(target=visit)
    thread.start()
    thread.join()
    assert seen == [True, True]


def test_the_main_thread_stays_outside_on_a_visit(machine: Machine) -> None:
    assert machine.namespace.visit(threading.get_ident) != threading.get_ident()


def test_a_thread_that_cannot_come_back_is_the_end_of_the_process() -> None:
    program = """
import threading
from netdra.kernel import libc, netns
from netdra.kernel.errors import KernelError

def stay():
    def refuse(*_):
        raise KernelError(1, "cannot enter a namespace")
    libc.setns = refuse

with netns.Namespace.anonymous() as space:
    thread = threading.Thread(target=space.visit, args=(stay,))
    thread.start()
    thread.join()
print("went on")
"""
    ended = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (70, "")
    assert "cannot leave a pod's network namespace" in ended.stderr


def test_sysctls_written_inside_are_the_namespaces_own(machine: Machine) -> None:
    file = Path("/proc/sys/net/ipv4/conf/all/arp_ignore")
    before = file.read_text()
    machine.namespace.run(lambda: file.write_text("2"))
    assert machine.namespace.run(file.read_text) == "2\n"
    assert file.read_text() == before


def test_a_socket_stays_in_its_namespace(machine: Machine) -> None:
    machine.veth("a", "b")
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(each.name for each in link.dump(machine.sock)))
    thread.start()
    thread.join()
    assert set(found) == {"lo", "a", "b"}


def test_an_error_inside_a_namespace_is_raised_and_later_work_runs_in_its_own_namespace(machine: Machine) -> None:
    def fail() -> None:
        raise InvalidInputError("inside")

    with pytest.raises(InvalidInputError, match="inside"):
        machine.namespace.run(fail)
    with Namespace.anonymous() as another:
        assert another.run(lambda: os.stat("/proc/thread-self/ns/net").st_ino) == another.inode  # noqa: PTH116


def test_an_anonymous_namespace_is_gone_when_it_is_closed(machine: Machine) -> None:
    with machine.namespace.run(Monitor) as monitor:
        with Namespace.anonymous() as namespace:
            machine.veth("a", "b", peer_in=namespace)
        # The kernel takes a namespace down in its own time; the end of the veth pair tells.
        gone: set[str] = set()
        while "a" not in gone:
            assert select.select([monitor], [], [], 60)[0], "the namespace still holds the veth's peer"
            gone |= {each.link.name for each in monitor.read() if isinstance(each, LinkEvent) and each.gone}
    assert link.find(machine.sock, "a") is None


def test_without_root_a_user_namespace_has_namespaces_with_names() -> None:
    program = """
import ctypes, os
from netdra.kernel import netns, link, kinds
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: /proc/self belongs to root otherwise, since no program was started
netns.enter_user_namespace()
with netns.Namespace.create("pod") as pod, pod.socket() as sock:
    link.create(sock, "a", "veth", kinds.veth(kinds.Peer("b")), up=True)
    print(os.geteuid(), netns.names(), sorted(each.name for each in link.dump(sock)))
    netns.delete("pod")
"""
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() == "0 ('pod',) ['a', 'b', 'lo']"


@pytest.mark.parametrize("name", ["", "..", "a/b"])
def test_names_that_are_paths_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a valid name of a network namespace"):
        Namespace.create(name)


def test_a_path_leads_to_a_namespace_only_while_one_is_mounted_on_it(machine: Machine, tmp_path: Path) -> None:
    path = f"{netns.NAMED}/{machine.name}"
    assert netns.inode_at(path) == machine.namespace.inode
    assert netns.inode_at() == netns.inode_at("/proc/self/ns/net") != machine.namespace.inode
    assert machine.namespace.run(netns.inode_at) == machine.namespace.inode
    assert netns.inode_at(f"/proc/self/fd/{machine.namespace.fd}") == machine.namespace.inode
    left = tmp_path / "left"
    left.touch()
    for nothing in (left, tmp_path / "missing", tmp_path):
        assert netns.inode_at(str(nothing)) == 0


def test_namespace_file_times_follow_creation_order_and_do_not_change(machine: Machine) -> None:
    path = f"{netns.NAMED}/{machine.name}"
    first = netns.status_at(path)
    assert first is not None
    made: list[int] = []
    # The clock of files ticks every few milliseconds.
    while not made or made[-1] == first.st_mtime_ns:
        name = f"netdra-test-{uuid.uuid4().hex[:8]}"
        with Namespace.create(name):
            found = netns.status_at(f"{netns.NAMED}/{name}")
            assert found is not None
            made.append(found.st_mtime_ns)
            netns.delete(name)
    assert made == sorted(made)
    assert made[-1] > first.st_mtime_ns
    again = netns.status_at(path)
    assert again is not None
    assert again.st_mtime_ns == first.st_mtime_ns
