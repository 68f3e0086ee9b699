"""The output of a step: the CNI 1.1 ADD result, and the devices of steps that make no interface.

Follows the CNI specification 1.1 ("ADD Success"); `pciID`, `mtu`, `socketPath` and the route fields are 1.1's. Merged
along the graph by `netdra.topology`, made by `netdra.steps` and `netdra.cni`, kept in the checkpoint.
"""

from __future__ import annotations

from typing import Any

import msgspec


class CNIInterface(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An interface; `sandbox` is the path of the namespace that it is in, or "" for the host's."""

    name: str
    mac: str = ""
    mtu: int = 0
    sandbox: str = ""
    socket_path: str = ""
    pci_id: str = msgspec.field(default="", name="pciID")


class CNIAddress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An address in CIDR notation; `interface` is an index into the same result's interfaces."""

    address: str
    gateway: str = ""
    interface: int | None = None


class CNIRoute(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A route; without `gw` it is on the link. `scope` as in rtnetlink(7): 0 universe, 253 link, 254 host."""

    dst: str
    gw: str = ""
    mtu: int | None = None
    advmss: int | None = None
    priority: int | None = None
    table: int | None = None
    scope: int | None = None


class CNIDNS(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Name servers and search domains that a plugin found."""

    nameservers: tuple[str, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class StepDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A device that a step hands to the pod as files instead of an interface (vfio-pci, rdma, device-file).

    `number` is the major and minor of its one file, where the pod is to have that device even if its path changes
    later.
    """

    pci_address: str = ""
    iommu_group: str = ""
    device_nodes: tuple[str, ...] = ()
    rdma_device: str = ""
    number: tuple[int, int] | None = None


class StepResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A step's result: the output of its CNI plugin, or of a built-in step in the same form."""

    interfaces: tuple[CNIInterface, ...] = ()
    ips: tuple[CNIAddress, ...] = ()
    routes: tuple[CNIRoute, ...] = ()
    dns: CNIDNS | None = None
    devices: tuple[StepDevice, ...] = ()

    def place_of(self, if_name: str) -> int | None:
        """The place among the interfaces of the pod's one of a name, the last of several; None if none exists."""
        places = (
            place
            for place, interface in reversed(tuple(enumerate(self.interfaces)))
            if interface.name == if_name and interface.sandbox
        )
        return next(places, None)

    def as_prev_result(self, cni_version: str) -> dict[str, Any]:
        """The `prevResult` of a plugin's configuration (CNI §"Section 3"): without what is ours alone."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        plain.pop("devices", None)
        return {"cniVersion": cni_version, **plain}
