"""NRI's messages as netdra's types: which events are wanted, and what a runtime says of itself and of a sandbox.

Used by `netdra.node.nri.service`; it does no I/O. Field by field the wire is `protos/nri.proto`.
"""

from __future__ import annotations

import msgspec

from netdra.node.nri.hooks import Sandbox
from netdra.node.wire import nri_pb2

PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"

POD_EVENTS = (nri_pb2.RUN_POD_SANDBOX, nri_pb2.STOP_POD_SANDBOX, nri_pb2.REMOVE_POD_SANDBOX)


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime at the other end.

    Attributes:
        name: e.g. "containerd".
        version: e.g. "v2.4.2".
        nri_version: of the NRI module in it; "" before 0.12.
        request_timeout: the seconds that it waits for an answer; 0 from one that does not tell.
    """

    name: str
    version: str
    nri_version: str
    request_timeout: float


def runtime(configure: nri_pb2.ConfigureRequest) -> Runtime:
    """Who asks to be told which events are wanted."""
    return Runtime(
        name=configure.runtime_name,
        version=configure.runtime_version,
        nri_version=configure.NRI_version,
        request_timeout=max(configure.request_timeout, 0) / 1000,
    )


def subscription() -> nri_pb2.ConfigureResponse:
    """Pods' events alone, of those kinds that every runtime has: one that is new to a runtime would be refused."""
    return nri_pb2.ConfigureResponse(events=sum(1 << (event - 1) for event in POD_EVENTS))


def sandbox(pod: nri_pb2.PodSandbox) -> Sandbox:
    """A sandbox; one without a network namespace of its own has no `network` entry, or one without a path."""
    paths = (namespace.path for namespace in pod.linux.namespaces if namespace.type == "network")
    return Sandbox(id=pod.id, name=pod.name, namespace=pod.namespace, uid=pod.uid, netns=next(paths, ""), pid=pod.pid)
