"""NeutronPorts as netdra's controller writes them, by hand: for tests of the node, which only reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from netdra.model.neutron_port import name_of
from testbed.api import Api, Object
from testbed.objects import CLAIM, manifest

PORT = "networking.dra.io/v1alpha1/NeutronPort"
PORT_ID = "5f0c4d9a-0000-4000-8000-00000000000a"
NETWORK_ID = "5f0c4d9a-0000-4000-8000-00000000000b"
SETTINGS: Mapping[str, Any] = {
    "mac": "fa:16:3e:00:00:0a",
    "vlan": 241,
    "mtu": 1450,
    "addresses": ["10.20.0.5/16"],
    "gateways": ["10.20.0.1"],
    "dns": ["10.20.0.2"],
    "spoofchk": True,
}
NOW = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Allotted:
    """A device of a claim's allocation, and the parts of its NeutronPort's name."""

    api: Api
    claim: Object
    request: str
    pool: str
    device: str
    node: str
    pci: str
    share: str = ""

    @property
    def name(self) -> str:
        return name_of(self.claim["metadata"]["uid"], self.pool, self.device, self.share)

    @property
    def stored(self) -> Object:
        """Its NeutronPort as it is now."""
        found: Object = self.api.get(PORT, self.name, self.namespace)
        return found

    @property
    def chosen(self) -> str:
        """The VF that the node has chosen; "" if it has not."""
        return str(self.stored.get("chosenVF", {}).get("pciAddress", ""))

    @property
    def namespace(self) -> str:
        namespace: str = self.claim["metadata"]["namespace"]
        return namespace

    @property
    def topology(self) -> str:
        """The topology whose class the device was allocated by."""
        config = self.claim["status"]["allocation"]["devices"]["config"]
        meant = (one["opaque"]["parameters"].get("networkTopologyRef") for one in config)
        return str(next(reference["name"] for reference in meant if reference))

    def create(self, **changed: Any) -> Object:
        """Its NeutronPort, with nothing stated of it yet; fields of the spec may be other than they should be."""
        metadata = self.claim["metadata"]
        spec = {
            "claim": {"name": metadata["name"], "uid": metadata["uid"]},
            "request": self.request,
            "pool": self.pool,
            "device": self.device,
            "nodeName": self.node,
            "topology": self.topology,
            "step": "vf",
            "physnet": "physnet2",
            "pciAddress": self.pci,
            "host": self.node,
        } | ({"shareID": self.share} if self.share else {})
        return self.api.create(manifest(PORT, self.name, self.namespace, spec=spec | changed))

    def bind(self, **settings: Any) -> None:
        """Neutron has bound it, to the VF that it is of by now."""
        self._tell(
            condition("True", "Bound", "bound on physnet2"),
            portID=PORT_ID,
            networkID=NETWORK_ID,
            networkName="net2",
            settings={**SETTINGS, **settings},
        )

    def refuse(self, reason: str, message: str) -> None:
        """Neutron has not bound it."""
        self._tell(condition("False", reason, message))

    def _tell(self, bound: Object, **status: Any) -> None:
        bound = {**bound, "observedGeneration": self.stored["metadata"]["generation"]}
        change = {"status": {**status, "conditions": [bound]}}
        self.api.patch(PORT, self.name, change, namespace=self.namespace, subresource="status")


def condition(status: str, reason: str, message: str) -> Object:
    return {"type": "Bound", "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}


def allotted(api: Api, namespace: str, claim: str, node: str, addresses: Mapping[str, str]) -> list[Allotted]:
    """The devices of a claim that the scheduler has allocated.

    Args:
        api: where it is.
        namespace: its namespace.
        claim: its name.
        node: where its devices are.
        addresses: the PCI address of each device.
    """
    found = api.get(CLAIM, claim, namespace)
    results = found["status"]["allocation"]["devices"]["results"]
    return [
        Allotted(
            api,
            found,
            one["request"],
            one["pool"],
            one["device"],
            node,
            addresses[one["device"]],
            one.get("shareID", ""),
        )
        for one in results
    ]
