"""Attached means that it works: random networks on VFs, bonds, VLANs, macvlan and ipvlan, as another machine sees them.

After an attach, after a bond's member has lost its link, and after an address has moved to another pod, every address
answers within a second. `check` reports neither drift nor a lost link if and only if all addresses of a pod answer.

macvlan above a VF is left out: the emulated NIC does not always pass the frames for its MAC to the VF.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from netdra.chain.check import check
from netdra.chain.report import AttachTemporaryError
from netdra.chain.site import open_pod
from netdra.kernel import link
from netdra.kernel.netns import Namespace
from netdra.model.plan import Plan, PlannedStep
from testbed import build
from testbed.waiting import until
from tests import draws
from tests.hardware import wire
from tests.hardware.node import PATIENCE, PF, VF, ip, up
from tests.hardware.pods import Pod, allocated
from tests.hardware.test_steps_bond import MAILBOX, SILENCE
from tests.kernel.chain.routers import answering
from tests.kernel.chain.test_dhcp import listens, running
from tests.plans import plan, step

EXAMPLES = draws.count(1, 25)
ON_PF: Mapping[str, int] = {"macvlan on PF": 0, "ipvlan on PF": 1}
"""A device has either macvlan or ipvlan above it (macvlan_port_create() in drivers/net/macvlan.c)."""
TAGGED: Mapping[str, str] = {"ipvlan on PF": "macvlan on PF"}
"""Roots that take no VLAN, and another one that is drawn in place of each."""
WIRED: Mapping[str, str] = {"macvlan on PF": "vf", "ipvlan on PF": "bond"}
"""Roots that get no address from the wire, and other ones: the emulated NIC passes no broadcast of a VLAN to its PF."""
PODS = 4
MOVES = 2
VLANS: Mapping[str, int] = {"ipam": 7, "tuning": 7, "slaac": 8, "dhcp": 9}
"""The VLAN of networks by the source of their addresses; those of a router are drift in networks with other ones."""
ON_WIRE = ("slaac", "dhcp")
ROOTS = ("vf", "bond", "macvlan on PF", "ipvlan on PF")


@dataclass(frozen=True)
class Network:
    """A drawn network of a pod.

    Attributes:
        root: one of `ROOTS`.
        uppers: the kinds of the interfaces above, from below.
        number: of the VFs, unlike that of any other network at the time.
        pf: the number of the PF; a bond has one VF of each.
        addresses: of the uppermost interface, with their prefix lengths.
        source: of the addresses: "ipam" of the uppermost step, a step for "tuning", or the wire ("slaac", "dhcp"); then
            `addresses` are empty until the pod is attached.
        follows_member: whether a bond has the MAC of its active member.
    """

    root: str
    uppers: tuple[str, ...]
    number: int
    pf: int
    addresses: tuple[str, ...]
    source: str
    follows_member: bool

    @property
    def vlan(self) -> int:
        """The VLAN, 0 for none."""
        return VLANS[self.source] * ("vlan" in self.uppers)

    @property
    def is_from_wire(self) -> bool:
        """Whether a machine of the wire gives the addresses, which cannot move then."""
        return self.source in ON_WIRE

    @property
    def hosts(self) -> set[str]:
        """The addresses without prefix lengths."""
        return {text.partition("/")[0] for text in self.addresses}

    def is_on(self, pf: int) -> bool:
        """Whether the network has no link without a PF."""
        return self.root != "bond" and self.pf == pf


@dataclass
class Draw:
    """Draws networks; no two have an address or a VF in common."""

    source: random.Random
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def network(self, number: int, former: Network | None = None, root: str = "") -> Network:
        """A network, with the addresses of a former one if it is given."""
        root = root or self.source.choice(ROOTS)
        source = self.source.choice(("ipam", "tuning") if former else ("ipam", "tuning", "tuning", *ON_WIRE))
        is_tagged = "vlan" in former.uppers if former else source in ON_WIRE or self.source.random() < 0.5
        root = WIRED.get(root, root) if source in ON_WIRE else root
        root = TAGGED.get(root, root) if is_tagged else root
        uppers = ["vlan"] if is_tagged else []
        if root in ("vf", "bond") and source not in ON_WIRE:
            uppers += self.source.choice(([], ["ipvlan"]))
        top = (*root.split(" on ")[:1], *uppers)[-1]
        source = "ipam" if top == "ipvlan" else source  # the program requires it
        new = () if source in ON_WIRE else self._addresses(is_tagged=is_tagged)
        return Network(
            root=root,
            uppers=tuple(uppers),
            number=number,
            pf=ON_PF.get(root, self.source.randrange(2)),
            addresses=former.addresses if former else new,
            source=source,
            follows_member=self.source.random() < 0.5,
        )

    def _addresses(self, *, is_tagged: bool) -> tuple[str, ...]:
        number, net = next(self._numbers) + 10, VLANS["ipam"] if is_tagged else 0
        both = (f"10.60.{net}.{number}/24", f"2001:db8:60:f{net}::{number}/64")
        return self.source.choice((both, both[:1], both[1:]))


def planned(network: Network, pfs: tuple[PF, ...], dhcp: str) -> Plan:
    """The plan of a network; `dhcp` is the socket of the program's daemon."""
    kind, _, on_pf = network.root.partition(" on ")
    given: dict[str, Any] = {"type": "static", "addresses": [{"address": text} for text in network.addresses]}
    wire_given: Mapping[str, dict[str, Any]] = {
        "slaac": {"type": "slaac", "timeoutSeconds": 60},
        "dhcp": {"type": "dhcp", "daemonSocketPath": dhcp},
    }
    ipam = {"ipam": wire_given.get(network.source, given)}
    if on_pf:
        pf = pfs[network.pf]
        steps = [step("root", kind, "net1", {"master": pf.name, "mode": MODES[kind]}, device=allocated(pf))]
    elif kind == "vf":
        steps = [_vf("root", network, pfs[network.pf], "net1")]
    else:
        steps = [_vf(f"vf{at}", network, pf, f"net{at + 1}") for at, pf in enumerate(pfs)]
        bond = {"mode": "active-backup", "links": [{"name": "net1"}, {"name": "net2"}]}
        follows = {"failOverMac": "active"} if network.follows_member else {}
        steps.append(step("root", "bond", "bond0", {**bond, **follows}, after=["vf0", "vf1"]))
    for at, upper in enumerate(network.uppers):
        below = steps[-1]
        config: dict[str, Any] = {"master": below.if_name}
        config |= {"id": network.vlan} if upper == "vlan" else {"mode": MODES[upper], "linkInContainer": True}
        steps.append(step(f"upper{at}", upper, f"{upper}0", config, after=[below.name]))
    top = steps[-1]
    if network.source != "tuning":
        steps[-1] = step(
            top.name, top.type, top.if_name, {**top.config, **ipam}, after=top.depend_on, device=top.device
        )
    else:
        steps.append(step("tune", "tuning", top.if_name, {"addresses": list(network.addresses)}, after=[top.name]))
    return plan(*steps)


MODES: Mapping[str, str] = {"macvlan": "bridge", "ipvlan": "l2"}


def _vf(name: str, network: Network, pf: PF, if_name: str) -> PlannedStep:
    config: dict[str, Any] = {}
    if not network.follows_member:
        config = {"spoofchk": "off", "trust": "on"}
    return step(name, "sriov", if_name, config, device=allocated(pf.vf(network.number), mtu=1500))


@dataclass(frozen=True)
class Attached:
    """A pod with a drawn network."""

    pod: Pod
    network: Network
    made: Plan

    @property
    def top(self) -> str:
        return self.made.steps[-1].if_name

    def is_ok(self) -> bool:
        """Whether `check` finds nothing."""
        return wire.is_ok(check(self.pod.netns, self.pod.settings))

    def is_not_ok(self) -> bool:
        """Whether `check` finds something."""
        return not self.is_ok()

    def has_lost(self, member: str) -> bool:
        """Whether a member of a bond has no carrier."""
        with open_pod(self.pod.path) as space:
            return link.get(space.sock, member).lacks_carrier


@dataclass
class Tries:
    """Attaches a network, again and again as the kubelet does: a VF whose PF has no link takes no VLAN.

    Attributes:
        last: the network, and why the last try failed.
    """

    network: Network
    last: tuple[Network, str] | None = None

    def attach(self, pod: Pod, made: Plan) -> bool:
        """Whether the pod is attached now."""
        try:
            pod.attach(made)
        except AttachTemporaryError as problem:
            self.last = self.network, str(problem)
            return False
        return True


def assert_survives(attached: Attached, lost: int, asker: wire.Asker) -> None:
    """A bond uses its other member when a PF has lost its link; others on that PF do not answer, and check agrees.

    While the bond removes its addresses, and those of each interface above it, from the lost member, igbvf polls for
    the PF's answer.
    """
    network = attached.network
    if network.root == "bond":
        until(partial(attached.has_lost, f"net{lost + 1}"), "the loss", seconds=PATIENCE)
        longest = SILENCE + MAILBOX * (1 + len(network.uppers))
        assert asker.ask(network.hosts, longest).keys() == network.hosts, network
    elif network.is_on(lost):
        until(attached.is_not_ok, "check to report the loss", seconds=PATIENCE)
        assert not asker.ask(network.hosts, SILENCE / 2), network


BREAKS: Mapping[str, Callable[[Attached], tuple[str, ...]]] = {
    "an address removed": lambda it: ("address", "delete", it.network.addresses[0], "dev", it.top),
    "the interface down": lambda it: ("link", "set", it.top, "down"),
    "the lowest interface down": lambda it: ("link", "set", "bond0" if it.network.root == "bond" else "net1", "down"),
}


SERVER = """
start 10.60.9.100
end 10.60.9.200
interface {name}
lease_file {folder}/leases
pidfile {folder}/pid
option subnet 255.255.255.0
option lease 3600
"""


@pytest.fixture
def peer(pfs: tuple[PF, ...], new_netns: Callable[[], str], tmp_path: Path) -> Iterator[str]:
    """Another machine on the wire of both PFs, with and without VLANs; on two of them it gives addresses."""
    netns = new_netns()
    wire.put(netns, {vlan: (f"10.60.{vlan}.1/24", f"2001:db8:60:f{vlan}::1/64") for vlan in (0, *{*VLANS.values()})})
    (tmp_path / "leases").touch()
    config = tmp_path / "udhcpd.conf"
    config.write_text(SERVER.format(name=wire.name(VLANS["dhcp"]), folder=tmp_path))
    with ExitStack() as stack, Namespace.open(f"/run/netns/{netns}") as space:
        advertised = answering(wire.name(VLANS["slaac"]), f"2001:db8:60:f{VLANS['slaac']}::/64")
        space.run(lambda: stack.enter_context(advertised))
        server = ("ip", "netns", "exec", netns, "busybox", "udhcpd", "-f", str(config))
        stack.enter_context(running(*server, until="started"))
        yield netns


@pytest.fixture
def dhcp(tmp_path: Path) -> Iterator[str]:
    """The socket of the daemon of the program `dhcp`."""
    path = str(tmp_path / "dhcp.sock")
    with running(str(build.program("dhcp")), "daemon", "-socketpath", path, until=""):
        listens(path)
        yield path


def revive(vf: VF) -> None:
    """Set a VF up on the node until it has a link: igbvf takes no VLAN for some seconds after its PF was down."""
    up(vf.name)
    ip("link", "set", vf.name, "down")


@pytest.mark.repeats
@pytest.mark.parametrize("example", range(EXAMPLES))
def test_every_address_answers_after_an_attach_a_lost_link_and_a_move_and_check_agrees(
    pfs: tuple[PF, ...], peer: str, dhcp: str, new_pod: Callable[[], Pod], example: int
) -> None:
    source = random.Random(draws.seed() + example)
    draw = Draw(source)

    def attach(network: Network) -> Attached:
        wire.outdate(peer, network.hosts, network.vlan)
        made, pod = planned(network, pfs, dhcp), new_pod()
        if network.root == "vf" and "vlan" in network.uppers:
            revive(pfs[network.pf].vf(network.number))
        tries = Tries(network)
        until(lambda: tries.attach(pod, made), "an attach", seconds=PATIENCE, detail=lambda: tries.last)
        inside = pod.addresses(made.steps[-1].if_name)
        assert network.is_from_wire or inside == {*network.addresses}, network
        return Attached(pod, replace(network, addresses=tuple(inside)), made)

    def assert_answers(pods: list[Attached], seconds: float = wire.SOON) -> None:
        for each in pods:
            wire.wait_ok(each.pod, each.made)
            assert asker.ask(each.network.hosts, seconds).keys() == each.network.hosts, each.network

    with wire.Asker(peer) as asker:
        networks = [draw.network(at, root="bond" if at == 0 else "") for at in range(PODS)]
        pods = [attach(network) for network in networks]
        assert_answers(pods)

        lost = source.randrange(len(pfs))
        ip("link", "set", pfs[lost].name, "down")
        try:
            for each in pods:
                assert_survives(each, lost, asker)
        finally:
            up(pfs[lost].name)
        assert_answers(pods)

        movable = [at for at, each in enumerate(pods) if not each.network.is_from_wire]
        for number, at in enumerate(source.sample(movable, min(MOVES, len(movable))), PODS):
            assert pods[at].pod.detach().is_clean
            pods[at] = attach(draw.network(number, former=pods[at].network))
            assert_answers([pods[at]])

        for each in pods:
            what = source.choice(tuple(BREAKS))
            ip(*BREAKS[what](each), netns=each.pod.netns)
            answered = asker.ask(each.network.hosts, SILENCE)
            assert answered.keys() != each.network.hosts, (what, each.network)
            assert not each.is_ok(), (what, each.network)
