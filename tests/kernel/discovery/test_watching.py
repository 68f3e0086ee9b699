"""A watched inventory equals a fresh scan, after any events, without reading everything again."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.discovery import live
from netdra.discovery.scan import scan
from netdra.discovery.watch import RESCAN_EVERY, InterfaceChanges, Watcher
from netdra.kernel import address, kinds, link, monitor, netlink, route
from netdra.kernel.errors import KernelError, kernel_error
from netdra.kernel.netns import Namespace
from netdra.kernel.route import Route
from netdra.model.inventory import Inventory, InventoryNode
from testbed.waiting import awaited, until
from tests.kernel.conftest import Machine, new_machine

NODE = InventoryNode(name="worker-1", physnets={"physnet2": ("a", "eth9")})


def watcher_of(namespace: Namespace, rescan_every: float = RESCAN_EVERY) -> Watcher:
    return namespace.run(lambda: Watcher(NODE, rescan_every=rescan_every, settle=0.0))


def fresh(namespace: Namespace) -> Inventory:
    with namespace.run(live.Kernel) as kernel:
        return scan(NODE, kernel, settle=0.0)


def agree(watcher: Watcher, namespace: Namespace) -> None:
    """Wait until the watcher has the facts of a scan: the kernel sets some states (carrier, IPv6) with a delay."""

    def agrees() -> bool:
        watcher.handle()
        return watcher.inventory == fresh(namespace)

    until(agrees, "the watcher to agree with a scan", detail=lambda: (watcher.inventory, fresh(namespace)))


NAMES = ("a", "b", "c", "d", "br0", "br1", "mv0", "eth9")
names = st.sampled_from(NAMES)
Operation = Callable[[Machine, Machine], None]


def veth(name: str, peer: str) -> Operation:
    return lambda machine, other: machine.veth(name, peer, up=True)


def bridge(name: str) -> Operation:
    return lambda machine, other: link.create(machine.sock, name, "bridge", up=True)


def macvlan(name: str, lower: str) -> Operation:
    return lambda machine, other: link.create(
        machine.sock, name, "macvlan", kinds.macvlan(), lower=machine.index(lower), up=True
    )


def delete(name: str) -> Operation:
    return lambda machine, other: link.delete(machine.sock, name)


def enslave(name: str, master: str) -> Operation:
    return lambda machine, other: link.change(machine.sock, name, master=machine.index(master))


def release(name: str) -> Operation:
    return lambda machine, other: link.change(machine.sock, name, master=0)


def rename(name: str, new: str) -> Operation:
    return lambda machine, other: link.change(machine.sock, name, name=new)


def up(name: str, value: bool) -> Operation:
    return lambda machine, other: link.change(machine.sock, name, up=value)


def resize(name: str, mtu: int) -> Operation:
    return lambda machine, other: link.change(machine.sock, name, mtu=mtu)


def describe(name: str, text: str) -> Operation:
    """An alias, on a link that is up: of one that is down the kernel sends no event."""

    def operate(machine: Machine, other: Machine) -> None:
        link.change(machine.sock, name, up=True)
        link.change(machine.sock, name, alias=text)

    return operate


def call(name: str, value: str) -> Operation:
    """An alternative name; the same holds for it."""

    def operate(machine: Machine, other: Machine) -> None:
        link.change(machine.sock, name, up=True)
        link.add_alt_names(machine.sock, machine.index(name), [value])

    return operate


def number(name: str, text: str) -> Operation:
    return lambda machine, other: address.add(machine.sock, machine.index(name), text)


def unnumber(name: str, text: str) -> Operation:
    return lambda machine, other: address.delete(machine.sock, machine.index(name), text)


def default(name: str, table: int) -> Operation:
    return lambda machine, other: route.add(
        machine.sock, Route(destination="0.0.0.0/0", index=machine.index(name), table=table)
    )


def no_default(name: str, table: int) -> Operation:
    return lambda machine, other: route.delete(
        machine.sock, Route(destination="0.0.0.0/0", index=machine.index(name), table=table)
    )


def send_away(name: str) -> Operation:
    return lambda machine, other: link.change(machine.sock, name, netns_fd=other.namespace.fd)


def bring_back(name: str) -> Operation:
    return lambda machine, other: link.change(other.sock, name, netns_fd=machine.namespace.fd)


addresses = st.sampled_from(["10.1.0.1/24", "10.2.0.1/16", "fd00::1/64"])
tables = st.sampled_from([254, 100])
operations = st.one_of(
    st.builds(veth, names, names),
    st.builds(bridge, st.sampled_from(["br0", "br1"])),
    st.builds(macvlan, names, names),
    st.builds(delete, names),
    st.builds(enslave, names, st.sampled_from(["br0", "br1"])),
    st.builds(release, names),
    st.builds(rename, names, names),
    st.builds(up, names, st.booleans()),
    st.builds(resize, names, st.sampled_from([1300, 1400, 1500])),
    st.builds(describe, names, st.sampled_from(["to the spine", ""])),
    st.builds(call, names, st.sampled_from(["alt-one", "alt-two"])),
    st.builds(number, names, addresses),
    st.builds(unnumber, names, addresses),
    st.builds(default, names, tables),
    st.builds(no_default, names, tables),
    st.builds(send_away, names),
    st.builds(bring_back, names),
)
START: tuple[Operation, ...] = (veth("a", "b"), veth("c", "d"), bridge("br0"), macvlan("mv0", "d"))


@settings(max_examples=40)
@given(st.lists(st.lists(operations, min_size=1, max_size=4), min_size=1, max_size=8))
def test_incremental_is_full(batches: list[list[Operation]]) -> None:
    with (
        Namespace.anonymous() as here,
        contextlib.contextmanager(new_machine)(f"cni-{uuid.uuid4()}") as other,
        here.socket() as sock,
        watcher_of(here) as watcher,
    ):
        machine = Machine("", here, sock)
        for batch in [list(START), *batches]:
            for operation in batch:
                with contextlib.suppress(KernelError):  # what does not go leaves things as they are
                    operation(machine, other)
            agree(watcher, here)
        assert watcher.rescans == 0


def test_a_change_is_reported_once_with_before_and_after(machine: Machine) -> None:
    with watcher_of(machine.namespace) as watcher:
        machine.veth("a", "b")
        assert sorted(each.if_name for each in watcher.handle().added) == ["a", "b"]
        link.change(machine.sock, "a", mtu=1400)
        ((before, after),) = watcher.handle().changed
        assert (before.mtu, after.mtu) == (1500, 1400)
        assert watcher.handle() == InterfaceChanges()
        link.delete(machine.sock, "a")
        assert sorted(each.if_name for each in watcher.handle().removed) == ["a", "b"]


def test_a_renamed_link_gets_the_physnet_of_its_new_name(machine: Machine) -> None:
    machine.veth("a", "b")
    with watcher_of(machine.namespace) as watcher:
        for name, wired in (("c", ""), ("eth9", "physnet2")):
            link.change(machine.sock, {"c": "a", "eth9": "c"}[name], name=name)
            agree(watcher, machine.namespace)
            assert {each.if_name: each.physnet for each in watcher.inventory.interfaces}[name] == wired


def test_a_rename_reaches_the_relatives(machine: Machine) -> None:
    machine.veth("a", "b")
    link.create(machine.sock, "br0", "bridge")
    link.change(machine.sock, "a", master=machine.index("br0"))
    with watcher_of(machine.namespace) as watcher:
        link.change(machine.sock, "br0", name="lan")
        found = {after.if_name: after for _, after in watcher.handle().changed}
        assert found["a"].master == found["a"].master_bridge == found["lan"].bridge_name == "lan"
        link.change(machine.sock, "a", name="port")
        found = {after.if_name: after for _, after in watcher.handle().changed}
        assert found["lan"].lower_devices == ("port",)


def test_a_change_of_one_link_reads_only_that_link_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in range(20):
        machine.veth(f"a{each}", f"b{each}", up=True)
    machine.at_rest()
    with watcher_of(machine.namespace) as watcher:
        link.change(machine.sock, "a3", mtu=1400)
        requests: list[int] = []
        send = netlink.Socket._send

        def sent(sock: netlink.Socket, kind: int, flags: int, body: bytes, doing: str) -> int:
            requests.append(flags & netlink.NLM_F_DUMP)
            return send(sock, kind, flags, body, doing)

        monkeypatch.setattr(netlink.Socket, "_send", sent)
        assert [after.if_name for _, after in watcher.handle().changed] == ["a3"]
        assert requests == [0], "one question about one link, and no dump"


def test_a_default_route_that_goes_with_its_link_is_noticed(machine: Machine) -> None:
    machine.veth("a", "b", up=True)
    link.change(machine.sock, "b", up=True)
    route.add(machine.sock, Route(destination="0.0.0.0/0", index=machine.index("a")))
    with watcher_of(machine.namespace) as watcher:
        assert [each.if_name for each in watcher.inventory.interfaces if each.host_uplink] == ["a"]
        link.change(machine.sock, "a", up=False)  # the kernel drops the route, and tells nobody
        watcher.handle()
        assert not any(each.host_uplink for each in watcher.inventory.interfaces)


def test_uplinks_that_could_not_be_read_are_unknown_until_they_can(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.veth("a", "b", up=True)
    link.change(machine.sock, "b", up=True)

    def refuse(*_: object) -> None:
        raise kernel_error(105, "cannot list routes")

    def unknown(watcher: Watcher) -> set[str]:
        return {each.if_name for each in watcher.inventory.interfaces if "host_uplink" in each.unreadable}

    machine.at_rest()
    route.add(machine.sock, Route(destination="0.0.0.0/0", index=machine.index("a")))
    with monkeypatch.context() as patched:
        patched.setattr(route, "dump_made", refuse)
        watcher = watcher_of(machine.namespace)
    with watcher:
        assert unknown(watcher) == {"a", "b", "lo"}
        route.add(machine.sock, Route(destination="0.0.0.0/0", index=machine.index("b"), table=100))
        watcher.handle()
        assert watcher.inventory.unreadable == {"hostUplink: ENOBUFS": 3, "hostUse: ENOBUFS": 3}
        with monkeypatch.context() as patched:
            patched.setattr(route, "dump_made", refuse)
            watcher.rescan()
        assert unknown(watcher) == {"a", "b", "lo"}
        assert watcher.timeout < 10, "it is tried again soon"
        watcher.rescan()
        assert not watcher.stale
        assert watcher.inventory.unreadable == {}
        assert {each.if_name for each in watcher.inventory.interfaces if each.host_uplink} == {"a", "b"}


def test_host_use_of_a_link_follows_route_changes_without_listing_routes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.veth("a", "b", up=True)
    link.change(machine.sock, "b", up=True)
    index = machine.index("a")
    with watcher_of(machine.namespace) as watcher:

        def used() -> tuple[str, ...]:
            watcher.handle()
            agree(watcher, machine.namespace)
            return next(each.host_use for each in watcher.inventory.interfaces if each.if_name == "a")

        assert used() == ()
        address.add(machine.sock, index, "10.1.2.3/24")
        assert used() == ("address",)

        def change(act: Callable[[netlink.Socket, Route], None], number: int) -> None:
            with monkeypatch.context() as patched:
                patched.setattr(route, "dump_made", lambda *_, **__: pytest.fail("a route is no reason to list any"))
                act(machine.sock, Route(destination=f"10.{number}.0.0/16", index=index))
                watcher.handle()

        for number in (7, 8):
            change(route.add, number)
            assert used() == ("address", "route")
        change(route.delete, 7)
        assert used() == ("address", "route")
        change(route.delete, 8)
        assert used() == ("address",)
        link.create(machine.sock, "mv0", "macvlan", kinds.macvlan(), lower=index)
        link.create(machine.sock, "br0", "bridge")
        link.change(machine.sock, "b", master=machine.index("br0"))
        assert used() == ("macvlan-parent", "address")
        assert next(each.host_use for each in watcher.inventory.interfaces if each.if_name == "b") == (
            "bridge-port br0",
        )


def test_lost_events_mean_that_all_is_read_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_RECEIVE_BUFFER", 4096)
    with watcher_of(machine.namespace) as watcher:
        for each in range(30):
            machine.veth(f"a{each}", f"b{each}")
        assert len(watcher.handle().added) == 60
        assert watcher.rescans == 1
        agree(watcher, machine.namespace)


def test_a_rescan_finds_a_change_without_a_kernel_event(machine: Machine) -> None:
    machine.veth("a", "b")
    with watcher_of(machine.namespace) as watcher:
        link.change(machine.sock, "a", alias="down, so without an event")
        assert watcher.handle() == InterfaceChanges()
        ((_, after),) = watcher.rescan().changed
        assert after.alias == "down, so without an event"


def test_a_due_rescan_reads_all_links_and_reports_the_differences(machine: Machine) -> None:
    machine.veth("a", "b")
    with watcher_of(machine.namespace, rescan_every=0.05) as watcher:
        watcher._facts.links.clear()  # as if events had gone missing without a sign
        watcher._interfaces.clear()
        change = watcher.wait()
        assert (watcher.rescans, sorted(each.if_name for each in change.added)) == (1, ["a", "b", "lo"])


def test_it_hangs_on_an_event_loop(machine: Machine) -> None:
    async def first_change(watcher: Watcher) -> InterfaceChanges:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[InterfaceChanges] = loop.create_future()
        loop.add_reader(watcher.fileno(), lambda: arrived.set_result(watcher.handle()))
        try:
            machine.veth("a", "b")
            return await awaited(arrived, "a change")
        finally:
            loop.remove_reader(watcher.fileno())

    with watcher_of(machine.namespace) as watcher:
        change = asyncio.run(first_change(watcher))
        assert "a" in {each.if_name for each in change.added}
        agree(watcher, machine.namespace)


def test_closing_a_watcher_twice_raises_no_error(machine: Machine) -> None:
    watcher = watcher_of(machine.namespace)
    watcher.close()
    watcher.close()
