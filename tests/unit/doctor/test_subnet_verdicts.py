"""The subnets of a cloud's physical networks beside a cluster's PodNetworks."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.doctor.neutron_verdicts import Account, CloudFacts, Failed
from netdra.doctor.subnet_verdicts import verdicts
from netdra.neutron.answers import NeutronNetwork, Subnet
from netdra.rules.taken_ranges import TakenRange
from tests.unit.networks.builders import network

ACCOUNT = Account(user="u", project="p", roles=(), url="http://neutron")
BLUE = NeutronNetwork(id="n", name="blue", physnet="physnet2", kind="vlan", segment=100)
SUBNET = Subnet(id="s", network_id="n", cidr="10.7.0.0/24")
CLOUD = CloudFacts(account=ACCOUNT, networks=(BLUE,), subnets=(SUBNET,))


@pytest.mark.parametrize(
    ("cidr", "spec", "level"),
    [
        ("10.7.0.0/25", {}, "warning"),
        ("10.7.0.0/25", {"vlan": 100, "physnet": "physnet2"}, "warning"),
        ("10.7.0.0/25", {"vlan": 200}, "ok"),
        ("10.7.0.0/25", {"physnet": "physnet3"}, "ok"),
        ("10.8.0.0/25", {}, "ok"),
    ],
)
def test_subnets_on_the_wire_of_a_pod_network_are_compared(cidr: str, spec: dict[str, Any], level: str) -> None:
    (finding,) = verdicts([network(cidr, **spec)], CLOUD, ())

    assert (finding.where, finding.check, finding.level) == ("neutron", "subnets", level)
    assert level == "ok" or "range 10.7.0.0/25 overlaps" in finding.seen


def test_an_overlap_that_the_ports_show_is_not_reported_twice() -> None:
    known = TakenRange(cidr="10.7.0.0/24", use="neutron", owner='network "blue" of Neutron', vlan=100)

    assert [finding.level for finding in verdicts([network("10.7.0.0/25")], CLOUD, [known])] == ["ok"]


def test_without_pod_networks_nothing_is_reported_and_without_subnets_the_reason() -> None:
    failed = CloudFacts(account=ACCOUNT, networks=(BLUE,), subnets=Failed("Unreachable", "no answer", "try again"))

    assert verdicts([], CLOUD, ()) == []
    (finding,) = verdicts([network("10.7.0.0/25")], failed, ())
    assert (finding.level, finding.fix) == ("warning", "try again")
