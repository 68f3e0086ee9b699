"""Services of PodNetworks on the real API server: EndpointSlices as Kubernetes' own, and names in the cluster's DNS.

Pods are objects that a test reports ready, as a kubelet does. DNS is CoreDNS.
"""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pytest

from netdra.controller.addresses.pod_addresses import PodAddresses
from netdra.controller.controller import Controller
from netdra.controller.services.endpoints import ServiceEndpoints
from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.kube.events import Recorder
from netdra.services.endpoints import is_link_local
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.dns import DNS, running_dns
from testbed.kubectl import denial
from testbed.objects import CLAIM, POD, manifest, pod
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace, open_workspace
from tests.cluster import identities
from tests.cluster.daemons import refusal, running_controller, start_controller
from tests.cluster.fault_proxy import FaultProxy
from tests.cluster.test_controller import EVENT
from tests.cluster.test_pod_networks import ADDRESS, Net

SERVICE = "v1/Service"
SLICE = "discovery.k8s.io/v1/EndpointSlice"
ADMISSION = "admissionregistration.k8s.io/v1"
MANAGED_BY, MANAGER = "endpointslice.kubernetes.io/managed-by", "endpoints.networking.dra.io"


@pytest.fixture(scope="module", autouse=True)
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work, with the rights of its account and no others."""
    with running_controller(control_plane, api, "--services") as process:
        yield process


@pytest.fixture(scope="module")
def dns(control_plane: ControlPlane) -> Iterator[DNS]:
    """The cluster's DNS server."""
    with running_dns(control_plane) as found:
        yield found


class Storage:
    """A PodNetwork, a Service on it, and the pods behind."""

    def __init__(self, workspace: Workspace, **spec: Any) -> None:
        self.workspace, self.api, self.namespace = workspace, workspace.api, workspace.namespace
        self.net = Net(workspace, keepSeconds=0, **spec)
        self.families = len(spec["ranges"])
        self.node = workspace.add_node(labels={"topology.kubernetes.io/zone": "a"})

    def service(self, name: str, pods: str = "app=web", **spec: object) -> Object:
        """A headless Service on the network, or another one."""
        made = manifest(SERVICE, name, self.namespace, spec={"clusterIP": "None", **spec})
        made["metadata"]["labels"] = {"networking.dra.io/pod-network": self.net.name, "team": "storage"}
        made["metadata"]["annotations"] = {"networking.dra.io/pod-selector": pods} if pods else {}
        return self.api.create(made)

    def pod(
        self, name: str, *, app: str = "web", ready: bool = True, claim_node: str | None = None, **spec: Any
    ) -> Object:
        """A pod with an address on the network, as its kubelet reports it."""
        self.net.claim(name, self.node if claim_node is None else claim_node)
        until(lambda: len(self.net.of(name)) == self.families, f"{name} to have addresses")
        made = pod(self.namespace, name, {"net": name})
        made["metadata"]["labels"] = {"app": app}
        made["spec"] |= {"nodeName": self.node, "terminationGracePeriodSeconds": 30, **spec}
        self.api.create(made)
        return self.report(name, ready=ready)

    def report(self, name: str, *, ready: bool = True, phase: str = "Running") -> Object:
        """The pod's status, as its kubelet writes it."""
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"phase": phase, "podIP": "10.244.0.9", "podIPs": [{"ip": "10.244.0.9"}], "conditions": conditions}
        return self.api.patch(POD, name, {"status": status}, namespace=self.namespace, subresource="status")

    def slices(self, service: str) -> list[Object]:
        """The EndpointSlices of a Service, of all writers."""
        return self.api.list(SLICE, self.namespace, labels=f"kubernetes.io/service-name={service}")

    def addresses(self, service: str) -> set[str]:
        """The addresses of a Service in the EndpointSlices of all writers."""
        return {entry["addresses"][0] for found in self.slices(service) for entry in _of(found)}

    def endpoints(self, service: str, family: str = "IPv4") -> dict[str, tuple[bool, bool, bool]]:
        """The addresses of a Service: ready, serving, terminating."""
        listed = (entry for found in self.slices(service) if found["addressType"] == family for entry in _of(found))
        words = ("ready", "serving", "terminating")
        return {entry["addresses"][0]: tuple(entry["conditions"][word] for word in words) for entry in listed}

    def until(self, service: str, family: str = "IPv4", **wanted: tuple[bool, bool, bool]) -> None:
        """Wait until a Service has these endpoints; a name is an address with `_` for `.`."""
        expected = {name.removeprefix("a").replace("_", "."): state for name, state in wanted.items()}
        until(
            lambda: self.endpoints(service, family) == expected,
            f"{service} to have {expected}",
            detail=lambda: str(self.slices(service)),
        )


def _of(found: Object) -> list[Object]:
    return found.get("endpoints") or []


READY, WAITING = (True, True, False), (False, False, False)


@pytest.fixture
def storage(workspace: Workspace) -> Storage:
    """A network of two families."""
    return Storage(workspace, ranges=[{"cidr": "10.71.0.0/24"}, {"cidr": "2001:db8:71::/64"}])


def test_a_service_has_the_addresses_of_its_pods_on_the_network_and_their_readiness(storage: Storage) -> None:
    storage.service("storage", ports=[{"name": "nfs", "port": 2049}])
    until(lambda: {found["addressType"] for found in storage.slices("storage")} == {"IPv4", "IPv6"}, "empty slices")
    storage.pod("web-0", hostname="web-0", subdomain="storage")
    storage.pod("web-1", ready=False)
    storage.pod("other", app="other")
    storage.until("storage", a10_71_0_1=READY, a10_71_0_2=WAITING)
    storage.report("web-1")
    storage.until("storage", a10_71_0_1=READY, a10_71_0_2=READY)
    six = {"2001:db8:71::1": READY, "2001:db8:71::2": READY}
    until(lambda: storage.endpoints("storage", "IPv6") == six, "the addresses of IPv6")

    (four,) = [found for found in storage.slices("storage") if found["addressType"] == "IPv4"]
    labels = {"kubernetes.io/service-name": "storage", "service.kubernetes.io/headless": "", "team": "storage"}
    own = {MANAGED_BY: MANAGER, "networking.dra.io/pod-network": storage.net.name}
    assert four["metadata"]["labels"] == labels | own
    assert four["ports"] == [{"name": "nfs", "port": 2049, "protocol": "TCP"}]
    (owner,) = four["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Service", "storage", True)
    first = min(four["endpoints"], key=lambda entry: entry["addresses"])
    uid = storage.api.get(POD, "web-0", storage.namespace)["metadata"]["uid"]
    assert first == {
        "addresses": ["10.71.0.1"],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "hostname": "web-0",
        "nodeName": storage.node,
        "zone": "a",
        "targetRef": {"kind": "Pod", "namespace": storage.namespace, "name": "web-0", "uid": uid},
    }


def test_an_endpoint_goes_with_its_pod_and_the_slices_with_the_service(storage: Storage) -> None:
    storage.service("storage")
    for name in ("web-0", "web-1", "done"):
        storage.pod(name)
    storage.until("storage", a10_71_0_1=READY, a10_71_0_2=READY, a10_71_0_3=READY)
    storage.report("done", ready=False, phase="Succeeded")
    storage.until("storage", a10_71_0_1=READY, a10_71_0_2=READY)
    storage.api.delete(POD, "web-1", storage.namespace, grace=30)
    storage.until("storage", a10_71_0_1=READY, a10_71_0_2=(False, True, True))
    storage.api.delete(POD, "web-1", storage.namespace)
    storage.until("storage", a10_71_0_1=READY)
    for change in ({"metadata": {"labels": {"networking.dra.io/pod-network": None}}}, None):
        if change is None:
            storage.service("again")
            until(lambda: storage.slices("again"), "slices of another Service")
            storage.api.delete(SERVICE, "again", storage.namespace)
        else:
            storage.api.patch(SERVICE, "storage", change, namespace=storage.namespace)
        name = "again" if change is None else "storage"
        until(lambda name=name: storage.slices(name) == [], f"the slices of {name} to go")  # type: ignore[misc]


def test_names_resolve_to_addresses_on_the_network(storage: Storage, dns: DNS) -> None:
    storage.service("storage")
    storage.service("early", publishNotReadyAddresses=True)
    storage.pod("web-0", hostname="web-0", subdomain="storage")
    storage.pod("web-1", hostname="web-1", subdomain="storage", ready=False)

    def resolve(name: str, kind: Any = "A") -> set[str]:
        return dns.resolve(f"{name}.{storage.namespace}.svc", kind)

    until(lambda: resolve("web-0.storage") == {"10.71.0.1"}, "the name of the replica")
    until(lambda: resolve("web-0.storage", "AAAA") == {"2001:db8:71::1"}, "the name's address of IPv6")
    assert resolve("storage") == {"10.71.0.1"}
    until(lambda: resolve("early") == {"10.71.0.1", "10.71.0.2"}, "addresses of pods that are not ready")
    storage.report("web-1")
    until(lambda: resolve("storage") == {"10.71.0.1", "10.71.0.2"}, "the second replica")
    storage.report("web-0", ready=False)
    until(lambda: resolve("web-0.storage") == set(), "the replica that is not ready to go")


def test_ports_are_found_by_name_in_each_pod(storage: Storage) -> None:
    ports = [{"name": "iscsi", "port": 3260, "targetPort": "target"}, {"name": "web", "port": 80, "targetPort": 8080}]
    storage.service("storage", ports=ports, ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    for number, name in enumerate(("one", "two", "three")):
        own = {"name": "target", "containerPort": 3261 if number else 3260}
        container = {"name": "main", "image": "none", "ports": [own] if number < 2 else []}
        storage.pod(name, containers=[container | {"resources": {"claims": [{"name": "net"}]}}])

    def by_ports() -> set[tuple[Any, ...]]:
        found = storage.slices("storage")
        return {
            (each["addressType"], *((port["name"], port["port"]) for port in each["ports"] or ()), len(_of(each)))
            for each in found
        }

    web = ("web", 8080)
    wanted = {("IPv4", ("iscsi", 3260), web, 1), ("IPv4", ("iscsi", 3261), web, 1), ("IPv4", web, 1)}
    until(lambda: by_ports() == wanted, "a slice for each set of ports", detail=by_ports)


def test_an_invalid_service_gets_no_slices_and_reports_the_reason(storage: Storage) -> None:
    storage.service("none", pods="")
    storage.service("bad", pods="app in web")
    storage.service("own", selector={"app": "web"})

    def told(events: list[Object]) -> bool:
        found = {(each["regarding"]["name"], each["reason"]) for each in events}
        return found >= {("none", "WrongPodSelector"), ("bad", "WrongPodSelector"), ("own", "ServiceHasSelector")}

    storage.api.wait_for_all(EVENT, told, namespace=storage.namespace)
    mine = storage.api.list(SLICE, storage.namespace, labels=f"{MANAGED_BY}={MANAGER}")
    assert mine == []


def test_a_selector_brings_kubernetes_addresses_which_stay_when_it_is_removed(storage: Storage) -> None:
    api, namespace, of_kubernetes = storage.api, storage.namespace, f"{MANAGED_BY}=endpointslice-controller.k8s.io"
    storage.service("storage", ports=[{"port": 2049}], ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    storage.pod("web-0")
    storage.until("storage", a10_71_0_1=READY)
    api.patch(SERVICE, "storage", {"spec": {"selector": {"app": "web"}}}, namespace=namespace)
    storage.until("storage", a10_244_0_9=READY)

    api.patch(SERVICE, "storage", {"spec": {"selector": None}}, namespace=namespace)
    both = {"10.71.0.1", "10.244.0.9"}
    until(lambda: storage.addresses("storage") == both, "the addresses of both networks")
    (left,) = api.list(SLICE, namespace, labels=of_kubernetes)

    def reported(events: list[Object]) -> bool:
        texts = [found["note"] for found in events if found["reason"] == "ServiceHasOtherEndpoints"]
        return any(left["metadata"]["name"] in text for text in texts)

    api.wait_for_all(EVENT, reported, namespace=namespace)
    api.delete("v1/Endpoints", "storage", namespace)
    api.delete(SLICE, left["metadata"]["name"], namespace)
    until(lambda: storage.addresses("storage") == {"10.71.0.1"}, "the address of the PodNetwork alone")


def test_a_starting_controller_writes_only_changed_slices(
    storage: Storage, control_plane: ControlPlane, api: Api
) -> None:
    storage.service("storage")
    storage.service("still", pods="app=other")
    storage.pod("web-0")
    storage.pod("other", app="other")
    storage.until("storage", a10_71_0_1=READY)
    storage.until("still", a10_71_0_2=READY)
    of_ipv6 = {"storage": {"2001:db8:71::1": READY}, "still": {"2001:db8:71::2": READY}}
    until(lambda: {name: storage.endpoints(name, "IPv6") for name in of_ipv6} == of_ipv6, "the addresses of IPv6")

    def versions(service: str) -> set[tuple[str, str]]:
        metadata = [found["metadata"] for found in storage.slices(service)]
        return {(each["name"], each["resourceVersion"]) for each in metadata}

    before, still = versions("storage"), versions("still")
    control_plane.processes["netdra-controller"].stop()
    storage.report("web-0", ready=False)
    start_controller(control_plane, api, "--services")
    storage.until("storage", a10_71_0_1=WAITING)
    assert {name for name, _ in versions("storage")} == {name for name, _ in before}
    assert versions("still") == still


def test_two_controllers_with_foreign_slices_converge_to_the_same_endpoints(
    storage: Storage, control_plane: ControlPlane
) -> None:
    foreign = manifest(SLICE, "storage-netdra-0", storage.namespace, addressType="IPv4", endpoints=[])
    foreign["metadata"]["labels"] = {"kubernetes.io/service-name": "storage", MANAGED_BY: "somebody"}
    storage.api.create(foreign)
    storage.service("storage")
    with rival(control_plane):
        for number in range(12):
            storage.pod(f"web-{number}")
            if number % 3 == 2:
                storage.api.delete(POD, f"web-{number - 1}", storage.namespace)
        until(lambda: len(storage.endpoints("storage")) == 8, "8 endpoints", detail=lambda: storage.slices("storage"))
    until(lambda: len(storage.endpoints("storage")) == 8, "8 endpoints")
    listed = [entry["addresses"][0] for found in storage.slices("storage") for entry in _of(found)]
    assert len(listed) == len({*listed}) == 16
    assert storage.api.get(SLICE, "storage-netdra-0", storage.namespace)["metadata"]["labels"][MANAGED_BY] == "somebody"


@contextmanager
def rival(plane: ControlPlane) -> Iterator[None]:
    """A second controller that takes no part in the election, as one that was paused and continues; it dies often."""
    ended = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(run_rival(plane, ended)))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


async def run_rival(plane: ControlPlane, ended: threading.Event) -> None:
    """Write slices, and die every second, wherever the work is at that moment."""
    async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as client:
        while not ended.is_set():
            recorder = Recorder(client, "dra.networking/controller", "rival")
            controller = Controller(client, recorder, nullcontext)
            addresses = PodAddresses(client, recorder, controller.state, nullcontext)
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0), asyncio.TaskGroup() as tasks:
                    tasks.create_task(controller.state.run(lambda: asyncio.ensure_future(asyncio.sleep(60.0))))
                    tasks.create_task(addresses.run())
                    tasks.create_task(ServiceEndpoints(client, recorder, addresses, nullcontext).run())


def refuse_slices(workspace: Workspace, expression: str, *operations: str) -> None:
    """Have the API server refuse EndpointSlices in a namespace, by a policy of the cluster.

    Args:
        workspace: the namespace.
        expression: true for the slices that are accepted.
        operations: of the requests that are judged, of which CREATE is one.
    """
    name = workspace.name("few-slices")
    rule = {"apiGroups": ["discovery.k8s.io"], "apiVersions": ["*"], "resources": ["endpointslices"]}
    spec = {
        "matchConstraints": {"resourceRules": [{**rule, "operations": ["CREATE", *operations]}]},
        "validations": [
            {
                "expression": f"object.metadata.name != 'probe' && ({expression})",
                "message": "not here",
                "reason": "Forbidden",
            }
        ],
    }
    workspace.create(manifest(f"{ADMISSION}/ValidatingAdmissionPolicy", name, spec=spec))
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": workspace.namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    workspace.create(manifest(f"{ADMISSION}/ValidatingAdmissionPolicyBinding", name, spec=binding))
    probe = manifest(SLICE, "probe", workspace.namespace, addressType="IPv4", endpoints=[])
    until(lambda: "not here" in refusal(lambda: workspace.api.create(probe, dry_run=True)), "the policy to count")


NO_IPV6 = 'object.addressType != "IPv6"'


def limit_slices(workspace: Workspace, count: int) -> None:
    """Have the API server refuse further EndpointSlices in a namespace, by its quota."""
    hard = {"count/endpointslices.discovery.k8s.io": str(count)}
    workspace.api.create(manifest("v1/ResourceQuota", "few", workspace.namespace, spec={"hard": hard}))

    def counts(found: Object | None) -> bool:
        return found is not None and found.get("status", {}).get("hard") == hard

    workspace.api.wait_for("v1/ResourceQuota", "few", counts, namespace=workspace.namespace)


def refused_notes(storage: Storage, service: str) -> list[str]:
    """The notes of the events about slices of a Service that the API server refused."""
    events = storage.api.list(EVENT, storage.namespace)
    about = [found for found in events if found["regarding"]["name"] == service]
    return [found["note"] for found in about if found["reason"] == "EndpointSliceRefused"]


def test_a_family_follows_the_pods_though_the_slices_of_the_other_family_are_refused(storage: Storage) -> None:
    refuse_slices(storage.workspace, NO_IPV6, "UPDATE")
    storage.service("storage")
    storage.pod("web-0")
    storage.pod("ended")
    storage.until("storage", a10_71_0_1=READY, a10_71_0_2=READY)
    storage.api.delete(POD, "web-0", storage.namespace)
    storage.report("ended", ready=False, phase="Failed")
    storage.pod("web-2")
    storage.until("storage", a10_71_0_3=READY)
    until(lambda: refused_notes(storage, "storage"), "an event of the Service")
    (note,) = {*refused_notes(storage, "storage")}
    assert "not here" in note
    assert "an admission policy or webhook of the cluster rejects the object" in note
    assert "helm upgrade" not in note


def test_a_link_local_address_of_a_pod_is_reported_and_its_other_addresses_are_published(storage: Storage) -> None:
    storage.service("storage")
    storage.pod("web-0")
    (stored, *_) = [found for found in storage.net.addresses if found["spec"]["address"].startswith("2001:")]
    local = manifest(ADDRESS, f"{storage.net.name}.fe80-0-0-1-0-0-0-5", spec=stored["spec"])
    local["spec"]["address"] = "fe80:0:0:1::5/64"  # as an older version assigned it
    claim = storage.api.get(CLAIM, "web-0", storage.namespace)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    device = {key: result[key] for key in ("driver", "pool", "device")}
    ips = [*storage.net.of("web-0"), local["spec"]["address"]]
    claim["status"]["devices"] = [{**device, "networkData": {"interfaceName": "net1", "ips": ips}}]
    storage.api.update(claim, subresource="status")
    storage.workspace.create(local)

    def reported(events: list[Object]) -> bool:
        notes = [found["note"] for found in events if found["reason"] == "AddressesNotPublished"]
        return any("address fe80:0:0:1::5 is link-local" in note for note in notes)

    storage.api.wait_for_all(EVENT, reported, namespace=storage.namespace)
    storage.until("storage", a10_71_0_1=READY)
    storage.pod("web-1")
    published = {"10.71.0.1", "10.71.0.2", "2001:db8:71::1", "2001:db8:71::2"}
    until(lambda: storage.addresses("storage") == published, "both pods' addresses")
    assert refused_notes(storage, "storage") == []


@pytest.mark.parametrize(
    ("family", "address"),
    [("IPv4", "169.254.7.1"), ("IPv6", "fe80::1"), ("IPv6", "febf::1"), ("IPv6", "fec0::1"), ("IPv4", "10.71.0.1")],
)
def test_the_api_server_rejects_link_local_addresses_in_slices(workspace: Workspace, family: str, address: str) -> None:
    made = manifest(SLICE, "probe", workspace.namespace, addressType=family, endpoints=[{"addresses": [address]}])
    found = refusal(lambda: workspace.api.create(made, dry_run=True))
    assert ("link-local" in found) is is_link_local(address) is bool(found)


def port_named(number: int) -> list[Object]:
    """Containers with a port `target` of this number."""
    ports = [{"name": "target", "containerPort": number}]
    return [{"name": "main", "image": "none", "ports": ports, "resources": {"claims": [{"name": "net"}]}}]


def test_a_quota_of_slices_keeps_no_address_of_a_deleted_pod(workspace: Workspace) -> None:
    storage = Storage(workspace, ranges=[{"cidr": "10.72.0.0/24"}])
    limit_slices(workspace, 1)
    named = [{"name": "iscsi", "port": 3260, "targetPort": "target"}]
    storage.service("storage", ports=named, ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    for name in ("a", "b"):
        storage.pod(name, containers=port_named(3260))
    storage.until("storage", a10_72_0_1=READY, a10_72_0_2=READY)
    storage.pod("other", containers=port_named(3261))
    until(lambda: refused_notes(storage, "storage"), "an event of the Service")
    (note,) = {*refused_notes(storage, "storage")}
    assert "exceeded quota: few" in note
    assert "raise the ResourceQuota" in note
    storage.api.delete(POD, "a", storage.namespace)
    storage.until("storage", a10_72_0_2=READY)
    storage.report("b", ready=False)
    storage.until("storage", a10_72_0_2=WAITING)
    storage.api.delete(POD, "b", storage.namespace)
    storage.until("storage", a10_72_0_3=READY)
    (left,) = storage.slices("storage")
    assert [port["port"] for port in left["ports"]] == [3261]


def test_an_address_that_another_namespace_has_now_leaves_a_service_with_refused_slices(
    workspace: Workspace, control_plane: ControlPlane, api: Api
) -> None:
    one = {"cidr": "10.73.0.0/24", "first": "10.73.0.5", "last": "10.73.0.5"}
    storage = Storage(workspace, ranges=[one, {"cidr": "2001:db8:73::/64"}], quarantineSeconds=0)
    refuse_slices(workspace, NO_IPV6, "UPDATE")
    storage.service("storage")
    storage.pod("web-0", claim_node="")
    storage.until("storage", a10_73_0_5=READY)
    with open_workspace(api) as second:
        storage.api.delete(POD, "web-0", storage.namespace)
        storage.api.delete(CLAIM, "web-0", storage.namespace)
        its = copy.copy(storage.net)
        its.workspace = second
        its.claim("web-0")
        until(lambda: "10.73.0.5/24" in its.of("web-0"), "the address to be another namespace's")
        storage.until("storage")
        control_plane.processes["netdra-controller"].stop()
        start_controller(control_plane, api, "--services")
        storage.until("storage")


def test_the_address_of_a_deleted_pod_leaves_a_slice_that_cannot_be_changed(storage: Storage) -> None:
    storage.service("storage", ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    for name in ("web-0", "web-1"):
        storage.pod(name)
    storage.until("storage", a10_71_0_1=READY, a10_71_0_2=READY)
    refuse_slices(storage.workspace, "oldObject == null", "UPDATE")
    storage.api.delete(POD, "web-0", storage.namespace)
    storage.until("storage", a10_71_0_2=READY)  # by another slice
    until(lambda: refused_notes(storage, "storage"), "an event of the Service")


def test_services_select_pods_as_the_api_server_does(storage: Storage) -> None:
    selectors = ["app=web", "app!=web", "app in (web, api)", "app notin (web)", "app", "!app", "app=web,!tier", "tier="]
    labels: dict[str, dict[str, str]] = {"a": {"app": "web"}, "b": {"app": "api", "tier": ""}, "c": {"tier": "x"}}
    for number, text in enumerate(selectors):
        storage.service(f"s-{number}", pods=text, ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    for name, own in labels.items():
        storage.pod(name)
        own = {"app": own.get("app"), "tier": own.get("tier")}  # type: ignore[dict-item]
        storage.api.patch(POD, name, {"metadata": {"labels": own}}, namespace=storage.namespace)

    def selected(service: str) -> set[str]:
        return {entry["targetRef"]["name"] for found in storage.slices(service) for entry in _of(found)}

    expected = {
        text: {found["metadata"]["name"] for found in storage.api.list(POD, storage.namespace, labels=text)}
        for text in selectors
    }
    until(
        lambda: {text: selected(f"s-{number}") for number, text in enumerate(selectors)} == expected,
        f"{expected}",
        detail=lambda: str({text: selected(f"s-{number}") for number, text in enumerate(selectors)}),
    )


OWN_LABEL = "only EndpointSlices whose label endpointslice.kubernetes.io/managed-by"
OWN_FORM = "only as it makes them of Services of PodNetworks"


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({}, ""),
        ({"labels": {MANAGED_BY: "endpointslice-controller.k8s.io"}}, OWN_LABEL),
        ({"labels": {"networking.dra.io/pod-network": ""}}, OWN_FORM),
        ({"name": "other-netdra-0"}, OWN_FORM),
        ({"owner": {"kind": "Pod"}}, OWN_FORM),
        ({"owner": {"name": "other"}}, OWN_FORM),
        ({"endpoint": {"targetRef": {"kind": "Pod", "namespace": "kube-system", "name": "dns"}}}, OWN_FORM),
        ({"endpoint": {"targetRef": {"kind": "Node", "name": "one"}}}, OWN_FORM),
        ({"endpoint": {"hints": {"forZones": [{"name": "a"}]}}}, OWN_FORM),
    ],
)
def test_the_controllers_token_writes_no_other_slices(
    workspace: Workspace, control_plane: ControlPlane, api: Api, change: dict[str, Any], refused: str
) -> None:
    token = identities.kubeconfig(control_plane, api, "netdra-controller")
    labels = {"kubernetes.io/service-name": "storage", MANAGED_BY: MANAGER, "networking.dra.io/pod-network": "storage"}
    owner = {"apiVersion": "v1", "kind": "Service", "name": "storage", "uid": "u", "controller": True}
    target = {"kind": "Pod", "namespace": workspace.namespace, "name": "web-0"}
    endpoint = {"addresses": ["10.71.0.1"], "conditions": {"ready": True}, "targetRef": target}
    name = change.get("name", "storage-netdra-0")
    made = manifest(SLICE, name, workspace.namespace, addressType="IPv4", ports=[])
    made["endpoints"] = [endpoint | change.get("endpoint", {})]
    made["metadata"] |= {
        "labels": labels | change.get("labels", {}),
        "ownerReferences": [owner | change.get("owner", {})],
    }
    asked = ("create", "--dry-run=server", "-f", "-")
    found = denial(token, *asked, text=json.dumps(made))
    assert refused in found if refused else found == ""
