"""With the controller's stolen token, an attacker makes only the controller's own DaemonSets: the rest is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.kubectl import denial
from testbed.waiting import until
from tests.cluster import identities
from tests.cluster.attacks.test_controller_token import POD, _changed, installer

CREATE = ("create", "--dry-run=server", "--namespace=netdra", "-f", "-")
REFUSED = "ValidatingAdmissionPolicy 'netdra-own-daemonsets'"
CORE = "io.k8s.api.core.v1"
TYPES = {
    "PodSpec": "variables.pod",
    "PodSecurityContext": "variables.pod.securityContext",
    "Container": "each",
    "SecurityContext": "each.securityContext",
    "VolumeMount": "mount",
}
"""Types of which each field is named in the policy, and what the policy calls one."""
FREE = {
    "PodSpec": {"containers", "initContainers", "volumes", "securityContext", "nodeSelector", "tolerations"}
    | {"imagePullSecrets"},
    "Container": {"imagePullPolicy"},
}
"""Fields with values of the CNIPlugin's author, or with types of their own."""


@pytest.fixture(scope="module")
def image() -> str:
    (controller,) = (each for each in identities.template("controller.yaml") if each["kind"] == "Deployment")
    found: str = controller["spec"]["template"]["spec"]["containers"][0]["image"]
    return found


@pytest.fixture(scope="module")
def stolen(control_plane: ControlPlane, api: Api, custom_kinds: None, image: str) -> Path:
    """The controller's token, once the policy is heeded."""
    identities.install(api)
    token = identities.kubeconfig(control_plane, api, "netdra-controller")
    other = json.dumps(_changed(installer(image), "metadata.name", "another"))
    until(lambda: REFUSED in denial(token, *CREATE, text=other), "the policy to be heeded")
    return token


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (
            "spec.template.metadata.annotations",
            {"container.apparmor.security.beta.kubernetes.io/install": "unconfined"},
        ),
        ("spec.template.metadata.labels.app", "another"),
        (f"{POD}.nodeName", "node-1"),
        (f"{POD}.hostUsers", True),
        (f"{POD}.runtimeClassName", "another"),
        (f"{POD}.shareProcessNamespace", True),
        (f"{POD}.resourceClaims", [{"name": "a", "resourceClaimName": "theirs"}]),
        (f"{POD}.dnsPolicy", "Default"),
        (f"{POD}.hostAliases", [{"ip": "192.0.2.1", "hostnames": ["a"]}]),
        (f"{POD}.affinity", {"podAffinity": {}}),
        (f"{POD}.priorityClassName", "system-cluster-critical"),
        (f"{POD}.securityContext.seccompProfile", {"type": "Unconfined"}),
        (f"{POD}.securityContext.appArmorProfile", {"type": "Unconfined"}),
        (f"{POD}.securityContext.sysctls", [{"name": "kernel.shm_rmid_forced", "value": "1"}]),
        (f"{POD}.securityContext.seLinuxOptions", {"type": "spc_t"}),
        (f"{POD}.securityContext.supplementalGroups", [0]),
        (f"{POD}.containers.0.securityContext.seccompProfile", {"type": "Unconfined"}),
        (f"{POD}.containers.0.securityContext.appArmorProfile", {"type": "Unconfined"}),
        (f"{POD}.containers.0.securityContext.runAsUser", 1000),
        (f"{POD}.containers.0.securityContext.readOnlyRootFilesystem", False),
        (f"{POD}.containers.0.ports", [{"containerPort": 8080, "hostPort": 8080}]),
        (f"{POD}.containers.0.workingDir", "/plugin"),
        (f"{POD}.containers.0.tty", True),
        (f"{POD}.containers.0.terminationMessagePath", "/opt/cni/bin/x"),
        (f"{POD}.containers.0.readinessProbe", {"httpGet": {"host": "192.0.2.1", "port": 80}}),
        (f"{POD}.containers.0.readinessProbe", {"tcpSocket": {"host": "192.0.2.1", "port": 80}}),
        (f"{POD}.containers.0.startupProbe", {"exec": {"command": ["/plugin/x"]}}),
        (f"{POD}.initContainers.0.restartPolicy", "Always"),
        (f"{POD}.containers.0.volumeMounts.2.mountPath", "/usr/lib/python3/dist-packages/netdra"),
        (f"{POD}.containers.0.volumeMounts.2.readOnly", False),
        (f"{POD}.containers.0.volumeMounts.0.mountPropagation", "HostToContainer"),
        (f"{POD}.containers.0.volumeMounts.0.subPath", "x"),
        (f"{POD}.initContainers.0.volumeMounts.0", {"name": "cni", "mountPath": "/opt/cni/bin"}),
        (f"{POD}.volumes.0.hostPath.type", "Socket"),
        (f"{POD}.volumes.1", {"name": "run", "emptyDir": {}}),
        (f"{POD}.volumes.2", {"name": "plugin", "configMap": {"name": "a"}}),
        (f"{POD}.containers.0.args.2", "another"),
        (f"{POD}.containers.0.args.3", "--source=/plugin/../etc/shadow"),
        (f"{POD}.containers.0.args.4", "--cni-folder=/etc"),
        (f"{POD}.containers.0.args.5", "--verbose"),
        (f"{POD}.initContainers.0.args.1", "install"),
    ],
)
def test_it_makes_no_other_field(stolen: Path, image: str, path: str, value: Any) -> None:
    made = _changed(installer(image), path, value)
    assert REFUSED in denial(stolen, *CREATE, text=json.dumps(made))


def test_the_controller_token_can_create_the_daemonsets_of_the_controller(stolen: Path, image: str) -> None:
    assert denial(stolen, *CREATE, text=json.dumps(installer(image))) == ""
    assert denial(stolen, *CREATE, text=json.dumps(installer(image, mode="remove"))) == ""
    spec: dict[str, Any] = {
        "schemaPath": "/a/schema.yaml",
        "digest": f"sha256:{'0' * 64}",
        "nodeSelector": {"a": "b"},
        "tolerations": [],
        "imagePullSecrets": ["pull"],
    }
    assert denial(stolen, *CREATE, text=json.dumps(installer(image, **spec))) == ""
    spec["digest"] = "0" * 64
    assert denial(stolen, *CREATE, text=json.dumps(installer(image, **spec))) == ""


def test_no_field_of_a_pod_is_without_a_word_in_the_policy(api: Api) -> None:
    """A field of a later Kubernetes would be accepted unseen."""
    schemas: Object = api.request("GET", "/openapi/v3/apis/apps/v1")["components"]["schemas"]
    (policy,) = (
        each for each in identities.template("own-daemonsets.yaml") if each["kind"] == "ValidatingAdmissionPolicy"
    )
    text = " ".join(each["expression"] for each in policy["spec"]["validations"])
    for kind, called in TYPES.items():
        fields = set(schemas[f"{CORE}.{kind}"]["properties"]) - FREE.get(kind, set())
        named = {field for field in fields if any(f"{called}.{mark}{field}" in text for mark in ("", "?"))}
        assert fields - named == set(), kind
