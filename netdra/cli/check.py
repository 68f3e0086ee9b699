"""`netdra check`: whether a sandbox still has its network."""

from __future__ import annotations

import sys

import click

from netdra.chain.report import StepCheck
from netdra.chain.site import ChainSettings
from netdra.cli import chains, shared, terminal


@click.command(name="check")
@click.argument("sandbox")
@click.option("--repair", is_flag=True, help="Restore settings of VFs that a reset removed, before the check.")
@chains.settings_options
@shared.output("table", "json", "yaml")
def command(sandbox: str, repair: bool, settings: ChainSettings, output: str) -> None:
    """Ask every step of SANDBOX whether what it made is still so, and show what has drifted.

    Built-in steps compare with the kernel, binaries are called with CHECK. The exit code is 1 if there is drift.

    A VF is dead after a reset, or after its PF was down. With --repair its settings at the PF are set again, and its
    interface is set down and up; addresses and routes of the pod are kept.
    """
    from netdra.chain.check import check

    report = check(sandbox, settings, repair=repair)
    for problem in report.problems:
        terminal.tell(f"sandbox {sandbox}: {problem}")
    for step in report.steps:
        for text in step.repaired:
            terminal.tell(f'step "{step.step}": {text}')
    rows = [(step.step, step.plugin, _state(step), "; ".join(step.drift) or step.skipped) for step in report.steps]
    chains.show(report, output, ("STEP", "TYPE", "STATE", "DETAIL"), rows)
    if not report.is_clean:
        sys.exit(1)


def _state(step: StepCheck) -> str:
    if step.drift:
        return "drift"
    return "not checked" if step.skipped else "ok"
