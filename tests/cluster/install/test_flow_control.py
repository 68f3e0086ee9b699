"""The API server puts the nodes' writes of slices and reports, and nothing else, into the chart's queue."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.waiting import until
from tests.cluster.install.rendering import Case, of_kind

SCHEMA = "flowcontrol.apiserver.k8s.io/v1/FlowSchema"
LEVEL = "flowcontrol.apiserver.k8s.io/v1/PriorityLevelConfiguration"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIM = "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/a"
REPORTS = "/apis/networking.dra.io/v1alpha1/nodenetworks"
NODE, CONTROLLER = "system:serviceaccount:netdra:netdra-node", "system:serviceaccount:netdra:netdra-controller"


@pytest.fixture(scope="module")
def queue(control_plane: ControlPlane) -> Iterator[Object]:
    """The chart's FlowSchema in the API server, when it counts there."""
    with closing(control_plane.client()) as api:
        objects = of_kind(Case().objects(), "FlowSchema", "PriorityLevelConfiguration")
        assert sorted(each["kind"] for each in objects) == ["FlowSchema", "PriorityLevelConfiguration"]
        for each in objects:
            api.apply(each)
        until(lambda: _counts(api), "the API server to use the FlowSchema", seconds=60)
        yield api.get(SCHEMA, "netdra-publishing")
        api.delete(SCHEMA, "netdra-publishing")
        api.delete(LEVEL, "netdra-publishing")


def _counts(api: Api) -> bool:
    conditions = api.get(SCHEMA, "netdra-publishing").get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Dangling", "False") for each in conditions)


def schema_of(plane: ControlPlane, user: str, method: str, path: str) -> str:
    """The uid of the FlowSchema by which the API server has treated a request, which it may refuse afterwards."""
    pair = plane.authority.client(user, ("system:serviceaccounts", "system:authenticated"))
    context = ssl.create_default_context(cafile=plane.authority.own.certificate)
    context.load_cert_chain(pair.certificate, pair.key)
    address = urlsplit(plane.server)
    assert address.hostname
    connection = http.client.HTTPSConnection(address.hostname, address.port, context=context, timeout=60)
    with closing(connection):
        connection.request(method, path, "{}", {"Content-Type": "application/json"})
        uid = connection.getresponse().headers["X-Kubernetes-PF-FlowSchema-UID"]
    assert uid
    return uid


@pytest.mark.parametrize(
    ("user", "method", "path", "queued"),
    [
        (NODE, "POST", SLICES, True),
        (NODE, "PUT", f"{SLICES}/a", True),
        (NODE, "DELETE", f"{SLICES}/a", True),
        (NODE, "POST", REPORTS, True),
        (NODE, "PUT", f"{REPORTS}/a/status", True),
        (NODE, "GET", SLICES, False),
        (NODE, "GET", CLAIM, False),
        (NODE, "PATCH", f"{CLAIM}/status", False),
        (CONTROLLER, "POST", SLICES, False),
    ],
)
def test_the_writes_of_slices_and_reports_are_in_the_queue(
    control_plane: ControlPlane, queue: Object, user: str, method: str, path: str, *, queued: bool
) -> None:
    assert (schema_of(control_plane, user, method, path) == queue["metadata"]["uid"]) == queued
