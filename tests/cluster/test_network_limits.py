"""The limits of a PodNetwork for namespaces and claims, and its deletion, which waits for its users (decision D76)."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, SLICE, manifest
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace, open_workspace
from tests.cluster import identities
from tests.cluster.daemons import DENIED, refusal, running_controller, running_webhook
from tests.cluster.test_controller import EVENT, TOPOLOGY, condition
from tests.cluster.test_network_shares import CAPACITY, TOLERATION, Shared, until_capacity
from tests.cluster.test_pod_networks import ADDRESS, NETWORK, Net

pytestmark = pytest.mark.usefixtures("controller")
TEMPLATE = "resource.k8s.io/v1/ResourceClaimTemplate"
IN_USE = "networking.dra.io/in-use"
SHARES = "network-shares.yaml"


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work, with the rights of its account and no others."""
    with running_controller(control_plane, api) as process:
        yield process


@pytest.fixture
def tenant(api: Api) -> Iterator[Workspace]:
    """Another namespace."""
    with open_workspace(api) as opened:
        yield opened


def share(network: str, steps: int) -> Object:
    """A request for the addresses of some steps."""
    exactly = {"deviceClassName": f"podnetwork.{network}", "tolerations": [TOLERATION]}
    return {"name": "address", "exactly": {**exactly, "capacity": {"requests": {CAPACITY: str(steps)}}}}


def nic(net: Net) -> Object:
    """A request for the NIC of a topology."""
    return {"name": "lan", "exactly": {"deviceClassName": f"{net.topology}-lan"}}


def until_event(api: Api, namespace: str, reason: str, text: str, name: str = "") -> None:
    """Wait until a claim or pod of a namespace has an event."""

    def has(found: list[Object]) -> bool:
        return any(
            each["reason"] == reason and text in each["note"] and name in ("", each["regarding"]["name"])
            for each in found
        )

    api.wait_for_all(EVENT, has, namespace=namespace)


def of_namespace(net: Net, namespace: str) -> list[Object]:
    """The PodAddresses of a network whose owner is in a namespace, and has a claim."""
    own = (found for found in net.addresses if found["spec"]["owner"]["namespace"] == namespace)
    return [found for found in own if "claim" in found["spec"]]


def claim(net: Net, tenant: Workspace, name: str) -> None:
    """A claim of another namespace, as the scheduler leaves it."""
    spec = {"devices": {"requests": [nic(net)]}}
    net.allocate(tenant.api.create(manifest(CLAIM, name, tenant.namespace, spec=spec)))


def release(tenant: Workspace, name: str) -> None:
    """A claim of another namespace is deallocated, then deleted."""
    found = tenant.api.get(CLAIM, name, tenant.namespace)
    tenant.api.update({**found, "status": {}}, subresource="status")
    tenant.api.delete(CLAIM, name, tenant.namespace)


def test_shares_of_a_namespace_that_the_network_excludes_take_nothing_from_others(
    workspace: Workspace, tenant: Workspace, api: Api
) -> None:
    """The webhook is away: a tenant's claim has all of a network's shares, and other pods still get addresses."""
    net = Shared(workspace, ranges=[{"cidr": "10.50.0.0/29"}], keepSeconds=0, namespaces=[workspace.namespace])
    until_capacity(net, 6)
    node = net.node("node")
    api.wait_for(CLASS, f"podnetwork.{net.name}", lambda found: found is not None)
    tenant.add_pod("thief", tenant.add_claim("thief", nic(net), share(net.name, 6)))
    tenant.wait_placed("thief", node)
    until_event(api, tenant.namespace, "NamespaceNotAllowed", net.name, "thief")

    net.pod("own")
    workspace.wait_placed("own", node)
    until(lambda: net.of("own"), "the pod of the network's namespace to have an address")
    assert of_namespace(net, tenant.namespace) == []


def test_a_pending_claim_of_an_excluded_namespace_learns_the_reason(
    workspace: Workspace, tenant: Workspace, api: Api
) -> None:
    net = Shared(workspace, ranges=[{"cidr": "10.51.0.0/29"}], keepSeconds=0, namespaces=[workspace.namespace])
    until_capacity(net, 6)
    tenant.add_claim("thief", nic(net), share(net.name, 500))
    until_event(api, tenant.namespace, "NamespaceNotAllowed", net.name, "thief")


def test_shares_of_a_claim_without_a_step_on_the_network_take_nothing_from_others(
    workspace: Workspace, api: Api
) -> None:
    net = Shared(workspace, ranges=[{"cidr": "10.52.0.0/29"}], keepSeconds=0)
    other = Shared(workspace_named(workspace, "other"), ranges=[{"cidr": "10.53.0.0/29"}], keepSeconds=0)
    until_capacity(net, 6)
    until_capacity(other, 6)
    node = net.node("node")
    for name in (net.name, other.name):
        api.wait_for(CLASS, f"podnetwork.{name}", lambda found: found is not None)
    workspace.add_pod("greedy", workspace.add_claim("greedy", nic(other), share(net.name, 6)))
    workspace.wait_placed("greedy", node)

    net.pod("own")
    workspace.wait_placed("own", node)
    until(lambda: net.of("own"), "the pod to have an address")


def workspace_named(workspace: Workspace, prefix: str) -> Workspace:
    """A workspace with other names for objects without a namespace, in the same namespace and with the same end."""
    other = Workspace(workspace.api)
    other.namespace, other._suffix = workspace.namespace, f"{prefix}{other._suffix}"
    other._made = workspace._made
    return other


def test_the_webhook_rejects_the_share_request_of_an_excluded_namespace(
    control_plane: ControlPlane, workspace: Workspace, tenant: Workspace, api: Api
) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.54.0.0/28"}], keepSeconds=0, namespaces=[workspace.namespace])
    with running_webhook(control_plane, api):
        spec = {"devices": {"requests": [nic(net), share(net.name, 1)]}}
        for kind, made in ((CLAIM, spec), (TEMPLATE, {"spec": spec})):
            wrong = manifest(kind, "thief", tenant.namespace, spec=made)
            refused = refusal(functools.partial(api.create, wrong, dry_run=True))
            assert refused.startswith(DENIED)
            assert f'PodNetwork "{net.name}"' in refused
            assert f'not for namespace "{tenant.namespace}"' in refused
            assert workspace.namespace not in refused  # a tenant does not learn the names of others
            api.create(manifest(kind, "own", workspace.namespace, spec=made), dry_run=True)
        # A namespace that was added a moment ago is not rejected by an older copy.
        api.patch(NETWORK, net.name, {"spec": {"namespaces": [workspace.namespace, tenant.namespace]}})
        api.create(manifest(CLAIM, "thief", tenant.namespace, spec=spec), dry_run=True)


def test_without_the_webhook_an_admission_policy_rejects_the_share_request_of_an_excluded_namespace(
    workspace: Workspace, tenant: Workspace, api: Api
) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.55.0.0/28"}], keepSeconds=0, namespaces=[workspace.namespace])
    spec = {"devices": {"requests": [nic(net), share(net.name, 1)]}}
    choice = {"name": "any", "deviceClassName": f"podnetwork.{net.name}", "tolerations": [TOLERATION]}
    hidden = {"devices": {"requests": [nic(net), {"name": "address", "firstAvailable": [choice]}]}}
    policies = identities.template(SHARES)
    for each in policies:
        api.create(each)
    try:
        for wanted in (spec, hidden):
            wrong = functools.partial(api.create, manifest(CLAIM, "thief", tenant.namespace, spec=wanted), dry_run=True)
            until(lambda wrong=wrong: "is not for namespace" in refusal(wrong), "the policy to reject the claim")  # type: ignore[misc]
            api.create(manifest(CLAIM, "own", workspace.namespace, spec=wanted), dry_run=True)
        template = manifest(TEMPLATE, "thief", tenant.namespace, spec={"spec": spec})
        assert "is not for namespace" in refusal(functools.partial(api.create, template, dry_run=True))
        plain = {"devices": {"requests": [nic(net)]}}
        api.create(manifest(CLAIM, "plain", tenant.namespace, spec=plain), dry_run=True)
        api.patch(NETWORK, net.name, {"spec": {"namespaces": None}})
        allowed = functools.partial(api.create, manifest(CLAIM, "thief", tenant.namespace, spec=spec), dry_run=True)
        until(lambda: not refusal(allowed), "the policy to follow the network")
    finally:
        for each in policies:
            api.delete(f"{each['apiVersion']}/{each['kind']}", each["metadata"]["name"])


def test_a_network_that_requires_the_share_request_assigns_nothing_without_it(workspace: Workspace, api: Api) -> None:
    net = Shared(workspace, ranges=[{"cidr": "10.56.0.0/28"}], keepSeconds=0, requests="Required")
    until_capacity(net, 13)
    node = net.node("node")
    api.wait_for(CLASS, f"podnetwork.{net.name}", lambda found: found is not None)
    net.pod("without", share=False)
    workspace.wait_placed("without", node)
    until_event(api, workspace.namespace, "RequestMissing", f"podnetwork.{net.name}", "without")
    net.pod("with")
    workspace.wait_placed("with", node)
    until(lambda: net.of("with"), "the claim with the request to have an address")
    assert net.of("without") == []

    api.patch(NETWORK, net.name, {"spec": {"requests": "Optional"}})
    until(lambda: net.of("without"), "the claim without the request to have an address")
    api.patch(NETWORK, net.name, {"spec": {"requests": "Required"}})
    net.pod("third", share=False)
    workspace.wait_placed("third", node)
    until_event(api, workspace.namespace, "RequestMissing", f"podnetwork.{net.name}", "third")
    assert net.of("without")  # an address that was assigned stays


def test_a_namespace_gets_addresses_up_to_its_limit_and_others_do_not_wait_for_it(
    workspace: Workspace, tenant: Workspace, api: Api
) -> None:
    net = Net(
        workspace,
        ranges=[{"cidr": "10.57.0.0/29"}],
        keepSeconds=0,
        quarantineSeconds=0,
        limits={"perNamespace": 2},
    )
    for number in range(3):
        net.claim(f"claim-{number}")
        if number < 2:
            until(functools.partial(net.of, f"claim-{number}"), f"claim-{number} to have an address")
    until_event(api, workspace.namespace, "NamespaceLimit", "2 of 2", "claim-2")
    for number in range(2):  # two claims of the other namespace, although one of the first still waits
        claim(net, tenant, f"other-{number}")
    until(lambda: len(of_namespace(net, tenant.namespace)) == 2, "the other namespace to have its addresses")
    assert net.of("claim-2") == []

    release(tenant, "other-0")
    until(lambda: len(of_namespace(net, tenant.namespace)) == 1, "the other namespace to release one")
    assert net.of("claim-2") == []
    net.release("claim-0")
    until(lambda: net.of("claim-2"), "the claim to get the address that its namespace released")
    net.claim("claim-3")
    until_event(api, workspace.namespace, "NamespaceLimit", "2 of 2", "claim-3")
    api.patch(NETWORK, net.name, {"spec": {"limits": {"perNamespace": 3}}})
    until(lambda: net.of("claim-3"), "the claim to get an address after the limit was raised")


def test_a_claim_whose_steps_exceed_the_limit_gets_no_address_at_all(workspace: Workspace, api: Api) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.58.0.0/29"}], keepSeconds=0, limits={"perNamespace": 2})
    (step,) = api.get(TOPOLOGY, net.topology)["spec"]["steps"]
    lans = [
        {
            "name": f"vlan{number}",
            "type": "vlan",
            "dependOn": ["lan"],
            "network": net.name,
            "config": {"id": number + 5, "name": f"lan{number}", "ipam": {"type": "network"}},
        }
        for number in range(2)
    ]
    api.patch(TOPOLOGY, net.topology, {"spec": {"steps": [step, *lans]}})
    net.claim("three")
    until_event(api, workspace.namespace, "NamespaceLimit", "", "three")
    assert net.addresses == []
    api.patch(NETWORK, net.name, {"spec": {"limits": {"perNamespace": 3}}})
    until(lambda: len(net.of("three")) == 3, "the claim to have all addresses")


def test_shares_beyond_the_limit_of_a_namespace_take_nothing_from_others(
    workspace: Workspace, tenant: Workspace, api: Api
) -> None:
    net = Shared(workspace, ranges=[{"cidr": "10.59.0.0/29"}], keepSeconds=0, limits={"perNamespace": 1})
    until_capacity(net, 6)
    node = net.node("node")
    api.wait_for(CLASS, f"podnetwork.{net.name}", lambda found: found is not None)
    tenant.add_pod("greedy", tenant.add_claim("greedy", nic(net), share(net.name, 6)))
    tenant.wait_placed("greedy", node)
    net.pod("own")
    workspace.wait_placed("own", node)
    until(lambda: net.of("own"), "the pod of another namespace to have an address")


def test_the_deletion_of_a_network_waits_for_its_users_and_names_them(workspace: Workspace, api: Api) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.60.0.0/28"}], keepSeconds=0)
    names = [f"claim-{number}" for number in range(7)]
    for name in names:
        net.claim(name)
        until(functools.partial(net.of, name), f"{name} to have an address")
    address = net.attach(names[0])
    api.delete(NETWORK, net.name)
    found = api.wait_for(NETWORK, net.name, lambda each: condition(each, "Ready")[1] == "Deleting")
    assert found is not None
    message = next(each["message"] for each in found["status"]["conditions"] if each["type"] == "Ready")
    assert "7 claims" in message
    assert f"{workspace.namespace}/claim-0" in message
    assert f"{workspace.namespace}/claim-6" not in message  # five names are enough
    api.wait_for_all(
        EVENT,
        lambda events: any(each["reason"] == "Deleting" and each["regarding"]["name"] == net.name for each in events),
        namespace="default",
    )
    net.claim("late")
    until_event(api, workspace.namespace, "NoPodNetwork", "is being deleted", "late")
    assert net.of("late") == []
    assert net.of(names[0]) == [address]
    for name in names:
        net.release(name)
    api.wait_for(NETWORK, net.name, lambda each: each is None)


def test_a_network_without_users_is_deleted_at_once_and_has_no_finalizer(workspace: Workspace, api: Api) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.61.0.0/28"}], keepSeconds=0)
    found = net.until_status(users=0)
    assert "finalizers" not in found["metadata"]
    net.claim("one")
    until(lambda: net.of("one"), "the claim to have an address")
    assert api.get(NETWORK, net.name)["metadata"]["finalizers"] == [IN_USE]
    net.release("one")
    api.wait_for(NETWORK, net.name, lambda each: each is not None and "finalizers" not in each["metadata"])


def test_a_kept_address_survives_the_deletion_and_creation_of_its_network(workspace: Workspace, api: Api) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.62.0.0/28"}], keepSeconds=600)
    for name in ("first", "db"):
        net.claim(name)
        until(functools.partial(net.of, name), f"{name} to have an address")
    kept = net.of("db")
    for name in ("first", "db"):
        net.release(name)
    net.until_status(users=0)
    spec = api.get(NETWORK, net.name)["spec"]
    api.delete(NETWORK, net.name)
    api.wait_for(NETWORK, net.name, lambda each: each is None)
    until(lambda: not slices_of(api, net.name), "the slice to be deleted with the network")
    workspace.create(manifest(NETWORK, net.name, spec=spec))
    for name in ("web", "next"):  # without the kept ones, they would get the first two addresses
        net.claim(name)
        until(functools.partial(net.of, name), f"{name} to have an address")
    net.claim("db")
    net.until("db", *kept)


def slices_of(api: Api, network: str) -> list[Object]:
    """The slices of a PodNetwork."""
    prefix = f"podnetworks.dra.networking/{network}"
    return [each for each in api.list(SLICE) if each["spec"]["pool"]["name"].startswith(prefix)]


def test_addresses_of_a_network_without_the_finalizer_are_protected_once_a_controller_comes(
    workspace: Workspace, api: Api
) -> None:
    """An older controller assigned them, or the finalizer was removed by hand."""
    net = Net(workspace, ranges=[{"cidr": "10.63.0.0/28"}], keepSeconds=0)
    net.claim("one")
    until(lambda: net.of("one"), "the claim to have an address")
    api.patch(NETWORK, net.name, {"metadata": {"finalizers": None}})
    api.wait_for(NETWORK, net.name, lambda each: each is not None and IN_USE in each["metadata"].get("finalizers", []))
    assert [each["metadata"]["name"] for each in api.list(ADDRESS) if each["spec"]["network"] == net.name]
