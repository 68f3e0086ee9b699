"""The decisions of the real kube-scheduler on the devices and counters that netdra excludes personas with.

Each test publishes one physical function with hand-written slices, and claims its personas one after the other. These
are the rules that decisions D2, D3 and D5 stand on: a release that changes one of them breaks a test here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.resource import ResourceSlice
from netdra.slices.allocator import Allocator
from testbed.api import Object
from testbed.objects import CLASS, POD, SLICE, manifest, scheduling
from testbed.workspace import Workspace

DRIVER = "dra.networking"
SET = "eth0-counters"
VFS = 3
COUNTERS = {"exclusion-slots": VFS + 1, "macvlan-capacity": 64, "ipvlan-capacity": 64}
ROOM = {"slots": {"value": "64", "requestPolicy": {"default": "1", "validValues": ["1"]}}}


def device(name: str, consumes: Mapping[str, int], *, shared: bool = False) -> Object:
    """A persona that consumes counters of the one set, and can be claimed by its name."""
    counters = {counter: {"value": str(amount)} for counter, amount in consumes.items()}
    return {
        "name": name,
        "attributes": {"persona": {"string": name}},
        **({"allowMultipleAllocations": True, "capacity": ROOM} if shared else {}),
        "consumesCounters": [{"counterSet": SET, "counters": counters}],
    }


def vfs() -> list[Object]:
    return [device(f"vf{index}", {"exclusion-slots": 1}) for index in range(VFS)]


def passthrough() -> Object:
    return device("passthrough", COUNTERS)


class Function:
    """One physical function on a node of its own, whose personas pods take and give back."""

    def __init__(self, workspace: Workspace, *devices: Object, counters: Mapping[str, int] = COUNTERS) -> None:
        self.workspace = workspace
        self.node = workspace.add_node()
        self.device_class = workspace.add_class("persona", f'device.driver == "{DRIVER}"')
        self.holders: dict[str, list[str]] = {}
        self.pool = f"{self.node}/sriov-eth0"
        workspace.publish(self.node, self.counter_slice(counters), self._slice("devices", devices=list(devices)))

    def counter_slice(self, counters: Mapping[str, int]) -> Object:
        values = {counter: {"value": str(amount)} for counter, amount in counters.items()}
        return self._slice("counters", sharedCounters=[{"name": SET, "counters": values}])

    def set_counters(self, **counters: int) -> None:
        """Write other totals, as the driver does when a VF comes into use on the host."""
        changed = self.counter_slice({name.replace("_", "-"): amount for name, amount in counters.items()})
        self.workspace.api.apply(changed)
        self.workspace.settle(self.node)

    def write(self, *devices: Object) -> None:
        """Write the devices again, as the driver does when a provider states something else of one."""
        self.workspace.api.apply(self._slice("devices", devices=list(devices)))
        self.workspace.settle(self.node)

    def take(self, persona: str, **amounts: str) -> bool:
        """Claim a persona for a new pod, and amounts of its capacities; a claim that does not fit is taken back."""
        expression = f'device.attributes["{DRIVER}"].persona == "{persona}"'
        request: Object = {"deviceClassName": self.device_class, "selectors": [{"cel": {"expression": expression}}]}
        if amounts:
            request["capacity"] = {"requests": {f"bctl/{name}": amount for name, amount in amounts.items()}}
        name, reason = self.workspace.place({"name": "it", "exactly": request}, node=self.node)
        if not name:
            assert "cannot allocate all claims" in reason
            return False
        self.holders.setdefault(persona, []).append(name)
        return True

    def give_back(self, persona: str) -> None:
        name = self.holders[persona].pop()
        self.workspace.release(name, name)

    def _slice(self, part: str, **content: object) -> Object:
        pool = {"name": self.pool, "generation": 1, "resourceSliceCount": 2}
        spec = {"driver": DRIVER, "nodeName": self.node, "pool": pool, **content}
        return manifest(SLICE, f"{self.node}-{part}", spec=spec)


def grouped_personas() -> list[Object]:
    """Two shared personas of one exclusion group: each consumes both mirrored counters in full."""
    both = {"macvlan-capacity": 64, "ipvlan-capacity": 64}
    return [device("macvlan", both, shared=True), device("ipvlan", both, shared=True)]


def test_draining_only_the_other_personas_counter_keeps_nothing_apart(workspace: Workspace) -> None:
    # Why decision D2 departs from this encoding: each persona leaves whole what the other one asks for.
    macvlan = device("macvlan", {"ipvlan-capacity": 64}, shared=True)
    ipvlan = device("ipvlan", {"macvlan-capacity": 64}, shared=True)
    function = Function(workspace, macvlan, ipvlan)
    assert function.take("macvlan")
    assert function.take("ipvlan")


@pytest.mark.parametrize(("first", "second"), [("macvlan", "ipvlan"), ("ipvlan", "macvlan")])
def test_members_of_an_exclusion_group_keep_each_other_out_until_the_last_share_is_back(
    workspace: Workspace, first: str, second: str
) -> None:
    function = Function(workspace, *grouped_personas())
    assert function.take(first)
    assert function.take(first), "a further share of the same device is not charged again"
    assert not function.take(second)
    function.give_back(first)
    assert not function.take(second)
    function.give_back(first)
    assert function.take(second)


def test_shared_personas_without_a_common_group_coexist_with_each_other_and_with_vfs(workspace: Workspace) -> None:
    macvlan = device("macvlan", {"macvlan-capacity": 64}, shared=True)
    ipvlan = device("ipvlan", {"ipvlan-capacity": 64}, shared=True)
    function = Function(workspace, macvlan, ipvlan, passthrough(), *vfs())
    assert [function.take(persona) for persona in ("macvlan", "macvlan", "ipvlan", "vf0", "vf2")] == [True] * 5
    assert not function.take("passthrough")


@pytest.mark.parametrize("other", ["macvlan", "vf1"])
def test_passthrough_and_any_other_persona_exclude_each_other(workspace: Workspace, other: str) -> None:
    function = Function(workspace, *grouped_personas(), passthrough(), *vfs())
    assert function.take("passthrough")
    assert not function.take(other)
    function.give_back("passthrough")
    assert function.take(other)
    assert not function.take("passthrough")
    function.give_back(other)
    assert function.take("passthrough")


def test_a_device_that_exceeds_the_counters_is_not_allocated_and_affects_no_other_device(workspace: Workspace) -> None:
    # Decision D3: a VF in host use lowers the total by one; the pool stays valid, passthrough alone is out of reach.
    enslaved = {**COUNTERS, "exclusion-slots": VFS}
    function = Function(workspace, *grouped_personas(), passthrough(), *vfs()[1:], counters=enslaved)
    assert not function.take("passthrough")
    assert [function.take(persona) for persona in ("vf1", "vf2", "macvlan")] == [True] * 3
    assert not function.take("vf0"), "it is not published"


def test_passthrough_comes_within_reach_again_when_the_total_is_raised(workspace: Workspace) -> None:
    function = Function(workspace, passthrough(), *vfs(), counters={**COUNTERS, "exclusion-slots": VFS})
    assert not function.take("passthrough")
    function.set_counters(exclusion_slots=VFS + 1, macvlan_capacity=64, ipvlan_capacity=64)
    assert function.take("passthrough")


def test_a_total_below_the_allocated_amount_blocks_every_counted_device_until_a_release(
    workspace: Workspace,
) -> None:
    # Why decision D3 never changes totals under an allocated device: one negative counter refuses devices that do not
    # even use it.
    macvlan = device("macvlan", {"macvlan-capacity": 64}, shared=True)
    function = Function(workspace, macvlan, *vfs())
    assert [function.take(persona) for persona in ("vf0", "vf1")] == [True] * 2
    function.set_counters(exclusion_slots=1, macvlan_capacity=64, ipvlan_capacity=64)
    assert not function.take("macvlan")
    function.give_back("vf1")
    assert function.take("macvlan")


def test_capacity_reduced_to_the_consumed_amount_is_not_allocated_until_it_grows(workspace: Workspace) -> None:
    # What a provider lowers is published as what claims consume: who asks for none of it still gets the device.
    def wire(bandwidth: str) -> Object:
        found = device("wire", {}, shared=True)
        found["capacity"] = {"bctl/bandwidth": {"value": bandwidth, "requestPolicy": {"default": "0"}}}
        del found["consumesCounters"]
        return found

    function = Function(workspace, wire("100"))
    assert function.take("wire", bandwidth="60")
    function.write(wire("60"))
    assert not function.take("wire", bandwidth="1")
    assert function.take("wire")
    function.write(wire("61"))
    assert function.take("wire", bandwidth="1")
    assert not function.take("wire", bandwidth="1")


def test_a_reference_to_a_counter_that_is_not_there_makes_its_whole_pool_unusable_and_no_other(
    workspace: Workspace,
) -> None:
    # Publishing waits for a device of another pool on this node to be allocated, so that one is not touched by it.
    function = Function(workspace, passthrough(), *vfs(), counters={"exclusion-slots": VFS + 1})
    name = workspace.add_claim("claim", {"name": "it", "exactly": {"deviceClassName": function.device_class}})
    workspace.add_pod("pod", name, node=function.node)
    node, reason = workspace.schedule("pod")
    assert node == ""
    assert "invalid resource pools" in reason
    workspace.api.apply(function.counter_slice(COUNTERS))
    workspace.api.wait_for(POD, "pod", lambda found: scheduling(found)[0] != "", namespace=workspace.namespace)


@pytest.mark.parametrize(("vfs", "is_foreseen"), [(24, False), (64, True)])
def test_a_search_that_is_not_warned_of_ends_in_time(workspace: Workspace, vfs: int, is_foreseen: bool) -> None:
    """A VF of each of four PFs, of which the last has no link: 1.4 million visits of a device, and 68 million."""
    node = workspace.add_node()
    down = {"key": "example.com/no-link", "effect": "NoSchedule"}
    published: list[Object] = []
    for pf in range(4):
        devices = [
            {"name": f"vf{pf}-{number}", "attributes": {"pf": {"int": pf}}, "taints": [down] * (pf == 3)}
            for number in range(vfs)
        ]
        pool = {"name": f"{node}/{pf}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        published.append(manifest(SLICE, f"{node}-{pf}", spec=spec))
    workspace.publish(node, *published)
    device_class = workspace.add_class("vf", f'device.driver == "{DRIVER}"')
    workspace.settle(node)
    requests: list[Object] = [
        {
            "name": f"r{pf}",
            "exactly": {
                "deviceClassName": device_class,
                "selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].pf == {pf}'}}],
            },
        }
        for pf in range(4)
    ]
    claim = msgspec.convert({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}}, ResourceClaim)
    classes = [msgspec.convert(workspace.api.get(CLASS, device_class), DeviceClass)]
    allocator = Allocator([msgspec.convert(each, ResourceSlice) for each in published], classes)
    assert bool(allocator.foresee(claim).node) is is_foreseen
    _, reason = workspace.place(*requests, node=node)
    assert ("timed out" if is_foreseen else "cannot allocate all claims") in reason
