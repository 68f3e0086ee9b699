"""PodNetworks and PodAddresses for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from netdra.model.meta import ObjectMeta
from netdra.model.pod_address import AddressClaim, AddressOwner, PodAddress, PodAddressSpec, family_of, object_name
from netdra.model.pod_network import PodNetwork


def network(*ranges: str | dict[str, Any], name: str = "storage", **spec: Any) -> PodNetwork:
    """A PodNetwork of these ranges, each a subnet or all of its fields."""
    listed = [{"cidr": entry} if isinstance(entry, str) else entry for entry in ranges]
    value = {"metadata": {"name": name, "generation": 1}, "spec": {"ranges": listed, **spec}}
    return msgspec.convert({"apiVersion": "networking.dra.io/v1alpha1", "kind": "PodNetwork", **value}, PodNetwork)


def owner(pod: str = "web-0", **fields: Any) -> AddressOwner:
    """The interface of a pod."""
    return AddressOwner(**{"namespace": "db", "pod": pod, "claim": "net", "topology": "lan", "step": "lan"} | fields)


def address(text: str, of: AddressOwner, claim: str = "uid-1", name: str = "storage", version: str = "") -> PodAddress:
    """A PodAddress that a claim has, or without one is kept."""
    return PodAddress(
        api_version="networking.dra.io/v1alpha1",
        kind="PodAddress",
        metadata=ObjectMeta(name=object_name(name, text.partition("/")[0]), resource_version=version),
        spec=PodAddressSpec(
            network=name,
            address=text,
            families=(family_of(text),),
            owner=of,
            claim=AddressClaim(name="claim", uid=claim) if claim else None,
            kept_since="" if claim else "2026-11-27T10:00:00Z",
        ),
    )
