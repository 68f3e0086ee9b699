"""Merging is concatenation that keeps what is seen twice once, with indices that stay right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.errors import InvalidInputError
from netdra.model.result import CNIDNS, CNIAddress, CNIInterface, CNIRoute, StepDevice, StepResult
from netdra.topology.merge import merge


def interface(name: str, sandbox: str = "/ns") -> CNIInterface:
    return CNIInterface(name=name, mac="52:54:00:aa:bb:01", sandbox=sandbox)


def test_one_result_is_passed_on_as_it_is() -> None:
    result = StepResult(interfaces=(interface("a"), interface("a")), ips=(CNIAddress(address="x", interface=9),))
    assert merge([result]) is result


def test_no_result_is_the_empty_one() -> None:
    assert merge([]) == StepResult()


def test_several_are_joined_in_their_order() -> None:
    merged = merge([StepResult(interfaces=(interface("net2"),)), StepResult(interfaces=(interface("net1"),))])
    assert [found.name for found in merged.interfaces] == ["net2", "net1"]


def test_the_top_of_a_diamond_is_kept_once_and_addresses_follow_their_interface() -> None:
    bond = (interface("net1"), interface("bond0"))
    shared = CNIAddress(address="10.0.0.1/24", interface=1)
    data = StepResult(
        interfaces=(*bond, interface("data0")), ips=(shared, CNIAddress(address="10.1.0.1/24", interface=2))
    )
    mgmt = StepResult(
        interfaces=(*bond, interface("mgmt0")), ips=(shared, CNIAddress(address="10.2.0.1/24", interface=2))
    )
    merged = merge([data, mgmt])
    assert [found.name for found in merged.interfaces] == ["net1", "bond0", "data0", "mgmt0"]
    assert [(found.address, found.interface) for found in merged.ips] == [
        ("10.0.0.1/24", 1),
        ("10.1.0.1/24", 2),
        ("10.2.0.1/24", 3),
    ]


def test_equal_names_in_other_namespaces_are_other_interfaces() -> None:
    merged = merge([StepResult(interfaces=(interface("a"),)), StepResult(interfaces=(interface("a", ""),))])
    assert [(found.name, found.sandbox) for found in merged.interfaces] == [("a", "/ns"), ("a", "")]


def test_routes_dns_and_devices_are_joined_too() -> None:
    first = StepResult(
        routes=(CNIRoute(dst="10.0.0.0/8", gw="10.0.0.1"),),
        dns=CNIDNS(nameservers=("1.1.1.1",), search=("a",)),
        devices=(StepDevice(pci_address="0000:03:00.2"),),
    )
    second = StepResult(
        routes=(CNIRoute(dst="10.0.0.0/8", gw="10.0.0.1"), CNIRoute(dst="10.0.0.0/8", gw="10.0.0.2")),
        dns=CNIDNS(nameservers=("9.9.9.9", "1.1.1.1"), domain="d"),
        devices=(StepDevice(pci_address="0000:03:00.3"),),
    )
    merged = merge([first, StepResult(), second])
    assert [route.gw for route in merged.routes] == ["10.0.0.1", "10.0.0.2"]
    assert merged.dns == CNIDNS(nameservers=("1.1.1.1", "9.9.9.9"), domain="d", search=("a",))
    assert [device.pci_address for device in merged.devices] == ["0000:03:00.2", "0000:03:00.3"]


@pytest.mark.parametrize("place", [-1, 1, 7])
def test_an_address_on_a_missing_interface_is_an_error(place: int) -> None:
    broken = StepResult(interfaces=(interface("a"),), ips=(CNIAddress(address="10.0.0.1/24", interface=place),))
    with pytest.raises(InvalidInputError, match=rf"10.0.0.1/24 is on interface {place} of a result that has 1"):
        merge([StepResult(), broken])


@st.composite
def results(draw: st.DrawFn) -> StepResult:
    interfaces = tuple(
        interface(name, sandbox)
        for name, sandbox in draw(
            st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "/ns"])), max_size=4)
        )
    )
    places = st.none() | st.integers(0, len(interfaces) - 1) if interfaces else st.none()
    addresses = st.builds(CNIAddress, address=st.sampled_from(["10.0.0.1/24", "10.0.0.2/24"]), interface=places)
    return StepResult(
        interfaces=interfaces,
        ips=tuple(draw(st.lists(addresses, max_size=3))),
        routes=tuple(draw(st.lists(st.builds(CNIRoute, dst=st.sampled_from("xy")), max_size=2))),
        dns=draw(
            st.none() | st.builds(CNIDNS, domain=st.sampled_from(["", "d"]), search=st.sampled_from([("s",), ()]))
        ),
    )


@given(results(), results(), results())
def test_merging_is_associative(first: StepResult, second: StepResult, third: StepResult) -> None:
    whole = merge([first, second, third])
    assert merge([merge([first, second]), third]) == whole
    assert merge([first, merge([second, third])]) == whole


@given(st.lists(results(), min_size=2, max_size=4))
def test_every_address_stays_on_its_interface(several: list[StepResult]) -> None:
    def placed(result: StepResult) -> set[tuple[str, str, str]]:
        return {
            (address.address, "", "")
            if address.interface is None
            else (
                address.address,
                result.interfaces[address.interface].name,
                result.interfaces[address.interface].sandbox,
            )
            for address in result.ips
        }

    merged = merge(several)
    assert placed(merged) == set().union(*(placed(result) for result in several))
    keys = [(found.name, found.sandbox) for found in merged.interfaces]
    assert len(keys) == len(set(keys))
