"""The entries for devices in a claim's status, within the API server's limits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import pytest

from netdra.chain.outcome import DeviceOutcome, device_outcomes
from netdra.chain.report import DuplicateAddress, StepReport, name_of
from netdra.model import names
from netdra.model.claim import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from netdra.model.plan import ClaimReference, Plan, PlannedDevice, PlannedStep
from netdra.model.result import CNIAddress, CNIInterface, CNIRoute, StepResult
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes.status import (
    MAX_DATA,
    MAX_IPS,
    ClaimDevices,
    Outcome,
    device_statuses,
    same,
    unprepared,
)
from netdra.node.view import VFTrouble

CLAIM = ClaimReference(namespace="ns", name="c", uid="c-1")
DEVICE = PlannedDevice(request="nic", pool="pool", device="eth7", share_id="s-1")
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def sandbox(number: int = 1) -> Sandbox:
    return Sandbox(id=f"sb-{number}", name=f"p{number}", namespace="ns", uid=f"p-{number}", netns="/run/netns/x")


def outcome(
    number: int = 1, *, addresses: int = 1, routes: int = 0, above: int = 0, networks: Sequence[str] = ()
) -> Outcome:
    nic = CNIInterface(name="net1", mac="02:00:00:00:00:01", sandbox="/run/netns/x")
    ips = tuple(CNIAddress(address=f"192.0.{number}.{place}/24", interface=0) for place in range(addresses))
    many = tuple(CNIRoute(dst=f"198.51.{place % 256}.0/24", gw="192.0.2.1") for place in range(routes))
    root = PlannedStep(
        name="nic", type="host-device", if_name="net1", network="t-nic", execution="Builtin", device=DEVICE
    )
    others = tuple(
        PlannedStep(
            name=f"s{place}", type="tuning", if_name="net1", network="n", execution="Builtin", depend_on=("nic",)
        )
        for place in range(above)
    )
    results = {"nic": StepResult(interfaces=(nic,), ips=ips, routes=many)}
    results |= {step.name: StepResult(interfaces=(nic,), routes=many) for step in others}
    steps = [
        msgspec.structs.replace(step, pod_network=network)
        for step, network in itertools.zip_longest((root, *others), networks, fillvalue="")
        if isinstance(step, PlannedStep)
    ]
    plan = Plan(topology="t", claim=CLAIM, steps=tuple(steps))
    reports = [
        StepReport(**name_of("t", step), interface=step.if_name, result=results[step.name]) for step in plan.steps
    ]
    return Outcome(claim=CLAIM, sandbox=sandbox(number), devices=device_outcomes([plan], reports))


def failure(number: int = 1, message: str = 'step "far": no carrier') -> Outcome:
    devices = (DeviceOutcome(claim=CLAIM, device=DEVICE),)
    return Outcome(claim=CLAIM, sandbox=sandbox(number), devices=devices, reason="StepFailed", message=message)


def only(*outcomes: Outcome, former: tuple[AllocatedDeviceStatus, ...] = (), now: str = NOW) -> AllocatedDeviceStatus:
    (found,) = device_statuses(outcomes, former, now)
    return found


def test_an_attached_device_has_its_interface_its_addresses_and_its_steps() -> None:
    found = only(outcome(above=1))
    assert (found.pool, found.device, found.share_id) == ("pool", "eth7", "s-1")
    assert msgspec.to_builtins(found.network_data) == {
        "interfaceName": "net1",
        "ips": ("192.0.1.0/24",),
        "hardwareAddress": "02:00:00:00:00:01",
    }
    assert [step["step"] for step in found.data["pods"][0]["steps"]] == ["nic", "s0"]


def test_a_failure_has_no_network_and_names_the_step() -> None:
    found = only(failure())
    assert found.network_data is None
    assert found.conditions is not None
    (condition,) = found.conditions
    assert (condition["status"], condition["reason"]) == ("False", "StepFailed")
    assert "no carrier" in condition["message"]


def test_one_of_several_pods_that_failed_makes_the_device_not_ready_and_is_named() -> None:
    found = only(outcome(1), failure(2))
    assert found.conditions is not None
    (condition,) = found.conditions
    assert condition["status"] == "False"
    assert condition["message"] == 'pod "p2": step "far": no carrier'


def test_pods_that_share_a_device_have_their_addresses_together_and_no_common_mac() -> None:
    found = only(outcome(1), outcome(2))
    assert found.network_data is not None
    assert found.network_data.ips == ("192.0.1.0/24", "192.0.2.0/24")
    assert found.network_data.hardware_address == ""


def test_a_claim_status_contains_no_more_addresses_than_the_server_allows() -> None:
    found = only(outcome(addresses=40))
    assert found.network_data is not None
    assert len(found.network_data.ips) == MAX_IPS


@pytest.mark.parametrize(
    ("outcomes", "steps"),
    [
        ([outcome(routes=20, above=2)], ["nic", "s0", "s1"]),
        ([outcome(routes=80, above=2)], ["nic"]),
        ([outcome(routes=2000, above=2)], ["nic"]),
    ],
    ids=["all steps", "the device's own", "its name alone"],
)
def test_steps_that_exceed_the_size_limit_are_left_out_of_the_claim_status(
    outcomes: list[Outcome], steps: list[str]
) -> None:
    data = only(*outcomes).data
    assert len(msgspec.json.encode(data)) <= MAX_DATA
    assert [step["step"] for step in data["pods"][0]["steps"]] == steps


def test_of_hundreds_of_pods_the_first_is_shown_and_the_others_counted() -> None:
    data = only(*(outcome(number) for number in range(250))).data
    assert len(msgspec.json.encode(data)) <= MAX_DATA
    assert data["more"] == 249


@pytest.mark.parametrize(
    ("networks", "expected"),
    [
        (("storage",), "storage"),
        (("storage", "backup"), "storage"),
        (("", "backup"), "backup"),
        (("", "backup", "backup"), "backup"),
        (("", "storage", "backup"), None),
        ((), None),
    ],
)
def test_a_device_names_its_pod_network_if_a_kind_is_set(networks: tuple[str, ...], expected: str | None) -> None:
    made = outcome(above=2, networks=networks)
    (found,) = device_statuses([made], (), NOW, pod_network_kind="netdra")
    assert found.data.get("podNetwork") == ({"kind": "netdra", "name": expected} if expected else None)
    assert "podNetwork" not in only(made).data


def test_a_device_names_the_policy_that_offers_it() -> None:
    offered = msgspec.structs.replace(DEVICE, policy="rails")
    named = msgspec.structs.replace(failure(), devices=(DeviceOutcome(claim=CLAIM, device=offered),))
    assert only(named).data == {"policy": "rails", "pods": [{"name": "p1", "uid": "p-1", "sandbox": "sb-1"}]}
    assert only(failure(2), named).data["policy"] == "rails", "known of one of the pods"
    assert "policy" not in only(failure()).data, "a record of an older netdra does not name it"


def result(driver: str) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(request="nic", driver=driver, pool="pool", device="eth7", share_id="s-1")


def test_a_claim_that_could_not_be_prepared_is_not_ready_and_has_no_pod() -> None:
    results = (result(names.DRIVER), result("gpu.example"))
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results))
    entry = ClaimDevices.of_allocation(CLAIM, allocation, {("pool", "eth7"): "rails"}.__getitem__)
    refused = unprepared(entry, "no such VF")
    found = only(refused)
    assert (found.pool, found.device, found.share_id) == ("pool", "eth7", "s-1")
    assert found.data == {"policy": "rails"}
    assert found.conditions == (condition("False", "NotPrepared", "no such VF"),)
    both = only(outcome(), refused)
    assert both.conditions == (condition("False", "NotPrepared", "not prepared: no such VF"),)
    assert [pod["name"] for pod in both.data["pods"]] == ["p1"]
    assert both.network_data is not None, "the pod that is attached keeps its interface"
    assert ClaimDevices.of_allocation(CLAIM, None).devices == ()


def condition(status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}


def test_a_condition_that_does_not_change_keeps_its_time() -> None:
    first = only(outcome())
    assert same([first], [only(outcome(), former=(first,), now=LATER)])
    changed = only(failure(), former=(first,), now=LATER)
    assert changed.conditions is not None
    assert changed.conditions[0]["lastTransitionTime"] == LATER


def test_a_status_read_back_from_the_server_equals_the_written_one() -> None:
    wanted = only(outcome(above=2))
    stored = msgspec.json.decode(msgspec.json.encode(wanted), type=AllocatedDeviceStatus)
    assert same([wanted], [stored])
    assert not same([wanted], [only(outcome(2, above=2))])


def test_a_claim_without_a_sandbox_gets_no_device_statuses() -> None:
    assert device_statuses([], [only(outcome())], NOW) == ()


def test_a_pooled_vf_in_trouble_is_attached_and_not_healthy_until_it_is_well_again() -> None:
    vf = "0000:03:00.2"
    attached = outcome()
    (run,) = attached.devices
    pooled = msgspec.structs.replace(run, device=msgspec.structs.replace(DEVICE, pci_address=vf, pooled=True))
    attached = msgspec.structs.replace(attached, devices=(pooled,))
    trouble = VFTrouble(claim=CLAIM, vf=vf, name="p0v0", reason="VFGone", message="VF p0v0 is gone")
    (well,) = device_statuses([attached], (), NOW, {"0000:03:00.3": trouble})
    (ill,) = device_statuses([attached], (well,), LATER, {vf: trouble})
    assert well.conditions == (
        {"type": "Ready", "status": "True", "reason": "Attached", "message": "", "lastTransitionTime": NOW},
    )
    assert well.conditions is not None
    assert ill.conditions == (
        *well.conditions,
        {
            "type": "Healthy",
            "status": "False",
            "reason": "VFGone",
            "message": "VF p0v0 is gone",
            "lastTransitionTime": LATER,
        },
    )
    assert ill.network_data == well.network_data
    (still,) = device_statuses([attached], (ill,), "2026-01-03T00:00:00Z", {vf: trouble})
    assert same([still], [ill])
    (again,) = device_statuses([attached], (ill,), LATER)
    assert same([again], [well])


def test_addresses_with_which_no_pod_may_start_are_reported_for_the_controller() -> None:
    found = DuplicateAddress(claim="u", network="lan", if_name="net1", address="10.7.0.5", mac="02:00:00:00:00:09")
    told = only(msgspec.structs.replace(failure(), duplicates=(found,)))
    assert told.data["duplicates"] == [{"address": "10.7.0.5", "hardwareAddress": "02:00:00:00:00:09"}]
    assert "duplicates" not in only(failure()).data


def test_an_interface_without_a_carrier_is_a_condition_of_its_device_that_ends_with_it() -> None:
    silent = {"net1": 'interface "net1" has no carrier (operstate down)', "net9": "another device's"}
    first = only(msgspec.structs.replace(outcome(), silent=silent))
    assert [(each["type"], each["status"], each["reason"], each["message"]) for each in first.conditions or ()] == [
        ("Ready", "True", "Attached", ""),
        ("Healthy", "False", "NoCarrier", silent["net1"]),
    ]

    two = only(msgspec.structs.replace(outcome(1), silent=silent), outcome(2))
    assert [each["message"] for each in two.conditions or () if each["type"] == "Healthy"] == [
        f'pod "p1": {silent["net1"]}'
    ]
    assert [each["type"] for each in only(outcome()).conditions or ()] == ["Ready"]
