"""A kind's place in the API server's URLs."""

from netdra.kube.resources import NODES, POLICIES, RESOURCE_CLAIMS, RESOURCE_SLICES


def test_paths_are_those_of_the_kubernetes_api() -> None:
    assert NODES.path(name="n1") == "/api/v1/nodes/n1"
    assert RESOURCE_SLICES.path() == "/apis/resource.k8s.io/v1/resourceslices"
    assert RESOURCE_CLAIMS.path() == "/apis/resource.k8s.io/v1/resourceclaims"
    assert RESOURCE_CLAIMS.path("ns", "c", "status") == "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c/status"
    assert POLICIES.path("ignored", "p") == "/apis/networking.dra.io/v1alpha1/deviceexposurepolicies/p"
