"""Sysctls that steps state: those that a topology may always state, those of policies, and errors."""

from __future__ import annotations

import msgspec
import pytest

from netdra.exposure import expose
from netdra.exposure.check import check
from netdra.model.inventory import Interface
from netdra.model.plan import PlannedDevice
from netdra.rules.sysctls import forbidden
from netdra.rules.topologies import check_topology
from tests.builders import inventory, policy, topology
from tests.plans import plan, step

DISABLE, STATIC = "net.ipv6.conf.IFNAME.disable_ipv6", "{type: static, addresses: [{address: '2001:db8::5/64'}]}"
OWN = "net.ipv6.conf.IFNAME.accept_ra"


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        (f"- {{name: a, type: macvlan, sysctls: {{{OWN}: '0'}}}}", ""),
        ("- {name: a, type: macvlan, sysctls: {net/core/somaxconn: '9'}}", ""),
        ("- {name: a, type: macvlan, sysctls: {kernel.hostname: x}}", "'kernel.hostname' cannot be set for a pod"),
        ("- {name: a, type: macvlan, sysctls: {net.core.somaxconn: ' '}}", "has an empty value"),
        (
            f"- {{name: a, type: vfio-pci, sysctls: {{{OWN}: '0'}}}}",
            "a step of type vfio-pci does not make an interface",
        ),
        (
            f"- {{name: a, type: macvlan, sysctls: {{{DISABLE}: '1'}}, config: {{ipam: {STATIC}}}}}",
            "disables IPv6, but the step assigns an IPv6 address",
        ),
    ],
)
def test_sysctls_that_cannot_be_set_are_errors_of_the_topology(steps: str, error: str) -> None:
    found = check_topology(topology(steps))
    assert len(found) == bool(error), found
    assert error in "".join(finding.text for finding in found)


@pytest.mark.parametrize(
    ("key", "patterns", "allowed"),
    [
        (OWN, (), True),
        ("net/ipv4/conf/IFNAME/arp_ignore", (), True),
        ("net.ipv6.conf.all.disable_ipv6", (), False),
        ("net.ipv6.conf.IFNAME.forwarding", (), False),
        ("net.core.somaxconn", ("net.core.somaxconn",), True),
        ("net/core/somaxconn", ("net.core.*",), True),
        ("net.ipv4.tcp_rmem", ("net.ipv4.tcp_*",), True),
        ("net.ipv4.ip_forward", ("net.ipv4.tcp_*", "net.core.somaxconn"), False),
    ],
)
def test_a_policy_allows_sysctls_beside_those_of_the_interface(
    key: str, patterns: tuple[str, ...], allowed: bool
) -> None:
    """Also for a step that stands on the device."""
    made = policy("p", "true", allowedSysctls=list(patterns))
    assert check(made) == ()
    (offered,) = expose(inventory(Interface(if_name="e0")), [made]).devices
    device = PlannedDevice(request="r", pool="p", device="e0", allowed_sysctls=offered.allowed_sysctls)
    root, derived = step("nic", "macvlan", "net1", device=device), step("vlan", "vlan", "net2", after=["nic"])
    for at in (0, 1):
        steps = [root, derived]
        steps[at] = msgspec.structs.replace(steps[at], sysctls={key: "1"})
        named = f'NetworkTopology "t", step "{steps[at].name}" ({steps[at].type}): sysctl "{key}" is not allowed by the'
        found = [finding.text for finding in forbidden([plan(*steps)])]
        assert [text.startswith(named) for text in found] == [True] * (not allowed)


def test_a_policy_with_a_setting_outside_net_is_an_error() -> None:
    (error,) = check(policy("p", "true", allowedSysctls=["kernel.*"]))
    assert error.what == '"kernel.*" is not a setting below net'
    assert error.place == "spec.exposure.allowedSysctls[0]"
