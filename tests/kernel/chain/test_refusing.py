"""A kernel that refuses calls of attach and detach: all or nothing, and a network that cannot be inspected stays."""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from netdra.chain import checkpoint
from netdra.chain.check import standing
from netdra.chain.detach import detach
from netdra.chain.site import UnknownNamespaceError
from netdra.model.errors import NetdraError
from netdra.model.plan import Plan
from tests import draws, refusing
from tests.kernel.chain.conftest import Bed, device, differences
from tests.kernel.chain.test_crash import leases
from tests.plans import attach, plan, step
from tests.refusing import Refusal

FAULTS = draws.count(60, 2_000)


def prepared(bed: Bed) -> tuple[Plan, ...]:
    """A device with history that is moved, tuned and leased an address, and a binary beside it."""
    bed.veth("eth7", "peer7", mtu=1400, up=True)
    bed.run("ip", "addr", "add", "10.9.0.1/24", "dev", "eth7")
    ipam = {"type": "host-local", "subnet": "10.6.0.0/24", "dataDir": str(bed.settings.state.parent / "ipam")}
    return (
        plan(
            step("dev", "host-device", "net1", {"ipam": ipam}, device=device("eth7", allow_host_use=True)),
            step("tune", "tuning", "net1", {"mtu": 1300, "addresses": ["10.1.0.5/24"]}, after=["dev"]),
            step("port", "ptp", "net2", {"ipam": {**ipam, "subnet": "10.8.0.0/24"}}, after=["tune"]),
        ),
    )


@contextmanager
def drawn(source: random.Random, calls: int) -> Iterator[Refusal]:
    """Some calls in a row fail."""
    first, length = source.randint(1, calls), source.choice((1, 1, 3, 10, 10**6))
    with refusing.refusing(Refusal(source.choice(refusing.ERRNOS), first, length)) as refusal:
        yield refusal


def test_random_kernel_refusals_leave_attach_and_detach_retryable_and_no_difference_unreported(bed: Bed) -> None:
    plans, sandbox = prepared(bed), bed.container.sandbox
    with refusing.counting() as attaching:
        attach(plans, bed.container, bed.pod.path, bed.settings)
    with refusing.counting() as detaching:
        assert detach(sandbox, bed.settings).is_clean
    source = random.Random(draws.seed())
    for _ in range(FAULTS):
        bed.run("ip", "addr", "replace", "10.9.0.1/24", "dev", "eth7")
        before = bed.state()
        with drawn(source, attaching.calls) as refusal, suppress(NetdraError):
            attach(plans, bed.container, bed.pod.path, bed.settings)
        attach(plans, bed.container, bed.pod.path, bed.settings)
        assert bed.link("net1", inside=True)["mtu"] == 1300, str(refusal)
        notes: tuple[str, ...] = ()
        with drawn(source, detaching.calls) as refusal, suppress(NetdraError):
            notes = detach(sandbox, bed.settings).notes
        if sandbox not in checkpoint.sandboxes(bed.settings.state):
            assert notes or differences(before, bed.state()) == [], str(refusal)
        report = detach(sandbox, bed.settings)
        assert report.is_undone, f"{refusal}: {report}"
        # The kernel's EPERM or EIO for an address of the host is a refusal, which is told; want of memory is not.
        told = notes and refusal.number in (errno.EPERM, errno.EIO)
        assert told or differences(before, bed.state()) == [], str(refusal)
        assert leases(bed) == [], str(refusal)


def test_after_any_single_failed_call_for_its_link_a_detached_sandbox_holds_no_device(bed: Bed) -> None:
    plans, sandbox = prepared(bed), bed.container.sandbox
    before = bed.state()
    for first in itertools.count(1):
        attach(plans, bed.container, bed.pod.path, bed.settings)
        with (
            refusing.refusing(Refusal(errno.EIO, first=first, calls_of="chain/holders.py")) as refusal,
            suppress(NetdraError),
        ):
            detach(sandbox, bed.settings)
        if sandbox in checkpoint.sandboxes(bed.settings.state):
            assert detach(sandbox, bed.settings).is_clean
        assert differences(before, bed.state()) == [], str(refusal)
        if not refusal.refused:
            break
    assert first > 2


@pytest.mark.parametrize("number", refusing.ERRNOS, ids=errno.errorcode.get)
def test_a_network_with_an_unreadable_namespace_is_neither_undone_nor_assumed_gone(bed: Bed, number: int) -> None:
    attach(prepared(bed), bed.container, bed.pod.path, bed.settings)
    sandbox, whole = bed.container.sandbox, bed.state()
    for act in (
        lambda: detach(sandbox, bed.settings),
        lambda: standing(bed.settings.state, sandbox, bed.pod.path),
    ):
        with (
            refusing.refusing(Refusal(number, first=1, length=10**6, calls_of="kernel/netns.py")),
            pytest.raises(UnknownNamespaceError),
        ):
            act()
    assert differences(whole, bed.state()) == []
    assert standing(bed.settings.state, sandbox, bed.pod.path) is not None
    assert detach(sandbox, bed.settings).is_clean
