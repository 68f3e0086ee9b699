"""`netdra check`: whether a sandbox still has its network."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from netdra.chain.report import StepCheck
from netdra.cli import chains, terminal


@click.command(name="check")
@click.argument("sandbox")
@chains.settings_options
@chains.output_option
def command(sandbox: str, state: Path, cni_path: str, host_root: str, timeout: float, output: str) -> None:
    """Ask every step of SANDBOX whether what it made is still so, and show what has drifted.

    Built-in steps compare with the kernel, binaries are called with CHECK. The exit code is 1 if there is drift.
    """
    from netdra.chain.check import check

    report = check(sandbox, chains.settings(state, cni_path, host_root, timeout))
    for problem in report.problems:
        terminal.tell(f"sandbox {sandbox}: {problem}")
    rows = [(step.step, step.plugin, _state(step), "; ".join(step.drift) or step.skipped) for step in report.steps]
    chains.show(report, output, ("STEP", "TYPE", "STATE", "DETAIL"), rows)
    if not report.is_clean:
        sys.exit(1)


def _state(step: StepCheck) -> str:
    if step.drift:
        return "drift"
    return "not checked" if step.skipped else "ok"
