"""Classes that netdra makes, on the real API server and scheduler: no device keeps a claim from the others."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import yaml

from netdra.exposure import expose
from netdra.model import documents
from netdra.model.inventory import Interface
from netdra.slices.pack import pack
from netdra.topology.classes import device_classes
from testbed.api import Object
from testbed.objects import SLICE, manifest
from testbed.workspace import Workspace
from tests import builders

DRIVER = "dra.networking"
D = f'device.attributes["{DRIVER}"]'
PLUGIN = {"supportedCNIs": {"string": ",macvlan,"}}


def published(workspace: Workspace, devices: Mapping[str, Object], capacity: Mapping[str, Object]) -> str:
    """A node with a pool for each device, as other drivers' versions or providers may publish them."""
    node = workspace.add_node()
    slices = [
        manifest(
            SLICE,
            f"{node}-{name}",
            spec={
                "driver": DRIVER,
                "nodeName": node,
                "pool": {"name": f"{node}-{name}", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {"name": name, "attributes": PLUGIN | attributes, "capacity": capacity.get(name, {})},
                ],
            },
        )
        for name, attributes in devices.items()
    ]
    workspace.publish(node, *slices)
    return node


def class_for(workspace: Workspace, selector: str) -> str:
    """The class of a topology's only step, made as the controller makes it."""
    steps = [{"name": "port", "type": "macvlan", "selector": {"cel": selector}}]
    (made,) = device_classes(builders.topology(yaml.safe_dump(steps), name=workspace.name("net")))
    return str(workspace.create(documents.plain(made))["metadata"]["name"])


@pytest.mark.parametrize("other", ["a-first", "z-last"])
def test_a_device_without_the_attribute_does_not_block_the_other_devices(workspace: Workspace, other: str) -> None:
    devices = {other: {}, "m-localnet": {"physicalNetworkName": {"string": "localnet1"}}}
    node = published(workspace, devices, {})
    name = class_for(workspace, f'{D}.physicalNetworkName == "localnet1"')
    claim, reason = workspace.place({"name": "port", "exactly": {"deviceClassName": name}}, node=node)
    assert reason == ""
    assert workspace.devices(claim) == ["m-localnet"]


TWO: Mapping[str, Object] = {
    "none": {},
    "only-a": {"a": {"int": 1}},
    "only-b": {"b": {"int": 2}},
    "both": {"a": {"int": 1}, "b": {"int": 3}},
    "flag": {"on": {"bool": True}, "b": {"int": 2}},
}


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("D.a == 1 || D.b == 2", {"only-a", "only-b", "both", "flag"}),
        ("!(D.a == 2)", {"only-a", "both"}),
        ("D.b != 3", {"only-b", "flag"}),
        ("has(D.on) ? D.b == 2 : D.a == 1", {"only-a", "both", "flag"}),
        ("D.on ? D.b == 2 : D.a == 1", {"flag"}),
        ("!has(D.a) && D.b == 2", {"only-b", "flag"}),
        ("[1, 2].exists(n, n == D.a || n == D.b)", {"only-a", "only-b", "both", "flag"}),
        ("[1, 2].all(n, n == D.a || n + 1 == D.b || D.on)", {"both", "flag"}),
        ("cel.bind(d, D, d.a + 2 == d.b)", {"both"}),
        ("D.?b.orValue(D.a) == 1", {"only-a"}),
        ('device.capacity["dra.networking"].slots.isGreaterThan(quantity("1"))', {"both"}),
        ('device.attributes["nobody.org"].x == 1 || D.a == 1', {"only-a", "both"}),
    ],
)
def test_a_class_selects_the_expected_devices_even_if_some_lack_a_key(
    workspace: Workspace, selector: str, chosen: set[str]
) -> None:
    node = published(workspace, TWO, {"both": {"slots": {"value": "4"}}})
    name = class_for(workspace, selector.replace("D.", f"{D}.").replace("D,", f"{D},"))
    request = {"name": "ports", "exactly": {"deviceClassName": name, "allocationMode": "All"}}
    claim, reason = workspace.place(request, node=node)
    assert reason == ""
    assert set(workspace.devices(claim)) == chosen


def test_devices_without_a_pcie_root_have_none_in_common(workspace: Workspace) -> None:
    node = workspace.add_node()
    bridges = [Interface(if_name=name, type="bridge", bridge_type="linux") for name in ("br0", "br1")]
    pfs = [builders.pf(name, bus=bus) for bus, name in ((3, "ens1"), (4, "ens2"))]
    result = expose(builders.inventory(*bridges, *pfs, node=node), [builders.exclusive("all", "true", "macvlan")])
    workspace.publish(node, *[documents.plain(each) for each in pack(result, node=node)])
    for kind, placed in (("bridge", False), ("pf", True)):
        name = workspace.add_class(f"{kind}s", f'device.driver == "{DRIVER}" && {D}.type == "{kind}"')
        request = {"name": "two", "exactly": {"deviceClassName": name, "count": 2}}
        same = [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]
        claim, reason = workspace.place(request, node=node, constraints=same)
        assert bool(claim) is placed, reason
