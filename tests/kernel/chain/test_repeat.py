"""Again and again: nothing is left behind by a hundred pods, whether they are attached or fail."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.model.plan import Plan
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step


def prepared(bed: Bed) -> tuple[Plan, ...]:
    bed.veth("eth7", "peer7", mtu=1400, up=True)
    bed.run("ip", "addr", "add", "10.9.0.1/24", "dev", "eth7")
    bed.run("ip", "link", "add", "br0", "up", "address", "02:00:00:00:00:b0", "type", "bridge")
    ipam = {"type": "host-local", "subnet": "10.5.0.0/24", "dataDir": str(bed.settings.state.parent / "ipam")}
    return (
        plan(
            step("dev", "host-device", "net1", device=device("eth7", allow_host_use=True)),
            step("tune", "tuning", "net1", {"mtu": 1300, "ipam": {**ipam, "subnet": "10.6.0.0/24"}}, after=["dev"]),
            step("port", "bridge", "net2", {"bridge": "br0", "ipam": ipam}),
            step("end", "fake", "net2", after=["tune", "port"]),
        ),
    )


def everything(bed: Bed) -> dict[str, Any]:
    """All possible remains: links, files, namespaces, descriptors, threads, processes."""
    leases = sorted(path.name for path in (bed.settings.state.parent / "ipam").glob("*/10.*"))
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
    return {
        **bed.state(),
        "leases": leases,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": sorted(each.name for each in threading.enumerate()),
        "children": children,
    }


def test_a_hundred_times_leaves_nothing(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    plans = prepared(bed)
    attach(plans, bed.container, bed.pod.path, bed.settings)
    assert detach(bed.container.sandbox, bed.settings).is_clean
    before = everything(bed)
    for number in range(100):
        pod = msgspec.structs.replace(bed.container, sandbox=f"{bed.container.sandbox}-{number}")
        attach(plans, pod, bed.pod.path, bed.settings)
        assert detach(pod.sandbox, bed.settings).is_clean
        fake.forget()
    assert differences(before, everything(bed)) == []


@pytest.mark.parametrize("position", ["dev", "tune", "port", "end"])
def test_failing_at_each_position_again_and_again_leaves_nothing(bed: Bed, position: str) -> None:
    recorder(bed, "fake")
    recorder(bed, "broken").fails("ADD")
    (whole,) = prepared(bed)
    broken = msgspec.structs.replace(
        whole,
        steps=tuple(
            msgspec.structs.replace(each, type="broken", execution="Binary") if each.name == position else each
            for each in whole.steps
        ),
    )
    with pytest.raises(AttachError):
        attach((broken,), bed.container, bed.pod.path, bed.settings)
    before = everything(bed)
    for _ in range(10):
        with pytest.raises(AttachError) as caught:
            attach((broken,), bed.container, bed.pod.path, bed.settings)
        assert caught.value.report.is_clean
    assert differences(before, everything(bed)) == []
