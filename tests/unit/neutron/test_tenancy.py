"""Which objects of a cloud may be used: present, refused, or unknown, and never one for another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.neutron.answers import NeutronNetwork, Port, SecurityGroup, Subnet
from netdra.neutron.errors import AmbiguousError, NoNetworkError, OtherProjectError, UnknownProjectError
from netdra.neutron.tenancy import AllowedIds, Tenancy, is_id

OWN, LISTED, OTHER = "own", "listed", "other"
TENANCY = Tenancy(project=OWN, name="kubernetes", allowed=AllowedIds(projects=frozenset({LISTED})))
NETWORKS = st.builds(
    NeutronNetwork,
    id=st.text("0123456789abcdef", min_size=4, max_size=4),
    name=st.just("blue"),
    project_id=st.sampled_from([OWN, LISTED, OTHER, ""]),
    shared=st.booleans(),
    external=st.booleans(),
)


def network(project: str = OTHER, **fields: Any) -> NeutronNetwork:
    return NeutronNetwork(**{"id": "n-1", "name": "blue", "project_id": project} | fields)


@given(
    st.lists(NETWORKS, max_size=5, unique_by=lambda each: each.id), st.booleans(), st.sampled_from(["own", "all", "id"])
)
def test_only_an_allowed_network_is_chosen_and_foreign_networks_do_not_change_the_choice(
    networks: list[NeutronNetwork], allows_first: bool, names: str
) -> None:
    listed = frozenset({networks[0].id}) if networks and allows_first else frozenset()
    allowed = AllowedIds(projects=frozenset({LISTED}), networks=listed, shared_names=names == "all")
    tenancy = Tenancy(project=OWN, name="kubernetes", allowed=allowed)

    def choose(among: list[NeutronNetwork]) -> str:
        try:
            return tenancy.only(among, 'network "blue"', by_id=names == "id").id
        except (NoNetworkError, OtherProjectError, UnknownProjectError, AmbiguousError) as problem:
            return problem.reason

    own = [each for each in networks if each.project_id in (OWN, LISTED) or each.id in listed]
    lent = [each for each in networks if each not in own and (each.shared or each.external)]
    chosen = choose(networks)
    for candidates in (own, lent):
        if candidates is lent and lent and names == "own":
            assert chosen == "OtherProject"
            break
        if candidates:
            assert chosen == (candidates[0].id if len(candidates) == 1 else "Ambiguous")
            break
    else:
        unknown = any(not each.project_id for each in networks)
        assert chosen == ("NoNetwork" if not networks else "UnknownProject" if unknown else "OtherProject")
    if own or lent:
        assert choose(own + lent) == chosen


@pytest.mark.parametrize("fields", [{"shared": True}, {"external": True}])
def test_a_network_that_another_project_shares_is_found_by_its_id_alone(fields: dict[str, Any]) -> None:
    lent = network(**fields)
    with pytest.raises(OtherProjectError) as problem:
        TENANCY.only([lent], 'network "blue"')
    assert 'network "blue": there is only n-1 of project other, which other projects share' in problem.value.what
    assert "--neutron-allow-network n-1" in problem.value.hint
    assert TENANCY.only([lent], 'network "n-1"', by_id=True) is lent
    assert Tenancy(project="", name="").only([lent], 'network "blue"') is lent, "no login, so no projects are compared"
    trusting = AllowedIds(shared_names=True)
    assert Tenancy(project=OWN, name="", allowed=trusting).only([lent], 'network "blue"') is lent
    assert Tenancy(project="", name="", allowed=trusting).only([network()], 'network "blue"').id == "n-1"


def test_an_object_without_a_project_id_is_unknown_and_not_refused() -> None:
    for thing in (network(""), Port(id="p", network_id="n-1"), SecurityGroup(id="g")):
        assert TENANCY.verdict(thing) == "unknown"
        with pytest.raises(UnknownProjectError, match=r'does not answer with its project_id; .* "kubernetes" \(own\)'):
            TENANCY.check(thing, "it")
    port = Port(id="p", network_id="n-1", name="c-0")
    with pytest.raises(UnknownProjectError):
        TENANCY.own([port])  # were it left out, a second one would be made
    assert TENANCY.own([Port(id="p", network_id="n-1", project_id=OTHER)]) == ()


@pytest.mark.parametrize(
    ("project", "owner", "verdict"),
    [
        (OWN, OTHER, "present"),
        (LISTED, OTHER, "present"),
        (OTHER, OTHER, "present"),
        ("third", OTHER, "refused"),
        ("", "", "unknown"),
    ],
)
def test_a_subnet_is_its_networks_owners_or_ones_own(project: str, owner: str, verdict: str) -> None:
    subnet = Subnet(id="s-1", network_id="n-1", cidr="10.0.0.0/24", project_id=project)
    lent = network(owner, shared=True)
    if verdict == "present":
        TENANCY.check_subnet(subnet, lent)
        return
    with pytest.raises(OtherProjectError if verdict == "refused" else UnknownProjectError):
        TENANCY.check_subnet(subnet, lent)
    Tenancy(project=OWN, name="", allowed=AllowedIds(networks=frozenset({"n-1"}))).check_subnet(subnet, lent)


def test_without_a_login_every_object_is_present_unless_an_allow_list_exists() -> None:
    assert Tenancy(project="", name="").verdict(network()) == "present"
    listed = Tenancy(project="", name="", allowed=AllowedIds(projects=frozenset({LISTED})))
    assert [listed.verdict(network(project)) for project in (LISTED, OTHER, "")] == ["present", "refused", "unknown"]


def test_only_a_hyphenated_uuid_counts_as_an_id() -> None:
    assert is_id("e43048f3-c617-49b9-96d5-b4e84b4074dd")
    assert not any(map(is_id, ("blue", "e43048f3c61749b996d5b4e84b4074dd", "e43048f3-c617-49b9-96d5-b4e84b4074dd ")))
