"""`netdra check`: whether a sandbox still has its network."""

from __future__ import annotations

import sys

import click

from netdra.chain.report import StepCheck
from netdra.chain.site import ChainSettings
from netdra.cli import chains, shared, terminal


@click.command(name="check")
@click.argument("sandbox")
@click.option(
    "--repair",
    is_flag=True,
    help="Restore settings of VFs that a reset removed, before the check; undo a sandbox whose pod has ended.",
)
@chains.settings_options
@shared.output("table", "json", "yaml")
def command(sandbox: str, repair: bool, settings: ChainSettings, output: str) -> None:
    """Check whether the network of SANDBOX has changed since it was attached, and show the differences.

    Built-in steps compare with the kernel; binaries are called with CHECK. The exit code is 1 if there are differences.
    An interface without a carrier is shown, but is not a difference.

    A VF does not work after a reset, or after its PF was down. With --repair, the settings of the VF are configured
    again, and its interface is set down and up; addresses and routes of the pod are kept. If the pod has ended and a
    device could not be restored, --repair tries to undo its steps again.
    """
    from netdra.chain.check import check

    report = check(sandbox, settings, repair=repair)
    for problem in report.problems:
        terminal.tell(f"sandbox {sandbox}: {problem}")
    for step in report.steps:
        for text in step.repaired:
            terminal.tell(f'step "{step.step}": {text}')
    rows = [(step.step, step.plugin, _state(step), _detail(step)) for step in report.steps]
    rows += [(step.step, step.plugin, step.outcome, chains.detail(step)) for step in report.undone]
    chains.show(report, output, ("STEP", "TYPE", "STATE", "DETAIL"), rows)
    if report.hint:
        terminal.tell(f"hint: {report.hint}")
    if not report.is_clean:
        sys.exit(1)


def _detail(step: StepCheck) -> str:
    # A built-in step has its interface's being down among its drift.
    shown = step.link if step.link not in step.drift else ""
    return "; ".join(filter(None, (*step.drift, step.skipped, shown)))


def _state(step: StepCheck) -> str:
    if step.drift:
        return "drift"
    return "not checked" if step.skipped else "ok"
