"""A device that several pods share is as before after each call of a plugin; plugins that change it are named (D55)."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from netdra.chain import checkpoint, shares
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.report import AttachError, DetachReport, FailedAttachReport
from netdra.kernel import netns
from netdra.kernel.netns import Namespace
from netdra.model.errors import TemporaryError
from netdra.model.plan import Plan
from testbed.recorder import Recorder
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step

POD = '"$(basename "$CNI_NETNS")"'
RESULT = """echo '{"interfaces": [{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}]}'"""
PORT = f'ip -n {POD} link add "$CNI_IFNAME" type veth peer name far0'
UNPORT = f'ip -n {POD} link del "$CNI_IFNAME" 2>/dev/null; true'
SPOIL = 'name "$CNI_IFNAME" mtu 1400 address 02:00:00:00:00:99 up'
CHANGES = {
    "moved": (f"ip link set up0 netns {POD}", 'netdev "up0" is still in the pod, as "up0"'),
    "moved and renamed": (
        f"ip link set up0 netns {POD} && ip -n {POD} link set up0 {SPOIL}",
        'netdev "up0" is still in the pod, as "net1"',
    ),
    "renamed": ("ip link set up0 down && ip link set up0 name away0 && ip link set away0 up", 'is called "away0"'),
    "MAC": ("ip link set up0 address 02:00:00:00:00:98", "has MAC 02:00:00:00:00:98"),
    "MTU": ("ip link set up0 mtu 1400", "has MTU 1400, not 1450"),
    "master": ("ip link set up0 nomaster", "is no port of br0"),
    "another master": ("ip link add br9 type bridge && ip link set up0 master br9", "is no port of br0"),
    "down": ("ip link set up0 down", "is down"),
    "queue": ("ip link set up0 txqueuelen 77", "has a queue of 77"),
    "alias": ("ip link set up0 alias mine", "has alias mine"),
    "name": ("ip link property del dev up0 altname wan-port", 'has lost its name "wan-port"'),
    "address": ("ip addr del 192.0.2.9/24 dev up0", "has lost address 192.0.2.9/24"),
}


def uplink(bed: Bed) -> None:
    """The node's uplink: a port of a bridge, with an address and another name."""
    bed.veth("up0", "peer0", mtu=1450, up=True)
    bed.run("ip", "link", "add", "br0", "type", "bridge")
    bed.run("ip", "link", "set", "br0", "up", "address", "02:00:00:00:00:01")
    bed.run("ip", "link", "set", "peer0", "up")
    bed.run("ip", "link", "set", "up0", "master", "br0")
    bed.run("ip", "link", "property", "add", "dev", "up0", "altname", "wan-port")
    bed.run("ip", "addr", "add", "192.0.2.9/24", "dev", "up0")
    bed.run("ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.1", "dev", "up0")


def shared(kind: str = "porter", share: str = "s1", **facts: Any) -> tuple[Plan, ...]:
    return (plan(step("port", kind, "net1", device=device("up0", share_id=share, **facts))),)


@pytest.fixture
def porter(bed: Bed) -> Recorder:
    """A plugin that plugs a veth in, as one that shares an uplink does."""
    uplink(bed)
    plugin = recorder(bed, "porter")
    plugin.does("ADD", f"{PORT} || exit 1; {RESULT}")
    plugin.does("DEL", UNPORT)
    return plugin


def failed(bed: Bed) -> FailedAttachReport:
    with pytest.raises(AttachError) as caught:
        attach(shared(), bed.container, bed.pod.path, bed.settings)
    return caught.value.report


def node(bed: Bed) -> Any:
    """The node's links, addresses and routes, without a plugin's additions."""
    state = until(partial(_read, bed), "a namespace that dies to take its links along")
    state["links"].pop("br9", None)
    return state


def _read(bed: Bed) -> Any:
    """The node's state; None if a link goes just now."""
    with suppress(subprocess.CalledProcessError):
        return bed.state()["host"]


def taints(bed: Bed) -> list[str]:
    return [changed.text for changed in shares.changed_devices(bed.settings.state)]


def undone(bed: Bed) -> DetachReport:
    return detach(bed.container.sandbox, bed.settings)


def test_a_plugin_that_leaves_the_device_unchanged_causes_no_restore_note_or_taint(bed: Bed, porter: Recorder) -> None:
    before = bed.state()
    attach(shared(), bed.container, bed.pod.path, bed.settings)
    report = undone(bed)
    assert (report.is_clean, report.restored, report.notes, taints(bed)) == (True, (), (), [])
    assert differences(before, bed.state()) == []


@pytest.mark.parametrize("how", CHANGES)
def test_a_plugin_that_changes_the_device_on_add_is_undone_and_the_device_tainted(
    bed: Bed, porter: Recorder, how: str
) -> None:
    script, text = CHANGES[how]
    before = node(bed)
    porter.does("ADD", f"{script} || exit 1; {RESULT}")
    report = failed(bed)
    (failure,) = report.failures
    assert failure.message.startswith('plugin "porter" changed shared device "up0": ')
    assert text in failure.message
    assert report.is_clean, str(report)
    assert any(text in restored for step in report.undone for restored in step.restored)
    assert differences(before, node(bed)) == []
    assert [text in taint for taint in taints(bed)] == [True]
    assert not undone(bed).found


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("then", ["", "exit 1", "kill -KILL $$"])
def test_a_plugin_that_changes_the_device_on_del_is_undone_too(bed: Bed, porter: Recorder, how: str, then: str) -> None:
    script, text = CHANGES[how]
    before = node(bed)
    attach(shared(), bed.container, bed.pod.path, bed.settings)
    porter.does("DEL", f"{UNPORT}; {script}; {then or 'true'}")
    report = undone(bed)
    assert report.is_clean == (not then)
    assert any(text in restored for restored in report.restored)
    assert differences(before, node(bed)) == []
    assert [text in taint for taint in taints(bed)] == [True]
    porter.does("DEL", UNPORT)
    assert not undone(bed).restored


def test_the_taint_goes_with_the_plugin_that_earned_it(bed: Bed, porter: Recorder) -> None:
    porter.does("ADD", f"{CHANGES['MTU'][0]}; {RESULT}")
    failed(bed)
    assert len(taints(bed)) == 1
    better = porter.path.with_name("better")
    better.write_bytes(porter.path.read_bytes() + b"# mended\n")
    better.chmod(0o755)
    better.replace(porter.path)
    assert taints(bed) == []


def test_a_plugin_is_not_called_again_on_a_device_that_it_has_changed(bed: Bed, porter: Recorder) -> None:
    """The runtime tries every few seconds; each try would take the network from all pods that share the device."""
    porter.does("ADD", f"{CHANGES['MTU'][0]}; {RESULT}")
    failed(bed)
    for _ in range(2):
        with pytest.raises(TemporaryError, match=r"the plugin is not called on the device for (600|59.) s"):
            attach(shared(), bed.container, bed.pod.path, bed.settings)
    assert len(porter.calls("ADD")) == 1
    other = recorder(bed, "other")
    attach(shared("other"), bed.container, bed.pod.path, bed.settings)
    assert len(other.calls("ADD")) == 1


def test_changes_by_others_to_a_shared_device_do_not_fail_the_pod(bed: Bed, porter: Recorder) -> None:
    bed.run("ip", "link", "set", "br0", "down")
    others = "ip link set br0 up promisc on; ip route del 198.51.100.0/24"
    porter.does("ADD", f'{others}; ip -n {POD} link add "$CNI_IFNAME" type bridge || exit 1; {RESULT}')
    plans = (
        plan(step("port", "porter", "net1", device=device("up0", share_id="s1"))),
        plan(step("bridge", "porter", "net2", device=device("br0", share_id="s1")), topology="u"),
    )
    report = attach(plans, bed.container, bed.pod.path, bed.settings)
    notes = [note for step in report.steps for note in step.notes]
    assert 'netdev "up0" has lost its route to 198.51.100.0/24' in notes
    assert taints(bed) == []
    assert undone(bed).is_clean
    assert bed.link("br0")["flags"].count("UP") == 1


def test_an_administrators_changes_between_add_and_del_are_kept(bed: Bed, porter: Recorder) -> None:
    attach(shared(), bed.container, bed.pod.path, bed.settings)
    bed.run("ip", "link", "set", "up0", "mtu", "1420", "nomaster")
    before = node(bed)
    porter.does("DEL", f"{UNPORT}; ip link set up0 mtu 1300; exit 1")
    assert any("MTU 1300, not 1420" in text for text in undone(bed).restored)
    assert differences(before, node(bed)) == []
    bed.run("ip", "link", "set", "up0", "mtu", "1410")
    porter.does("DEL", UNPORT)
    report = undone(bed)
    assert (report.is_clean, report.restored, bed.link("up0")["mtu"]) == (True, (), 1410)


def test_a_device_that_is_gone_before_del_is_not_the_plugins_doing(bed: Bed, porter: Recorder) -> None:
    attach(shared(), bed.container, bed.pod.path, bed.settings)
    bed.run("ip", "link", "del", "up0")
    assert undone(bed).is_clean
    assert porter.calls("DEL")
    assert taints(bed) == []


def test_after_an_add_that_failed_an_administrator_s_change_stays_too(bed: Bed, porter: Recorder) -> None:
    porter.fails("ADD", code=100, message="not now")
    porter.fails("DEL", message="not now either")
    with pytest.raises(AttachError):
        attach(shared(), bed.container, bed.pod.path, bed.settings)
    bed.run("ip", "link", "set", "up0", "mtu", "1410")
    porter.does("DEL", UNPORT)
    report = undone(bed)
    assert (report.is_clean, report.restored, bed.link("up0")["mtu"], taints(bed)) == (True, (), 1410, [])


def test_a_device_that_is_away_is_waited_for(bed: Bed, porter: Recorder) -> None:
    bed.run("ip", "link", "set", "up0", "name", "elsewhere")
    with pytest.raises(TemporaryError, match='shared device "up0" \\("up0"\\) is not on the host'):
        attach(shared(), bed.container, bed.pod.path, bed.settings)
    assert not porter.calls("ADD")


def test_a_call_that_was_cut_off_counts_from_its_beginning(bed: Bed, porter: Recorder) -> None:
    """As after a crash of netdra: the plugin has acted, and nothing is written down but that it began."""
    before = node(bed)
    attach(shared(), bed.container, bed.pod.path, bed.settings)
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"done"' not in line and b'"complete"' not in line))
    for how in ("MTU", "MAC", "moved"):
        bed.run("sh", "-c", CHANGES[how][0].replace(POD, Path(bed.pod.path).name))
    assert len(undone(bed).restored) == 1
    assert differences(before, node(bed)) == []


@contextmanager
def pods(bed: Bed, number: int) -> Iterator[list[tuple[PodIdentity, str]]]:
    name = f"{Path(bed.pod.path).name}-{uuid.uuid4().hex[:4]}"
    made = [Namespace.create(f"{name}-{one}") for one in range(number)]
    try:
        yield [(PodIdentity(sandbox=f"{name}-{one}"), space.path) for one, space in enumerate(made)]
    finally:
        for one, space in enumerate(made):
            space.close()
            netns.delete(f"{name}-{one}")


def test_pods_that_attach_beside_one_whose_plugin_takes_the_device_end_with_it_as_it_was(
    bed: Bed, porter: Recorder
) -> None:
    """The state in which they find it is not taken for the true one while another plugin has it in its hands."""
    before = node(bed)
    with pods(bed, 6) as made:
        evil = made[2][0].sandbox
        bad = f'[ "$CNI_CONTAINERID" != {evil} ] || {{ {CHANGES["MTU"][0]}; {CHANGES["MAC"][0]}; sleep 0.3; }}'
        porter.does("ADD", f"sleep 0.1; {bad}; {PORT} || exit 1; {RESULT}")

        def live(one: tuple[PodIdentity, str]) -> bool:
            pod, path = one
            with suppress(AttachError):
                attach(shared(share=pod.sandbox), pod, path, bed.settings)
                return True
            return False

        with ThreadPoolExecutor(len(made)) as threads:
            done = list(threads.map(live, made))
        assert not all(done)
        for pod, _ in made:
            assert detach(pod.sandbox, bed.settings).is_undone
    assert differences(before["links"]["up0"], node(bed)["links"]["up0"]) == []
    assert len(taints(bed)) == 1


# What a plugin may do to a shared device, what it says of it, and what it does on DEL.
ENDS = {"well": RESULT, "empty": "echo '{}'", "badly": "exit 1", "killed": "kill -KILL $$", "nonsense": "echo ["}
BACK: dict[str, str] = {
    "nothing": "true",
    "half": f"ip -n {POD} link set up0 name half0; ip -n {POD} link set net1 netns $$; exit 1",
    "home": f"ip -n {POD} link set net1 netns $$; ip -n {POD} link set up0 netns $$; true",
    "refuses": "exit 1",
    "dies": "kill -KILL $$",
}


class Behaviour(msgspec.Struct, frozen=True):
    """A plugin's actions on one call: the ways in which it changes the device, and how it ends."""

    changes: list[str]
    ends: str

    def script(self, ends: Mapping[str, str], work: str) -> str:
        return "; ".join([*(CHANGES[how][0] for how in self.changes), work, ends[self.ends]])


def behaviours(ends: Mapping[str, str]) -> st.SearchStrategy[Behaviour]:
    ways = st.lists(st.sampled_from(sorted(CHANGES)), max_size=3, unique=True)
    return st.builds(Behaviour, ways, st.sampled_from(sorted(ends)))


def test_after_any_behaviour_of_a_plugin_the_node_is_as_before_or_the_difference_is_reported(bed: Bed) -> None:
    """The kernel is compared, not the report: where no difference is reported, none exists."""
    plugin = recorder(bed, "porter")

    @example(Behaviour(["moved and renamed"], "badly"), [Behaviour([], "home")], "there", "s1")
    @example(Behaviour(["renamed", "MAC"], "well"), [Behaviour([], "nothing")], "there", "")
    @example(Behaviour([], "well"), [Behaviour(["moved"], "refuses"), Behaviour(["MTU"], "dies")], "gone", "s1")
    @example(Behaviour([], "badly"), [Behaviour(["another master", "moved and renamed", "down"], "half")], "there", "")
    @example(Behaviour(["moved and renamed"], "killed"), [Behaviour(["moved and renamed"], "half")], "gone", "s1")
    @settings(max_examples=25, phases=(Phase.explicit, Phase.generate))
    @given(
        behaviours(ENDS),
        st.lists(behaviours(BACK), min_size=1, max_size=2),
        st.sampled_from(["there", "gone"]),
        st.sampled_from(["s1", ""]),
    )
    def holds(on_add: Behaviour, on_del: list[Behaviour], where: str, share: str) -> None:
        uplink(bed)
        try:
            before, told = node(bed), []
            plugin.does("ADD", on_add.script(ENDS, f"{PORT} || exit 1"))
            plugin.does("DEL", on_del[0].script(BACK, UNPORT))
            name = f"{Path(bed.pod.path).name}-{uuid.uuid4().hex[:4]}"
            with Namespace.create(name) as space:
                try:
                    attach(shared(share=share), PodIdentity(sandbox=name), space.path, bed.settings)
                except AttachError as problem:
                    told.append(str(problem.report))
                if where == "gone":
                    netns.delete(name)
            for script in [*(one.script(BACK, UNPORT) for one in on_del), "true"]:
                plugin.does("DEL", script)
                report = detach(name, bed.settings)
                told.append(str(report))
            if where == "there":
                netns.delete(name)
            text = "\n".join(told)
            changed = differences(before, node(bed))
            reported = [line for line in text.splitlines() if line.startswith(("note: ", "not undone: "))]
            assert not changed or any("up0" in line for line in reported), (changed, text)
            assert report.is_undone or report.is_stranded, text
        finally:
            clean_up(bed)

    holds()


def clean_up(bed: Bed) -> None:
    """Bring the node back to nothing, for the next example."""
    for link in bed.ip("link"):
        bed.run("sh", "-c", f"ip link del {link['ifname']} 2>/dev/null; true")
    until(lambda: [link["ifname"] for link in bed.ip("link")] == ["lo"], "all links to be gone")
    shutil.rmtree(bed.settings.state, ignore_errors=True)


def lifetimes(bed: Bed) -> dict[str, tuple[int, int]]:
    """Seconds that each address of the uplink is preferred and valid."""
    (found,) = bed.ip("addr", "show", "dev", "up0")
    return {
        each["local"]: (each["preferred_life_time"], each["valid_life_time"])
        for each in found["addr_info"]
        if each["scope"] == "global"
    }


def test_an_address_with_a_lifetime_is_restored_with_its_remaining_lifetime(bed: Bed, porter: Recorder) -> None:
    for text, left, used in (("203.0.113.7/24", 900, 600), ("2001:db8::7/64", 800, 0), ("203.0.113.8/24", 2, 2)):
        bed.run("ip", "addr", "add", text, "dev", "up0", "valid_lft", str(left), "preferred_lft", str(used))
    before = lifetimes(bed)
    porter.does("ADD", f"{CHANGES['moved'][0]} && sleep 3; {RESULT}")
    report = failed(bed)
    assert report.is_clean, str(report)
    after = lifetimes(bed)
    assert after.keys() == before.keys() - {"203.0.113.8"}
    assert after.pop("192.0.2.9") == (2**32 - 1, 2**32 - 1)
    for text, (preferred, valid) in after.items():
        assert before[text][1] - 60 < valid <= before[text][1] - 3
        assert preferred == 0 if text == "2001:db8::7" else 540 < preferred <= 597
