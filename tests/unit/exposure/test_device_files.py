"""Devices that are only a file: which policies offer them, their attributes, and the report where none exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from netdra.exposure import expose
from netdra.exposure.registered import Registered
from netdra.model.device import ExposureResult
from netdra.model.inventory import Interface
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import DeviceFile, Registration
from netdra.model.resource import DeviceAttribute
from netdra.slices.pack import layout
from netdra.topology.devices import from_slices
from netdra.topology.plain import default_type
from tests.builders import OURS, exclude, exclusive, inventory, named, policy, shared

ETH = Interface(if_name="eth7", type="veth", mac="02:00:00:00:00:07", mtu=1500, oper_state="up")
FPGA = Registration(
    provider="bctl",
    device="fpga0",
    adds=True,
    device_file="/dev/fpga0",
    attributes={"model": DeviceAttribute(string="a10")},
)
THERE = DeviceFile(number=(240, 0))
OFFER = policy("offer", f'{OURS}.registeredBy == "bctl"')
WHOLE = exclusive("whole", f'{OURS}.type == "veth"')


def result(
    *said: Registration, policies: Any = (OFFER,), files: Mapping[str, DeviceFile] | None = None
) -> ExposureResult:
    registered = Registered(said)
    there = files if files is not None else {each.device_file: DeviceFile((240, n)) for n, each in enumerate(said)}
    devices = registered.file_devices((ETH,), lambda path: there[path])
    return expose(inventory(ETH, *devices), policies, registered=registered)


def test_a_device_file_is_published_with_its_path_and_its_registered_attributes() -> None:
    (device,) = result(FPGA).devices
    assert (device.name, device.pool, device.shared) == ("fpga0", "worker-1/device-file-fpga0", False)
    (packed,) = layout(result(FPGA), node="worker-1").slices
    (published,) = packed.spec.devices
    assert published.attributes["deviceFile"] == DeviceAttribute(string="/dev/fpga0")
    assert published.attributes["type"] == DeviceAttribute(string="device-file")
    assert published.attributes["ifName"] == DeviceAttribute(string="")
    assert published.attributes["bctl/model"] == DeviceAttribute(string="a10")
    (planned,) = from_slices([packed]).values()
    assert (planned.device_file, planned.supported_cnis) == ("/dev/fpga0", ("device-file",))
    assert default_type(planned) == "device-file"


def test_the_policy_decides_whether_claims_share_a_device_file() -> None:
    (device,) = result(FPGA, policies=[shared("s", f'{OURS}.registeredBy == "bctl"')]).devices
    assert (device.shared, device.attributes["dra.networking/supportedCNIs"]) == (True, ("device-file",))


@pytest.mark.parametrize(
    ("cel", "offered"),
    [
        (f'{OURS}.registeredBy == "bctl"', True),
        (f'{OURS}.registeredBy != ""', True),
        (f'{OURS}.type == "device-file"', True),
        (f'{OURS}.type in ["device-file", "veth"]', True),
        (f'{OURS}.deviceFile == "/dev/fpga0" && {OURS}.registeredBy in ["bctl", "x"]', True),
        (f'{OURS}.registeredBy == "other"', False),
        ("true", False),
        (f'{OURS}.type != "pf"', False),
        (f'{OURS}.deviceFile == "/dev/fpga0"', False),
        (f"!{OURS}.hostUplink", False),
    ],
)
def test_only_a_policy_that_selects_the_type_or_the_provider_offers_a_device_file(cel: str, offered: bool) -> None:
    found = result(FPGA, policies=[exclusive("p", cel)])
    assert ("fpga0" in [device.name for device in found.devices]) is offered
    if not offered:
        (outcome,) = found.outcomes
        assert "not a device: hidden:" in outcome.problem


def test_an_exclude_hides_it() -> None:
    assert result(FPGA, policies=[OFFER, exclude("no", f'{OURS}.type == "device-file"')]).devices == ()


def test_a_missing_device_file_is_reported_to_its_provider_and_in_the_decision() -> None:
    found = result(FPGA, files={"/dev/fpga0": DeviceFile(problem="it is away", hint="wait", missing=True)})
    assert found.devices == ()
    (decision,) = (each for each in found.decisions if each.interface == "/dev/fpga0")
    assert (decision.device_name, decision.reason, decision.hidden) == ("fpga0", "hidden: it is away; wait", "no-file")
    (outcome,) = found.outcomes
    assert (outcome.meant, outcome.problem) == ("fpga0", "not a device: hidden: it is away; wait")


def test_a_device_file_with_the_name_of_an_interface_is_rejected_and_the_interface_unchanged() -> None:
    clash = Registration(
        provider="bctl", device="eth7", adds=True, device_file="/dev/fpga0", attributes=FPGA.attributes
    )
    found = result(clash, policies=(OFFER, WHOLE))
    (device,) = found.devices
    assert (device.name, device.registered, device.interface) == ("eth7", {}, ETH.identity)
    (outcome,) = found.outcomes
    assert '"eth7" is the name of an interface; register /dev/fpga0 under another name' in outcome.problem
    assert result(clash, policies=(policy("p", f'{OURS}.registeredBy == "bctl"'),)).devices == ()


def test_of_two_names_of_one_device_the_first_that_came_counts() -> None:
    twin = Registration(provider="aaa", device="twin", adds=True, device_file="/dev/twin")
    same = {"/dev/fpga0": THERE, "/dev/twin": THERE}
    found = result(FPGA, twin, files=same, policies=[exclusive("p", f'{OURS}.registeredBy != ""')])
    assert [device.name for device in found.devices] == ["fpga0"]
    problem = next(outcome.problem for outcome in found.outcomes if outcome.provider == "aaa")
    assert 'is the same device as /dev/fpga0, which is device "fpga0" of provider "bctl"' in problem
    found = result(twin, FPGA, files=same, policies=[exclusive("p", f'{OURS}.registeredBy != ""')])
    assert [device.name for device in found.devices] == ["twin"]


def test_another_provider_can_add_attributes_to_a_device_file_without_taking_it_over() -> None:
    said = Registration(provider="other", device="fpga0", attributes={"hot": DeviceAttribute(bool_=True)})
    registered = Registered((FPGA, said))
    devices = registered.file_devices((ETH,), lambda _: THERE)
    (device,) = expose(inventory(ETH, *devices), (OFFER,), registered=registered).devices
    assert sorted(device.registered) == ["bctl/model", "other/hot"]


def test_a_plugin_for_files_attaches_no_interface() -> None:
    listed: list[DeviceExposurePolicy] = [exclusive("p", named("eth7"), "device-file", "host-device")]
    (device,) = result(policies=listed).devices
    assert device.plugins == device.attributes["dra.networking/supportedCNIs"] == ("host-device",)
