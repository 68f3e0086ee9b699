"""A VF is of the physical network that its PF is wired to, as the node's options or its policy define."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from netdra.cel.analysis import examine
from netdra.discovery.overrides import with_physnets
from netdra.exposure import Exposer, expose, physnets
from netdra.exposure.check import check
from netdra.model import names
from netdra.model.device import ExposureResult
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Interface
from netdra.model.policy import DeviceExposurePolicy
from netdra.slices.pack import layout
from netdra.vocabulary import of_devices, of_interfaces
from tests.builders import OURS, exclusive, inventory, pf, sriov

PHYSNET = names.qualified(names.PHYSNET)
CARDS = (*sriov("eth0", 2), *sriov("eth1", 2, bus=4))
VFS = exclusive("vfs", f'{OURS}.type == "vf"', "sriov")


def offered(
    *told: str, policies: Sequence[DeviceExposurePolicy] = (VFS,), interfaces: Sequence[Interface] = CARDS
) -> ExposureResult:
    return expose(with_physnets(inventory(*interfaces), physnets.read(told)), policies)


def of(result: ExposureResult) -> dict[str, object]:
    return {device.name: device.attributes.get(PHYSNET) for device in result.devices}


@pytest.mark.parametrize(
    "told",
    [
        ("physnet2=eth0", "physnet3=eth1"),
        ("physnet2=0000:03:00.0", "physnet3=0000:04:00.0"),
        ("physnet2=eth0, 0000:03:00.0", "physnet3=eth1", "physnet3=eth1"),
        ("physnet2:eth0,physnet3:eth1",),
        ("physnet2:0000:03:00.0, physnet2:eth0", "physnet3:0000:04:00.0"),
    ],
)
def test_vfs_have_the_physical_network_of_their_pf(told: tuple[str, ...]) -> None:
    result = offered(*told)
    assert of(result) == {"eth0v0": "physnet2", "eth0v1": "physnet2", "eth1v0": "physnet3", "eth1v1": "physnet3"}
    assert result.problems == ()


def test_a_nic_that_is_wired_to_nothing_has_an_empty_one_so_that_no_selector_fails() -> None:
    assert of(offered("physnet2=eth0")) == {"eth0v0": "physnet2", "eth0v1": "physnet2", "eth1v0": "", "eth1v1": ""}


def test_a_policy_that_chooses_facts_publishes_the_physnet_only_if_it_is_chosen() -> None:
    def choosing(*facts: str, **exposure: object) -> dict[str, object]:
        chosen = exclusive("vfs", f'{OURS}.type == "vf"', facts=list(facts), **exposure)
        return of(
            offered("physnet2=eth0", policies=(chosen,), interfaces=(*sriov("eth0", 1), *sriov("eth1", 1, bus=4)))
        )

    assert choosing("vendor") == {"eth0v0": None, "eth1v0": None}
    assert choosing("vendor", "physnet") == {"eth0v0": "physnet2", "eth1v0": ""}
    assert choosing("vendor", "physnet", emptyFacts=False) == {"eth0v0": "physnet2", "eth1v0": None}


def test_a_node_without_physnet_options_publishes_no_physnet_attribute() -> None:
    assert set(of(offered()).values()) == {None}


def test_several_nics_are_of_one_physical_network_and_a_pf_is_of_its_own() -> None:
    whole = exclusive("whole", f'{OURS}.type == "pf"', deviceNameSuffix="-whole")
    result = offered("physnet2=eth0,eth1", policies=(VFS, whole))
    assert set(of(result).values()) == {"physnet2"}
    assert {"eth0-whole", "eth1-whole"} < of(result).keys()


def test_a_vf_representor_publishes_an_empty_physnet() -> None:
    port = Interface(if_name="eth0r0", type="representor", pf_name="eth0", pf_pci_address="0000:03:00.0")
    ports = exclusive("ports", f'{OURS}.type == "representor"')
    assert of(offered("physnet2=eth0", policies=(ports,), interfaces=(*CARDS, port))) == {"eth0r0": ""}


def test_policies_select_by_the_physnet_of_the_node_and_their_own_physnet_takes_precedence() -> None:
    second = exclusive("second", f'{OURS}.physnet == "physnet2"', additionalAttributes={"physnet": "physnet2-fast"})
    third = exclusive("third", f'{OURS}.physnet != "physnet2" && {OURS}.type == "vf"')
    assert of(offered("physnet2=eth0", "physnet3=eth1", policies=(second, third))) == {
        "eth0": "physnet2-fast",
        "eth0v0": "physnet2-fast",
        "eth0v1": "physnet2-fast",
        "eth1v0": "physnet3",
        "eth1v1": "physnet3",
    }


def test_a_physical_network_is_a_text() -> None:
    assert check(exclusive("p", "true", additionalAttributes={"physnet": "physnet2"})) == ()
    (error,) = check(exclusive("p", "true", additionalAttributes={"physnet": 2}))
    assert error.what == "2 is not text; it must be the name of a physical network"
    assert error.place == "spec.exposure.additionalAttributes.physnet"


def test_a_physnet_without_space_on_a_device_is_omitted_and_reported_for_the_node() -> None:
    full = exclusive("full", f'{OURS}.pfName == "eth0"', additionalAttributes={"a": "1", "b": "2", "c": "3"})
    other = exclusive("other", f'{OURS}.pfName == "eth1"')
    result = offered("physnet2=eth0,eth1", policies=(full, other))
    assert of(result) == {"eth0v0": None, "eth0v1": None, "eth1v0": "physnet2", "eth1v1": "physnet2"}
    (problem,) = [each for each in result.problems if names.PHYSNET in each.message]
    assert problem.policy == ""
    assert problem.message.startswith('--physnet: physnet is not published on the devices of "full", for lack of space')


def test_a_device_with_all_that_policies_may_add_still_fits_the_api() -> None:
    two = exclusive("two", f'{OURS}.type == "vf"', additionalAttributes={"a": "1", "b": "2"})
    packed = layout(offered("physnet2=eth0,eth1", policies=(two,)), node="worker-1")
    assert packed.problems == ()
    assert {len(device.attributes) + len(device.capacity) for one in packed.slices for device in one.spec.devices} == {
        32
    }


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            ("physnet2=eth0,eht1",),
            (
                '--physnet physnet2=eht1: the node does not have an interface "eht1", so physnet2 does not '
                'apply to its devices; did you mean "eth1"?'
            ),
        ),
        (
            ("physnet2=eth0,0000:77:00.0",),
            '--physnet physnet2=0000:77:00.0: the node does not have an interface "0000:77:00.0"',
        ),
        (
            ("physnet2=eth0", "physnet3=0000:03:00.0"),
            (
                '--physnet: "eth0" is in physnet2 by its name and in physnet3 by its PCI address '
                "0000:03:00.0; the name is used"
            ),
        ),
    ],
)
def test_a_physnet_option_that_does_not_fit_the_node_is_reported_and_the_others_apply(
    told: tuple[str, ...], said: str
) -> None:
    result = offered(*told)
    (problem,) = result.problems
    assert problem.policy == ""
    assert problem.message.startswith(said)
    assert of(result)["eth0v0"] == "physnet2"


def test_a_nic_that_comes_and_goes_changes_the_problem_with_it() -> None:
    exposer = Exposer((VFS,))
    told = physnets.read(["physnet2=eth0,eth1"])
    for cards, expected in ((CARDS[:3], 1), (CARDS, 0), (CARDS[:3], 1)):
        result = exposer.expose(with_physnets(inventory(*cards), told))
        assert len(result.problems) == len(exposer.problems) == expected


def test_the_name_of_a_pf_that_is_away_is_known_by_its_vfs() -> None:
    assert offered("physnet2=eth0", interfaces=CARDS[1:]).problems == ()


@pytest.mark.parametrize(
    "text",
    ["physnet2", "physnet2:", ":eth0", "physnet2:eth0,eth1", "physnet2:a:b", "=eth0", "physnet2=", "physnet2=eth0,",
     "phys net=eth0", "a=b=c", "p=" + "e" * 16, "x" * 65 + "=eth0", "p=a/b", "-p=eth0", "p=a b"],
)  # fmt: skip
def test_an_invalid_physnet_option_is_rejected_with_a_hint_on_the_format(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not valid") as refused:
        physnets.read([text])
    assert "use PHYSNET=NIC" in refused.value.hint


def test_a_nic_in_two_physical_networks_is_refused() -> None:
    with pytest.raises(InvalidInputError, match='"eth0" is in physnet2 and in physnet3'):
        physnets.read(["physnet2=eth0,eth1", "physnet3=eth0"])


def test_selectors_can_use_physnet_and_a_misspelled_physnet_is_reported() -> None:
    for vocabulary in (of_devices(), of_interfaces()):
        assert examine(f'{OURS}.physnet == "physnet2"', vocabulary) == ()
        (finding,) = examine(f'{OURS}.phynset == "physnet2"', vocabulary)
        assert "physnet" in str(finding)


def test_physnet_options_are_recorded_in_the_inventory_and_cleared_by_empty_options() -> None:
    found = with_physnets(inventory(pf("eth0")), physnets.read(["physnet2=eth0"]))
    assert found.interfaces[0].physnet == "physnet2"
    assert found.node.wired == {"eth0": "physnet2"}
    assert with_physnets(found, {}).interfaces == (replace(found.interfaces[0], physnet=""),)
