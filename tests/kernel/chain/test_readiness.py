"""Plugins are asked whether they are ready (STATUS) before anything is touched."""

from __future__ import annotations

import pytest

from netdra.chain import preflight
from netdra.chain.detach import detach
from netdra.model.errors import PermanentError, TemporaryError
from netdra.model.plan import Plan
from testbed.recorder import Recorder
from tests.kernel.chain.conftest import Bed, device, differences, recorder
from tests.plans import attach, plan, step


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that comes is heard, however slowly the machine runs the plugin that gives it."""
    monkeypatch.setattr(preflight, "MAX_SECONDS", 60.0)


def two(bed: Bed) -> tuple[Plan, ...]:
    bed.veth("eth7", "peer7")
    dev = step("dev", "host-device", "net1", device=device("eth7"))
    return (plan(dev, step("a", "one", "net1", {"mark": 1}, after=["dev"]), step("b", "two", "net2")),)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("code", "kind"), [(50, TemporaryError), (51, TemporaryError), (999, PermanentError)])
def test_a_plugin_that_is_not_ready_stops_all_before_it_begins(bed: Bed, code: int, kind: type[Exception]) -> None:
    one, other = recorder(bed, "one"), recorder(bed, "two")
    other.fails("STATUS", code=code, message="the daemon is away")
    plans = two(bed)
    before = bed.state()
    with pytest.raises(kind, match=rf'step "b" \(two binary\).*the daemon is away \(code {code}\)'):
        attach(plans, bed.container, bed.pod.path, bed.settings)
    assert one.calls("ADD") == []
    assert differences(before, bed.state()) == []
    other.succeeds("STATUS")
    attach(plans, bed.container, bed.pod.path, bed.settings)


@pytest.mark.usefixtures("patient")
def test_a_plugin_is_asked_with_its_configuration_and_of_no_container(bed: Bed) -> None:
    one, _ = recorder(bed, "one"), recorder(bed, "two")
    attach(two(bed), bed.container, bed.pod.path, bed.settings)
    (call,) = one.calls("STATUS")
    assert (call.config["type"], call.config["name"], call.config["mark"]) == ("one", "t-a", 1)
    assert "CNI_CONTAINERID" not in call.environment


@pytest.mark.usefixtures("patient")
def test_all_are_asked_at_once_and_all_that_are_not_ready_are_named(bed: Bed) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        fake = recorder(bed, name)
        seen = f'touch "{bed.plugins}/asked-{name}"; while [ ! -e "{bed.plugins}/asked-{other}" ]; do sleep 0.01; done'
        fake.does("STATUS", f"""{seen}; echo '{{"code": 50, "msg": "{name} sleeps"}}'; exit 1""")
    with pytest.raises(TemporaryError, match=r"one sleeps.*two sleeps"):
        attach(two(bed), bed.container, bed.pod.path, bed.settings)


@pytest.mark.parametrize("script", ["sleep 1000", "echo rubbish; exit 1", "kill -SEGV $$"])
def test_a_plugin_that_does_not_answer_is_not_held_up_for_that(bed: Bed, script: str) -> None:
    one, _ = recorder(bed, "one"), recorder(bed, "two")
    one.does("STATUS", script)
    attach(two(bed), bed.container, bed.pod.path, bed.settings)
    assert len(one.calls("ADD")) == 1


def test_a_plugin_that_is_too_old_for_it_is_not_asked(bed: Bed) -> None:
    one, _ = Recorder(bed.plugins, "one", versions=("0.4.0", "1.0.0")), recorder(bed, "two")
    attach(two(bed), bed.container, bed.pod.path, bed.settings)
    assert one.calls("STATUS") == []


@pytest.mark.usefixtures("patient")
def test_a_plugin_that_was_ready_just_now_is_not_asked_again(bed: Bed) -> None:
    one, _ = recorder(bed, "one"), recorder(bed, "two")
    plans = two(bed)
    for _ in range(2):
        attach(plans, bed.container, bed.pod.path, bed.settings)
        assert detach(bed.container.sandbox, bed.settings).is_clean
    assert [call.verb for call in one.calls()] == ["STATUS", "ADD", "DEL", "ADD", "DEL"]


@pytest.mark.usefixtures("patient")
def test_the_ipam_plugin_of_a_built_in_step_is_asked_too(bed: Bed) -> None:
    fake = recorder(bed, "addresses")
    fake.fails("STATUS", code=50, message="no addresses left")
    bed.veth("eth7", "peer7")
    dev = step("dev", "host-device", "net1", {"ipam": {"type": "addresses"}}, device=device("eth7"))
    with pytest.raises(TemporaryError, match=r'step "dev" \(host-device\): .*no addresses left'):
        attach((plan(dev),), bed.container, bed.pod.path, bed.settings)
