"""GC: plugins get the list of attachments; where it is not known, nothing is collected."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import msgspec
import pytest

from netdra.chain import checkpoint
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.collect import collect
from netdra.chain.detach import detach
from netdra.chain.site import ChainSettings
from netdra.model.errors import TemporaryError
from netdra.model.plan import Plan
from netdra.ops import files
from testbed.recorder import Recorder
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, device, recorder
from tests.kernel.chain.test_commands import netdra
from tests.plans import attach, plan, step

VALID = "cni.dev/valid-attachments"


def attached(bed: Bed, *sandboxes: str) -> Recorder:
    """Sandboxes with one network of a recorder."""
    fake = recorder(bed, "fake")
    for number, sandbox in enumerate(sandboxes):
        attach((of_fake(f"net{number}"),), PodIdentity(sandbox=sandbox), bed.pod.path, bed.settings)
    return fake


def of_fake(if_name: str) -> Plan:
    return plan(step("a", "fake", if_name, {"mark": 1}))


def valid(fake: Recorder) -> list[list[tuple[str, str]]]:
    """The attachments that each GC must keep."""
    return [[(each["containerID"], each["ifname"]) for each in call.config[VALID]] for call in fake.calls("GC")]


def test_each_network_is_collected_once_with_all_that_is_attached_to_it(bed: Bed) -> None:
    fake = attached(bed, "s1", "s2")
    report = collect(bed.settings)
    assert report.is_clean
    assert [(each.network, each.plugin, each.valid) for each in report.networks] == [("t-a", "fake", 2)]
    assert valid(fake) == [[("s1", "net0"), ("s2", "net1")]]
    (call,) = fake.calls("GC")
    assert (call.config["name"], call.config["type"], call.config["mark"]) == ("t-a", "fake", 1)
    detach("s1", bed.settings)
    collect(bed.settings)
    assert valid(fake)[1:] == [[("s2", "net1")]]


def test_a_network_without_any_sandbox_is_collected_if_its_plan_is_given(bed: Bed) -> None:
    fake = attached(bed, "s1")
    detach("s1", bed.settings)
    assert collect(bed.settings).networks == ()
    collect(bed.settings, (of_fake("net0"),))
    assert valid(fake) == [[]]


def test_an_attachment_that_could_not_be_undone_stays_valid_for_gc(bed: Bed) -> None:
    fake = attached(bed, "s1")
    fake.fails("DEL")
    assert not detach("s1", bed.settings).is_clean
    collect(bed.settings)
    assert valid(fake) == [[("s1", "net0")]]


def test_the_leases_of_built_in_steps_are_their_ipam_plugins_to_collect(bed: Bed) -> None:
    fake = recorder(bed, "addresses")
    fake.prints("ADD", {"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.7/24"}]})
    bed.veth("eth7", "peer7")
    dev = step("dev", "host-device", "net1", {"ipam": {"type": "addresses"}}, device=device("eth7"))
    attach((plan(dev),), bed.container, bed.pod.path, bed.settings)
    assert [each.plugin for each in collect(bed.settings).networks] == ["addresses"]
    assert valid(fake) == [[(bed.container.sandbox, "net1")]]
    assert fake.calls("GC")[0].config["type"] == "host-device"


@pytest.mark.parametrize("name", ["lost.jsonl", "lost.jsonl.bad-0"])
def test_nothing_is_collected_where_a_checkpoint_cannot_be_read(bed: Bed, name: str) -> None:
    fake = attached(bed, "s1")
    (bed.settings.state / name).write_text("rubbish\n")
    report = collect(bed.settings)
    assert not report.is_clean
    assert "lost.jsonl" in report.problems[0]
    assert fake.calls("GC") == []


def test_no_sandbox_begins_while_plugins_collect(bed: Bed) -> None:
    fake = attached(bed, "s1")
    begun, go_on = bed.plugins / "begun", bed.plugins / "go-on"
    fake.does("GC", f"touch {begun}; while [ ! -e {go_on} ]; do sleep 0.01; done")
    worker = threading.Thread(target=collect, args=(bed.settings,))
    worker.start()
    until(lambda: begun.exists() or not worker.is_alive(), "the plugin to collect")
    assert worker.is_alive()
    header = checkpoint.load_all(bed.settings.state)[0][0].header
    with pytest.raises(TemporaryError, match="another process has locked"):
        checkpoint.create(bed.settings.state, msgspec.structs.replace(header, pod=PodIdentity(sandbox="s2")), 0.05)
    go_on.touch()
    attach((of_fake("net5"),), PodIdentity(sandbox="s2"), bed.pod.path, bed.settings)
    worker.join()
    assert len(fake.calls("ADD")) == 2


def test_a_plugin_without_gc_is_skipped_and_a_failing_plugin_is_reported(bed: Bed) -> None:
    Recorder(bed.plugins, "old", versions=("1.0.0",))
    fake = attached(bed, "s1")
    fake.fails("GC", message="cannot")
    attach((plan(step("o", "old", "net7")),), PodIdentity(sandbox="s3"), bed.pod.path, bed.settings)
    report = collect(bed.settings)
    assert not report.is_clean
    assert "cannot" in report.networks[0].problem
    assert report.networks[1].skipped == "it supports CNI 1.0.0, which does not define GC"


def test_without_any_state_gc_collects_nothing_and_creates_no_folder(tmp_path: Path) -> None:
    assert collect(ChainSettings(state=tmp_path / "no")).networks == ()
    assert not (tmp_path / "no").exists()


def test_the_gc_command_prints_the_collected_networks(bed: Bed) -> None:
    attached(bed, "s1")
    done = netdra(bed, "gc")
    assert (done.returncode, done.stdout.split()[-4:]) == (0, ["t-a", "fake", "1", "done"])
    told = netdra(bed, "gc", "-o", "json")
    assert json.loads(told.stdout)["networks"] == [{"network": "t-a", "plugin": "fake", "valid": 1}]
    files.replace(bed.settings.state / "x.jsonl", b"rubbish", 1)
    assert netdra(bed, "gc").returncode == 4
