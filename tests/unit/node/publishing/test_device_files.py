"""The published device of a device file that comes, goes, and is in use meanwhile."""

from __future__ import annotations

from netdra.model import names
from netdra.model.registration import DeviceFile, Registration
from tests.builders import OURS, exclusive
from tests.unit.node.publishing.scene import ETH, Scene

PATH = "/dev/fpga0"
FPGA = Registration(provider="bctl", device="fpga0", adds=True, device_file=PATH)
POOL = "worker-1/device-file-fpga0"
KEY = POOL, "fpga0"
THERE = {PATH: DeviceFile(number=(240, 0))}
POLICIES = (exclusive("files", f'{OURS}.registeredBy == "bctl"'), exclusive("veths", f'{OURS}.type == "veth"'))


def scene(**further: object) -> Scene:
    made = Scene(*POLICIES, **further)  # type: ignore[arg-type]
    made.registered = (FPGA,)
    return made


def test_a_device_file_is_published_when_it_appears_and_withdrawn_when_it_disappears_unused() -> None:
    made = scene()
    assert made.see(ETH) == {"worker-1/veth-eth7"}
    made.files = dict(THERE)
    assert made.see(ETH) == {POOL}
    assert [*made.devices(POOL)] == ["fpga0"]
    made.files = {}
    assert made.see(ETH) == {POOL}
    assert made.slices[POOL] == ()


def test_in_use_it_is_tainted_while_it_is_away_and_its_registration_ended() -> None:
    made = scene()
    made.files = dict(THERE)
    made.see(ETH)
    made.hold(KEY)
    assert made.see(ETH) == set()
    made.files = {}
    assert made.see(ETH) == {POOL}
    assert made.taints(POOL) == {"fpga0": [names.GONE]}
    made.files = dict(THERE)
    assert made.see(ETH) == {POOL}
    assert made.taints(POOL) == {"fpga0": []}
    made.registered = ()
    assert made.see(ETH) == {POOL}
    assert made.taints(POOL) == {"fpga0": [names.GONE]}
    made.hold()
    assert made.see(ETH) == {POOL}
    assert made.slices[POOL] == ()


def test_after_a_restart_a_device_file_in_use_is_known_from_the_published_slice() -> None:
    before = scene()
    before.files = dict(THERE)
    before.see(ETH)
    after = scene(published=before.slices)
    after.hold(KEY)
    assert after.see(ETH) == {POOL}
    assert after.taints(POOL) == {"fpga0": [names.GONE]}
    after.files = dict(THERE)
    assert after.see(ETH) == {POOL}
    assert after.taints(POOL) == {"fpga0": []}
    assert after.last is not None
    assert after.last.devices[POOL][KEY].device_file == PATH


def test_another_file_under_the_same_name_does_not_replace_the_file_in_use() -> None:
    made = scene()
    made.files = dict(THERE)
    made.see(ETH)
    made.hold(KEY)
    made.registered = (Registration(provider="bctl", device="fpga0", adds=True, device_file="/dev/fpga1"),)
    made.files = {**THERE, "/dev/fpga1": DeviceFile(number=(240, 1))}
    made.see(ETH)
    assert made.taints(POOL) == {"fpga0": [names.GONE]}
    assert made.last is not None
    assert made.last.devices[POOL][KEY].device_file == PATH


def test_the_node_report_lists_device_files() -> None:
    made = scene()
    made.see(ETH)
    groups = {group.type: group for group in made.offering.report().interfaces}
    assert (groups["device-file"].names, groups["device-file"].state) == (("fpga0",), "")
    assert groups["device-file"].reason == f"device file {PATH} does not exist"
    assert groups["device-file"].attributes == {"registeredBy": "bctl"}
    made.files = dict(THERE)
    made.see(ETH)
    groups = {group.type: group for group in made.offering.report().interfaces}
    assert [device.policy for device in groups["device-file"].devices] == ["files"]
    assert groups["device-file"].attributes == {"deviceFile": PATH, "registeredBy": "bctl"}
