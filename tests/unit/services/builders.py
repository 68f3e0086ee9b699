"""Services, pods and EndpointSlices for tests, as the API server sends them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from netdra.model.pod_address import PodAddress
from netdra.model.service import Endpoint, EndpointPort, EndpointSlice, ServedPod, Service, TargetReference
from netdra.services.endpoints import AddressedPod
from netdra.services.slices import SliceWrites
from tests.unit.networks.builders import address, owner

T = TypeVar("T")


def service(name: str = "storage", **spec: Any) -> Service:
    """A headless Service on the network `storage`."""
    labels = {"networking.dra.io/pod-network": "storage"}
    annotations = {"networking.dra.io/pod-selector": "app=web"}
    metadata = {"name": name, "namespace": "db", "uid": "s", "labels": labels, "annotations": annotations}
    value = {"metadata": metadata, "spec": {"clusterIP": "None", "ipFamilies": ["IPv4"], **spec}}
    return _read(value, Service)


def pod(name: str = "web-0", *, ready: bool = True, **parts: Any) -> ServedPod:
    """A pod that runs on node-1, with the claim net."""
    conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": str(ready)}]
    status = {"phase": "Running", "podIPs": [{"ip": "10.244.0.9"}], "conditions": conditions}
    spec = {"nodeName": "node-1", "containers": [{"name": "main"}]}
    metadata = {"name": name, "namespace": "db", "uid": name, "labels": {"app": "web"}}
    found: dict[str, dict[str, Any]] = {"metadata": metadata, "spec": spec, "status": status}
    return _read({key: {**value, **parts.get(key, {})} for key, value in found.items()}, ServedPod)


def addressed(made: ServedPod, *addresses: str, **fields: Any) -> AddressedPod:
    """A pod with addresses."""
    return AddressedPod(made, tuple(_address(text, made, **fields) for text in addresses))


def _address(text: str, made: ServedPod, **fields: Any) -> PodAddress:
    return address(text, owner(made.metadata.name, **fields))


def endpoint(number: int, *, name: str = "") -> Endpoint:
    """The endpoint of a pod of that number."""
    target = TargetReference(kind="Pod", namespace="db", name=f"web-{number}", uid=f"web-{number}")
    return Endpoint(addresses=(f"10.7.{number // 250}.{number % 250}",), node_name=name, target_ref=target)


def ports(*numbers: int) -> tuple[EndpointPort, ...]:
    """Ports without names."""
    return tuple(EndpointPort(port=number) for number in numbers)


def stored(present: tuple[EndpointSlice, ...], done: SliceWrites) -> tuple[EndpointSlice, ...]:
    """The slices after writes, as the API server sends them: `null` for empty fields."""
    by_name = {entry.metadata.name: entry for entry in present}
    by_name |= {entry.metadata.name: entry for entry in (*done.replace, *done.create)}
    for entry in done.delete:
        del by_name[entry.metadata.name]
    return tuple(map(_sent, by_name.values()))


def _sent(entry: EndpointSlice) -> EndpointSlice:
    value = msgspec.to_builtins(entry)
    value |= {key: value[key] or None for key in ("endpoints", "ports")}
    return _read(value, EndpointSlice)


def _read(value: Any, kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)
