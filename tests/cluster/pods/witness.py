"""Pods whose containers write down what network they began with, so that none that began too early goes unseen.

Used by the tests of faults and by the soak test. The kubelet tries again by itself, but only after some time; a change
of a pod's annotation makes it inspect the pod at once, so tests of many faults need not wait for that.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from testbed.api import ApiError, Object
from testbed.image import NAME
from testbed.node import CommandError
from testbed.objects import CLAIM, POD
from testbed.pods import CONTAINER, Pods, is_running
from testbed.waiting import until

WITHIN = 180.0
_LOOK = 3.0
_SCRIPT = "ls /sys/class/net >/began; trap exit TERM; sleep 1000000 & wait"


def add(pods: Pods, name: str, *claims: str, **spec: Any) -> None:
    """Make a pod whose container writes down at its very beginning which interfaces it sees."""
    container = {
        "name": CONTAINER,
        "image": NAME,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", _SCRIPT],
        "resources": {"claims": [{"name": claim} for claim in claims]},
    }
    pods.add(name, *claims, **{"containers": [container], **spec})


def began_with(pods: Pods, name: str) -> set[str]:
    """The interfaces that a pod's container saw when it began."""

    def written() -> set[str]:
        try:
            return set(pods.exec(name, "cat", "/began").split())
        except CommandError:  # the container runs, and its first command has not ended
            return set()

    return until(written, "the container to write what it sees", seconds=WITHIN, detail=lambda: name)


def hurry(pods: Pods, name: str, condition: Callable[[Object | None], bool], within: float = WITHIN) -> Object:
    """Wait until a condition holds of a pod, and have the kubelet inspect it meanwhile; return it.

    Raises:
        TimeoutError: it does not hold in time.
    """
    deadline = time.monotonic() + within
    while True:
        with suppress(ApiError):  # it may be gone
            annotations = {"netdra.test/looked-at": uuid.uuid4().hex}
            pods.api.patch(POD, name, {"metadata": {"annotations": annotations}}, namespace=pods.namespace)
        try:
            return pods.wait(name, condition, timeout=_LOOK)
        except TimeoutError:
            if time.monotonic() > deadline:
                raise


def run(pods: Pods, name: str, *claims: str, **spec: Any) -> None:
    """Make such a pod and wait until it runs."""
    add(pods, name, *claims, **spec)
    pods.wait(name, is_running)


def end(pods: Pods, *names: str) -> None:
    """Delete pods and wait until they are gone."""
    for name in names:
        pods.api.delete(POD, name, pods.namespace, grace=5)
    for name in names:
        hurry(pods, name, lambda found: found is None)


def interfaces(pods: Pods, name: str) -> dict[str, Object]:
    """The present interfaces in a pod's network namespace."""
    return {each["ifname"]: each for each in pods.ip(name, "address")}


def addresses(pods: Pods, name: str, interface: str = "net1") -> set[str]:
    """The IPv4 addresses of an interface of a pod, with their prefix lengths."""
    found = interfaces(pods, name).get(interface, {}).get("addr_info", [])
    return {f"{each['local']}/{each['prefixlen']}" for each in found if each["family"] == "inet"}


def wait_status(pods: Pods, claim: str, reason: str = "Attached") -> None:
    """Wait until a claim's status states what became of its device.

    Raises:
        TimeoutError: it does not.
    """

    def told(found: Object | None) -> bool:
        devices = (found or {}).get("status", {}).get("devices", [])
        return bool(devices) and all(each["conditions"][0]["reason"] == reason for each in devices)

    pods.api.wait_for(CLAIM, claim, told, namespace=pods.namespace, timeout=WITHIN)


def never_began(pods: Pods, name: str) -> bool:
    """Whether no container of a pod has ever been started, as the runtime states."""
    uid = pods.api.get(POD, name, pods.namespace)["metadata"]["uid"]
    options = ("--all", "--output=json", f"--label=io.kubernetes.pod.uid={uid}")
    found = json.loads(pods.containerd.crictl("ps", *options))["containers"]
    return all(each["state"] == "CONTAINER_CREATED" for each in found)
