"""The SR-IOV machine from outside: its output, its errors, and that nothing is left of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.vm import ingredients, machine
from testbed.waiting import until


def qemu_of(results: Path) -> list[int]:
    """The processes that write into a results folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if command.startswith(b"/") and f"path={results}/console.log".encode() in command:
            found.append(int(entry.name))
    return found


def test_a_command_that_takes_too_long_is_stopped_and_changes_nothing_outside(tmp_path: Path) -> None:
    results, outside = tmp_path / "results of one", tmp_path / "outside"
    outside.write_text("before")
    script = f"echo inside >{outside}; cat {outside}; cat {outside} >'{results}/kept'; sleep 600"

    with pytest.raises(machine.MachineError, match="the command was stopped after 8 s"):
        machine.run(["sh", "-c", script], ingredients.ensure(), results, limit=8)

    assert outside.read_text() == "before"
    assert (results / "kept").read_text() == "inside\n"
    assert (results / "output.log").read_text().splitlines()[-1] == "inside"
    assert qemu_of(results) == []


def test_a_machine_that_does_not_boot_reports_its_output_and_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_GUEST_SCRIPT", tmp_path / "nothing")

    with pytest.raises(machine.MachineError) as caught:
        machine.run(["true"], ingredients.ensure(), tmp_path / "results", limit=10)

    assert "the machine did not boot; its output is in" in str(caught.value)
    assert f"can't execute '{tmp_path}/nothing'" in str(caught.value)
    assert qemu_of(tmp_path / "results") == []


def test_the_machine_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    results = tmp_path / "results"
    starter = subprocess.Popen((sys.executable, "-m", "testbed.vm", "run", "--results", str(results), "true"))
    try:
        until(lambda: qemu_of(results), "QEMU to be started", seconds=280)
    finally:
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    until(lambda: not qemu_of(results), "QEMU to end", seconds=280)
