"""Undo when the world has moved on: the namespace is dead, its path is another's, the machine was started again."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain import checkpoint, holders
from netdra.chain.check import check
from netdra.chain.checkpoint import Header, PodIdentity
from netdra.chain.collect import collect
from netdra.chain.detach import detach
from netdra.chain.report import AttachError, DetachReport
from netdra.kernel import link, netns
from netdra.kernel.netns import Namespace
from netdra.model.errors import TemporaryError
from netdra.model.plan import Plan
from netdra.ops.boot import boot_id
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step


def prepared(bed: Bed) -> tuple[Plan, ...]:
    bed.veth("eth7", "peer7", mtu=1400)
    folder = str(bed.settings.state.parent / "ipam")
    ipam = {"type": "host-local", "subnet": "10.6.0.0/24", "dataDir": folder}
    return (
        plan(
            step("dev", "host-device", "net1", {"ipam": ipam}, device=device("eth7")),
            step("tune", "tuning", "net1", {"mtu": 1300, "addresses": ["10.1.0.5/24"]}, after=["dev"]),
            step("fake", "fake", "net1", after=["tune"]),
        ),
    )


def leases(bed: Bed) -> list[str]:
    return sorted(str(path) for path in (bed.settings.state.parent / "ipam").glob("*/10.*"))


def test_with_the_namespace_gone_leases_and_plugins_are_released(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    plans = prepared(bed)
    attach(plans, bed.container, bed.pod.path, bed.settings)
    assert len(leases(bed)) == 1
    netns.delete(Path(bed.pod.path).name)
    bed.pod.close()
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_clean
    assert report.namespace_gone
    assert leases(bed) == []
    (call,) = fake.calls("DEL")
    assert call.environment["CNI_NETNS"] == bed.pod.path
    # A virtual device dies with its namespace; that is told, and is no failure.
    assert any("gone with the namespace" in note for each in report.undone for note in each.notes)
    assert not detach(bed.container.sandbox, bed.settings).found


def without_its_namespace(bed: Bed, config: Mapping[str, Any], kind: str) -> DetachReport:
    recorder(bed, kind).fails("DEL", message="never")
    attach((plan(step("a", kind, "net1", config, binary=True)),), bed.container, bed.pod.path, bed.settings)
    netns.delete(Path(bed.pod.path).name)
    bed.pod.close()
    return detach(bed.container.sandbox, bed.settings)


IN_THE_POD: dict[str, dict[str, Any]] = {
    "tap": {},
    "rdma": {"deviceID": "0000:41:10.4"},
    "bond": {"mode": "active-backup", "miimon": "100", "links": [{"name": "net7"}, {"name": "net8"}]},
}


@pytest.mark.parametrize("kind", IN_THE_POD)
def test_a_plugin_whose_del_fails_has_nothing_left_to_undo_if_all_was_in_the_namespace(bed: Bed, kind: str) -> None:
    report = without_its_namespace(bed, IN_THE_POD[kind], kind)
    assert report.is_clean
    assert "its DEL failed, but everything that it created was removed with the namespace" in report.undone[0].notes[0]
    assert not detach(bed.container.sandbox, bed.settings).found


def test_the_lease_of_a_plugin_that_cannot_be_undone_without_its_namespace_is_released_without_it(bed: Bed) -> None:
    """As `vlan`, whose DEL asks its master's MTU in the namespace before it releases the lease."""
    ipam = {"type": "host-local", "subnet": "10.6.0.0/24", "dataDir": str(bed.settings.state.parent / "ipam")}
    given = {"cniVersion": "1.0.0", "name": "t-a", "type": "tap", "ipam": ipam}
    delegate = f"""printf %s '{json.dumps(given)}' | {bed.plugins}/host-local"""
    plugin = recorder(bed, "tap")
    inside = 'ip -n "$(basename "$CNI_NETNS")"'
    make = f'{inside} link add "$CNI_IFNAME" type bridge; {inside} addr add 10.6.0.2/24 dev "$CNI_IFNAME"'
    plugin.does("ADD", f"{make}; {delegate}")
    plugin.fails("DEL", message="no namespace")
    attach((plan(step("a", "tap", "net1", {"ipam": ipam})),), bed.container, bed.pod.path, bed.settings)
    assert len(leases(bed)) == 1
    netns.delete(Path(bed.pod.path).name)
    bed.pod.close()
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_clean, str(report)
    assert leases(bed) == []


@pytest.mark.parametrize(
    ("kind", "config"), [("tap", {"ipam": {"type": "lost"}}), ("tap", {"ipMasq": True}), ("other", {})]
)
def test_a_plugin_that_may_have_left_something_on_the_host_is_called_again(
    bed: Bed, kind: str, config: Mapping[str, Any]
) -> None:
    report = without_its_namespace(bed, config, kind)
    assert [each.outcome for each in report.undone] == ["failed"]
    assert detach(bed.container.sandbox, bed.settings).found


def test_abandoning_a_sandbox_moves_the_checkpoint_of_a_failed_undo_aside(bed: Bed) -> None:
    recorder(bed, "fake").fails("DEL", message="never")
    attach((plan(step("a", "fake", "net1")),), bed.container, bed.pod.path, bed.settings)
    report = detach(bed.container.sandbox, bed.settings, give_up=True)
    assert not report.is_clean
    aside = checkpoint.path_of(bed.settings.state, bed.container.sandbox).name + ".bad-0"
    assert report.problems[0].endswith(aside)
    assert (bed.settings.state / aside).exists()
    assert not detach(bed.container.sandbox, bed.settings).found


def test_an_abandoned_sandbox_without_its_namespace_does_not_block_gc(bed: Bed) -> None:
    recorder(bed, "fake").fails("DEL", message="never")
    attach((plan(step("a", "fake", "net1")),), bed.container, bed.pod.path, bed.settings)
    netns.delete(Path(bed.pod.path).name)
    bed.pod.close()
    detach(bed.container.sandbox, bed.settings, give_up=True)
    assert list(bed.settings.state.glob("*.given-up-0"))
    assert collect(bed.settings).is_clean


def test_abandoning_a_sandbox_with_a_successful_undo_leaves_nothing(bed: Bed) -> None:
    recorder(bed, "fake")
    attach((plan(step("a", "fake", "net1")),), bed.container, bed.pod.path, bed.settings)
    assert detach(bed.container.sandbox, bed.settings, give_up=True).is_clean
    assert list(bed.settings.state.iterdir()) == []


def test_a_namespace_that_still_lives_is_found_by_another_path(bed: Bed) -> None:
    recorder(bed, "fake")
    plans = prepared(bed)
    before = bed.link("eth7")["address"]
    attach(plans, bed.container, bed.pod.path, bed.settings)
    netns.delete(Path(bed.pod.path).name)
    with bed.pod.socket() as sock:
        assert link.find(sock, "net1") is not None
    report = detach(bed.container.sandbox, bed.settings, f"/proc/self/fd/{bed.pod.fd}")
    assert not report.namespace_gone
    assert report.is_clean
    assert bed.link("eth7")["address"] == before


def test_without_its_path_a_namespace_is_found_by_a_process_in_it(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    attach(prepared(bed), bed.container, bed.pod.path, bed.settings)
    with subprocess.Popen(("nsenter", f"--net={bed.pod.path}", "sleep", "600")) as child:
        place = f"/proc/{child.pid}/ns/net"
        until(lambda: netns.inode_at(place) == bed.pod.inode, "the process to be inside")
        netns.delete(Path(bed.pod.path).name)
        bed.pod.close()
        try:
            assert check(bed.container.sandbox, bed.settings).is_clean
            bed.run("nsenter", f"--net={place}", "ip", "address", "del", "10.6.0.2/24", "dev", "net1")
            drift = [text for step in check(bed.container.sandbox, bed.settings).steps for text in step.drift]
            assert any("10.6.0.2/24" in text for text in drift)
            report = detach(bed.container.sandbox, bed.settings)
        finally:
            child.kill()
    assert report.is_clean
    assert not report.namespace_gone
    assert leases(bed) == []
    (call,) = fake.calls("DEL")
    assert call.environment["CNI_NETNS"] == place
    assert bed.link("eth7")["mtu"] == 1400


def test_another_namespace_at_the_same_path_is_not_touched(bed: Bed) -> None:
    recorder(bed, "fake")
    plans = prepared(bed)
    attach(plans, bed.container, bed.pod.path, bed.settings)
    name = Path(bed.pod.path).name
    netns.delete(name)
    bed.pod.close()
    with Namespace.create(name) as other:
        bed.run("ip", "-n", name, "link", "add", "net1", "mtu", "1234", "type", "bridge")
        bed.run("ip", "-n", name, "addr", "add", "10.1.0.5/24", "dev", "net1")
        before = bed.link("net1", inside=True)
        assert check(bed.container.sandbox, bed.settings).problems == ("its network namespace no longer exists",)
        report = detach(bed.container.sandbox, bed.settings)
        assert report.is_clean
        assert report.namespace_gone
        assert bed.link("net1", inside=True) == before
        assert bed.addresses("net1", inside=True) == {"10.1.0.5/24"}
        with other.socket() as sock:
            assert netns.cookie(sock) != 0


def test_after_a_reboot_only_persistent_resources_are_released(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    plans = prepared(bed)
    attach(plans, bed.container, bed.pod.path, bed.settings)
    as_of_another_boot(bed)
    bed.veth("eth7", "new7", mtu=1234, mac=bed.link("net1", inside=True)["address"])
    assert check(bed.container.sandbox, bed.settings).problems == (
        "it was attached before the last reboot of the node",
    )
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_clean
    assert leases(bed) == []
    assert fake.calls("DEL")[0].environment["CNI_NETNS"] == ""
    # What the checkpoint says of links was of another kernel: a device of that name now is someone else's.
    assert bed.link("net1", inside=True)["mtu"] == 1300
    assert bed.link("eth7")["mtu"] == 1234


def test_a_checkpoint_with_an_unreadable_entry_is_reported(bed: Bed) -> None:
    recorder(bed, "fake")
    attach(prepared(bed), bed.container, bed.pod.path, bed.settings)
    assert check(bed.container.sandbox, bed.settings).problems == ()
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    path.write_bytes(path.read_bytes() + b"{}\n")
    assert check(bed.container.sandbox, bed.settings).problems == ("its checkpoint is damaged",)


@pytest.mark.parametrize("kind", ["host-device", "fake"])
def test_after_a_restart_of_the_machine_no_sandbox_has_a_device(bed: Bed, kind: str) -> None:
    bed.veth("eth7", "peer7")
    recorder(bed, "fake")
    attach((plan(step("dev", kind, "net1", device=device("eth7"))),), bed.container, bed.pod.path, bed.settings)
    assert list((bed.settings.state / "devices").iterdir())
    as_of_another_boot(bed)
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert not list((bed.settings.state / "devices").iterdir())


@pytest.mark.parametrize("kind", ["host-device", "fake"])
def test_after_a_restart_a_plugin_that_fails_on_del_as_on_add_blocks_nothing(bed: Bed, kind: str) -> None:
    bed.veth("eth7", "peer7")
    plugin = recorder(bed, "fake")
    plugin.fails("ADD", code=100, message="no datastore")
    plugin.fails("DEL", code=100, message="the datastore is away")
    ipam = {"ipam": {"type": "fake"}} if kind == "host-device" else {}
    with pytest.raises(AttachError) as caught:
        attach(
            (plan(step("dev", kind, "net1", ipam, device=device("eth7"))),), bed.container, bed.pod.path, bed.settings
        )
    assert not caught.value.report.is_clean
    as_of_another_boot(bed)
    assert not detach(bed.container.sandbox, bed.settings).is_undone
    plugin.fails("DEL", code=100, message="no datastore")
    report = detach(bed.container.sandbox, bed.settings)
    assert report.is_undone, str(report)
    assert "fails on DEL as on ADD" in report.undone[0].notes[0]


def test_a_journal_that_a_power_failure_cut_still_releases_every_lease(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    plans = prepared(bed)
    attach(plans, bed.container, bed.pod.path, bed.settings)
    path = as_of_another_boot(bed)
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert leases(bed) == []
    assert len(fake.calls("DEL")) == 1


def test_a_damaged_journal_is_undone_as_far_as_possible_and_reported(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    plans = prepared(bed)
    before = bed.state()
    attach(plans, bed.container, bed.pod.path, bed.settings)
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    lines = path.read_bytes().split(b"\n")
    # The entries of the last step are unreadable: it may have run all the same.
    path.write_bytes(b"\n".join(b"\0" * len(line) if b'"0/fake"' in line else line for line in lines))
    report = detach(bed.container.sandbox, bed.settings)
    assert [each.outcome for each in report.undone] == ["undone"] * 3
    assert len(fake.calls("DEL")) == 1
    assert re.search(r"had 2 unreadable lines; a copy is .*\.damaged", report.problems[0])
    assert report.is_undone
    assert differences(before["host"], bed.state()["host"]) == []
    assert not detach(bed.container.sandbox, bed.settings).found


def test_a_plan_that_this_netdra_cannot_read_is_put_aside(bed: Bed) -> None:
    recorder(bed, "fake")
    attach(prepared(bed), bed.container, bed.pod.path, bed.settings)
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    path.write_bytes(path.read_bytes().replace(b'"dependOn":["dev"]', b'"dependOn":["gone"]'))
    report = detach(bed.container.sandbox, bed.settings)
    assert "the checkpoint was renamed to" in report.problems[0]
    assert path.with_name(f"{path.name}.bad-0").exists()
    assert not detach(bed.container.sandbox, bed.settings).found


def test_the_same_sandbox_from_two_sides_is_attached_once(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    fake.does("ADD", 'sleep 0.3; echo "{}"')
    plans = prepared(bed)
    outcomes: list[bool] = []
    both = threading.Barrier(2)

    def work() -> None:
        both.wait()
        outcomes.append(attach(plans, bed.container, bed.pod.path, bed.settings).repeated)

    others = [threading.Thread(target=work) for _ in range(2)]
    for each in others:
        each.start()
    for each in others:
        each.join()
    assert sorted(outcomes) == [False, True]
    assert len(fake.calls("ADD")) == 1


def test_a_sandbox_that_is_made_anew_is_attached_anew(bed: Bed) -> None:
    recorder(bed, "fake")
    plans = prepared(bed)
    attach(plans, bed.container, bed.pod.path, bed.settings)
    with Namespace.create(f"{Path(bed.pod.path).name}-2") as other:
        try:
            report = attach(plans, bed.container, other.path, bed.settings)
            assert not report.repeated
            assert report.steps[0].result.interfaces[0].sandbox == other.path
            assert [each["ifname"] for each in bed.ip("link", inside=True)] == ["lo"]
            assert detach(bed.container.sandbox, bed.settings).is_clean
        finally:
            netns.delete(Path(other.path).name)
    assert bed.link("eth7")["mtu"] == 1400


def test_other_plans_for_a_sandbox_replace_the_first(bed: Bed) -> None:
    recorder(bed, "fake")
    plans = prepared(bed)
    attach(plans, bed.container, bed.pod.path, bed.settings)
    other = (plan(step("dev", "host-device", "net5", device=device("eth7"))),)
    assert not attach(other, bed.container, bed.pod.path, bed.settings).repeated
    assert [each["ifname"] for each in bed.ip("link", inside=True)] == ["lo", "net5"]


def test_a_device_that_another_sandbox_holds_is_refused_and_named(bed: Bed) -> None:
    taken = checkpoint.create(bed.settings.state, of_sandbox(bed, "other"), 1)
    holders.take(bed.settings.state, "0000:01:00.0", "other")
    with pytest.raises(TemporaryError, match="is still used by sandbox other") as refused:
        holders.take(bed.settings.state, "0000:01:00.0", "mine")
    assert "the pod uses the device until it ends" in refused.value.hint, "its namespace is there: it is healthy"
    netns.delete(Path(bed.pod.path).name)
    with pytest.raises(TemporaryError) as refused:
        holders.take(bed.settings.state, "0000:01:00.0", "mine")
    assert "netdra detach other" in refused.value.hint
    assert holders.holder(bed.settings.state, "0000:01:00.0") == "other"
    taken.remove()
    assert holders.holder(bed.settings.state, "0000:01:00.0") == ""
    holders.take(bed.settings.state, "0000:01:00.0", "mine")
    holders.take(bed.settings.state, "0000:01:00.0", "mine")
    holders.give_up(bed.settings.state, "0000:01:00.0", "other")
    assert (bed.settings.state / "devices" / "0000:01:00.0").is_symlink()
    holders.give_up(bed.settings.state, "0000:01:00.0", "mine")
    assert not (bed.settings.state / "devices" / "0000:01:00.0").is_symlink()


def test_a_holder_of_an_earlier_boot_holds_nothing(bed: Bed) -> None:
    journal = checkpoint.create(
        bed.settings.state, msgspec.structs.replace(of_sandbox(bed, "other"), boot_id="an earlier one"), 1
    )
    holders.take(bed.settings.state, "0000:01:00.0", "other")
    assert holders.holder(bed.settings.state, "0000:01:00.0") == ""
    journal.remove()


def test_a_second_pod_cannot_have_a_device_that_is_in_the_first(bed: Bed) -> None:
    recorder(bed, "fake")
    plans = prepared(bed)
    attach(plans, bed.container, bed.pod.path, bed.settings)
    second = PodIdentity(sandbox=f"{bed.container.sandbox}-2")
    with Namespace.create(f"{Path(bed.pod.path).name}-2") as other:
        try:
            with pytest.raises(AttachError, match='device "eth7" is not on the host'):
                attach(plans, second, other.path, bed.settings)
        finally:
            netns.delete(Path(other.path).name)
    assert check(bed.container.sandbox, bed.settings).is_clean


def of_sandbox(bed: Bed, sandbox: str) -> Header:
    return Header(
        version=checkpoint.VERSION,
        boot_id=boot_id(),
        pod=PodIdentity(sandbox=sandbox),
        namespace=checkpoint.NamespaceId(path=bed.pod.path, cookie=1),
        plugins=bed.settings.plugins,
        plans=(),
    )


def as_of_another_boot(bed: Bed) -> Path:
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    path.write_bytes(path.read_bytes().replace(boot_id().encode(), b"00000000-0000-0000-0000-000000000000"))
    return path
