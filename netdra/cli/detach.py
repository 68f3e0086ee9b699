"""`netdra detach`: undo a sandbox's networks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from netdra.cli import chains, shared, terminal

if TYPE_CHECKING:
    from netdra.chain.report import UndoReport
    from netdra.chain.site import ChainSettings


@click.command(name="detach")
@click.argument("sandbox", required=False)
@shared.option("--netns", "PATH", "The pod's network namespace, if its path has changed.", default="")
@click.option("--give-up", is_flag=True, help="Rename the checkpoint if a step still cannot be undone.")
@chains.settings_options
@shared.output("table", "json", "yaml")
def command(sandbox: str | None, netns: str, give_up: bool, settings: ChainSettings, output: str) -> None:
    """Undo the networks of SANDBOX from its checkpoint alone; without SANDBOX, that named like the namespace.

    It needs neither the plan nor the namespace, and may be called again. Everything is tried; if something is left,
    the exit code is 4 and the checkpoint stays, or with --give-up is put aside.
    """
    from netdra.chain.detach import detach

    if not sandbox and not netns:
        raise click.UsageError("specify SANDBOX, or its namespace with --netns")
    report = detach(sandbox or chains.sandbox_of(netns), settings, netns, give_up=give_up)
    for problem in report.problems:
        terminal.tell(problem)
    if not report.found:
        terminal.tell(f"sandbox {report.sandbox} is not attached")
    rows = [(step.step, step.plugin, step.outcome, _detail(step)) for step in report.undone]
    chains.show(report, output, ("STEP", "TYPE", "OUTCOME", "DETAIL"), rows)
    if not report.is_clean:
        sys.exit(4)


def _detail(step: UndoReport) -> str:
    restored = (f"restored: {text}" for text in step.restored)
    return "; ".join(filter(None, (step.message, *restored, *step.notes)))
