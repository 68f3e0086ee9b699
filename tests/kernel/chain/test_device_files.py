"""The device-file step in a pod of a real namespace: its result, its refusals, and that it leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.model.plan import Plan, PlannedDevice
from netdra.model.result import StepDevice
from netdra.rules.pod import check_plans
from tests.device_files import LOCAL, make, new_folder
from tests.kernel.chain.conftest import Bed
from tests.kernel.chain.test_plain import POOL, plans_of
from tests.plans import attach


@pytest.fixture
def path() -> Iterator[Path]:
    """A device file of a folder of its own."""
    with new_folder() as folder:
        yield make(folder / "fpga0")


def plans(path: Path) -> tuple[Plan, ...]:
    device = PlannedDevice(request="", pool=POOL, device="fpga0", type="device-file", device_file=str(path))
    return plans_of(msgspec.structs.replace(device, supported_cnis=("device-file",)))


def test_the_result_has_the_file_and_its_numbers_and_nothing_on_the_host_changes(bed: Bed, path: Path) -> None:
    settings = msgspec.structs.replace(bed.settings, device_files=(f"{path.parent}/*",))
    before = bed.state()
    report = attach(plans(path), bed.container, bed.pod.path, settings)
    (step,) = report.steps
    assert step.result.devices == (StepDevice(device_nodes=(str(path),), number=LOCAL),)
    assert step.result.interfaces == ()
    assert attach(plans(path), bed.container, bed.pod.path, settings).repeated
    assert check(bed.container.sandbox, bed.settings).problems == ()
    path.unlink()
    assert f"device file {path} is gone" in str(check(bed.container.sandbox, bed.settings))
    make(path, (240, 8))
    assert "is another device by now: 240:8" in str(check(bed.container.sandbox, bed.settings))
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert bed.state() == before


def test_a_forbidden_or_missing_device_file_is_rejected_at_pod_start(bed: Bed, path: Path) -> None:
    settings = msgspec.structs.replace(bed.settings, device_files=(f"{path.parent}/*",))
    with pytest.raises(AttachError, match=f"device file {path} is not allowed on this node, which does not allow any"):
        attach(plans(path), bed.container, bed.pod.path, bed.settings)
    path.unlink()
    with pytest.raises(AttachError, match="does not exist; netdra offers it once it exists"):
        attach(plans(path), bed.container, bed.pod.path, settings)
    make(path, (1, 1))
    with pytest.raises(AttachError, match="which pods never get"):
        attach(plans(path), bed.container, bed.pod.path, settings)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(AttachError, match="leads to /dev/zero, which is not allowed"):
        attach(plans(path), bed.container, bed.pod.path, settings)
    assert detach(bed.container.sandbox, bed.settings).is_clean


def test_a_file_is_attached_by_its_own_step_alone(path: Path) -> None:
    (plan,) = plans(path)
    (step,) = plan.steps
    for kind, execution in (("host-device", "Builtin"), ("macvlan", "Binary"), ("device-file", "Binary")):
        wrong = msgspec.structs.replace(step, type=kind, execution=execution)
        findings = check_plans([msgspec.structs.replace(plan, steps=(wrong,))])
        assert any(f'device "fpga0" is the file {path}' in finding.text for finding in findings)
    nic = PlannedDevice(request="net", pool=POOL, device="eth7", if_name="eth7", type="nic")
    wrong = msgspec.structs.replace(step, device=nic)
    (finding,) = check_plans([msgspec.structs.replace(plan, steps=(wrong,))])
    assert 'device "eth7" is not a device file' in finding.text
    assert check_plans([plan]) == ()
