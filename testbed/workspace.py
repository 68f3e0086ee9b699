"""One test's share of a control plane: a namespace, unique names, and an end at which all that it made is gone.

Made by the fixture `workspace` of `tests/cluster` and by benchmarks. Objects that are in no namespace are made through
it, so that the scheduler does not see them in the next test.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from testbed import objects
from testbed.api import Api, Object, kind_of
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, NAMESPACE, POD, SLICE

_NUMBERS = itertools.count(1)
_MARKER = "marker.testbed"
_UNKNOWN_CLASS = re.compile(r"device class \S+ does not exist")


class Workspace:
    """One test's part of a control plane; `open_workspace` makes and ends it.

    Attributes:
        api: the administrator's client.
        namespace: the test's own; it is deleted with all that is in it.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self._suffix = f"{os.getpid()}-{next(_NUMBERS)}"
        self._made: list[Object] = []
        self.namespace = self.name("test")

    def name(self, base: str) -> str:
        """A name for an object without a namespace, that no other test has."""
        return f"{base}-{self._suffix}"

    def create(self, manifest: Object) -> Object:
        """Make an object that is deleted at the end."""
        made = self.api.create(manifest)
        self._made.append(made)
        return made

    def add_node(self, base: str = "node", labels: Mapping[str, str] | None = None) -> str:
        """Make a Ready node without a kubelet, and return its name."""
        node = objects.add_node(self.api, self.name(base), labels)
        self._made.append({**node, "apiVersion": "v1", "kind": "Node"})
        return self.name(base)

    def add_class(self, base: str, expression: str, **spec: Any) -> str:
        """Make a DeviceClass with one CEL selector and further fields of its spec, and return its name."""
        name = self.name(base)
        self.create(objects.manifest(CLASS, name, spec=_selecting(expression) | spec))
        return name

    def publish(self, node: str, *slices: Object) -> None:
        """Make ResourceSlices of a node, deleted at the end, and wait until the scheduler counts on them."""
        for manifest in slices:
            self.create(manifest)
        self.settle(node)

    def settle(self, node: str) -> None:
        """Wait until the scheduler has seen every change of nodes, ResourceSlices and DeviceClasses so far.

        It learns of them and of pods by different watches, so a pod may come first and be judged by old slices. Each
        watch is in order, though: once a pod has got the device that was published last, all that is older is known.
        """
        name = f"{self.name('settled')}-{next(_NUMBERS)}"
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": _MARKER, "nodeName": node, "pool": pool, "devices": [{"name": "marker"}]}
        self.api.create(objects.manifest(SLICE, name, spec=spec))
        self.api.create(objects.manifest(CLASS, name, spec=_selecting(f'device.driver == "{_MARKER}"')))
        self.add_pod(name, self.add_claim(name, {"name": "marker", "exactly": {"deviceClassName": name}}), node=node)
        self.wait_placed(name, node)
        self.release(name, name)
        self.api.delete(SLICE, name)
        self.api.delete(CLASS, name)

    def add_claim(self, name: str, *requests: Object, constraints: list[Object] | None = None) -> str:
        """Make a ResourceClaim in the namespace, and return its name; a request is as in `spec.devices.requests`."""
        devices = {"requests": list(requests), "constraints": constraints or []}
        self.api.create(objects.manifest(CLAIM, name, self.namespace, spec={"devices": devices}))
        return name

    def add_pod(self, name: str, *claims: str, node: str = "") -> str:
        """Make a pod that uses claims of the namespace, and return its name."""
        self.api.create(objects.pod(self.namespace, name, {claim: claim for claim in claims}, node=node))
        return name

    def schedule(self, name: str, *, knows_classes: bool = False) -> tuple[str, str]:
        """Wait for the scheduler's first word on a pod: (node, "") or ("", why it does not fit).

        Args:
            name: the pod.
            knows_classes: skip its words until it has seen the pod's classes, which exist.
        """

        def is_decided(found: Object | None) -> bool:
            node, reason = objects.scheduling(found)
            return bool(node or (reason and not (knows_classes and _UNKNOWN_CLASS.search(reason))))

        return objects.scheduling(self.api.wait_for(POD, name, is_decided, namespace=self.namespace))

    def wait_placed(self, name: str, node: str) -> None:
        """Wait until the scheduler has put a pod on a node, also if it first does not know a new class."""
        self.api.wait_for(POD, name, lambda found: objects.scheduling(found)[0] == node, namespace=self.namespace)

    def place(self, *requests: Object, node: str, constraints: list[Object] | None = None) -> tuple[str, str]:
        """Make a claim, and a pod of the same name that uses it, and have them scheduled onto a node.

        The name is new each time: under one that was used before, the scheduler could still see the former claim, and
        judge by its allocation. With a new one it has seen every release before it.

        Returns:
            (name, "") if they fit. ("", the scheduler's reason) if not, and both are gone again.
        """
        name = f"placed-{next(_NUMBERS)}"
        self.add_pod(name, self.add_claim(name, *requests, constraints=constraints), node=node)
        placed, reason = self.schedule(name, knows_classes=True)
        if placed:
            return name, ""
        self.release(name, name)
        return "", reason

    def devices(self, claim: str) -> list[str]:
        """The names of the devices that a claim has now."""
        return [device for _, device in objects.allocated(self.api.get(CLAIM, claim, self.namespace))]

    def release(self, pod: str, *claims: str) -> None:
        """Delete a pod and its claims, and wait until their devices are free again."""
        self.api.delete(POD, pod, self.namespace)
        for claim in claims:
            self.api.delete(CLAIM, claim, self.namespace)
        for claim in claims:
            self.api.wait_for(CLAIM, claim, lambda found: found is None, namespace=self.namespace)


@contextmanager
def open_workspace(api: Api, plane: ControlPlane | None = None) -> Iterator[Workspace]:
    """A workspace that is empty at the start and gone at the end.

    Args:
        api: the administrator's client of its control plane.
        plane: the control plane itself, where many workspaces are opened: an empty namespace ends at less expense.
    """
    workspace = Workspace(api)
    objects.add_namespace(api, workspace.namespace)
    try:
        yield workspace
    finally:
        for kind in (POD, CLAIM):
            api.delete_all(kind, workspace.namespace)
        if plane is None or not plane.remove_namespace(workspace.namespace):
            api.delete(NAMESPACE, workspace.namespace)
        for made in reversed(workspace._made):  # noqa: SLF001
            api.delete(kind_of(made), made["metadata"]["name"], made["metadata"].get("namespace", ""))


def _selecting(expression: str) -> Object:
    return {"selectors": [{"cel": {"expression": expression}}]}
