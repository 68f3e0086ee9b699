"""The real API server takes every slice that netdra makes, whole: also at the API's limits, and of any input.

A slice that is refused costs all its devices, and a field that the server drops costs what it stood for (a counter: the
exclusion of personas). So what comes back from a dry run must equal what was sent.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.exposure import expose
from netdra.model import documents, names, quantity
from netdra.model.device import DEFAULT_FEATURES, Features
from netdra.model.inventory import Interface, Inventory, InventoryNode
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import MAX_STRING, ResourceSlice
from netdra.slices.pack import layout
from testbed.api import Api, ApiError, Object
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.workspace import Workspace
from tests.builders import LIMITS, OURS, inventory, long_names, many_personas, many_standalone, many_vfs, policy, sriov
from tests.unit.slices.test_written import REFUSED

QUANTITIES = {"value", "default", "min", "max", "step", "validValues"}
LONG = "x" * MAX_STRING
ROOT = Path(__file__).parents[2]
EXAMPLES = [*ROOT.glob("examples/worker-1/slices.yaml"), *ROOT.glob("tests/unit/exposure/golden/*/slices.yaml")]
Build = Callable[[], tuple[Inventory, list[DeviceExposurePolicy]]]


def comparable(value: Any, key: str = "") -> Any:
    """A slice's spec with quantities as numbers: the server writes `100000` as `100k`."""
    if isinstance(value, dict):
        return {name: comparable(each, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(each, key) for each in value]
    return Decimal(quantity.parse(value)) if key in QUANTITIES else value


def accept(api: Api, slices: Iterable[ResourceSlice]) -> None:
    """Have the API server validate slices without storing them, and compare what it would store."""
    for sent in slices:
        manifest: Object = documents.plain(sent)
        returned = api.create(manifest, dry_run=True)
        assert comparable(returned["spec"]) == comparable(manifest["spec"])


def made(
    node: Inventory, policies: Sequence[DeviceExposurePolicy], features: Features = DEFAULT_FEATURES
) -> tuple[ResourceSlice, ...]:
    """The slices of a node, from which packing had to leave out nothing."""
    packed = layout(expose(node, policies, features=features), node=node.node.name, features=features)
    assert packed.problems == ()
    return packed.slices


def test_the_slices_of_the_reference_node_and_of_all_nine_examples_are_stored_whole(api: Api) -> None:
    assert len(EXAMPLES) == 10
    for path in EXAMPLES:
        slices = [each for each in documents.read(path.read_text(), path.name) if isinstance(each, ResourceSlice)]
        assert slices
        accept(api, slices)


@pytest.mark.parametrize("build", LIMITS.values(), ids=LIMITS)
def test_slices_at_the_limits_are_stored_whole(api: Api, build: Build) -> None:
    accept(api, made(*build()))


def test_slices_at_the_limits_are_stored_whole_with_lists_where_the_server_takes_them(
    start_control_plane: Callable[[Settings], ControlPlane],
) -> None:
    gates = {"DRAListTypeAttributes": True}
    plane = start_control_plane(Settings(feature_gates=gates, scheduler=False, controller_manager=False))
    with closing(plane.client()) as api:
        for build in LIMITS.values():
            accept(api, made(*build(), Features(list_attributes=True)))


@pytest.mark.parametrize(
    ("limit", "expression", "counts"),
    [
        pytest.param(many_vfs, f'{OURS}.supportedCNIs == ",sriov,"', [20] * 10, id="200-vfs"),
        pytest.param(many_personas, f'{OURS}.type == "pf" && {OURS}.supportedCNIs != ""', [1], id="40-personas"),
        pytest.param(many_standalone, 'device.driver != ""', [32] * 3, id="300-standalone-devices"),
        pytest.param(long_names, f'{OURS}.type == "vf"', [2], id="long-names"),
    ],
)
def test_the_scheduler_allocates_at_the_limits(
    workspace: Workspace, limit: Build, expression: str, counts: list[int]
) -> None:
    given_node, policies = limit()
    name = workspace.add_node()
    device_class = workspace.add_class("some", f'device.driver == "{names.DRIVER}" && {expression}')
    node = msgspec.structs.replace(given_node, node=InventoryNode(name=name))
    workspace.publish(name, *[documents.plain(each) for each in made(node, policies)])
    for count in counts:
        some = {"name": "some", "exactly": {"deviceClassName": device_class, "count": count}}
        claim, reason = workspace.place(some, node=name)
        assert reason == ""
        assert len(workspace.devices(claim)) == count


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/ \t\n\v\f\r\0"), min_size=1, max_size=15)
TEXTS = st.one_of(st.sampled_from(["", "mlx5_core", LONG, "x" * 300]), st.text(max_size=80))
LISTS = st.lists(st.text(max_size=40), max_size=4).map(tuple)
INDEXES = st.integers(-1, 300)


def interfaces() -> st.SearchStrategy[Interface]:
    """Anything that a kernel could report, and more; VFs of PFs that are not known are among them."""
    return st.builds(
        Interface,
        if_name=NAMES,
        type=st.sampled_from(["pf", "vf", "nic", "bridge", "vlan", "bond", "veth", "macvlan"]),
        mac=TEXTS,
        mtu=st.integers(0, 2**31),
        link_speed=st.sampled_from([0, 1, 25_000, 400_000]),
        pci_address=st.sampled_from(["", "0000:03:00.0", "10000:e1:00.1"]),
        numa_node=INDEXES,
        vendor=TEXTS,
        rdma=st.booleans(),
        rdma_device=TEXTS,
        num_vfs=st.integers(0, 5),
        pf_name=NAMES,
        vf_index=INDEXES,
        master=st.sampled_from(["", "br0"]),
        alias=TEXTS,
        alt_names=LISTS,
        ipv6=LISTS,
        host_uplink=st.booleans(),
        unreadable=st.lists(st.sampled_from(["mac", "mtu", "link_speed", "vendor"]), max_size=2).map(tuple),
    )


def nics() -> st.SearchStrategy[tuple[Interface, ...]]:
    """PFs with their VFs, and interfaces of every kind."""
    pfs = st.builds(sriov, st.sampled_from(["eth0", "eth1", "ens1f0.np_0"]), st.integers(0, 70))
    return st.one_of(pfs, interfaces().map(lambda each: (each,)))


def capacities() -> st.SearchStrategy[dict[str, Any]]:
    """Capacities with and without request policies, for shared devices."""
    policies = st.sampled_from(
        [
            {"default": "1"},
            {"default": "1", "validValues": ["1", "2", "10"]},
            {"default": "2", "validRange": {"min": "1", "max": "10", "step": "1"}},
            {"default": "1", "validRange": {"min": "1"}},
        ]
    )
    entry = st.fixed_dictionaries({"value": st.sampled_from(["10", "64", "1Gi", "25k"]), "requestPolicy": policies})
    keys = st.sampled_from(["ports", "bandwidth", "macvlan_slots", "example.com/Slots", "dra.networking/vlans"])
    return st.dictionaries(keys, entry, min_size=1, max_size=4)


def policies() -> st.SearchStrategy[list[DeviceExposurePolicy]]:
    """A few policies that are right in themselves, for all interfaces or for those of one type."""
    selectors = st.sampled_from(["true", f'{OURS}.type == "pf"', f'{OURS}.type == "vf"', f"{OURS}.mtu > 1400"])
    plugins = st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from(["macvlan", "host-device", "sriov", "x" * 61]), "exclusive": st.booleans()}
        ),
        unique_by=lambda plugin: plugin["name"],
        max_size=4,
    )
    values = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=16), st.just(("a", "b")))
    common: dict[str, st.SearchStrategy[Any]] = {
        "deviceNameSuffix": st.sampled_from(["", "-a", "-b", "-passthrough", "x" * 30]),
        "supportedCNIPlugins": plugins,
        "additionalAttributes": st.dictionaries(
            st.sampled_from(["tier", "Zone", "example.com/rack"]), values, max_size=3
        ),
        "allowHostUplink": st.booleans(),
    }
    exclusive_ones = st.fixed_dictionaries(common)
    shared_ones = st.fixed_dictionaries(
        {
            **common,
            "capacity": capacities(),
            "allowMultipleAllocations": st.just(value=True),
            "exclusionGroup": st.sampled_from(["", "rx-handler"]),
        }
    )
    drawn = st.lists(st.tuples(selectors, st.one_of(exclusive_ones, shared_ones)), min_size=1, max_size=6)
    return drawn.map(lambda found: [policy(f"p{at}", cel, **exposure) for at, (cel, exposure) in enumerate(found)])


@settings(max_examples=60)
@given(st.lists(nics(), min_size=1, max_size=4, unique_by=lambda nic: nic[0].if_name), policies())
def test_slices_of_any_inventory_and_policies_are_accepted_without_loss(
    api: Api, found: list[tuple[Interface, ...]], drawn: list[DeviceExposurePolicy]
) -> None:
    accept(api, made(inventory(*[interface for nic in found for interface in nic]), drawn))


@pytest.mark.parametrize(("value", "text"), REFUSED.values(), ids=REFUSED)
def test_the_api_server_rejects_every_object_that_validate_rejects(
    api: Api, value: Object, text: str, tmp_path: Path
) -> None:
    (tmp_path / "slice.yaml").write_text(json.dumps(value))
    command = (sys.executable, "-m", "netdra", "validate", str(tmp_path / "slice.yaml"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, text in done.stdout) == (1, True), done.stdout + done.stderr
    with pytest.raises(ApiError) as refused:
        api.create(value, dry_run=True)
    assert refused.value.code == HTTPStatus.UNPROCESSABLE_ENTITY
