"""With any names of interfaces and any policies, exposure's devices can be published: packing leaves nothing out."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.exposure import check, expose
from netdra.model import names
from netdra.model.device import Features
from netdra.model.inventory import Interface, Inventory, InventoryNode
from netdra.model.policy import DeviceExposurePolicy
from netdra.slices.pack import layout
from tests.builders import pf, policy, vf

NAMES = st.text(st.characters(exclude_categories=()), min_size=1, max_size=15)
TEXTS = st.text(st.characters(exclude_categories=()), max_size=90)
SUFFIXES = st.sampled_from(["", "-a", "-exclusive", "v0", "v1", "-" + "s" * 31])
PLUGINS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["macvlan", "sriov", "p" * 61, "q" * 40]), "exclusive": st.booleans()}
    ),
    max_size=4,
    unique_by=lambda plugin: plugin["name"],
)
CAPACITY = st.dictionaries(
    st.sampled_from(["ports", "macVlans", "bandwidth", "example.org/ports"]),
    st.sampled_from(["1", "500m", "10Gi"]).map(lambda value: {"value": value, "requestPolicy": {"default": value}}),
    max_size=3,
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["rack", "example.org/tier", "Nets"]), st.booleans() | st.just("x" * 64) | st.just(["y" * 40] * 2)
)


@st.composite
def policies(draw: st.DrawFn) -> list[DeviceExposurePolicy]:
    def exposure() -> dict[str, Any]:
        return {
            "deviceNameSuffix": draw(SUFFIXES),
            "allowMultipleAllocations": draw(st.booleans()),
            "supportedCNIPlugins": draw(PLUGINS),
            "capacity": draw(CAPACITY),
            "additionalAttributes": draw(ATTRIBUTES),
            "exclusionGroup": draw(st.sampled_from(["", "g"])),
        }

    return [policy(f"p{index}", "true", **exposure()) for index in range(draw(st.integers(1, 4)))]


@st.composite
def nodes(draw: st.DrawFn) -> Inventory:
    first = draw(NAMES)
    count = draw(st.integers(0, 3))
    parent = pf(first, vfs=count, speed=draw(st.sampled_from([0, 1, 25_000])))
    vfs = [vf(parent, index, master=draw(st.sampled_from(["", "br0"]))) for index in range(count)]
    others = draw(st.lists(NAMES.filter(lambda name: name != first), unique=True, max_size=3))
    facts: dict[str, Any] = {"alias": draw(TEXTS), "alt_names": tuple(draw(st.lists(TEXTS, max_size=3)))}
    plain = [Interface(if_name=name, type=draw(st.sampled_from(["nic", "veth", "bridge"])), **facts) for name in others]
    return Inventory(
        node=InventoryNode(name=draw(st.sampled_from(["n", "n" * 242]))), interfaces=(parent, *vfs, *plain)
    )


@settings(max_examples=80)
@given(nodes(), policies(), st.builds(Features, list_attributes=st.booleans(), partitionable_devices=st.booleans()))
def test_every_exposed_device_can_be_published_and_invalid_policies_are_reported(
    node: Inventory, given: list[DeviceExposurePolicy], features: Features
) -> None:
    result = expose(node, given, features=features)
    packed = layout(result, node=node.node.name, features=features)
    published = [(each.spec.pool.name, device.name) for each in packed.slices for device in each.spec.devices]
    assert packed.problems == ()
    assert len(set(published)) == len(published) == len(result.devices)
    assert all(names.is_label(name) for _, name in published)
    assert all(names.is_subdomain(part) for pool, _ in published for part in pool.split("/"))
    assert [decision for decision in result.decisions if decision.exposed] or not published
    unused = {each.name for each in given if check(each)}
    assert unused.isdisjoint(device.policy for device in result.devices)
    assert unused <= {problem.policy for problem in result.problems}
