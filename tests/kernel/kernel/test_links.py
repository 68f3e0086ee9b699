"""Links are made, changed, moved and deleted as iproute2 then sees them; refusals state what and why."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from netdra.kernel import kinds, link
from netdra.kernel.errors import KernelExistsError, KernelMissingError, KernelRefusedError
from netdra.kernel.netlink import Socket
from tests.kernel.conftest import Machine


def test_a_veth_pair_with_its_settings(machine: Machine) -> None:
    machine.veth("a", "b", mtu=1400, mac="02:00:00:00:00:01", txqlen=77, up=True)
    link.change(machine.sock, "a", alias="to b")
    (seen,) = machine.ip("link", "show", "a")
    assert (seen["mtu"], seen["address"], seen["txqlen"], seen["ifalias"]) == (1400, "02:00:00:00:00:01", 77, "to b")
    assert "UP" in seen["flags"]
    assert seen["linkinfo"]["info_kind"] == "veth"
    assert link.get(machine.sock, "a").lower == machine.index("b")


def test_a_move_with_a_new_name_and_mtu_is_one_act(machine: Machine, other: Machine) -> None:
    machine.veth("a", "b")
    link.change(machine.sock, "b", name="net1", mtu=1300, netns_fd=other.namespace.fd, up=True)
    (seen,) = other.ip("link", "show", "net1")
    assert (seen["mtu"], "UP" in seen["flags"]) == (1300, True)
    assert link.find(machine.sock, "b") is None


def test_a_move_onto_a_taken_name_arrives_under_its_old_one(machine: Machine, other: Machine) -> None:
    machine.veth("a", "b")
    machine.veth("net2", "x")
    other.veth("net1", "net2")
    with pytest.raises(KernelExistsError):
        link.change(machine.sock, "b", name="net1", netns_fd=other.namespace.fd)
    assert link.find(machine.sock, "b") is None
    assert link.find(other.sock, "b") is not None
    with pytest.raises(KernelExistsError):
        link.change(machine.sock, "net2", name="net1", netns_fd=other.namespace.fd)
    assert link.find(machine.sock, "net2") is not None


def test_bridge_ports_macvlan_and_vxlan(machine: Machine) -> None:
    machine.veth("a", "b")
    link.create(machine.sock, "br0", "bridge", kinds.bridge(stp_state=1, ageing_time=1000))
    link.change(machine.sock, "a", master=machine.index("br0"))
    link.create(machine.sock, "mv0", "macvlan", kinds.macvlan("vepa"), lower=machine.index("b"))
    link.create(machine.sock, "vx0", "vxlan", kinds.vxlan(42, lower=machine.index("b"), port=8472))
    seen = {each["ifname"]: each for each in machine.ip("link")}
    assert seen["a"]["master"] == "br0"
    assert seen["br0"]["linkinfo"]["info_data"]["stp_state"] == 1
    assert seen["br0"]["linkinfo"]["info_data"]["ageing_time"] == 1000
    assert (seen["mv0"]["link"], seen["mv0"]["linkinfo"]["info_data"]["mode"]) == ("b", "vepa")
    vxlan = seen["vx0"]["linkinfo"]["info_data"]
    assert (vxlan["id"], vxlan["link"], vxlan["port"]) == (42, "b", 8472)
    link.change(machine.sock, "a", master=0)
    assert link.get(machine.sock, "a").master == 0


def test_a_link_is_made_right_in_another_namespace(machine: Machine, other: Machine) -> None:
    machine.veth("a", "b")
    link.create(
        machine.sock, "mv0", "macvlan", kinds.macvlan(), lower=machine.index("a"), netns_fd=other.namespace.fd, up=True
    )
    machine.veth("c", "d", peer_in=other.namespace)
    assert {each["ifname"] for each in other.ip("link")} == {"lo", "mv0", "d"}
    assert link.get(other.sock, "mv0").lower_netns >= 0


def test_flags_that_are_not_named_stay(machine: Machine) -> None:
    machine.veth("a", "b", up=True)
    link.change(machine.sock, "a", promiscuous=True, all_multicast=True)
    assert {"UP", "PROMISC", "ALLMULTI"} <= set(machine.ip("link", "show", "a")[0]["flags"])
    link.change(machine.sock, "a", promiscuous=False)
    flags = machine.ip("link", "show", "a")[0]["flags"]
    assert "PROMISC" not in flags
    assert {"UP", "ALLMULTI"} <= set(flags)


def test_alternative_names_find_a_link_and_can_be_taken_away(machine: Machine) -> None:
    machine.veth("a", "b")
    long = "a-name-that-is-longer-than-fifteen-bytes"
    link.add_alt_names(machine.sock, machine.index("a"), ["second", long])
    assert set(machine.ip("link", "show", "a")[0]["altnames"]) == {"second", long}
    assert link.get(machine.sock, long).name == "a"
    with pytest.raises(KernelExistsError, match="alternative name second of link"):
        link.add_alt_names(machine.sock, machine.index("b"), ["second"])
    link.delete_alt_names(machine.sock, machine.index("a"), ["second"])
    assert link.get(machine.sock, "a").alt_names == (long,)


def test_a_rename_of_a_link_that_is_named(machine: Machine) -> None:
    machine.veth("a", "b")
    index = machine.index("a")
    link.change(machine.sock, "a", name="eth9")
    assert machine.index("eth9") == index


@pytest.mark.parametrize("name", ["a", "bond0"])
def test_a_deleted_link_is_removed_and_deleting_a_missing_link_raises_an_error(machine: Machine, name: str) -> None:
    machine.veth("a", "b")
    if name == "a":
        link.delete(machine.sock, name)
        assert [each.name for each in link.dump(machine.sock)] == ["lo"], "the peer goes too"
    with pytest.raises(KernelMissingError, match=f'link "{name}"'):
        link.delete(machine.sock, name)


def test_refusals_carry_the_kernels_own_words(machine: Machine) -> None:
    machine.veth("a", "b")
    with pytest.raises(KernelRefusedError, match=r'cannot set mtu 5 of link "a".*mtu less than device minimum'):
        link.change(machine.sock, "a", mtu=5)
    with pytest.raises(KernelRefusedError, match=r'cannot create link "x" \(nothing\).*Unknown device type') as caught:
        link.create(machine.sock, "x", "nothing")
    assert "EOPNOTSUPP" in str(caught.value)
    with pytest.raises(KernelExistsError, match='cannot create link "a"'):
        link.create(machine.sock, "a", "bridge")


def test_refusals_name_settings_as_people_do(machine: Machine) -> None:
    machine.veth("a", "b")
    refused: list[tuple[link.LinkChanges, str]] = [
        ({"up": True}, "state up"),
        ({"up": False}, "state down"),
        ({"promiscuous": True, "master": 0, "mtu": 5, "txqlen": None}, "promiscuous mode on, no master, mtu 5"),
    ]
    for changes, words in refused:
        with pytest.raises(KernelMissingError) as caught:
            link.change(machine.sock, "c", **changes)
        assert f'cannot set {words} of link "c"' in caught.value.what


def test_a_link_is_changed_by_any_of_its_names(machine: Machine) -> None:
    machine.veth("a", "b")
    long = "a-name-that-is-longer-than-the-kernels-own"
    link.add_alt_names(machine.sock, machine.index("a"), ["other", long])
    for mtu, name in enumerate(("a", "other", long), 1300):
        link.change(machine.sock, name, mtu=mtu)
        assert link.get(machine.sock, "a").mtu == mtu
        with pytest.raises(KernelMissingError):
            link.change(machine.sock, f"no-{name}", mtu=mtu)
    link.change(machine.sock, "a", name="c", mtu=1400)
    assert link.get(machine.sock, "c").mtu == 1400


def test_threads_that_ask_little_take_little_memory() -> None:
    threads = 32
    together = threading.Barrier(threads + 1)

    def ask() -> None:
        with Socket() as sock:
            link.find(sock, "lo")
        together.wait()
        together.wait()

    def anonymous() -> int:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))

    before = anonymous()
    asking = [threading.Thread(target=ask) for _ in range(threads)]
    for thread in asking:
        thread.start()
    together.wait()
    taken = anonymous() - before
    together.wait()
    for thread in asking:
        thread.join()
    assert taken / threads < 128 * 1024
