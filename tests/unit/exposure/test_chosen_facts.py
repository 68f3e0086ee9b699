"""The facts that a policy selects for its devices: fewer, and none without content, and the room that this leaves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.cel import compile_selector, device_variables
from netdra.cel.guards import guarded
from netdra.exposure import check, expose
from netdra.model import names
from netdra.model.inventory import ALWAYS_KNOWN, CHOSEN_ATTRIBUTES, IDENTIFYING, Interface
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import MAX_ATTRIBUTES_AND_CAPACITIES, ResourceSlice
from netdra.slices.pack import layout
from tests.builders import OURS, exclusive, inventory, pf, policy, vf
from tests.unit.node.publishing.scene import POOL, Scene

OWN = f"{names.DRIVER}/"
CHOSEN = sorted(name.removeprefix(OWN) for name in CHOSEN_ATTRIBUTES)
SUPPORTED = f"{OWN}supportedCNIs"
NIC = pf("p0", vfs=2)
VFS = (vf(NIC, 0), vf(NIC, 1))
VETH = Interface(if_name="eth7", type="veth", mac="02:00:00:00:00:07", mtu=1500, oper_state="up", numa_node=0)


def carried(*interfaces: Interface, policies: list[DeviceExposurePolicy]) -> dict[str, Any]:
    return {device.name: device.attributes for device in expose(inventory(*interfaces), policies).devices}


def every(**exposure: Any) -> DeviceExposurePolicy:
    return exclusive("every", "true", **exposure)


def test_a_device_carries_the_chosen_facts_and_those_that_identify_it() -> None:
    found = carried(NIC, *VFS, policies=[every(facts=["vendor", "dra.networking/mtu"])])
    for attributes in found.values():
        facts = attributes.keys() - {SUPPORTED}
        assert facts == {f"{OWN}vendor", f"{OWN}mtu", *(IDENTIFYING - {f"{OWN}deviceFile"})}


def test_disabling_empty_facts_omits_empty_and_false_values_but_keeps_zero() -> None:
    (before,) = carried(VETH, policies=[every()]).values()
    (after,) = carried(VETH, policies=[every(emptyFacts=False)]).values()
    assert after[f"{OWN}numaNode"] == 0
    assert after.keys() >= ALWAYS_KNOWN
    gone = {name: before[name] for name in before.keys() - after.keys()}
    assert set(gone.values()) == {"", False}
    assert len(gone) >= 12
    assert after.items() <= before.items()


def test_disabling_empty_facts_omits_facts_added_by_other_policies_of_the_node() -> None:
    adding = exclusive("adding", 'device.attributes["dra.networking"].ifName == "p0"', additionalFacts=["ipv4"])
    vfs = exclusive("vfs", f'{OURS}.type == "vf"')
    sparse = exclusive("vfs", f'{OURS}.type == "vf"', emptyFacts=False)
    assert carried(NIC, *VFS, policies=[adding, vfs])["p0v0"][f"{OWN}ipv4"] == ""
    assert f"{OWN}ipv4" not in carried(NIC, *VFS, policies=[adding, sparse])["p0v0"]


def test_attributes_that_other_policies_add_are_published_beside_the_chosen_facts() -> None:
    adding = exclusive("adding", f'{OURS}.type == "pf"', additionalAttributes={"rack": "7"})
    choosing = exclusive("choosing", f'{OURS}.type == "vf"', facts=["vendor"])
    assert carried(NIC, *VFS, policies=[adding, choosing])["p0v0"][f"{OWN}rack"] == ""


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("vender", '"vender" is not a known fact; did you mean "vendor"?', "ND1397"),
        ("ifName", '"ifName" is always published; remove it', "ND1396"),
        ("supportedCNIs", '"supportedCNIs" is always published; remove it', "ND1396"),
        ("ipv4", '"ipv4" is an optional fact; move it to additionalFacts', "ND1395"),
    ],
)
def test_another_name_is_refused_with_the_next_step(name: str, text: str, code: str) -> None:
    (error,) = check(every(facts=[name]))
    assert error.text_at_path == f"{text} [spec.exposure.facts[0]] ({code})"


@pytest.mark.parametrize("name", CHOSEN)
def test_each_fact_can_be_chosen(name: str) -> None:
    assert check(every(facts=[name])) == ()


def test_fewer_facts_leave_room_for_more_attributes() -> None:
    more = {f"example.com/a{at}": at for at in range(20)}
    (error,) = check(every(additionalAttributes=more))
    assert error.what.endswith("a device supports 3, and more if facts lists few")
    few = every(additionalAttributes=more, facts=["vendor"], emptyFacts=False)
    assert check(few) == ()
    found = layout(expose(inventory(NIC, *VFS), [few]), node="n")
    assert not found.problems
    assert all(more.keys() <= device.attributes.keys() for device in _devices(found.slices))
    full = every(additionalAttributes={f"example.com/a{at}": at for at in range(25)}, facts=["vendor"])
    assert any("a device supports" in error.what for error in check(full))


@settings(max_examples=60)
@given(st.sets(st.sampled_from(CHOSEN), max_size=8), st.booleans(), st.integers(0, 24))
def test_devices_are_legal_and_no_generated_class_fails_on_them(facts: set[str], empty: bool, more: int) -> None:
    given_policy = policy(
        "p",
        "true",
        facts=sorted(facts),
        emptyFacts=empty,
        additionalAttributes={f"example.com/a{at}": at for at in range(more)},
        supportedCNIPlugins=[{"name": "host-device"}],
    )
    if check(given_policy):
        assert len(IDENTIFYING) + 1 + len(facts) + more + 1 > MAX_ATTRIBUTES_AND_CAPACITIES
        return
    found = layout(expose(inventory(NIC, *VFS, VETH), [given_policy]), node="n")
    assert not found.problems
    known = [name for name in CHOSEN_ATTRIBUTES if name.startswith(OWN)]
    for device in _devices(found.slices):
        values = {name: attribute.value for name, attribute in device.attributes.items()}
        for name in known:
            plain = name.removeprefix(OWN)
            for expression in (f"{OURS}.{plain} == {OURS}.{plain}", f"!({OURS}.{plain} != {OURS}.{plain})"):
                selector = compile_selector(guarded(expression, known=ALWAYS_KNOWN))
                assert selector.matches(device_variables(names.DRIVER, values)) == (plain in values)


def test_a_restarted_driver_keeps_a_held_vf_without_netdev_until_it_leaves_the_bus() -> None:
    """A held VF whose netdev is in its pod is only away, with any facts in its slice."""
    policies = (exclusive("vfs", f'{OURS}.type == "vf"', "sriov", facts=[], emptyFacts=False),)
    first = Scene(*policies)
    nic = pf("p0", vfs=1)
    held = vf(nic, 0)
    first.see(nic, held)
    first.hold((POOL, "p0v0"))
    first.on_bus = {nic.pci_address, held.pci_address}
    again = Scene(*policies, published=first.slices)
    again.holding, again.on_bus = first.holding, first.on_bus
    again.see(nic, msgspec.structs.replace(held, if_name="", mac=""))
    assert again.devices() == first.devices()
    again.on_bus = {nic.pci_address}
    again.see(nic)
    assert again.taints()["p0v0"] == [names.GONE]


@pytest.mark.parametrize(
    ("exposure", "most"), [({}, 1140), ({"emptyFacts": False}, 870), ({"emptyFacts": False, "facts": []}, 430)]
)
def test_how_many_bytes_a_vf_is(exposure: dict[str, Any], most: int) -> None:
    """The sizes in docs/policies.md for 2 PFs with 64 VFs each, a device per VF."""
    pfs = [pf(f"enp{bus}s0f0", vfs=64, bus=bus) for bus in (3, 4)]
    here = inventory(*pfs, *(vf(parent, index) for parent in pfs for index in range(64)))
    vfs = [exclusive("vfs", f'{OURS}.type == "vf"', "sriov", **exposure)]
    slices = layout(expose(here, vfs), node="worker-1").slices
    devices = _devices(slices)
    assert len(devices) == 128
    assert most * 0.9 < sum(len(msgspec.json.encode(one)) for one in slices) / len(devices) < most


def _devices(slices: tuple[ResourceSlice, ...]) -> list[Any]:
    return [device for one in slices for device in one.spec.devices]
