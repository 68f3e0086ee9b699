"""A step that fails, in every way and at every position: all before it is undone, and the report states so."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from netdra.chain import checkpoint
from netdra.chain.detach import detach
from netdra.chain.report import AttachError, AttachPermanentError, AttachTemporaryError, FailedAttachReport
from netdra.model.errors import InvalidInputError, NetdraError, code_of
from netdra.model.plan import Plan, PlannedStep
from testbed.pace import stretched, within
from tests.kernel.chain.conftest import Bed, device, differences, recorder, with_budget
from tests.plans import attach, plan, step

# What the plugin does on ADD, and what of it the report says.
MANNERS = {
    "error": ("""echo '{"code": 7, "msg": "no", "details": "because"}'; exit 1""", "error", 7),
    "try again": ("""echo '{"code": 11, "msg": "busy"}'; exit 1""", "error", 11),
    "silent": ("exit 1", "rubbish", 0),
    "rubbish": ("echo '<html>'", "rubbish", 0),
    "signal": ("kill -SEGV $$", "signal", 0),
    "half done": ('ip -n "$(basename "$CNI_NETNS")" link add half type bridge; exit 1', "rubbish", 0),
}
DEEP = json.loads('{"a":' * 400 + "1" + "}" * 400)
UNDO_HALF = 'ip -n "$(basename "$CNI_NETNS")" link del half 2>/dev/null; true'


def chain(bed: Bed, failing: PlannedStep, position: int) -> Plan:
    """Move, tune, make a veth pair with an address from IPAM, with a failing step at a position among them."""
    bed.veth("eth7", "peer7", up=True)
    ipam = {"type": "host-local", "subnet": "10.5.0.0/24", "dataDir": str(bed.settings.state.parent / "ipam")}
    steps = [
        step("dev", "host-device", "net1", {"ipam": {**ipam, "subnet": "10.6.0.0/24"}}, device=device("eth7")),
        step("tune", "tuning", "net1", {"mtu": 1400, "addresses": ["10.1.0.5/24"]}, after=["dev"]),
        step("port", "ptp", "net2", {"ipam": ipam}, after=["tune"]),
        step("last", "tuning", "net2", {"promisc": True}, after=["port"]),
    ]
    steps.insert(position, failing)
    return plan(*steps)


def leases(bed: Bed) -> list[str]:
    return sorted(str(path) for path in (bed.settings.state.parent / "ipam").glob("*/10.*"))


@pytest.mark.parametrize("position", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("manner", MANNERS)
def test_all_before_it_is_undone(bed: Bed, manner: str, position: int) -> None:
    script, kind, code = MANNERS[manner]
    fake = recorder(bed, "fake")
    fake.does("ADD", script)
    fake.does("DEL", UNDO_HALF)
    before_names = ["dev", "tune", "port", "last"][:position]
    failing = step("bad", "fake", "net9", after=before_names[-1:])
    plans = (chain(bed, failing, position),)
    before = bed.state()
    with pytest.raises(AttachError) as caught:
        attach(plans, bed.container, bed.pod.path, bed.settings)
    report = caught.value.report
    (failure,) = report.failures
    assert (failure.topology, failure.step, failure.plugin) == ("t", "bad", "fake")
    assert (failure.kind, failure.code) == (kind, code)
    assert report.is_clean
    assert {each.step for each in report.undone} >= {"bad", *before_names}
    assert isinstance(caught.value, AttachTemporaryError if code == 11 else AttachPermanentError)
    assert len(fake.calls("DEL")) == 1
    assert differences(before, bed.state()) == []
    assert leases(bed) == []


def test_a_hanging_plugin_costs_its_share_of_the_budget_and_no_more(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    fake.does("ADD", "sleep 1000")
    plans = (chain(bed, step("bad", "fake", "net9", after=["tune"]), 2),)
    budget = stretched(6.0)
    before = bed.state()
    with within(1.0, "undoing what a hanging plugin had before it", after=0.15 * budget):
        report = failed(plans, with_budget(bed, budget, setup_share=0.15))
    assert report.failures[0].kind == "timeout"
    assert report.is_clean
    assert differences(before, bed.state()) == []


def test_where_others_wait_undoing_after_a_hanging_plugin_is_left_for_detach(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    fake.does("ADD", "sleep 1000")
    fake.does("DEL", "sleep 1000")
    plans = (chain(bed, step("bad", "fake", "net9", after=["tune"]), 2),)
    budget = stretched(6.0)
    before = bed.state()
    with within(0.5, "answering after a plugin has hung", after=0.3 * budget):
        report = failed(plans, with_budget(bed, budget, setup_share=0.3, undo_of_hung=0.0))
    assert report.failures[0].hung == "fake"
    assert {each.outcome for each in report.undone} == {"left"}
    assert not fake.calls("DEL")
    fake.succeeds("DEL")
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


def test_steps_not_undone_within_the_budget_are_left_for_detach(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    fake.fails("ADD")
    fake.does("DEL", "sleep 1000")
    plans = (chain(bed, step("bad", "fake", "net9", after=["tune"]), 2),)
    budget = stretched(2.0)
    before = bed.state()
    with within(0.5, "leaving what cannot be undone in time", after=budget):
        report = failed(plans, with_budget(bed, budget))
    assert {each.step: each.outcome for each in report.undone}["bad"] == "failed"
    assert {each.step: each.outcome for each in report.undone}["dev"] == "left"
    assert bed.settings.state.exists()
    fake.succeeds("DEL")
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert differences(before, bed.state()) == []


def test_teardown_gathers_all_errors_and_goes_on(bed: Bed) -> None:
    for name in ("one", "two"):
        recorder(bed, name).fails("DEL", code=100, message=f"{name} is stuck")
    bed.veth("eth7", "peer7", mtu=1400)
    bed.veth("eth8", "peer8", mtu=1400)
    plans = (
        plan(
            step("dev", "host-device", "net1", {"mtu": 1300}, device=device("eth7")),
            step("a", "one", "net1", after=["dev"]),
            step("b", "two", "net1", after=["a"]),
            step("other", "host-device", "net2", {"mtu": 1300}, device=device("eth8")),
        ),
    )
    attach(plans, bed.container, bed.pod.path, bed.settings)
    report = detach(bed.container.sandbox, bed.settings)
    assert {code_of(each.message) for each in report.undone if each.outcome == "failed"} == {"ND7003"}
    assert {each.step: each.outcome for each in report.undone} == {
        "a": "failed",
        "b": "failed",
        "dev": "undone",
        "other": "undone",
    }
    assert "one is stuck" in str(report)
    assert "two is stuck" in str(report)
    assert bed.link("eth7")["mtu"] == bed.link("eth8")["mtu"] == 1400
    again = detach(bed.container.sandbox, bed.settings)
    assert [each.step for each in again.undone] == ["b", "a"]
    for name in ("one", "two"):
        (bed.plugins / f".{name}.recorded" / "DEL.sh").write_text("")
    assert detach(bed.container.sandbox, bed.settings).is_clean
    assert not detach(bed.container.sandbox, bed.settings).found


def test_a_plugin_that_answers_container_unknown_requires_no_undo(bed: Bed) -> None:
    recorder(bed, "fake").fails("DEL", code=3, message="container unknown")
    attach((plan(step("a", "fake", "net1")),), bed.container, bed.pod.path, bed.settings)
    assert detach(bed.container.sandbox, bed.settings).is_clean


def test_two_that_fail_together_are_both_reported(bed: Bed) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        meet = f"touch {bed.plugins}/begun-{name}; while [ ! -e {bed.plugins}/begun-{other} ]; do sleep 0.01; done"
        recorder(bed, name).does("ADD", f"""{meet}; echo '{{"code": 100, "msg": "{name} fails"}}'; exit 1""")
    plans = (plan(step("a", "one", "net1"), step("b", "two", "net2")),)
    report = failed(plans, bed)
    assert sorted(each.message for each in report.failures) == ["one fails", "two fails"]


def test_the_error_names_all_that_a_person_needs(bed: Bed) -> None:
    fake = recorder(bed, "fake")
    fake.does("ADD", """echo 'panic: oh' >&2; echo '{"code": 7, "msg": "no", "details": "because"}'; exit 1""")
    bed.veth("eth7", "peer7")
    plans = (
        plan(
            step("dev", "host-device", "net1", device=device("eth7")),
            step("bad", "fake", "net9", after=["dev"]),
            topology="bonded",
        ),
    )
    with pytest.raises(AttachError) as caught:
        attach(plans, bed.container, bed.pod.path, bed.settings)
    assert str(caught.value) == (
        f'sandbox {bed.container.sandbox}: NetworkTopology "bonded", step "bad" (fake binary): '
        "no (code 7: its configuration is invalid): because (ND7107)\n"
        "  stderr: panic: oh\n"
        "undone: bad, dev"
    )


@pytest.mark.parametrize(
    "bad",
    [
        step("bad", "no-such-plugin", "net9"),
        step("bad", "../../bin/sh", "net9"),
        step("bad", "tuning", "net1", {"mtuu": 1400}, after=["dev"]),
        step("bad", "tuning", "net1", {"dev": "{{ dev.interfaceName }}", "mtu": "1400"}, after=["dev"]),
        step("bad", "tuning", "net1", {"dev": "{{ dve.interfaceName }}"}, after=["dev"]),
        step("bad", "tuning", "net1", {"sysctl": {"kernel.hostname": "x"}}, after=["dev"]),
        step("bad", "tuning", "net1", {"ipam": {"type": "no-such-ipam"}}, after=["dev"]),
        step("bad", "host-device", "lo", device=device("eth8")),
        step("bad", "vlan", "v", {"master": "net1"}, after=["dev"]),
        step("bad", "bond", "bond0", {"mode": "802.3ad", "links": [{"name": "net1"}]}, after=["dev"]),
        step("bad", "bond", "bond0", {"mode": "bonkers", "links": ["net1", "net2"]}, after=["dev"]),
        step("bad", "tuning", "a/b", after=["dev"]),
        step("bad", "tuning", "sixteen-bytes-xx", after=["dev"]),
        step("bad", "tuning", "net1", after=["later"]),
        step("dev", "tuning", "net1"),
        step("bad", "magic", "net1", binary=False),
        step("bad", "first", "net9", {"cniVersion": "0.1.0"}),
        step("bad", "first", "net9", {"cniVersion": {"a": 1}}),
        step("bad", "first", "net9", {"text": "a\0b"}),
        step("bad", "first", "net9", {"text": "x" * 1_000_000}),
        step("bad", "first", "net9", {"deep": DEEP}),
        step("bad", "vlan", "net9", {"vlanId": 5}, binary=True),
        step("bad", "first", "net9", {"runtimeConfig": "x"}, device=device("eth8", pci_address="0000:00:00.0")),
        msgspec.structs.replace(step("bad", "first", "net9"), network="../../etc"),
        msgspec.structs.replace(step("bad", "first", "net9"), network="a\0b"),
        msgspec.structs.replace(step("bad", "first", "net9"), network="x" * 1000),
    ],
    ids=lambda each: f"{each.type}-{each.if_name}-{len(each.config)}",
)
def test_errors_known_in_advance_are_rejected_before_any_change(bed: Bed, bad: PlannedStep) -> None:
    bed.veth("eth7", "peer7")
    bed.veth("eth8", "peer8")
    first = recorder(bed, "first")
    plans = (
        plan(
            step("zero", "first", "net0"),
            step("dev", "host-device", "net1", device=device("eth7")),
            bad,
            step("later", "tuning", "net1", after=["dev"]),
        ),
    )
    before = bed.state()
    with pytest.raises(NetdraError) as caught:
        attach(plans, bed.container, bed.pod.path, bed.settings)
    assert not isinstance(caught.value, AttachError)
    assert f" ({caught.value.code})" in str(caught.value)
    assert first.calls() == []
    assert differences(before, bed.state()) == []


def test_a_pod_in_the_hosts_own_namespace_is_refused(bed: Bed) -> None:
    with pytest.raises(InvalidInputError, match="host's network namespace"):
        attach((plan(),), bed.container, "/proc/thread-self/ns/net", bed.settings)


@pytest.mark.parametrize("path", ["/run/netns/no-such-one", "/etc/hostname", "/"])
def test_a_path_that_is_not_a_namespace_is_rejected(bed: Bed, path: str) -> None:
    with pytest.raises(NetdraError, match="network namespace"):
        attach((plan(),), bed.container, path, bed.settings)
    assert not bed.settings.state.exists()


def test_a_missing_device_is_named_in_the_failure(bed: Bed) -> None:
    report = failed((plan(step("dev", "host-device", "net1", device=device("eth404"))),), bed)
    assert report.failures[0].message == 'device "eth404" is not on the host'
    assert report.is_clean


def test_an_unwritable_checkpoint_stops_all_before_it_begins(bed: Bed, tmp_path: Path) -> None:
    bed.veth("eth7", "peer7")
    (tmp_path / "state").write_text("a file where the folder should be")
    before = bed.link("eth7")
    with pytest.raises(NetdraError, match="cannot be read"):
        attach(
            (plan(step("dev", "host-device", "net1", device=device("eth7"))),),
            bed.container,
            bed.pod.path,
            bed.settings,
        )
    assert bed.link("eth7") == before


def test_a_bad_checkpoint_is_moved_aside_and_reported(bed: Bed) -> None:
    bed.veth("eth7", "peer7")
    plans = (plan(step("dev", "host-device", "net1", device=device("eth7"))),)
    path = checkpoint.path_of(bed.settings.state, bed.container.sandbox)
    path.parent.mkdir()
    path.write_text("rubbish\n")
    report = attach(plans, bed.container, bed.pod.path, bed.settings)
    assert "does not have a readable header; it was renamed to" in report.problems[0]
    path.write_text("rubbish\n")
    gone = detach(bed.container.sandbox, bed.settings)
    assert not gone.is_clean
    assert "it was renamed to" in gone.problems[0]


def failed(plans: tuple[Plan, ...], bed: Bed) -> FailedAttachReport:
    with pytest.raises(AttachError) as caught:
        attach(plans, bed.container, bed.pod.path, bed.settings)
    return caught.value.report
