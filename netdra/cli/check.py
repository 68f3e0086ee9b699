"""`netdra check`: whether a sandbox still has its network."""

from __future__ import annotations

import sys

import click

from netdra.chain.report import StepCheck
from netdra.chain.site import ChainSettings
from netdra.cli import chains, shared, terminal


@click.command(name="check")
@click.argument("sandbox")
@chains.settings_options
@shared.output("table", "json", "yaml")
def command(sandbox: str, settings: ChainSettings, output: str) -> None:
    """Ask every step of SANDBOX whether what it made is still so, and show what has drifted.

    Built-in steps compare with the kernel, binaries are called with CHECK. The exit code is 1 if there is drift.
    """
    from netdra.chain.check import check

    report = check(sandbox, settings)
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
