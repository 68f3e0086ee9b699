"""Plugins that misbehave by generated behaviour: each difference from their reports, or from before, is reported.

The kernel is compared, not the report. A plugin's changes to its device are in `test_shared_devices`.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.kernel import netns
from netdra.kernel.netns import Namespace
from testbed.recorder import Recorder
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, differences, recorder, stable_addresses
from tests.kernel.chain.test_shared_devices import clean_up, node
from tests.plans import attach, plan, step

POD = '"$(basename "$CNI_NETNS")"'
MAC, MTU, ADDRESS = "02:00:00:00:00:11", 1450, "10.1.0.5/24"
# What a plugin does on ADD. Its interface is right, wrong in one thing, or not there; then come things besides.
ADD_LINK = 'ip link add far0 type veth peer name "$CNI_IFNAME"'
ADD_ADDRESS = f'ip -n {POD} addr add {ADDRESS} dev "$CNI_IFNAME"'
WORK = {
    "right": f"{ADD_LINK} address {MAC} mtu {MTU} netns {POD}; {ADD_ADDRESS}",
    "another MAC": f"{ADD_LINK} address 02:00:00:00:00:12 mtu {MTU} netns {POD}; {ADD_ADDRESS}",
    "another MTU": f"{ADD_LINK} address {MAC} mtu 1300 netns {POD}; {ADD_ADDRESS}",
    "no address": f"{ADD_LINK} address {MAC} mtu {MTU} netns {POD}",
    "on the host": f"{ADD_LINK} address {MAC} mtu {MTU}",
    "nothing": "true",
}
BESIDES = {
    "takes a NIC": f"ip link set eth8 netns {POD}",
    "takes and renames a NIC": f"ip link set eth8 netns {POD} && ip -n {POD} link set eth8 name data8 mtu 1200",
    "leaves a veth": f"ip link add far1 type veth peer name half1 netns {POD}",
    "leaves a bridge": f"ip -n {POD} link add odd0 type bridge",
}
UNMAKE = f'ip -n {POD} link del "$CNI_IFNAME" 2>/dev/null; ip link del far0 2>/dev/null; ip link del far1 2>/dev/null'
UNDO = {
    "all": f"{UNMAKE}; ip -n {POD} link del odd0 2>/dev/null; true",
    "half": f'ip -n {POD} link del "$CNI_IFNAME" 2>/dev/null; true',
    "nothing": "true",
    "takes a NIC": f"{UNMAKE}; {BESIDES['takes a NIC']}; true",
    "fails": "exit 1",
    "dies": "kill -KILL $$",
}
ENDS = {"well": "", "badly": "exit 1", "killed": "kill -KILL $$", "nonsense": "echo ["}


class Claims(msgspec.Struct, frozen=True):
    """The values that a plugin reports of its interface; "" and 0 for nothing."""

    name: str = "net1"
    mac: str = ""
    mtu: int = 0
    address: str = ""
    placed: bool = True

    def result(self) -> dict[str, Any]:
        interface = {"name": self.name, "sandbox": "POD", "mac": self.mac, "mtu": self.mtu}
        address = {"address": self.address, "interface": 0} if self.placed else {"address": self.address}
        return {
            "interfaces": [{key: value for key, value in interface.items() if value}] if self.name else [],
            "ips": [address] if self.address and (self.name or not self.placed) else [],
        }


class Add(msgspec.Struct, frozen=True):
    """A plugin's actions on ADD, and its report, if it succeeds."""

    work: str
    besides: list[str]
    claims: Claims = Claims()
    ends: str = "well"

    def prepare(self, plugin: Recorder) -> None:
        plugin.prints("ADD", self.claims.result())
        report = ENDS[self.ends] or 'sed "s#POD#$CNI_NETNS#g" "$state/ADD.json"'
        plugin.does("ADD", "; ".join([WORK[self.work], *(BESIDES[each] for each in self.besides), report]))


ADDS = st.builds(
    Add,
    st.sampled_from(sorted(WORK)),
    st.lists(st.sampled_from(sorted(BESIDES)), max_size=2, unique_by=lambda each: each[:4]),
    st.builds(
        Claims,
        st.sampled_from(["net1", "net1", "net9", ""]),
        st.sampled_from(["", MAC, MAC.upper(), "02:00:00:00:00:13"]),
        st.sampled_from([0, MTU, 1500]),
        st.sampled_from(["", ADDRESS, "10.1.0.7/24"]),
        st.booleans(),
    ),
    st.sampled_from(["well", "well", "well", *sorted(ENDS)]),
)


def inside(bed: Bed, name: str) -> dict[str, Any]:
    """The links of a pod with their addresses, by iproute2."""
    pod = dataclasses.replace(bed, pod=Namespace(-1, f"{netns.NAMED}/{name}"))
    return {link["ifname"]: link for link in pod.ip("addr", inside=True)}


def false_claims(links: Mapping[str, Any], claims: Claims) -> list[str]:
    """The false values that a plugin reported of its interface."""
    there = links.get(claims.name)
    if claims.name and there is None:
        return [claims.name]
    holders = list(links.values()) if not claims.placed else [there] if there is not None else []
    addresses = {address for link in holders for address in stable_addresses(link)}
    wrong = [claims.address] if claims.address and holders and claims.address not in addresses else []
    if there is not None:
        wrong += [claims.mac] if claims.mac and claims.mac.lower() != there["address"] else []
        wrong += [str(claims.mtu)] if claims.mtu and claims.mtu != there["mtu"] else []
    return wrong


def test_after_any_behaviour_no_pod_is_attached_or_undone_with_a_difference_that_is_not_reported(bed: Bed) -> None:
    plugin = recorder(bed, "maker")

    @example(Add("nothing", [], Claims(mac=MAC, address=ADDRESS)), "nothing", "there")
    @example(Add("right", ["takes and renames a NIC"]), "half", "there")
    @example(Add("right", ["takes a NIC"], ends="killed"), "dies", "gone")
    @example(Add("right", ["leaves a veth"], Claims(mtu=MTU)), "half", "there")
    @example(Add("right", []), "takes a NIC", "there")
    @example(Add("on the host", [], Claims(address=ADDRESS, placed=False)), "all", "there")
    @settings(max_examples=25, phases=(Phase.explicit, Phase.generate))
    @given(ADDS, st.sampled_from(sorted(UNDO)), st.sampled_from(["there", "gone"]))
    def holds(add: Add, undo: str, where: str) -> None:
        bed.veth("eth8", "peer8", mtu=1480, up=True)
        name = f"{Path(bed.pod.path).name}-{uuid.uuid4().hex[:4]}"
        try:
            add.prepare(plugin)
            plugin.does("DEL", UNDO[undo])
            told: list[str] = []
            with Namespace.create(name) as space:
                before = node(bed)
                try:
                    attach((plan(step("a", "maker", "net1")),), PodIdentity(sandbox=name), space.path, bed.settings)
                    assert false_claims(inside(bed, name), add.claims) == []
                    assert "eth8" in node(bed)["links"]
                except AttachError as problem:
                    told.append(str(problem.report))
                if where == "gone":
                    netns.delete(name)
            report = detach(name, bed.settings)
            told.append(str(report))
            if undo in ("fails", "dies"):
                plugin.does("DEL", UNDO["all"])
                told.append(str(detach(name, bed.settings)))
            text = "\n".join(told)
            if where == "there":
                notes = "".join(line for line in text.splitlines() if line.startswith("note: "))
                left = inside(bed, name).keys() - {"lo"}
                assert all(f'"{link}" in the pod' in notes for link in left), (left, text)
                netns.delete(name)
            for change in differences(before["links"], settled(bed)["links"]):
                link = change.split("/")[1].split(":")[0]
                # With neither end in the pod, whose it is cannot be known: others make links, too.
                assert link in text or (add.work == "on the host" and link in ("far0", "net1")), (change, text)
        finally:
            if name in netns.names():
                netns.delete(name)
            clean_up(bed)

    holds()


def settled(bed: Bed) -> Any:
    """The node, once the links of a namespace that is gone have gone as well: their other ends go with them."""
    return until(lambda: _without_ends(bed), "the other ends of a pod's links to be gone")


def _without_ends(bed: Bed) -> Any:
    state = node(bed)
    away = [link["ifname"] for link in bed.ip("link") if "link_netnsid" in link]
    return None if away else state
