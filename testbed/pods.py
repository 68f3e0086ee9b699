"""Pods that really run: make them in a workspace's namespace, wait for them by watch, and look into them.

Used by the tests of real pods and by the benchmarks. The inside of a pod is read by iproute2 in its network namespace
and by programs in its containers, not by netdra.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from testbed import objects
from testbed.api import Api, Object
from testbed.image import NAME
from testbed.objects import CLAIM, POD
from testbed.runtime import Runtime

EVENT = "v1/Event"
CONTAINER = "main"
# The containers end as soon as they are asked to; with 0 the API server would forget a pod before it has ended.
_GRACE_SECONDS = 5
# The API server's node authorizer may not know yet that a new claim is its node's, and refuse the kubelet's first read
# of it; the kubelet comes back to such a pod at its next synchronization (`testbed.kubelet`).
_PATIENCE = 180.0


def manifest(namespace: str, name: str, node: str, claims: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """A pod of one container for one node, which sleeps: claims are name inside the pod -> ResourceClaim."""
    pod = objects.pod(namespace, name, claims, node=node)
    (container,) = pod["spec"]["containers"]
    container |= {"name": CONTAINER, "image": NAME, "imagePullPolicy": "Never"}
    pod["spec"] |= {"terminationGracePeriodSeconds": _GRACE_SECONDS, "enableServiceLinks": False, **spec}
    return pod


class Pods:
    """The pods of one namespace on one node.

    Attributes:
        api, namespace: where they are made.
        containerd: what runs them.
    """

    def __init__(self, api: Api, namespace: str, containerd: Runtime) -> None:
        self.api = api
        self.namespace = namespace
        self.containerd = containerd

    def add(self, name: str, *claims: str, **spec: Any) -> str:
        """Make a pod that uses claims of the namespace, with further fields of its spec, and return its name."""
        self.api.create(self.manifest(name, *claims, **spec))
        return name

    def manifest(self, name: str, *claims: str, **spec: Any) -> Object:
        """A pod as `add` makes it."""
        return manifest(self.namespace, name, self.containerd.node.name, {claim: claim for claim in claims}, **spec)

    def run(self, name: str, *claims: str, **spec: Any) -> Object:
        """Make a pod and wait until it runs.

        Raises:
            TimeoutError: it does not; the text has its status.
        """
        self.add(name, *claims, **spec)
        return self.wait(name, is_running)

    def wait(self, name: str, condition: Callable[[Object | None], bool], timeout: float = _PATIENCE) -> Object:
        """Wait until a condition holds of a pod, and return it.

        Raises:
            TimeoutError: it does not.
        """
        found = self.api.wait_for(POD, name, condition, namespace=self.namespace, timeout=timeout)
        return found or {}

    def wait_event(self, name: str, reason: str, text: str = "", timeout: float = _PATIENCE) -> Object:
        """Wait for an event of a pod with a reason (`FailedCreatePodSandBox`) and a text in its message.

        Raises:
            TimeoutError: it was not found; the text has the pod's events.
        """

        def of_reason(events: list[Object]) -> bool:
            return any(text in event["message"] for event in events)

        fields = f"involvedObject.name={name},reason={reason}"
        found = self.api.wait_for_all(EVENT, of_reason, namespace=self.namespace, fields=fields, timeout=timeout)
        return next(event for event in found if text in event["message"])

    def delete(self, *names: str) -> None:
        """Delete pods and wait until they are gone, which is after their networks are."""
        for name in names:
            self.api.delete(POD, name, self.namespace, grace=_GRACE_SECONDS)
        for name in names:
            self.wait(name, lambda found: found is None)

    def delete_all(self) -> None:
        """Delete all pods of the namespace and wait until they are gone."""
        self.delete(*(pod["metadata"]["name"] for pod in self.api.list(POD, self.namespace)))

    def sandbox(self, name: str) -> str:
        """The id of the pod's newest sandbox."""
        uid = self.api.get(POD, name, self.namespace)["metadata"]["uid"]
        options = ("--quiet", "--no-trunc", "--latest", f"--label=io.kubernetes.pod.uid={uid}")
        return self.containerd.crictl("pods", *options).strip()

    def ip(self, name: str, *arguments: str) -> Any:
        """The decoded output of `ip -j -d` in a pod's network namespace; None if it prints nothing."""
        printed = self.run_inside(name, "ip", "-j", "-d", *arguments)
        return json.loads(printed) if printed.strip() else None

    def run_inside(self, name: str, *command: str) -> str:
        """Run a program of the node in a pod's network namespace, with the node's rights; return what it printed.

        Raises:
            CommandError: it failed.
        """
        enter = ("nsenter", f"--net={self.containerd.netns(self.sandbox(name))}")
        return self.containerd.node.run(*enter, *command)

    def exec(self, name: str, *command: str) -> str:
        """Run a command in a pod's container, and return what it printed.

        Raises:
            CommandError: it failed.
        """
        return self.containerd.crictl("exec", "--sync", self.container(name), *command)

    def pid(self, name: str) -> int:
        """The process that a pod's container began with, as the node counts."""
        return int(json.loads(self.containerd.crictl("inspect", self.container(name)))["info"]["pid"])

    def container(self, name: str) -> str:
        """The id of a pod's container."""
        return container_of(self.api.get(POD, name, self.namespace))

    def claim_status(self, claim: str) -> list[Object]:
        """The drivers' statuses of a claim's devices (`status.devices`)."""
        devices: list[Object] = self.api.get(CLAIM, claim, self.namespace)["status"].get("devices", [])
        return devices


def container_of(pod: Object | None) -> str:
    """The id of a pod's container, as the runtime has it."""
    (state,) = (pod or {})["status"]["containerStatuses"]
    return str(state["containerID"].partition("://")[2])


def lives(pod: Object) -> list[tuple[str, int, Object]]:
    """A pod's containers with how often and since when they run: without what the kubelet hears of their devices."""
    return [(each["containerID"], each["restartCount"], each["state"]) for each in pod["status"]["containerStatuses"]]


def is_running(pod: Object | None) -> bool:
    """Whether a pod's containers run."""
    states = (pod or {}).get("status", {}).get("containerStatuses", [])
    return bool(states) and all("running" in state["state"] for state in states)
