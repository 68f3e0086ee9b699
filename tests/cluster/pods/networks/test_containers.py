"""The claims as containers see them: environment and metadata files, by CDI, only where they name the claim."""

from __future__ import annotations

import json

import pytest

from testbed import dra
from testbed.api import Object
from testbed.image import NAME
from testbed.node import CommandError
from testbed.objects import POD
from testbed.pods import CONTAINER
from tests.cluster.pods.driver import Offer

ATTRIBUTES = "/var/run/kubernetes.io/dra-device-attributes"


def container(name: str, *claims: Object) -> Object:
    """A container that names claims, or requests of them."""
    return {"name": name, "image": NAME, "imagePullPolicy": "Never", "resources": {"claims": list(claims)}}


def environment(offer: Offer, pod: str, name: str = CONTAINER) -> dict[str, str]:
    """The variables that netdra gave a container."""
    printed = inside(offer, pod, name, "env").splitlines()
    return dict(line.split("=", 1) for line in printed if line.startswith("NETDRA_"))


def inside(offer: Offer, pod: str, name: str, *command: str) -> str:
    """The output of a command in a container of a pod."""
    states = offer.workspace.api.get(POD, pod, offer.workspace.namespace)["status"]["containerStatuses"]
    (found,) = (each["containerID"].partition("://")[2] for each in states if each["name"] == name)
    return offer.pods.containerd.crictl("exec", "--sync", found, *command)


def test_a_container_sees_only_the_devices_that_it_names(offer: Offer) -> None:
    offer.whole("see0", "see1")
    claim = offer.claim(
        "my-net.v1", left=offer.device_class("host-device", "see0"), right=offer.device_class("host-device", "see1")
    )
    pod_claim = "net"
    containers = [
        container(CONTAINER, {"name": pod_claim}),
        container("half", {"name": pod_claim, "request": "right"}),
        container("none"),
    ]
    offer.pods.run(
        "pod", resourceClaims=[{"name": pod_claim, "resourceClaimName": claim}], containers=containers
    )  # fmt: skip
    left = {"NETDRA_MY_NET_V1_LEFT_DEVICES": "see0", "NETDRA_MY_NET_V1_LEFT_INTERFACES": "net1"}
    right = {"NETDRA_MY_NET_V1_RIGHT_DEVICES": "see1", "NETDRA_MY_NET_V1_RIGHT_INTERFACES": "net2"}
    assert environment(offer, "pod") == left | right
    assert environment(offer, "pod", "half") == right
    assert environment(offer, "pod", "none") == {}
    folder = f"{ATTRIBUTES}/resourceclaims/my-net.v1"
    assert inside(offer, "pod", CONTAINER, "ls", folder).split() == ["left", "right"]
    assert inside(offer, "pod", "half", "ls", folder).split() == ["right"]


def test_the_metadata_file_has_the_interface_as_it_is_in_the_pod(offer: Offer) -> None:
    offer.veth("see2")
    offer.shared("see2", shares=4)
    ipam = {"type": "static", "addresses": [{"address": "192.0.2.33/24"}]}
    template = offer.template("net", nic=offer.step_class("addressed", "see2", "macvlan", mode="bridge", ipam=ipam))
    claims = [{"name": "data", "resourceClaimTemplateName": template}]
    libraries = [dra.path(version).parent for version in dra.built()]
    volumes = [{"name": folder.name.replace(".", "-"), "hostPath": {"path": str(folder)}} for folder in libraries]
    mounts = [
        {"name": volume["name"], "mountPath": f"/{folder.name}", "readOnly": True}
        for volume, folder in zip(volumes, libraries, strict=True)
    ]
    reader = container(CONTAINER, {"name": "data"}) | {"volumeMounts": mounts}
    offer.pods.run("pod", resourceClaims=claims, containers=[reader], volumes=volumes)

    path = f"{ATTRIBUTES}/resourceclaimtemplates/data/nic/dra.networking-metadata.json"
    found, oldest = dra.read_sequence(offer.pods.exec("pod", "cat", path))
    for version in dra.built():
        program = dra.path(version)
        command = (f"/{program.parent.name}/{program.name}", "metadata", "resourceclaimtemplates", "data", "nic")
        read = json.loads(offer.pods.exec("pod", *command))
        expected = oldest if version == "1.36" else found
        assert (read["version"], read["invalid"]) == (expected["apiVersion"], "")
        (device,) = read["metadata"]["Requests"][0]["Devices"]
        assert device["NetworkData"] == found["requests"][0]["devices"][0]["networkData"]
    (request,) = found["requests"]
    (device,) = request["devices"]
    mac = offer.inside("pod")["net1"]["address"]
    assert (found["kind"], found["podClaimName"], request["name"]) == ("DeviceMetadata", "data", "nic")
    assert (device["driver"], device["name"]) == ("dra.networking", "see2")
    assert device["networkData"] == {"interfaceName": "net1", "ips": ["192.0.2.33/24"], "hardwareAddress": mac}
    assert device["attributes"]["dra.networking/ifName"] == {"string": "see2"}
    assert environment(offer, "pod")["NETDRA_DATA_NIC_INTERFACES"] == "net1"
    # It is the driver's file, and the container cannot change it.
    with pytest.raises(CommandError, match="Read-only file system"):
        offer.pods.exec("pod", "sh", "-c", f"echo > {path}")
