"""Personas of one NIC in the real kube-scheduler: which may be used together, from policies to pods (decisions D2, D3).

The published slices are those that netdra makes of the policies; the scheduler's own rules are in
`test_scheduler_rules`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from netdra.exposure import expose
from netdra.model import names
from netdra.model.documents import plain
from netdra.model.inventory import Interface
from netdra.model.policy import DeviceExposurePolicy
from netdra.slices.pack import layout
from testbed.api import Object
from testbed.objects import SLICE
from testbed.workspace import Workspace
from tests.builders import OURS, exclusive, inventory, policy, shared, sriov
from tests.stacks import Stack, Upper, Way

VFS = 3
NIC = sriov("eth0", VFS)
PF, VF = f'{OURS}.type == "pf"', f'{OURS}.type == "vf"'
MACVLAN = shared(
    "macvlan",
    PF,
    capacity="macvlans",
    deviceNameSuffix="-macvlan",
    exclusionGroup="rx-handler",
    supportedCNIPlugins=[{"name": "macvlan"}],
)
IPVLAN = shared(
    "ipvlan",
    PF,
    capacity="ipvlans",
    deviceNameSuffix="-ipvlan",
    exclusionGroup="rx-handler",
    supportedCNIPlugins=[{"name": "ipvlan"}],
)
VLAN = shared("vlan", PF, capacity="vlans", value=2, deviceNameSuffix="-vlan", supportedCNIPlugins=[{"name": "vlan"}])
PASSTHROUGH = exclusive("passthrough", PF, "host-device", deviceNameSuffix="-passthrough")
PER_VF = exclusive("vfs", VF, "sriov")
ALL = (MACVLAN, IPVLAN, VLAN, PASSTHROUGH, PER_VF)


class Nic:
    """A NIC on a node of its own, published as netdra publishes it; pods take and give back its devices."""

    def __init__(
        self,
        workspace: Workspace,
        interfaces: Sequence[Interface] = NIC,
        policies: Sequence[DeviceExposurePolicy] = ALL,
    ) -> None:
        self.workspace = workspace
        self.policies = policies
        self.node = workspace.add_node()
        self.device_class = workspace.add_class("netdra", f'device.driver == "{names.DRIVER}"')
        self.held: dict[str, list[str]] = {}
        workspace.publish(self.node, *self.slices(interfaces, generation=1))

    def slices(self, interfaces: Sequence[Interface], *, generation: int) -> list[Object]:
        found = expose(inventory(*interfaces, node=self.node), self.policies)
        packed = layout(found, node=self.node, generation=generation)
        assert (*found.problems, *packed.problems) == ()
        return [plain(each) for each in packed.slices]

    def publish(self, interfaces: Sequence[Interface], *, generation: int) -> None:
        """Write the pool again, as the driver does after a change on the node."""
        for manifest in self.slices(interfaces, generation=generation):
            self.workspace.api.apply(manifest)
        self.workspace.settle(self.node)

    def take(self, what: str) -> bool:
        """Have a pod take a share of a plugin's persona (`macvlan`), or a VF (`vf2`); False if it is not available."""
        plugin = f'{OURS}.supportedCNIs.contains(",{what},")'
        selector = f"{VF} && {OURS}.vfIndex == {what[2:]}" if what.startswith("vf") else plugin
        request = {"deviceClassName": self.device_class, "selectors": [{"cel": {"expression": selector}}]}
        name, reason = self.workspace.place({"name": "it", "exactly": request}, node=self.node)
        if not name:
            assert "cannot allocate all claims" in reason
            return False
        self.held.setdefault(what, []).append(name)
        return True

    def give_back(self, what: str) -> None:
        name = self.held[what].pop()
        self.workspace.release(name, name)


def test_shares_of_personas_without_a_common_group_and_vfs_are_used_together(workspace: Workspace) -> None:
    nic = Nic(workspace)
    for what in ("macvlan", "vf0", "vlan", "macvlan", "vf1", "vlan", "vf2"):
        assert nic.take(what), what
    assert not nic.take("vlan"), "both of its two shares are taken"
    assert not nic.take("vf1"), "a VF is given once"


@pytest.mark.parametrize(("first", "second"), [("macvlan", "ipvlan"), ("ipvlan", "macvlan")])
def test_personas_of_one_exclusion_group_are_used_one_at_a_time(workspace: Workspace, first: str, second: str) -> None:
    nic = Nic(workspace)
    assert nic.take(first)
    assert nic.take(first)
    assert not nic.take(second)
    assert nic.take("vlan")
    nic.give_back(first)
    assert not nic.take(second)
    nic.give_back(first)
    assert nic.take(second)


@pytest.mark.parametrize("other", ["macvlan", "ipvlan", "vlan", "vf0"])
def test_passthrough_excludes_every_other_persona_and_is_excluded_by_it(workspace: Workspace, other: str) -> None:
    nic = Nic(workspace)
    assert nic.take("host-device")
    assert not nic.take(other)
    nic.give_back("host-device")
    assert nic.take(other)
    assert not nic.take("host-device")
    nic.give_back(other)
    assert nic.take("host-device")


def test_a_vf_in_host_use_puts_passthrough_out_of_reach_until_it_is_free_and_harms_nothing_else(
    workspace: Workspace,
) -> None:
    enslaved = (*NIC[:-1], msgspec.structs.replace(NIC[-1], master="br0"))
    policies = (*ALL[:-1], exclusive("vfs", f'{VF} && {OURS}.masterBridge == ""', "sriov"))
    nic = Nic(workspace, enslaved, policies)
    assert not nic.take("host-device")
    assert [nic.take(what) for what in ("vf0", "vf1", "macvlan", "vlan")] == [True] * 4
    for what in ("vf0", "vf1", "macvlan", "vlan"):
        nic.give_back(what)
    assert not nic.take("host-device")
    nic.publish(NIC, generation=2)
    assert nic.take("host-device")


def test_a_policy_that_mixes_shared_and_exclusive_plugins_yields_two_devices_that_exclude_each_other(
    workspace: Workspace,
) -> None:
    plugins = [{"name": "macvlan"}, {"name": "host-device", "exclusive": True}]
    capacity = {"macvlans": {"value": "2", "requestPolicy": {"default": "1"}}}
    mixed = policy("mixed", PF, allowMultipleAllocations=True, capacity=capacity, supportedCNIPlugins=plugins)
    nic = Nic(workspace, sriov("eth0", 0), [mixed])
    assert nic.take("macvlan")
    assert not nic.take("host-device")
    assert nic.take("macvlan")
    assert not nic.take("macvlan"), "both shares are taken"
    nic.give_back("macvlan")
    nic.give_back("macvlan")
    assert nic.take("host-device")
    assert not nic.take("macvlan")


def test_new_vfs_are_published_in_one_generation_and_do_not_affect_allocated_devices(workspace: Workspace) -> None:
    nic = Nic(workspace, sriov("eth0", 2))
    assert [nic.take(what) for what in ("vf0", "macvlan")] == [True] * 2
    nic.publish(sriov("eth0", 4), generation=2)
    stored = nic.workspace.api.list(SLICE, fields=f"spec.nodeName={nic.node}")
    assert {each["spec"]["pool"]["generation"] for each in stored} == {2}
    assert [nic.take(what) for what in ("vf1", "vf2", "vf3")] == [True] * 3
    assert not nic.take("vf0")
    assert not nic.take("host-device")


VLAN_ON_PF = Upper("vlan", "vlan7", ("eth0",))
BOND_OF_VFS = Upper("bond", "bond0", ("eth0v0", "eth0v1"))


@pytest.mark.parametrize(
    ("upper", "first", "other", "together"),
    [
        (VLAN_ON_PF, ("vlan7", "shared"), ("eth0", "exclusive"), False),
        (VLAN_ON_PF, ("eth0", "exclusive"), ("vlan7", "shared"), False),
        (VLAN_ON_PF, ("vlan7", "shared"), ("eth0", "shared"), True),
        (BOND_OF_VFS, ("bond0", "shared"), ("eth0v0", "exclusive"), False),
        (BOND_OF_VFS, ("eth0v0", "exclusive"), ("bond0", "shared"), False),
        (BOND_OF_VFS, ("eth0v0", "exclusive"), ("eth0v1", "exclusive"), True),
    ],
)
def test_a_nic_in_exclusive_use_and_a_link_on_top_of_it_exclude_each_other(
    workspace: Workspace, upper: Upper, first: tuple[str, str], other: tuple[str, str], together: bool
) -> None:
    """Shares of a VLAN and its NIC whole, shares of a bond and one of its members: from policies to pods."""
    node = workspace.add_node()
    device_class = workspace.add_class("netdra", f'device.driver == "{names.DRIVER}"')
    ways = {"eth0": (Way("exclusive"), Way("shared")), "vlan7": (Way("shared"),), "bond0": (Way("shared"),)}
    ways |= {f"eth0v{index}": (Way("exclusive"),) for index in range(2)}
    packed = layout(Stack({"eth0": 2}, (upper,), ways, node=node).exposed(), node=node)
    assert packed.problems == ()
    workspace.publish(node, *(plain(each) for each in packed.slices))

    def taken(if_name: str, kind: str) -> bool:
        shared = "true" if kind == "shared" else "false"
        selector = f'{OURS}.ifName == "{if_name}" && device.allowMultipleAllocations == {shared}'
        request = {"deviceClassName": device_class, "selectors": [{"cel": {"expression": selector}}]}
        placed, reason = workspace.place({"name": "it", "exactly": request}, node=node)
        assert placed or "cannot allocate all claims" in reason
        return bool(placed)

    assert taken(*first)
    assert taken(*other) == together
