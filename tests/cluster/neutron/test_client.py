"""The client of Neutron against the real Neutron and Keystone: what it gets, and every way in which it gets nothing."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from netdra.neutron.answers import NeutronNetwork, Port, PortRequest, VfSettings
from netdra.neutron.client import Neutron
from netdra.neutron.errors import (
    AmbiguousError,
    CloudsError,
    ForbiddenError,
    LostError,
    NeutronError,
    NeutronRefusedError,
    NoAddressError,
    NoAgentError,
    NoNetworkError,
    QuotaError,
    UnauthorizedError,
    UnreachableError,
    WrongPhysnetError,
)
from netdra.neutron.marks import OWNER, Label
from netdra.neutron.session import Session
from testbed import yaml
from testbed.openstack.cloud import PROJECT, VLANS, Cloud
from testbed.waiting import until
from tests.cluster.neutron.conftest import HOST

T = TypeVar("T")
PATIENCE = 60.0
"""What a request may take where the machine has other work; how long the client waits by itself is not asked here."""
RENEWED_SECONDS = 12
"""A token's life: a fifth of it is left when it is renewed, in which a busy machine's cloud must have answered."""
_NUMBERS = itertools.count(1)


@pytest.fixture
def file(cloud: Cloud, tmp_path: Path) -> Path:
    return cloud.clouds(tmp_path / "clouds.yaml")


def ask(file: Path, question: Callable[[Neutron], Awaitable[T]], *, seconds: float = PATIENCE) -> T:
    async def asked() -> T:
        async with Neutron(Session(file, seconds=seconds)) as neutron:
            return await question(neutron)

    return asyncio.run(asked())


def wanted(network: Any, host: str = HOST, **further: Any) -> PortRequest:
    number = next(_NUMBERS)
    fields: dict[str, Any] = {
        "name": f"claim-{number}-0",
        "claim": f"claim-{number}",
        "cluster": "cluster-1",
        "host": host,
        "network": network["id"],
        "physnet": "physnet2",
        "pci_slot": f"0000:05:10.{number % 8}",
    }
    return PortRequest(**fields | further)


def made(cloud: Cloud, port: PortRequest) -> list[Any]:
    return [each for each in cloud.ports() if each["device_id"] == port.claim]


@pytest.mark.parametrize(("by", "version"), [("credential", "/v3"), ("credential", ""), ("password", "/v3/")])
def test_a_user_logs_in_by_credential_and_by_password(cloud: Cloud, tmp_path: Path, by: str, version: str) -> None:
    file = cloud.clouds(tmp_path / "clouds.yaml", by=by, auth_url=cloud.url("keystone") + version)
    login = ask(file, lambda neutron: neutron.session.login())
    assert (login.user, login.project, login.network) == ("netdra-service", "kubernetes", cloud.url("neutron"))
    assert {"member", "service"} <= set(login.roles)


def test_a_vf_gets_its_ports_vlan_mac_addresses_and_mtu(cloud: Cloud, network: Any, file: Path) -> None:
    port, _, settings = ask(file, lambda neutron: neutron.ensure(wanted(network)))
    low, high = VLANS["physnet2"]
    assert low <= network["provider:segmentation_id"] <= high
    assert settings.vlan == network["provider:segmentation_id"]
    (stored,) = [each for each in cloud.ports() if each["id"] == port.id]
    assert settings.mac == stored["mac_address"]
    assert {each.partition("/")[0] for each in settings.addresses} == {
        each["ip_address"] for each in stored["fixed_ips"]
    }
    assert sorted(each.partition("/")[2] for each in settings.addresses) == ["24", "64"]
    assert "10.20.0.1" in settings.gateways
    assert (settings.mtu, settings.spoofchk, settings.trust, settings.link_state) == (1500, True, False, "auto")
    assert (stored["device_owner"], stored["binding:profile"]["physical_network"]) == (OWNER, "physnet2")
    assert stored["status"] == "DOWN", "only an agent that sees the device says otherwise"


def test_an_existing_port_is_reused_and_no_second_port_is_created(cloud: Cloud, network: Any, file: Path) -> None:
    """As after the death of the process that made it."""
    asked = wanted(network)
    first = ask(file, lambda neutron: neutron.ensure(asked))
    assert ask(file, lambda neutron: neutron.ensure(asked)) == first
    other = replace(asked, network=cloud.network("newer", "physnet2")["id"])
    assert ask(file, lambda neutron: neutron.ensure(other)) == first, "it keeps its network"
    assert len(made(cloud, asked)) == 1


def label_of(pod: str) -> Label:
    tags = ("netdra", "netdra:namespace=team-a", f"netdra:pod={pod}")
    return Label(name=f"team-a/{pod}/vf", text=f"pod {pod}", tags=tags)


LABEL = label_of("web-0")


def test_operators_find_a_port_by_pod_and_namespace(cloud: Cloud, network: Any, file: Path) -> None:
    assert requests_for_tags(cloud, network, file, "web-1") == ["PUT"], (
        "the name and the description are made with the port"
    )


def requests_for_tags(cloud: Cloud, network: Any, file: Path, pod: str) -> list[str]:
    """Make a port that is found by the tags of its pod, as no other; the requests after its creation."""
    requests: list[str] = []

    async def story() -> Port:
        session = Session(file, seconds=PATIENCE, on_answer=lambda _, method, *__: requests.append(method))
        async with Neutron(session) as neutron:
            port, *_ = await neutron.ensure(asked)
            requests.clear()
            assert await neutron.label(port, asked) is bool(requests)
            return port

    asked = wanted(network, label=label_of(pod))
    port = asyncio.run(story())
    found = cloud.admin("neutron", "GET", f"/v2.0/ports?tags=netdra:namespace%3Dteam-a,netdra:pod%3D{pod}")["ports"]
    assert [(each["id"], each["name"]) for each in found] == [(port.id, f"team-a/{pod}/vf")]
    assert found[0]["description"] == f"netdra cluster=cluster-1 port={asked.name}; pod {pod}"
    labelled = list(requests)
    assert ask(file, lambda neutron: neutron.ensure(asked))[0].id == port.id
    cloud.admin("neutron", "DELETE", f"/v2.0/ports/{port.id}")
    return labelled


def test_a_port_of_a_former_version_gets_its_label_and_keeps_the_tags_of_others(
    cloud: Cloud, network: Any, file: Path
) -> None:
    asked = wanted(network, label=LABEL)
    common = {"network_id": network["id"], "project_id": cloud.projects[PROJECT]}
    marks = {"name": asked.name, "device_id": asked.claim, "device_owner": OWNER}
    direct = {"binding:vnic_type": "direct"}
    former = cloud.make("port", description="netdra cluster=cluster-1", **marks, **common, **direct)
    path = f"/v2.0/ports/{former['id']}"
    cloud.admin("neutron", "PUT", f"{path}/tags", {"tags": ["billing", "netdra:pod=web-9"]})
    port, *_ = ask(file, lambda neutron: neutron.ensure(asked))
    assert port.id == former["id"]
    assert ask(file, lambda neutron: neutron.label(port, asked))
    stored = cloud.admin("neutron", "GET", path)["port"]
    assert stored["name"] == "team-a/web-0/vf"
    assert set(stored["tags"]) == {"billing", *LABEL.tags}
    again = ask(file, lambda neutron: neutron.port(port.id))
    assert not ask(file, lambda neutron: neutron.label(again, asked)), "nothing is left to write"
    assert [each.id for each in ask(file, lambda neutron: neutron.find(asked.mark, asked.claim))] == [port.id]


@pytest.mark.parametrize("kind", ["normal", "direct", "macvtap"])
def test_a_port_is_given_back_as_it_was(cloud: Cloud, network: Any, file: Path, kind: str) -> None:
    common = {"network_id": network["id"], "project_id": cloud.projects[PROJECT], "name": "by hand"}
    made = cloud.make("port", **common, **{"binding:vnic_type": kind})
    asked = wanted(network, label=LABEL)
    port, _, settings = ask(file, lambda neutron: neutron.adopt(asked, made["id"], lambda *_: False))
    assert (port.is_bound, port.vnic_type, settings.mac) == (True, "direct", made["mac_address"])
    moved = replace(asked, pci_slot="0000:05:11.7")
    again, *_ = ask(file, lambda neutron: neutron.adopt(moved, made["id"], lambda *_: False))
    assert again.pci_slot == "0000:05:11.7"
    ask(file, lambda neutron: neutron.give_back(made["id"], asked.claim, HOST, lambda *_: False))
    left = cloud.admin("neutron", "GET", f"/v2.0/ports/{made['id']}")["port"]
    fields = ("binding:vnic_type", "binding:profile", "binding:host_id", "device_id", "device_owner", "name", "tags")
    assert {field: left[field] for field in fields} == {field: made[field] for field in fields}


def test_each_change_gives_an_object_another_revision(cloud: Cloud, file: Path) -> None:
    """By which changes are found: Neutron 29 refuses its own filter `changed_since`."""
    net = cloud.network("revised", "physnet2", ["10.35.0.0/24"])
    port, *_ = ask(file, lambda neutron: neutron.ensure(wanted(net)))
    (subnet,) = cloud.admin("neutron", "GET", f"/v2.0/subnets?network_id={net['id']}")["subnets"]
    policy = cloud.admin("neutron", "POST", "/v2.0/qos/policies", {"policy": {"name": "revised", "shared": True}})
    policy_path = f"qos/policies/{policy['policy']['id']}"
    limit = {"bandwidth_limit_rule": {"max_kbps": 5000, "direction": "egress"}}
    port_path, network_path, subnet_path = f"ports/{port.id}", f"networks/{net['id']}", f"subnets/{subnet['id']}"
    changes: list[tuple[str, str, str, str, Any]] = [
        ("ports", port.id, "PUT", port_path, {"port": {"admin_state_up": False}}),
        ("ports", port.id, "PUT", port_path, {"port": {"fixed_ips": [{"ip_address": "10.35.0.99"}]}}),
        ("ports", port.id, "PUT", port_path, {"port": {"security_groups": [], "port_security_enabled": False}}),
        ("ports", port.id, "PUT", port_path, {"port": {"qos_policy_id": policy["policy"]["id"]}}),
        ("qos/policies", policy["policy"]["id"], "POST", f"{policy_path}/bandwidth_limit_rules", limit),
        ("networks", net["id"], "PUT", network_path, {"network": {"mtu": 1400}}),
    ]

    async def story(neutron: Neutron) -> None:
        for kind, key, method, path, body in changes:
            before = await neutron.revisions(kind, id=key)
            assert await neutron.revisions(kind, id=key) == before
            cloud.admin("neutron", method, f"/v2.0/{path}", body)
            after = await neutron.revisions(kind, id=key)
            assert after.keys() == before.keys() == {key}
            assert after != before, (path, body)
        before_subnets = await neutron.subnets_of([net["id"]])
        cloud.admin("neutron", "PUT", f"/v2.0/{subnet_path}", {"subnet": {"dns_nameservers": ["10.35.0.2"]}})
        assert (await neutron.subnets_of([net["id"]])) != before_subnets
        neutron.drop({net["id"]}, {policy["policy"]["id"]})
        (changed,) = await neutron.ports_by_id([port.id, "5c1f7f3e-0000-4000-8000-000000000000"])
        described = await neutron.describe(changed, await neutron.network(net["id"]))
        assert (described.max_tx_rate, described.dns, described.link_state) == (5, ("10.35.0.2",), "disable")

    ask(file, story)


def test_a_paused_server_times_out_as_unreachable_and_creates_only_one_port(
    cloud: Cloud, network: Any, file: Path
) -> None:
    """The request is carried out when the server continues, though the client does not wait for the answer any more."""
    asked = wanted(network)

    async def story(neutron: Neutron) -> None:
        await neutron.session.login()
        cloud.neutron.pause()
        try:
            for question in (neutron.ensure(asked), neutron.session.one("POST", "ports", "port", Port, asked.sent)):
                began = time.monotonic()
                with pytest.raises(UnreachableError, match=r"no answer within 4 s"):
                    await question
                assert time.monotonic() - began < 20
        finally:
            cloud.neutron.resume()

    ask(file, story, seconds=4.0)
    (left,) = until(lambda: made(cloud, asked), "the port that nobody waits for")
    port, _, settings = ask(file, lambda neutron: neutron.ensure(asked))
    assert (port.id, settings.mac) == (left["id"], left["mac_address"])
    assert len(made(cloud, asked)) == 1


def test_an_unreachable_keystone_is_reported_with_its_url(cloud: Cloud, tmp_path: Path) -> None:
    file = cloud.clouds(tmp_path / "clouds.yaml", auth_url="http://127.0.0.1:9/v3")
    with pytest.raises(UnreachableError) as problem:
        ask(file, lambda neutron: neutron.session.login())
    assert problem.value.what.startswith("Keystone: log in: ")
    assert "http://127.0.0.1:9" in problem.value.hint


def test_without_an_agent_the_port_stays_unbound_until_an_agent_is_alive(
    cloud: Cloud, network: Any, file: Path
) -> None:
    asked = wanted(network, host="node-2")
    with pytest.raises(NoAgentError) as problem:
        ask(file, lambda neutron: neutron.ensure(asked))
    assert "no NIC switch agent is alive on host node-2 for physnet2" in problem.value.what
    assert "openstack network agent list --host node-2" in problem.value.hint
    (before,) = made(cloud, asked)
    assert before["binding:vif_type"] == "binding_failed"
    cloud.beat("node-2", physnet3=["enp1s0f1"])
    with pytest.raises(NoAgentError):
        ask(file, lambda neutron: neutron.ensure(asked))
    cloud.beat("node-2", physnet2=["enp1s0f0"])
    port, _, settings = ask(file, lambda neutron: neutron.ensure(asked))
    assert (port.id, settings.mac) == (before["id"], before["mac_address"])
    cloud.silence("node-2")
    with pytest.raises(NoAgentError):
        ask(file, lambda neutron: neutron.ensure(wanted(network, host="node-2")))
    again, *_ = ask(file, lambda neutron: neutron.ensure(asked))
    assert again.id == port.id, "what is bound stays so, whatever becomes of the agent"


def test_exhausted_addresses_and_quota_are_reported_by_their_reason(cloud: Cloud, network: Any, file: Path) -> None:
    small = cloud.network("small", "physnet2", ["10.30.0.0/30"])
    ask(file, lambda neutron: neutron.ensure(wanted(small)))
    with pytest.raises(NoAddressError) as problem:
        ask(file, lambda neutron: neutron.ensure(wanted(small)))
    assert problem.value.reason == "NoAddress"
    cloud.limit(len(cloud.ports()))
    try:
        with pytest.raises(QuotaError, match="OverQuota") as quota:
            ask(file, lambda neutron: neutron.ensure(wanted(network)))
        assert quota.value.reason == "Quota"
    finally:
        cloud.limit(-1)


def test_a_fixed_address_is_given_once(cloud: Cloud, network: Any, file: Path) -> None:
    asked = wanted(network, addresses=("10.20.0.77",))
    _, _, settings = ask(file, lambda neutron: neutron.ensure(asked))
    assert settings.addresses == ("10.20.0.77/24",)
    with pytest.raises(NoAddressError):
        ask(file, lambda neutron: neutron.ensure(wanted(network, addresses=("10.20.0.77",))))


def test_the_error_for_a_user_without_the_role_names_the_required_roles(
    cloud: Cloud, network: Any, tmp_path: Path
) -> None:
    file = cloud.clouds(tmp_path / "clouds.yaml", "member")
    asked = wanted(network)
    with pytest.raises(ForbiddenError) as problem:
        ask(file, lambda neutron: neutron.ensure(asked))
    assert 'user "netdra-member" of project "kubernetes" needs the roles member and service' in problem.value.hint
    assert made(cloud, asked) == []


def test_a_token_that_is_not_taken_any_more_is_renewed_once(cloud: Cloud, network: Any, file: Path) -> None:
    async def story(neutron: Neutron) -> tuple[Any, Any]:
        before = await neutron.session.login()
        cloud.revoke(before.headers["X-Auth-Token"])
        await neutron.network(network["id"])
        return before, await neutron.session.login()

    before, after = ask(file, story)
    assert before.headers != after.headers


def test_a_secret_that_is_replaced_counts_from_the_next_login_on(cloud: Cloud, network: Any, tmp_path: Path) -> None:
    right = cloud.clouds(tmp_path / "clouds.yaml").read_text()
    file = cloud.clouds(tmp_path / "clouds.yaml", application_credential_secret="not-the-secret")

    async def story(neutron: Neutron) -> None:
        with pytest.raises(UnauthorizedError) as problem:
            await neutron.network(network["id"])
        assert "not-the-secret" not in str(problem.value)
        assert "its secret is another" in problem.value.hint
        file.write_text(right)
        await neutron.network(network["id"])

    ask(file, story)


def test_flat_networks_qos_and_port_security_determine_vf_settings(cloud: Cloud, file: Path) -> None:
    flat = cloud.network(
        "flat", "physnet2", ["10.40.0.0/24"], **{"provider:network_type": "flat", "port_security_enabled": False}
    )
    policy = cloud.admin("neutron", "POST", "/v2.0/qos/policies", {"policy": {"name": "slow", "shared": True}})
    path = f"/v2.0/qos/policies/{policy['policy']['id']}"
    limit = {"max_kbps": 12345, "direction": "egress"}
    cloud.admin("neutron", "POST", f"{path}/bandwidth_limit_rules", {"bandwidth_limit_rule": limit})
    asked = wanted(flat, qos_policy=policy["policy"]["id"])
    _, _, settings = ask(file, lambda neutron: neutron.ensure(asked))
    assert (settings.vlan, settings.spoofchk, settings.max_tx_rate, settings.min_tx_rate) == (0, False, 13, 0)


def test_a_network_without_a_vlan_cannot_be_bound(cloud: Cloud, file: Path) -> None:
    overlay = cloud.make(
        "network", name="overlay", project_id=cloud.projects["kubernetes"], **{"provider:network_type": "vxlan"}
    )
    cloud.make("subnet", network_id=overlay["id"], cidr="10.50.0.0/24", ip_version=4)
    with pytest.raises(NoAgentError) as problem:
        ask(file, lambda neutron: neutron.ensure(wanted(overlay)))
    assert "the network has to be a VLAN or flat one of a physical network" in problem.value.hint


def test_the_networks_of_a_physnet_are_found_only_with_permission_to_see_it(cloud: Cloud, file: Path) -> None:
    third = cloud.network("third", "physnet3", ["10.60.0.0/24"])
    with pytest.raises(ForbiddenError, match="may not see which of them are of physical network"):
        ask(file, lambda neutron: neutron.network_of("physnet3"))
    cloud.allow(get_network__provider__physical_network="role:admin or role:service")
    try:
        assert ask(file, lambda neutron: neutron.network_of("physnet3")).id == third["id"]
        with pytest.raises(WrongPhysnetError) as wrong:
            ask(file, lambda neutron: neutron.ensure(wanted(third)))
        assert 'network third belongs to physical network "physnet3", but VF' in wrong.value.what
        with pytest.raises(NoNetworkError):
            ask(file, lambda neutron: neutron.network_of("physnet9"))
        other = cloud.network("fourth", "physnet3")
        with pytest.raises(AmbiguousError) as ambiguous:
            ask(file, lambda neutron: neutron.network_of("physnet3"))
        assert f"fourth ({other['id']}), third ({third['id']})" in ambiguous.value.hint
    finally:
        cloud.allow()


def test_networks_of_one_name_are_not_chosen_among(cloud: Cloud, file: Path) -> None:
    twins = [cloud.network("twin", "physnet2") for _ in range(2)]
    with pytest.raises(AmbiguousError) as problem:
        ask(file, lambda neutron: neutron.network("twin"))
    assert all(twin["id"] in problem.value.hint for twin in twins)
    assert ask(file, lambda neutron: neutron.network(twins[1]["id"])).id == twins[1]["id"]
    with pytest.raises(NoNetworkError, match='network "nowhere" not found'):
        ask(file, lambda neutron: neutron.network("nowhere"))


def test_a_port_deleted_in_neutron_is_lost_and_deleting_it_again_succeeds(
    cloud: Cloud, network: Any, file: Path
) -> None:
    port, *_ = ask(file, lambda neutron: neutron.ensure(wanted(network)))
    cloud.admin("neutron", "DELETE", f"/v2.0/ports/{port.id}")
    with pytest.raises(LostError):
        ask(file, lambda neutron: neutron.port(port.id))
    ask(file, lambda neutron: neutron.delete(port.id))


def test_two_clusters_in_one_project_know_their_own_ports(cloud: Cloud, network: Any, file: Path) -> None:
    here = wanted(network, cluster="here")
    there = wanted(network, cluster="there", claim=here.claim)
    first, *_ = ask(file, lambda neutron: neutron.ensure(here))
    second, *_ = ask(file, lambda neutron: neutron.ensure(there))
    assert first.id != second.id
    assert [each.id for each in ask(file, lambda neutron: neutron.ports("here"))] == [first.id]
    ask(file, lambda neutron: neutron.delete(first.id))
    assert ask(file, lambda neutron: neutron.ports("here")) == ()
    assert [each.id for each in ask(file, lambda neutron: neutron.ports("there"))] == [second.id]


def test_a_list_whose_objects_are_deleted_between_its_pages_is_begun_anew(
    cloud: Cloud, network: Any, file: Path
) -> None:
    """Neutron finds the next page by the last object of the one before, and answers 404 when that is gone."""
    common = {"network_id": network["id"], "project_id": cloud.projects[PROJECT], "device_owner": OWNER}
    made = sorted(cloud.make("port", description="netdra cluster=paged", **common)["id"] for _ in range(4))
    others = sorted(port["id"] for port in cloud.ports() if port["device_owner"] == OWNER and port["id"] not in made)
    asked: list[str] = []

    def told(server: str, method: str, status: int, seconds: float) -> None:
        if server == "Neutron" and method == "GET":
            asked.append(str(status))
            if len(asked) == 1:
                for port in sorted((*made, *others))[:3]:
                    cloud.admin("neutron", "DELETE", f"/v2.0/ports/{port}")

    async def story() -> tuple[Port, ...]:
        async with Neutron(Session(file, seconds=PATIENCE, on_answer=told)) as neutron:
            return await neutron.ports()

    left = {port.id for port in asyncio.run(story())}
    assert asked[:3] == ["200", "404", "200"]
    assert left == set(sorted((*made, *others))[3:])
    for port in left & set(made):
        cloud.admin("neutron", "DELETE", f"/v2.0/ports/{port}")


def test_of_two_that_take_a_port_at_once_one_has_it_and_gives_back_its_own(
    cloud: Cloud, network: Any, file: Path
) -> None:
    """Two processes: Neutron compares the revision of the port that each of them has read."""

    async def story() -> None:
        async with Neutron(Session(file, seconds=PATIENCE)) as one, Neutron(Session(file, seconds=PATIENCE)) as other:
            for _ in range(5):
                made = cloud.make(
                    "port",
                    network_id=network["id"],
                    project_id=cloud.projects[PROJECT],
                    **{"binding:vnic_type": "direct"},
                )["id"]
                asked = [wanted(network), wanted(network)]
                takes = (by.adopt(each, made, lambda *_: True) for by, each in zip((one, other), asked, strict=True))
                taken = await asyncio.gather(*takes, return_exceptions=True)
                (refused,) = (answer for answer in taken if isinstance(answer, BaseException))
                assert isinstance(refused, NeutronRefusedError)
                assert "is used already" in refused.what
                first, second = sorted(asked, key=lambda each: isinstance(taken[asked.index(each)], BaseException))
                for user, slot, left in (
                    (second.claim, second.pci_slot, first.claim),
                    (first.claim, "0000:05:1f.7", first.claim),
                    (first.claim, first.pci_slot, ""),
                ):
                    # Another VF of the claim gives nothing back that this one has.
                    is_another: Callable[[str, str], bool] = partial(lambda gives, _, has: has != gives, slot)
                    await other.give_back(made, user, HOST, is_another)
                    assert (await one.port(made)).device_id == left

    asyncio.run(story())


def test_ports_that_are_wanted_at_once_are_all_made_once(cloud: Cloud, network: Any, file: Path) -> None:
    asked = [wanted(network) for _ in range(6)]

    async def story(neutron: Neutron) -> list[tuple[Port, NeutronNetwork, VfSettings]]:
        return await asyncio.gather(*(neutron.ensure(each) for each in asked))

    found = ask(file, story)
    assert len({settings.mac for *_, settings in found}) == len({port.id for port, *_ in found}) == 6
    assert [len(made(cloud, each)) for each in asked] == [1] * 6


def test_agents_are_listed_only_if_the_policy_allows_it(cloud: Cloud, file: Path) -> None:
    assert ask(file, Neutron.agents) == ()
    cloud.allow(get_agent="role:admin or role:service")
    try:
        (agent,) = ask(file, lambda neutron: neutron.agents(HOST))
        assert (agent.alive, agent.devices) == (True, {"physnet2": ("enp1s0f0",), "physnet3": ("enp1s0f1",)})
    finally:
        cloud.allow()


def test_errors_logs_and_object_representations_contain_no_secrets(
    cloud: Cloud, network: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    user = cloud.users["service"]
    said: list[str] = []
    tokens: list[str] = []
    with caplog.at_level(logging.DEBUG):
        for by in ("credential", "password"):
            file = cloud.clouds(tmp_path / "clouds.yaml", by=by)

            async def story(neutron: Neutron) -> None:
                login = await neutron.session.login()
                tokens.append(login.headers["X-Auth-Token"])
                said.extend((repr(login), str(login), repr(neutron)))
                for question in (neutron.network("nowhere"), neutron.port("nothing"), neutron.network_of("physnet2")):
                    with pytest.raises(NeutronError) as problem:
                        await question
                    said.extend((str(problem.value), repr(problem.value)))

            ask(file, story)
            plain = yaml.safe_load(file.read_text())
            plain["clouds"]["openstack"]["auth"]["auth_url"] = "no url"
            file.write_text(yaml.safe_dump(plain))
            with pytest.raises(CloudsError) as wrong:
                ask(file, lambda neutron: neutron.session.login())
            said.append(str(wrong.value))
    every = "\n".join((*said, caplog.text))
    assert all(tokens)
    for secret in (user.secret, user.password, *tokens):
        assert secret not in every


# The last tests restart a server with other settings, which nobody needs to undo: the next module's cloud is restored.


def test_a_token_is_renewed_before_its_time_is_over(cloud: Cloud, network: Any, file: Path) -> None:
    cloud.limit_tokens(RENEWED_SECONDS)

    async def story(neutron: Neutron) -> None:
        tokens: set[str] = set()
        while len(tokens) < 2:
            await neutron.network(network["id"])
            tokens.add((await neutron.session.login()).headers["X-Auth-Token"])
            await asyncio.sleep(0.2)

    ask(file, story)


def test_a_neutron_that_makes_tags_with_a_port_is_asked_once(cloud: Cloud, network: Any, file: Path) -> None:
    cloud.load_drivers("tag_ports_during_bulk_creation")
    assert requests_for_tags(cloud, network, file, "web-2") == []


def test_a_neutron_without_keystone_asks_for_no_login(cloud: Cloud, network: Any, tmp_path: Path) -> None:
    file = tmp_path / "clouds.yaml"
    auth = {"endpoint": cloud.url("neutron")}
    file.write_text(yaml.safe_dump({"clouds": {"here": {"auth_type": "none", "auth": auth}}}))
    with pytest.raises(UnauthorizedError, match="a login is required"):
        ask(file, lambda neutron: neutron.network(network["id"]))
    cloud.omit_login()
    _, _, settings = ask(file, lambda neutron: neutron.ensure(wanted(network)))
    assert settings.vlan == network["provider:segmentation_id"]
