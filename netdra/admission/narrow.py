"""What of the cluster the review of one object looks at: only that is sent to a worker.

Called by `netdra.admission.server`. Pure. A review comes to the same with the whole cluster; but a worker reads what it
is sent anew for each object, and a cluster may have a thousand topologies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from netdra.admission.cluster import Cluster
from netdra.admission.messages import AdmissionRequest
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.topology.networks import ranges
from netdra.topology.schema_check import plugins

Topologies = Mapping[str, NetworkTopology]
_topology = msgspec.json.Decoder(NetworkTopology)
_schema = msgspec.json.Decoder(CNIPluginSchema)
NOTHING = Cluster()
"""A cluster without other objects."""


def narrowed(request: AdmissionRequest, cluster: Cluster) -> Cluster:
    """What of the cluster an object is held against; nothing for one that cannot be read, which is refused anyway."""
    narrow = _KINDS.get(request.kind.kind)
    try:
        return NOTHING if narrow is None or request.too_deep else narrow(request, cluster)
    except msgspec.DecodeError:
        return NOTHING


def _of_topology(request: AdmissionRequest, cluster: Cluster) -> Cluster:
    new = _topology.decode(request.object)
    begin = f"{new.name}-"
    classes = {name: found for name, found in cluster.classes.items() if name.startswith(begin)}
    beside = _clashing(new, cluster.topologies)
    return Cluster(
        topologies=beside,
        schemas=cluster.schemas,
        classes=classes,
        users=cluster.users,
        waiting=cluster.waiting,
        added=cluster.added,
    )


def _of_schema(request: AdmissionRequest, cluster: Cluster) -> Cluster:
    plugin = _schema.decode(request.object).spec.plugin
    using = {name: each for name, each in cluster.topologies.items() if plugin in plugins(each.spec.steps)}
    schemas = {name: each for name, each in cluster.schemas.items() if each.spec.plugin == plugin}
    return Cluster(topologies=using, schemas=schemas)


def _of_policy(_: AdmissionRequest, cluster: Cluster) -> Cluster:
    return Cluster(policies=cluster.policies, added=cluster.added, reported=cluster.reported)


def _of_custom_device(_: AdmissionRequest, cluster: Cluster) -> Cluster:
    return Cluster(custom_devices=cluster.custom_devices)


def _clashing(new: NetworkTopology, topologies: Topologies) -> dict[str, NetworkTopology]:
    """The topologies that can have a DeviceClass's or an extended resource's name of a new one, or its addresses.

    A class is named `<topology>-<step>`, so of two topologies with a class of one name one's name begins the other's.
    """
    begin, resources = f"{new.name}-", {step.extended_resource_name for step in new.spec.steps} - {""}
    handed = [*ranges(new)]
    return {
        name: each
        for name, each in topologies.items()
        if name.startswith(begin)
        or new.name.startswith(f"{name}-")
        or (resources and any(step.extended_resource_name in resources for step in each.spec.steps))
        or (handed and any(one.clashes(other) for other in ranges(each) for one in handed))
    }


_KINDS: Mapping[str, Callable[[AdmissionRequest, Cluster], Cluster]] = {
    "NetworkTopology": _of_topology,
    "CNIPluginSchema": _of_schema,
    "DeviceExposurePolicy": _of_policy,
    "CustomDevice": _of_custom_device,
}
