import pytest

from netdra.kernel.route import Route
from netdra.model.errors import InvalidInputError
from netdra.model.result import CNIAddress, CNIRoute, StepResult
from netdra.steps import addressing
from netdra.steps.addressing import RouteParams


@pytest.mark.parametrize(
    ("text", "spelled"),
    [("10.0.0.5/24", "10.0.0.5/24"), ("2001:DB8::0:5/64", "2001:db8::5/64"), ("10.0.0.1/32", "10.0.0.1/32")],
)
def test_addresses_are_spelled_as_the_kernel_does(text: str, spelled: str) -> None:
    assert addressing.checked_address(text, "here") == spelled


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.5",
        "10.0.0.5/",
        "10.0.0/24",
        "10.0.0.5/33",
        "::1/129",
        "a/24",
        "10.0.0.5/24 ",
        "fe80::1%eth0/64",
        "10.0.0.5/255.255.255.0",
        "10.0.0.5/0.0.0.255",
        "10.0.0.5/024",
        "0.0.0.0/0",
        "::/64",
        "::1/128",
        "ff02::1/64",
        "239.0.0.1/32",
        "255.255.255.255/32",
    ],
)
def test_an_invalid_address_is_rejected_with_its_place(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^here: "):
        addressing.checked_address(text, "here")


@pytest.mark.parametrize(
    ("params", "route"),
    [
        (
            RouteParams(destination="10.0.0.0/8", gateway="10.1.0.1"),
            Route(destination="10.0.0.0/8", gateway="10.1.0.1"),
        ),
        (
            RouteParams(dst="10.0.0.0/8", gw="10.1.0.1", priority=5),
            Route(destination="10.0.0.0/8", gateway="10.1.0.1", metric=5),
        ),
        (RouteParams(destination="10.1.2.3/8"), Route(destination="10.0.0.0/8")),
        (RouteParams(destination="10.1.2.3"), Route(destination="10.1.2.3/32")),
        (RouteParams(destination="default", gateway="10.1.0.1"), Route(destination="0.0.0.0/0", gateway="10.1.0.1")),
        (RouteParams(destination="default", gateway="2001:db8::1"), Route(destination="::/0", gateway="2001:db8::1")),
        (
            RouteParams(destination="default", gateway="2001:DB8:0::1"),
            Route(destination="::/0", gateway="2001:db8::1"),
        ),
        (RouteParams(destination="10.0.0.0/8", scope="link"), Route(destination="10.0.0.0/8", scope=253)),
        (RouteParams(destination="10.0.0.0/8", metric=0, priority=7), Route(destination="10.0.0.0/8", metric=0)),
        (
            RouteParams(destination="10.0.0.0/8", gateway="2001:db8::1"),
            Route(destination="10.0.0.0/8", gateway="2001:db8::1"),
        ),
    ],
)
def test_routes_in_either_vocabulary(params: RouteParams, route: Route) -> None:
    assert addressing.checked_route(params, "here") == route


@pytest.mark.parametrize(
    "params",
    [
        RouteParams(),
        RouteParams(destination="somewhere"),
        RouteParams(destination="10.0.0.0/8", gateway="10.0.0.0/8"),
        RouteParams(destination="2001:db8::/32", gateway="10.0.0.1"),
        RouteParams(destination="2001:db8::/32", source="10.0.0.1"),
        RouteParams(destination="10.0.0.0/8", source="2001:db8::1"),
        RouteParams(destination="10.0.0.0/255.0.0.0"),
        RouteParams(destination="fe80::%eth0/64"),
        RouteParams(destination="default", gateway="fe80::1%eth0"),
        RouteParams(destination="10.0.0.0/8", gateway="0.0.0.0"),
        RouteParams(destination="2001:db8::/32", gateway="::"),
        RouteParams(destination="10.0.0.0/8", gateway="10.1.0.1", scope="host"),
        RouteParams(destination="10.0.0.0/8", dst="11.0.0.0/8"),
        RouteParams(destination="10.0.0.0/8", gw="10.1.0.1", gateway="10.1.0.2"),
    ],
)
def test_an_invalid_route_is_rejected_with_its_place(params: RouteParams) -> None:
    with pytest.raises(InvalidInputError, match=r"^here: "):
        addressing.checked_route(params, "here")


def test_a_route_of_an_ipam_plugin_goes_over_the_gateway_of_its_family() -> None:
    leased = StepResult(
        ips=(
            CNIAddress(address="10.0.0.5/24", gateway="10.0.0.1"),
            CNIAddress(address="10.1.0.5/24", gateway="10.1.0.1"),
            CNIAddress(address="2001:db8::5/64", gateway="2001:db8::1"),
        ),
        routes=(CNIRoute(dst="0.0.0.0/0"), CNIRoute(dst="::/0"), CNIRoute(dst="10.9.0.0/16", gw="10.0.0.9", table=7)),
    )
    added = addressing.from_ipam(leased, "net1")
    assert added.addresses == ("10.0.0.5/24", "10.1.0.5/24", "2001:db8::5/64")
    assert [(each.destination, each.gateway, each.table) for each in added.routes] == [
        ("0.0.0.0/0", "10.0.0.1", 254),
        ("::/0", "2001:db8::1", 254),
        ("10.9.0.0/16", "10.0.0.9", 7),
    ]


def test_an_address_is_reported_with_the_gateway_in_its_network() -> None:
    routes = [
        Route(destination="10.200.0.0/16", gateway="10.99.0.1"),
        Route(destination="10.100.0.0/16", gateway="10.100.0.1"),
    ]
    result = addressing.described(StepResult(), ("10.100.0.5/24", "2001:db8::5/64"), routes, 3)
    assert result.ips == (
        CNIAddress(address="10.100.0.5/24", gateway="10.100.0.1", interface=3),
        CNIAddress(address="2001:db8::5/64", interface=3),
    )
