"""The objects that a node follows: what it selects, and a CustomDevice that changes from one selection to the other."""

from __future__ import annotations

from typing import cast

from netdra.kube.client import Client
from netdra.model import documents
from netdra.model.custom_device import CustomDevice
from netdra.node.publishing.followed import FollowedObjects


def device(version: int, node: str = "") -> CustomDevice:
    value = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "CustomDevice",
        "metadata": {"name": "c", "resourceVersion": str(version)},
        "spec": {"provider": "bctl", "device": "eth0", "selector": {"nodeName": node}},
    }
    return documents.convert(value, CustomDevice, "test")


def test_no_summary_and_no_other_nodes_object_is_followed() -> None:
    followed = {
        (reflector.plural, reflector.selection.field_selector)
        for reflector in FollowedObjects("n").reflectors(cast(Client, None))
    }
    assert followed == {
        ("deviceexposurepolicies", ""),
        ("networktopologies", ""),
        ("cnipluginschemas", ""),
        ("customdevices", "spec.selector.nodeName=n"),
        ("customdevices", "spec.selector.nodeName="),
        ("nodes", "metadata.name=n"),
        ("resourceslices", "spec.driver=dra.networking,spec.nodeName=n"),
    }


def test_the_newer_version_of_a_custom_device_in_two_stores_counts_in_any_event_order() -> None:
    objects = FollowedObjects("n")
    assert objects.custom_device("c") is None
    objects.shared_custom_devices.put("c", device(9))
    objects.custom_devices.put("c", device(10, "n"))
    assert objects.custom_device("c") == device(10, "n")
    objects.shared_custom_devices.remove("c")
    assert objects.custom_device("c") == device(10, "n")
    objects.shared_custom_devices.put("c", device(11))
    assert objects.custom_device("c") == device(11)
    objects.custom_devices.remove("c")
    objects.shared_custom_devices.remove("c")
    assert objects.custom_device("c") is None
