"""BPF programs of a pod do not stay on its device, and those of the node are not taken into a pod."""

from __future__ import annotations

import errno
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.chain import checkpoint
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.report import AttachError, DetachReport
from netdra.kernel import bpf, kinds, link, netns
from netdra.kernel.monitor import LinkEvent, Monitor
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.model.errors import NetdraError, PermanentError
from netdra.model.plan import Plan
from tests import programs
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step

POD = '"$(basename "$CNI_NETNS")"'
TAKE = f'ip link set eth7 netns {POD} && ip -n {POD} link set eth7 name "$CNI_IFNAME" || exit 1'
GIVE = f'ip -n {POD} link set "$CNI_IFNAME" name eth7 && ip -n {POD} link set eth7 netns $$ || exit 1'
RESULT = """echo '{"interfaces": [{"name": "net1", "sandbox": "'"$CNI_NETNS"'"}]}'"""
PORT = 4711
STEP = 'NetworkTopology "t", step "dev" (host-device): '


@pytest.fixture
def wire(bed: Bed) -> Iterator[Namespace]:
    """The namespace of the other end of the device: 192.0.2.1 answers there."""
    name = f"{Path(bed.pod.path).name}-wire"
    with Namespace.create(name) as other:
        bed.veth("eth7", "peer7", up=True)
        bed.run("ip", "link", "set", "peer7", "netns", name)
        for command in ("addr add 192.0.2.1/24 dev peer7", "link set peer7 up", "link set lo up"):
            bed.run("ip", "-n", name, *command.split())
        with other.run(lambda: socket.create_server(("192.0.2.1", PORT))):
            yield other
        netns.delete(name)


def mine(*, binary: bool = False, allow: bool = False) -> tuple[Plan, ...]:
    given_ = device("eth7", allow_host_use=allow)
    if binary:
        return (plan(step("dev", "mover", "net1", device=given_)),)
    config = {"ipam": {"type": "static", "addresses": [{"address": "192.0.2.5/24"}]}}
    return (plan(step("dev", "host-device", "net1", config, device=given_)),)


def attached(bed: Bed, *, binary: bool = False, allow: bool = False) -> None:
    attach(mine(binary=binary, allow=allow), bed.container, bed.pod.path, bed.settings)


def undone(bed: Bed) -> DetachReport:
    return detach(bed.container.sandbox, bed.settings)


def is_empty(bed: Bed, *, inside: bool = False) -> bool:
    """Whether other eyes see no program on the device."""
    name = "net1" if inside else "eth7"
    tcx = bed.pod.run(lambda: programs.on(name)) if inside else programs.on(name)
    return not tcx and "xdp" not in bed.link(name, inside=inside)


@contextmanager
def next_pod(bed: Bed) -> Iterator[Bed]:
    """The next sandbox of the node: of the same pod, for pods may have a claim together."""
    name = f"{Path(bed.pod.path).name}-{uuid.uuid4().hex[:4]}"
    with Namespace.create(name) as space:
        identity = PodIdentity(sandbox=name, name="p", namespace="default", uid=bed.container.uid)
        other = Bed(bed.host, space, identity, bed.settings, bed.plugins)
        try:
            yield other
        finally:
            detach(name, bed.settings)
            netns.delete(name)


def answers(bed: Bed, *, within: float = 10.0) -> bool:
    """Whether the other end of the device answers the pod within some seconds."""

    def connect() -> bool:
        with suppress(OSError), socket.create_connection(("192.0.2.1", PORT), within):
            return True
        return False

    return bed.pod.run(connect)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("place", programs.PLACES)
def test_a_program_that_a_pod_leaves_on_its_device_does_not_reach_the_next_pod(
    bed: Bed, wire: Namespace, place: str, held: bool
) -> None:
    before = bed.state()
    attached(bed)
    assert answers(bed)
    how = programs.hold if held else programs.attach
    descriptor = bed.pod.run(lambda: how("net1", place))
    assert not answers(bed, within=0.3)
    report = undone(bed)
    assert report.is_clean
    (note,) = report.notes
    assert note.startswith(f'{STEP}netdev "eth7" has BPF program ')
    assert note.endswith(f'"of_a_pod" ({place}), which is detached now')
    assert is_empty(bed)
    assert differences(before, bed.state()) == []
    with next_pod(bed) as other:
        attached(other)
        assert is_empty(other, inside=True)
        assert answers(other)
    if descriptor is not None:
        os.close(descriptor)


def test_a_device_that_a_plugin_brings_back_with_a_pods_program_is_cleaned_and_reported(
    bed: Bed, wire: Namespace
) -> None:
    plugin = recorder(bed, "mover")
    plugin.does("ADD", f"{TAKE}; {RESULT}")
    plugin.does("DEL", GIVE)
    attached(bed, binary=True)
    bed.pod.run(lambda: programs.attach("net1", "tcx ingress"))
    report = undone(bed)
    assert report.is_clean
    (restored,) = [text for text in report.restored if "BPF" in text]
    assert restored.endswith('"of_a_pod" (tcx ingress)')
    assert not any("BPF" in note for note in report.notes)
    assert is_empty(bed)


def test_the_device_is_not_up_on_the_node_with_a_pods_program(bed: Bed, wire: Namespace) -> None:
    attached(bed)
    bed.pod.run(lambda: programs.attach("net1", "xdp generic"))
    with Monitor() as monitor:
        assert undone(bed).is_clean
        events = [event.link for event in monitor.read() if isinstance(event, LinkEvent) and not event.gone]
    assert [netdev.is_up for netdev in events if netdev.name == "eth7" and netdev.xdp] == [False]
    assert bed.link("eth7")["flags"].count("UP") == 1


@pytest.mark.parametrize("place", programs.PLACES)
def test_a_device_with_a_program_of_the_node_is_refused_and_the_use_is_named(
    bed: Bed, wire: Namespace, place: str
) -> None:
    programs.attach("eth7", place, "of_the_node")
    before = bed.state()
    with pytest.raises(PermanentError, match=f'the host uses device "eth7": {place.partition(" ")[0]}; .*allowHostUse'):
        attached(bed)
    assert differences(before, bed.state()) == []
    assert not is_empty(bed)


@pytest.mark.parametrize("binary", [False, True])
def test_with_allow_host_use_the_nodes_programs_come_back_and_the_pods_do_not(
    bed: Bed, wire: Namespace, binary: bool
) -> None:
    recorder(bed, "mover").does("ADD", f"{TAKE}; {RESULT}")
    programs.attach("eth7", "tcx ingress", "of_the_node", passes=True)
    programs.attach("eth7", "xdp generic", "of_the_node", passes=True)
    held = programs.hold("eth7", "tcx egress", "of_the_node", passes=True)
    before, links = bed.state(), attachments()
    attached(bed, binary=binary, allow=True)
    assert not is_empty(bed, inside=True)
    bed.pod.run(lambda: attach_all("net1", [("tcx ingress", False, False), ("tcx egress", False, False)]))
    report = undone(bed)
    assert report.is_clean
    assert len([text for text in (*report.notes, *report.restored) if "BPF" in text]) == 2
    assert attachments() == links
    assert differences(before, bed.state()) == []
    os.close(held)


def test_a_new_program_of_a_bpf_link_of_the_node_stays(bed: Bed, wire: Namespace) -> None:
    """As its agent does when it is updated."""
    held = programs.hold("eth7", "tcx ingress", "first", passes=True)
    attached(bed, allow=True)
    programs.update(held, "tcx ingress", "second")
    assert undone(bed).notes == ()
    assert [bpf.name_of(program) for program in attachments()] == ["second"]
    os.close(held)


def test_a_program_of_the_node_that_went_meanwhile_is_a_note(bed: Bed, wire: Namespace) -> None:
    held = programs.hold("eth7", "tcx ingress", passes=True)
    attached(bed, allow=True)
    os.close(held)
    report = undone(bed)
    assert report.is_clean
    assert [note.partition(" has ")[2].split()[:3] for note in report.notes] == [["lost", "BPF", "program"]]


def test_a_device_whose_program_cannot_be_detached_is_held_until_it_can_be(bed: Bed, wire: Namespace) -> None:
    """The XDP link of another device has the same program and index: it might be another pod's."""
    attached(bed)
    index = bed.link("net1", inside=True)["ifindex"]
    with next_pod(bed) as other:
        with other.pod.socket() as sock:
            link.create(sock, "x", "veth", kinds.veth(kinds.Peer("y")), index=index)
        with programs.loaded("xdp generic") as program:
            mine_ = bed.pod.run(lambda: programs.hold_loaded("net1", "xdp generic", program))
            foreign = other.pod.run(lambda: programs.hold_loaded("x", "xdp generic", program))
        report = undone(bed)
        assert report.is_stranded
        assert (
            f'netdev "eth7" has BPF program {attachments()[0].id} "of_a_pod" (xdp generic)' in report.undone[0].message
        )
        for allow, why in ((False, 'the host uses device "eth7": xdp'), (True, "used by sandbox")):
            with pytest.raises(NetdraError, match=why):
                attached(other, allow=allow)
        os.close(foreign)
    assert undone(bed).is_clean
    assert is_empty(bed)
    os.close(mine_)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_where_programs_cannot_be_read_no_device_is_taken_and_none_released(
    bed: Bed, wire: Namespace, number: int, binary: bool
) -> None:
    plugin = recorder(bed, "mover")
    plugin.does("ADD", f"{TAKE}; {RESULT}")
    with pytest.raises(NetdraError, match="a seccomp profile that permits it"):
        programs.barred(lambda: attached(bed, binary=binary), number)
    assert undone(bed).is_clean
    attached(bed, binary=binary)
    bed.pod.run(lambda: programs.attach("net1", "tcx ingress"))
    report = programs.barred(lambda: undone(bed), number)
    assert report.is_stranded
    assert "a seccomp profile that permits it" in report.undone[0].message
    with next_pod(bed) as other, pytest.raises(NetdraError, match="used by sandbox"):
        attached(other, binary=binary, allow=True)
    assert undone(bed).is_clean
    assert is_empty(bed)


def test_the_record_of_an_older_netdra_makes_a_program_a_note(bed: Bed, wire: Namespace) -> None:
    """It may be the node's own."""
    attached(bed)
    bed.pod.run(lambda: programs.attach("net1", "tcx ingress"))
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    path.write_bytes(path.read_bytes().replace(b',"programs":[]', b""))
    report = undone(bed)
    assert report.is_clean
    (note,) = report.notes
    assert '"of_a_pod" (tcx ingress); the record of an older netdra does not state' in note
    assert not is_empty(bed)


def test_a_plugin_that_attaches_a_program_to_a_shared_device_is_undone_and_named(bed: Bed, wire: Namespace) -> None:
    tool = Path(__file__).parents[2] / "programs.py"
    porter = recorder(bed, "porter")
    attach_it = (
        f'PYTHONPATH={tool.parents[1]} python3 -c \'from tests import programs as p; p.attach("eth7", "tcx ingress")\''
    )
    porter.does("ADD", f'ip -n {POD} link add "$CNI_IFNAME" type veth peer name far0; {attach_it}; {RESULT}')
    shared = plan(step("port", "porter", "net1", device=device("eth7", share_id="s1", allow_host_use=True)))
    with pytest.raises(AttachError, match=r'"of_a_pod" \(tcx ingress\)'):
        attach((shared,), bed.container, bed.pod.path, bed.settings)
    assert is_empty(bed)


def attachments() -> tuple[bpf.Program, ...]:
    with Socket() as sock:
        return bpf.attached(link.get(sock, "eth7"), sock)


def test_after_any_attachments_of_a_pod_the_device_has_the_programs_of_the_node_alone(
    bed: Bed, wire: Namespace
) -> None:
    attachment = st.tuples(st.sampled_from(programs.PLACES), st.booleans(), st.booleans())

    @settings(max_examples=25, deadline=None)
    @given(st.lists(attachment, max_size=4), st.lists(attachment, max_size=6))
    def holds(of_node: list[tuple[str, bool, bool]], of_pod: list[tuple[str, bool, bool]]) -> None:
        held = attach_all("eth7", of_node)
        before = attachments()
        attached(bed, allow=True)
        held += bed.pod.run(lambda: attach_all("net1", of_pod))
        report = undone(bed)
        assert report.is_clean
        # A pod may replace an XDP program that has no BPF link: then the node has lost it.
        replaced = any(place.startswith("xdp") and not by_link for place, by_link, _ in of_pod)
        gone = {each for each in before if each.place.startswith("xdp")} - set(attachments()) if replaced else set()
        assert attachments() == tuple(each for each in before if each not in gone)
        for descriptor in held:
            os.close(descriptor)
        with Socket() as sock:
            for program in attachments():
                bpf.detach(sock, bed.link("eth7")["ifindex"], program)
        assert is_empty(bed)

    holds()


def attach_all(name: str, attachments_: list[tuple[str, bool, bool]]) -> list[int]:
    """Attach programs; return the descriptors of those that have a BPF link. XDP has room for one alone."""
    held = []
    for place, by_link, passes in attachments_:
        with suppress(OSError):
            if by_link:
                held.append(programs.hold(name, place, passes=passes))
            else:
                programs.attach(name, place, passes=passes)
    return held
