"""Chains of built-in steps and of the programs of their names, attached, failing and detached in any order.

In all cases the device is as it was.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.chain.detach import detach
from netdra.chain.report import AttachError
from netdra.cni.plugins import PluginPath
from testbed import build
from tests.kernel.chain.conftest import Bed, device, differences
from tests.plans import attach, on_devices

CHAIN = """
- {{name: dev, type: host-device, execution: {root}}}
- {{name: tune, type: tuning, execution: {derived}, dependOn: [dev], config: {{mtu: 1300, txqlen: 77, promisc: true}}}}
"""
INSIDE = 'pod="ip -n $(basename "$CNI_NETNS")"'
# What a program does that has done all that the real one does, and what its DEL does; "" for what the real one does.
FAULTS = {
    "dies": ("kill -9 $$", ""),
    "lies": ("echo [", ""),
    "fails": ('echo \'{"code": 100, "msg": "no"}\'; exit 1', ""),
    "spoils": (f'{INSIDE}; $pod link set "$CNI_IFNAME" address 02:00:00:00:99:99 mtu 1200; exit 1', "exit 0"),
    "renames": (f'{INSIDE}; $pod link set "$CNI_IFNAME" down name elsewhere; exit 1', "exit 0"),
}
EXECUTIONS = st.sampled_from(["Auto", "Binary"])


class Try(msgspec.Struct, frozen=True):
    """One attach: the implementation of each step, and the fault of each program among them."""

    root: str
    derived: str
    fault: str = ""
    program: str = "host-device"


TRIES = st.builds(
    Try,
    root=EXECUTIONS,
    derived=EXECUTIONS,
    fault=st.sampled_from(["", *sorted(FAULTS)]),
    program=st.sampled_from(["host-device", "tuning"]),
)


def faulty(folder: Path, program: str, fault: str) -> None:
    """The programs of a folder stand before the real ones."""
    for path in folder.iterdir():
        path.unlink()
    if fault:
        added, deleted = FAULTS[fault]
        real = build.program(program)
        lines = ["#!/bin/sh", f'[ "$CNI_COMMAND" = ADD ] || {{ {deleted or f"exec {real}"}; }}']
        if deleted:
            lines[1] = f'[ "$CNI_COMMAND" != VERSION ] || exec {real}\n[ "$CNI_COMMAND" = ADD ] || {deleted}'
        lines += [f"{real} >/dev/null || exit 1", added]
        (folder / program).write_text("\n".join(lines))
        (folder / program).chmod(0o755)


def test_after_any_sequence_of_attach_and_detach_the_device_is_restored(bed: Bed, tmp_path: Path) -> None:
    bed.veth("eth7", "peer7", mtu=1480, up=True)
    folder = tmp_path / "faulty"
    folder.mkdir()
    plugins = PluginPath(directories=(str(folder), *bed.settings.plugins.directories))
    given_settings = msgspec.structs.replace(bed.settings, plugins=plugins)
    before, sandbox = bed.state(), bed.container.sandbox

    @settings(max_examples=20)
    @given(st.lists(TRIES, min_size=1, max_size=3))
    def holds(tries: list[Try]) -> None:
        for each in tries:
            faulty(folder, each.program, each.fault)
            written = CHAIN.format(root=each.root, derived=each.derived)
            befallen = each.fault and (each.root if each.program == "host-device" else each.derived) == "Binary"
            try:
                attach((on_devices(written, dev=device("eth7")),), bed.container, bed.pod.path, given_settings)
                assert not befallen
            except AttachError:
                assert befallen
            report = detach(sandbox, given_settings)
            assert report.is_undone, str(report)
            assert differences(before, bed.state()) == []

    holds()
