"""VFs of this machine offered to real pods, and their state: devices, taints, claims."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from netdra.model import names
from testbed.api import Object
from testbed.objects import CLASS, manifest
from tests.cluster.pods.driver import ATTRIBUTES, POLICY, Offer
from tests.hardware.node import PF, PFS, VF


def device_of(vf: VF) -> str:
    """The name that a VF is published by."""
    return f"{pf_of(vf).name}v{vf.index}"


def pf_of(vf: VF) -> PF:
    """A VF's PF."""
    (pf,) = (pf for pf in PFS if pf.pci[:7] == vf.pci[:7])
    return pf


def offer_vf(offer: Offer, vf: VF, plugin: str, **config: Any) -> str:
    """Offer one VF to pods, with any netdev name, and wait until it is published; return its class.

    Args:
        offer: the test's.
        vf: it is named by its PF and its index.
        plugin: the step by which it is attached.
        config: the step's configuration.
    """
    cel = f"{ATTRIBUTES}.pfName == {pf_of(vf).name!r} && {ATTRIBUTES}.vfIndex == {vf.index}"
    name = offer.workspace.name(f"{plugin}-{vf.pci.replace(':', '-').replace('.', '-')}")
    spec: Object = {
        "selector": {"cel": cel},
        "exposure": {"supportedCNIPlugins": [{"name": plugin, "exclusive": True}]},
    }
    offer.workspace.create(manifest(POLICY, name, spec=spec))
    parameters = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "DeviceParameters",
        "step": {"type": plugin, "config": config},
    }
    expression = f'device.driver == "{names.DRIVER}" && {ATTRIBUTES}.type == "vf" && {cel}'
    spec = {
        "selectors": [{"cel": {"expression": expression}}],
        "config": [{"opaque": {"driver": names.DRIVER, "parameters": parameters}}],
    }
    offer.workspace.create(manifest(CLASS, name, spec=spec))
    offer.wait_published(device_of(vf))
    return name


def taints(offer: Offer, device: str) -> dict[str, str] | None:
    """The taints of a published device, with their values; None if it is not published."""
    found = offer.published().get(device)
    return None if found is None else {each["key"]: each.get("value", "") for each in found.get("taints", ())}


def ready(offer: Offer, claim: str) -> tuple[str, str]:
    """Status and reason of the `Ready` of a claim's one device."""
    (device,) = offer.status(claim)
    (condition,) = device["conditions"]
    return condition["status"], condition["reason"]


def published(offer: Offer, devices: Collection[str]) -> bool:
    """Whether all of these devices are published, and nothing is stated against them."""
    return all(taints(offer, device) == {} for device in devices)


def allocated(offer: Offer, claims: Sequence[str]) -> set[str]:
    """The devices that claims have."""
    return {device for claim in claims for device in offer.workspace.devices(claim)}
