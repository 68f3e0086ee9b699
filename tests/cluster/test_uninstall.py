"""`netdra uninstall clean` removes nothing while netdra runs, or while it is unknown whether it does."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from testbed.api import Api, Object
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import POD, add_namespace, manifest
from testbed.waiting import until, waiting
from tests.cluster import identities
from tests.cluster.conftest import StartControlPlane, serve_kinds

LEASE = "coordination.k8s.io/v1/Lease"
REPORT = "networking.dra.io/v1alpha1/NodeNetwork"
HERE = "netdra"
ELSEWHERE = "networking"
LABELS = {"app.kubernetes.io/part-of": "netdra", "app.kubernetes.io/component": "node"}
CONTAINER = {"name": "node", "image": "none"}


@pytest.fixture(scope="module")
def plane(start_control_plane: StartControlPlane) -> ControlPlane:
    """A cluster without nodes and without netdra's own processes."""
    return start_control_plane(Settings(scheduler=False))


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    with closing(plane.client()) as client:
        serve_kinds(plane, client)
        for name in (HERE, ELSEWHERE):
            add_namespace(client, name)
        yield client


@pytest.fixture(autouse=True)
def report(api: Api) -> Iterator[None]:
    """An object that `clean` removes."""
    api.apply(manifest(REPORT, "node-1"))
    yield
    api.delete(REPORT, "node-1")
    for namespace in (HERE, ELSEWHERE):
        for kind in (POD, LEASE, "apps/v1/DaemonSet", "apps/v1/Deployment"):
            for found in api.list(kind, namespace):
                api.delete(kind, found["metadata"]["name"], namespace)


def clean(kubeconfig: Path, wait: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "netdra", "uninstall", "clean", f"--kubeconfig={kubeconfig}", f"--wait={wait}"]
    with waiting("netdra uninstall clean"):
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def is_reported(api: Api) -> bool:
    """Whether the object that `clean` removes is there."""
    return bool(api.list(REPORT))


def workload(kind: str, namespace: str) -> Object:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [CONTAINER]}}
    spec = {"selector": {"matchLabels": LABELS}, "template": template}
    made = manifest(f"apps/v1/{kind}", "own", namespace, spec=spec | ({"replicas": 0} if kind == "Deployment" else {}))
    made["metadata"]["labels"] = LABELS
    return made


def pod(namespace: str) -> Object:
    made = manifest(POD, "own", namespace, spec={"containers": [CONTAINER]})
    made["metadata"]["labels"] = LABELS
    return made


def lease(seconds: int, holder: str = "gone") -> Object:
    return manifest(LEASE, "netdra-controller", HERE, spec={"holderIdentity": holder, "leaseDurationSeconds": seconds})


@contextmanager
def repeated(work: Callable[[int], object]) -> Iterator[None]:
    """Does something again and again meanwhile."""
    done = threading.Event()

    def repeat() -> None:
        number = 0
        while not done.wait(0.2):
            number += 1
            work(number)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("namespace", [HERE, ELSEWHERE])
@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment"])
def test_an_installed_workload_of_any_namespace_is_refused_at_once(
    plane: ControlPlane, api: Api, kind: str, namespace: str
) -> None:
    api.create(workload(kind, namespace))
    done = clean(plane.kubeconfig(), 1000)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{kind} {namespace}/own is installed" in done.stderr
    assert is_reported(api)


def test_a_pod_that_has_not_ended_is_waited_for(plane: ControlPlane, api: Api) -> None:
    bound = pod(ELSEWHERE)
    bound["spec"]["nodeName"] = "node-1"
    api.create(bound)
    done = clean(plane.kubeconfig(), 1)
    assert done.returncode == 1
    assert f"Pod {ELSEWHERE}/own runs on node node-1" in done.stderr
    api.delete(POD, "own", ELSEWHERE, grace=1000)
    done = clean(plane.kubeconfig(), 1)
    assert done.returncode == 1
    assert f"Pod {ELSEWHERE}/own has not ended" in done.stderr
    assert is_reported(api)

    def end(number: int) -> None:
        if number == 10:
            api.delete(POD, "own", ELSEWHERE)

    with repeated(end):
        done = clean(plane.kubeconfig(), 60)
    assert done.returncode == 0, done.stderr
    assert not is_reported(api)


def test_pods_that_have_ended_or_are_not_netdras_processes_do_not_count(plane: ControlPlane, api: Api) -> None:
    created = api.create(pod(HERE))
    api.update({**created, "status": {"phase": "Succeeded"}}, subresource="status")
    installer = pod(ELSEWHERE)
    installer["metadata"]["labels"] = {**LABELS, "app.kubernetes.io/component": "cni-plugin"}
    api.create(installer)
    done = clean(plane.kubeconfig(), 0)
    assert done.returncode == 0, done.stderr


def test_endpointslices_of_pod_networks_are_deleted_and_others_stay(plane: ControlPlane, api: Api) -> None:
    kind, managed = "discovery.k8s.io/v1/EndpointSlice", "endpointslice.kubernetes.io/managed-by"
    for name, manager in (("own", "endpoints.networking.dra.io"), ("other", "somebody")):
        made = manifest(kind, name, ELSEWHERE, addressType="IPv4", endpoints=[], ports=[])
        made["metadata"]["labels"] = {managed: manager}
        api.create(made)
    done = clean(plane.kubeconfig(), 0)
    assert done.returncode == 0, done.stderr
    assert f"EndpointSlice  {ELSEWHERE}/own" in done.stdout
    assert [found["metadata"]["name"] for found in api.list(kind, ELSEWHERE)] == ["other"]
    api.delete(kind, "other", ELSEWHERE)


def test_a_pod_network_loses_its_finalizer_so_that_its_deletion_does_not_hang(plane: ControlPlane, api: Api) -> None:
    kind, another = "networking.dra.io/v1alpha1/PodNetwork", "example.com/theirs"
    for name, finalizers in (("waits", ["networking.dra.io/in-use"]), ("stays", ["networking.dra.io/in-use", another])):
        made = manifest(kind, name, spec={"ranges": [{"cidr": "10.70.0.0/24"}]})
        made["metadata"]["finalizers"] = finalizers
        api.create(made)
    api.delete(kind, "waits")
    assert api.get(kind, "waits")["metadata"]["deletionTimestamp"]
    done = clean(plane.kubeconfig(), 0)
    assert done.returncode == 0, done.stderr
    assert "finalizer of PodNetwork  waits" in done.stdout
    assert [(each["metadata"]["name"], each["metadata"]["finalizers"]) for each in api.list(kind)] == [
        ("stays", [another])
    ]
    api.patch(kind, "stays", {"metadata": {"finalizers": None}})
    api.delete(kind, "stays")


def test_a_lease_that_is_renewed_is_refused_and_one_that_is_not_is_expired(plane: ControlPlane, api: Api) -> None:
    api.create(lease(2, "controller"))

    def renew(number: int) -> None:
        patch = {"spec": {"renewTime": f"2020-01-01T00:00:{number % 60:02}.000000Z"}}
        api.patch(LEASE, "netdra-controller", patch, namespace=HERE)

    with repeated(renew):
        done = clean(plane.kubeconfig(), 6)
    assert done.returncode == 1
    assert "Lease netdra/netdra-controller is held by controller" in done.stderr
    assert is_reported(api)
    done = clean(plane.kubeconfig(), 60)
    assert done.returncode == 0, done.stderr
    assert "Lease" in done.stdout
    assert not is_reported(api)


def test_a_lease_that_was_released_is_not_waited_for(plane: ControlPlane, api: Api) -> None:
    api.create(lease(1000, ""))
    assert clean(plane.kubeconfig(), 0).returncode == 0


def test_an_account_that_may_not_see_netdras_pods_removes_nothing(plane: ControlPlane, api: Api) -> None:
    api.apply(manifest("v1/ServiceAccount", "blind", HERE))
    role = manifest("rbac.authorization.k8s.io/v1/ClusterRole", "blind")
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    role["rules"] = [
        {**everything, "apiGroups": [group]} for group in ("apps", "networking.dra.io", "coordination.k8s.io")
    ]
    api.apply(role)
    binding = manifest("rbac.authorization.k8s.io/v1/ClusterRoleBinding", "blind")
    binding |= {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "blind"},
        "subjects": [{"kind": "ServiceAccount", "name": "blind", "namespace": HERE}],
    }
    api.apply(binding)
    kubeconfig = identities.kubeconfig(plane, api, "blind")
    done = clean(kubeconfig, 0)
    until(lambda: "deployments" not in clean(kubeconfig, 0).stderr, "the rights to count")
    done = clean(kubeconfig, 0)
    assert done.returncode not in (0, 1)
    assert "pods" in done.stderr
    assert is_reported(api)
