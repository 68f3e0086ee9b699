"""Two projects of one cloud: the role `service` reaches the objects of both, and netdra uses those of its own alone."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from netdra.neutron.answers import PortRequest
from netdra.neutron.client import Neutron
from netdra.neutron.errors import (
    AmbiguousError,
    NeutronError,
    NoNetworkError,
    NoPortError,
    OtherProjectError,
)
from netdra.neutron.marks import OWNER, description
from netdra.neutron.session import Session
from netdra.neutron.tenancy import NOTHING, AllowedIds
from testbed.openstack.cloud import OTHER_PROJECT, PROJECT, Cloud
from tests.cluster.neutron.conftest import HOST

T = TypeVar("T")
PATIENCE = 120.0
_NUMBERS = itertools.count(1)


@pytest.fixture
def file(cloud: Cloud, tmp_path: Path) -> Path:
    return cloud.clouds(tmp_path / "clouds.yaml")


def ask(
    file: Path,
    question: Callable[[Neutron], Awaitable[T]],
    allowed: AllowedIds = NOTHING,
    requests: list[str] | None = None,
) -> T:
    def answered(server: str, method: str, status: int, seconds: float) -> None:
        if requests is not None and server == "Neutron":
            requests.append(method)

    async def asked() -> T:
        async with Neutron(Session(file, seconds=PATIENCE, on_answer=answered), allowed) as neutron:
            return await question(neutron)

    return asyncio.run(asked())


def other(cloud: Cloud, name: str, **fields: Any) -> Any:
    """A network of the other project, with a subnet."""
    made = cloud.network(name, "physnet2", **{"project_id": cloud.projects[OTHER_PROJECT], **fields})
    number = next(_NUMBERS)
    common = {"network_id": made["id"], "project_id": made["project_id"]}
    made["subnet"] = cloud.make("subnet", cidr=f"10.70.{number}.0/24", ip_version=4, name=f"{name}-4", **common)
    return made


def share(cloud: Cloud, kind: str, thing: Any) -> None:
    """Share an object of the other project with netdra's by RBAC."""
    policy = {"object_type": kind, "object_id": thing["id"], "action": "access_as_shared"}
    body = {"rbac_policy": policy | {"target_tenant": cloud.projects[PROJECT]}}
    cloud.admin("neutron", "POST", "/v2.0/rbac-policies", body)


def group(cloud: Cloud, project: str) -> Any:
    body = {"security_group": {"name": "web", "project_id": cloud.projects[project]}}
    return cloud.admin("neutron", "POST", "/v2.0/security-groups", body)["security_group"]


def wanted(network: Any, **further: Any) -> PortRequest:
    number = next(_NUMBERS)
    fields: dict[str, Any] = {
        "name": f"tenant-{number}-0",
        "claim": f"tenant-{number}",
        "cluster": "cluster-1",
        "host": HOST,
        "network": network["id"],
        "physnet": "physnet2",
        "pci_slot": f"0000:07:10.{number % 8}",
    }
    return PortRequest(**fields | further)


def ports_of(cloud: Cloud, asked: PortRequest) -> list[Any]:
    return [port for port in cloud.ports() if port["device_id"] == asked.claim]


@pytest.fixture
def blue(cloud: Cloud) -> Iterator[Any]:
    """A network `blue` of netdra's project, gone after the test."""
    made = cloud.network("blue", "physnet2", ["10.69.0.0/24"])
    yield made
    for port in cloud.ports():
        if port["network_id"] == made["id"]:
            cloud.admin("neutron", "DELETE", f"/v2.0/ports/{port['id']}")
    cloud.admin("neutron", "DELETE", f"/v2.0/networks/{made['id']}")


def test_a_private_network_of_another_project_is_used_neither_by_id_nor_by_name(cloud: Cloud, file: Path) -> None:
    private = other(cloud, "private")
    for named in ("private", private["id"]):
        with pytest.raises(OtherProjectError) as problem:
            ask(file, lambda neutron, named=named: neutron.network(named))  # type: ignore[misc]
        assert f'network "{named}"' in problem.value.what
        assert f"{private['id']} of project {cloud.projects[OTHER_PROJECT]}" in problem.value.what
        assert f'netdra works in project "{PROJECT}" ({cloud.projects[PROJECT]})' in problem.value.what
        assert f"--neutron-allow-network {private['id']}" in problem.value.hint
    asked = wanted(private)
    with pytest.raises(OtherProjectError):
        ask(file, lambda neutron: neutron.ensure(asked))
    assert ports_of(cloud, asked) == []
    with pytest.raises(NoNetworkError):
        ask(file, lambda neutron: neutron.network("00000000-0000-4000-8000-000000000000"))


@pytest.mark.parametrize("how", ["shared", "rbac", "external", "network", "project"])
def test_shared_and_allowed_networks_of_another_project_are_used(cloud: Cloud, file: Path, how: str) -> None:
    fields: dict[str, Any] = {"shared": {"shared": True}, "external": {"router:external": True}}.get(how, {})
    network = other(cloud, f"lent-{how}", **fields)
    if how == "rbac":
        share(cloud, "network", network)
    allowed = {
        "network": AllowedIds(networks=frozenset({network["id"]})),
        "project": AllowedIds(projects=frozenset({cloud.projects[OTHER_PROJECT]})),
    }.get(how, NOTHING)
    name = AllowedIds(shared_names=True) if allowed is NOTHING else allowed
    assert ask(file, lambda neutron: neutron.network(network["name"]), name).id == network["id"]
    port, _, settings = ask(file, lambda neutron: neutron.ensure(wanted(network)), allowed)
    assert port.project_id == cloud.projects[PROJECT], "the port is of netdra's project, wherever its network is"
    assert settings.vlan == network["provider:segmentation_id"]
    assert settings.addresses[0].startswith(network["subnet"]["cidr"].rpartition(".")[0])


def test_a_network_that_another_project_shares_is_not_bound_by_its_name_or_its_physical_network(
    cloud: Cloud, file: Path
) -> None:
    lure = other(cloud, "storage-net", **{"provider:physical_network": "physnet3"})
    share(cloud, "network", lure)
    cloud.allow(get_network__provider__physical_network="role:admin or role:service")
    try:
        for question in (
            lambda neutron: neutron.network("storage-net"),
            lambda neutron: neutron.network_of("physnet3"),
        ):
            with pytest.raises(OtherProjectError) as problem:
                ask(file, question)
            assert f"{lure['id']} of project {cloud.projects[OTHER_PROJECT]}" in problem.value.what
            assert "controller.neutron.allowedNetworks" in problem.value.hint
    finally:
        cloud.allow()
    port, *_ = ask(file, lambda neutron: neutron.ensure(wanted(lure, physnet="physnet3")))
    assert port.network_id == lure["id"], "its id leads to it"


def test_a_network_of_the_same_name_in_another_project_neither_blocks_nor_takes_the_name(
    cloud: Cloud, file: Path, blue: Any
) -> None:
    twin = other(cloud, "blue")
    assert ask(file, lambda neutron: neutron.network("blue")).id == blue["id"]
    share(cloud, "network", twin)  # any member may share its network with any project
    assert ask(file, lambda neutron: neutron.network("blue")).id == blue["id"]
    assert ask(file, lambda neutron: neutron.network(twin["id"])).id == twin["id"]
    own = cloud.network("blue", "physnet2")
    with pytest.raises(AmbiguousError) as problem:
        ask(file, lambda neutron: neutron.network("blue"))
    assert own["id"] in problem.value.hint
    assert twin["id"] not in problem.value.hint
    cloud.admin("neutron", "DELETE", f"/v2.0/networks/{own['id']}")
    shown = ask(file, Neutron.networks)
    assert all(network.shared or network.external or network.project_id == cloud.projects[PROJECT] for network in shown)


def test_a_missing_network_that_another_project_makes_is_not_bound_into(cloud: Cloud, file: Path) -> None:
    with pytest.raises(NoNetworkError):
        ask(file, lambda neutron: neutron.network("teal"))
    other(cloud, "teal")
    with pytest.raises(OtherProjectError):
        ask(file, lambda neutron: neutron.network("teal"))


def test_a_named_port_of_another_project_is_left_as_it_is(cloud: Cloud, file: Path, blue: Any) -> None:
    common = {"network_id": blue["id"], "binding:vnic_type": "direct"}
    theirs = cloud.make("port", project_id=cloud.projects[OTHER_PROJECT], **common)
    asked = wanted(blue)

    def adopt(neutron: Neutron) -> Awaitable[Any]:
        return neutron.adopt(asked, theirs["id"], lambda *_: False)

    with pytest.raises(OtherProjectError) as problem:
        ask(file, adopt)
    assert f"port {theirs['id']} belongs to project {cloud.projects[OTHER_PROJECT]}" in problem.value.what
    assert f"--neutron-allow-project {cloud.projects[OTHER_PROJECT]}" in problem.value.hint
    assert ports_of(cloud, asked) == []
    # As one that a former version took: it is given back though it may not be used, since it is bound to the host.
    allowed = AllowedIds(projects=frozenset({cloud.projects[OTHER_PROJECT]}))
    ask(file, adopt, allowed)
    assert [port["id"] for port in ports_of(cloud, asked)] == [theirs["id"]]
    ask(file, lambda neutron: neutron.give_back(theirs["id"], asked.claim, HOST, lambda *_: False))
    assert ports_of(cloud, asked) == []
    with pytest.raises(NoPortError):
        ask(file, lambda neutron: neutron.adopt(asked, "00000000-0000-4000-8000-000000000000", lambda *_: False))


def test_a_port_of_an_own_project_in_anothers_network_is_refused(cloud: Cloud, file: Path) -> None:
    private = other(cloud, "around")
    made = cloud.make(
        "port", project_id=cloud.projects[PROJECT], network_id=private["id"], **{"binding:vnic_type": "direct"}
    )
    asked = wanted(private)
    with pytest.raises(OtherProjectError, match=private["id"]):
        ask(file, lambda neutron: neutron.adopt(asked, made["id"], lambda *_: False))
    assert ports_of(cloud, asked) == []


def test_a_port_that_looks_like_netdras_in_another_project_is_not_taken_for_one(
    cloud: Cloud, file: Path, blue: Any
) -> None:
    private = other(cloud, "forged")
    asked = wanted(blue)
    marks = {"name": asked.name, "device_id": asked.claim, "device_owner": OWNER}
    forged = cloud.make(
        "port",
        network_id=private["id"],
        project_id=cloud.projects[OTHER_PROJECT],
        description=description(asked.mark),
        **marks,
    )
    port, *_ = ask(file, lambda neutron: neutron.ensure(asked))
    assert (port.id != forged["id"], port.network_id) == (True, blue["id"])
    assert forged["id"] not in {port.id for port in ask(file, lambda neutron: neutron.ports(asked.cluster))}
    assert not next(port for port in cloud.ports() if port["id"] == forged["id"])["binding:host_id"]


def test_a_subnet_of_a_third_project_is_refused(cloud: Cloud, file: Path, blue: Any) -> None:
    theirs = cloud.make(
        "subnet",
        network_id=blue["id"],
        cidr="10.68.0.0/24",
        ip_version=4,
        name="theirs",
        project_id=cloud.projects[OTHER_PROJECT],
    )

    async def choose(neutron: Neutron) -> Any:
        return await neutron.subnet(await neutron.network("blue"), "theirs")

    with pytest.raises(OtherProjectError) as problem:
        ask(file, choose)
    assert "subnet theirs of network blue belongs to project" in problem.value.what
    assert f"--neutron-allow-network {blue['id']}" in problem.value.hint
    with pytest.raises(OtherProjectError):
        ask(file, lambda neutron: neutron.ensure(wanted(blue, subnet=theirs["id"])))
    assert ask(file, choose, AllowedIds(networks=frozenset({blue["id"]}))).id == theirs["id"]


def test_security_groups_of_another_project_are_used_if_they_are_shared(cloud: Cloud, file: Path, blue: Any) -> None:
    own, theirs, lent = group(cloud, PROJECT), group(cloud, OTHER_PROJECT), group(cloud, OTHER_PROJECT)
    share(cloud, "security_group", lent)
    for usable in (own, lent):
        ask(file, lambda neutron, usable=usable: neutron.ensure(wanted(blue, security_groups=(usable["id"],))))  # type: ignore[misc]
    asked = wanted(blue, security_groups=(theirs["id"],))
    with pytest.raises(NoNetworkError, match="security-groups"):  # Neutron hides it from this role
        ask(file, lambda neutron: neutron.ensure(asked))
    cloud.allow(context_is_admin="role:admin or role:service")  # and shows it to this one, and takes it
    try:
        with pytest.raises(OtherProjectError, match=f"security group {theirs['id']} belongs to project"):
            ask(file, lambda neutron: neutron.ensure(asked))
    finally:
        cloud.allow()
    assert ports_of(cloud, asked) == []


def test_a_qos_policy_of_another_project_is_used_if_it_is_shared(cloud: Cloud, file: Path, blue: Any) -> None:
    """Neutron itself takes any project's."""
    common = {"name": "slow", "project_id": cloud.projects[OTHER_PROJECT]}
    theirs, lent = (
        cloud.admin("neutron", "POST", "/v2.0/qos/policies", {"policy": common | {"shared": shared}})["policy"]["id"]
        for shared in (False, True)
    )
    ask(file, lambda neutron: neutron.ensure(wanted(blue, qos_policy=lent)))
    asked = wanted(blue, qos_policy=theirs)
    with pytest.raises(NeutronError):
        ask(file, lambda neutron: neutron.ensure(asked))
    assert ports_of(cloud, asked) == []


def test_a_new_port_costs_no_more_requests_than_its_network_its_vf_and_itself_need(
    cloud: Cloud, file: Path, blue: Any
) -> None:
    """The network, the ports of the VF and of the claim, the new port, the subnets; lists have pages of three here."""
    asked = wanted(blue, host="node-of-its-own")
    cloud.beat("node-of-its-own", physnet2=["enp1s0f0"])
    requests: list[str] = []

    async def story(neutron: Neutron) -> None:
        network = await neutron.network("blue")
        await neutron.users_of(asked.host, asked.pci_slot)
        await neutron.ensure(asked, network)

    ask(file, story, requests=requests)
    assert requests == ["GET", "GET", "GET", "GET", "POST", "GET"], "one asks for extensions, once an hour"
