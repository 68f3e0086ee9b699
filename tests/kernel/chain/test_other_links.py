"""Links that a plugin takes from the host besides its device, or leaves in the pod, are returned and reported (D55)."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from netdra.chain import checkpoint
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.kernel import netns, unlocked
from netdra.kernel.netns import Namespace
from testbed.recorder import Recorder
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step

POD = '"$(basename "$CNI_NETNS")"'
MAKE = f'ip link add far0 type veth peer name "$CNI_IFNAME" netns {POD} || exit 1; ip link set far0 up'
UNMAKE = f'ip -n {POD} link del "$CNI_IFNAME" 2>/dev/null; true'
RESULT = """echo '{"interfaces": [{"name": "net1", "sandbox": "'"$CNI_NETNS"'"}]}'"""
TAKE = {
    "moved": f"ip link set eth8 netns {POD}",
    "moved and renamed": (
        f"ip link set eth8 netns {POD} && ip -n {POD} link set eth8 name data8 address 02:00:00:00:00:99"
    ),
}


@pytest.fixture
def taker(bed: Bed) -> Recorder:
    bed.veth("eth7", "peer7", up=True)
    bed.veth("eth8", "peer8", mtu=1480, up=True)
    plugin = recorder(bed, "taker")
    plugin.does("ADD", f"{MAKE}; {RESULT}")
    plugin.does("DEL", UNMAKE)
    return plugin


PLANS = (plan(step("a", "taker", "net1")),)


def links(bed: Bed) -> set[str]:
    return {link["ifname"] for link in bed.ip("link")}


@pytest.mark.parametrize("how", TAKE)
@pytest.mark.parametrize("ends", [RESULT, "exit 1", "kill -KILL $$"])
def test_a_plugin_that_moves_another_nic_on_add_fails_the_pod_and_the_nic_is_returned(
    bed: Bed, taker: Recorder, how: str, ends: str
) -> None:
    before = bed.state()
    taker.does("ADD", f"{MAKE}; {TAKE[how]} || exit 1; {ends}")
    with pytest.raises(AttachError) as caught:
        attach(PLANS, bed.container, bed.pod.path, bed.settings)
    report = caught.value.report
    called = '"eth8"' if how == "moved" else '"eth8" (as "data8")'
    if ends == RESULT:
        assert report.failures[0].message == f'plugin "taker" moved {called} from the host into the pod'
    assert report.is_clean, str(report)
    (undone,) = report.undone
    assert undone.restored == (f'link {called} of the node, which plugin "taker" had moved into the pod',)
    assert any("may lack addresses" in note for note in undone.notes)
    after = bed.state()
    for state in (before, after):
        del state["host"]["links"]["eth8"]["mac"]
    assert differences(before["pod"], after["pod"]) == []
    assert differences(before["host"]["links"], after["host"]["links"]) == []


@pytest.mark.parametrize("how", TAKE)
@pytest.mark.parametrize("ends", ["true", "exit 1", "kill -KILL $$"])
def test_a_plugin_that_moves_another_nic_on_del_is_reported_and_the_nic_is_returned(
    bed: Bed, taker: Recorder, how: str, ends: str
) -> None:
    attach(PLANS, bed.container, bed.pod.path, bed.settings)
    taker.does("DEL", f"{UNMAKE}; {TAKE[how]}; {ends}")
    report = detach(bed.container.sandbox, bed.settings)
    # Which of two links that are gone it was cannot be known: the plugin's own veth is gone, too.
    called = '"eth8"' if how == "moved" else '"data8" (formerly one of eth8, far0)'
    assert ("eth8" if how == "moved" else "data8") in links(bed)
    if ends == "true":
        assert report.is_clean
        assert f"link {called} of the node" in report.restored[0]
    taker.does("DEL", UNMAKE)
    assert detach(bed.container.sandbox, bed.settings).is_undone


def test_a_nic_that_stays_in_a_pod_that_is_gone_is_reported(bed: Bed, taker: Recorder) -> None:
    """A virtual one is gone with the pod; the kernel returns hardware."""
    name = f"{Path(bed.pod.path).name}-{uuid.uuid4().hex[:4]}"
    with Namespace.create(name) as space:
        attach(PLANS, PodIdentity(sandbox=name), space.path, bed.settings)
        taker.does("DEL", f"{UNMAKE}; {TAKE['moved']}; sleep 0.1; ip netns del {name}; exit 1")
        detach(name, bed.settings)
    taker.does("DEL", "true")
    report = detach(name, bed.settings)
    assert "eth8" in links(bed) or any('"eth8"' in note for note in report.notes), str(report)
    if name in netns.names():
        netns.delete(name)


def test_devices_moved_by_concurrent_steps_are_not_attributed_to_the_plugin(bed: Bed, taker: Recorder) -> None:
    taker.does("ADD", f"sleep 0.3; {MAKE}; {RESULT}")
    other = recorder(bed, "other")
    other.does(
        "ADD",
        f'ip link set eth8 netns {POD} && ip -n {POD} link set eth8 name "$CNI_IFNAME" && '
        """echo '{"interfaces": [{"name": "net2", "sandbox": "'"$CNI_NETNS"'"}]}'""",
    )
    other.does("DEL", f"ip -n {POD} link set net2 name eth8 && ip -n {POD} link set eth8 netns $$")
    plans = (
        *PLANS,
        plan(step("b", "other", "net2", device=device("eth8")), topology="u"),
        plan(step("c", "host-device", "net3", device=device("eth7")), topology="v"),
    )
    attach(plans, bed.container, bed.pod.path, bed.settings)
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_clean
    assert not [note for note in report.notes if "taker" in note]


def test_concurrent_changes_to_host_links_are_not_attributed_to_the_plugin(bed: Bed, taker: Recorder) -> None:
    """Another pod gets a NIC and a veth, an administrator renames one, and another one is deleted."""
    name = f"{Path(bed.pod.path).name}-other"
    bed.veth("eth9", "peer9")
    bed.veth("old0", "old1")
    with Namespace.create(name):
        try:
            others = (
                f"ip link set eth8 netns {name}; ip link add veth9 type veth peer name eth0 netns {name};"
                "ip link set eth9 name wan9; ip link del old0"
            )
            taker.does("ADD", f"{MAKE}; {others}; {RESULT}")
            attach(PLANS, bed.container, bed.pod.path, bed.settings)
            taker.does("DEL", f"{UNMAKE}; ip link add dangling0 type veth peer name dangling1")
            report = detach(bed.container.sandbox, bed.settings)
            assert (report.is_clean, report.notes, report.restored) == (True, (), ())
            assert {"veth9", "wan9", "dangling0"} <= links(bed)
        finally:
            netns.delete(name)


@pytest.mark.parametrize("there", [True, False])
def test_a_del_that_does_nothing_is_reported_with_both_ends(bed: Bed, taker: Recorder, there: bool) -> None:
    taker.does("DEL", "true")
    attach(PLANS, bed.container, bed.pod.path, bed.settings)
    if not there:
        bed.run("ip", "link", "del", "far0")
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_undone
    text = 't/a (taker binary): plugin "taker" left interface "net1" in the pod, and its peer "far0" on the host'
    (note,) = report.notes or ("",)
    assert note.endswith(text.split(": ", 1)[1]) == there


def test_an_add_that_fails_and_leaves_its_veth_is_reported(bed: Bed, taker: Recorder) -> None:
    taker.does("ADD", f"ip link add far0 type veth peer name half0 netns {POD}; exit 1")
    taker.does("DEL", "true")
    with pytest.raises(AttachError) as caught:
        attach(PLANS, bed.container, bed.pod.path, bed.settings)
    assert caught.value.report.undone[0].notes == (
        'plugin "taker" left interface "half0" in the pod, and its peer "far0" on the host',
    )


def test_a_link_that_a_plugin_has_made_and_not_reported_stays_where_it_is(bed: Bed, taker: Recorder) -> None:
    """It has a peer on the host, and on DEL another link of the host goes: anyway it was never the host's."""
    taker.does("ADD", f"{MAKE}; ip link add far1 type veth peer name half1 netns {POD}; {RESULT}")
    attach(PLANS, bed.container, bed.pod.path, bed.settings)
    report = detach(bed.container.sandbox, bed.settings)
    assert (report.restored, len(report.notes)) == ((), 1)
    assert report.notes[0].endswith('left interface "half1" in the pod, and its peer "far1" on the host')
    assert "half1" not in links(bed)


def test_of_several_plugins_all_are_named_that_may_have_left_a_link(bed: Bed, taker: Recorder) -> None:
    taker.does("ADD", f"{MAKE}; ip -n {POD} link add odd0 type bridge; {RESULT}")
    recorder(bed, "later")
    attach(
        (plan(step("a", "taker", "net1"), step("b", "later", "net1", after=["a"])),),
        bed.container,
        bed.pod.path,
        bed.settings,
    )
    report = detach(bed.container.sandbox, bed.settings)
    assert [note.split(": ", 1)[1] for note in report.notes] == [
        'plugin "taker" or "later" left interface "odd0" in the pod'
    ]


def test_interfaces_created_by_the_pod_itself_are_not_reported(bed: Bed, taker: Recorder) -> None:
    bed.run("ip", "link", "add", "before0", "type", "bridge", inside=True)
    attach(PLANS, bed.container, bed.pod.path, bed.settings)
    bed.run("ip", "link", "add", "docker0", "type", "bridge", inside=True)
    report = detach(bed.container.sandbox, bed.settings)
    assert (report.is_clean, report.notes) == (True, ())


def test_a_checkpoint_of_an_older_netdra_is_undone_without_that(bed: Bed, taker: Recorder) -> None:
    taker.does("DEL", "true")
    attach(PLANS, bed.container, bed.pod.path, bed.settings)
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(first.replace(',"links":[]', "") + "".join(rest).replace(',"links":["net1"]', ""))
    assert '"links"' not in path.read_text()
    report = detach(bed.container.sandbox, bed.settings)
    assert (report.is_clean, report.notes) == (True, ())


def test_the_names_of_links_are_those_that_iproute2_lists(bed: Bed) -> None:
    for number in range(3):
        bed.veth(f"eth{number}.5", f"a-peer_{number}")
    assert unlocked.names() == {link["ifname"] for link in bed.ip("link")}
    assert bed.pod.visit(unlocked.names) == {link["ifname"] for link in bed.ip("link", inside=True)} == {"lo"}
