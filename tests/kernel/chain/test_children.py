"""A pod receives nothing from a device that it had: its links on the device end with its use, in any namespace."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.chain import holders, returned
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.report import AttachError, DetachReport
from netdra.chain.returned import Examination
from netdra.kernel import children, kinds, link, netns
from netdra.kernel.netlink import attribute, u32
from netdra.kernel.netns import Namespace
from netdra.kernel.reachable import Reachable
from netdra.model.errors import NetdraError, TemporaryError
from netdra.model.plan import Plan
from netdra.ops import files
from tests.kernel.chain.conftest import Bed, device, recorder
from tests.plans import attach, plan, step

EVERYBODY = "ffffffffffff"
PROTOCOL = 0x88B5  # for experiments
SECONDS = 30.0


def macvlan(mode: int) -> bytes:
    return attribute(1, u32(mode))


PRIVATE, VEPA, BRIDGE, PASSTHRU = 1, 2, 4, 8


@pytest.fixture
def nic(bed: Bed) -> Bed:
    bed.veth("eth7", "peer7", up=True)
    bed.run("ip", "link", "set", "peer7", "up")
    attach(mine(), bed.container, bed.pod.path, bed.settings)
    return bed


@pytest.fixture
def elsewhere(bed: Bed) -> Iterator[Namespace]:
    with named(bed, "x") as space:
        yield space


@contextmanager
def named(bed: Bed, suffix: str) -> Iterator[Namespace]:
    name = f"{Path(bed.pod.path).name}-{suffix}-{uuid.uuid4().hex[:4]}"
    with Namespace.create(name) as space:
        try:
            yield space
        finally:
            with suppress(Exception):
                netns.delete(name)


def mine(**facts: object) -> tuple[Plan, ...]:
    return (plan(step("nic", "host-device", "net1", device=device("eth7", **facts))),)


def put(space: Namespace, into: Namespace, name: str = "spy0", lower: str = "net1", mode: int = BRIDGE) -> None:
    """Make a macvlan right in another namespace: the device's has no id for that."""
    with space.socket() as sock:
        below = link.get(sock, lower).index
        link.create(sock, name, "macvlan", macvlan(mode), lower=below, netns_fd=into.fd)
    with into.socket() as sock:
        link.change(sock, name, up=True)


def moved(space: Namespace, move: Callable[[str], None], mode: int = BRIDGE) -> None:
    """Make a macvlan in the device's namespace, and move it away."""
    with space.socket() as sock:
        link.create(sock, "spy0", "macvlan", macvlan(mode), lower=link.get(sock, "net1").index)
    move("spy0")


def names(space: Namespace) -> set[str]:
    with space.socket() as sock:
        return {entry.name for entry in link.dump(sock)} - {"lo"}


def undone(bed: Bed) -> DetachReport:
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_clean
    return report


def examined(bed: Bed) -> Examination:
    examination = returned.examine(bed.settings.state, SECONDS)
    assert examination.complete
    return examination


def marks(bed: Bed) -> list[str]:
    return [path.name for path in (bed.settings.state / holders.RETURNED).iterdir() if path.suffix != ".json"]


def listener(space: Namespace, name: str) -> socket.socket:
    """A socket that hears all that a link receives."""

    def opened() -> socket.socket:
        heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(PROTOCOL))
        heard.bind((name, PROTOCOL))
        heard.settimeout(5)
        return heard

    return space.run(opened)


def send(space: Namespace, name: str, to: str, text: bytes) -> None:
    def sent() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
            out.bind((name, 0))
            sender: bytes = out.getsockname()[4]
            out.send(bytes.fromhex(to) + sender + PROTOCOL.to_bytes(2, "big") + text.ljust(60, b"."))

    space.run(sent)


def mac(space: Namespace, name: str) -> str:
    with space.socket() as sock:
        return link.get(sock, name).address.replace(":", "")


@contextmanager
def next_tenant(bed: Bed) -> Iterator[Namespace]:
    """The pod that has the device next."""
    pod = PodIdentity(sandbox=f"{bed.container.sandbox}-next", name="q", namespace="victim", uid="u2")
    with named(bed, "next") as space:
        attach(mine(), pod, space.path, bed.settings)
        yield space
        assert detach(pod.sandbox, bed.settings).is_clean


def by_name(bed: Bed, to: Namespace) -> None:
    bed.run("ip", "link", "set", "spy0", "netns", Path(to.path).name, inside=True)


def by_pid(bed: Bed, to: Namespace) -> None:
    process = subprocess.Popen(("ip", "netns", "exec", Path(to.path).name, "sh", "-c", "echo; read -r _"),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    bed.run("ip", "link", "set", "spy0", "netns", str(process.pid), inside=True)
    process.communicate(b"\n")


def by_descriptor(bed: Bed, to: Namespace) -> None:
    with bed.pod.socket() as sock:
        link.change(sock, "spy0", netns_fd=to.fd)


@pytest.mark.parametrize("way", [by_name, by_pid, by_descriptor, None])
@pytest.mark.parametrize("mode", [PRIVATE, VEPA, BRIDGE, PASSTHRU])
def test_the_former_pod_hears_nothing_of_the_next_one_and_sends_nothing(
    nic: Bed, elsewhere: Namespace, way: Callable[[Bed, Namespace], None] | None, mode: int
) -> None:
    if way is None:
        put(nic.pod, elsewhere, mode=mode)
    else:
        moved(nic.pod, lambda _: way(nic, elsewhere), mode)
        with elsewhere.socket() as sock:
            link.change(sock, "spy0", up=True)
    with listener(elsewhere, "spy0") as spy:
        send(nic.host, "peer7", EVERYBODY, b"before")
        assert b"before" in spy.recv(2000)
        undone(nic)
        with next_tenant(nic) as victim, listener(victim, "net1") as heard:
            assert names(elsewhere) == set()
            send(nic.host, "peer7", mac(victim, "net1"), b"secret")
            assert b"secret" in heard.recv(2000)
            spy.settimeout(0)
            with pytest.raises(OSError):
                spy.recv(2000)


def held_by_process(space: Namespace, stack: ExitStack) -> None:
    process = stack.enter_context(subprocess.Popen(
        ("nsenter", f"--net=/proc/{os.getpid()}/fd/{space.fd}", sys.executable, "-c", "print(1, flush=True); input()"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ))  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    stack.callback(process.communicate, b"\n")


def held_by_thread(space: Namespace, stack: ExitStack) -> None:
    inside, over = threading.Event(), threading.Event()

    def stay() -> None:
        inside.set()
        over.wait()

    thread = threading.Thread(target=space.run, args=(stay,))
    thread.start()
    inside.wait()
    stack.callback(thread.join)
    stack.callback(over.set)


def held_by_descriptor(space: Namespace, stack: ExitStack) -> None:
    stack.callback(os.close, os.dup(space.fd))


def held_by_socket(space: Namespace, stack: ExitStack) -> None:
    stack.enter_context(space.run(lambda: socket.socket(socket.AF_UNIX)))


def held_by_tun(space: Namespace, stack: ExitStack) -> None:
    """By a file of a TUN device alone."""
    stack.callback(os.close, space.run(lambda: os.open("/dev/net/tun", os.O_RDWR)))


def held_by_private_descriptor(space: Namespace, stack: ExitStack) -> None:
    """By a thread whose descriptors are not its process's, with a namespace's file and no place in it."""
    process = stack.enter_context(subprocess.Popen(
        (sys.executable, "-c", PRIVATE_TABLE, str(os.getpid()), str(space.fd)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ))  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline()
    stack.callback(process.communicate, b"\n")


def held_by_mount(space: Namespace, stack: ExitStack) -> None:
    """In a mount namespace of another process alone."""
    file = f"/proc/{os.getpid()}/fd/{space.fd}"
    script = f"mount -t tmpfs t /mnt && touch '/mnt/n s' && mount --bind {file} '/mnt/n s' && echo && read -r _"
    process = stack.enter_context(subprocess.Popen(
        ("unshare", "--mount", "sh", "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ))  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline()
    stack.callback(process.communicate, b"\n")


PRIVATE_TABLE = """
import ctypes, os, sys, threading
def hold():
    assert ctypes.CDLL(None).unshare(0x400) == 0  # CLONE_FILES
    os.open(f"/proc/{sys.argv[1]}/fd/{sys.argv[2]}", os.O_RDONLY)
    os.write(1, b".\\n")
    threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
input()
"""
HOLDERS = [
    held_by_process,
    held_by_thread,
    held_by_descriptor,
    held_by_private_descriptor,
    held_by_socket,
    held_by_tun,
    held_by_mount,
]


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_namespace_is_searched_that_anything_visible_keeps(
    nic: Bed, holder: Callable[[Namespace, ExitStack], None]
) -> None:
    with ExitStack() as stack:
        with Namespace.anonymous() as space:
            put(nic.pod, space)
            holder(space, stack)
        undone(nic)
        assert [str(finding).endswith("was deleted") for finding in examined(nic).findings] == [True]
    assert marks(nic) == []


def test_a_namespace_that_nothing_visible_keeps_is_reached_by_the_pods_id_for_it(nic: Bed) -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there, closing(Namespace.anonymous()) as space:
        moved(nic.pod, lambda _: by_descriptor(nic, space))
        socket.send_fds(here, [b"."], [space.fd])
        space.close()
        (restored,) = undone(nic).restored
        assert 'macvlan "spy0" in a namespace that the pod\'s knows was deleted' in restored
        _, (descriptor,), _, _ = socket.recv_fds(there, 1, 1)
        with closing(Namespace(descriptor)) as again:
            assert names(again) == set()


def test_without_a_search_in_between_the_next_pod_causes_it(nic: Bed, elsewhere: Namespace) -> None:
    put(nic.pod, elsewhere)
    undone(nic)
    assert names(elsewhere) == {"spy0"}
    assert marks(nic) == ["veth:eth7"]
    with next_tenant(nic):
        assert names(elsewhere) == set()
        assert marks(nic) == []


def test_a_device_with_a_link_that_stays_goes_into_no_pod(
    nic: Bed, elsewhere: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(nic.pod, elsewhere)
    undone(nic)
    with monkeypatch.context() as patch:
        patch.setattr(children, "delete", lambda *_: "the kernel refuses")
        assert examined(nic).left
        with (
            pytest.raises(
                AttachError, match=r'a former pod left macvlan "spy0" in the network namespace of "/run'
            ) as e,
            next_tenant(nic),
        ):
            pass
        assert e.value.report.is_clean
        assert "delete that link" in e.value.hint
        assert marks(nic) == ["veth:eth7"]
    with next_tenant(nic):
        assert names(elsewhere) == set()


def test_a_search_that_is_not_over_in_time_leaves_the_device_for_later(nic: Bed, elsewhere: Namespace) -> None:
    put(nic.pod, elsewhere)
    undone(nic)
    examination = returned.examine(nic.settings.state, 0.0)
    assert (examination.complete, marks(nic)) == (False, ["veth:eth7"])
    with pytest.raises(TemporaryError, match="is not examined yet"):
        returned.check_free(nic.settings.state, "veth:eth7", 0.0, host_may_use=False)


def test_a_device_that_returns_during_a_search_is_examined_by_the_next(nic: Bed, elsewhere: Namespace) -> None:
    put(nic.pod, elsewhere)
    reports: list[DetachReport] = []

    def end_pod() -> bool:
        if not reports:
            reports.append(undone(nic))
        return False

    assert not returned.examine(nic.settings.state, SECONDS, end_pod).findings
    assert len(marks(nic)) == 1
    assert names(elsewhere) == {"spy0"}
    (finding,) = examined(nic).findings
    assert not finding.problem
    assert not names(elsewhere)
    assert not marks(nic)


def test_a_device_of_the_same_index_in_another_namespace_is_another_one(nic: Bed, elsewhere: Namespace) -> None:
    undone(nic)
    with nic.host.socket() as sock:
        index = link.get(sock, "eth7").index
    with named(nic, "z") as other, other.socket() as sock:
        link.create(sock, "net1", "veth", kinds.veth(kinds.Peer("far")), index=index, up=True)
        put(other, elsewhere, "honest0")
        put(nic.host, elsewhere, "guilty0", lower="eth7")
        assert [finding.text.split()[1] for finding in examined(nic).findings] == ['"guilty0"']
        assert names(elsewhere) == {"honest0"}


def test_a_link_for_a_virtual_machine_goes_too(nic: Bed, elsewhere: Namespace) -> None:
    with nic.pod.socket() as sock:
        link.create(
            sock, "tap0", "macvtap", macvlan(PASSTHRU), lower=link.get(sock, "net1").index, netns_fd=elsewhere.fd
        )
    undone(nic)
    assert [finding.text.split()[0] for finding in examined(nic).findings] == ["macvtap"]


def test_a_link_on_a_link_of_the_pod_goes_too(nic: Bed, elsewhere: Namespace) -> None:
    put(nic.pod, elsewhere)
    with named(nic, "y") as further:
        put(elsewhere, further, "nested0", lower="spy0")
        undone(nic)
        examined(nic)
        assert (names(elsewhere), names(further)) == (set(), set())


def test_the_pods_own_namespace_is_searched_as_long_as_it_is_there(nic: Bed) -> None:
    with nic.pod.socket() as sock:
        link.create(sock, "own0", "macvlan", macvlan(BRIDGE), lower=link.get(sock, "net1").index)
    undone(nic)
    assert len(examined(nic).findings) == 1
    assert names(nic.pod) == set()


def test_a_pod_whose_namespace_only_the_driver_still_holds_leaves_nothing(nic: Bed, elsewhere: Namespace) -> None:
    put(nic.pod, elsewhere)
    netns.delete(Path(nic.pod.path).name)
    assert detach(nic.container.sandbox, nic.settings, held_netns=f"/proc/self/fd/{nic.pod.fd}").is_clean
    assert len(examined(nic).findings) == 1
    assert names(elsewhere) == set()


def test_a_device_with_a_link_in_the_nodes_own_namespace_goes_into_no_pod(nic: Bed) -> None:
    put(nic.pod, nic.host)
    undone(nic)
    with pytest.raises(AttachError, match='the host uses device "eth7": macvlan-parent'), next_tenant(nic):
        pass


def test_a_device_whose_sandbox_was_lost_is_examined_too(nic: Bed, elsewhere: Namespace) -> None:
    put(nic.pod, elsewhere)
    with nic.pod.socket() as sock:
        link.change(sock, "net1", netns_fd=nic.host.fd, name="eth7")
    for path in nic.settings.state.glob("*.jsonl*"):
        path.unlink()
    with next_tenant(nic):
        assert names(elsewhere) == set()


def test_namespaces_that_come_and_go_disturb_no_search(nic: Bed, elsewhere: Namespace) -> None:
    put(nic.pod, elsewhere)
    over = threading.Event()

    def churn() -> None:
        while not over.is_set():
            with Namespace.anonymous() as space, space.socket() as sock:
                link.create(sock, "veth0", "veth", kinds.veth(kinds.Peer("veth1")))

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        undone(nic)
        assert len(examined(nic).findings) == 1
        for _ in range(20):
            assert not examined(nic).problems
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def victim() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts a process with a namespace, threads, a socket and an open namespace of its own."""
    with ExitStack() as started:

        def start() -> subprocess.Popen[bytes]:
            process = subprocess.Popen(("unshare", "-n", "-m", sys.executable, "-c", VICTIM), stdout=subprocess.PIPE)
            started.callback(end, process)
            assert process.stdout is not None
            process.stdout.readline()
            return process

        yield start


VICTIM = """
import os, socket, threading, time
sock, space = socket.socket(), os.open("/proc/self/ns/net", os.O_RDONLY)
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready", flush=True)
time.sleep(60)
"""


def end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_process_may_end_at_each_step_of_a_search(
    nic: Bed, victim: Callable[[], subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = ("open", "readlink", "listdir", "pidfd_open")
    real = {name: getattr(os, name) for name in called}
    undone(nic)
    steps = 0
    while True:
        process = victim()
        left = steps

        def watched(name: str, process: subprocess.Popen[bytes] = process) -> Callable[..., Any]:
            def call(what: Any, *args: Any, **others: Any) -> Any:
                nonlocal left
                result = real[name](what, *args, **others)
                if what == process.pid or f"/{process.pid}/" in f"{what}/":
                    if not left:
                        end(process)
                    left -= 1
                return result

            return call

        with monkeypatch.context() as patch:
            for name in called:
                patch.setattr(os, name, watched(name))
            assert examined(nic).namespaces
        if process.poll() is None:
            break
        steps += 1
    assert steps > len(called)


@contextmanager
def few_descriptors(spare: int) -> Iterator[None]:
    """So many files can be opened, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(spare):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_search_that_lacks_descriptors_leaves_the_device_for_later(nic: Bed, elsewhere: Namespace) -> None:
    put(nic.pod, elsewhere)
    undone(nic)
    for spare in range(1, 16):
        with few_descriptors(spare), suppress(NetdraError):
            returned.examine(nic.settings.state, SECONDS)
        assert marks(nic) or not names(elsewhere), f"{spare} descriptors"
    examined(nic)
    assert (marks(nic), names(elsewhere)) == ([], set())


def test_one_search_is_enough_for_pods_that_begin_at_the_same_time(nic: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    undone(nic)
    searches: list[Reachable] = []
    scan = Reachable.scan

    def counted(self: Reachable, is_over: Callable[[], bool]) -> Iterator[tuple[Namespace, str]]:
        searches.append(self)
        return scan(self, is_over)

    monkeypatch.setattr(Reachable, "scan", counted)
    state = nic.settings.state
    with ThreadPoolExecutor(4) as threads:
        with files.folder(state / holders.RETURNED, SECONDS):
            begun = [
                threads.submit(returned.check_free, state, "veth:eth7", SECONDS, host_may_use=False) for _ in range(4)
            ]
            time.sleep(0.3)
        for each in begun:
            each.result()
    assert len(searches) == 1


# Others' links.


def test_a_device_that_others_use_in_another_namespace_is_refused(bed: Bed, elsewhere: Namespace) -> None:
    bed.veth("eth7", "peer7", up=True)
    put(bed.host, elsewhere, "honest0", lower="eth7")
    examined(bed)
    with pytest.raises(AttachError, match='is used in another network namespace: macvlan "honest0"'):
        attach(mine(), bed.container, bed.pod.path, bed.settings)
    with elsewhere.socket() as sock:
        link.delete(sock, "honest0")
    attach(mine(), bed.container, bed.pod.path, bed.settings)
    undone(bed)


def test_links_that_were_on_a_device_before_the_pod_got_it_stay(bed: Bed, elsewhere: Namespace) -> None:
    bed.veth("eth7", "peer7", up=True)
    put(bed.host, elsewhere, "honest0", lower="eth7")
    examined(bed)
    attach(mine(allow_host_use=True), bed.container, bed.pod.path, bed.settings)
    put(bed.pod, elsewhere, "guilty0")
    assert not examined(bed).findings
    undone(bed)
    assert [finding.text.split()[1] for finding in examined(bed).findings] == ['"guilty0"']
    assert names(elsewhere) == {"honest0"}
    assert marks(bed) == []
    assert not examined(bed).findings


def test_a_pod_that_shares_the_claim_keeps_its_link(bed: Bed) -> None:
    bed.veth("eth7", "peer7", up=True)
    fake = recorder(bed, "fake")
    result = """echo '{"interfaces": [{"name": "net1", "sandbox": "'"$CNI_NETNS"'"}]}'"""
    pod = '"$(basename "$CNI_NETNS")"'
    fake.does("ADD", f"ip link add net1 netns {pod} link eth7 type macvlan mode bridge || exit 1; {result}")
    fake.does("DEL", f"ip -n {pod} link del net1; true")
    plans = (plan(step("nic", "fake", "net1", device=device("eth7"))),)
    other = PodIdentity(sandbox=f"{bed.container.sandbox}-2", name="p", namespace="default", uid="another")
    with named(bed, "2") as space:
        attach(plans, bed.container, bed.pod.path, bed.settings)
        attach(plans, other, space.path, bed.settings)
        undone(bed)
        assert not examined(bed).findings
        assert names(space) == {"net1"}
        assert marks(bed) == ["veth:eth7"]
        assert detach(other.sandbox, bed.settings).is_clean
    examined(bed)
    assert marks(bed) == []


PLACES = ("x", "y")
BEFORE, BY_POD = "before", "by the pod"
LINKS = st.lists(
    st.tuples(st.sampled_from(["eth7", "eth8", "shared"]), st.sampled_from([BEFORE, BY_POD]), st.sampled_from(PLACES)),
    max_size=6,
)


def test_only_links_that_the_pod_put_on_its_device_are_deleted(bed: Bed) -> None:
    for name in ("eth7", "eth8", "shared"):
        bed.veth(name, f"peer-{name}", up=True)
    recorder(bed, "fake")
    sharing = PodIdentity(sandbox=f"{bed.container.sandbox}-s", name="s", namespace="default", uid="s")
    attach((plan(step("s", "fake", "net1", device=device("shared", share_id="1"))),), sharing, bed.pod.path,
           bed.settings)  # fmt: skip

    @settings(max_examples=20)
    @given(LINKS)
    def holds(links: list[tuple[str, str, str]]) -> None:
        with ExitStack() as stack:
            spaces = {place: stack.enter_context(named(bed, place)) for place in PLACES}
            kept: dict[str, set[str]] = {place: set() for place in PLACES}
            for number, (lower, when, place) in enumerate(links):
                if when == BEFORE:
                    put(bed.host, spaces[place], f"m{number}", lower)
                    kept[place].add(f"m{number}")
            examined(bed)
            attach(mine(allow_host_use=True), bed.container, bed.pod.path, bed.settings)
            for number, (lower, when, place) in enumerate(links):
                if when == BY_POD:
                    in_pod = lower == "eth7"
                    put(bed.pod if in_pod else bed.host, spaces[place], f"m{number}", "net1" if in_pod else lower)
                    if not in_pod:
                        kept[place].add(f"m{number}")
            undone(bed)
            examined(bed)
            assert {place: names(space) for place, space in spaces.items()} == kept
            assert marks(bed) == []

    holds()
