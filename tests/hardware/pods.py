"""Pods on the SR-IOV machine: a network namespace each, chains run in it, and the node compared before and after.

The chains are netdra's, their effects are read with `ip -j -d`, ethtool and sysfs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.report import AttachReport, DetachReport
from netdra.chain.site import ChainSettings
from netdra.model.plan import Plan, PlannedDevice
from testbed.waiting import until
from tests.hardware.node import PATIENCE, PFS, VF, Function, ip, links, links_and_addresses, run
from tests.plans import attach

PLUGINS = (
    "bridge", "macvlan", "ipvlan", "vlan", "host-device", "dummy", "tuning", "vrf", "sbr", "static", "host-local",
    "sriov", "dhcp",
)  # fmt: skip


@dataclass(frozen=True)
class Pod:
    """A pod: a named network namespace, and how chains are run in it."""

    netns: str
    settings: ChainSettings

    @property
    def path(self) -> str:
        return f"/run/netns/{self.netns}"

    def attach(self, *plans: Plan) -> AttachReport:
        return attach(
            plans, PodIdentity(sandbox=self.netns, name=self.netns, namespace="default"), self.path, self.settings
        )

    def detach(self) -> DetachReport:
        return detach(self.netns, self.settings)

    def link(self, name: str) -> dict[str, Any]:
        return links(self.netns)[name]

    def addresses(self, name: str) -> set[str]:
        (found,) = json.loads(ip("-j", "address", "show", "dev", name, netns=self.netns))
        return {f"{each['local']}/{each['prefixlen']}" for each in found["addr_info"] if each["scope"] != "link"}

    def feature(self, name: str, feature: str) -> bool:
        """Whether ethtool reports that a feature of an interface is on."""
        return feature_of(name, feature, self.netns)


def feature_of(name: str, feature: str, netns: str = "") -> bool:
    """Whether ethtool reports that a feature of an interface is on."""
    inside = ("ip", "netns", "exec", netns) if netns else ()
    lines = run(*inside, "ethtool", "-k", name).splitlines()
    (value,) = [line.split()[1] for line in lines if line.strip().startswith(f"{feature}:")]
    return value == "on"


def settings_of(name: str, netns: str = "") -> dict[str, int]:
    """Ring sizes ("rx", "tx") and "rx-usecs" of an interface, as ethtool states."""
    inside = ("ip", "netns", "exec", netns) if netns else ()
    found: dict[str, int] = {}
    for group in ("-g", "-c"):
        for line in run(*inside, "ethtool", group, name).splitlines():
            key, _, value = line.partition(":")
            if value.strip().isdigit():
                found[key.lower()] = int(value)  # of ring sizes, the maxima come first
    return found


def allocated(function: Function, **facts: Any) -> PlannedDevice:
    """A function of a NIC, as if it had been allocated."""
    device = PlannedDevice(
        request="r",
        pool="p",
        device="d",
        if_name=function.name,
        pci_address=function.pci,
        iommu_group=function.iommu_group,
    )
    return msgspec.structs.replace(device, **facts)


def of_pf(vf: VF, found: Mapping[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """The settings of a VF on its PF, as `ip` prints them; `found` are the node's links if they were read already."""
    pf = next(pf for pf in PFS if pf.pci.startswith(vf.pci[:7]))
    return next(each for each in (found or links())[pf.name]["vfinfo_list"] if each["vf"] == vf.index)


def node_state() -> dict[str, Any]:
    """All that detaching must bring back: functions with drivers and netdevs, netdevs' settings, what PFs hold for VFs.

    Left out is what the kernel counts, and the order of indexes.
    """
    functions = [function for pf in PFS for function in (pf, *pf.vfs())]
    found, addressed = links_and_addresses()
    kept = ("address", "permaddr", "mtu", "txqlen", "promiscuity", "allmulti", "master", "altnames", "vfinfo_list")
    return {
        "functions": {each.pci: (each.driver, each.name, _driver_override(each)) for each in functions},
        "links": {
            name: {key: link.get(key) for key in kept} | {"up": "UP" in link["flags"]} for name, link in found.items()
        },
        "addresses": addressed,
    }


def _driver_override(function: Function) -> str:
    return (function.folder / "driver_override").read_text().strip().replace("(null)", "")


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Where two states differ, one line for each place."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted({*before, *after})
        return [line for key in keys for line in differences(before.get(key), after.get(key), f"{path}/{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [line for place, (was, now) in pairs for line in differences(was, now, f"{path}/{place}")]
    return [] if before == after else [f"{path}: {before} became {after}"]


def until_as_before(before: dict[str, Any]) -> None:
    """Wait until the node is as it was: the kernel may take a moment to end a namespace."""
    until(
        lambda: not differences(before, node_state()),
        "the node to be as it was",
        seconds=PATIENCE,
        detail=lambda: "\n".join(differences(before, node_state())),
    )


def assert_as_before(before: dict[str, Any], settings: ChainSettings) -> None:
    """The node becomes as it was, and no checkpoint is left."""
    until_as_before(before)
    left = [str(path) for path in Path(settings.state).rglob("*") if path.is_file() and path.name != ".new"]
    assert not left, f"left: {left}"
