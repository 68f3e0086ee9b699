"""The host-device step: which device it takes, how it comes into the pod, and that it comes back as it was."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain import announcements, site
from netdra.chain.check import check
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.report import AttachReport
from netdra.kernel import bpf, genetlink, link, netns, uapi
from netdra.kernel.errors import KernelError
from netdra.kernel.link import Link
from netdra.kernel.netlink import NETLINK_GENERIC, Socket
from netdra.kernel.netns import Namespace
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import NetdraError, TemporaryError
from netdra.model.plan import PlannedDevice
from netdra.steps import netdevs, restoring
from netdra.steps.contract import Site
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.kernel.conftest import Machine
from tests.plans import attach, plan, step
from tests.trees import Tree


def moved(bed: Bed, config: dict[str, Any] | None = None, given: PlannedDevice | None = None) -> AttachReport:
    return attach(
        (plan(step("dev", "host-device", "net1", config or {}, device=given)),),
        bed.container,
        bed.pod.path,
        bed.settings,
    )


USED = device("eth7", allow_host_use=True)
"""A device whose policy allows that it is taken from the host while the host uses it."""


def nic(bed: Bed) -> None:
    """eth7, with alternative names."""
    bed.veth("eth7", "peer7", mtu=1400, mac="02:00:00:00:00:07", up=True)
    bed.run("ip", "link", "set", "peer7", "up")
    bed.run("ip", "link", "property", "add", "dev", "eth7", "altname", "enp7s0", "altname", "enx020000000007")


def use(bed: Bed) -> None:
    """Addresses and routes of the host on eth7."""
    bed.run("ip", "addr", "add", "10.9.0.1/24", "dev", "eth7")
    bed.run("ip", "addr", "add", "2001:db8::1/64", "dev", "eth7", "nodad")
    bed.run("ip", "route", "add", "10.77.0.0/16", "via", "10.9.0.7", "metric", "5")
    bed.run("ip", "-6", "route", "add", "2001:db8:77::/48", "via", "2001:db8::7")


def test_a_device_with_a_history_comes_back_with_it(bed: Bed) -> None:
    nic(bed)
    use(bed)
    before = bed.state()
    report = moved(bed, {"mtu": 1300, "mac": "02:00:00:00:00:99"}, USED)
    inside = bed.link("net1", inside=True)
    assert (inside["mtu"], inside["address"]) == (1300, "02:00:00:00:00:99")
    assert "altnames" not in inside
    assert "UP" in inside["flags"]
    assert bed.addresses("net1", inside=True) == set()
    (told,) = report.steps[0].result.interfaces
    assert (told.name, told.mac, told.mtu, told.sandbox) == ("net1", "02:00:00:00:00:99", 1300, bed.pod.path)
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


def test_a_device_comes_and_goes_with_few_requests_that_wait_for_the_moves_of_others(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All but the dumps of one family's addresses and routes take the kernel's lock of all networks (RTNL).

    The machine has no BPF program that a link can have: tests beside this one may load some.
    """
    monkeypatch.setattr(bpf, "are_loaded", lambda: False)
    monkeypatch.setattr(announcements, "first", lambda *_: None)  # the node's daemon calls it after its hook
    bed.veth("eth7", "peer7", up=True)
    # What sysfs shows of the device on a node: nothing stands on it.
    Tree(tmp_path).netdev("eth7", ifindex=bed.link("eth7")["ifindex"])
    monkeypatch.setattr(site, "Sysfs", lambda: Sysfs(str(tmp_path)))
    waiting: list[int] = []

    def counted(asked: Callable[..., list[bytes]]) -> Callable[..., list[bytes]]:
        def ask(sock: Socket, kind: int, body: bytes, **options: Any) -> list[bytes]:
            if asked is request or body[0] == 0:
                waiting.append(kind)
            return asked(sock, kind, body, **options)

        return ask

    def ask_each(sock: Socket, kind: int, bodies: Sequence[bytes], *, doing: str) -> list[bytes | KernelError]:
        waiting.append(kind)
        return request_each(sock, kind, bodies, doing=doing)

    request, dump, request_each = Socket.request, Socket.dump, Socket.request_each
    monkeypatch.setattr(Socket, "request", counted(request))
    monkeypatch.setattr(Socket, "dump", counted(dump))
    monkeypatch.setattr(Socket, "request_each", ask_each)
    with Socket(NETLINK_GENERIC) as generic:
        ethtool = genetlink.family(generic, "ethtool")
    waiting.clear()
    moved(bed, given=device("eth7"))
    assert waiting == [uapi.RTM_GETLINK, ethtool, uapi.RTM_NEWLINK]
    waiting.clear()
    assert detach(bed.container.sandbox, bed.settings).is_clean
    # Its sysctls, which the kernel makes anew, can be read only when it is back.
    # The ids that the pod's namespace knows take the lock in older kernels alone, and there once. One id takes none.
    known = [uapi.RTM_GETNSID, uapi.RTM_GETNSID]
    there = [uapi.RTM_GETLINK, uapi.RTM_GETNSID]
    assert waiting == [*there, uapi.RTM_NEWLINK, uapi.RTM_GETLINK, ethtool, *known]


def test_a_port_of_a_bridge_comes_back_into_the_bridge(bed: Bed) -> None:
    bed.veth("eth7", "peer7", up=True)
    bed.run("ip", "link", "add", "br0", "up", "address", "02:00:00:00:00:b0", "type", "bridge")
    bed.run("ip", "link", "set", "eth7", "master", "br0")
    before = bed.state()
    moved(bed, given=USED)
    assert "master" not in bed.link("net1", inside=True)
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


@pytest.mark.parametrize("config", [{"device": "eth7"}, {"hwaddr": "02:00:00:00:00:07"}, {"device": "enp7s0"}])
def test_without_an_allocated_device_it_is_named_as_for_the_plugin(bed: Bed, config: dict[str, Any]) -> None:
    nic(bed)
    before = bed.state()
    moved(bed, config)
    assert bed.link("net1", inside=True)["address"] == "02:00:00:00:00:07"
    detach(bed.container.sandbox, bed.settings)
    assert differences(before, bed.state()) == []


@pytest.mark.parametrize(
    ("config", "given", "complaint"),
    [
        ({}, None, "none is named"),
        ({"device": "eth8"}, device("eth7"), 'device "eth8" does not match the allocated device "eth7"'),
        ({"hwaddr": "02:00:00:00:00:08"}, device("eth7", mac="02:00:00:00:00:07"), "does not match the allocated"),
        ({"pciBusID": "0000:01:00.0"}, device("eth7", pci_address="0000:02:00.0"), "does not match the allocated"),
        ({"runtimeConfig": {"deviceID": "0000:01:00.0"}}, device("eth7"), "does not match the allocated"),
        ({"kernelpath": "/etc"}, None, "not below /sys/devices"),
        ({"kernelpath": "/sys/devices/../../etc"}, None, "not below /sys/devices"),
        ({"kernelpath": "/sys/devices/none"}, None, "network device not found"),
        ({"pciBusID": "0000:ff:1f.7"}, None, "is not on the host"),
        ({"mac": "ff:ff:ff:ff:ff:ff"}, device("eth7"), "not one of a single interface"),
        ({"mtu": 9}, device("eth7"), "mtu"),
        ({"devise": "eth7"}, None, "devise"),
    ],
)
def test_another_device_than_the_allocated_one_is_never_taken(
    bed: Bed, config: dict[str, Any], given: PlannedDevice | None, complaint: str
) -> None:
    nic(bed)
    bed.veth("eth8", "peer8")
    before = bed.state()
    with pytest.raises(NetdraError, match=complaint):
        moved(bed, config, given)
    assert differences(before, bed.state()) == []


def test_a_name_collision_with_a_host_or_pod_link_does_not_block_the_move(bed: Bed) -> None:
    """The host has a net1 of its own, and the pod an eth7: names collide on the way in and on the way out."""
    nic(bed)
    bed.veth("net1", "host1")
    bed.run("ip", "link", "add", "eth7", "type", "bridge", inside=True)
    bed.run("ip", "link", "add", "enp7s0", "type", "bridge", inside=True)
    before = bed.state()
    moved(bed, given=device("eth7"))
    assert bed.link("net1", inside=True)["address"] == "02:00:00:00:00:07"
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


def test_a_device_returns_under_another_name_if_its_old_name_is_taken_and_reports_it(bed: Bed) -> None:
    nic(bed)
    moved(bed, given=device("eth7"))
    bed.veth("eth7", "other7")
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_clean
    assert 'name "eth7" is taken on the host by now: the device is called "net1"' in str(report)
    assert bed.link("net1")["address"] == "02:00:00:00:00:07"
    assert bed.link("net1")["mtu"] == 1400


def test_both_names_taken_meanwhile_get_it_a_third(bed: Bed) -> None:
    nic(bed)
    moved(bed, given=device("eth7"))
    bed.veth("eth7", "net1")
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_clean
    (back,) = [each for each in bed.ip("link") if each["address"] == "02:00:00:00:00:07"]
    assert back["ifname"].startswith("netdra")


def test_a_device_renamed_by_the_pod_is_found_by_its_identity(bed: Bed) -> None:
    bed.veth("eth7", "peer7", mac="02:00:00:00:00:07")
    before = bed.state()
    moved(bed, given=device("eth7"))
    bed.run("ip", "link", "set", "net1", "down", inside=True)
    bed.run("ip", "link", "set", "net1", "name", "eth7", inside=True)
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


def test_drift_of_a_moved_device_is_shown(bed: Bed) -> None:
    nic(bed)
    moved(bed, given=device("eth7"))
    bed.run("ip", "link", "set", "net1", "down", "address", "02:00:00:00:00:11", inside=True)
    (drift,) = [each.drift for each in check(bed.container.sandbox, bed.settings).steps]
    assert drift == (
        'interface "net1" is down',
        'interface "net1" has MAC 02:00:00:00:00:11, not 02:00:00:00:00:07',
    )


def test_ipam_configures_the_moved_device(bed: Bed) -> None:
    nic(bed)
    ipam = {
        "type": "static",
        "addresses": [{"address": "10.5.0.7/24", "gateway": "10.5.0.1"}, {"address": "2001:db8:5::7/64"}],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.8.0.0/16", "gw": "10.5.0.9", "priority": 3}],
    }
    before = bed.state()
    made = step("dev", "host-device", "net1", {"ipam": ipam}, device=device("eth7"))
    requesting = plan(msgspec.structs.replace(made, default_route=True))
    report = attach((requesting,), bed.container, bed.pod.path, bed.settings)
    assert bed.addresses("net1", inside=True) == {"10.5.0.7/24", "2001:db8:5::7/64"}
    assert bed.ip("route", "show", "default", inside=True)[0]["gateway"] == "10.5.0.1"
    assert bed.ip("route", "show", "10.8.0.0/16", inside=True)[0]["metric"] == 3
    assert [each.interface for each in report.steps[0].result.ips] == [0, 0]
    assert check(bed.container.sandbox, bed.settings).is_clean
    detach(bed.container.sandbox, bed.settings)
    assert differences(before, bed.state()) == []


def test_the_device_comes_back_although_the_lease_does_not(bed: Bed) -> None:
    nic(bed)
    pool = recorder(bed, "pool")
    pool.prints("ADD", {"ips": [{"address": "10.5.0.7/24"}]})
    pool.fails("DEL", message="database is away")
    before = bed.state()
    moved(bed, {"ipam": {"type": "pool"}}, device("eth7"))
    report = detach(bed.container.sandbox, bed.settings)
    assert not report.is_clean
    assert "database is away" in str(report)
    assert differences(before["host"], bed.state()["host"]) == []
    pool.succeeds("DEL")
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


def test_the_disk_is_waited_for_only_where_something_outlives_the_machine(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.veth("eth7", "peer7")
    waited: list[int] = []
    monkeypatch.setattr("os.fsync", waited.append)
    moved(bed, given=device("eth7"))
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert not waited
    recorder(bed, "pool").prints("ADD", {"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/24"}]})
    moved(bed, {"ipam": {"type": "pool"}}, device("eth7"))
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert len(waited) == 2


def test_a_virtual_device_that_another_program_takes_as_soon_as_it_is_back_is_given_back_all_the_same(
    bed: Bed, other: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its name shows its owner."""
    nic(bed)
    moved(bed, {"mtu": 1300}, device("eth7"))
    change = link.change

    def taken(sock: Socket, which: str | int, **wanted: Any) -> None:
        change(sock, which, **wanted)
        if "netns_fd" in wanted:
            bed.run("ip", "link", "set", "eth7", "netns", other.name)

    monkeypatch.setattr(link, "change", taken)
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_clean, str(report)
    assert 'device "eth7" came back and is gone again' in report.notes[0]
    assert not detach(bed.container.sandbox, bed.settings).found


def test_a_virtual_device_is_not_attached_to_the_next_pod_before_it_is_restored(
    bed: Bed, other: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    nic(bed)
    mtu = bed.link("eth7")["mtu"]
    moved(bed, {"mtu": 1300}, device("eth7"))
    restore = restoring.restore
    refusals: list[str] = []
    second = dataclasses.replace(
        bed,
        pod=Namespace.open(f"{netns.NAMED}/{other.name}"),
        container=PodIdentity(sandbox=f"{bed.container.sandbox}-2"),
    )

    def asked_for_meanwhile(record: netdevs.Moved, back: Link, site: Site, **given: bool) -> tuple[str, ...]:
        with pytest.raises(TemporaryError) as refused:
            moved(second, given=device("eth7"))
        refusals.append(str(refused.value))
        return restore(record, back, site, **given)

    monkeypatch.setattr(restoring, "restore", asked_for_meanwhile)
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_clean, str(report)
    assert not report.notes
    assert [f"is still used by sandbox {bed.container.sandbox}" in refusal for refusal in refusals] == [True]
    assert bed.link("eth7")["mtu"] == mtu
    moved(second, given=device("eth7"))
    assert bed.run("ip", "-n", other.name, "link", "show", "net1")
    monkeypatch.undo()
    assert detach(second.container.sandbox, bed.settings).is_clean
    second.pod.close()


def test_an_altname_set_by_the_pod_is_removed_even_if_another_process_returned_the_device(bed: Bed) -> None:
    bed.veth("eth7", "peer7", up=True)
    bed.run("ip", "link", "property", "add", "dev", "eth7", "altname", "enp7s0")
    before = bed.state()
    attach(
        (plan(step("dev", "host-device", "net1", device=device("eth7"))),), bed.container, bed.pod.path, bed.settings
    )
    bed.run("ip", "link", "property", "add", "dev", "net1", "altname", "pods-own", inside=True)
    with Namespace.open(bed.pod.path) as pod, pod.socket() as sock:
        link.change(sock, "net1", netns_fd=bed.host.fd, name="eth7")
    assert bed.link("eth7")["altnames"] == ["pods-own"]
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


@pytest.mark.parametrize("is_taken", [False, True], ids=["the index is free", "the index is taken in the pod"])
@pytest.mark.parametrize("kind", ["veth", "macvlan", "tap"])
def test_a_virtual_device_that_the_pod_renamed_and_gave_another_mac_comes_back(
    bed: Bed, kind: str, is_taken: bool
) -> None:
    bed.veth("low", "far")
    make: dict[str, tuple[str, ...]] = {
        "veth": ("link", "add", "eth7", "type", "veth", "peer", "name", "peer7"),
        "macvlan": ("link", "add", "eth7", "link", "low", "type", "macvlan"),
        "tap": ("tuntap", "add", "eth7", "mode", "tap"),
    }
    bed.run("ip", *make[kind])
    if is_taken:
        index = str(bed.link("eth7")["ifindex"])
        bed.run("ip", "link", "add", "own", "index", index, "type", "bridge", inside=True)
    before = bed.state()["host"]
    moved(bed, given=device("eth7"))
    bed.run("ip", "link", "set", "net1", "down", inside=True)
    bed.run("ip", "link", "set", "net1", "name", "other", "address", "02:00:00:00:99:99", inside=True)
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_clean
    assert differences(before, bed.state()["host"]) == []
