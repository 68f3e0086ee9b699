"""BPF programs on a link are read, named and detached, however they were attached."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from netdra.kernel import bpf, link
from netdra.kernel.bpf import Program
from netdra.kernel.errors import KernelError, KernelMissingError
from tests import programs
from tests.kernel.conftest import Machine


@pytest.fixture
def node(machine: Machine) -> Iterator[Machine]:
    """A namespace with a pair of links, with the calling thread in it."""
    machine.veth("a", "b")
    with machine.entered():
        yield machine


def read(node: Machine, name: str = "a") -> tuple[Program, ...]:
    return bpf.attached(link.get(node.sock, name), node.sock)


def is_empty(node: Machine, name: str = "a") -> bool:
    """Whether other eyes see no program on a link."""
    return not programs.on(name) and "xdp" not in node.ip("link", "show", name)[0]


@pytest.mark.parametrize("place", programs.PLACES)
def test_a_program_without_a_bpf_link_is_read_named_and_detached(node: Machine, place: str) -> None:
    assert read(node) == ()
    programs.attach("a", place)
    (program,) = read(node)
    assert (program.place, program.link, bpf.name_of(program)) == (place, 0, "of_a_pod")
    assert not is_empty(node)
    bpf.detach(node.sock, node.index("a"), program)
    assert read(node) == ()
    assert is_empty(node)


@pytest.mark.parametrize("place", programs.PLACES)
def test_a_program_of_a_bpf_link_is_detached_and_its_owner_cannot_bring_it_back(node: Machine, place: str) -> None:
    held = programs.hold("a", place)
    (program,) = read(node)
    assert (program.place, bool(program.link)) == (place, place.startswith("tcx"))
    bpf.detach(node.sock, node.index("a"), program)
    with pytest.raises(OSError, match="severed") as refused:
        programs.update(held, place)
    assert refused.value.errno == errno.ENOLINK
    assert is_empty(node)
    os.close(held)


def test_all_programs_of_a_link_are_listed_in_their_order(node: Machine) -> None:
    for number in range(5):
        programs.attach("a", "tcx ingress", f"first_{number}")
    held = programs.hold("a", "tcx egress", "second")
    programs.attach("a", "xdp generic", "third")
    names = [(program.place, bpf.name_of(program)) for program in read(node)]
    ingress = [("tcx ingress", f"first_{number}") for number in range(5)]
    assert names == [("xdp generic", "third"), *ingress, ("tcx egress", "second")]
    assert bpf.uses(node.index("a"), "veth") == bpf.words(read(node)) == ("tcx",)
    assert bpf.uses(node.index("b"), "veth") == bpf.words(read(node, "b")) == ()
    assert read(node, "b") == ()
    os.close(held)


def test_all_programs_that_a_place_can_have_are_read_and_detached(node: Machine) -> None:
    for _ in range(programs.MOST):
        programs.attach("a", "tcx ingress")
    assert len(read(node)) == programs.MOST
    for program in read(node):
        bpf.detach(node.sock, node.index("a"), program)
    assert is_empty(node)


def test_the_same_program_on_another_device_of_that_index_stays_there(node: Machine, other: Machine) -> None:
    """An XDP link names its device by the index alone, without the namespace: which link it is cannot be known."""
    index = node.index("a")
    other.veth("x", "y", index=index)
    with programs.loaded("xdp") as program:
        mine = programs.hold_loaded("a", "xdp", program)
        with other.entered():
            foreign = programs.hold_loaded("x", "xdp", program)
    (seen,) = read(node)
    with pytest.raises(KernelError) as refused:
        bpf.detach(node.sock, index, seen)
    assert refused.value.errno == errno.EBUSY
    with other.entered():
        assert not is_empty(other, "x")
    os.close(foreign)
    bpf.detach(node.sock, index, seen)
    assert is_empty(node)
    os.close(mine)


def test_a_program_that_is_gone_by_now_is_no_error(node: Machine) -> None:
    held = programs.hold("a", "tcx ingress")
    programs.attach("a", "tcx egress")
    of_link, direct = read(node)
    os.close(held)
    bpf.detach(node.sock, node.index("a"), of_link)
    for _ in range(2):
        bpf.detach(node.sock, node.index("a"), direct)
    assert bpf.name_of(of_link) == ""


def test_a_link_that_does_not_exist_is_missing(node: Machine) -> None:
    programs.attach("a", "tcx ingress")
    with pytest.raises(KernelMissingError):
        bpf.uses(4711, "")


def test_programs_move_with_their_link_to_another_namespace(node: Machine, other: Machine) -> None:
    programs.attach("a", "tcx ingress")
    programs.attach("a", "xdp generic")
    before = read(node)
    link.change(node.sock, "a", netns_fd=other.namespace.fd)
    with other.entered():
        assert read(other) == before


def test_filters_of_clsact_go_with_the_move(node: Machine, other: Machine) -> None:
    """So `attached` need not read them."""
    node.run("tc", "qdisc", "add", "dev", "a", "clsact")
    node.run("tc", "filter", "add", "dev", "a", "ingress", "bpf", "bytecode", "1,6 0 0 0", "flowid", "1:1")
    assert "bytecode" in node.run("tc", "filter", "show", "dev", "a", "ingress")
    link.change(node.sock, "a", netns_fd=other.namespace.fd)
    assert "clsact" not in other.run("tc", "qdisc", "show", "dev", "a")
    assert other.run("tc", "filter", "show", "dev", "a", "ingress") == ""


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_where_a_seccomp_profile_forbids_the_call_the_programs_are_unknown(node: Machine, number: int) -> None:
    with pytest.raises(KernelError, match="a seccomp profile that permits it") as refused:
        programs.barred(lambda: read(node), number)
    assert refused.value.errno == number


def test_in_a_user_namespace_where_none_can_be_attached_there_is_none(node: Machine) -> None:
    code = "from netdra.kernel import bpf, netns; netns.enter_user_namespace(); print(bpf.uses(1, ''))"
    assert subprocess.check_output((sys.executable, "-c", code), text=True) == "()\n"


def test_programs_loaded_later_are_found_and_those_that_are_gone_forgotten(node: Machine) -> None:
    for _ in range(3):
        held = programs.hold("a", "tcx ingress")
        assert bpf.are_loaded()
        assert len(read(node)) == 1
        os.close(held)
        assert read(node) == ()


def test_a_program_that_could_not_be_opened_once_is_not_skipped(node: Machine) -> None:
    held = programs.hold("a", "tcx ingress")
    loaded = bpf._Loaded()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert loaded.read(), "unknown is not none"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert loaded.read()
    os.close(held)


def test_a_kernel_without_tcx_is_asked_once(node: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers EINVAL (before 6.6, or without CONFIG_NET_XGRESS)."""
    monkeypatch.setattr(bpf, "_unsupported", set())
    programs.attach("a", "tcx ingress")
    assert programs.barred(lambda: bpf.uses(node.index("a"), "veth"), errno.EINVAL) == ()
    assert bpf.uses(node.index("a"), "veth") == ()
