"""A shared device is compared with its state before the first of the plugin calls that overlap in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.chain import shares
from netdra.chain.shares import _Calls
from netdra.cni import plugins
from netdra.cni.plugins import PluginPath
from netdra.model.plan import PlannedDevice
from netdra.ops.boot import since_boot
from netdra.steps.allocated import Allocated

DEVICES = ((Path("/state"), "0000:03:00.0"), (Path("/state"), "0000:03:00.1"))


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(DEVICES))))
def test_overlapping_calls_have_the_record_of_the_first_and_a_later_call_has_its_own(
    sequence: list[tuple[bool, tuple[Path, str]]],
) -> None:
    calls = _Calls()
    open_calls: dict[tuple[Path, str], list[Any]] = {device: [] for device in DEVICES}
    for begins, device in sequence:
        present = open_calls[device]
        if begins:
            record = cast("Allocated", object())
            first = calls.begin(device, record)
            assert first is (present[0] if present else record)
            present.append(first)
        elif present:
            calls.end(device)
            present.pop()
    for device, present in open_calls.items():
        for _ in present:
            calls.end(device)
        record = cast("Allocated", object())
        assert calls.begin(device, record) is record


def program(folder: Path, text: str) -> None:
    (folder / "fake").write_text(text)
    (folder / "fake").chmod(0o755)


def test_a_program_is_kept_off_a_device_that_it_changed_for_a_time_of_this_boot_until_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = PluginPath(directories=(str(tmp_path),))
    program(tmp_path, "#!/bin/sh")
    device = PlannedDevice(request="r", pool="p", device="eth1")
    shares.mark(tmp_path / "state", device, "MTU 1500 became 9000", plugins.find("fake", where), where)

    def kept_off() -> list[str]:
        return [changed.device for changed in shares.changed_devices(tmp_path / "state")]

    assert kept_off() == ["eth1"]
    now = since_boot()
    with monkeypatch.context() as later:
        later.setattr(shares, "since_boot", lambda: now + shares.KEPT_OFF_SECONDS)
        assert kept_off() == []
    with monkeypatch.context() as rebooted:
        rebooted.setattr(shares, "boot_id", lambda: "another")
        assert kept_off() == []
    assert kept_off() == ["eth1"]
    program(tmp_path, "#!/bin/sh\n# that does better")
    assert kept_off() == []
