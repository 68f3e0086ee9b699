"""A setting that the kernel refuses on the way back keeps nothing else from being restored: the device comes home."""

from __future__ import annotations

import pytest

from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step

POD = '"$(basename "$CNI_NETNS")"'
TAKE = f'ip link set mv0 netns {POD} && ip -n {POD} link set mv0 name "$CNI_IFNAME"'
SPOIL = f'ip -n {POD} link set "$CNI_IFNAME" mtu 1300 address 02:00:00:00:00:99 alias spoilt txqueuelen 7'


def made(bed: Bed) -> None:
    """A macvlan on the node, whose MTU cannot be above that of the link under it."""
    bed.veth("eth7", "peer7", up=True)
    bed.run("ip", "link", "add", "link", "eth7", "name", "mv0", "mtu", "1450", "type", "macvlan")
    bed.run("ip", "link", "set", "mv0", "alias", "storage", "txqueuelen", "500", "up")
    bed.run("ip", "link", "property", "add", "dev", "mv0", "altname", "storage-port")


def test_a_built_in_step_restores_all_but_the_setting_that_is_refused(bed: Bed) -> None:
    made(bed)
    before = bed.state()
    steps = (
        step("nic", "host-device", "net1", {"mtu": 1350, "mac": "02:00:00:00:00:77"}, device=device("mv0")),
        step("tune", "tuning", "net1", {"mtu": 1280, "txqlen": 9, "promisc": True}, after=["nic"]),
    )
    attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)
    bed.run("ip", "link", "set", "eth7", "mtu", "1400")
    report = detach(bed.container.sandbox, bed.settings)
    (tune, nic) = report.undone
    assert (tune.outcome, nic.outcome, nic.stranded) == ("undone", "failed", True)
    assert "MTU" in nic.message or "mtu" in nic.message
    lower = {key: line for key, line in _links(before, bed).items() if key != "eth7"}
    assert lower == {"mv0": ["/mtu: 1450 became 1350"]}
    bed.run("ip", "link", "set", "eth7", "mtu", "1500")
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


def test_a_device_that_its_plugin_left_in_the_pod_comes_home_though_its_mtu_is_refused(bed: Bed) -> None:
    made(bed)
    before = bed.state()
    plugin = recorder(bed, "mover")
    plugin.does("ADD", f"{TAKE} && {SPOIL} || exit 1; echo '{{}}'")
    attach((plan(step("nic", "mover", "net1", device=device("mv0"))),), bed.container, bed.pod.path, bed.settings)
    bed.run("ip", "link", "set", "eth7", "mtu", "1400")
    (nic,) = detach(bed.container.sandbox, bed.settings).undone
    assert (nic.outcome, nic.stranded) == ("failed", True)
    assert 'netdev "mv0" has MTU 1300, not 1450' in nic.message
    lower = {key: line for key, line in _links(before, bed).items() if key != "eth7"}
    assert lower == {"mv0": ["/mtu: 1450 became 1300"]}
    bed.run("ip", "link", "set", "eth7", "mtu", "1500")
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


def test_an_ipam_plugin_that_fails_on_del_as_on_add_keeps_no_device(bed: Bed) -> None:
    made(bed)
    before = bed.state()
    leases = recorder(bed, "leases")
    for verb in ("ADD", "DEL"):
        leases.fails(verb, code=100, message="no datastore")
    config = {"ipam": {"type": "leases"}}
    with pytest.raises(AttachError, match="no datastore") as caught:
        attach(
            (plan(step("nic", "host-device", "net1", config, device=device("mv0"))),),
            bed.container,
            bed.pod.path,
            bed.settings,
        )
    assert caught.value.report.is_clean, str(caught.value)
    assert "fails on DEL as on ADD" in caught.value.report.undone[0].notes[0]
    assert differences(before, bed.state()) == []


def test_one_that_fails_otherwise_on_del_may_have_leased(bed: Bed) -> None:
    made(bed)
    leases = recorder(bed, "leases")
    leases.fails("ADD", code=100, message="no datastore")
    leases.fails("DEL", code=100, message="the datastore is away")
    config = {"ipam": {"type": "leases"}}
    steps = step("nic", "host-device", "net1", config, device=device("mv0"))
    with pytest.raises(AttachError) as caught:
        attach((plan(steps),), bed.container, bed.pod.path, bed.settings)
    assert not caught.value.report.is_clean
    leases.succeeds("DEL")
    assert detach(bed.container.sandbox, bed.settings).is_clean


def test_a_port_of_a_bridge_that_is_gone_blocks_nothing(bed: Bed) -> None:
    bed.run("ip", "link", "add", "br0", "type", "bridge")
    plugin = recorder(bed, "ovs")
    veth = f'ip link add far0 type veth peer name "$CNI_IFNAME" netns {POD} || exit 1'
    names = '{"name": "far0"}, {"name": "net1", "sandbox": "\'"$CNI_NETNS"\'"}'
    plugin.does("ADD", f"{veth}; echo '{{\"interfaces\": [{names}]}}'")
    attach(
        (plan(step("port", "ovs", "net1", {"bridge": "br0"}, device=device("br0"))),),
        bed.container,
        bed.pod.path,
        bed.settings,
    )
    plugin.fails("DEL", message="failed to find bridge br0")
    assert not detach(bed.container.sandbox, bed.settings).is_undone
    bed.run("ip", "link", "del", "br0")
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_undone
    assert any("its bridge no longer exists" in note for note in report.notes)
    assert [each["ifname"] for each in bed.ip("link", inside=True)] == ["lo"]
    assert "far0" not in {each["ifname"] for each in bed.ip("link")}


def _links(before: dict[str, object], bed: Bed) -> dict[str, list[str]]:
    """The differences of the node's links, by link."""
    was, now = before["host"]["links"], bed.state()["host"]["links"]  # type: ignore[index]
    found = {name: differences(was.get(name), now.get(name)) for name in {*was, *now}}
    return {name: lines for name, lines in found.items() if lines}
