"""A topology is another one than a claim was prepared with exactly if its spec is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.node.claims.checks import changed_topologies
from netdra.node.claims.store import PreparedClaim, PreparedPlan, TopologyVersion
from netdra.node.hardware import HardwareTable
from netdra.topology.devices import DeviceKey
from tests import builders

CLAIM = ClaimReference(namespace="ns", name="c", uid="u")


@dataclass
class View:
    topologies: Mapping[str, NetworkTopology]
    ready: bool = True
    labels: Mapping[str, str] | None = None
    devices: Mapping[DeviceKey, PlannedDevice] = field(default_factory=dict)
    slices: tuple[ResourceSlice, ...] = ()
    vfs: Mapping[DeviceKey, tuple[PlannedDevice, ...]] = field(default_factory=dict)
    hardware: HardwareTable = field(default_factory=HardwareTable)


def topology(mtu: int, uid: str = "first", generation: int = 1) -> NetworkTopology:
    steps = f"[{{name: nic, type: host-device, config: {{mtu: {mtu}}}}}]"
    return builders.topology(steps, uid=uid, generation=generation)


def record(version: TopologyVersion) -> PreparedClaim:
    return PreparedClaim(boot_id="b", claim=CLAIM, devices=(), plan=PreparedPlan(topologies={"net": version}))


@given(st.lists(st.tuples(st.booleans(), st.integers(1400, 1402)), min_size=1, max_size=6), st.booleans())
def test_a_changed_topology_is_reported_exactly_while_its_spec_differs(
    changes: list[tuple[bool, int]], written_without_uid: bool
) -> None:
    now = topology(1400)
    version = TopologyVersion.of(now)
    claim = record(replace(version, uid="") if written_without_uid else version)
    for number, (is_made_anew, mtu) in enumerate(changes):
        metadata = now.metadata
        if is_made_anew:
            now = topology(mtu, f"made-{number}")
        elif mtu != now.spec.steps[0].config["mtu"]:
            now = topology(mtu, metadata.uid, metadata.generation + 1)
        is_other = now.spec != topology(1400).spec
        assert len(changed_topologies([claim], View({"net": now}))) == is_other
        assert version.is_of(now) == (not is_other)


def test_a_topology_that_was_deleted_is_reported_and_none_while_topologies_are_not_known() -> None:
    claim = record(TopologyVersion.of(topology(1400)))
    (text,) = changed_topologies([claim], View({}))
    assert text == (
        'ResourceClaim "ns/c" was prepared with generation 1 of NetworkTopology "net", which was deleted now'
    )
    assert changed_topologies([claim], View({}, ready=False)) == ()
    assert changed_topologies([replace(claim, plan=None)], View({})) == ()
