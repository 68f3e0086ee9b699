"""`netdra detach`: undo a sandbox's networks."""

from __future__ import annotations

import sys

import click

from netdra.chain.site import ChainSettings
from netdra.cli import chains, shared, terminal


@click.command(name="detach")
@click.argument("sandbox", required=False)
@shared.option("--netns", "PATH", "The pod's network namespace, if its path has changed.", default="")
@click.option("--give-up", is_flag=True, help="Rename the checkpoint if a step still cannot be undone.")
@click.option(
    "--accept-differences",
    is_flag=True,
    help="Release devices that cannot be restored, as they are; rejected while the namespace exists.",
)
@chains.settings_options
@shared.output("table", "json", "yaml")
def command(
    sandbox: str | None, netns: str, give_up: bool, accept_differences: bool, settings: ChainSettings, output: str
) -> None:
    """Detach the networks of SANDBOX, by default the name of the namespace; only its checkpoint is required.

    Neither the plan nor the namespace is required, and the command can be repeated. All steps are tried. If a step
    cannot be undone, the exit code is 4 and the checkpoint remains; with --give-up, the checkpoint is renamed. Links
    that the pod put on its devices in other network namespaces are deleted.

    A device that differs from its state before the pod is held: no other claim gets it. After you have inspected it on
    the node, release it with --accept-differences. The differences are printed, and the checkpoint is renamed.
    """
    from netdra.chain import returned
    from netdra.chain.detach import detach
    from netdra.chain.holders import held_hint

    if not sandbox and not netns:
        raise click.UsageError("specify SANDBOX, or its namespace with --netns")
    report = detach(
        sandbox or chains.sandbox_of(netns),
        settings,
        netns,
        give_up=give_up,
        accept_differences=accept_differences,
    )
    for problem in report.problems:
        terminal.tell(problem)
    if not report.found:
        terminal.tell(f"sandbox {report.sandbox} is not attached")
    rows = [(step.step, step.plugin, step.outcome, chains.detail(step)) for step in report.undone]
    chains.show(report, output, ("STEP", "TYPE", "OUTCOME", "DETAIL"), rows)
    if report.record:
        terminal.tell(f"sandbox {report.sandbox}: devices were released as they are; its checkpoint is {report.record}")
    if report.is_stranded:
        terminal.tell(f"hint: {held_hint(report.sandbox)}")
    findings = returned.examine(settings.state, settings.budget).findings if report.found else ()
    for finding in findings:
        terminal.tell(f"device {finding.device} came back from the pod with {finding}")
    if not report.is_clean or any(finding.problem for finding in findings):
        sys.exit(4)
