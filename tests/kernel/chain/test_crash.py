"""The process dies at every point where it can leave something; the checkpoint alone is enough to undo it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from netdra.chain.detach import detach
from netdra.cni import protocol
from netdra.model.plan import Plan
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.kernel.chain.crasher import Job
from tests.plans import attach, plan, step

ENOUGH = 400


def prepared(bed: Bed) -> tuple[Plan, ...]:
    """A chain of every kind of step that this kernel has: a device with history, tuning, IPAM, a binary."""
    bed.veth("eth7", "peer7", mtu=1400, up=True)
    bed.run("ip", "link", "property", "add", "dev", "eth7", "altname", "enp7s0")
    bed.run("ip", "addr", "add", "10.9.0.1/24", "dev", "eth7")
    ipam = {"type": "host-local", "subnet": "10.6.0.0/24", "dataDir": str(bed.settings.state.parent / "ipam")}
    tuning = {
        "mtu": 1300,
        "mac": "02:00:00:00:00:77",
        "txqlen": 500,
        "addresses": ["10.1.0.5/24"],
        "routes": [{"destination": "10.2.0.0/16", "gateway": "10.1.0.1"}],
        "sysctl": {"net.core.somaxconn": "512"},
        "ipam": {**ipam, "subnet": "10.7.0.0/24"},
    }
    return (
        plan(
            step("dev", "host-device", "net1", {"ipam": ipam}, device=device("eth7", allow_host_use=True)),
            step("tune", "tuning", "net1", tuning, after=["dev"]),
            step("port", "ptp", "net2", {"ipam": {**ipam, "subnet": "10.8.0.0/24"}}, after=["tune"]),
        ),
    )


def leases(bed: Bed) -> list[str]:
    return sorted(str(path) for path in (bed.settings.state.parent / "ipam").glob("*/10.*"))


@contextmanager
def crasher(bed: Bed, verb: Literal["attach", "detach"], plans: tuple[Plan, ...]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does the job again and again; it is in the node's namespace, as we are."""
    job = Job(verb=verb, plans=plans, pod=bed.container, netns=bed.pod.path, settings=bed.settings)
    command = (sys.executable, "-m", "tests.kernel.chain.crasher")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(job, enc_hook=str) + b"\n")
        yield process
        process.stdin.close()


def holding(bed: Bed) -> list[str]:
    folder = bed.settings.state / "devices"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def dies(process: subprocess.Popen[bytes], number: int) -> bool:
    """Let the job run and die at the nth event; False if it was done before that."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{number}\n".encode())
    process.stdin.flush()
    answer = process.stdout.readline().strip()
    assert answer in (b"killed", b"done 0")
    return answer == b"killed"


def stands(bed: Bed) -> bool:
    """Whether the last line of the checkpoint states that the network is complete; addresses are announced after it."""
    path = bed.settings.state / f"{bed.container.sandbox}.jsonl"
    return path.exists() and "complete" in json.loads(path.read_text().splitlines()[-1]).values()


def assert_undone(bed: Bed, before: Any, number: int) -> None:
    """Detaching from the checkpoint undoes all actions of a process that died at an event."""
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_clean, f"after event {number}: {report}"
    assert differences(before, bed.state()) == [], f"after event {number}"
    assert leases(bed) == [], f"after event {number}"
    assert holding(bed) == [], f"after event {number}"


def test_killed_while_attaching_all_is_undone_from_the_checkpoint(bed: Bed) -> None:
    plans = prepared(bed)
    before = bed.state()
    with crasher(bed, "attach", plans) as process:
        for number in range(1, ENOUGH):
            killed = dies(process, number)
            assert_undone(bed, before, number)
            if not killed:
                break
    assert 40 < number < ENOUGH - 1


def test_a_plugin_that_outlives_its_killed_runtime_is_waited_for(bed: Bed) -> None:
    fake = recorder(bed, "slow")
    begun, ended = bed.plugins / "begun", bed.plugins / "ended"
    make = 'ip -n "$(basename "$CNI_NETNS")" link add late type bridge'
    fake.does("ADD", f'touch {begun}; sleep 0.7; {make}; touch {ended}; echo "{{}}"')
    # Its DEL would find nothing yet, were it called while its ADD still runs.
    fake.does("DEL", 'ip -n "$(basename "$CNI_NETNS")" link del late 2>/dev/null; true')
    protocol.find("slow", bed.settings.plugins)
    before = bed.state()
    with crasher(bed, "attach", (plan(step("a", "slow", "net1")),)) as process:
        for number in range(1, ENOUGH):
            assert dies(process, number)
            report = detach(bed.container.sandbox, bed.settings)
            assert report.is_clean, str(report)
            assert begun.exists() is ended.exists()
            assert differences(before, bed.state()) == []
            if ended.exists():
                break


def test_killed_while_attaching_the_next_attach_makes_it_whole(bed: Bed) -> None:
    plans = prepared(bed)
    before = bed.state()
    with crasher(bed, "attach", plans) as process:
        for number in range(2, ENOUGH, 9):
            killed = dies(process, number)
            is_complete = stands(bed)
            report = attach(plans, bed.container, bed.pod.path, bed.settings)
            assert is_complete or killed
            assert report.repeated is is_complete
            assert bed.link("net1", inside=True)["mtu"] == 1300
            assert bed.addresses("net1", inside=True) >= {"10.1.0.5/24"}
            assert len(leases(bed)) == 3
            assert detach(bed.container.sandbox, bed.settings).is_clean
            assert differences(before, bed.state()) == [], f"after event {number}"
            if not killed:
                break


def test_killed_while_detaching_the_next_detach_goes_on(bed: Bed) -> None:
    plans = prepared(bed)
    before = bed.state()
    with crasher(bed, "detach", plans) as process:
        for number in range(1, ENOUGH):
            attach(plans, bed.container, bed.pod.path, bed.settings)
            killed = dies(process, number)
            assert_undone(bed, before, number)
            if not killed:
                break
    assert 20 < number < ENOUGH - 1
