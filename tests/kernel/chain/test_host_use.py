"""Devices that the host uses at the moment of attaching are not taken from it, even if they were offered."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from netdra.chain.detach import detach
from netdra.kernel import host_use, kinds, link, netns
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import PermanentError
from netdra.model.kept import ADDRESSING
from netdra.model.plan import PlannedDevice
from tests.kernel.chain.conftest import Bed, device, differences
from tests.plans import attach, plan, step


def port(kind: str) -> Callable[[Bed], None]:
    def use(bed: Bed) -> None:
        bed.run("ip", "link", "add", "top0", "type", kind)
        bed.run("ip", "link", "set", "eth7", "master", "top0")

    return use


def stacked(*kind: str) -> Callable[[Bed], None]:
    def use(bed: Bed) -> None:
        bed.run("ip", "link", "add", "link", "eth7", "name", "top0", "type", *kind)

    return use


def address(text: str) -> Callable[[Bed], None]:
    def use(bed: Bed) -> None:
        bed.run("ip", "addr", "add", text, "dev", "eth7", "nodad")

    return use


def route(bed: Bed) -> None:
    bed.run("ip", "route", "add", "10.77.0.0/16", "dev", "eth7")


def tunnel(bed: Bed) -> None:
    bed.run("ip", "link", "add", "vx0", "type", "vxlan", "id", "42", "dev", "eth7", "dstport", "4789")


USES = {
    "bridge-port top0": port("bridge"),
    "macvlan-parent": stacked("macvlan"),
    "vxlan-parent": tunnel,
    "address": address("10.9.0.1/24"),
    "route": route,
}


def attached(bed: Bed, given: PlannedDevice | None, *, binary: bool = False, **config: str) -> None:
    if binary and given is not None:
        config = {"device": given.if_name}  # as `netdra.topology.attachment` names it to the program
    steps = step("dev", "host-device", "net1", config, device=given, binary=binary)
    attach((plan(steps),), bed.container, bed.pod.path, bed.settings)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("what", USES)
def test_a_device_that_the_host_uses_by_now_is_refused_and_the_use_is_named(bed: Bed, what: str, binary: bool) -> None:
    bed.veth("eth7", "peer7", up=True)
    USES[what](bed)
    before = bed.state()
    with pytest.raises(
        PermanentError, match=f'step "dev" \\(host-device( binary)?\\): the host uses device "eth7": .*{what}'
    ) as told:
        attached(bed, device("eth7"), binary=binary)
    word = "allowHostAddresses" if what in ADDRESSING else "allowHostUse"
    assert f"set {word} in the policy" in str(told.value)
    assert differences(before, bed.state()) == []


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("what", ["bridge-port top0", "address"])
def test_its_policy_may_allow_it(bed: Bed, what: str, binary: bool) -> None:
    bed.veth("eth7", "peer7", up=True)
    USES[what](bed)
    before = bed.state()
    attached(bed, device("eth7", allow_host_use=True), binary=binary)
    assert bed.link("net1", inside=True)
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("key", ["device", "hwaddr"])
def test_a_device_that_is_named_by_hand_is_refused_as_well(bed: Bed, key: str, binary: bool) -> None:
    bed.veth("eth7", "peer7", up=True)
    USES["address"](bed)
    named = {"device": "eth7", "hwaddr": bed.link("eth7")["address"].upper()}[key]
    with pytest.raises(PermanentError, match='the host uses device "eth7": address'):
        attached(bed, None, binary=binary, **{key: named})
    assert bed.addresses("eth7")


@pytest.mark.parametrize("kind", ["bridge", "macvlan"])
def test_a_bridge_or_macvlan_step_can_use_a_device_that_the_host_uses(bed: Bed, kind: str) -> None:
    bed.run("ip", "link", "add", "eth7", "type", "bridge")
    bed.run("ip", "link", "set", "eth7", "up")
    USES["address"](bed)
    config = {"bridge": "eth7"} if kind == "bridge" else {"master": "eth7"}
    attach((plan(step("dev", kind, "net1", config, device=device("eth7"))),), bed.container, bed.pod.path, bed.settings)
    assert bed.link("net1", inside=True)
    assert detach(bed.container.sandbox, bed.settings).is_clean


def test_a_link_local_address_or_an_upper_link_in_another_namespace_is_not_a_host_use(bed: Bed) -> None:
    bed.veth("eth7", "peer7", up=True)
    address("fe80::7/64")(bed)
    stacked("macvlan")(bed)
    with bed.host.socket() as sock:
        link.change(sock, "top0", netns_fd=bed.pod.fd)
    attached(bed, device("eth7"))
    assert bed.link("net1", inside=True)


@pytest.mark.parametrize("name", ["cni-{}", "{}"])
def test_the_hosts_end_of_a_pods_veth_is_used(bed: Bed, name: str) -> None:
    """That pod would be cut off, and the new owner would be in the pod's place on the wire."""
    named = name.format(uuid.uuid4())
    with netns.Namespace.create(named) as victim, bed.host.socket() as sock:
        try:
            link.create(sock, "eth7", "veth", kinds.veth(kinds.Peer("eth0", netns_fd=victim.fd)))
            before = bed.state()
            with pytest.raises(PermanentError, match='the host uses device "eth7": pod-peer'):
                attached(bed, device("eth7"))
            assert differences(before, bed.state()) == []
        finally:
            netns.delete(named)


def test_where_sysfs_does_not_show_the_device_the_kernel_is_asked_of_all_links(bed: Bed, tmp_path: object) -> None:
    bed.veth("eth7", "peer7", up=True)
    USES["macvlan-parent"](bed)
    with bed.host.socket() as sock:
        eth7 = link.get(sock, "eth7")
        has = host_use.configuration(sock, eth7)
        assert host_use.read(sock, eth7, Sysfs(str(tmp_path)), has) == ("macvlan-parent",)
