"""Rejected claims: the text names the broken rule and is an event of the pod, and the driver continues to work."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from netdra.cli.codes import find
from netdra.model.errors import code_of, without_code
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.node import CommandError
from testbed.objects import CLAIM, NAMESPACE, POD, manifest
from testbed.pods import is_running
from testbed.waiting import until
from tests.cluster.pods.driver import Offer
from tests.cluster.pods.running import make_topology
from tests.cluster.pods.test_why import why

PREPARE = "FailedPrepareDynamicResources"
DRIVER = "dra.networking"
PARAMETERS_LIMIT = 10 * 1024
PATIENCE = 200.0


def refused(offer: Offer, pod: str, text: str) -> str:
    """The message of the pod's event, on one line; the driver is well."""
    # A kubelet that asks for a claim before the API server has seen that it may comes again later.
    event = offer.pods.wait_event(pod, PREPARE, text, timeout=PATIENCE)
    assert event["type"] == "Warning"
    assert offer.driver.is_ready()
    return " ".join(event["message"].split())


def claim_with(offer: Offer, name: str, device_class: str, *config: Object, request: str = "nic") -> str:
    """A claim whose author adds configuration."""
    requests = [{"name": request, "exactly": {"deviceClassName": device_class}}]
    spec = {"devices": {"requests": requests, "config": list(config)}}
    offer.workspace.api.create(manifest(CLAIM, name, offer.workspace.namespace, spec=spec))
    return name


def opaque(parameters: Any, driver: str = DRIVER) -> Object:
    """Configuration for a driver."""
    return {"opaque": {"driver": driver, "parameters": parameters}}


def nested(size: int) -> Any:
    """An object in an object, and so on, as deep as so many bytes of JSON get."""
    found: Any = 1
    for _ in range((size - 1) // len('{"a":}')):
        found = {"a": found}
    return found


@pytest.fixture
def deep_json() -> Iterator[None]:
    """The test itself can write and read JSON that is deep."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20 * limit)
    yield
    sys.setrecursionlimit(limit)


def test_a_root_step_without_a_request_is_reported_with_the_exact_message_and_its_code(
    control_plane: ControlPlane, offer: Offer
) -> None:
    offer.veth("ref0")
    offer.policy("ref0", "ref0", supportedCNIPlugins=[{"name": "sriov", "exclusive": True}])
    offer.wait_published("ref0")
    name = "ai-bonded-rdma"
    steps = [{"name": each, "type": "sriov", "selector": {"cel": "true"}} for each in ("vf0", "vf1")]
    make_topology(offer.workspace, name, *steps, exact=True)
    request = {"name": "vf0", "exactly": {"deviceClassName": f"{name}-vf0"}}
    offer.workspace.add_claim("ai-gpu-bonded-rdma", request)
    offer.pods.add("ai-training", "ai-gpu-bonded-rdma")
    said = refused(offer, "ai-training", "root step")
    assert without_code(said).endswith(
        'NetworkTopology "ai-bonded-rdma" root step "vf1" has no matching device request in ResourceClaim '
        '"ai-gpu-bonded-rdma". The ResourceClaim must contain a request named "vf1" with deviceClassName '
        '"ai-bonded-rdma-vf1".'
    )
    code = find(code_of(said))
    assert code is not None
    assert "has no matching device request" in code.texts[0]
    told = why(control_plane, offer.workspace, "pod", "ai-training", "--output=json")
    assert json.loads(told.stdout)["cause"]["code"] == code.code
    pod = offer.workspace.api.get(POD, "ai-training", offer.workspace.namespace)
    assert pod["status"]["phase"] == "Pending"


def test_configuration_of_a_claims_author_counts_for_nothing_however_it_looks(offer: Offer) -> None:
    offer.veth("ref1")
    offer.shared("ref1", shares=8)
    device_class = offer.device_class("macvlan", "ref1")
    step = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "DeviceParameters", "step": {"type": "macvlan"}}
    wanted: dict[str, Any] = {
        "step": step,
        "topology": {"networkTopologyRef": {"name": "x"}, "step": "y"},
        "path": {**step, "step": {"type": "../../../bin/sh", "config": {"name": "a/b"}}},
        "unicode": {"nét\u202e\u0000\U0001f4a9": "\ufb00" * 100},
        "large": {"text": "x" * (PARAMETERS_LIMIT - 100)},
    }
    for name, parameters in wanted.items():
        offer.pods.add(name, claim_with(offer, name, device_class, opaque(parameters)))
    for name in wanted:
        said = refused(offer, name, "contains configuration for dra.networking")
        assert f'ResourceClaim "{offer.workspace.namespace}/{name}"' in said
        assert "it is only allowed in a DeviceClass (decision D32)" in said
        assert "remove it from spec.devices.config" in said


def test_opaque_configuration_of_maximum_depth_does_not_disturb_the_driver(deep_json: None, offer: Offer) -> None:
    offer.whole("ref2")
    device_class = offer.device_class("host-device", "ref2")
    deep = nested(PARAMETERS_LIMIT)
    assert len(json.dumps(deep, separators=(",", ":"))) > PARAMETERS_LIMIT - 100
    offer.pods.add("hostile", claim_with(offer, "hostile", device_class, opaque(deep)))
    refused(offer, "hostile", "contains configuration for dra.networking")
    offer.pods.delete("hostile")
    offer.workspace.release("hostile", "hostile")
    offer.pods.run("other", claim_with(offer, "other", device_class, opaque(deep, "other.example")))
    assert "net1" in offer.inside("other")


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ({"type": "../../bin/sh"}, '"../../bin/sh" is not a valid CNI plugin name'),
        ({"type": "host-device", "config": {"name": "net/1"}}, 'interface name "net/1" has a sign'),
        ({"type": "host-device", "config": {"name": "nét1"}}, 'interface name "nét1" has a sign'),
        ({"type": "host-device", "config": {"name": "eth0"}}, 'interface name "eth0" is not free in a pod'),
        ({"type": "host-device", "config": {"name": "n" * 16}}, "is longer than 15 bytes"),
        ({"type": "macvlan"}, 'step type "macvlan" is not among the plugins that the policy of device "ref3" lists'),
        ({"type": "host-device", "conf": {}}, "conf"),
    ],
)
def test_a_step_that_cannot_be_is_refused_before_anything_is_touched(offer: Offer, step: Object, text: str) -> None:
    offer.whole("ref3")
    parameters = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "DeviceParameters", "step": step}
    device_class = offer.device_class("host-device", "ref3", base="odd", config=[opaque(parameters)])
    offer.pods.add("pod", offer.claim("claim", nic=device_class))
    assert text in refused(offer, "pod", text)
    assert "ref3" in offer.links()


def test_a_claim_of_another_node_is_refused(offer: Offer) -> None:
    offer.whole("ref4")
    device_class = offer.device_class("host-device", "ref4")
    claim = claim_with(offer, "elsewhere", device_class)
    pod = offer.workspace.api.create(offer.pods.manifest("pod", claim, schedulerName="nobody"))
    give(offer, claim, "ref4", pod, "another-node")
    bind(offer, "pod")
    said = refused(offer, "pod", "is allocated for node another-node")
    assert f'and this is "{offer.driver.node.name}"' in said
    assert "ref4" in offer.links()


def test_a_sandbox_of_another_namespace_cannot_use_the_uid_of_a_pod(offer: Offer) -> None:
    offer.whole("ref5")
    claim = offer.claim("mine", nic=offer.device_class("host-device", "ref5"))
    owner = offer.pods.run("owner", claim)
    with pytest.raises(CommandError, match="cannot be known"):
        offer.pods.containerd.run_pod_sandbox("owner", uid=owner["metadata"]["uid"])
    # The kubelet finds the pod's sandboxes by its uid: for a second one it may make the pod's sandbox anew.
    until(lambda: "net1" in offer.inside("owner"), "the owner's network")
    until(lambda: [each["conditions"][0]["status"] for each in offer.status(claim)] == ["True"], "the claim's status")


def test_a_pod_on_the_hosts_network_is_refused(offer: Offer) -> None:
    offer.whole("ref7")
    offer.pods.add("pod", offer.claim("claim", nic=offer.device_class("host-device", "ref7")), hostNetwork=True)
    said = refused(offer, "pod", "is on the host's network")
    assert "remove hostNetwork from the pod, or the claim" in said
    assert "ref7" in offer.links()


def test_a_device_without_a_defined_way_to_attach_is_rejected(offer: Offer) -> None:
    offer.veth("ref8")
    offer.policy("ref8", "ref8", supportedCNIPlugins=[{"name": "vlan", "exclusive": True}])
    offer.wait_published("ref8")
    offer.pods.add("pod", offer.claim("claim", nic=offer.device_class("vlan", "ref8")))
    said = refused(offer, "pod", "it is not defined how device")
    assert "its policy lists vlan, which need a configuration" in said
    assert "request a DeviceClass of a NetworkTopology" in said


def test_admin_access_sees_a_device_and_takes_nothing_from_its_owner(offer: Offer) -> None:
    offer.whole("ref9")
    api, namespace = offer.workspace.api, offer.workspace.namespace
    device_class = offer.device_class("host-device", "ref9")
    offer.pods.run("owner", offer.claim("own", nic=device_class))
    api.patch(NAMESPACE, namespace, {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})
    request = {"name": "nic", "exactly": {"deviceClassName": device_class, "adminAccess": True}}
    offer.pods.run("watcher", offer.workspace.add_claim("look", request))
    assert set(offer.inside("watcher")) == {"lo", "eth0"}
    assert "NETDRA_LOOK_NIC_DEVICES=ref9" in offer.pods.exec("watcher", "env")
    offer.pods.delete("watcher")
    assert "net1" in offer.inside("owner")
    assert is_running(api.get(POD, "owner", namespace))


def give(offer: Offer, claim: str, device: str, pod: Object, node: str) -> None:
    """Allocate a claim by hand, past the scheduler: its device for a node, reserved for a pod."""
    found = offer.allocated(claim)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "nic", "driver": DRIVER, "pool": offer.pool(device), "device": device}
    user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    found["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": [user],
    }
    offer.workspace.api.update(found, subresource="status")


def bind(offer: Offer, pod: str) -> None:
    """Put a pod onto the node, past the scheduler."""
    target = {"apiVersion": "v1", "kind": "Node", "name": offer.driver.node.name}
    binding = manifest("v1/Binding", pod, offer.workspace.namespace, target=target)
    path = f"/api/v1/namespaces/{offer.workspace.namespace}/pods/{pod}/binding"
    offer.workspace.api.request("POST", path, binding)
