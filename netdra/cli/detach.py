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
    """Detach the networks of SANDBOX, by default the name of the namespace; only its checkpoint is required.

    Neither the plan nor the namespace is required, and the command can be repeated. All steps are tried. If a step
    cannot be undone, the exit code is 4 and the checkpoint remains; with --give-up, the checkpoint is renamed. Links
    that the pod put on its devices in other network namespaces are deleted.
    """
    from netdra.chain import returned
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
    findings = returned.examine(settings.state, settings.budget).findings if report.found else ()
    for finding in findings:
        terminal.tell(f"device {finding.device} came back from the pod with {finding}")
    if not report.is_clean or any(finding.problem for finding in findings):
        sys.exit(4)


def _detail(step: UndoReport) -> str:
    restored = (f"restored: {text}" for text in step.restored)
    return "; ".join(filter(None, (step.message, *restored, *step.notes)))
