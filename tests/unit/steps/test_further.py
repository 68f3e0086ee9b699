"""Everything else that the kernel reports: which differences matter, and which are only reported."""

from __future__ import annotations

import pytest

from netdra.steps import further, settings
from netdra.steps.further import Changed
from netdra.steps.settings import ChangedSetting, StrandedError


def changes(former: further.Further, present: further.Further) -> list[tuple[str, bool, bool]]:
    return [(changed.text, changed.matters, changed.unknown) for changed in further.differences(former, present)]


def test_a_value_that_differs_matters_to_the_next_user() -> None:
    former = {"link": {}, "EEE": {"enabled": "01"}, "queue": {"queues/rx-0/rps_cpus": "3"}}
    present = {"link": {"flag noarp": "01"}, "EEE": {"enabled": "00"}, "queue": {}}
    assert changes(former, present) == [
        ("link flag noarp on, not off", True, False),
        ("EEE enabled 0, not 1", True, False),
        ("queue queues/rx-0/rps_cpus none, not 3", True, False),
    ]


def test_a_group_that_the_driver_cannot_report_just_now_is_not_compared() -> None:
    assert changes({"EEE": {"enabled": "01"}}, {}) == []


def test_an_unknown_value_is_reported_and_holds_the_device_only_if_that_is_wanted() -> None:
    ((text, matters, unknown),) = changes({"link": {}}, {"link": {"attribute 199": "0102"}})
    assert (text, matters, unknown) == (
        "link attribute 199 513, not none (unknown to this version of netdra)", False, True,
    )  # fmt: skip
    changed = ChangedSetting(("link", "attribute 199"), text, matters=False, unknown=True)
    assert settings.conclude("x", [changed], []) == (f"x has {text}",)
    with pytest.raises(StrandedError, match="attribute 199"):
        settings.conclude("x", [changed], [], hold_unknown=True)


def test_the_queue_discipline_of_the_node_is_a_note() -> None:
    lost = changes({"link": {"queue discipline": b"htb".hex()}}, {"link": {}})
    assert lost == [("link queue discipline none, not htb", False, False)]


def test_a_setting_that_no_program_can_set_does_not_hold_the_device() -> None:
    changed = Changed("link modes", "speed", "e8030000", "0a000000", matters=True, unknown=False)
    setting = ChangedSetting(("link modes", "speed"), changed.text, matters=True, further=changed)
    (fixed,) = [settings._as_fixed(setting, {changed.text})]
    assert not fixed.holds(unknown=True)
    assert fixed.text.endswith("(its driver cannot set it)")
    assert settings._as_fixed(setting, set()) == setting
