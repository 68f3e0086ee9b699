"""A device of the node is afterwards as it was before, independent of its plugin's actions and reports."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netdra.chain import checkpoint, holders
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.report import AttachError, DetachReport
from netdra.kernel import netns
from netdra.kernel.netns import Namespace
from netdra.model.plan import Plan
from testbed.recorder import Recorder
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, device, differences, recorder, stable_addresses
from tests.plans import attach, plan, step

POD = '"$(basename "$CNI_NETNS")"'
TAKE = f'ip link set eth7 netns {POD} && ip -n {POD} link set eth7 name "$CNI_IFNAME" || exit 1'
GIVE = f'ip -n {POD} link set "$CNI_IFNAME" name eth7 && ip -n {POD} link set eth7 netns $$ || exit 1'
RESULT = """echo '{"interfaces": [{"name": "net1", "sandbox": "'"$CNI_NETNS"'"}]}'"""


@pytest.fixture
def mover(bed: Bed) -> Recorder:
    """A plugin that takes eth7 into the pod, changes all of it, and does nothing on DEL but report that all is well."""
    bed.veth("eth7", "peer7", mtu=1450, up=True)
    bed.run("ip", "addr", "add", "192.0.2.7/24", "dev", "eth7")
    bed.run("ip", "link", "property", "add", "dev", "eth7", "altname", "port-seven")
    plugin = recorder(bed, "mover")
    spoil = f'ip -n {POD} link set "$CNI_IFNAME" mtu 1300 address 02:00:00:00:00:99 up || exit 1'
    plugin.does("ADD", f"ip link property del dev eth7 altname port-seven; {TAKE}; {spoil}; {RESULT}")
    return plugin


def mine(**facts: Any) -> tuple[Plan, ...]:
    return (plan(step("nic", "mover", "net1", device=device("eth7", **facts))),)


def undone(bed: Bed) -> DetachReport:
    return detach(bed.container.sandbox, bed.settings)


def test_a_device_that_a_plugin_leaves_in_the_pod_is_moved_back_and_restored(bed: Bed, mover: Recorder) -> None:
    before = bed.state()
    attach(mine(), bed.container, bed.pod.path, bed.settings)
    assert bed.link("net1", inside=True)["mtu"] == 1300
    report = undone(bed)
    assert report.is_clean
    assert report.restored == (
        'NetworkTopology "t", step "nic" (mover binary): netdev "eth7" is still in the pod, as "net1"',
    )
    assert differences(before, bed.state()) == []
    assert not undone(bed).found


def test_a_device_that_a_plugin_returns_changed_is_restored_and_reported(bed: Bed, mover: Recorder) -> None:
    before = bed.state()
    attach(mine(), bed.container, bed.pod.path, bed.settings)
    mover.does("DEL", GIVE)
    report = undone(bed)
    assert differences(before, bed.state()) == []
    assert [text.partition("binary): ")[2] for text in report.restored] == [
        f'netdev "eth7" has MAC 02:00:00:00:00:99, not {before["host"]["links"]["eth7"]["mac"]}',
        'netdev "eth7" has MTU 1300, not 1450',
        'netdev "eth7" is down',
        'netdev "eth7" has lost its name "port-seven"',
        'netdev "eth7" has lost address 192.0.2.7/24',
    ]


def test_a_name_that_the_pod_gave_a_device_does_not_come_home_with_it(bed: Bed, mover: Recorder) -> None:
    before = bed.state()
    attach(mine(), bed.container, bed.pod.path, bed.settings)
    bed.run("ip", "link", "property", "add", "dev", "net1", "altname", "pods-own", inside=True)
    mover.does("DEL", GIVE)
    assert any(text.endswith('has another name "pods-own"') for text in undone(bed).restored)
    assert differences(before, bed.state()) == []


def test_a_plugin_that_does_as_it_should_is_given_nothing_to_restore(bed: Bed) -> None:
    bed.veth("eth7", "peer7", mtu=1450)
    fake = recorder(bed, "fake")
    attach((plan(step("nic", "fake", "net1", device=device("eth7"))),), bed.container, bed.pod.path, bed.settings)
    report = undone(bed)
    assert (report.restored, report.notes, len(fake.calls("DEL"))) == ((), (), 1)


def test_the_stock_host_device_plugin_loses_nothing_of_a_device(bed: Bed) -> None:
    bed.veth("eth7", "peer7", mtu=1450, up=True)
    bed.veth("br", "brpeer")
    bed.run("ip", "addr", "add", "192.0.2.7/24", "dev", "eth7")
    before = bed.state()
    given = device("eth7", allow_host_use=True)
    steps = step("nic", "host-device", "net1", {"device": "eth7"}, device=given, binary=True)
    tune = step("tune", "tuning", "net1", {"mtu": 1300, "mac": "02:00:00:00:00:77"}, after=["nic"], binary=True)
    attach((plan(steps, tune),), bed.container, bed.pod.path, bed.settings)
    assert undone(bed).is_clean
    assert differences(before, bed.state()) == []


@pytest.mark.parametrize(
    "manner", ["exit 1", "kill -KILL $$", "sleep 1000", 'echo \'{"code": 11, "msg": "later"}\'; exit 1']
)
def test_a_device_is_free_though_its_plugin_fails_on_del(bed: Bed, mover: Recorder, manner: str) -> None:
    before = bed.state()
    attach(mine(), bed.container, bed.pod.path, bed.settings)
    mover.does("DEL", manner)
    report = detach(bed.container.sandbox, msgspec.structs.replace(bed.settings, step_timeout=0.5))
    (failed,) = report.undone
    assert (failed.outcome, failed.stranded, len(failed.restored)) == ("failed", False, 1)
    assert differences(before["host"], bed.state()["host"]) == []
    mover.succeeds("DEL")
    assert undone(bed).is_clean
    assert differences(before, bed.state()) == []


def test_a_removed_plugin_does_not_keep_its_device(bed: Bed, mover: Recorder) -> None:
    before = bed.state()["host"]
    attach(mine(), bed.container, bed.pod.path, bed.settings)
    mover.path.unlink()
    assert not undone(bed).is_stranded
    assert differences(before, bed.state()["host"]) == []


def test_when_add_fails_midway_the_device_is_restored(bed: Bed, mover: Recorder) -> None:
    before = bed.state()
    mover.does("ADD", f"ip link property del dev eth7 altname port-seven; {TAKE}; kill -KILL $$")
    with pytest.raises(AttachError) as caught:
        attach(mine(), bed.container, bed.pod.path, bed.settings)
    assert caught.value.report.is_clean
    assert "restored: " in str(caught.value)
    assert differences(before, bed.state()) == []


def test_del_gets_the_path_of_a_missing_namespace_first_and_is_retried_without_it(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    attach((plan(step("a", "fake", "net1")),), bed.container, bed.pod.path, bed.settings)
    netns.delete(Path(bed.pod.path).name)
    bed.pod.close()
    fake.does("DEL", '[ -z "$CNI_NETNS" ]')
    assert undone(bed).is_clean
    assert [each.environment["CNI_NETNS"] for each in fake.calls("DEL")] == [bed.pod.path, ""]


def test_a_path_that_leads_to_another_namespace_is_not_passed_to_del(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    attach((plan(step("a", "fake", "net1")),), bed.container, bed.pod.path, bed.settings)
    name = Path(bed.pod.path).name
    netns.delete(name)
    bed.pod.close()
    with Namespace.create(name):
        assert undone(bed).is_clean
    assert [each.environment["CNI_NETNS"] for each in fake.calls("DEL")] == [""]


def test_a_namespace_that_the_driver_holds_is_where_the_device_is_found(bed: Bed, mover: Recorder) -> None:
    mac = bed.link("eth7")["address"]
    attach(mine(), bed.container, bed.pod.path, bed.settings)
    netns.delete(Path(bed.pod.path).name)
    report = detach(bed.container.sandbox, bed.settings, held_netns=f"/proc/self/fd/{bed.pod.fd}")
    assert report.is_clean
    assert report.namespace_gone
    assert (bed.link("eth7")["address"], bed.link("eth7")["mtu"]) == (mac, 1450)
    assert bed.addresses("eth7") == {"192.0.2.7/24"}
    (call,) = mover.calls("DEL")
    assert call.environment["CNI_NETNS"].startswith("/proc/self/fd/")


def test_a_device_that_its_plugin_brought_out_of_reach_is_stranded_until_it_is_back(bed: Bed, mover: Recorder) -> None:
    """A device with a bus address continues somewhere; here a veth stands for one in the checkpoint."""
    attach(mine(), bed.container, bed.pod.path, bed.settings)
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    physical = path.read_bytes().replace(b'"device":{"kind":"veth"', b'"device":{"permanentMac":"02:00:00:00:00:01"')
    path.write_bytes(physical)
    before = msgspec.structs.replace(bed.settings, budget=3.0)
    report = detach(bed.container.sandbox, before, give_up=True, keep_stranded=True)
    assert report.is_stranded
    assert "neither in the pod nor on the host" in report.undone[0].message
    assert path.exists()
    assert detach(bed.container.sandbox, before, give_up=True).problems[0].endswith(".bad-0")


def second(bed: Bed, uid: str) -> PodIdentity:
    return PodIdentity(sandbox=f"{bed.container.sandbox}-2", name="p", namespace="default", uid=uid)


@pytest.fixture
def other_pod(bed: Bed) -> Iterator[Namespace]:
    name = f"{Path(bed.pod.path).name}-2"
    with Namespace.create(name) as other:
        yield other
        netns.delete(name)


def test_while_a_sandbox_has_a_device_the_next_one_of_its_pod_waits(
    bed: Bed, mover: Recorder, other_pod: Namespace
) -> None:
    attach(mine(), bed.container, bed.pod.path, bed.settings)
    mover.fails("DEL", message="not now")
    undone(bed)
    with pytest.raises(AttachError, match="is still used by sandbox"):
        attach(mine(), second(bed, bed.container.uid), other_pod.path, bed.settings)
    mover.succeeds("DEL")
    assert undone(bed).is_clean
    mover.succeeds("DEL")
    attach(mine(), second(bed, bed.container.uid), other_pod.path, bed.settings)
    assert detach(second(bed, "").sandbox, bed.settings).is_clean


def test_pods_that_share_a_claim_have_its_device_together_where_the_plugin_leaves_it(
    bed: Bed, other_pod: Namespace
) -> None:
    bed.veth("eth7", "peer7")
    fake = recorder(bed, "fake")
    plans = (plan(step("nic", "fake", "net1", device=device("eth7"))),)
    attach(plans, bed.container, bed.pod.path, bed.settings)
    attach(plans, second(bed, "another"), other_pod.path, bed.settings)
    bed.run("ip", "link", "set", "eth7", "mtu", "1300")
    assert "has it too" in undone(bed).notes[0]
    assert bed.link("eth7")["mtu"] == 1300
    assert detach(second(bed, "").sandbox, bed.settings).is_clean
    assert bed.link("eth7")["mtu"] == 1500
    assert not list((bed.settings.state / "devices").iterdir())
    assert len(fake.calls("DEL")) == 2


def test_administrator_changes_to_a_shared_device_in_use_are_kept(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    recorder(bed, "fake")
    plans = (plan(step("nic", "fake", "net1", device=device("eth7", share_id="s1"))),)
    attach(plans, bed.container, bed.pod.path, bed.settings)
    bed.run("ip", "link", "set", "eth7", "mtu", "1300")
    assert undone(bed).restored == ()
    assert bed.link("eth7")["mtu"] == 1300


def test_a_bridge_may_keep_the_changes_caused_by_its_ports(bed: Bed) -> None:
    bed.run("ip", "link", "add", "br0", "type", "bridge")
    bed.veth("eth7", "peer7", mtu=1400)
    recorder(bed, "fake").does("DEL", "ip link set eth7 master br0")
    attach((plan(step("nic", "fake", "net1", device=device("br0"))),), bed.container, bed.pod.path, bed.settings)
    report = undone(bed)
    assert report.is_clean
    assert report.restored == ()


def test_one_of_its_own_kind_in_the_pod_is_not_taken_for_the_device(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    fake = recorder(bed, "fake")
    fake.does("ADD", f"ip -n {POD} link add net1 type veth peer name far1; {RESULT}")
    before = bed.state()["host"]
    attach((plan(step("nic", "fake", "net1", device=device("eth7"))),), bed.container, bed.pod.path, bed.settings)
    assert undone(bed).is_clean
    assert differences(before, bed.state()["host"]) == []
    assert bed.link("net1", inside=True)["linkinfo"]["info_kind"] == "veth"


def refusing(bed: Bed, **settings: Any) -> Recorder:
    plugin = recorder(bed, "strict")
    for verb in ("ADD", "DEL"):
        plugin.fails(verb, **{"code": 999, "message": "failed to load netconf: mtu is no number", **settings})
    return plugin


def failed(bed: Bed, *steps: Any) -> AttachError:
    with pytest.raises(AttachError) as caught:
        attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)
    return caught.value


def test_a_step_whose_config_its_plugin_rejects_is_undone_when_its_device_is_unchanged(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    refusing(bed)
    report = failed(bed, step("nic", "strict", "net1", device=device("eth7"))).report
    assert report.is_clean
    assert "its plugin rejects its config on DEL, too; its device is unchanged" in report.undone[0].notes[0]
    assert not undone(bed).found


@pytest.mark.parametrize("codes", [(999, 999), (6, 7)])
def test_a_step_without_a_device_and_with_a_rejected_config_is_marked_refused_and_abandonable(
    bed: Bed, codes: tuple[int, int]
) -> None:
    plugin = refusing(bed, code=codes[0])
    plugin.fails("DEL", code=codes[1], message="failed to load netconf: mtu is no number")
    report = failed(bed, step("a", "strict", "net1")).report
    assert [(each.outcome, each.refused) for each in report.undone] == [("failed", True)]
    left = detach(bed.container.sandbox, bed.settings, give_up=True, keep_stranded=True)
    assert left.is_refused
    assert left.problems[0].endswith(".given-up-0")


@pytest.mark.parametrize("told", [{"code": 100, "message": "the database is away"}, {"code": 999, "message": "busy"}])
def test_a_plugin_that_fails_otherwise_on_del_may_have_done_something(bed: Bed, told: Mapping[str, Any]) -> None:
    bed.veth("eth7", "peer7")
    refusing(bed).fails("DEL", **told)
    report = failed(bed, step("nic", "strict", "net1", device=device("eth7"))).report
    assert [(each.outcome, each.refused) for each in report.undone] == [("failed", False)]


def test_the_device_of_a_step_that_was_not_done_is_nobodys(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    refusing(bed)
    failed(bed, step("nic", "strict", "net1", device=device("eth7")))
    assert holders.holder(bed.settings.state, "veth:eth7") == ""


# What a plugin may do with its device, and what of that it takes back: nothing, all, the half, or it falls on the way.
TAKES = {
    "leaves it": "true",
    "changes it": "ip link set eth7 mtu 1300 address 02:00:00:00:00:98 down",
    "takes it": f'ip link set eth7 netns {POD} && ip -n {POD} link set eth7 name "$CNI_IFNAME"',
    "spoils it": f"ip link set eth7 address 02:00:00:00:00:97 netns {POD} && ip -n {POD} link set eth7 "
    'name "$CNI_IFNAME" mtu 1280 up',
    "hides it": f"ip link set eth7 netns {POD} && ip -n {POD} link set eth7 name away",
}
ENDS = {"well": RESULT, "badly": "exit 1", "killed": "kill -KILL $$", "in nonsense": "echo ["}
GIVES = {
    "nothing": "true",
    "it": f'ip -n {POD} link set "$CNI_IFNAME" name eth7 && ip -n {POD} link set eth7 netns $$; true',
    "half": f'ip -n {POD} link set "$CNI_IFNAME" name eth7; exit 1',
    "refuses": "exit 1",
    "dies": "kill -KILL $$",
}


def test_after_any_attach_fault_and_detach_a_device_is_restored_or_reported_lost(bed: Bed) -> None:
    """A virtual device may be lost with a namespace that is not held; that is reported. Nothing else may be lost."""
    plugin = recorder(bed, "mover")

    @example("spoils it", "killed", ("nothing", "dies"), "there")
    @example("spoils it", "well", ("half", "refuses"), "held")
    @example("hides it", "well", ("nothing", "nothing"), "away")
    @settings(max_examples=25)
    @given(
        st.sampled_from(sorted(TAKES)),
        st.sampled_from(sorted(ENDS)),
        st.tuples(st.sampled_from(sorted(GIVES)), st.sampled_from(sorted(GIVES))),
        st.sampled_from(["there", "held", "away"]),
    )
    def holds(takes: str, ends: str, gives: tuple[str, str], where: str) -> None:
        bed.veth("eth7", "peer7", mtu=1450, up=True)
        bed.run("ip", "addr", "add", "192.0.2.7/24", "dev", "eth7")
        before = on_the_node(bed)
        plugin.does("ADD", f"{TAKES[takes]} || exit 1; {ENDS[ends]}")
        reports = lived(bed, plugin, [GIVES[each] for each in gives], where)
        assert reports[-1].is_clean
        assert not any(report.is_stranded for report in reports)
        lost = [note for report in reports for note in report.notes if "is gone" in note]
        assert (on_the_node(bed) == before) != bool(lost)
        assert where == "away" or not lost
        assert not list(bed.settings.state.glob("*.jsonl*"))
        # A veth whose end died with its namespace goes a moment later.
        if not lost:
            bed.run("ip", "link", "del", "eth7")
        until(lambda: [each["ifname"] for each in bed.ip("link")] == ["lo"], "the pair is gone")

    holds()


def on_the_node(bed: Bed) -> dict[str, Any]:
    """The node's links as they are, addresses included: one answer, for a namespace may be dying beside."""
    return {
        each["ifname"]: (each.get("address"), each["mtu"], "UP" in each["flags"], stable_addresses(each))
        for each in bed.ip("addr")
    }


def lived(bed: Bed, plugin: Recorder, gives: Sequence[str], where: str) -> list[DetachReport]:
    """A pod's life: attached, then detached once with each of these scripts as the plugin's DEL, and once more."""
    name = f"{Path(bed.pod.path).name}-{uuid.uuid4().hex[:4]}"
    pod = PodIdentity(sandbox=name)
    with Namespace.create(name) as space:
        with suppress(AttachError):
            attach(mine(), pod, space.path, bed.settings)
        if where != "there":
            netns.delete(name)
        if where == "away":
            space.close()
        held = f"/proc/self/fd/{space.fd}" if where == "held" else ""
        reports = []
        for script in (*gives, "true"):
            plugin.does("DEL", script)
            reports.append(detach(pod.sandbox, bed.settings, held_netns=held))
        if where == "there":
            netns.delete(name)
    return reports
