"""A claim's requests for addresses of PodNetworks against the steps of its topologies. Pure.

Called by `claims` for errors, and by the webhook and `netdra validate` for warnings. A claim without such a request
gets addresses as well; only the scheduler does not know them (decision D71).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from netdra.model import names, suggestions
from netdra.model.claim import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path
from netdra.model.meta import ObjectMeta
from netdra.model.pod_network import REQUIRED, PodNetwork
from netdra.model.topology import NetworkTopology
from netdra.networks import shares
from netdra.rules import pod_networks
from netdra.topology.classes import parameters, plain_claim
from netdra.topology.selectors import choices

_RENDER = "netdra render --template prints it"
_NOT_ALLOWED = "an administrator can add the namespace to spec.namespaces of the PodNetwork"


def networks_of(
    wanted: DeviceClaim, topologies: Mapping[str, NetworkTopology], classes: Mapping[str, DeviceClass]
) -> Counter[str] | None:
    """How many steps of a claim are on each PodNetwork; None if that is not known before it is allocated."""
    found, counts = Counter[str](), Counter[str]()
    for request in wanted.requests:
        for choice in choices(request):
            if names.network_of_class(choice.device_class_name):
                continue
            meant = _topology(classes.get(choice.device_class_name))
            if meant is None or request.exactly is None or choice.allocation_mode == "All":
                return None
            if meant and meant not in topologies:
                return None
            counts[meant] = max(counts[meant], max(choice.count, 1))
    for name, count in counts.items():
        for step in topologies[name].spec.steps if name else ():
            found[step.pod_network] += count * bool(step.pod_network)
    del found[""]
    return found


def check(
    named: str,
    wanted: DeviceClaim,
    path: Path,
    topologies: Mapping[str, NetworkTopology],
    classes: Mapping[str, DeviceClass],
) -> Iterator[Finding]:
    """Requests for addresses of PodNetworks that no step of the claim is on: Prepare rejects such a claim.

    Args:
        named: the claim as messages call it.
        wanted: its requests.
        path: their place.
        topologies: by name.
        classes: the DeviceClasses by name.
    """
    used = networks_of(wanted, topologies, classes)
    for at, request in enumerate(wanted.requests) if used is not None else ():
        network = _network(request)
        if network and used is not None and not used[network]:
            what = f'{named}, request "{request.name}" requests addresses of PodNetwork "{network}", but none of the '
            what += "claim's steps is on this network"
            hint = "remove the request, or request a NetworkTopology with a step on the network"
            requested = {_network(other) for other in wanted.requests}
            if near := suggestions.closest(network, sorted({*used} - requested)):
                hint = f'did you mean "{names.network_class(near)}"?'
            yield Finding(what, hint, (*path, "requests", at), code="ND1093")


def warnings(
    named: str,
    wanted: DeviceClaim,
    path: Path,
    topologies: Mapping[str, NetworkTopology],
    classes: Mapping[str, DeviceClass],
) -> Iterator[Finding]:
    """Requests for addresses that are missing, are for another number of steps, or cannot be allocated; as `check`."""
    used = networks_of(wanted, topologies, classes) or Counter()
    requested = _requested(wanted)
    for at, request in enumerate(wanted.requests):
        if _network(request):
            yield from _of_request(named, request, (*path, "requests", at), wanted)
    for network, steps in used.items():
        if not requested[network] and names.network_class(network) not in classes:
            continue  # the network does not exist, or the API server has feature gates off
        if not requested[network]:
            what = f'{named} does not request the addresses of PodNetwork "{network}" that its steps get: if the '
            what += "network is full, the pod is bound to a node and waits there"
            yield Finding(what, _request_hint(network, 0, steps), path, code="ND1094")
        elif requested[network] != steps:
            what = f'{named} requests addresses of PodNetwork "{network}" for {requested[network]} steps, but it has '
            what += f"{steps} on this network"
            yield Finding(what, _request_hint(network, requested[network], steps), path, code="ND1095")


def refused(
    named: str,
    wanted: DeviceClaim,
    path: Path,
    namespace: str,
    topologies: Mapping[str, NetworkTopology],
    classes: Mapping[str, DeviceClass],
    networks: Mapping[str, PodNetwork],
) -> Iterator[Finding]:
    """Requests for addresses that a PodNetwork does not allow, and those that it requires: no address is assigned.

    Args:
        named, wanted, path, topologies, classes: as of `check`.
        namespace: the claim's; "" if it is not known.
        networks: the PodNetworks by name.
    """
    requested = _requested(wanted)
    for at, request in enumerate(wanted.requests):
        for name in dict.fromkeys(names.network_of_class(choice.device_class_name) for choice in choices(request)):
            network = networks.get(name)
            if network is not None and namespace and not network.spec.allows(namespace):
                what = f'{named}, request "{request.name}" requests addresses of PodNetwork "{name}", which is not for '
                what += f'namespace "{namespace}"'
                yield Finding(what, _NOT_ALLOWED, (*path, "requests", at), code="ND1096")
    for name, steps in (networks_of(wanted, topologies, classes) or Counter[str]()).items():
        network = networks.get(name)
        if network is not None and network.spec.requests == REQUIRED and requested[name] < steps:
            what = (
                f'{named} requests addresses of PodNetwork "{name}" for {requested[name]} of its {steps} steps on this '
            )
            what += "network, which requires the request"
            yield Finding(what, _request_hint(name, requested[name], steps), path, code="ND1097")


def _requested(wanted: DeviceClaim) -> Counter[str]:
    """For how many steps a claim requests addresses, by PodNetwork."""
    steps = Counter[str]()
    for request in wanted.requests:
        if name := _network(request):
            steps[name] += _steps(request.exactly) if request.exactly is not None else 1
    return steps


def _request_hint(network: str, requested: int, steps: int) -> str:
    """How a claim requests the addresses of a network for all of its steps."""
    amount = f'capacity.requests["{names.qualified(names.ADDRESSES)}"]'
    hint = f"set {amount} of the request to {steps}"
    if not requested:
        several = f" with {amount} of {steps}" * (steps > 1)
        hint = f"add a request of DeviceClass {names.network_class(network)}{several}: {_RENDER}"
    return hint


def limited(
    named: str,
    wanted: DeviceClaim,
    path: Path,
    namespace: str,
    topologies: Mapping[str, NetworkTopology],
    classes: Mapping[str, DeviceClass],
    networks: Mapping[str, PodNetwork],
) -> Iterator[Finding]:
    """Steps that get no address, as their PodNetwork is now; for warnings, and with the arguments of `refused`."""
    for name, steps in (networks_of(wanted, topologies, classes) or Counter[str]()).items():
        network = networks.get(name)
        if network is None:
            continue
        requests = {names.network_of_class(each.device_class_name) for one in wanted.requests for each in choices(one)}
        if namespace and not network.spec.allows(namespace) and name not in requests:
            what = (
                f'{named} has steps on PodNetwork "{name}", which is not for namespace "{namespace}", so they get no '
            )
            yield Finding(f"{what}address", _NOT_ALLOWED, path, code="ND1098")
        limit = network.spec.per_namespace
        if limit is not None and steps > limit:
            what = (
                f'{named} has {steps} steps on PodNetwork "{name}", but a namespace gets addresses for {limit} steps '
            )
            yield Finding(
                f"{what}at most",
                "an administrator can raise limits.perNamespace of the PodNetwork",
                path,
                code="ND1099",
            )


def missing(
    named: str, wanted: DeviceClaim, path: Path, networks: Collection[str], where: str = ""
) -> Iterator[Finding]:
    """Requests for addresses of PodNetworks that do not exist, so nothing is allocated; for warnings.

    Args:
        named, wanted, path: as of `check`.
        networks: the names of the PodNetworks.
        where: as of `pod_networks.missing`.
    """
    for at, request in enumerate(wanted.requests):
        for network in dict.fromkeys(
            map(names.network_of_class, (each.device_class_name for each in choices(request)))
        ):
            if network and network not in networks:
                what, hint = pod_networks.absent(network, networks, where)
                if near := suggestions.closest(network, networks):
                    hint = f'did you mean "{names.network_class(near)}"?'
                place = (*path, "requests", at)
                yield Finding(
                    f'{named}, request "{request.name}" requests addresses: {what}', hint, place, code="ND1100"
                )


def template(topology: NetworkTopology) -> ResourceClaimTemplate:
    """A template for a topology: a request for each root step, and one for the addresses of each PodNetwork."""
    claim = plain_claim(topology)
    counts = Counter(step.pod_network for step in topology.spec.steps if step.pod_network)
    wanted = claim.spec.devices
    addresses = (shares.request(network, steps) for network, steps in counts.items() if names.has_shares(network))
    devices = replace(wanted, requests=(*wanted.requests, *addresses))
    spec = ResourceClaimTemplateSpec(spec=replace(claim.spec, devices=devices))
    return ResourceClaimTemplate(metadata=ObjectMeta(name=topology.name), spec=spec)


def _of_request(named: str, request: DeviceRequest, path: Path, wanted: DeviceClaim) -> Iterator[Finding]:
    named = f'{named}, request "{request.name}"'
    for choice in choices(request):
        if names.network_of_class(choice.device_class_name) and not any(
            toleration.key in ("", names.OF_NETWORK) for toleration in choice.tolerations
        ):
            what = f'{named} does not tolerate the taint "{names.OF_NETWORK}", so it is never allocated'
            hint = f"add tolerations: [{{key: {names.OF_NETWORK}, operator: Exists}}]"
            yield Finding(what, hint, path, code="ND1101")
    for constraint in wanted.constraints:
        if not constraint.requests or request.name in constraint.requests:
            attribute = constraint.match_attribute or constraint.distinct_attribute
            what = f'{named}: the constraint on "{attribute}" includes it, but addresses have no such attribute'
            yield Finding(what, "list the other requests in the constraint's requests", path, code="ND1102")


def _network(request: DeviceRequest) -> str:
    """The PodNetwork whose addresses a request is for, at least by one of its alternatives; "" for none."""
    return next(filter(None, (names.network_of_class(choice.device_class_name) for choice in choices(request))), "")


def _steps(exactly: ExactDeviceRequest) -> int:
    amounts = exactly.capacity.requests if exactly.capacity is not None else {}
    try:
        return max(exactly.count, 1) * max(shares.steps_of(amounts), 1)
    except InvalidInputError:
        return 1  # the API server refuses it


def _topology(device_class: DeviceClass | None) -> str | None:
    """The topology of a class; "" for a class without one, None for one that is not known."""
    if device_class is None:
        return None
    for config in device_class.spec.config:
        try:
            meant = parameters(config.opaque, "DeviceClass")
        except InvalidInputError:
            return None
        if meant is not None:
            return meant.network_topology_ref.name
    return ""
